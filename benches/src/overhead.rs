//! What the platform adds to a script: from `trainyard run` to its first line, from its end to the prompt, from its failure to
//! the prompt; over the bare program, and beside `ray job submit` where it can be installed.

use crate::peer::Peer;
use crate::ray::Ray;
use crate::{Figure, Setting};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const RUNS: usize = 11;
const FAILURES: usize = 5;
const QUICK_RUNS: usize = 3;

/// Says hello, and last of all what time it is.
const HELLO: &str = "import time\nprint('hello', flush=True)\nprint('at', time.time(), flush=True)\n";
/// All ranks but the first wait; that fails once all are there, and says when.
const FAILS: &str = "
import os, pathlib, sys, time
folder, nodes = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank = int(os.environ.get('JAX_PROCESS_ID', '0'))
(folder / str(rank)).touch()
while rank != 0 or len(list(folder.iterdir())) < nodes:
    time.sleep(0.01)
print('at', time.time(), flush=True)
sys.exit(3)
";

/// What a run showed, in milliseconds.
struct Times {
    first_line: Option<f64>,
    /// From the time that the script said to the end of the command.
    end: Option<f64>,
    code: Option<i32>,
}

struct Bench<'a> {
    setting: &'a Setting,
    home: PathBuf,
    folder: TempDir,
}

impl Bench<'_> {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    fn run(&self, flags: &[&str], script: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::path::absolute(&self.setting.trainyard).unwrap_or_default());
        // the folder decides whether it starts warm
        command.current_dir(self.folder.path());
        command.args(["run", "--home"]).arg(&self.home).args(flags).arg(script).args(arguments);
        command
    }
}

pub fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let peer = Peer::trainyard(&setting.trainyard, &[])?;
    let home = peer.kubeconfig.parent().context("the kubeconfig lies in the home")?.to_owned();
    let bench = Bench { setting, home, folder: tempfile::tempdir()? };
    let hello = bench.write("hello.py", HELLO)?;
    let mut figures = Vec::new();

    let (runs, failures) = if setting.shrink > 1 { (QUICK_RUNS, QUICK_RUNS) } else { (RUNS, FAILURES) };

    let plain = ["--runtime", "jax-distributed"];
    let bare = || program(&["python3"], &hello);
    let pair = alternately(runs, || bench.run(&plain, &hello, &[]), bare)?;
    figures.extend(pair.figures("run to first line, python", "end of script to prompt, python", "the bare program"));

    if has("torchrun") {
        let bare = |processes: &'static str| program(&["torchrun", "--nproc-per-node", processes], &hello);
        let one = ["--no-warm", "--nproc-per-node", "1"];
        let pair = alternately(runs, || bench.run(&one, &hello, &[]), || bare("1"))?;
        figures.extend(pair.figures(
            "run to first line, torchrun",
            "end of script to prompt, torchrun",
            "bare torchrun",
        ));
        let warm = ["--warm", "--nproc-per-node", "2"];
        time(bench.run(&warm, &hello, &[]))?; // imports torch
        let pair = alternately(runs, || bench.run(&warm, &hello, &[]), || bare("2"))?;
        figures.extend(pair.figures("warm to first line, 2 ranks", "warm: end to prompt, 2 ranks", "bare torchrun"));
    } else {
        eprintln!("no torchrun on PATH: its figures are left out");
    }

    let fails = bench.write("fails.py", FAILS)?;
    for (nodes, name) in
        [("1", "failure to prompt, 1 node"), ("2", "failure to prompt, 2 nodes"), ("8", "failure to prompt, 8 nodes")]
    {
        let mut ends = Vec::new();
        for _ in 0..failures {
            let meet = tempfile::tempdir()?;
            let meet = meet.path().to_str().context("a temporary folder has a plain name")?;
            let flags = ["--runtime", "jax-distributed", "--nodes", nodes];
            let times = time(bench.run(&flags, &fails, &[meet, nodes]))?;
            ensure!(times.code == Some(3), "the script exited with 3, run with {:?}", times.code);
            ends.push(times.end.context("the script said when it failed")?);
        }
        figures.push(figure(name, median(ends), None, "-"));
    }

    match Ray::start(setting) {
        Ok(ray) => {
            let pair = alternately(failures, || bench.run(&plain, &hello, &[]), || ray.submit(&hello))?;
            let against = "ray job submit";
            figures.extend(pair.figures(
                "run to first line, against ray",
                "end of script to prompt, against ray",
                against,
            ));
        }
        Err(error) => eprintln!("ray is left out: {error:#}"),
    }
    Ok(figures)
}

/// Medians of ours and the peer's.
struct Pair {
    first_line: (f64, f64),
    end: (f64, f64),
}

impl Pair {
    fn figures(&self, first_line: &'static str, end: &'static str, against: &'static str) -> [Figure; 2] {
        for (name, (ours, theirs)) in [(first_line, self.first_line), (end, self.end)] {
            eprintln!("{name}: {ours:.1} ms, {against} {theirs:.1} ms, added {:.1} ms", ours - theirs);
        }
        [(first_line, self.first_line), (end, self.end)]
            .map(|(name, (ours, theirs))| figure(name, ours, Some(theirs), against))
    }
}

fn figure(name: &'static str, ours: f64, peer: Option<f64>, against: &'static str) -> Figure {
    Figure { name, unit: "ms (median)", ours, peer, against, more_is_better: false }
}

/// One of ours, one of theirs, and so on: what else the machine does falls on both.
fn alternately(runs: usize, ours: impl Fn() -> Command, theirs: impl Fn() -> Command) -> Result<Pair> {
    let mut columns: [Vec<f64>; 4] = Default::default();
    for _ in 0..runs {
        for (command, at) in [(ours(), 0), (theirs(), 2)] {
            let times = time(command)?;
            columns[at].push(times.first_line.context("the script's line did not come")?);
            columns[at + 1].push(times.end.context("the script did not say when it ended")?);
        }
    }
    let [our_first, our_end, their_first, their_end] = columns.map(median);
    Ok(Pair { first_line: (our_first, their_first), end: (our_end, their_end) })
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn program(words: &[&str], script: &Path) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(script);
    command
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn time(mut command: Command) -> Result<Times> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (mut first_line, mut said) = (None, None);
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if line.contains("hello") && first_line.is_none() {
            first_line = Some(start.elapsed().as_secs_f64() * 1e3);
        }
        if let Some((_, at)) = line.rsplit_once("at ")
            && let Ok(at) = at.trim().parse::<f64>()
        {
            said = Some(at);
        }
    }
    let status = child.wait()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    Ok(Times { first_line, end: said.map(|at| (now - at) * 1e3), code: status.code() })
}
