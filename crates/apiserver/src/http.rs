//! The asynchronous shell of the API server: takes HTTP requests and returns the answers of the core.

mod answer;
mod authorize;
mod backup;
mod damaged;
mod discard;
mod discovery;
mod halves;
mod handle;
mod health;
mod lines;
mod live;
mod metrics;
pub(crate) mod node_life;
mod patient;
mod pods;
mod proxy;
mod room;
mod scale;
mod serve;
mod tunnel;
mod upgrade;
mod verbs;
mod watch;
mod watch_socket;

pub use answer::Body;
pub(crate) use handle::verb_of;
pub use health::Check;
pub use metrics::MoreNumbers;
pub use serve::{ServeError, tls_config};

use crate::auth::Authenticator;
use crate::crd::Definitions;
use crate::delegate::Delegate;
use crate::registry::{Catalog, Core, RealWorld, Served, Target};
use crate::usage::{self, Usage};
use crate::wire::ObjectCodec;
use resource::User;
use resource::admission::Admission;
use resource::definitions::DEFINITIONS;
use resource::{ClockAndDice, Kinds};
use serde_json::Value;
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use store::{OpenError, Store};
use streams::{PodStreams, Tunnels};

/// How long an event is kept after its last write: upstream's default of `--event-ttl`.
pub const EVENTS_KEPT: Duration = Duration::from_secs(3600);
/// Between looks for events that have expired.
const EVENTS_LOOK: Duration = Duration::from_secs(60);

/// What a server is made of.
pub struct Options {
    /// What is served beside custom resources.
    pub kinds: Kinds,
    /// SQLite file; `None`: memory.
    pub database: Option<PathBuf>,
    pub plugins: Vec<Arc<dyn Admission>>,
    /// Logs and shells of pods; `None`: there is no node agent.
    pub streams: Option<Arc<dyn PodStreams>>,
    /// Where agents of other machines dial in; `None`: none may.
    pub tunnels: Option<Arc<dyn Tunnels>>,
    /// What pods and nodes use (`metrics.k8s.io`); `None`: nobody measures, and the group is not served.
    pub usage: Option<Arc<dyn Usage>>,
    /// Groups that others answer for.
    pub delegates: Vec<Arc<dyn Delegate>>,
    pub authenticator: Authenticator,
    pub world: Arc<dyn ClockAndDice>,
    /// Where requests over sockets are recorded.
    pub audit: Option<crate::audit::Log>,
    /// Objects that say where the server listens (the Service `default/kubernetes` with its endpoints): their addresses and ports are
    /// brought up to date at each start.
    pub own: Vec<Value>,
    /// Host names beside loopback ones that requests may be addressed to.
    pub hosts: Vec<String>,
    /// What `/readyz` and `/livez` look at beside the server itself.
    pub checks: Vec<Arc<dyn Check>>,
    /// What `/metrics` has beside the server's own numbers.
    pub numbers: Option<MoreNumbers>,
}

impl Options {
    /// A server over memory, of these kinds.
    pub fn new(kinds: Kinds) -> Self {
        Self {
            kinds,
            database: None,
            plugins: Vec::new(),
            streams: None,
            tunnels: None,
            usage: None,
            delegates: Vec::new(),
            authenticator: Authenticator::default(),
            world: Arc::new(RealWorld),
            audit: None,
            own: Vec::new(),
            hosts: Vec::new(),
            checks: Vec::new(),
            numbers: None,
        }
    }
}

/// The manager of what the server itself makes, by the name that clients know it under.
const SERVER: &str = "kube-apiserver";

/// The API server.
pub struct Server {
    pub core: Arc<Core>,
    pub(crate) streams: Option<Arc<dyn PodStreams>>,
    tunnels: Option<Arc<dyn Tunnels>>,
    delegates: Vec<Arc<dyn Delegate>>,
    audit: Option<crate::audit::Log>,
    pub(crate) hosts: Vec<String>,
    definitions: Arc<Mutex<Definitions>>,
    pub(crate) openapi: crate::openapi::Cache,
    lines: lines::Lines,
    checks: health::Checks,
    /// Where a backup is made before it is sent, one after the other.
    backups: Option<(PathBuf, tokio::sync::Mutex<()>)>,
    pub(crate) metrics: Arc<metrics::Metrics>,
    /// For the bodies of requests and answers that travel over sockets.
    room: room::Room,
    /// The server is shutting down.
    pub(crate) stops: std::sync::atomic::AtomicBool,
}

