//! `trainyard node`: the agent of a machine whose API server is on another one. It dials out, and opens no port.

use crate::pki;
use crate::up::{UpError, keep_clock, log_to_stderr, until_stopped};
use cli::exit;
use client::codes::ErrorCode;
use grammar::{Global, NodeArgs};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::fcntl::{Flock, FlockArg};
use node::agent::{Agent, Config};
use node::kube_world::KubeWorld;
use node::tunnel;
use serde_json::{Value, json};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the users of nodes' kubeconfigs are called, before the node's name.
const USER_PREFIX: &str = "system:node:";

/// Runs the agent until SIGTERM or Ctrl-C. Pods go on when it ends, and the next one takes them over.
pub async fn node(args: &NodeArgs, global: &Global) -> Result<u8, UpError> {
    if args.end || args.stop {
        return end(&args.data, args.end).await;
    }
    log_to_stderr(global.verbose);
    let refused = |why: String| UpError::Usage(ErrorCode::FlagRefused, why);
    let Some(path) = &global.kubeconfig else {
        return Err(refused("--kubeconfig FILE is needed: `trainyard kubeconfig --node NAME` prints one".to_owned()));
    };
    check_private(path).map_err(refused)?;
    let unusable = |error: std::io::Error| refused(format!("--kubeconfig {}: {error}", path.display()));
    let kubeconfig = read(path).map_err(unusable)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => {
            let mut users = kubeconfig.auth_infos.iter();
            let name = users.find_map(|user| user.name.strip_prefix(USER_PREFIX));
            name.map(str::to_owned).ok_or_else(|| {
                refused(format!("{} has no user {USER_PREFIX}NAME, so name the node: --name", path.display()))
            })?
        }
    };
    let config = config(kubeconfig).await.map_err(unusable)?;
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let client = kube::Client::try_from(config).map_err(|error| unusable(other(&error)))?;
    make_private(&args.data).map_err(UpError::Agent)?;
    let _lock = lock(&args.data)?;
    keep_clock(&args.data, behind(&client).await)?;
    let program = std::env::current_exe().map_err(UpError::Agent)?;
    let mut config = Config::new(args.data.clone(), &name, vec![program.clone().into(), "shim".into()]);
    config.stand_ins = crate::initialize::stand_ins(&program.to_string_lossy());
    config.api_server = Some((host, port));
    config.host_ip = args.address.unwrap_or_else(own_address);
    config.labels = args.labels.iter().cloned().collect();
    config.taints = args.taints.iter().cloned().collect();
    config.tells_sessions = true;
    config.capacity = args.capacity.iter().cloned().collect();
    let (is_open, connected) = watch::channel(false);
    config.connected = connected;
    let agent = Agent::new(config, KubeWorld::new(client.clone(), &name)).await.map_err(UpError::Agent)?;
    let stop = CancellationToken::new();
    let running = agent.run(stop.clone());
    tokio::select! {
        () = running => {}
        error = tunnel::keep_open(client.clone(), args.data.clone(), env!("CARGO_PKG_VERSION"), is_open) => {
            return Err(UpError::Agent(std::io::Error::other(error.to_string())));
        }
        () = follow_clock(client) => {}
        () = until_stopped() => {}
    }
    node::say!("stopping; running pods go on");
    stop.cancel();
    Ok(exit::OK)
}

/// How often the control plane is asked for the time, and how long it may take to say it.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
const CLOCK_MAX: Duration = Duration::from_secs(5);

/// Corrects this machine's clock by the control plane's, for ever.
async fn follow_clock(client: kube::Client) {
    loop {
        tokio::time::sleep(CLOCK_INTERVAL).await;
        if let Some(behind) = behind(&client).await {
            clock::correct(behind);
        }
    }
}

/// By how much this machine's clock is behind that of the control plane; `None` where that does not say it.
async fn behind(client: &kube::Client) -> Option<SignedDuration> {
    let request = http::Request::get("/version").body(kube::client::Body::empty()).ok()?;
    let (asked, began) = (Timestamp::now(), std::time::Instant::now());
    let answer = tokio::time::timeout(CLOCK_MAX, client.send(request)).await.ok()?.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    // whole seconds are told, and halfway through the call
    let there = date.checked_add(SignedDuration::from_millis(500)).ok()?;
    let here = asked.checked_add(began.elapsed().checked_div(2)?).ok()?;
    Some(there.duration_since(here))
}

fn other(error: &dyn std::error::Error) -> std::io::Error {
    std::io::Error::other(api::error_chain(error))
}

fn read(path: &Path) -> std::io::Result<Kubeconfig> {
    Kubeconfig::read_from(path).map_err(|error| other(&error))
}

