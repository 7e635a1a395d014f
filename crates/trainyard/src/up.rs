//! `trainyard up`: store, API server, controllers and node agent in one process.

mod error;
mod listen;
mod this_node;

pub use error::UpError;
pub(crate) use this_node::keep_clock;

use crate::dashboard;
use crate::direct::Direct;
use crate::ephemeral::NoEphemeralContainers;
use crate::machines;
use crate::parts::Part;
use crate::pki::{self, PkiError};
use crate::streams::NodeStreams;
use crate::tunnels::{AllStreams, Open};
use crate::usage::NodeUsage;
use ::streams::PodStreams;
use api::config::MpiProfile;
use api::shell::quoted;
use apiserver::audit::{Bounds, Log};
use apiserver::auth::Authenticator;
use apiserver::delegate::Delegate;
use apiserver::usage::Usage;
use apiserver::{Check, Options, Server, tls_config};
use backup::refuse_unfinished;
use cli::exit;
use client::ClientError;
use client::codes::ErrorCode;
use client::home::{Home, Running};
use delegates::{Histories, OffersNow, PartsOfFiles, Places, Tallies};
use driver::metrics::Registry;
use driver::{Driver, Feed, Source};
use evidence::Evidence;
use futures::FutureExt;
use grammar::{Format, Global, KubeconfigArgs, UpArgs};
use jiff::Timestamp;
use kube::Client;
use launcher::{BySocket, Eyes, Launcher};
use listen::{bind, dashboard_at, listen, reachable, reports_to};
use memory::Work;
use node::evidence::Keep;
use operator::controllers::admission::Webhook;
use operator::embedded::admission::Plugin;
use operator::embedded::install;
use operator::numbers::{self, JobNumbers};
use operator::status_server::{Series, StatusServer};
use operator::{Controllers, Surroundings};
use outputs::{ManagedLogs, Outputs};
use resource::User;
use resource::admission::Admission;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use this_node::{agent, node_name};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long parts may take to stop.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long trees of objects stay at least once nobody looks at them, while there is room; and at most twice that.
const TREES_STAY: Duration = Duration::from_secs(2);
/// Bytes of objects that are compressed at a time, which takes a millisecond or two, and how long others have their turn then.
const COMPRESSED: usize = 1 << 20;
const COMPRESSED_EVERY: Duration = Duration::from_millis(5);
/// Of so many rests in a row in which the process was busy, objects are compressed in one.
const BUSY_MAX: u32 = 5;
/// The folder of files that launches bring along, below the home.
const FILES: &str = "files";
/// The folder of the output of managed jobs, below the home.
const OUTPUTS: &str = "managed";
/// How long the status server may take: it answers what it has begun to, then writes what it holds back.
const REPORTS_MAX: Duration = Duration::from_secs(11);

/// Refuses to begin with nothing where a database has been: an empty one would end the pods that still run, as those of no job.
fn refuse_lost_database(home: &Home) -> Result<(), UpError> {
    let (root, database) = (home.root(), home.root().join("store.db"));
    let has = |path: PathBuf| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    let is_there = std::fs::metadata(&database).is_ok_and(|file| file.len() > 0);
    if is_there {
        return Ok(());
    }
    let left =
        ["store.db-history", "history/jobs", OUTPUTS, "node/pods"].into_iter().filter(|name| has(root.join(name)));
    let left: Vec<String> = left.map(|name| root.join(name).display().to_string()).collect();
    if left.is_empty() {
        return Ok(());
    }
    let (database, left) = (database.display(), left.join(", "));
    let why = format!(
        "the database {database} is missing or empty, but files of earlier jobs exist: {left}; an empty one would end their pods and remove \
         their output; put it back, or restore a backup: trainyard restore FILE --force; to begin anew, remove those folders"
    );
    Err(UpError::Usage(ErrorCode::DatabaseUnopened, why))
}

