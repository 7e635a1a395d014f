//! The `ssh` program of pods: commands for another pod of the same headless service go through that pod's shim, as soon as it
//! is up.

use super::reach::{Me, Place};
use crate::poddir::PodDir;
use crate::wire::{Launch, Reply, Request};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// ssh's exit code for errors of its own.
const SSH_ERROR: u8 = 255;
/// Options of OpenSSH's `ssh` that are followed by a value.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";

/// Runs `ssh <words>` for the pod whose host name this is.
pub fn main(pods: &Path, words: &[OsString]) -> ExitCode {
    let (host, command) = parse(words);
    let (Some(host), Some(me)) = (host, Me::new(pods)) else { return elsewhere(words) };
    let said = match me.wait_for(&host) {
        Ok(Place::Up(pod)) => {
            me.note_entry().and_then(|()| execute(&pod.0, &pod.1, &command)).map_err(|error| error.to_string())
        }
        Ok(Place::Elsewhere | Place::Coming | Place::Nobody | Place::Over) => return elsewhere(words),
        Err(why) => Err(why.to_owned()),
    };
    match said {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(SSH_ERROR)),
        Err(why) => {
            crate::say!("ssh: {host}: {why}");
            ExitCode::from(SSH_ERROR)
        }
    }
}

/// The host (without user) and the command, as ssh would find them among its arguments.
fn parse(words: &[OsString]) -> (Option<String>, String) {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut host = None;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        match word.strip_prefix('-') {
            Some("-") => break,
            Some(flags) => {
                // `-p 22`, `-p22`, `-qp 22`: the first letter that takes a value takes the rest, or the next word.
                if let Some(place) = flags.find(|c| WITH_VALUE.contains(c))
                    && place + 1 == flags.len()
                {
                    at += 1;
                }
            }
            None if host.is_none() => {
                let name = word.strip_prefix("ssh://").unwrap_or(word);
                host = Some(name.rsplit('@').next().unwrap_or(name).to_owned());
            }
            None => {
                at -= 1;
                break;
            }
        }
    }
    if host.is_none() {
        host = words.get(at).cloned();
        at += 1;
    }
    (host, words.get(at..).unwrap_or_default().join(" "))
}

/// The machine's own ssh, if it has one.
fn elsewhere(words: &[OsString]) -> ExitCode {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_real = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
            && !fs::read(path).is_ok_and(|text| text.starts_with(b"#!/bin/sh\n# Written by trainyard"))
    };
    let Some(program) = std::env::split_paths(&path).map(|dir| dir.join("ssh")).find(is_real) else {
        crate::say!("ssh: that is no pod of this job, and this machine has no ssh");
        return ExitCode::from(SSH_ERROR);
    };
    let error = Command::new(&program).args(words).exec();
    crate::say!("{}: {error}", program.display());
    ExitCode::from(SSH_ERROR)
}

/// Runs the command in the pod's first container, on our own streams.
fn execute(dir: &PodDir, launch: &Launch, command: &str) -> io::Result<i32> {
    let container = launch.containers.first().ok_or(io::ErrorKind::NotFound)?;
    let argv: Vec<String> = match command {
        "" => vec!["sh".to_owned()],
        command => ["sh", "-c", command].map(str::to_owned).to_vec(),
    };
    let request = Request::Exec { container: container.name.clone(), argv, tty: false, kill_on_close: true };
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    let directory = fs::File::open(dir.path())?;
    let socket = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(OsStr::new("sock"));
    let mut stream = UnixStream::connect(socket)?;
    let fds = [0, 1, 2];
    let parts = [IoSlice::new(&line)];
    let sent =
        sendmsg::<()>(stream.as_raw_fd(), &parts, &[ControlMessage::ScmRights(&fds)], MsgFlags::MSG_NOSIGNAL, None)?;
    stream.write_all(&line[sent..])?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?)? {
            Reply::Started { .. } => {}
            Reply::Refused { message } => return Err(io::Error::other(message)),
            Reply::Exited { code } => return Ok(code),
        }
    }
    Err(io::Error::other("the pod ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let cases = [
            ("host cmd a b", Some("host"), "cmd a b"),
            ("-o A=b -p 22 -qx user@host cmd -x", Some("host"), "cmd -x"),
            ("-p22 host", Some("host"), ""),
            ("-qp 22 host -l me cmd", Some("host"), "cmd"),
            ("-- host cmd", Some("host"), "cmd"),
            ("-V", None, ""),
        ];
        for (text, host, command) in cases {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            assert_eq!(parse(&words), (host.map(str::to_owned), command.to_owned()), "{text}");
        }
    }
}