impl Server {
    /// Opens the store and serves what it holds. Objects that every cluster has are made if they are missing.
    ///
    /// Blocks for as long as that takes (milliseconds).
    ///
    /// # Errors
    /// The database cannot be opened.
    pub fn new(options: Options) -> Result<Arc<Self>, OpenError> {
        let mut catalog = Catalog::default();
        let mut buckets = Vec::new();
        let Kinds { resources, objects, access, quotas } = options.kinds;
        for resource in resources {
            let served = Served::builtin(resource);
            buckets.push(served.bucket.clone());
            catalog.add(served);
        }
        for served in options.usage.iter().flat_map(usage::served) {
            catalog.add(served);
        }
        let codec = ObjectCodec::new(buckets);
        let store = match &options.database {
            Some(path) => Store::open(path, codec)?,
            None => Store::memory(codec),
        };
        let backups = options.database.map(|path| (path.with_added_extension("backup"), tokio::sync::Mutex::default()));
        let authenticator = Arc::new(options.authenticator);
        let core = Arc::new(Core::new(store, catalog, options.plugins, options.world, authenticator, access, quotas));
        let metrics = Arc::new(metrics::Metrics::new(core.store.clone(), options.numbers));
        let server = Arc::new(Self {
            core,
            checks: options.checks,
            backups,
            metrics,
            room: room::Room::default(),
            stops: std::sync::atomic::AtomicBool::new(false),
            streams: options.streams,
            tunnels: options.tunnels,
            delegates: options.delegates,
            audit: options.audit,
            hosts: options.hosts,
            definitions: Arc::default(),
            openapi: crate::openapi::Cache::default(),
            lines: lines::Lines::default(),
        });
        let new = server.core.store.revision() == 0;
        server.bootstrap(objects.into_iter().chain(options.usage.is_some().then(usage::role)));
        server.announce(options.own);
        server.sync_definitions();
        if new {
            // Nobody can have seen what came before.
            server.core.store.compact();
        }
        Ok(server)
    }

    /// Makes objects that are missing.
    fn bootstrap(&self, objects: impl IntoIterator<Item = Value>) {
        use store::{Expect, Key, Op, Txn};
        let catalog = self.core.catalog();
        let now = crate::registry::time(self.core.world.now());
        let mut txn = Txn::default();
        for mut object in objects {
            let Some(served) = catalog.kind_of(&object) else {
                let kind = api::object::text(&object, "kind");
                tracing::error!(kind, "an object of an unknown kind cannot be made");
                continue;
            };
            let key = Key::new(api::object::meta(&object, "namespace"), api::object::meta(&object, "name"));
            if self.core.store.get(&served.bucket, &key).is_some() {
                continue;
            }
            served.schema().default(&mut object);
            served.resource.strategy.default(&mut object);
            // whoever applies such an object later meets the server as its manager
            served.as_writer(SERVER, "", |writer| {
                merge::apply::track_update(None, &mut object, writer, served.schemas(), self.core.world.now());
            });
            let strategy = &*served.resource.strategy;
            let target = Target {
                served: served.clone(),
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                subresource: String::new(),
            };
            self.core.with_context(&User::admin(), &target, false, |cx| strategy.prepare_create(cx, &mut object));
            object["metadata"]["uid"] = self.core.world.uid().into();
            object["metadata"]["creationTimestamp"] = now.clone().into();
            if served.resource.facts.has_generation {
                object["metadata"]["generation"] = 1.into();
            }
            txn.ops.push(Op::Put { bucket: served.bucket.clone(), key, value: object, expect: Expect::Absent });
        }
        if !txn.ops.is_empty()
            && let Err(error) = self.core.store.submit(txn).wait()
        {
            tracing::error!(%error, "the objects that every cluster has cannot be made");
        }
    }

