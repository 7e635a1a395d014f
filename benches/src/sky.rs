//! `trainyard sky` beside SkyPilot 0.14.1 with its API server (`make .venv/skypilot/done`): until the server answers, its memory when idle, `status`,
//! `launch --dryrun`; and of ours, `exec` to the first line on a cluster of an SSH pool, whose hosts are sshds on the loopback, and the same after
//! an edit of a working directory of 10,000 files, to the line of the second of two machines.
//!
//! SkyPilot cannot run anything here: its clouds want accounts, its Kubernetes a cluster that pulls images, and a machine of an SSH pool is taken
//! over as root and gets k3s from the network. `exec` is therefore not timed there. Its `launch --dryrun` chooses a machine and then fails, as
//! the libraries of its clouds are not installed: it counts up to there, which favours it.

use crate::overhead::median;
use crate::peer::Peer;
use crate::sshd::Servers;
use crate::sweep::free_port;
use crate::{Figure, Setting};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RUNS: usize = 11;
const QUICK_RUNS: usize = 3;
const STARTS: usize = 3;
/// Folders of the working directory, and files in each.
const FILES: (usize, usize) = (100, 100);
/// How long SkyPilot's server may take to answer, on a machine that has other work.
const LIMIT: Duration = Duration::from_secs(600);
const PRICES: &str = "crates/sky/golden/catalog/v8";
const TASK: &str =
    "name: bench\nresources:\n  accelerators: V100\n  any_of: [{infra: aws}, {infra: gcp}]\nrun: nvidia-smi\n";
/// The head of the table of machines.
const CONSIDERED: &str = "Considered resources";
/// Who the peer is.
const AGAINST: &str = "SkyPilot 0.14.1";
/// The clouds count as enabled, without accounts.
const ENABLE: &str = "
from sky import check, global_user_state
from sky.clouds import cloud
# else the list counts as one of other settings, and is made anew
global_user_state.set_allowed_clouds(check._get_workspace_allowed_clouds('default'), 'default')
for of in cloud.CloudCapability:
    global_user_state.set_enabled_clouds(['aws', 'gcp'], of, 'default')
";

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let (runs, starts) = if setting.shrink > 1 { (QUICK_RUNS, 1) } else { (RUNS, STARTS) };
    // commands run in the folder of their user
    let trainyard = std::path::absolute(&setting.trainyard)?;
    let mut ready = Vec::new();
    for _ in 0..starts {
        ready.push(Peer::trainyard(&trainyard, &[])?.ready.as_secs_f64() * 1e3);
    }
    let servers = Servers::start(3);
    let home = Home::new(servers.as_ref().ok())?;
    let ours = Peer::trainyard_with(&trainyard, &[], |command| home.of(command))?;
    let theirs = match setting.peers.then(|| SkyPilot::start(&home)).transpose() {
        Ok(theirs) => theirs,
        Err(error) => {
            eprintln!("SkyPilot is left out: {error:#}");
            None
        }
    };
    // idle: what is left when start-up work is over
    tokio::time::sleep(Duration::from_secs(5)).await;
    let figure = |name, unit, ours, peer: Option<f64>| {
        let against = if peer.is_some() { AGAINST } else { "-" };
        Figure { name, unit, ours, peer, against, more_is_better: false }
    };
    let mut figures = vec![
        figure("sky: server ready", "ms", median(ready), theirs.as_ref().map(|one| one.ready.as_secs_f64() * 1e3)),
        figure("sky: idle memory", "MB resident", ours.memory_mb(), theirs.as_ref().map(SkyPilot::memory_mb)),
    ];
    fs::write(home.folder.path().join("task.yaml"), TASK)?;
    let sky = |words: &[&str]| {
        let mut command = Command::new(&trainyard);
        home.of(&mut command);
        command.arg("sky").args(words).env("TRAINYARD_HOME", ours.folder());
        command
    };
    for (name, words, says) in [
        ("sky status", &["status"][..], "Clusters"),
        ("sky launch --dryrun", &["launch", "--dryrun", "-y", "-c", "bench", "task.yaml"], CONSIDERED),
    ] {
        let (mut mine, mut peers) = (Vec::new(), Vec::new());
        for run in 0..=runs {
            let own = until_end(&mut sky(words), says)?;
            // it looks at accounts again whenever it likes, and finds none
            theirs.as_ref().map(SkyPilot::enable).transpose()?;
            let other = theirs.as_ref().map(|one| until_end(&mut one.command(words), says));
            let other = other.transpose().map_err(|error| eprintln!("{name} of SkyPilot is left out: {error:#}"));
            // the first finds nothing in memory
            if run > 0 {
                mine.push(own);
                peers.extend(other.ok().flatten());
            }
        }
        eprintln!("{name}: ours {mine:.0?}, SkyPilot {peers:.0?} ms");
        figures.push(figure(name, "ms (median)", median(mine), (!peers.is_empty()).then(|| median(peers))));
    }
    match servers {
        Ok(_) => {
            let lines = first_lines(&sky, runs)?;
            figures.push(figure("sky exec to first line, SSH", "ms (median)", median(lines), None));
            let edits = edits(&sky, home.folder.path(), runs)?;
            figures.push(figure("sky exec after an edit, 2 machines", "ms (median)", median(edits), None));
        }
        Err(error) => eprintln!("sky exec is left out: {error:#}"),
    }
    Ok(figures)
}