/// Starts the control plane and runs it until SIGTERM or Ctrl-C; with `--detach`, starts it in the background instead.
///
/// Guarantees: one control plane per home, by a lock that the kernel frees with the process. What it acknowledged is
/// there after any crash. Pods do not need it: they go on when it stops, and the next start takes them over.
pub async fn up(args: &UpArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global.home.as_deref())?;
    let controllers: Controllers = args
        .controllers
        .parse()
        .map_err(|error| UpError::Usage(ErrorCode::FlagRefused, format!("--controllers: {error}")))?;
    let controllers = if args.no_node { controllers.without_nodes() } else { controllers };
    if args.detach {
        let running = match cli::daemon::answering(&home).await {
            Some(running) => running,
            None => cli::daemon::start(&home, &child_flags(args), args.token.as_deref())?,
        };
        announce(&running, args.output.output, None);
        return Ok(exit::OK);
    }
    if args.own_session {
        let _ = nix::unistd::setsid(); // fails only for one started by hand, as the leader of a group
    }
    home.create()?;
    let Some(lock) = home.try_lock()? else {
        let by = home
            .wait_running()
            .map_or(String::new(), |running| format!(" (process {}, {})", running.pid, running.server));
        return Err(UpError::Usage(
            ErrorCode::AlreadyRunning,
            format!("a control plane is already running under {}{by}", home.root().display()),
        ));
    };
    let started = Instant::now();
    // of a control plane that was killed
    let _ = std::fs::remove_file(home.running_file());
    refuse_unfinished(&home)?;
    refuse_lost_database(&home)?;
    home.close_to_others();
    log_to_stderr(global.verbose);
    // every pod costs a few file descriptors
    let _ = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard));

    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let node_data = home.root().join("node");
    let node = match args.no_node {
        true => None,
        false => Some(node_name(&node_data)?),
    };
    let machine = node.clone().map(|name| tokio::spawn(this_node::config(node_data.clone(), name)));
    let (listener, address) = listen(&args.listen, &home).await?;
    let reports = match reports_to(args, &controllers) {
        Some(address) => Some(bind(address, &home.root().join("status-port")).await?),
        None => None,
    };
    let pages = match dashboard_at(args)? {
        Some(address) => Some(bind(address, &home.root().join("dashboard-port")).await?),
        None => None,
    };
    let mut names = vec![address.ip(), IpAddr::from([127, 0, 0, 1])];
    names.extend(reports.iter().map(|(_, address)| reachable(*address).ip()));
    let identity = pki::identity(home.root(), &names)?;
    let mut client_authorities = identity.authority.clone();
    if let Some(path) = &args.client_ca_file {
        client_authorities +=
            &std::fs::read_to_string(path).map_err(|source| PkiError::Io { path: path.clone(), source })?;
    }
    let tls = tls_config(&identity.certificate, &identity.key, Some(&client_authorities))?;
    let audit = match &args.audit_log {
        Some(path) => {
            Some(Log::open(path, Bounds::default()).map_err(|source| UpError::Audit { path: path.clone(), source })?)
        }
        None => None,
    };
    let token = match &args.token {
        Some(token) => token.clone(),
        None => pki::to_hex(&pki::secret(&home.root().join("token"))?),
    };
    let signing_key = pki::secret(&home.root().join("serviceaccounts.key"))?;
    keep_clock(&node_data, None)?;
    let machines = home.root().join("machines");
    let usage = node.as_ref().map(|name| Arc::new(NodeUsage::new(name, node_data.clone())) as Arc<dyn Usage>);
    let own = node.map(|name| (name, NodeStreams::new(node_data.clone(), machines)));
    let attention = infra::Attention::default();
    let tunnels = Open::new(attention.clone());
    let streams: Arc<dyn PodStreams> = Arc::new(AllStreams { own, open: tunnels.clone() });
    let series = Series::new(home.root().join("metrics"));
    let mut delegates: Vec<Arc<dyn Delegate>> = Vec::new();
    if reports.is_some() {
        delegates.push(Arc::new(Histories(series.clone())));
    }
    let kept = evidence::Store::new(home.root().join("history"));
    let evidence = Evidence::new(kept.clone(), node_data.clone());
    let keeps = !args.no_node && controllers.wants_trainer();
    if keeps {
        delegates.push(Arc::new(evidence.clone()));
    }
    let scheduler = Surroundings::default().scheduler;
    if controllers.wants_scheduler() {
        delegates.push(Arc::new(Places(scheduler.clone())));
    }
    let offers = Arc::new(OffersNow::default());
    let tallies = Tallies::default();
    let outputs = Outputs::new(home.root().join(OUTPUTS));
    let managed_logs = ManagedLogs::new(outputs.clone());
    if controllers.wants_clusters() {
        delegates.push(Arc::new(PartsOfFiles(home.root().join(FILES))));
        delegates.push(offers.clone());
        delegates.push(Arc::new(tallies.clone()));
        delegates.push(Arc::new(managed_logs.clone()));
    }
    let database = home.root().join("store.db");
    let mut plugins = plugins(&controllers);
    if !args.no_node {
        plugins.push(Arc::new(NoEphemeralContainers));
    }
    let (agent_part, controllers_part) = (Part::new("node-agent"), Part::new("controllers"));
    let mut checks: Vec<Arc<dyn Check>> = Vec::new();
    if !args.no_node {
        checks.push(agent_part.clone());
    }
    if !controllers.is_empty() {
        checks.push(controllers_part.clone());
    }
    let numbers = Arc::new(Registry::default());
    numbers::note_certificate(&numbers, "server", &identity.certificate);
    numbers::note_certificate(&numbers, "authority", &identity.authority);
    let jobs = JobNumbers::new(&numbers);
    let read = numbers.clone();
    let options = Options {
        numbers: Some(Arc::new(move || {
            numbers::note_processor_time(&read);
            read.render()
        })),
        database: Some(database.clone()),
        plugins,
        streams: Some(streams),
        tunnels: Some(Arc::new(tunnels.clone())),
        usage,
        delegates,
        audit,
        own: kinds::own_service(address).into(),
        checks,
        authenticator: Authenticator::new(signing_key).with_token(&token, User::admin()),
        ..Options::new(kinds::built_in())
    };
    // opening waits for the disk
    let server = tokio::task::spawn_blocking(move || Server::new(options))
        .await
        .expect("opening the store does not panic")
        .map_err(|source| UpError::Store { path: database, source: Box::new(source) })?;
    tasks.spawn(server.clone().follow_definitions());
    tasks.spawn(server.clone().expire_events());
    let resting = server.clone();
    tasks.spawn(async move {
        let mut work = Work::default();
        loop {
            objects::packed::rest();
            resting.rest();
            work.look(TREES_STAY);
            let over = tokio::time::sleep(TREES_STAY);
            // a start with thousands of objects looks at each of them: what can wait, does, for a while
            let waits = work.busy() % BUSY_MAX > 0;
            while !waits && resting.compress(COMPRESSED) && tokio::time::Instant::now() < over.deadline() {
                tokio::time::sleep(COMPRESSED_EVERY).await;
            }
            over.await;
        }
    });
    let client_of = |program| Client::new(server.service(User::admin()).named(program), "default");
    let client = client_of("trainyard");
    let source: Arc<dyn Source> = Arc::new(Direct(server.core.clone()));
    tallies.open(source.clone());
    evidence.connect(&client, &source);
    managed_logs.connect(&client);
    install::install(&client, &controllers).await?;

    let url = format!("https://{address}");
    pki::write_private(
        &home.kubeconfig(),
        &pki::kubeconfig(&url, &identity.authority, &pki::Credential::Token(&token)),
    )?;
    let shutdown = stop.clone().cancelled_owned();
    let serving = tokio::spawn(server.clone().serve(listener, Some(tls.clone()), shutdown));

    let mut node = "none".to_owned();
    if let Some(machine) = machine {
        let config = machine.await.expect("looking at the machine does not panic")?;
        if controllers.wants_clusters() {
            let (gpus, share) = (config.gpus.clone().unwrap_or_default(), config.share.clone());
            let controller = machines::controller(&client, home.root(), reachable(address), gpus, share, attention);
            tasks.spawn(controller.map_err(UpError::Node)?.run(stop.clone()));
            let settings = launcher::Settings {
                home: std::env::home_dir().unwrap_or_default(),
                kubeconfig: home.kubeconfig(),
                files: home.root().join(FILES),
            };
            let eyes = Eyes::new(client.clone(), settings);
            offers.open(eyes.clone());
            let kubeconfig = home.kubeconfig();
            let by_socket: BySocket = Arc::new(move || {
                let kubeconfig = kubeconfig.clone();
                async move { crate::agent::client(&kubeconfig).await }.boxed()
            });
            tasks.spawn(Launcher::new(client.clone(), by_socket, eyes).run(stop.clone()));
        }
        let keep = keeps.then(|| Arc::new(kept.clone()) as Arc<dyn Keep>);
        let agent = agent(&client_of("kubelet"), config, address, source.clone(), keep).await?;
        node = if agent.isolation().is_hosts() { "hosts" } else { "plain" }.to_owned();
        let stop = stop.clone();
        tasks.spawn(agent_part.run(async move { agent.run(stop).await }));
    }
    if keeps {
        tasks.spawn(evidence::follow(Feed::Source(source.clone()), kept));
    }
    if controllers.wants_clusters() {
        tasks.spawn(outputs::follow(Feed::Source(source.clone()), client.clone(), outputs));
    }
    let (pages_of, authority) = (source.clone(), identity.authority.clone());
    let mut around = Surroundings {
        root_ca: identity.authority,
        scheduler,
        connections: Arc::new(tunnels),
        ..Surroundings::default()
    };
    // images are ignored here: the node knows the command
    around.mpi.image = Some("trainyard".to_owned());
    around.mpi.profile = args.mpi_profile;
    let mut status_server = None;
    let reporting = reports.map(|(listener, address)| {
        let url = format!("https://{}", reachable(address));
        around.report_to(url.clone());
        status_server = Some(url);
        let server = StatusServer::new(client.clone()).beside(source.clone()).with_history(series);
        let (tls, stop) = (tls.clone(), stop.clone());
        tokio::spawn(async move { server.serve(listener, &tls, stop).await })
    });
    if !controllers.is_empty() {
        let (metrics, witness) = (Some(numbers.clone()), Some(numbers::witness(&numbers, &jobs)));
        let options = driver::Options { source: Some(source), metrics, witness, ..driver::Options::default() };
        let mut driver = Driver::with(client.clone(), options);
        controllers.add_as_programs_to(&mut driver, &around);
        numbers::count(&numbers, &jobs, "controllers", &driver);
        tasks.spawn(controllers_part.run(driver.run(stop.clone())));
    }

    let pages_at = pages.as_ref().map(|(_, address)| format!("http://{address}"));
    if let Some((listener, at)) = pages {
        let feed = Feed::Source(pages_of);
        let of = dashboard::Of { home: home.clone(), server: url.clone(), authority, token, feed };
        tasks.spawn(dashboard::serve(of, listener, at, stop.clone()));
    }
    let running = Running {
        pid: std::process::id(),
        server: url,
        kubeconfig: home.kubeconfig(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: Timestamp::now().as_second(),
        node,
        status_server,
        dashboard: pages_at,
    };
    pki::write_private(&home.running_file(), &serde_json::to_string_pretty(&running).expect("plain data"))?;
    announce(&running, args.output.output, Some(started.elapsed()));

    until_stopped().await;
    node::say!("stopping; running jobs go on");
    stop.cancel();
    let reporting = async {
        if let Some(reporting) = reporting {
            let _ = tokio::time::timeout(REPORTS_MAX, reporting).await;
        }
    };
    let _ = tokio::join!(tokio::time::timeout(STOP_MAX, serving), reporting);
    let _ = tokio::time::timeout(STOP_MAX, tasks.shutdown()).await;
    let _ = std::fs::remove_file(home.running_file());
    drop(lock);
    Ok(exit::OK)
}

