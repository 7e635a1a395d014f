//! A connection to a host: one `ssh` process of the system that stays, and carries commands and a tunnel (ControlMaster).
//!
//! OpenSSH's configuration and its known hosts apply. The connection ends with this process, even if that is killed: its command on the
//! host reads until its input ends. `SSH_ASKPASS` passes passwords on, from a file that only its owner may read.

use super::record::Place;
use crate::answer::{ANSWER_MAX, TooMuch, read};
use crate::fault::{Fault, last_line, of_ssh, shown};
use crate::host::{HELLO, Said, outcome, quoted, reader, script};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// How long a connection may take in all, including ssh's own wait for an address.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// How long ssh waits for the address to answer.
pub const PATIENT: Duration = Duration::from_secs(20);
/// A connection is dead after two unanswered questions, one every three seconds: the jobs of a restarted host must end soon, and giving up
/// a connection too early costs only a new one.
const ALIVE: [&str; 2] = ["ServerAliveInterval=3", "ServerAliveCountMax=2"];
/// The most that is read of ssh's messages about a connection that fails.
const COMPLAINT_MAX: u64 = 64 << 10;

/// Counts the connections of this process; see [`socket_name`].
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The name of a new connection's socket. A killed process leaves its `ssh`, which removes its socket by name when it ends, so no other
/// process may use that name: without its socket, the commands of a connection would each open a connection of their own.
fn socket_name() -> String {
    format!("c{:x}.{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// An open connection. Dropping it closes it.
pub struct Session {
    pub place: Place,
    folder: PathBuf,
    socket: String,
    child: Child,
    /// Dropping this ends the connection.
    _input: Option<ChildStdin>,
}

/// Removes a file when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn ssh(folder: &Path, socket: &str, place: &Place) -> Command {
    let mut command = Command::new("ssh");
    // paths of sockets must be short, so ssh runs in the folder
    command.current_dir(folder).args(["-S", socket, "-T", "-o", "LogLevel=ERROR"]);
    for option in ["RemoteCommand=none", "PermitLocalCommand=no", "ForwardAgent=no"] {
        command.args(["-o", option]);
    }
    if let Some(user) = &place.user {
        command.args(["-l", user]);
    }
    if let Some(file) = &place.identity_file {
        command.arg("-i").arg(file).args(["-o", "IdentitiesOnly=yes"]);
    }
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn local(error: &std::io::Error) -> Fault {
    Fault::Stuck(format!("`ssh` cannot be run here: {error}; it comes with openssh-client"))
}

impl Session {
    /// Connects; `patience` is how long ssh waits for the address to answer.
    ///
    /// # Errors
    /// `Unreachable` or `Refused`: nothing was done there.
    pub async fn open(folder: &Path, place: &Place, password: Option<&str>, patience: Duration) -> Result<Self, Fault> {
        let socket = socket_name();
        let _ = std::fs::remove_file(folder.join(&socket));
        let mut command = ssh(folder, &socket, place);
        command.args(["-M", "-o", "ControlPersist=no", "-o", "ClearAllForwardings=yes"]);
        command.args(["-o", &format!("ConnectTimeout={}", patience.as_secs())]);
        for option in ALIVE {
            command.args(["-o", option]);
        }
        let mut kept = None;
        match password {
            None => {
                command.args(["-o", "BatchMode=yes"]);
            }
            Some(password) => {
                kept = Some(ask_with(folder, &socket, password, &mut command).map_err(|error| local(&error))?);
                command.args(["-o", "NumberOfPasswordPrompts=1"]);
            }
        }
        command.arg("--").arg(&place.name).arg(format!("exec sh -c 'echo {HELLO}; exec cat >/dev/null'"));
        let mut child = command.spawn().map_err(|error| local(&error))?;
        let mut stderr = child.stderr.take();
        let stdout = child.stdout.take();
        let opening = async {
            // login scripts may print something before
            let mut said = BufReader::new(stdout?.take(ANSWER_MAX as u64));
            let mut line = Vec::new();
            loop {
                line.clear();
                let count = said.read_until(b'\n', &mut line).await.ok()?;
                if line.trim_ascii_end() == HELLO.as_bytes() {
                    return Some(Ok(()));
                }
                if count == 0 {
                    return (said.get_ref().limit() == 0).then_some(Err(TooMuch));
                }
            }
        };
        let opened = timeout(OPEN_MAX, opening).await;
        drop(kept);
        match opened {
            Ok(Some(Err(more))) => Err(Fault::Refused(more.fault("its login").what().to_owned())),
            Ok(Some(Ok(()))) => {
                // from now on the stream is drained, so that it does not fill
                tokio::spawn(async move {
                    if let Some(stderr) = &mut stderr {
                        let _ = tokio::io::copy(stderr, &mut tokio::io::sink()).await;
                    }
                });
                let input = child.stdin.take();
                Ok(Self { place: place.clone(), folder: folder.to_owned(), socket, child, _input: input })
            }
            Ok(None) => Err(match text(stderr.as_mut()).await {
                said if said.len() as u64 >= COMPLAINT_MAX => {
                    let most = COMPLAINT_MAX >> 10;
                    Fault::Refused(format!(
                        "ssh printed more than {most} KiB of complaints, which is the most that is read"
                    ))
                }
                said => of_ssh(&place.host(), &said),
            }),
            Err(_) => {
                let seconds = OPEN_MAX.as_secs();
                Err(Fault::Unreachable(format!("it cannot be reached: no answer within {seconds} s")))
            }
        }
    }

    /// Returns when the connection has ended.
    pub async fn ended(&mut self) {
        let _ = self.child.wait().await; // one that cannot be waited for is none
    }

    /// Runs commands over it, even while another task waits for its end.
    pub fn line(&self) -> Line {
        Line { place: self.place.clone(), folder: self.folder.clone(), socket: self.socket.clone() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.start_kill(); // it has ended
        let _ = std::fs::remove_file(self.folder.join(&self.socket));
    }
}

/// Puts the password where `ssh` finds it, until the returned value is dropped.
fn ask_with(folder: &Path, socket: &str, password: &str, command: &mut Command) -> std::io::Result<[Removed; 2]> {
    let (file, ask) = (folder.join(format!("{socket}.password")), folder.join(format!("{socket}.ask")));
    let write = |path: &Path, mode: u32, text: &str| {
        let _ = std::fs::remove_file(path);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
    };
    let kept = [Removed(file.clone()), Removed(ask.clone())];
    write(&file, 0o600, &format!("{password}\n"))?;
    // never for the question whether a host key is right
    let script =
        format!("#!/bin/sh\ncase $1 in *assword*) exec cat {} ;; esac\nexit 1\n", quoted(&file.display().to_string()));
    write(&ask, 0o700, &script)?;
    command.env("SSH_ASKPASS", &ask).env("SSH_ASKPASS_REQUIRE", "force");
    if std::env::var_os("DISPLAY").is_none() {
        command.env("DISPLAY", "none");
    }
    Ok(kept)
}

/// The text of a stream until its end, if that comes soon.
async fn text(stream: Option<&mut (impl AsyncRead + Unpin)>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = timeout(Duration::from_secs(5), stream.take(COMPLAINT_MAX).read_to_end(&mut bytes)).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs commands over a connection that another value keeps open.
#[derive(Clone, Debug)]
pub struct Line {
    pub place: Place,
    folder: PathBuf,
    socket: String,
}

impl crate::kept::Line for Line {
    async fn call(
        &self,
        function: &str,
        variables: &[(&str, &str)],
        payload: Option<&Path>,
        limit: Duration,
    ) -> Result<Said, Fault> {
        let script = script(function, variables);
        let command = format!("exec sh -c {}", quoted(&reader(&script)));
        let mut child = ssh(&self.folder, &self.socket, &self.place);
        // without the connection, ssh would open one of its own, which the host would take for a newer one
        child
            .args(["-o", "ControlMaster=no", "-o", "ProxyCommand=false"])
            .args(["-o", "ClearAllForwardings=yes", "-o", "BatchMode=yes", "--"])
            .arg(&self.place.name)
            .arg(command);
        let mut child = child.spawn().map_err(|error| local(&error))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let input = async {
            let Some(mut stdin) = stdin else { return Ok(()) };
            stdin.write_all(script.as_bytes()).await?;
            if let Some(path) = payload {
                let mut file = tokio::fs::File::open(path).await?;
                tokio::io::copy(&mut file, &mut stdin).await?;
            }
            stdin.shutdown().await
        };
        let all = async {
            // a command that refuses does not read all of its input: its exit code says why
            let input = async {
                let _ = input.await;
                Ok(())
            };
            // a command that prints without end is ended at once: it would wait for a reader
            let (_, said, complaint) = tokio::try_join!(input, read(stdout), read(stderr))?;
            Ok::<_, TooMuch>((child.wait().await, said, complaint))
        };
        let late = |_| Fault::Broken(format!("`{function}` had no answer within {} s", limit.as_secs()));
        let (status, said, complaint) =
            timeout(limit, all).await.map_err(late)?.map_err(|more| more.fault(&format!("`{function}`")))?;
        outcome(status.map_err(|error| local(&error))?.code(), &said, &complaint)
    }
}

impl Line {
    /// Makes a port of the host's loopback lead to `target` on this side: this port, or any that is free.
    ///
    /// # Errors
    /// `Unfit` if the host's sshd does not allow it, or if the port is in use there.
    pub async fn forward(&self, port: Option<u16>, target: SocketAddr) -> Result<u16, Fault> {
        let mut command = ssh(&self.folder, &self.socket, &self.place);
        let way = format!("127.0.0.1:{}:{target}", port.unwrap_or(0));
        command.args(["-O", "forward", "-R", &way, "--"]).arg(&self.place.name).stdin(Stdio::null());
        let mut child = command.spawn().map_err(|error| local(&error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let all = async {
            let (said, complaint) = tokio::try_join!(read(stdout), read(stderr))?;
            Ok::<_, TooMuch>((child.wait().await, said, complaint))
        };
        let done = timeout(OPEN_MAX, all).await.map_err(|_| Fault::Broken("the tunnel had no answer".to_owned()))?;
        let (status, said, complaint) = done.map_err(|more| more.fault("ssh"))?;
        let (said, complaint) = (String::from_utf8_lossy(&said), String::from_utf8_lossy(&complaint));
        if !status.map_err(|error| local(&error))?.success() {
            return Err(match complaint.contains("forwarding") {
                true => Fault::Unfit(format!(
                    "its sshd refuses the tunnel to the API server ({}): AllowTcpForwarding must be yes",
                    last_line(&complaint)
                )),
                false => Fault::Broken(last_line(&complaint).into_owned()),
            });
        }
        match (port, said.trim().parse()) {
            (Some(port), _) | (None, Ok(port)) => Ok(port),
            (None, Err(_)) => Err(Fault::Broken(format!("ssh did not tell the tunnel's port: {}", shown(&said)))),
        }
    }
}
