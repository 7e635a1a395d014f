//! From `trainyard mpijob create` to the first rank's line, beside a bare `mpirun` that reaches its hosts by SSH: real sshds, one for each
//! worker at an address of its own of the loopback. Four ranks on two workers, Open MPI and MPICH, one run of each in turn, and the other
//! first in every second turn. A job is deleted, with its pods, before the next run begins.
//!
//! Linux shares its processors among sessions (`sched_autogroup_enabled`): what either side starts here has a session of its own, as the
//! platform's pods and sshd's commands have.
//!
//! An sshd wants root and a mount namespace, in which it finds its user and its folder. Without it, or without an MPI, what is missing is
//! said and left out. `MPICH` names the folder of MPICH's `mpirun`, else the one that `make e2e` installs is taken.

use crate::overhead::median;
use crate::peer::Peer;
use crate::sshd::{Servers, write_program};
use crate::{Figure, Setting};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const RUNS: usize = 7;
const QUICK_RUNS: usize = 3;
const RANK: &str = "echo hello";

/// An `mpirun` of this machine.
struct Mpi {
    /// As `--implementation` has it.
    name: &'static str,
    folder: PathBuf,
    to_line: &'static str,
    share: &'static str,
}

pub fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let servers = match Servers::start(2) {
        Ok(servers) => servers,
        Err(error) => {
            eprintln!("mpirun is left out: {error:#}");
            return Ok(Vec::new());
        }
    };
    let runs = if setting.shrink > 1 { QUICK_RUNS } else { RUNS };
    let mpich = std::env::var_os("MPICH").map_or_else(|| PathBuf::from(".venv/mpi/mpich/bin"), PathBuf::from);
    // absolute, as pods and ssh look from folders of their own
    let mpich = std::path::absolute(mpich)?;
    let all = [
        Mpi {
            name: "openmpi",
            folder: PathBuf::from("/usr/bin"),
            to_line: "create to first line, Open MPI",
            share: "create to mpirun, Open MPI",
        },
        Mpi { name: "mpich", folder: mpich, to_line: "create to first line, MPICH", share: "create to mpirun, MPICH" },
    ];
    let mut figures = Vec::new();
    for mpi in all {
        if !mpi.folder.join("mpirun").is_file() {
            eprintln!("no mpirun in {}: its figures are left out", mpi.folder.display());
            continue;
        }
        figures.extend(figures_of(setting, &servers, &mpi, runs)?);
    }
    Ok(figures)
}

fn figures_of(setting: &Setting, servers: &Servers, mpi: &Mpi, runs: usize) -> Result<Vec<Figure>> {
    let programs = Programs::new(mpi)?;
    let peer = Peer::trainyard_with(&setting.trainyard, &[], |command| {
        command.env("PATH", &programs.path);
    })?;
    let home = peer.kubeconfig.parent().context("the kubeconfig lies in the home")?;
    let trainyard = std::path::absolute(&setting.trainyard)?;
    let ours = |name: &str| -> Result<(f64, f64)> {
        let begin = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let start = Instant::now();
        let odh = |words: &[&str]| {
            let mut command = in_session(&trainyard);
            command.env("PATH", &programs.path).args(["mpijob", "--home"]).arg(home).args(words);
            command
        };
        let create = ["create", name, "--workers", "2", "--slots-per-worker", "2", "--image", "none"];
        let made = odh(&create)
            .args(["--implementation", mpi.name, "--command", RANK])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        ensure!(made.status.success(), "mpijob create: {}", String::from_utf8_lossy(&made.stderr));
        let mut logs = odh(&["logs", name, "--follow"]);
        let (at, before) = first_line(&mut logs, start)?;
        let said = before.iter().find_map(|line| line.split_once("started ")?.1.trim().parse::<f64>().ok());
        let gone = odh(&["delete", name]).stdout(Stdio::null()).status()?;
        ensure!(gone.success(), "mpijob delete: {gone}");
        Ok((at, (said.context("mpirun did not say when it started")? - begin) * 1e3))
    };
    let (mut lines, mut shares, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        // who is first finds the machine as the other left it: each is, in turn
        let is_first = run % 2 == 0;
        if !is_first {
            theirs.push(first_line(&mut mpirun(servers, mpi), Instant::now())?.0);
        }
        let (line, share) = ours(&format!("bench-{run}"))?;
        lines.push(line);
        shares.push(share);
        if is_first {
            theirs.push(first_line(&mut mpirun(servers, mpi), Instant::now())?.0);
        }
    }
    eprintln!("{}: ours {lines:.0?}, to mpirun {shares:.0?}, bare {theirs:.0?} ms", mpi.name);
    let against = "bare mpirun over sshd";
    let figure = |name, ours, peer| Figure { name, unit: "ms (median)", ours, peer, against, more_is_better: false };
    Ok(vec![figure(mpi.to_line, median(lines), Some(median(theirs))), figure(mpi.share, median(shares), None)])
}

/// A program in a session of its own, which it is waited for in.
fn in_session(program: &Path) -> Command {
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(program);
    command
}

/// The first line of a rank, in milliseconds after `start`, and the lines before it. The command ends well, and all ranks speak.
fn first_line(command: &mut Command, start: Instant) -> Result<(f64, Vec<String>)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (mut at, mut ranks, mut before) = (None, 0, Vec::new());
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if line.contains("hello") {
            ranks += 1;
            at.get_or_insert_with(|| start.elapsed().as_secs_f64() * 1e3);
        } else {
            before.push(line);
        }
    }
    let mut said = String::new();
    child.stderr.take().context("stderr is piped")?.read_to_string(&mut said)?;
    let status = child.wait()?;
    ensure!(status.success() && ranks == 4, "{command:?}: {status}, {ranks} ranks; {before:?}; {said}");
    Ok((at.context("no rank said a word")?, before))
}

/// A folder that comes before all others on the PATH, with an `mpirun` that says when it starts.
struct Programs {
    path: String,
    _folder: TempDir,
}

impl Programs {
    fn new(mpi: &Mpi) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let rest = std::env::var("PATH")?;
        let path = format!("{}:{rest}", fs::canonicalize(&mpi.folder)?.display());
        // its PATH stays as it is: the node's `ssh` is first there
        let real = fs::canonicalize(&mpi.folder)?.join("mpirun");
        let script = format!("#!/bin/sh\necho started $(date +%s.%N)\nexec {} \"$@\"\n", real.display());
        write_program(&folder.path().join("mpirun"), &script)?;
        Ok(Self { path: format!("{}:{path}", folder.path().display()), _folder: folder })
    }
}

/// The same ranks on the same number of hosts, without a platform.
fn mpirun(servers: &Servers, mpi: &Mpi) -> Command {
    let ssh = servers.ssh();
    let hosts = servers.hosts().iter().map(|host| format!("{host}:2")).collect::<Vec<_>>().join(",");
    let mut command = in_session(&mpi.folder.join("mpirun"));
    if mpi.name == "openmpi" {
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--mca", "plm_rsh_agent"]).arg(ssh).args(["--host", &hosts]);
    } else {
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(ssh).args(["-hosts", &hosts]);
    }
    command.args(["-n", "4"]).args(RANK.split(' '));
    command
}
