//! The load balancer of a service with two replicas, beside HAProxy (Debian's `haproxy`) and the load balancer of SkyServe
//! (`make .venv/skypilot/done`) in front of the same replicas: requests a second over 64 connections, what it adds to the p99 of an answer at
//! half of that rate, and its memory with 10,000 streams on which nothing moves.
//!
//! Replicas, load balancers and the clients share the processors. So a rate is less than what a load balancer could do alone, and the ratio of
//! two rates is nearer to 1.

use crate::load::p99_ms;
use crate::managed::Yard;
use crate::peer::{anonymous_mb, until};
use crate::sky::program;
use crate::sweep::{Daemon, beside, free_port};
use crate::{Figure, Setting};
use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, timeout};

/// The flag with which this program is a replica.
pub const ORIGIN: &str = "--origin";
const CONNECTIONS: usize = 64;
const SECONDS: u64 = 10;
/// How many streams are opened. The load balancer needs two open files for each, and its limit may be 20,000 open files.
const STREAMS: usize = 9_000;
/// The figure is the memory of this many streams, in proportion to those that were opened.
const IDLE: f64 = 10_000.0;
const LIMIT: Duration = Duration::from_secs(120);
/// An answer is as long as that of a small model.
const BODY: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
const REQUEST: &[u8] = b"GET /v1/models HTTP/1.1\r\nhost: service.example\r\nuser-agent: bench\r\naccept: */*\r\n\r\n";
const STREAM: &[u8] = b"GET /idle HTTP/1.1\r\nhost: service.example\r\naccept: text/event-stream\r\n\r\n";
/// SkyServe's load balancer, and a controller that names the replicas: PORT, CONTROLLER'S PORT, REPLICA...
const THEIRS: &str = "
import http.server, json, sys, threading
from sky.serve.load_balancer import SkyServeLoadBalancer
port, controller, *replicas = sys.argv[1:]
class Controller(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        body = json.dumps({'replica_info': {'http://' + replica: {} for replica in replicas}}).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(controller)), Controller)
threading.Thread(target=server.serve_forever, daemon=True).start()
SkyServeLoadBalancer(f'http://127.0.0.1:{controller}', int(port), 'least_load').run()
";

/// A replica: answers each request with a small body, and `/idle` with the beginning of a stream. Runs until it is killed.
pub async fn origin(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move { answer(stream).await.unwrap_or_default() });
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let whole =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
    let (mut buffer, mut have) = (vec![0_u8; 2048], 0);
    loop {
        let read = stream.read(buffer.get_mut(have..).context("a request of 2 KB")?).await?;
        ensure!(read > 0, "the client has gone");
        have += read;
        let request = buffer.get(..have).unwrap_or_default();
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        if request.starts_with(b"GET /idle") {
            buffer = Vec::new();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(format!("{head}3\r\nx\n\n\r\n").as_bytes()).await?;
            stream.read_u8().await?;
        }
        have = 0;
        stream.write_all(whole.as_bytes()).await?;
    }
}

pub async fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let seconds = (SECONDS / u64::try_from(setting.shrink)?).max(2);
    let service = Service::start(setting).await?;
    let ours = rate(service.endpoint, seconds).await?;
    let direct = latency(service.replicas[0], ours / 2.0, seconds).await?;
    let added = latency(service.endpoint, ours / 2.0, seconds).await? - direct;
    let (mut haproxy, mut haproxy_added, mut theirs) = (None, None, None);
    if setting.peers {
        let measured = async {
            let peer = start_haproxy(&service.replicas).await?;
            anyhow::Ok((rate(peer.at, seconds).await?, latency(peer.at, ours / 2.0, seconds).await? - direct))
        };
        match measured.await {
            Ok((rate, added)) => (haproxy, haproxy_added) = (Some(rate), Some(added)),
            Err(error) => eprintln!("MISSING: the comparison with HAProxy: {error:#}"),
        }
        let measured = async {
            let peer = start_skyserve(&service.replicas).await?;
            rate(peer.at, seconds).await.map(Some)
        };
        theirs = beside("SkyServe", measured.await);
    }
    let memory = idle_streams(&service, STREAMS / setting.shrink).await?;
    let figure =
        |name, unit, ours, peer, against, more_is_better| Figure { name, unit, ours, peer, against, more_is_better };
    Ok(vec![
        figure("requests through the load balancer", "requests/s", ours, haproxy, "HAProxy", true),
        figure("the same", "requests/s", ours, theirs, "SkyServe's load balancer", true),
        figure("what it adds to p99 at half load", "ms", added, haproxy_added, "HAProxy", false),
        figure("memory of 10,000 idle streams", "MB", memory, None, "-", false),
    ])
}

/// Our service.
struct Service {
    yard: Yard,
    name: String,
    endpoint: SocketAddr,
    replicas: Vec<SocketAddr>,
}

impl Service {
    async fn start(setting: &Setting) -> Result<Self> {
        let yard = Yard::start(setting)?;
        let name = format!("bench-{}", std::process::id());
        let program = std::env::current_exe()?;
        let file = format!(
            "name: {name}\nresources: {{infra: local}}\nservice: {{readiness_probe: /, ports: 8471, replicas: 2}}\nrun: exec {} {ORIGIN} $TRAINYARD_NODE_IP:8471\n",
            program.display()
        );
        fs::write(yard.home.path().join("service.yaml"), file)?;
        yard.says(&["sky", "serve", "up", "-y", "service.yaml"])?;
        let client = yard.peer.client().await?;
        let (endpoint, replicas) = until(LIMIT, async || {
            let serving: Value = crate::managed::get(&client, &format!("servings/{name}")).await?;
            let status = &serving["status"];
            let ready = status["replicas"].as_array().into_iter().flatten().filter(|one| one["state"] == "READY");
            let ready: Vec<SocketAddr> = ready.filter_map(|one| one["address"].as_str()?.parse().ok()).collect();
            ensure!(ready.len() == 2, "{} of 2 replicas are ready", ready.len());
            let endpoint = status["load"]["endpoint"].as_str().unwrap_or_default();
            Ok((endpoint.trim_start_matches("http://").parse()?, ready))
        })
        .await?;
        Ok(Self { yard, name, endpoint, replicas })
    }

