//! `up --detach`, `down`, `status` and `kubeconfig`: starts, stops and describes the local control plane from outside.

use crate::exit;
use crate::output;
use client::codes::ErrorCode;
use client::home::{Home, Running};
use client::{Choice, ClientError, Cluster, Where};
use grammar::{DownArgs, Format, Global, ListArgs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long `down` waits for the control plane to end before it says that it does not.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How long one that has its lock may take to answer `up --detach`.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The control plane that runs under this home and answers. One that was just killed holds its lock for some milliseconds more: this
/// waits until one answers, whatever its answer, or none is there. One that is busy for longer than [`ANSWER_MAX`] counts as running.
pub async fn answering(home: &Home) -> Option<Running> {
    let deadline = api::time::after(Instant::now(), ANSWER_MAX);
    let choice = Choice::of_home(home);
    loop {
        let running = home.running()?;
        let asked = tokio::time::timeout(deadline.saturating_duration_since(Instant::now()), async {
            let request =
                http::Request::get("/readyz").body(kube::client::Body::empty()).expect("the path is well-formed");
            Cluster::existing(&choice).await.ok()?.client.send(request).await.ok()
        });
        match asked.await {
            Ok(Some(_)) | Err(_) => return Some(running),
            Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Starts `trainyard up` in the background and returns once it is ready.
///
/// Expected flow: the child makes a session of its own, so that no signal of a terminal or of another job reaches it or what it
/// starts; its stderr goes to the home's log; it prints one JSON line when ready, which is what this waits for.
///
/// Errors: `NotReady` when the child ends first; its log says why, and the last line of it is in the message.
pub fn start(home: &Home, flags: &[String], token: Option<&str>) -> Result<Running, ClientError> {
    home.create()?;
    let io = |doing, path: std::path::PathBuf| move |source| ClientError::Io { doing, path, source };
    let log = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(home.log());
    let log = log.map_err(io("open", home.log()))?;
    let program = std::env::current_exe().map_err(io("find", "the trainyard binary".into()))?;
    let mut command = Command::new(&program);
    command.args(["up", "--output=json", "--own-session"]).arg("--home").arg(home.root()).args(flags);
    if let Some(token) = token {
        command.env("TRAINYARD_TOKEN", token);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(io("start", program))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line);
    if let (Ok(1..), Ok(running)) = (read, serde_json::from_str(&line)) {
        return Ok(running);
    }
    let _ = child.wait();
    // somebody else was faster: theirs is as good
    if let Some(running) = home.wait_running() {
        return Ok(running);
    }
    let text = std::fs::read_to_string(home.log()).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(empty)").to_owned();
    Err(ClientError::NotReady {
        home: home.root().to_owned(),
        log: format!("{}\n  its last line: {last}", home.log().display()),
    })
}

/// The chosen cluster. If that is the control plane of this machine and it does not run, this starts it.
pub async fn cluster(choice: &Choice) -> Result<Cluster, ClientError> {
    if let Where::Stopped(home) = client::place(choice)? {
        let running = start(&home, &[], None)?;
        eprintln!("started the control plane ({}); stop it with: trainyard down", running.server);
    }
    Cluster::existing(choice).await
}

/// Stops the control plane. Running jobs go on: the next `up` takes them over.
pub(crate) fn down(args: &DownArgs, global: &Global) -> Result<u8, ClientError> {
    let home = Home::find(global.home.as_deref())?;
    let Some(running) = home.running() else {
        eprintln!("no control plane is running under {}", home.root().display());
        return Ok(exit::OK);
    };
    let pid = Pid::from_raw(i32::try_from(running.pid).expect("a process id fits"));
    if let Err(error) = kill(pid, Signal::SIGTERM) {
        return Err(ClientError::Api(
            ErrorCode::StopFailed,
            format!("cannot stop process {}: {}", running.pid, error.desc()),
        ));
    }
    let deadline = api::time::after(Instant::now(), STOP_MAX);
    while home.is_locked() {
        if Instant::now() > deadline {
            return Err(ClientError::Api(
                ErrorCode::StopFailed,
                format!("process {} was asked to stop and still runs; see {}", running.pid, home.log().display()),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    match args.output.output {
        Format::Json | Format::Yaml => output::print(&json!({"stopped": running.pid}), args.output.output),
        Format::Table | Format::Wide | Format::Name => {
            println!("stopped; running jobs go on, and `trainyard up` takes them over again");
        }
    }
    Ok(exit::OK)
}

/// Says whether the control plane runs. Exit code 4 where it does not.
pub(crate) async fn status(args: &ListArgs, global: &Global) -> Result<u8, ClientError> {
    let home = Home::find(global.home.as_deref())?;
    let running = home.running();
    let machine_readable = match &running {
        Some(running) => {
            let mut shown = serde_json::to_value(running).expect("plain data");
            shown["running"] = true.into();
            shown["home"] = home.root().to_string_lossy().into();
            shown
        }
        None => json!({"running": false, "home": home.root().to_string_lossy()}),
    };
    match (args.output.output, &running) {
        (Format::Json | Format::Yaml, _) => output::print(&machine_readable, args.output.output),
        (Format::Table | Format::Wide | Format::Name, Some(running)) => {
            println!("running     {} (process {}, version {})", running.server, running.pid, running.version);
            println!("kubeconfig  {}", running.kubeconfig.display());
            println!("node        {}", running.node);
            println!("progress    {}", running.status_server.as_deref().unwrap_or("not taken"));
            println!("dashboard   {}", running.dashboard.as_deref().unwrap_or("none"));
            println!("log         {}", home.log().display());
        }
        (Format::Table | Format::Wide | Format::Name, None) => {
            println!("not running under {}", home.root().display());
            println!("start it with: trainyard up --detach");
        }
    }
    Ok(if running.is_some() { exit::OK } else { exit::UNREACHABLE })
}

/// Prints the path of the kubeconfig, for `export KUBECONFIG=$(trainyard kubeconfig)`.
pub fn kubeconfig(global: &Global) -> Result<u8, ClientError> {
    let home = Home::find(global.home.as_deref())?;
    if !home.kubeconfig().exists() {
        return Err(ClientError::NotRunning { home: home.root().to_owned() });
    }
    println!("{}", home.kubeconfig().display());
    Ok(exit::OK)
}
