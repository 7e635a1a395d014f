//! Connections to an API server: chooses the local control plane or a cluster from flags and environment, and reads objects through it.

use crate::choice::Choice;
use crate::codes::ErrorCode;
use crate::error::{ClientError, is_not_served};
use crate::home::Home;
use crate::kind::Kind;
use crate::page;
use crate::warned;
use api::job_kind::JobKind;
use api::near::near;
use api::shell::quoted;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Api, Client, Config};
use objects::take::Take;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How many objects a list has at most, a page of it.
const PAGE: u32 = 500;
/// How the command line names itself to API servers; what is before the slash is the field manager of its writes.
const USER_AGENT: &str = concat!("trainyard/", env!("CARGO_PKG_VERSION"));

/// A client and the namespace to work in.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    /// The local control plane: pods are processes of this machine and see its files.
    pub local: bool,
    /// Whose processes those are; `None` elsewhere.
    pub pods_user: Option<u32>,
    /// The directory of the local control plane.
    pub home: Option<PathBuf>,
    /// The server's URL.
    pub server: String,
    /// The kubeconfig's context.
    pub context: String,
    /// The flags that lead here again, with a blank before them, for commands that we propose; empty without any.
    pub flags: String,
    /// The same for kubectl, without the namespace.
    pub kubectl_flags: String,
}

/// A server as a program knows it that asks it in the name of others.
#[derive(Clone, Debug, Default)]
pub struct ApiServer {
    pub url: String,
    /// PEM; without it, the authorities of this machine count.
    pub authority: Option<String>,
    /// The directory of a local control plane; `None` elsewhere.
    pub home: Option<PathBuf>,
    /// The flags that lead there, with a blank before them; empty where none are needed.
    pub flags: String,
    pub kubectl_flags: String,
}

/// Where to find the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The local control plane of this home.
    Home(PathBuf),
    /// What this kubeconfig says.
    File(PathBuf),
    /// What the files of `$KUBECONFIG` say together.
    Environment,
}

/// What the choice of a server depends on.
struct Given<'a> {
    kubeconfig: Option<&'a Path>,
    context: bool,
    /// Of `--home` or `$TRAINYARD_HOME`.
    home: Option<&'a Path>,
    /// `$KUBECONFIG`, where it is set and not empty.
    environment: Option<&'a OsStr>,
    /// Where the local control plane is when nobody says, and whether it runs.
    default_home: &'a Path,
    default_runs: bool,
    /// `~/.kube/config`, where it exists.
    kube: Option<&'a Path>,
    /// kubectl or oc has called, which would go to that cluster.
    plugin: bool,
}

impl Given<'_> {
    /// The first that applies: `--kubeconfig` or `--context`; `--home` or `$TRAINYARD_HOME`; `$KUBECONFIG`; the local control
    /// plane that runs; `~/.kube/config`; the local control plane. docs/cli.md has the same list. As a plugin the last but one goes
    /// before the one before it: kubectl would.
    fn choose(&self) -> Place {
        if let Some(file) = self.kubeconfig {
            return Place::File(file.to_owned());
        }
        if let (false, Some(home)) = (self.context, self.home) {
            return Place::Home(home.to_owned());
        }
        if let Some(paths) = self.environment {
            let mut files = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
            return match (files.next(), files.next()) {
                (Some(file), None) => Place::File(file),
                _ => Place::Environment,
            };
        }
        match self.kube {
            Some(file) if self.context || self.plugin || !self.default_runs => Place::File(file.to_owned()),
            // without any kubeconfig, reading the one of the local control plane tells which contexts there are
            Some(_) | None => Place::Home(self.default_home.to_owned()),
        }
    }
}

