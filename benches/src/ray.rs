//! Ray, from PyPI in a virtual environment of its own (`target/ray`), made once.

use crate::Setting;
use anyhow::{Context, Result, bail, ensure};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VERSION: &str = "ray[default]==2.60.0";
const DASHBOARD_PORT: u16 = 8299;
const READY_MAX: Duration = Duration::from_secs(120);

/// A running head node; stopped when dropped.
pub struct Ray {
    program: PathBuf,
    head: Child,
}

impl Ray {
    pub fn start(setting: &Setting) -> Result<Self> {
        let venv = setting.trainyard.parent().and_then(Path::parent).context("the binary lies in target")?.join("ray");
        let program = std::path::absolute(venv.join("bin/ray"))?;
        if !program.exists() {
            eprintln!("installing {VERSION} into {}: some minutes, once", venv.display());
            quietly(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            quietly(Command::new(venv.join("bin/python")).args(["-m", "pip", "install", "--quiet", VERSION]))?;
        }
        ensure!(TcpStream::connect(("127.0.0.1", DASHBOARD_PORT)).is_err(), "port {DASHBOARD_PORT} is in use");
        let mut command = Command::new(&program);
        command.args([
            "start",
            "--block",
            "--head",
            "--port=6399",
            "--include-dashboard=true",
            "--disable-usage-stats",
        ]);
        command.arg(format!("--dashboard-port={DASHBOARD_PORT}"));
        let head = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut ray = Self { program, head };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", DASHBOARD_PORT)).is_err() {
            ensure!(start.elapsed() < READY_MAX && ray.head.try_wait()?.is_none(), "its head node does not get ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(ray)
    }

    /// Submits the script and follows it.
    pub fn submit(&self, script: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let address = format!("--address=http://127.0.0.1:{DASHBOARD_PORT}");
        command.args(["job", "submit", &address, "--", "python3"]).arg(script);
        command
    }
}

impl Drop for Ray {
    fn drop(&mut self) {
        // it ends what it started when it is asked to end
        let _ = quietly(Command::new("kill").arg(self.head.id().to_string()));
        let _ = self.head.wait();
    }
}

pub fn quietly(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status();
    if !status.with_context(|| format!("cannot start {:?}", command.get_program()))?.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}
