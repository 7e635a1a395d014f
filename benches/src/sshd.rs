//! Real sshds on the loopback, one for each host at an address of its own. They want root and a mount namespace, in which they find their user
//! and their folder.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HOSTS: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
const LIMIT: Duration = Duration::from_secs(60);

pub fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// An sshd for each host, ended with this.
pub struct Servers {
    hosts: Vec<&'static str>,
    folder: TempDir,
    running: Vec<Child>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.running {
            // what has ended by itself is ended
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Servers {
    /// So many hosts, each with an address and a home directory of its own, and root as their user.
    pub fn start(count: usize) -> Result<Self> {
        let hosts: Vec<&str> = HOSTS.iter().copied().take(count).collect();
        let unpacked = fs::canonicalize("target/sshd/usr").ok();
        let sshd = unpacked.as_ref().map_or_else(|| PathBuf::from("/usr/sbin/sshd"), |usr| usr.join("sbin/sshd"));
        ensure!(sshd.is_file(), "there is no sshd: make sshd");
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        for name in ["host", "key"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ecdsa", "-N", "", "-f"]).arg(at.join(name)).status();
            ensure!(made.context("ssh-keygen is missing")?.success(), "ssh-keygen failed");
        }
        let passwd = fs::read_to_string("/etc/passwd")?;
        // what a session leaves at home stays here
        let users: Vec<String> = passwd.lines().filter(|line| !line.starts_with("root:")).map(str::to_owned).collect();
        let users = format!("{}\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n", users.join("\n"));
        let port = std::net::TcpListener::bind((HOSTS[0], 0))?.local_addr()?.port();
        let shown = at.display();
        fs::write(
            at.join("config"),
            format!(
                "Host *\n  Port {port}\n  IdentityFile {shown}/key\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
            ),
        )?;
        write_program(&at.join("ssh"), &format!("#!/bin/sh\nexec /usr/bin/ssh -F {shown}/config \"$@\"\n"))?;
        let mut servers = Self { hosts: hosts.clone(), running: Vec::new(), folder };
        for host in hosts {
            let file = |kind: &str| servers.folder.path().join(format!("{host}.{kind}"));
            let (home, passwd) = (file("home"), file("passwd"));
            fs::create_dir(&home)?;
            fs::write(&passwd, format!("root:x:0:0::{}:/bin/bash\n{users}", home.display()))?;
            let config = servers.folder.path().join(host);
            fs::write(
                &config,
                format!(
                    "ListenAddress {host}:{port}\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/key.pub\nPidFile none\nStrictModes no\nUsePAM no\n",
                    shown = servers.folder.path().display()
                ),
            )?;
            let mut command = Command::new("unshare");
            if let Some(usr) = &unpacked {
                command.env("LD_LIBRARY_PATH", usr.join("lib/x86_64-linux-gnu"));
            }
            let script = "mount --bind \"$1\" /etc/passwd && mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec \"$2\" -D -f \"$3\"";
            command.args(["--mount", "sh", "-c", script, "sh"]);
            command.arg(passwd).arg(&sshd).arg(&config);
            servers.running.push(command.spawn().context("unshare is missing")?);
            let start = Instant::now();
            while TcpStream::connect((host, port)).is_err() {
                ensure!(start.elapsed() < LIMIT, "the sshd of {host} does not listen (it wants root)");
                let ended = servers.running.last_mut().and_then(|child| child.try_wait().transpose()).transpose()?;
                ensure!(ended.is_none(), "the sshd of {host} ended (it wants root)");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(servers)
    }

    /// Their addresses.
    pub fn hosts(&self) -> &[&'static str] {
        &self.hosts
    }

    /// The key that they let in.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// An `ssh` that knows them.
    pub fn ssh(&self) -> PathBuf {
        self.folder.path().join("ssh")
    }

    /// The same at another place.
    pub fn write_ssh(&self, path: &Path) -> Result<()> {
        write_program(path, &format!("#!/bin/sh\nexec {} \"$@\"\n", self.ssh().display()))
    }
}