fn choose(choice: &Choice) -> Result<Place, ClientError> {
    let default_home = Home::find(None);
    let environment = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let kube = std::env::home_dir().map(|home| home.join(".kube/config")).filter(|path| path.is_file());
    let home = choice.home.as_deref().map(|home| Home::find(Some(home))).transpose()?;
    // a command line that names a server needs no home directory
    let unused = PathBuf::new();
    let default_home = match &default_home {
        Ok(home) => Some(home),
        Err(_) if choice.kubeconfig.is_some() || home.is_some() || environment.is_some() => None,
        Err(_) => return Err(default_home.expect_err("it is one")),
    };
    let given = Given {
        kubeconfig: choice.kubeconfig.as_deref(),
        context: choice.context.is_some(),
        home: home.as_ref().map(Home::root),
        environment: environment.as_deref(),
        default_home: default_home.map_or(unused.as_path(), Home::root),
        default_runs: default_home.is_some_and(|home| home.running().is_some()),
        kube: kube.as_deref(),
        plugin: choice.plugin,
    };
    let place = given.choose();
    Ok(match &place {
        // `export KUBECONFIG=$(trainyard kubeconfig)` is the local control plane, too
        Place::File(file) => match Home::of_kubeconfig(file) {
            Some(home) => Place::Home(home.root().to_owned()),
            None => place,
        },
        Place::Home(_) | Place::Environment => place,
    })
}

/// Where pods would run, before anything is started for them.
#[derive(Clone, Debug)]
pub enum Where {
    /// On this machine, whose control plane runs.
    Here,
    /// On this machine, whose control plane has to be started.
    Stopped(Home),
    /// On a cluster.
    Elsewhere,
}

/// Where flags and environment lead to.
pub fn place(choice: &Choice) -> Result<Where, ClientError> {
    Ok(match choose(choice)? {
        Place::Home(root) => {
            let home = Home::at(root);
            if home.running().is_some() { Where::Here } else { Where::Stopped(home) }
        }
        Place::File(_) | Place::Environment => Where::Elsewhere,
    })
}

impl Cluster {
    /// The cluster that flags and environment lead to; a local control plane must be running.
    pub async fn existing(choice: &Choice) -> Result<Self, ClientError> {
        match choose(choice)? {
            Place::Home(root) => {
                let home = Home::at(root);
                if home.running().is_none() {
                    return Err(ClientError::NotRunning { home: home.root().to_owned() });
                }
                Self::local(choice, &home).await
            }
            place => Self::remote(choice, place).await,
        }
    }

    async fn local(choice: &Choice, home: &Home) -> Result<Self, ClientError> {
        let path = home.kubeconfig();
        let kubeconfig = Kubeconfig::read_from(&path)
            .map_err(|source| ClientError::Kubeconfig { path: path.clone(), source: Box::new(source) })?;
        let user = std::os::unix::fs::MetadataExt::uid;
        let pods_user = std::fs::metadata(home.lock()).ok().as_ref().map(user);
        Ok(Self { pods_user, ..Self::from_kubeconfig(choice, kubeconfig, path, true).await? })
    }

    async fn remote(choice: &Choice, place: Place) -> Result<Self, ClientError> {
        let (path, kubeconfig) = match place {
            Place::File(path) => (path.clone(), Kubeconfig::read_from(&path)),
            Place::Home(_) | Place::Environment => ("$KUBECONFIG".into(), Kubeconfig::read()),
        };
        let kubeconfig =
            kubeconfig.map_err(|source| ClientError::Kubeconfig { path: path.clone(), source: Box::new(source) })?;
        Self::from_kubeconfig(choice, kubeconfig, path, false).await
    }

