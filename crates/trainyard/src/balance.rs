//! `trainyard balance`: the load balancer of a service, in a pod of its own.
//!
//! It follows the Serving, gives its replicas to `balance`, and writes into `status.load` what that reports. While the API server is away
//! it goes on with the replicas that it knows.

use ::balance::{Backend, BackendState, BalancerConfig, BalancerReport, CertificatePair, Hold, Policy, Probe};
use api::sky::{
    BalancedReplica, Balancing, FleetStatus, ReadinessProbe, ReplicaReport, ServingLoad, Traffic, serving_gvk,
};
use cli::exit;
use client::ClientError;
use futures::StreamExt;
use grammar::{BalanceArgs, Global};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::UpError;

/// The ports that are tried, in this order.
const PORTS: std::ops::RangeInclusive<u16> = 30001..=30999;
/// Time between two reports of what changes all the time: how many requests there are.
const COUNTED: Duration = Duration::from_secs(5);
/// Time before a report that could not be written is written again.
const AGAIN: Duration = Duration::from_secs(1);
/// Time before an address that another program holds is tried again.
const HELD: Duration = Duration::from_secs(5);

/// Runs until it is stopped by a signal; requests in flight have 30 s then.
pub async fn balance(args: &BalanceArgs, global: &Global) -> Result<u8, UpError> {
    match run(args, global).await {
        Ok(()) => Ok(exit::OK),
        Err(why) => {
            node::say!("error: {why}");
            Ok(exit::FAILURE)
        }
    }
}

fn servings(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let gvk = serving_gvk();
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind), "servings");
    Api::namespaced_with(client.clone(), namespace, &kind)
}

fn secrets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret")))
}

async fn run(args: &BalanceArgs, global: &Global) -> Result<(), String> {
    let config = Config::incluster()
        .map_err(|error| format!("it runs in the pod of a service alone, where it finds the API server: {error}"))?;
    let namespace = global.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| format!("cannot reach the API server: {error}"))?;
    let api = servings(&client, &namespace);
    let (mut terminated, mut interrupted) = (
        signal(SignalKind::terminate()).map_err(|error| error.to_string())?,
        signal(SignalKind::interrupt()).map_err(|error| error.to_string())?,
    );
    let mut drained = JoinSet::new();
    loop {
        let stop = CancellationToken::new();
        let at = async {
            let (asked, listener) = listener(&api, &args.name).await?;
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            let (configs, config) = watch::channel(BalancerConfig::default());
            let (reports, mut report) = watch::channel(BalancerReport::default());
            drained.spawn(::balance::serve(listener, config, reports, stop.clone()));
            let (known, states) = watch::channel(Known { address: reached(address), ..Known::default() });
            node::say!("the load balancer of {} listens on {address}", args.name);
            tokio::select! {
                () = follow((&client, &namespace, &args.name), &asked, &configs, &known) => {}
                () = tell(&api, &args.name, states, &mut report) => {}
            }
            Ok::<(), String>(())
        };
        let is_over = tokio::select! {
            // the requests that it has go on, while the next one listens at another address
            moved = at => moved.map(|()| false)?,
            _ = terminated.recv() => true,
            _ = interrupted.recv() => true,
        };
        stop.cancel();
        if is_over {
            drained.join_all().await;
            return Ok(());
        }
    }
}

/// Where others reach what listens at this address.
fn reached(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::from((crate::agent::own_address(), address.port())),
        false => address,
    }
}

/// Listens at the address of the Serving, and returns `spec.listen` with the listener. If that fails, writes the reason into the status and tries again.
async fn listener(api: &Api<DynamicObject>, name: &str) -> Result<(String, TcpListener), String> {
    let mut told = String::new();
    loop {
        let serving = first(api, name).await?;
        let asked = asked(&serving);
        let why = match listen(&asked, &status(&serving).load.endpoint).await {
            Ok(listener) => return Ok((asked, listener)),
            Err(why) => why,
        };
        if why != told {
            node::say!("error: {why}");
            let load = ServingLoad { message: why.clone(), ..ServingLoad::default() };
            match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch(&load))).await {
                Ok(_) => told = why,
                Err(error) => tracing::warn!(error = %ClientError::from(error), "the fault cannot be reported"),
            }
        }
        sleep(HELD).await;
    }
}

