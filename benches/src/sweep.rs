//! Many short jobs, from the first creation until all are complete, with their output kept: ours beside Slurm and HyperQueue, on this
//! machine, in the same run. Whichever of them is missing is said.

use crate::peer::{Peer, cpu_seconds, resting_mb, until};
use crate::{Figure, Setting, load};
use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const JOBS: usize = 3000;
const CLIENTS: usize = 32;
const PATH: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs";
const HYPERQUEUE: &str = "hyperqueue==0.27.0";
/// Processors in Slurm's configuration of this machine. With two, Slurm would start at most two jobs every two seconds.
/// Ours starts every job that asks for no processors at once, so Slurm gets room for all of them, too.
const SLOTS: usize = 256;
const LIMIT: Duration = Duration::from_secs(1800);

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let jobs = JOBS / setting.shrink;
    let Ours { rate: ours, memory_kb, processor_ms } = {
        let peer = Peer::trainyard(&setting.trainyard, &[])?;
        measure_ours(&peer, jobs).await?
    };
    let (slurm, hyperqueue) = match setting.peers {
        true => (beside("Slurm", slurm(jobs).map(Some)), beside("HyperQueue", hyperqueue(setting, jobs).map(Some))),
        false => (None, None),
    };
    let figure = |against, peer| Figure {
        name: "short jobs, create to complete",
        unit: "jobs/s",
        ours,
        peer,
        against,
        more_is_better: true,
    };
    let alone = |name, unit, ours| Figure { name, unit, ours, peer: None, against: "-", more_is_better: false };
    Ok(vec![
        figure("Slurm (sbatch)", slurm),
        figure("HyperQueue", hyperqueue),
        alone("memory of a finished TrainJob", "KB, 1 pod", memory_kb),
        alone("processor of the control plane for it", "ms", processor_ms),
    ])
}

/// What was measured of a peer; why not, if it was not, is printed.
pub fn beside(name: &str, measured: Result<Option<f64>>) -> Option<f64> {
    measured.unwrap_or_else(|error| {
        eprintln!("MISSING: {name} is not compared with: {error:#}");
        None
    })
}

struct Ours {
    /// Jobs a second.
    rate: f64,
    /// Of the control plane, for each job, once it rests.
    memory_kb: f64,
    processor_ms: f64,
}

fn trainjob(name: &str) -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": {"numNodes": 1, "command": ["true"]}}})
}

async fn measure_ours(peer: &Peer, jobs: usize) -> Result<Ours> {
    let pid = *peer.pids.first().context("it has a process")?;
    let client = &peer.client().await?;
    until(Duration::from_secs(120), || load::create(client, PATH, trainjob("warm-up"))).await?;
    wait_for(client, std::iter::once("warm-up".to_owned()), Duration::from_secs(120)).await?;
    let memory = resting_mb(pid).await?;
    let (processor, start) = (cpu_seconds(pid), Instant::now());
    load::create_all(client, PATH, CLIENTS, jobs, trainjob).await?;
    wait_for(client, (0..jobs).map(|job| format!("o{job}")), LIMIT).await?;
    let (seconds, processor) = (start.elapsed().as_secs_f64(), cpu_seconds(pid) - processor);
    let (memory, jobs) = (resting_mb(pid).await? - memory, jobs as f64);
    Ok(Ours { rate: jobs / seconds, memory_kb: memory * 1024.0 / jobs, processor_ms: processor * 1e3 / jobs })
}

/// Waits for one job after the other, in the order of their creation, in which they end for the most part: to list all of them again and
/// again would take much of the machine from what is measured.
async fn wait_for(client: &Client, names: impl Iterator<Item = String>, limit: Duration) -> Result<()> {
    let start = Instant::now();
    for name in names {
        let left = limit.saturating_sub(start.elapsed());
        ensure!(until(left, || has_succeeded(client, &name)).await?, "{name} has failed");
    }
    Ok(())
}

/// Of a job that has ended; an error, if it has not.
async fn has_succeeded(client: &Client, name: &str) -> Result<bool> {
    let job: Value = client.request(Request::get(format!("{PATH}/{name}")).body(Vec::new())?).await?;
    let is = |kind: &str| {
        let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    ensure!(is("Complete") || is("Failed"), "{name} has not ended");
    Ok(is("Complete"))
}

/// A program that runs until this is dropped.
pub struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Slurm in a folder of its own: munged, slurmctld, slurmd.
pub struct Slurm {
    home: TempDir,
    conf: PathBuf,
    _daemons: Vec<Daemon>,
}

/// A program on `PATH`, or where Debian has what root runs.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("there is no {name}; install Debian's slurm-wlm and munge"))
}