/// From `exec` to the first line, on a cluster that is there, in milliseconds.
fn first_lines(sky: &dyn Fn(&[&str]) -> Command, runs: usize) -> Result<Vec<f64>> {
    to_end(&mut sky(&["launch", "-y", "-c", "bench", "--infra", "ssh/bench", "true"]))?;
    let mut all = Vec::new();
    for _ in 0..runs {
        all.push(until_lines(&mut sky(&["exec", "bench", "echo hello"]), "hello", 1)?);
    }
    eprintln!("sky exec: {all:.0?} ms");
    to_end(&mut sky(&["down", "-y", "bench"]))?;
    Ok(all)
}

/// From `exec` to the last line of two machines, after one file of the working directory was changed, in milliseconds.
fn edits(sky: &dyn Fn(&[&str]) -> Command, home: &Path, runs: usize) -> Result<Vec<f64>> {
    let work = home.join("work");
    let (folders, files) = FILES;
    for folder in 0..folders {
        let folder = work.join(folder.to_string());
        fs::create_dir_all(&folder)?;
        for file in 0..files {
            fs::write(folder.join(file.to_string()), format!("{file}\n").repeat(300))?;
        }
    }
    let on_both = ["-y", "-c", "pair", "--num-nodes", "2", "--workdir", "work"];
    to_end(sky(&["launch"]).args(on_both).args(["--infra", "ssh/pair", "true"]))?;
    let mut all = Vec::new();
    for run in 0..runs {
        let said = format!("edited {run}");
        fs::write(work.join("50/50"), &said)?;
        let words = ["exec", "pair", "--num-nodes", "2", "--workdir", "work", "cat 50/50; echo"];
        all.push(until_lines(&mut sky(&words), &said, 2)?);
    }
    eprintln!("sky exec after an edit: {all:.0?} ms");
    to_end(&mut sky(&["down", "-y", "pair"]))?;
    Ok(all)
}

/// Runs a command that must succeed.
fn to_end(command: &mut Command) -> Result<()> {
    let ended = command.stdin(Stdio::null()).output()?;
    ensure!(ended.status.success(), "{command:?}: {}; {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

/// How long it takes until a job has printed a line so often, in milliseconds; the command must succeed.
fn until_lines(command: &mut Command, line: &str, count: usize) -> Result<f64> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    // behind who says it
    let meant = format!(") {line}");
    let (mut seen, mut at) = (0, None);
    for printed in BufReader::new(stdout).lines() {
        if printed?.ends_with(&meant) {
            seen += 1;
            if seen == count {
                at = Some(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    ensure!(child.wait()?.success(), "{command:?} failed");
    at.with_context(|| format!("{command:?} printed {line:?} {seen} times"))
}

/// How long a command takes, in milliseconds; it says so much, whatever its exit code.
fn until_end(command: &mut Command, says: &str) -> Result<f64> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains(says), "{command:?} said {said}; {}", String::from_utf8_lossy(&output.stderr));
    Ok(took)
}

/// Jobs that SkyPilot's queue has.
pub const THEIR_JOBS: usize = 2000;
/// Submits so many jobs that wait, as its server does.
const SUBMIT: &str = "
import sys
from sky.jobs import state
from sky.utils import common_utils
for _ in range(int(sys.argv[1])):
    job = state.set_job_info_without_job_id('sky-cmd', 'default', 'sky jobs launch true', None, None, common_utils.get_user_hash())
    state.set_pending(job, 0, 'sky-cmd', '1x[CPU:1+]', '{}')
";

/// How long `sky jobs queue` of SkyPilot takes, in seconds, with [`THEIR_JOBS`] jobs that wait. Its server is its controller.
pub fn their_queue(runs: usize) -> Result<f64> {
    let home = Home::new(None)?;
    fs::create_dir_all(home.folder.path().join(".sky"))?;
    let settings = "jobs: {controller: {consolidation_mode: true}}\n";
    fs::write(home.folder.path().join(".sky/config.yaml"), settings)?;
    let server = SkyPilot::start(&home)?;
    let mut submit = Command::new(server.program.with_file_name("python"));
    home.of(&mut submit);
    to_end(submit.args(["-c", SUBMIT, &THEIR_JOBS.to_string()]))?;
    let counted = format!("In progress tasks: {THEIR_JOBS} PENDING");
    let queue = || until_end(&mut server.command(&["jobs", "queue"]), &counted);
    queue()?;
    let took: Result<Vec<f64>> = (0..runs).map(|_| queue()).collect();
    Ok(median(took?) / 1e3)
}

/// The home of a user who has price lists and a pool, and an `ssh` that takes its configuration from there.
struct Home {
    folder: TempDir,
    path: String,
}

impl Home {
    fn new(servers: Option<&Servers>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        copy(Path::new(PRICES), &at.join(".sky/catalogs/v8"))?;
        let mut path = std::env::var("PATH")?;
        if let Some(servers) = servers {
            let pool = |name: &str, hosts: &[&str]| {
                let head = format!("{name}:\n  user: root\n  identity_file: {}\n  hosts:\n", servers.key().display());
                hosts.iter().fold(head, |text, host| format!("{text}  - ip: {host}\n"))
            };
            let (first, others) = servers.hosts().split_at(1);
            fs::write(at.join(".sky/ssh_node_pools.yaml"), pool("bench", first) + &pool("pair", others))?;
            fs::create_dir(at.join("bin"))?;
            servers.write_ssh(&at.join("bin/ssh"))?;
            path = format!("{}:{path}", at.join("bin").display());
        }
        Ok(Self { folder, path })
    }

    /// A command of this user.
    fn of(&self, command: &mut Command) {
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env("PATH", &self.path);
        command.env("COLUMNS", "200").env("TRAINYARD_SSH_CONFIG", "0").env_remove("KUBECONFIG");
        command.env("SKYPILOT_DISABLE_USAGE_COLLECTION", "1");
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?
        } else {
            fs::copy(entry.path(), target).map(|_| ())?
        }
    }
    Ok(())
}

/// SkyPilot's API server; ended with all that it started when dropped.
struct SkyPilot<'a> {
    home: &'a Home,
    program: PathBuf,
    server: Child,
    port: u16,
    ready: Duration,
}

impl Drop for SkyPilot<'_> {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        let _ = self.server.wait();
    }
}