    /// The process of the load balancer.
    fn pid(&self) -> Result<u32> {
        let words = format!("balance\0--namespace\0default\0{}\0", self.name);
        let all = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).ends_with(&words)
        };
        let found: Vec<u32> = all.filter(is_it).collect();
        let [pid] = found.as_slice() else { bail!("the load balancer has the processes {found:?}, not one") };
        Ok(*pid)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.yard.says(&["sky", "serve", "down", "-y", &self.name]);
    }
}

/// A load balancer that we compare with.
struct Listener {
    at: SocketAddr,
    _program: Daemon,
    _folder: TempDir,
}

impl Listener {
    async fn start(mut command: Command, at: SocketAddr, folder: TempDir) -> Result<Self> {
        let log = fs::File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let program = Daemon(command.spawn().with_context(|| format!("{command:?}"))?);
        let listener = Self { at, _program: program, _folder: folder };
        until(LIMIT, async || exchange(&mut connect(at).await?).await).await?;
        Ok(listener)
    }
}

async fn start_haproxy(replicas: &[SocketAddr]) -> Result<Listener> {
    let folder = tempfile::tempdir()?;
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let servers: Vec<String> =
        replicas.iter().enumerate().map(|(at, replica)| format!("  server s{at} {replica}\n")).collect();
    let file = folder.path().join("haproxy.cfg");
    let text = format!(
        "global\n  nbthread 2\n  maxconn 8000\ndefaults\n  mode http\n  timeout client 120s\n  timeout server 120s\n  timeout connect 5s\n  option forwardfor\nfrontend f\n  bind {at}\n  default_backend b\nbackend b\n  balance leastconn\n{}",
        servers.concat()
    );
    fs::write(&file, text)?;
    let program = std::env::var_os("HAPROXY").unwrap_or_else(|| "/usr/sbin/haproxy".into());
    ensure!(Path::new(&program).is_file(), "there is no HAProxy: apt-get install haproxy");
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(file);
    Listener::start(command, at, folder).await
}

async fn start_skyserve(replicas: &[SocketAddr]) -> Result<Listener> {
    let folder = tempfile::tempdir()?;
    let (port, controller) = (free_port()?, free_port()?);
    let mut command = Command::new(program()?.with_file_name("python"));
    command.args(["-c", THEIRS]).args([port.to_string(), controller.to_string()]);
    command.args(replicas.iter().map(SocketAddr::to_string));
    command.env("HOME", folder.path()).env("SKYPILOT_DISABLE_USAGE_COLLECTION", "1");
    Listener::start(command, SocketAddr::from(([127, 0, 0, 1], port)), folder).await
}

async fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request and its answer.
async fn exchange(stream: &mut TcpStream) -> Result<()> {
    let answered = async {
        stream.write_all(REQUEST).await?;
        let (mut buffer, mut have) = ([0_u8; 4096], 0);
        loop {
            let read = stream.read(&mut buffer[have..]).await?;
            ensure!(read > 0, "the connection was closed");
            have += read;
            let answer = &buffer[..have];
            if answer.ends_with(BODY.as_bytes()) {
                ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(answer));
                return Ok(());
            }
            ensure!(!answer.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(answer));
        }
    };
    timeout(Duration::from_secs(30), answered).await?
}

/// Requests a second, the next on each connection as soon as the last is answered.
async fn rate(at: SocketAddr, seconds: u64) -> Result<f64> {
    let (start, during) = (Instant::now(), Duration::from_secs(seconds));
    let clients = (0..CONNECTIONS).map(|_| {
        tokio::spawn(async move {
            let (mut stream, mut count) = (connect(at).await?, 0_u64);
            while start.elapsed() < during {
                exchange(&mut stream).await?;
                count += 1;
            }
            anyhow::Ok(count)
        })
    });
    let mut count = 0;
    for done in try_join_all(clients).await? {
        count += done?;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// p99 of an answer at this rate, in milliseconds.
async fn latency(at: SocketAddr, rate: f64, seconds: u64) -> Result<f64> {
    let pause = Duration::try_from_secs_f64(CONNECTIONS as f64 / rate)?;
    let (start, during) = (Instant::now(), Duration::from_secs(seconds));
    let clients = (0..CONNECTIONS).map(|_| {
        tokio::spawn(async move {
            let (mut stream, mut took) = (connect(at).await?, Vec::new());
            let mut ticks = interval(pause);
            while start.elapsed() < during {
                ticks.tick().await;
                let asked = Instant::now();
                exchange(&mut stream).await?;
                took.push(asked.elapsed());
            }
            anyhow::Ok(took)
        })
    });
    let mut all = Vec::new();
    for took in try_join_all(clients).await? {
        all.extend(took?);
    }
    Ok(p99_ms(all))
}

/// Memory that comes with streams on which nothing moves, in MB.
async fn idle_streams(service: &Service, count: usize) -> Result<f64> {
    let pid = service.pid()?;
    let before = anonymous_mb(pid);
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connect(service.endpoint).await?;
        stream.write_all(STREAM).await?;
        let mut begun = [0_u8; 1024];
        ensure!(stream.read(&mut begun).await? > 0, "stream {} was closed", streams.len());
        streams.push(stream);
    }
    Ok((anonymous_mb(pid) - before) * IDLE / count as f64)
}