/// Where the Serving wants its load balancer to listen.
fn asked(serving: &DynamicObject) -> String {
    serving.data["spec"]["listen"].as_str().unwrap_or_default().to_owned()
}

/// Waits for the Serving, which may not be in the server's view yet.
async fn first(api: &Api<DynamicObject>, name: &str) -> Result<DynamicObject, String> {
    loop {
        match api.get_opt(name).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => return Err(format!("there is no Serving {name}")),
            Err(error) => {
                node::say!("the API server does not answer: {}", ClientError::from(error));
                sleep(AGAIN).await;
            }
        }
    }
}

/// Listens on `ADDRESS:PORT`, or on `ADDRESS` and the port of the last endpoint or a free one. Nothing is the loopback address.
async fn listen(asked: &str, before: &str) -> Result<TcpListener, String> {
    let with_advice =
        |why: String| format!("{why}; choose another address: sky serve update NAME FILE --listen ADDRESS");
    let bind = async |address: SocketAddr| {
        let bound = TcpListener::bind(address).await;
        bound.map_err(|error| with_advice(format!("the load balancer cannot listen on {address}: {error}")))
    };
    if let Ok(address) = asked.parse::<SocketAddr>() {
        return bind(address).await;
    }
    let address = match asked {
        "" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        given => given.parse(),
    };
    let address =
        address.map_err(|_| with_advice(format!("{asked:?} is not a valid address for the load balancer")))?;
    let last = before.rsplit(':').next().and_then(|port| port.parse().ok());
    let mut failed = String::new();
    for port in last.into_iter().chain(PORTS) {
        match bind(SocketAddr::from((address, port))).await {
            Ok(listener) => return Ok(listener),
            Err(why) => failed = why,
        }
    }
    Err(failed)
}

/// What the load balancer does, which its reports repeat.
#[derive(Clone, Debug)]
struct Known {
    address: SocketAddr,
    is_tls: bool,
    draining: BTreeSet<u32>,
    message: String,
}

impl Default for Known {
    fn default() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { address, is_tls: false, draining: BTreeSet::new(), message: String::new() }
    }
}

fn status(serving: &DynamicObject) -> FleetStatus {
    serde_json::from_value(serving.data["status"].clone()).unwrap_or_default()
}

/// Passes on the replicas of the Serving as they change. Returns when `spec.listen` is no longer this address.
async fn follow(
    (client, namespace, name): (&Client, &str, &str),
    address: &str,
    configs: &watch::Sender<BalancerConfig>,
    known: &watch::Sender<Known>,
) {
    let api = servings(client, namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(api, only));
    let mut told = false;
    while let Some(event) = events.next().await {
        let serving = match event {
            Ok(watcher::Event::Apply(serving) | watcher::Event::InitApply(serving)) => serving,
            Ok(_) => continue,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    node::say!("the API server does not answer; the known replicas go on: {error}");
                }
                sleep(AGAIN).await;
                continue;
            }
        };
        told = false;
        if asked(&serving) != address {
            return;
        }
        let balancing = status(&serving).balancing;
        let needs_secret = balancing.is_tls || balancing.backends.iter().any(|one| !one.probe.headers_key.is_empty());
        let secret = match needs_secret {
            true => secret(client, namespace, name).await,
            false => Ok(Secret::default()),
        };
        let (secret, message) = match secret {
            Ok(secret) => (secret, String::new()),
            Err(why) => (Secret::default(), why),
        };
        let draining = balancing.backends.iter().filter(|one| one.traffic == Traffic::Draining);
        let draining = draining.map(|one| one.replica).collect();
        let is_tls = balancing.is_tls;
        configs.send_if_modified(|config| {
            let fresh = configuration(&balancing, &secret);
            let is_new = *config != fresh;
            *config = fresh;
            is_new
        });
        known.send_modify(|known| *known = Known { address: known.address, is_tls, draining, message });
    }
}