/// A port of the loopback that is free now.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Slurm {
    /// Told of so many processors.
    pub fn start(processors: usize) -> Result<Self> {
        let [munged, slurmctld, slurmd] = [program("munged")?, program("slurmctld")?, program("slurmd")?];
        program("sbatch")?;
        let home = tempfile::tempdir()?;
        let at = |name: &str| home.path().join(name);
        let show = |name: &str| at(name).display().to_string();
        for folder in ["state", "spool", "out"] {
            fs::create_dir(at(folder))?;
        }
        let mut key = vec![0; 1024];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut key)?;
        fs::write(at("munge.key"), key)?;
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(at("munge.key"), fs::Permissions::from_mode(0o400))?;
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let host = host.trim().split('.').next().unwrap_or("localhost").to_owned();
        let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?;
        let (control, node) = (free_port()?, free_port()?);
        let conf = at("slurm.conf");
        fs::write(
            &conf,
            format!(
                "ClusterName=bench\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\n\
                 AuthInfo=socket={munge}\nStateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={pid}\n\
                 SlurmdPidFile={node_pid}\nSlurmctldPort={control}\nSlurmdPort={node}\nProctrackType=proctrack/linuxproc\n\
                 TaskPlugin=task/none\nMpiDefault=none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
                 MaxJobCount=100000\nReturnToService=2\nSlurmctldLogFile={log}\nSlurmdLogFile={node_log}\n\
                 SlurmdParameters=config_overrides\nSchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1\n\
                 NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN\n\
                 PartitionName=all Nodes={host} Default=YES State=UP\n",
                user = user.trim(),
                munge = show("munge.socket"),
                state = show("state"),
                spool = show("spool"),
                pid = show("slurmctld.pid"),
                node_pid = show("slurmd.pid"),
                log = show("slurmctld.log"),
                node_log = show("slurmd.log"),
            ),
        )?;
        let spawn = |command: &mut Command| -> Result<Daemon> {
            let command =
                command.env("SLURM_CONF", &conf).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Ok(Daemon(command.spawn()?))
        };
        let mut munge = Command::new(munged);
        munge.args(["--foreground", "--force", "--num-threads=4"]);
        for (flag, name) in [
            ("key-file", "munge.key"),
            ("socket", "munge.socket"),
            ("pid-file", "munge.pid"),
            ("log-file", "munge.log"),
            ("seed-file", "munge.seed"),
        ] {
            munge.arg(format!("--{flag}={}", show(name)));
        }
        let mut daemons = vec![spawn(&mut munge)?];
        wait_until("munged answers", || Ok(at("munge.socket").exists()))?;
        daemons.push(spawn(Command::new(slurmctld).arg("-D"))?);
        daemons.push(spawn(Command::new(slurmd).args(["-D", "-N", &host]))?);
        // the last to be started is the first to be ended
        daemons.reverse();
        let slurm = Self { home, conf, _daemons: daemons };
        wait_until("its node is idle", || Ok(slurm.says("sinfo", &["-h", "-o", "%T"])?.trim() == "idle"))?;
        Ok(slurm)
    }

    fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(program(name)?);
        command.env("SLURM_CONF", &self.conf).current_dir(self.home.path().join("out"));
        Ok(command)
    }

    fn says(&self, name: &str, args: &[&str]) -> Result<String> {
        Ok(String::from_utf8(self.command(name)?.args(args).stderr(Stdio::null()).output()?.stdout)?)
    }

    /// Jobs a second of so many that run `true`, from the first submission until none is left.
    pub fn run_true(&self, jobs: usize) -> Result<f64> {
        let script = self.home.path().join("job.sh");
        fs::write(&script, "#!/bin/sh\ntrue\n")?;
        let start = Instant::now();
        self.run(&script, jobs)?;
        Ok(jobs as f64 / start.elapsed().as_secs_f64())
    }

    /// Submits so many jobs, and waits until none is left.
    fn run(&self, script: &Path, jobs: usize) -> Result<()> {
        std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..CLIENTS.min(jobs))
                .map(|first| {
                    scope.spawn(move || -> Result<()> {
                        for _ in (first..jobs).step_by(CLIENTS) {
                            let mut sbatch = self.command("sbatch")?;
                            let status = sbatch.arg(script).stdout(Stdio::null()).status()?;
                            ensure!(status.success(), "sbatch failed");
                        }
                        Ok(())
                    })
                })
                .collect();
            submitters
                .into_iter()
                .try_for_each(|submitter| submitter.join().map_err(|_| anyhow::anyhow!("a submitter panicked"))?)
        })?;
        wait_until("its jobs are done", || Ok(self.says("squeue", &["-h"])?.trim().is_empty()))
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(start.elapsed() < LIMIT, "it never came to be that {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn slurm(jobs: usize) -> Result<f64> {
    let slurm = Slurm::start(SLOTS)?;
    slurm.run_true(1)?;
    let rate = slurm.run_true(jobs)?;
    let kept = fs::read_dir(slurm.home.path().join("out"))?.count();
    ensure!(kept == jobs + 1, "{kept} of {} jobs have left their output", jobs + 1);
    Ok(rate)
}

/// HyperQueue from PyPI, in a virtual environment of its own (`target/hyperqueue`), made once.
fn hyperqueue(setting: &Setting, jobs: usize) -> Result<f64> {
    const SCRIPT: &str = include_str!("hyperqueue.py");
    let target = setting.trainyard.parent().and_then(Path::parent).context("the binary lies in target")?;
    let venv = target.join("hyperqueue");
    let python = std::path::absolute(venv.join("bin/python"))?;
    if !venv.join("ready").exists() {
        eprintln!("installing {HYPERQUEUE} into {}", venv.display());
        crate::ray::quietly(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        crate::ray::quietly(Command::new(&python).args(["-m", "pip", "install", "--quiet", HYPERQUEUE]))?;
        fs::write(venv.join("ready"), "")?;
    }
    let output = Command::new(&python).args(["-c", SCRIPT, &jobs.to_string()]).stderr(Stdio::null()).output()?;
    ensure!(output.status.success(), "its script failed");
    let said = String::from_utf8(output.stdout)?;
    let seconds: f64 = said.lines().last().context("it says how long it took")?.parse()?;
    Ok(jobs as f64 / seconds)
}
