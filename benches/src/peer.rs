//! Starting and stopping what is measured.

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running API server with its kubeconfig; stopped when dropped.
pub struct Peer {
    pub kubeconfig: PathBuf,
    pub pids: Vec<u32>,
    /// Where training code reports to, if anywhere.
    pub status_server: Option<String>,
    /// From the start of the program to its first answer.
    pub ready: Duration,
    stop: Box<dyn Fn()>,
    home: TempDir,
}

impl Drop for Peer {
    fn drop(&mut self) {
        (self.stop)();
    }
}

impl Peer {
    /// `trainyard up --detach` in a home of its own.
    pub fn trainyard(binary: &Path, flags: &[&str]) -> Result<Self> {
        Self::trainyard_with(binary, flags, |_| ())
    }

    /// The same, with what `more` sets, such as a PATH.
    pub fn trainyard_with(binary: &Path, flags: &[&str], more: impl FnOnce(&mut Command)) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let mut command = Command::new(binary);
        command.args(["up", "--detach", "--output=json", "--home"]).arg(home.path()).args(flags);
        more(&mut command);
        let start = Instant::now();
        let output =
            command.output().with_context(|| format!("cannot start {}: run `make release` first", binary.display()))?;
        let ready = start.elapsed();
        if !output.status.success() {
            bail!("trainyard up failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let running: Value = serde_json::from_slice(&output.stdout)?;
        let pid = u32::try_from(running["pid"].as_u64().context("up prints its pid")?)?;
        let (binary, path) = (binary.to_owned(), home.path().to_owned());
        let stop = move || {
            let _ = Command::new(&binary).args(["down", "--home"]).arg(&path).output();
        };
        let kubeconfig = home.path().join("kubeconfig");
        let status_server = running["statusServer"].as_str().map(str::to_owned);
        Ok(Self { kubeconfig, pids: vec![pid], status_server, ready, stop: Box::new(stop), home })
    }

    /// The real control plane, on ports that are free.
    pub fn kubernetes(flags: &[&str]) -> Result<Self> {
        let built = xtask().arg("build").args(flags).stdout(Stdio::null()).status()?;
        if !built.success() {
            bail!("cargo xtask kubernetes build failed");
        }
        let home = tempfile::tempdir()?;
        let start = Instant::now();
        let output = xtask().arg("up").arg(home.path()).args(flags).stderr(Stdio::inherit()).output()?;
        let ready = start.elapsed();
        if !output.status.success() {
            bail!("cargo xtask kubernetes up failed");
        }
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(home.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "pid") {
                pids.push(process_id(&path)?);
            }
        }
        let path = home.path().to_owned();
        let stop = move || {
            let _ = xtask().args(["down", "--kill"]).arg(&path).output();
        };
        let kubeconfig = home.path().join("kubeconfig");
        Ok(Self { kubeconfig, pids, status_server: None, ready, stop: Box::new(stop), home })
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// The process of one of the real control plane's programs.
    pub fn pid(&self, name: &str) -> Result<u32> {
        process_id(&self.home.path().join(format!("{name}.pid")))
    }

    pub async fn client(&self) -> Result<Client> {
        let config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(&self.kubeconfig)?, &KubeConfigOptions::default())
                .await?;
        Ok(Client::try_from(config)?)
    }

    /// Resident memory of all its processes, in MB.
    pub fn memory_mb(&self) -> f64 {
        self.pids.iter().map(|pid| rss_kb(*pid)).sum::<f64>() / 1024.0
    }
}

/// `cargo xtask kubernetes`.
fn xtask() -> Command {
    let mut command = Command::new("cargo");
    command.args(["xtask", "kubernetes"]);
    command
}

/// The folder of the real control plane's programs, which are built where they are missing.
pub fn programs() -> Result<PathBuf> {
    let output = xtask().arg("build").stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("cargo xtask kubernetes build failed");
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Whether there is Go, of which the real control plane is built.
pub fn has_go() -> bool {
    Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// The first word of a file that the harness wrote.
fn process_id(path: &Path) -> Result<u32> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.split_whitespace().next().context("an empty file of a process id")?.parse()?)
}

fn rss_kb(pid: u32) -> f64 {
    status_kb(pid, "VmRSS:")
}

/// The memory that a process has resident.
pub fn resident_mb(pid: u32) -> f64 {
    rss_kb(pid) / 1024.0
}

/// The memory that a process has resident and that is of no file.
pub fn anonymous_mb(pid: u32) -> f64 {
    status_kb(pid, "RssAnon:") / 1024.0
}

/// The most memory that a process ever had resident.
pub fn peak_mb(pid: u32) -> f64 {
    status_kb(pid, "VmHWM:") / 1024.0
}

/// As [`peak_mb`], with the processes that it has started and that still run: some programs are behind a script.
pub fn peak_of_all_mb(pid: u32) -> f64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let below: f64 = children.split_whitespace().filter_map(|child| child.parse().ok()).map(peak_of_all_mb).sum();
    peak_mb(pid) + below
}

fn status_kb(pid: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Watches a process for a while.
///
/// # Errors
/// It has used more than `most` seconds of processor time in it.
pub async fn idle(pid: u32, during: Duration, most: f64) -> Result<()> {
    let before = cpu_seconds(pid);
    tokio::time::sleep(during).await;
    if cpu_seconds(pid) - before > most {
        bail!("it is at work");
    }
    Ok(())
}

/// Waits until a process has given back what a burst of work left behind.
pub async fn rest(pid: u32) -> Result<()> {
    /// Seconds of processor time in ten of which a process counts as idle.
    const IDLE: f64 = 0.3;
    until(Duration::from_secs(300), || idle(pid, Duration::from_secs(10), IDLE)).await
}

/// Anonymous memory of a process, in MB, once it rests and ten seconds change little.
pub async fn resting_mb(pid: u32) -> Result<f64> {
    /// MB.
    const LITTLE: f64 = 0.5;
    until(Duration::from_secs(300), async || {
        let before = anonymous_mb(pid);
        rest(pid).await?;
        let now = anonymous_mb(pid);
        ensure!((now - before).abs() < LITTLE, "its memory was {before:.1} MB and is {now:.1} MB");
        Ok(now)
    })
    .await
}

/// Processor time that a process has used, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    // Linux reports it in hundredths of a second, whatever the kernel's own tick (proc(5), sysconf(3))
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// The first certificate of a PEM text, as bytes.
pub fn certificate(pem: &[u8]) -> Result<Vec<u8>> {
    Ok(CertificateDer::from_pem_slice(pem).context("no certificate in PEM")?.to_vec())
}

/// Tries until it succeeds; the last error after `limit`.
pub async fn until<T, F: Future<Output = Result<T>>>(limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T> {
    let deadline = api::time::after(Instant::now(), limit);
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