/// What of the load balancer is secret.
#[derive(Default)]
struct Secret {
    values: BTreeMap<String, String>,
}

async fn secret(client: &Client, namespace: &str, serving: &str) -> Result<Secret, String> {
    let name = managed::fleet::submitted::balancer_name(serving);
    let found = secrets(client, namespace).get(&name).await;
    let found = found.map_err(|error| format!("Secret {name} cannot be read: {}", ClientError::from(error)))?;
    let decoded = |value: &Value| {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let data = found.data["data"].as_object().into_iter().flatten();
    Ok(Secret { values: data.filter_map(|(key, value)| Some((key.clone(), decoded(value)?))).collect() })
}

fn configuration(balancing: &Balancing, secret: &Secret) -> BalancerConfig {
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(120));
    let probe = |probe: &ReadinessProbe| Probe {
        path: probe.path.clone(),
        timeout: seconds(probe.timeout_seconds),
        interval: seconds(probe.interval_seconds).max(Duration::from_millis(100)),
        post_data: Some(probe.body.clone()).filter(|body| !body.is_empty()),
        headers: headers(secret.values.get(&probe.headers_key)),
    };
    let backend = |backend: &BalancedReplica| Backend {
        id: backend.replica.to_string(),
        address: backend.address.clone(),
        state: match backend.traffic {
            Traffic::Serving => BackendState::Serving,
            Traffic::Probed => BackendState::Probed,
            Traffic::Draining => BackendState::Draining,
        },
        capacity: Some(backend.capacity).filter(|capacity| *capacity > 0.0),
        probe: Some(probe(&backend.probe)),
    };
    let pair = secret.values.get("tls.crt").zip(secret.values.get("tls.key"));
    // without a readable certificate it answers nobody
    let pair = pair.map(|(certificate, key)| CertificatePair { certificate: certificate.clone(), key: key.clone() });
    BalancerConfig {
        backends: balancing.backends.iter().map(backend).collect(),
        policy: Policy::parse(&balancing.policy).unwrap_or_default(),
        stream_timeout: seconds(balancing.stream_timeout_seconds),
        tls: balancing.is_tls.then(|| pair.unwrap_or_else(no_certificate)),
        hold: if balancing.refuses { Hold { most: 0, ..Hold::default() } } else { Hold::default() },
        ..BalancerConfig::default()
    }
}

fn no_certificate() -> CertificatePair {
    CertificatePair { certificate: String::new(), key: String::new() }
}

fn headers(text: Option<&String>) -> Vec<(String, String)> {
    let read: BTreeMap<String, Value> = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let plain = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    read.into_iter().map(|(name, value)| (name, plain(value))).collect()
}

/// The load, as the Serving's status has it.
fn load(report: &BalancerReport, known: &Known) -> ServingLoad {
    let scheme = if known.is_tls { "https" } else { "http" };
    let message = [Some(known.message.clone()), report.tls_error.clone()];
    let backends = report.backends.iter().filter_map(|(id, one)| {
        let replica = id.parse().ok()?;
        let time = |time: Option<jiff::Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        Some(ReplicaReport {
            replica,
            is_draining: known.draining.contains(&replica),
            is_ready: one.ready,
            ready_at: time(one.first_ready_at),
            failing_since: time(one.failing_since),
            failures: one.failures,
            last_failure: one.last_failure.clone().filter(|_| !one.ready).unwrap_or_default(),
            in_flight: u64::try_from(one.in_flight).unwrap_or(u64::MAX),
        })
    });
    ServingLoad {
        endpoint: format!("{scheme}://{}", known.address),
        message: message.into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "),
        requests_last_minute: report.requests_last_minute,
        held: u64::try_from(report.held).unwrap_or(u64::MAX),
        backends: backends.collect(),
    }
}