/// Prints a kubeconfig with a client certificate for the user that is named.
pub fn kubeconfig_of(args: &KubeconfigArgs, global: &Global) -> Result<u8, UpError> {
    use std::io::Write;
    let home = Home::find(global.home.as_deref())?;
    let Some(running) = home.running() else {
        return Err(ClientError::NotRunning { home: home.root().to_owned() }.into());
    };
    let user = args.user.as_deref().unwrap_or_default();
    if user.is_empty() {
        return Err(UpError::Usage(ErrorCode::FlagRefused, "--user: a name is missing".to_owned()));
    }
    let identity = pki::client(home.root(), user, args.group.as_deref(), args.days)?;
    let text = pki::kubeconfig(&running.server, &identity.authority, &pki::Credential::Certificate(&identity));
    std::io::stdout().write_all(text.as_bytes()).map_err(UpError::Print)?;
    Ok(exit::OK)
}

/// Prints the kubeconfig of a node's agent.
pub async fn kubeconfig_of_node(args: &KubeconfigArgs, global: &Global) -> Result<u8, UpError> {
    use std::io::Write;
    let home = Home::find(global.home.as_deref())?;
    let Some(running) = home.running() else {
        return Err(ClientError::NotRunning { home: home.root().to_owned() }.into());
    };
    let name = args.node.as_deref().unwrap_or_default();
    let faults = api::names::subdomain_faults(name, false);
    if let Some(fault) = faults.first() {
        return Err(UpError::Usage(ErrorCode::FlagRefused, format!("--node {name:?}: {fault}")));
    }
    // the server's clock says when the token expires
    clock::follow(&home.root().join("node").join(clock::FILE));
    let connected = crate::agent::client(&home.kubeconfig()).await.map_err(UpError::Agent)?;
    let node = crate::agent::bare(name);
    let server = args.server.as_deref().unwrap_or(&running.server);
    let text = crate::agent::kubeconfig(home.root(), &connected, server, &node, args.days).await?;
    std::io::stdout().write_all(text.as_bytes()).map_err(UpError::Print)?;
    Ok(exit::OK)
}