    /// A server, asked as the user of a token. Commands that are proposed lead there by `flags` and `kubectl_flags`.
    ///
    /// Errors: `Kubeconfig`, for an address or certificates that are none.
    pub async fn of_token(server: &ApiServer, token: &str) -> Result<Self, ClientError> {
        let named = |kind: &str, value: Value| json!([{"name": "server", kind: value}]);
        let authority = server.authority.as_ref().map(|authority| STANDARD.encode(authority));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "server",
            "clusters": named("cluster", json!({"server": server.url, "certificate-authority-data": authority})),
            "users": named("user", json!({"token": token})),
            "contexts": named("context", json!({"cluster": "server", "user": "server"})),
        });
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).expect("invariant: it has a kubeconfig's form");
        let path = PathBuf::from(&server.url);
        let local = server.home.is_some();
        let made = Self::from_kubeconfig(&Choice::default(), kubeconfig, path, local).await?;
        let ApiServer { home, flags, kubectl_flags, .. } = server.clone();
        Ok(Self { home, flags, kubectl_flags, ..made })
    }

    async fn from_kubeconfig(
        choice: &Choice,
        kubeconfig: Kubeconfig,
        path: PathBuf,
        local: bool,
    ) -> Result<Self, ClientError> {
        let context = context(choice, &kubeconfig, &path)?;
        let home = path.parent().filter(|_| local).map(Path::to_owned);
        let mut kubectl_flags = String::new();
        if local || choice.kubeconfig.is_some() {
            kubectl_flags += &format!(" --kubeconfig {}", path.display());
        }
        if !local {
            kubectl_flags += &format!(" --context {context}");
        }
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|source| ClientError::Kubeconfig { path, source: Box::new(source) })?;
        // API servers take the field manager of a write from it: without one, `suspended by unknown`
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
        let namespace = choice.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let flags = flags(choice);
        let client = ClientBuilder::try_from(config)?.with_layer(&warned::layer(choice.warn)).build();
        Ok(Self { client, namespace, local, pods_user: None, home, server, context, flags, kubectl_flags })
    }

    /// The objects of a kind in our namespace.
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// The objects of a kind everywhere (and of cluster-scoped kinds).
    pub fn api_all(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    /// One object; `None` where it does not exist.
    pub async fn find(&self, kind: Kind, name: &str) -> Result<Option<Value>, ClientError> {
        found(self.api(kind).get(name).await)
    }

    /// One object of a cluster-scoped kind; `None` where it does not exist.
    pub async fn find_shared(&self, kind: Kind, name: &str) -> Result<Option<Value>, ClientError> {
        found(self.api_all(kind).get(name).await)
    }

    /// One TrainJob, or the error that says it is not there.
    pub async fn job(&self, name: &str) -> Result<Value, ClientError> {
        let found = self.find(Kind::TrainJob, name).await?;
        match found {
            Some(job) => Ok(job),
            None => Err(self.not_found(Kind::TrainJob, "TrainJob", name).await),
        }
    }

    /// Writes whether a job is suspended; returns the job as it is then.
    pub async fn suspend(&self, kind: JobKind, job: &str, suspend: bool) -> Result<Value, ClientError> {
        let spec = match kind {
            JobKind::Train | JobKind::Search => json!({"suspend": suspend}),
            JobKind::Mpi => json!({"runPolicy": {"suspend": suspend}}),
        };
        let body = Patch::Merge(json!({"spec": spec}));
        Ok(value(&self.api(kind.into()).patch(job, &PatchParams::default(), &body).await?))
    }

    /// The error that says that an object is not there, and which may have been meant.
    pub async fn not_found(&self, kind: Kind, called: &'static str, name: &str) -> ClientError {
        let near = match kind {
            Kind::TrainJob => match self.of_other_kind(name).await {
                Some(other) => other,
                None => self.like(kind, name).await,
            },
            kind => self.like(kind, name).await,
        };
        ClientError::NotFound { kind: called, name: name.to_owned(), namespace: self.namespace.clone(), near }
    }

    /// Names the job of another kind that has this name. Users without the right to look get `None`.
    async fn of_other_kind(&self, name: &str) -> Option<String> {
        for kind in [JobKind::Mpi, JobKind::Search] {
            if matches!(self.find(kind.into(), name).await, Ok(Some(_))) {
                let article = if kind == JobKind::Mpi { "an MPIJob" } else { "a search" };
                return Some(format!("there is {article} of this name: {}", kind.short_name(name)));
            }
        }
        None
    }

    /// The object with a name like it here, else the namespaces that have one of this name. Who may not list them hears of none.
    async fn like(&self, kind: Kind, name: &str) -> String {
        let here = self.names(kind).await.unwrap_or_default();
        if let Some(meant) = near(name, here.iter().map(String::as_str)) {
            return format!("did you mean {meant:?}?");
        }
        let parameters = ListParams::default().fields(&format!("metadata.name={name}"));
        let Ok(elsewhere) = self.api_all(kind).list_metadata(&parameters).await else { return String::new() };
        let namespaces = elsewhere.items.into_iter().filter_map(|object| object.metadata.namespace);
        match namespaces.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            namespaces => format!("there is one in namespace {}: name it with -n", namespaces.join(", ")),
        }
    }

    /// Names of the objects of a kind in our namespace, or of a cluster-scoped kind; the first 500.
    pub async fn names(&self, kind: Kind) -> Result<Vec<String>, ClientError> {
        let api = if kind.is_shared() { self.api_all(kind) } else { self.api(kind) };
        let list = api.list_metadata(&ListParams::default().limit(PAGE)).await?;
        Ok(list.items.into_iter().filter_map(|object| object.metadata.name).collect())
    }

    /// All objects of a kind in our namespace with these labels (empty: all).
    pub async fn list(&self, kind: Kind, labels: &str) -> Result<Vec<Value>, ClientError> {
        let parameters = ListParams::default().labels(labels);
        Ok(self.api(kind).list(&parameters).await?.items.iter().map(value).collect())
    }

    /// Shows the objects of a kind, of our namespace or of all, one by one: of thousands only a page is in memory, and of each what
    /// `take` says.
    pub async fn each(
        &self,
        kind: Kind,
        everywhere: bool,
        selected: ListParams,
        take: fn(&str) -> Take,
        mut see: impl FnMut(Value),
    ) -> Result<(), ClientError> {
        let api = if everywhere { self.api_all(kind) } else { self.api(kind) };
        let pages = Request::new(api.resource_url());
        let mut parameters = selected.limit(PAGE);
        loop {
            let request = pages.list(&parameters).map_err(kube::Error::BuildRequest)?;
            let text = self.client.request_text(request).await?;
            let page = page::read(&text, take).map_err(kube::Error::SerdeError)?;
            page.items.into_iter().for_each(&mut see);
            match page.rest {
                Some(next) => parameters = parameters.continue_token(&next),
                None => return Ok(()),
            }
        }
    }

    /// The pods of a job.
    pub async fn pods(&self, job: &str) -> Result<Vec<Value>, ClientError> {
        self.list(Kind::Pod, &pods_of(job)).await
    }
}