async fn config(kubeconfig: Kubeconfig) -> std::io::Result<kube::Config> {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| other(&error))?;
    config.read_timeout = None; // a quiet connection is none that is dead: both sides look by themselves
    Ok(config)
}

/// A client of the API server that a kubeconfig's current context names.
pub async fn client(kubeconfig: &Path) -> std::io::Result<kube::Client> {
    let config = config(read(kubeconfig)?).await?;
    kube::Client::try_from(config).map_err(|error| other(&error))
}

/// Ends the agent of this directory and all pods; removes the directory where it is to.
async fn end(data: &Path, removes: bool) -> Result<u8, UpError> {
    if !data.exists() {
        return Ok(exit::OK);
    }
    if let Ok(text) = std::fs::read_to_string(data.join(LOCK))
        && let Ok(pid) = text.trim().parse::<i32>()
        && try_lock(data).map_err(UpError::Agent)?.is_none()
    {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
    }
    let until = api::time::after(tokio::time::Instant::now(), AGENT_END_MAX);
    let lock = loop {
        match try_lock(data).map_err(UpError::Agent)? {
            Some(lock) => break lock,
            None if tokio::time::Instant::now() > until => {
                let why = format!("the agent with {} does not end", data.display());
                return Err(UpError::Agent(std::io::Error::other(why)));
            }
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    node::end::all(data).await.map_err(UpError::Agent)?;
    if removes {
        std::fs::remove_dir_all(data).map_err(UpError::Agent)?;
    }
    drop(lock);
    Ok(exit::OK)
}

/// How long an agent may take to end.
const AGENT_END_MAX: Duration = Duration::from_secs(10);

/// In the agent's directory: held (flock) while it runs; its process's number.
const LOCK: &str = "agent.lock";

fn try_lock(data: &Path) -> std::io::Result<Option<Flock<File>>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(data.join(LOCK))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

fn lock(data: &Path) -> Result<Flock<File>, UpError> {
    use std::io::Write;
    let Some(mut lock) = try_lock(data).map_err(UpError::Agent)? else {
        let by = std::fs::read_to_string(data.join(LOCK)).unwrap_or_default();
        let why = format!("an agent already runs with {} (process {})", data.display(), by.trim());
        return Err(UpError::Usage(ErrorCode::AlreadyRunning, why));
    };
    lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(UpError::Agent)?;
    Ok(lock)
}

/// A file with a token is its owner's alone.
fn check_private(path: &Path) -> Result<(), String> {
    let found = std::fs::metadata(path).map_err(|error| format!("--kubeconfig {}: {error}", path.display()))?;
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(format!("others may read {path} (mode {mode:04o}), which holds the node's token: chmod 600 {path}"))
}

fn make_private(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// The first address of this machine that others can have; 127.0.0.1 where there is none.
pub(crate) fn own_address() -> Ipv4Addr {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = interfaces.filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()));
    let mut usable = addresses.filter(|ip| !ip.is_loopback() && !ip.is_link_local());
    usable.next().unwrap_or(Ipv4Addr::LOCALHOST)
}

/// The kubeconfig of a node's agent: its Node object is made where it is missing, and the token dies with it.
///
/// # Errors
/// The API server refuses, or there is no key to sign with.
pub async fn kubeconfig(
    home: &Path,
    client: &kube::Client,
    server: &str,
    node: &Value,
    days: u16,
) -> Result<String, UpError> {
    let name = api::object::meta(node, "name");
    let nodes = nodes(client);
    let failed = |error: &dyn std::error::Error| UpError::Agent(other(error));
    let there = match nodes.get_opt(name).await.map_err(|error| failed(&error))? {
        Some(there) => there,
        None => {
            let new = serde_json::from_value(node.clone()).map_err(|error| failed(&error))?;
            nodes.create(&kube::api::PostParams::default(), &new).await.map_err(|error| failed(&error))?
        }
    };
    let uid = there.metadata.uid.unwrap_or_default();
    let key = pki::secret(&home.join("serviceaccounts.key"))?;
    let seconds = i64::from(days).saturating_mul(24 * 60 * 60);
    let token = apiserver::auth::Authenticator::new(key).node_token(name, &uid, clock::now(), seconds);
    let authority = pki::authority_certificate(home)?;
    let user = format!("{USER_PREFIX}{name}");
    Ok(pki::kubeconfig_of(&user, server, &authority, &pki::Credential::Token(&token)))
}

/// Nodes, as they come.
pub fn nodes(client: &kube::Client) -> kube::Api<DynamicObject> {
    kube::Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()))
}

/// A Node object without anything that only its agent knows.
pub fn bare(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}
