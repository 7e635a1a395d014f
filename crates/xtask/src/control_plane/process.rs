//! Programs that outlive the command that starts them, by name. Each has a log and a file with its process id.

use super::{deadline, write_private};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to stop before it is killed.
const GRACE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// How a program was started at first.
#[derive(Deserialize, Serialize)]
struct Kept {
    program: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
}

/// The processes of one control plane.
pub struct Processes {
    dir: PathBuf,
}

impl Processes {
    /// Those that were started in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Starts a program in the folder; standard output and error go to `NAME.log`.
    pub fn start(
        &self,
        name: &str,
        program: &Path,
        environment: &[(&str, &Path)],
        arguments: impl FnOnce(&mut Command),
    ) -> Result<()> {
        let mut command = Command::new(program);
        arguments(&mut command);
        command.envs(environment.iter().copied());
        self.keep(name, &command)?;
        self.spawn(name, command)
    }

    /// Starts a program that was stopped, as it was started at first. An argument `--flag=value` takes the place of the
    /// one for the same flag, this time.
    pub fn start_again(&self, name: &str, arguments: &[String]) -> Result<()> {
        if let Some(pid) = self.alive(name) {
            bail!("{name} runs already, as process {pid}");
        }
        let path = self.dir.join(format!("{name}.command.json"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}: was {name} ever started here?", path.display()))?;
        let mut kept: Kept = serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))?;
        for argument in arguments {
            let flag = argument.split_inclusive('=').next().unwrap_or_default();
            kept.arguments.retain(|old| !old.starts_with(flag));
            kept.arguments.push(argument.clone());
        }
        let mut command = Command::new(kept.program);
        command.args(kept.arguments).envs(kept.environment);
        self.spawn(name, command)
    }

    /// Writes down how a program is started.
    fn keep(&self, name: &str, command: &Command) -> Result<()> {
        let text = |word: &OsStr| word.to_str().map(str::to_owned).context("an argument that is not UTF-8");
        let kept = Kept {
            program: text(command.get_program())?,
            arguments: command.get_args().map(text).collect::<Result<_>>()?,
            environment: command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?)))
                .map(|(name, value)| Ok((text(name)?, text(value)?)))
                .collect::<Result<_>>()?,
        };
        write_private(&self.dir.join(format!("{name}.command.json")), &serde_json::to_string_pretty(&kept)?)
    }

    fn spawn(&self, name: &str, mut command: Command) -> Result<()> {
        let log = self.dir.join(format!("{name}.log"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let program = command.get_program().to_owned();
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // of a group of its own, so that ^C for the caller is none for it
        let child = command.process_group(0).spawn().with_context(|| format!("starting {}", program.display()))?;
        std::fs::write(self.file(name), format!("{} {}\n", child.id(), program.display()))
            .context("writing its process id")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.pid"))
    }

    /// The process, if it is alive and still the program that was started.
    fn alive(&self, name: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(self.file(name)).ok()?;
        let (pid, program) = text.trim_end().split_once(' ')?;
        let runs = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // between its start and its first instruction a program has no arguments yet; one that ends has none any more
        let same = if runs.is_empty() {
            !has_ended(pid)
        } else {
            runs.split(|byte| *byte == 0).next() == Some(program.as_bytes())
        };
        Some(Pid::from_raw(pid.parse().ok()?)).filter(|_| same)
    }

    /// Names of what was started and not stopped, controllers first and the store last.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".pid")?.to_owned())).collect();
        let rank = |name: &String| ["kube-controller-manager", "kube-apiserver", "etcd"].iter().position(|n| n == name);
        names.sort_by_key(rank);
        names
    }

    /// Whether anything runs.
    pub fn any_alive(&self) -> bool {
        self.names().iter().any(|name| self.alive(name).is_some())
    }

    /// Repeats an attempt until it succeeds; fails when time is up, or when the program has ended by then.
    pub async fn until(&self, name: &str, limit: Duration, attempt: impl AsyncFn() -> Result<()>) -> Result<()> {
        let deadline = deadline(limit);
        loop {
            let Err(error) = attempt().await else { return Ok(()) };
            if self.alive(name).is_none() {
                bail!("{name} has ended:\n{}", self.tail(name));
            }
            if Instant::now() > deadline {
                return Err(error.context(format!("{name} did not come up in {limit:?}:\n{}", self.tail(name))));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The last lines of a program's log.
    fn tail(&self, name: &str) -> String {
        let path = self.dir.join(format!("{name}.log"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{}\n(the end of {})", lines[lines.len().saturating_sub(15)..].join("\n"), path.display())
    }

    /// Stops everything, one after the other, and waits until it is gone.
    pub fn stop_all(&self, at_once: bool) -> Result<()> {
        for name in self.names() {
            self.stop(&name, at_once).with_context(|| format!("stopping {name}"))?;
        }
        Ok(())
    }

    /// Asks a program to end, or kills it at once, and waits until it is gone.
    pub fn stop(&self, name: &str, at_once: bool) -> Result<()> {
        let (asked, mut killed) = (Instant::now(), at_once);
        if let Some(pid) = self.alive(name) {
            kill(pid, if at_once { Signal::SIGKILL } else { Signal::SIGTERM })?;
        }
        while let Some(pid) = self.alive(name) {
            if asked.elapsed() > GRACE && !killed {
                killed = true;
                kill(pid, Signal::SIGKILL)?;
            }
            if asked.elapsed() > 2 * GRACE {
                bail!("process {pid} does not end");
            }
            std::thread::sleep(POLL);
        }
        std::fs::remove_file(self.file(name)).with_context(|| format!("removing the process id of {name}"))
    }
}

/// Whether a process has let go of all it had: its first thread is a zombie at once when it is killed, while its other
/// threads still hold its ports (proc(5), `/proc/PID/task`).
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ends = stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().count();
    ends && threads <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_is_stopped_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let processes = Processes::new(dir.path());
        let sleep =
            ["/bin/sleep", "/usr/bin/sleep"].iter().map(Path::new).find(|p| p.exists()).expect("there is sleep");
        processes.start("etcd", sleep, &[], |command| _ = command.arg("600")).expect("it starts");
        let pid = processes.alive("etcd").expect("it runs");
        // a process of the same number that is another program
        std::fs::write(processes.file("other"), format!("{} /no/such/program\n", std::process::id())).expect("written");
        assert!(processes.alive("other").is_none() && processes.any_alive());
        // nobody but us reaps it
        let reaper = std::thread::spawn(move || nix::sys::wait::waitpid(pid, None));
        processes.stop_all(false).expect("it stops");
        reaper.join().expect("no panic").expect("reaped");
        assert!(!processes.any_alive() && processes.names().is_empty());

        let error = processes.start_again("never", &[]).expect_err("it never ran").to_string();
        assert!(error.contains("was never ever started here?"), "{error}");
        processes.start_again("etcd", &["601".to_owned()]).expect("it starts again");
        let pid = processes.alive("etcd").expect("it runs");
        // It has no arguments until its first instruction.
        let read = || std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
        let (started, mut arguments) = (Instant::now(), read());
        while arguments.is_empty() && started.elapsed() < GRACE {
            std::thread::sleep(POLL);
            arguments = read();
        }
        let reaper = std::thread::spawn(move || nix::sys::wait::waitpid(pid, None));
        processes.stop("etcd", true).expect("it is killed");
        reaper.join().expect("no panic").expect("reaped");
        assert!(arguments.ends_with(b"600\x00601\0"), "{arguments:?}");
        assert!(!processes.any_alive() && processes.names().is_empty());
    }
}