/// The name of the context to use; it must be one of the kubeconfig's.
fn context(choice: &Choice, kubeconfig: &Kubeconfig, path: &Path) -> Result<String, ClientError> {
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let there = if names.is_empty() { "it has none".to_owned() } else { format!("it has: {}", names.join(", ")) };
    let path = path.display();
    match choice.context.as_deref().or(kubeconfig.current_context.as_deref()).filter(|name| !name.is_empty()) {
        Some(name) if names.contains(&name) => Ok(name.to_owned()),
        Some(name) => Err(ClientError::Usage(
            ErrorCode::ContextMissing,
            format!("kubeconfig {path} has no context {name:?}; {there}"),
        )),
        None => Err(ClientError::Usage(
            ErrorCode::ContextMissing,
            format!("kubeconfig {path} has no current context; choose one: --context NAME; {there}"),
        )),
    }
}

/// The flags that name a cluster and namespace, as they were given.
fn flags(choice: &Choice) -> String {
    let mut flags = String::new();
    let mut add = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            flags += &format!(" {flag} {}", quoted(&value));
        }
    };
    // what the environment says, it says to the next command, too
    let home =
        choice.home.as_ref().filter(|home| std::env::var_os("TRAINYARD_HOME").as_deref() != Some(home.as_os_str()));
    add("--home", home.map(|path| path.display().to_string()));
    add("--kubeconfig", choice.kubeconfig.as_ref().map(|path| path.display().to_string()));
    add("--context", choice.context.clone());
    add("-n", choice.namespace.clone());
    flags
}

