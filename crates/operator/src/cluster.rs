//! The operator on a cluster: everything that one replica runs.
//!
//! All replicas serve webhooks, probes, metrics and the status server, and keep the certificate; the leader reconciles.

pub mod access;
pub mod certificates;
pub mod health;
mod health_events;
pub mod leader;
mod metrics_server;
mod prerequisites;
pub mod registration;
mod rotation;
mod runtime_cache;
mod runtimes;
pub mod settings;
mod slim;
pub mod tls;
pub mod webhooks;

use crate::cluster::certificates::{Material, advance};
use crate::cluster::health::{Health, Level, Probes};
use crate::cluster::leader::{Election, Elector};
use crate::cluster::metrics_server::{MetricsServer, Readers};
use crate::cluster::registration::{Place, Registration};
use crate::cluster::rotation::{CERTIFICATE, REGISTRATION, Rotation};
use crate::cluster::runtimes::Runtimes;
use crate::cluster::settings::{KINDS, listen_address};
use crate::cluster::slim::{is_many, selected, slim, slim_of_mpi};
use crate::cluster::tls::{Shown, server_config};
use crate::cluster::webhooks::Webhooks;
use crate::numbers::{self, JobNumbers};
use crate::serve::{Ends, serve, shared_listener};
use crate::status_server::StatusServer;
use crate::{Controllers, Surroundings};
use api::config::{Configuration, GATE_TRAINJOB_STATUS, Mpi};
use api::metrics::{LEADS, MPIJOBS_LEADS};
use api::mpi::names::LEASE;
use api::object::{Gvk, Key};
use driver::metrics::Registry;
use driver::{Driver, Options};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use plan::mpijob::{self, GangScheduler};
use plan::plugins;
use plan::plugins::CaSource;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The name of the webhooks' certificate in metrics.
pub(crate) const CERTIFICATE_NAME: &str = "webhooks";
/// After the word to stop, everything is served for so long: until no Service leads here any more.
const LINGER: Duration = Duration::from_secs(5);

/// One replica of the operator, and its settings.
pub struct Operator {
    /// It counts in `metrics` (`client::counted`).
    pub client: Client,
    pub metrics: Arc<Registry>,
    pub configuration: Configuration,
    /// Where the operator's own objects are: Secret, Lease, Service.
    pub namespace: String,
    /// The only namespace whose TrainJobs are worked on; `None`: all.
    pub watch_namespace: Option<String>,
    pub controllers: Controllers,
    /// Where the API server finds the webhooks; `None`: they are not registered at all.
    pub place: Option<Place>,
    /// `ADDRESS:PORT` in place of what the configuration says.
    pub webhook_listen: Option<SocketAddr>,
    /// Unique among the replicas.
    pub identity: String,
    /// The name of the pod that this process runs in; `None` outside of the cluster.
    pub pod: Option<String>,
    /// Between two looks at the certificate.
    pub period: Duration,
    /// ClusterTrainingRuntimes that the leader installs.
    pub runtimes: Vec<Value>,
}

