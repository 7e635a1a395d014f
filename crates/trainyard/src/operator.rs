//! `trainyard operator`: the controllers and webhooks for a cluster that has its own API server.

use crate::up::UpError;
use ::operator::embedded::install;
use cli::exit;
use client::ClientError;
use client::codes::ErrorCode;
use driver::metrics::Registry;
use grammar::Global;
use grammar::operator::{LogFormat, OperatorArgs, Verbosity};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use operator::Controllers;
use operator::client::counted;
use operator::cluster::Operator;
use operator::cluster::access::NAMESPACE;
use operator::cluster::registration::Place;
use operator::cluster::settings;
use operator::traces::{Collector, Traces};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Whether this process is a pod of the cluster that it works on.
fn in_cluster(global: &Global) -> bool {
    global.kubeconfig.is_none() && global.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Runs the operator until SIGTERM or Ctrl-C; hands the lease over before it ends.
pub async fn operator(args: &OperatorArgs, global: &Global) -> Result<u8, UpError> {
    let controllers: Controllers = args
        .controllers
        .parse()
        .map_err(|error| UpError::Usage(ErrorCode::OperatorSettings, format!("--controllers: {error}")))?;
    if !controllers.is_for_operator() {
        return Err(UpError::Usage(
            ErrorCode::OperatorSettings,
            format!(
                "--controllers {}: an operator runs trainjob, trainingruntime, clustertrainingruntime, optimizationjob and \
             mpijob; the others are the cluster's own work",
                args.controllers
            ),
        ));
    }
    let mut configuration = settings::load(args.config.as_deref(), &args.feature_gates)
        .map_err(UpError::operator(ErrorCode::OperatorSettings))?;
    match args.leader_elect {
        Some(true) => configuration.leader_election.get_or_insert_default().leader_elect = true,
        Some(false) => configuration.leader_election = None,
        None => {}
    }
    for (flag, given, address) in [
        ("--health-listen", &args.health_listen, &mut configuration.health.health_probe_bind_address),
        ("--metrics-listen", &args.metrics_listen, &mut configuration.metrics.bind_address),
    ] {
        if let Some(given) = given {
            settings::listen_address(given)
                .map_err(|why| UpError::Usage(ErrorCode::OperatorSettings, format!("{flag} {given}: {why}")))?;
            given.clone_into(address);
        }
    }
    if let Some(profile) = args.mpi_profile {
        configuration.mpi.profile = profile;
    }
    let mut runtimes = install::runtimes(&args.install_runtimes)
        .map_err(|why| UpError::Usage(ErrorCode::OperatorSettings, format!("--install-runtimes: {why}")))?;
    if let Some(image) = &args.initializer_image {
        runtimes.iter_mut().for_each(|runtime| install::with_initializer_image(runtime, image));
    }
    let traces = log(args.log_format(), args.verbosity(), global.verbose)?;
    let within = in_cluster(global);
    let metrics = Arc::new(Registry::default());
    let (client, home) = connect(global, within, metrics.clone()).await?;
    let namespace = global.namespace.clone().unwrap_or(home);
    let place = match &args.webhook_url {
        Some(url) => Some(Place::Url(url.clone())),
        None => within.then(|| Place::Service {
            namespace: namespace.clone(),
            name: configuration.cert_management.webhook_service_name.clone(),
        }),
    };
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    tokio::spawn(async move {
        crate::up::until_stopped().await;
        tracing::info!("stopping; training jobs keep running");
        signalled.cancel();
    });
    let operator = Operator {
        client,
        metrics,
        configuration,
        namespace,
        watch_namespace: args.watch_namespace.clone(),
        controllers,
        webhook_listen: args.webhook_listen.or_else(|| args.webhook_url.as_deref().and_then(loopback)),
        place,
        identity: identity(),
        pod: within.then(host),
        period: args.certificate_period,
        runtimes,
    };
    let ended = operator.run(stop).await.map_err(UpError::operator(ErrorCode::OperatorFailed));
    if let Some(traces) = traces {
        traces.finish().await;
    }
    ended.map(|()| exit::OK)
}

/// The address of a URL that names one of this machine's own.
fn loopback(url: &str) -> Option<SocketAddr> {
    let address: SocketAddr = url.strip_prefix("https://")?.parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

/// Unique among replicas: the pod's (or the machine's) name and chance.
fn identity() -> String {
    format!("{}_{:016x}", host(), rand::random::<u64>())
}

/// The machine's name; a pod's is its own.
fn host() -> String {
    nix::unistd::gethostname().map_or("localhost".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// How the operator names itself to API servers; what is before the slash is the field manager of its plain writes.
const USER_AGENT: &str = concat!("trainyard-operator/", env!("CARGO_PKG_VERSION"));

/// A client, and the namespace that is the operator's own where no flag says so.
async fn connect(global: &Global, within: bool, metrics: Arc<Registry>) -> Result<(Client, String), UpError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| UpError::Operator {
        code: ErrorCode::OperatorFailed,
        source,
    };
    let (mut config, namespace) = if within {
        let config = Config::incluster().map_err(|error| failed(error.into()))?;
        let namespace = config.default_namespace.clone();
        (config, namespace)
    } else {
        let path = global.kubeconfig.clone().unwrap_or_else(|| "$KUBECONFIG".into());
        let wrong = |source| ClientError::Kubeconfig { path: path.clone(), source: Box::new(source) };
        let kubeconfig = match &global.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let options = KubeConfigOptions { context: global.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig.map_err(wrong)?, &options).await.map_err(wrong)?;
        (config, NAMESPACE.to_owned())
    };
    // API servers take the field manager of a write from it: without one it is "unknown"
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    Ok((counted(config, metrics).map_err(|error| failed(error.into()))?, namespace))
}

/// What goes on, on stderr; `TRAINYARD_LOG` filters as `RUST_LOG` does elsewhere, and goes before all flags. Spans go to a
/// collector, where the environment names one.
fn log(format: LogFormat, verbosity: Verbosity, verbose: u8) -> Result<Option<Traces>, UpError> {
    // The client's own lines name neither request nor object; its caller reports what failed, and for which object.
    let filter = match verbosity {
        Verbosity::Error => "error,kube_client=off,kube_runtime=off",
        Verbosity::Info if verbose == 0 => "info,kube_client=off,kube_runtime=off",
        Verbosity::Info | Verbosity::Debug => {
            "info,driver=debug,operator=debug,trainyard=debug,kube_client=off,kube_runtime=off"
        }
        Verbosity::Everything => "debug",
    };
    let filter = EnvFilter::try_from_env("TRAINYARD_LOG").unwrap_or_else(|_| EnvFilter::new(filter));
    let collector =
        Collector::told(|name| std::env::var(name).ok()).map_err(UpError::operator(ErrorCode::OperatorSettings))?;
    let (spans, traces) = collector.map(Collector::start).unzip();
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).init();
    Ok(traces)
}