/// An object, `None` where it does not exist. That its kind does not exist is an error, which kube's `get_opt` would swallow.
fn found(answer: Result<DynamicObject, kube::Error>) -> Result<Option<Value>, ClientError> {
    match answer {
        Ok(object) => Ok(Some(value(&object))),
        Err(kube::Error::Api(status)) if status.code == 404 && !is_not_served(&status) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The label selector of a job's pods.
pub fn pods_of(job: &str) -> String {
    format!("jobset.sigs.k8s.io/jobset-name={job}")
}

/// An object as JSON.
pub fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("objects from the API are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_chosen_in_the_order_that_the_docs_say() {
        let nothing = Given {
            kubeconfig: None,
            context: false,
            home: None,
            environment: None,
            default_home: Path::new("/default"),
            default_runs: false,
            kube: None,
            plugin: false,
        };
        let file = |path: &str| Place::File(path.into());
        let home = |path: &str| Place::Home(path.into());
        let (flag, own, kube) = (Some(Path::new("/flag")), Some(Path::new("/home")), Some(Path::new("/kube")));
        let environment = Some(OsStr::new("/env"));
        let cases = [
            (Given { kubeconfig: flag, home: own, environment, kube, ..nothing }, file("/flag")),
            (Given { context: true, home: own, environment, kube, ..nothing }, file("/env")),
            (Given { context: true, home: own, kube, default_runs: true, ..nothing }, file("/kube")),
            (Given { context: true, ..nothing }, home("/default")),
            (Given { home: own, environment, kube, ..nothing }, home("/home")),
            (Given { environment, kube, default_runs: true, ..nothing }, file("/env")),
            (Given { environment: Some(OsStr::new("/a:/b")), ..nothing }, Place::Environment),
            (Given { environment: Some(OsStr::new(":/a:")), ..nothing }, file("/a")),
            (Given { kube, default_runs: true, ..nothing }, home("/default")),
            (Given { kube, default_runs: true, plugin: true, ..nothing }, file("/kube")),
            (Given { default_runs: true, plugin: true, ..nothing }, home("/default")),
            (Given { kube, ..nothing }, file("/kube")),
            (nothing, home("/default")),
        ];
        for (at, (given, place)) in cases.into_iter().enumerate() {
            assert_eq!(given.choose(), place, "case {at}");
        }
    }

    #[test]
    fn a_context_that_is_not_there_is_named_with_those_that_are() {
        let text = "{contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: c, user: u}}]}";
        let kubeconfig = Kubeconfig::from_yaml(text).expect("it is one");
        let told = |name: Option<&str>| {
            let choice = Choice { context: name.map(str::to_owned), ..Choice::default() };
            context(&choice, &kubeconfig, Path::new("/k")).map_err(|error| error.to_string())
        };
        assert_eq!(told(Some("b")), Ok("b".to_owned()));
        let wrong = told(Some("c"));
        assert_eq!(wrong, Err("kubeconfig /k has no context \"c\"; it has: a, b".to_owned()));
        assert!(told(None).unwrap_err().contains("has no current context"));
    }

    #[test]
    fn proposed_commands_lead_to_the_same_cluster() {
        let choice = Choice { context: Some("x".to_owned()), namespace: Some("team".to_owned()), ..Choice::default() };
        assert_eq!(flags(&choice), " --context x -n team");
    }
}