/// Why the operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("cannot listen on {address} for {what}")]
    Listen {
        what: &'static str,
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{field}: {why}")]
    Setting { field: String, why: String },
    #[error("cannot set up TLS")]
    Tls(#[from] crate::cluster::tls::TlsError),
    #[error("cannot make a certificate")]
    Certificate(#[from] crate::cluster::certificates::MakeError),
}

impl Operator {
    /// Runs until `stop`; then hands the lease over, and answers what is under way.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OperatorError> {
        let configuration = &self.configuration;
        if let Some(watched) = self.watch_namespace.as_ref().filter(|watched| **watched != self.namespace)
            && configuration.is_enabled(GATE_TRAINJOB_STATUS)
        {
            return Err(OperatorError::Setting {
                field: format!("featureGates[{GATE_TRAINJOB_STATUS}]"),
                why: format!(
                    "pods are told the authority in the operator's own Secret, which is in namespace {}, while \
                     --watch-namespace is {watched}: install the operator in {watched}, or turn the gate off",
                    self.namespace
                ),
            });
        }
        let metrics = self.metrics.clone();
        let shown = Arc::new(Shown::default());
        let tls = Arc::new(server_config(&configuration.tls, shown.clone())?);
        let health = Arc::new(match self.place {
            Some(_) => Health::awaiting(&[CERTIFICATE, REGISTRATION]),
            None => Health::default(),
        });
        // what serves goes on for a moment after the leader's work has ended
        let ends = Ends::default();
        let serving = ends.stop.clone();
        let mut servers = JoinSet::new();

        let listener = listen("probes", &configuration.health.health_probe_bind_address, false).await?;
        if let Some(listener) = listener {
            let probes = Probes { health: health.clone(), names: configuration.health.clone() };
            servers.spawn(serve(listener, None, Arc::new(probes), ends.clone()));
        }
        let listener = listen("metrics", &configuration.metrics.bind_address, false).await?;
        if let Some(listener) = listener {
            let readers = configuration.metrics.auth.enabled.then(|| Readers::new(self.client.clone()));
            let service = Arc::new(MetricsServer { metrics: metrics.clone(), readers });
            let tls = configuration.metrics.secure_serving.then(|| tls.clone());
            servers.spawn(serve(listener, tls, service, ends.clone()));
        }
        match &self.place {
            Some(place) => {
                let address = self.webhook_address()?;
                let failed = |source| OperatorError::Listen { what: "webhooks", address: address.to_string(), source };
                // replicas on one machine share the address
                let listener = bind(address, matches!(place, Place::Url(_))).await.map_err(failed)?;
                tracing::info!(%address, "serving webhooks");
                let (reader, runtimes) = runtime_cache::runtimes(self.client.clone(), self.watch_namespace.clone());
                servers.spawn(reader.run(serving.clone()));
                let webhooks = Webhooks::new(self.client.clone(), metrics.clone(), runtimes);
                servers.spawn(serve(listener, Some(tls.clone()), Arc::new(webhooks), ends.clone()));
                servers.spawn(self.rotation(place, shown, health.clone()).run(stop.clone()));
            }
            None => {
                health.set(
                    REGISTRATION,
                    Level::Lacks,
                    "TrainJobs are neither defaulted nor checked: outside a cluster, --webhook-url registers webhooks",
                );
                let names = ["localhost".to_owned()];
                let own = advance(Material::default(), &names, Timestamp::now(), false, SignedDuration::ZERO)?;
                if let (Some(certificate), Some(key)) = (&own.certificate, &own.key) {
                    shown.show(certificate, key)?;
                    numbers::note_certificate(&metrics, CERTIFICATE_NAME, certificate);
                }
            }
        }
        let mut around = Surroundings::default();
        if configuration.is_enabled(GATE_TRAINJOB_STATUS) {
            let port = configuration.status_server.port;
            let address = format!(":{port}");
            let shared = matches!(self.place, Some(Place::Url(_)));
            if let Some(listener) = listen("the status server", &address, shared).await? {
                let server = StatusServer::new(self.client.clone())
                    .within(self.watch_namespace.as_deref())
                    .with_config_maps()
                    .paced(configuration.status_server.limit());
                let (tls, ends) = (tls.clone(), ends.clone());
                servers.spawn(async move { server.serve(listener, &tls, ends).await });
            }
            around.settings.status_server = self.report_to(port);
        }
        servers.spawn(prerequisites::probe(self.client.clone(), health.clone(), serving.clone()));

        let leave = async {
            stop.cancelled().await;
            ends.drain.cancel();
            health.set("process", Level::Fails, "stopping: another replica serves");
            if matches!(self.place, Some(Place::Service { .. })) {
                tokio::time::sleep(LINGER).await;
            }
        };
        tokio::join!(self.reconcile(around, &metrics, &health, stop.clone()), leave);
        serving.cancel();
        while servers.join_next().await.is_some() {}
        Ok(())
    }

    fn webhook_address(&self) -> Result<SocketAddr, OperatorError> {
        if let Some(address) = self.webhook_listen {
            return Ok(address);
        }
        let webhook = &self.configuration.webhook;
        let host = webhook.host.as_deref().filter(|host| !host.is_empty()).unwrap_or("::");
        let text =
            if host.contains(':') { format!("[{host}]:{}", webhook.port) } else { format!("{host}:{}", webhook.port) };
        text.parse().map_err(|_| OperatorError::Setting {
            field: "webhook.host".to_owned(),
            why: format!("{host:?} is not an address: 0.0.0.0, 127.0.0.1, ::"),
        })
    }

    fn rotation(&self, place: &Place, shown: Arc<Shown>, health: Arc<Health>) -> Rotation {
        let management = &self.configuration.cert_management;
        Rotation {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            secret: management.webhook_secret_name.clone(),
            names: place.names(),
            manage: management.enable,
            period: self.period,
            shown,
            metrics: self.metrics.clone(),
            registration: Registration {
                client: self.client.clone(),
                place: place.clone(),
                namespace: self.watch_namespace.clone(),
            },
            health,
        }
    }

    /// Where training code reports to, for the pods.
    fn report_to(&self, port: i32) -> Option<plugins::StatusServer> {
        let host = self.place.as_ref()?.names().into_iter().next()?;
        let secret = Key::new(&self.namespace, &self.configuration.cert_management.webhook_secret_name);
        Some(plugins::StatusServer { base_url: format!("https://{host}:{port}"), ca: CaSource::Secret(secret) })
    }

    /// Runs the controllers whenever this replica leads.
    async fn reconcile(
        &self,
        around: Surroundings,
        metrics: &Arc<Registry>,
        health: &Arc<Health>,
        stop: CancellationToken,
    ) {
        let jobs = JobNumbers::new(metrics);
        let mpi = self.reconcile_mpijobs(metrics, &jobs, health, stop.clone());
        tokio::join!(self.reconcile_trainjobs(around, metrics, &jobs, health, stop), mpi);
    }

    fn limit(&self) -> Option<(f64, f64)> {
        let speed = &self.configuration.client_connection;
        (speed.qps > 0.0).then(|| (f64::from(speed.qps), f64::from(speed.burst)))
    }

    /// The image of the pod that this process runs in; `None` elsewhere.
    async fn own_image(&self) -> Option<String> {
        let name = self.pod.as_ref()?;
        // listed, not got: that is the right that the operator has
        let path = format!("/api/v1/namespaces/{}/pods?fieldSelector=metadata.name%3D{name}", self.namespace);
        let request = http::Request::get(path).body(Vec::new()).ok()?;
        match self.client.request::<Value>(request).await {
            Ok(list) => list["items"][0]["spec"]["containers"][0]["image"].as_str().map(str::to_owned),
            Err(error) => {
                tracing::warn!(%error, pod = name, "cannot read the image of this pod; set mpi.image in the configuration");
                None
            }
        }
    }

    /// mpi-operator's work, under mpi-operator's own Lease, so that two operators, ours or upstream's, are never at work together.
    async fn reconcile_mpijobs(
        &self,
        metrics: &Arc<Registry>,
        jobs: &Arc<JobNumbers>,
        health: &Arc<Health>,
        stop: CancellationToken,
    ) {
        let controllers = self.controllers.of_mpi();
        if controllers.is_empty() {
            return;
        }
        let Mpi { gang_scheduling, cluster_domain, image, lock_namespace, profile } = &self.configuration.mpi;
        let image = match image.as_str() {
            "" => self.own_image().await,
            image => Some(image.to_owned()),
        };
        let settings = mpijob::Settings {
            gang: GangScheduler::of(gang_scheduling),
            cluster_domain: Some(cluster_domain.clone()).filter(|domain| !domain.is_empty()),
            image,
            profile: *profile,
        };
        let around = Surroundings { mpi: settings, ..Surroundings::default() };
        let options = Options {
            metrics: Some(metrics.clone()),
            limit: self.limit(),
            namespace: self.watch_namespace.clone(),
            slim: Some(slim_of_mpi),
            packs: Some(is_many),
            witness: Some(numbers::witness(metrics, jobs)),
            ..Options::default()
        };
        let (client, numbers, health, jobs) = (self.client.clone(), metrics.clone(), health.clone(), jobs.clone());
        let work = move |stop: CancellationToken| {
            let mut driver = Driver::with(client.clone(), options.clone());
            controllers.add_to(&mut driver, &around);
            numbers::mpijobs::count(&numbers, &driver.cache());
            jobs.add("mpijobs", &driver.cache(), driver.behind());
            let health = health.clone();
            async move {
                let mut beside = JoinSet::new();
                beside.spawn(tell_troubles("mpijob-watches", driver.troubles(), health, stop.clone()));
                driver.run(stop).await;
                beside.shutdown().await;
            }
        };
        let election = Election {
            namespace: lock_namespace.clone(),
            name: LEASE.to_owned(),
            identity: self.identity.clone(),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            retry: Duration::from_secs(3),
        };
        let numbers = metrics.clone();
        let changed = move |leads: bool| numbers.set(&MPIJOBS_LEADS, &[], f64::from(u8::from(leads)));
        changed(false);
        Elector::new(self.client.clone(), election).run(stop, changed, work).await;
    }

    /// Trainer's work; without an election, always.
    async fn reconcile_trainjobs(
        &self,
        around: Surroundings,
        metrics: &Arc<Registry>,
        jobs: &Arc<JobNumbers>,
        health: &Arc<Health>,
        stop: CancellationToken,
    ) {
        let controllers = self.controllers.without_mpi();
        if controllers.is_empty() {
            return;
        }
        let mut workers: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (kind, controller) in KINDS {
            let asked = self.configuration.controller.group_kind_concurrency.get(kind);
            if let Some(count) = asked.and_then(|count| usize::try_from(*count).ok()) {
                workers.insert(controller, count);
            }
        }
        let options = Options {
            metrics: Some(metrics.clone()),
            limit: self.limit(),
            namespace: self.watch_namespace.clone(),
            workers,
            slim: Some(slim),
            packs: Some(is_many),
            selects: Some(selected),
            source: None,
            witness: Some(numbers::witness(metrics, jobs)),
        };
        let client = self.client.clone();
        let election = self.configuration.leader_election.as_ref().filter(|election| election.leader_elect);
        let lease = health_events::lease(election, &self.namespace);
        let (numbers, health, jobs) = (metrics.clone(), health.clone(), jobs.clone());
        let runtimes = self.runtimes.clone();
        let work = move |stop: CancellationToken| {
            let mut driver = Driver::with(client.clone(), options.clone());
            controllers.add_to(&mut driver, &around);
            numbers::trainjobs::count(&numbers, &driver.cache());
            jobs.add("trainjobs", &driver.cache(), driver.behind());
            let (health, lease, client, runtimes) = (health.clone(), lease.clone(), client.clone(), runtimes.clone());
            async move {
                let mut beside = JoinSet::new();
                beside.spawn(tell_troubles("watches", driver.troubles(), health.clone(), stop.clone()));
                beside.spawn(health_events::tell(client.clone(), driver.events(), lease, health.clone()));
                if !runtimes.is_empty() {
                    beside.spawn(Runtimes { client, wanted: runtimes, health }.run(stop.clone()));
                }
                driver.run(stop).await;
                beside.shutdown().await;
            }
        };
        let Some(election) = election else {
            return work(stop).await;
        };
        match Election::new(election, &self.namespace, self.identity.clone()) {
            Ok(election) => {
                let (numbers, lease) = (metrics.clone(), election.name.clone());
                let changed = move |leads: bool| {
                    numbers.set(&LEADS, &[("name", &lease)], f64::from(u8::from(leads)));
                };
                changed(false);
                Elector::new(self.client.clone(), election).run(stop, changed, work).await;
            }
            // checked when the configuration was read
            Err((field, why)) => tracing::error!(field, why, "bug: no leader can be elected"),
        }
    }
}

/// Binds an address as Go writes it, where `shared` together with other replicas; `None` where it says nowhere.
async fn listen(what: &'static str, address: &str, shared: bool) -> Result<Option<TcpListener>, OperatorError> {
    let wrong = |why: &str| OperatorError::Setting { field: format!("address for {what}"), why: why.to_owned() };
    let Some(address) = listen_address(address).map_err(wrong)? else { return Ok(None) };
    let failed = |source| OperatorError::Listen { what, address: address.clone(), source };
    let resolved = tokio::net::lookup_host(&address).await.map_err(failed)?.next();
    let listener = bind(resolved.ok_or_else(|| wrong("names no address"))?, shared).await.map_err(failed)?;
    tracing::info!(address, what, "listening");
    Ok(Some(listener))
}

/// All interfaces are those of both protocols; of one, where the machine lacks the other.
async fn bind(address: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    let bound = async |address| if shared { shared_listener(address) } else { TcpListener::bind(address).await };
    match bound(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            bound(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()))).await
        }
        bound => bound,
    }
}

/// Keeps telling which kinds the leader cannot watch.
async fn tell_troubles(
    part: &'static str,
    troubles: impl Fn() -> BTreeMap<Gvk, String>,
    health: Arc<Health>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        // PodGroups are for clusters that have a gang scheduler
        let serious = |gvk: &Gvk| gvk.kind != "PodGroup";
        let lines: Vec<String> = troubles()
            .iter()
            .filter(|(gvk, _)| serious(gvk))
            .map(|(gvk, why)| format!("{}: {why}", gvk.kind))
            .collect();
        if lines.is_empty() {
            health.set(part, Level::Works, "all kinds are watched");
        } else {
            health.set(part, Level::Lacks, lines.join("; "));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
            () = stop.cancelled() => {}
        }
    }
}