/// The command `sky` of SkyPilot.
pub fn program() -> Result<PathBuf> {
    let folder = std::env::var_os("SKYPILOT").map_or_else(|| PathBuf::from(".venv/skypilot/bin"), PathBuf::from);
    let program = std::path::absolute(folder)?.join("sky");
    ensure!(program.is_file(), "there is no {}: make .venv/skypilot/done", program.display());
    Ok(program)
}

impl<'a> SkyPilot<'a> {
    fn start(home: &'a Home) -> Result<Self> {
        let program = program()?;
        let port = free_port()?;
        let mut command = Command::new(&program);
        home.of(&mut command);
        let log = fs::File::create(home.folder.path().join("server.log"))?;
        command.args(["api", "start", "--foreground", "--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let start = Instant::now();
        let server = command.spawn()?;
        let mut this = Self { home, program, server, port, ready: Duration::ZERO };
        while !is_healthy(port) {
            if let Some(status) = this.server.try_wait()? {
                let log = fs::read_to_string(home.folder.path().join("server.log"))?;
                bail!("its server ended ({status}): {log}");
            }
            ensure!(start.elapsed() < LIMIT, "its server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        this.ready = start.elapsed();
        Ok(this)
    }

    /// Its clouds count as enabled, until it looks again.
    fn enable(&self) -> Result<()> {
        let mut command = Command::new(self.program.with_file_name("python"));
        self.home.of(&mut command);
        let enabled = command.args(["-c", ENABLE]).output()?;
        ensure!(enabled.status.success(), "enabling clouds: {}", String::from_utf8_lossy(&enabled.stderr));
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        self.home.of(&mut command);
        command.args(words).env("SKYPILOT_API_SERVER_ENDPOINT", format!("http://127.0.0.1:{}", self.port));
        command
    }

    /// The server and all that it started, by the home that they share.
    fn processes(&self) -> Vec<u32> {
        let home = format!("HOME={}", self.home.folder.path().display());
        let server = self.program.display().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_one = |pid: &u32| {
            let has = |file: &str, what: &str| {
                let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).contains(what)
            };
            // ours has the same home, and is no Python
            has("environ", &home) && (has("cmdline", "python") || has("cmdline", "sky.") || has("cmdline", &server))
        };
        pids.filter(is_one).collect()
    }

    fn memory_mb(&self) -> f64 {
        self.processes().into_iter().map(crate::peer::resident_mb).sum()
    }
}

/// Whether the server says that it is well.
fn is_healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let asked = stream.write_all(b"GET /api/health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    let mut answer = String::new();
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
}
