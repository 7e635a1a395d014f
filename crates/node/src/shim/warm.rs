//! The launcher of warm starts: stands in for `torchrun` in a pod, and has its ranks forked by a process that has imported torch
//! already (`crate::warm`). It is the container's main process; the ranks are in the pod's namespaces and have its streams, and
//! end with it.
//!
//! What cannot be started warm is started as it stands, which is said once on standard error.

mod plan;
mod ranks;

use crate::warm::{Answer, Ask, Request, SOCKET};
use plan::{Environment, NotWarm, Plan};
use ranks::{Prepared, Rank};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// What a zygote for torchrun's scripts imports.
const MODULES: [&str; 2] = ["torch", "torch.distributed"];
/// How often a zygote that is out of date is asked to be replaced.
const ATTEMPTS: usize = 3;
/// How long a zygote may take to fork ranks and make them ready: one that is stopped never does.
const READY_MAX: Duration = Duration::from_secs(10);
/// How long the agent may take to name a zygote, which it may have to start first. A cold start imports by itself meanwhile.
const ASKED_MAX: Duration = Duration::from_secs(45);
/// Exit code of a command that cannot be started, as a shell has it.
const NOT_FOUND: u8 = 127;

/// Runs `<words>`, warm if that can be. `dir` is the agent's directory of warm starts.
pub fn main(dir: &Path, words: &[OsString]) -> ExitCode {
    match prepare(dir, words) {
        Ok((plan, ranks)) => ExitCode::from(ranks::run(ranks, &plan)),
        Err(why) => {
            crate::say!("trainyard: not a warm start: {why}");
            let Some((program, arguments)) = words.split_first() else { return ExitCode::from(NOT_FOUND) };
            let error = Command::new(program).args(arguments).exec();
            crate::say!("{}: {error}", program.display());
            ExitCode::from(NOT_FOUND)
        }
    }
}

/// Has all ranks of this node made ready; nothing of the user's runs yet.
fn prepare(dir: &Path, words: &[OsString]) -> Result<(Plan, Vec<Rank>), NotWarm> {
    let text = |word: OsString| word.into_string().map_err(NotWarm::NotUnicode);
    let words: Vec<String> = words.iter().cloned().map(text).collect::<Result<_, _>>()?;
    let env = std::env::vars_os().map(|(name, value)| Ok((text(name)?, text(value)?)));
    let env: Environment = env.collect::<Result<_, NotWarm>>()?;
    let plan = Plan::of(&words, &env)?;
    let folder = std::env::current_dir().map_err(NotWarm::Folder)?;
    let python = find_interpreter(&plan, &env)?;
    let read = plan.read_at_start();
    let searched = read.get("PYTHONPATH").map(String::as_str).unwrap_or_default();
    let is_relative = !searched.is_empty() && searched.split(':').any(|part| !part.starts_with('/'));
    let ask = Ask {
        python: python.to_string_lossy().into_owned(),
        folder: if is_relative { folder.clone() } else { "/".into() },
        env: read,
        modules: MODULES.map(str::to_owned).to_vec(),
    };
    let mut request = Request { ask, not: None };
    for _ in 0..ATTEMPTS {
        let socket = match asked(dir, &request).map_err(NotWarm::Agent)? {
            Answer::Socket(socket) => socket,
            Answer::Cold(why) => return Err(NotWarm::Refused(why)),
        };
        let prepared = ranks::prepare(&plan, &folder, READY_MAX, || connect(dir, &socket));
        if prepared.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)) {
            // To wait for another one's import would take as long as the import does. The next start finds it.
            request.not = Some(socket);
            let _ = tell(dir, &request);
            return Err(NotWarm::Silent { secs: READY_MAX.as_secs() });
        }
        match prepared {
            Ok(Prepared::Ready(ranks)) => return Ok((plan, ranks)),
            Ok(Prepared::Refused(why)) => return Err(NotWarm::Refused(why)),
            Ok(Prepared::Outdated) | Err(_) => request.not = Some(socket),
        }
    }
    Err(NotWarm::NoneStays)
}

/// The Python that the command names, or that `torchrun` on the PATH runs with.
fn find_interpreter(plan: &Plan, env: &Environment) -> Result<PathBuf, NotWarm> {
    let path = env.get("PATH").map(String::as_str).unwrap_or_default();
    let is_program =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let find = |name: &str| {
        std::env::split_paths(path)
            .map(|dir| dir.join(name))
            .find(is_program)
            .ok_or_else(|| NotWarm::NotOnPath { name: name.to_owned() })
    };
    match plan.python.as_deref() {
        Some(python) if python.contains('/') => return Ok(PathBuf::from(python)),
        Some(python) => return find(python),
        None => {}
    }
    let torchrun = find("torchrun")?;
    let text = fs::read(&torchrun).map_err(|error| NotWarm::Read { path: torchrun.clone(), error })?;
    let text = String::from_utf8_lossy(&text);
    // our own stand-in, where torch was installed without its programs
    if text.starts_with("#!/bin/sh\n# Written by trainyard") {
        return find("python").or_else(|_| find("python3"));
    }
    let interpreter = plan::interpreter(&text);
    let interpreter = interpreter.ok_or(NotWarm::NoInterpreter { path: torchrun })?;
    if interpreter.contains('/') { Ok(PathBuf::from(interpreter)) } else { find(interpreter) }
}

fn connect(dir: &Path, name: &str) -> io::Result<UnixStream> {
    // Through a descriptor of the directory: the path of a socket is limited to 107 bytes.
    let directory = File::open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Asks the agent for a zygote; waits while one is started.
fn asked(dir: &Path, request: &Request) -> io::Result<Answer> {
    let stream = tell(dir, request)?;
    stream.set_read_timeout(Some(ASKED_MAX))?;
    let mut answer = String::new();
    let read = BufReader::new(stream).read_line(&mut answer);
    read.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            io::Error::other(format!("no process with torch was ready within {} s", ASKED_MAX.as_secs()))
        }
        _ => error,
    })?;
    serde_json::from_str(&answer).map_err(io::Error::other)
}

/// Sends the agent a request; where its answer comes.
fn tell(dir: &Path, request: &Request) -> io::Result<UnixStream> {
    let mut stream = connect(dir, SOCKET)?;
    stream.set_write_timeout(Some(READY_MAX))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(stream)
}