    /// Keeps the objects by which clients find the server.
    fn announce(&self, wanted: Vec<Value>) {
        use store::{Expect, Key, Op, Txn};
        self.bootstrap(wanted.clone());
        let catalog = self.core.catalog();
        let mut txn = Txn::default();
        for object in wanted {
            let Some(bucket) = catalog.kind_of(&object).map(|served| served.bucket.clone()) else { continue };
            let key = Key::new(api::object::meta(&object, "namespace"), api::object::meta(&object, "name"));
            let Some(entry) = self.core.store.get(&bucket, &key) else { continue };
            let mut kept = (*entry.value()).clone();
            // the port is another after each start
            for field in ["subsets", "endpoints", "ports"] {
                if let Some(value) = object.get(field) {
                    kept[field] = value.clone();
                }
            }
            if let Some(ports) = object["spec"].get("ports") {
                kept["spec"]["ports"] = ports.clone();
            }
            if kept != *entry.value() {
                txn.ops.push(Op::Put { bucket, key, value: kept, expect: Expect::Revision(entry.revision) });
            }
        }
        if !txn.ops.is_empty()
            && let Err(error) = self.core.store.submit(txn).wait()
        {
            tracing::error!(%error, "the objects that say where the server listens cannot be brought up to date");
        }
    }

    /// Brings what is served in step with the stored definitions. Blocks until its writes are durable.
    pub fn sync_definitions(&self) {
        let wanted = self.core.store.revision();
        let mut definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        // many who wait for a look are served by one
        if definitions.settled >= wanted {
            return;
        }
        // Each look can make another one due; the bound is for definitions whose objects do not go away.
        for _ in 0..4 {
            let seen = self.core.store.revision();
            if !definitions.step(&self.core) {
                definitions.settled = seen;
                break;
            }
        }
    }

    /// Has what is served follow a definition before whoever wrote it is answered.
    pub(crate) async fn serve_definitions(&self) {
        self.core.apart(true, || self.sync_definitions()).await;
    }

    /// Follows the definitions for as long as the server lives. To be spawned once.
    pub async fn follow_definitions(self: Arc<Self>) {
        loop {
            let from = self.core.store.revision();
            let server = self.clone();
            // Writing waits for the disk.
            if tokio::task::spawn_blocking(move || server.sync_definitions()).await.is_err() {
                tracing::error!("looking at the custom resource definitions panicked");
            }
            let Ok(mut watcher) = self.core.store.watch(DEFINITIONS, from) else { continue };
            let terminating = {
                let snapshot = self.core.store.snapshot(DEFINITIONS);
                snapshot.iter(None, None).any(|e| api::object::is_terminating(&e.object.glance()))
            };
            // Objects with finalizers of their own go when they go.
            let patience = if terminating { 200 } else { 60_000 };
            drop(tokio::time::timeout(Duration::from_millis(patience), watcher.next()).await);
        }
    }

    /// Lets events expire for as long as the server lives. To be spawned once.
    pub async fn expire_events(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVENTS_LOOK).await;
            if let Err(error) = self.core.expire_events(EVENTS_KEPT).await {
                tracing::warn!(%error, "events that have expired cannot be deleted");
            }
        }
    }

    /// Tells the store that a while is over ([`store::Store::rest`]). To be called every few seconds.
    pub fn rest(&self) {
        self.core.store.rest();
    }

    /// Has the store compress some `bytes` of its old objects; whether there may be more ([`store::Store::compress`]).
    pub fn compress(&self, bytes: usize) -> bool {
        self.core.store.compress(bytes)
    }

    /// The server as a service without a socket, for a client in the same process. `user`: the user of its requests.
    pub fn service(self: &Arc<Self>, user: User) -> Local {
        Local { server: self.clone(), user: Arc::new(user), agent: None }
    }
}

/// Requests of this process: no socket, no credentials.
#[derive(Clone)]
pub struct Local {
    server: Arc<Server>,
    user: Arc<User>,
    agent: Option<&'static str>,
}

impl Local {
    /// The same, as this program where a request does not say which one asks: it manages the fields that it writes.
    #[must_use]
    pub fn named(self, agent: &'static str) -> Self {
        Self { agent: Some(agent), ..self }
    }
}

impl<B> tower::Service<http::Request<B>> for Local
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let (server, user) = (self.server.clone(), self.user.clone());
        if let Some(agent) = self.agent {
            let agent = http::HeaderValue::from_static(agent);
            request.headers_mut().entry(http::header::USER_AGENT).or_insert(agent);
        }
        Box::pin(async move { Ok(server.handle(request, handle::Caller::Local((*user).clone())).await) })
    }
}