/// What the control plane waits for: it is written at once when it changes.
fn urgent(load: &ServingLoad) -> ServingLoad {
    let backends = load.backends.iter().map(|one| ReplicaReport {
        failures: 0,
        in_flight: u64::from(one.is_draining && one.in_flight > 0),
        ..one.clone()
    });
    ServingLoad {
        requests_last_minute: 0,
        held: u64::from(load.held > 0),
        backends: backends.collect(),
        ..load.clone()
    }
}

/// Writes the reports into the status.
async fn tell(
    api: &Api<DynamicObject>,
    name: &str,
    mut known: watch::Receiver<Known>,
    report: &mut watch::Receiver<BalancerReport>,
) {
    let (mut written, mut at) = (ServingLoad::default(), Instant::now());
    loop {
        let now = load(&report.borrow_and_update(), &known.borrow_and_update());
        let due = at.checked_add(COUNTED).unwrap_or(at);
        let is_due = urgent(&now) != urgent(&written) || (now != written && Instant::now() >= due);
        if is_due {
            match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch(&now))).await {
                Ok(_) => {
                    say_changes(&written, &now);
                    (written, at) = (now, Instant::now());
                }
                Err(error) => {
                    tracing::warn!(error = %ClientError::from(error), "the state of the replicas cannot be reported");
                    sleep(AGAIN).await;
                    continue;
                }
            }
        }
        let is_behind = load(&report.borrow(), &known.borrow()) != written;
        tokio::select! {
            changed = report.changed() => if changed.is_err() { return },
            changed = known.changed() => if changed.is_err() { return },
            () = sleep_until(due), if is_behind => {}
        }
    }
}

/// The change of the status, which replaces all of the last load.
fn patch(load: &ServingLoad) -> Value {
    let mut body = serde_json::to_value(load).unwrap_or_default();
    for name in ["message", "requestsLastMinute", "held", "backends"] {
        if body.get(name).is_none() {
            body[name] = Value::Null;
        }
    }
    json!({"status": {"load": body}})
}

fn say_changes(before: &ServingLoad, now: &ServingLoad) {
    for one in &now.backends {
        let was = before.backends.iter().find(|was| was.replica == one.replica);
        match (was.is_some_and(|was| was.is_ready), one.is_ready) {
            (false, true) => node::say!("replica {} is ready", one.replica),
            (true, false) => node::say!("replica {} is not ready: {}", one.replica, one.last_failure),
            _ => {}
        }
    }
    if now.held > 0 && before.held == 0 {
        node::say!("requests wait for a replica");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_control_plane_waits_for_is_urgent() {
        let load = |failures: u32, in_flight: u64, is_draining: bool, held: u64| ServingLoad {
            held,
            backends: vec![ReplicaReport { replica: 1, failures, in_flight, is_draining, ..ReplicaReport::default() }],
            ..ServingLoad::default()
        };
        assert_eq!(urgent(&load(1, 5, false, 3)), urgent(&load(2, 9, false, 8)));
        assert_ne!(urgent(&load(0, 1, true, 0)), urgent(&load(0, 0, true, 0)), "it is drained");
        assert_ne!(urgent(&load(0, 0, false, 0)), urgent(&load(0, 0, false, 1)), "somebody waits");
        assert_eq!(patch(&ServingLoad::default())["status"]["load"]["held"], Value::Null);
    }

    #[test]
    fn headers_are_those_of_the_secret() {
        let text = r#"{"Authorization": "Bearer x", "X-Count": 3}"#.to_owned();
        let wanted = [("Authorization", "Bearer x"), ("X-Count", "3")];
        assert_eq!(headers(Some(&text)), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(headers(None).is_empty());
    }
}