/// The flags that the background process gets; home and output are `start`'s. The token is none of them: everybody on the
/// machine may read a process's arguments.
fn child_flags(args: &UpArgs) -> Vec<String> {
    let UpArgs {
        listen,
        detach: _,
        own_session: _,
        no_node,
        controllers,
        mpi_profile,
        status_server,
        dashboard,
        token: _,
        audit_log,
        client_ca_file,
        output: _,
    } = args;
    let mut flags = vec![format!("--listen={listen}"), format!("--controllers={controllers}")];
    if let Some(address) = status_server {
        flags.push(format!("--status-server={address}"));
    }
    if let Some(address) = dashboard {
        flags.push(format!("--dashboard={address}"));
    }
    if *mpi_profile != MpiProfile::default() {
        flags.push(format!("--mpi-profile={}", mpi_profile.as_str()));
    }
    if *no_node {
        flags.push("--no-node".to_owned());
    }
    // the other process has another working directory
    let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
    flags.extend(audit_log.as_ref().map(|path| format!("--audit-log={}", whole(path))));
    flags.extend(client_ca_file.as_ref().map(|path| format!("--client-ca-file={}", whole(path))));
    flags
}

/// The webhooks of the chosen controllers: a server on which other people's controllers run has theirs.
fn plugins(controllers: &Controllers) -> Vec<Arc<dyn Admission>> {
    Webhook::ALL
        .into_iter()
        .filter(|webhook| match webhook {
            Webhook::TrainJob
            | Webhook::TrainingRuntime
            | Webhook::ClusterTrainingRuntime
            | Webhook::OptimizationJob => controllers.wants_trainer(),
            Webhook::JobSet | Webhook::Pod => controllers.wants_jobset(),
        })
        .map(|webhook| Arc::new(Plugin(webhook)) as Arc<dyn Admission>)
        .chain([Arc::new(kinds::NodeRestriction) as Arc<dyn Admission>])
        .collect()
}

/// Tells that it is ready. The JSON form is one line: a parent process waits for it. Who started this and reads no more is
/// no reason to stop.
fn announce(running: &Running, format: Format, took: Option<Duration>) {
    use std::io::Write;
    let text = match format {
        Format::Json => format!("{}\n", serde_json::to_string(running).expect("plain data")),
        Format::Yaml => serde_saphyr::to_string(running).expect("plain data"),
        Format::Name => format!("{}\n", running.kubeconfig.display()),
        Format::Table | Format::Wide => {
            let ready = took.map_or_else(|| "ready".to_owned(), |took| format!("ready in {} ms", took.as_millis()));
            let kubeconfig = running.kubeconfig.display();
            format!(
                "{ready}\n  server      {}\n  kubeconfig  {kubeconfig}\n  run a job:  trainyard run train.py\n  \
                 kubectl:    export KUBECONFIG={}\n",
                running.server,
                quoted(&running.kubeconfig.to_string_lossy())
            )
        }
    };
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub async fn until_stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("signal handlers can be set");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// `TRAINYARD_LOG` filters as `RUST_LOG` does elsewhere; `-v` and `-vv` are shorter.
pub(crate) fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TRAINYARD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
}
