//! The command line: flags become intent, intent becomes requests, answers are rendered.
//!
//! Data goes to stdout, all else to stderr; everything that prints can print JSON and YAML (`-o`); exit codes are
//! documented in [`exit`]. The commands of servers and nodes (`grammar::ServerCommand`) are composed in the `trainyard` crate, because this
//! one knows no server and no node: it is a client like any other.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

#[macro_use]
mod say;

mod apply;
mod change;
mod clean;
mod codes;
pub mod complete;
mod consent;
mod cp;
pub mod daemon;
pub mod damaged;
mod dashboard;
mod describe;
mod doctor;
mod exec;
pub mod exit;
mod explain;
mod get;
mod init;
mod jobs;
mod logs;
mod metrics;
mod mpijob;
mod output;
pub mod plugin;
mod prepared;
mod queue;
mod resolved;
mod retried;
mod run;
mod screen;
pub mod sky;
mod soon;
mod sweep;
mod tensorboard;
mod terminal;
mod top;
mod trials;
mod watch;

pub use ::doctor::BuiltIn;
use api::job_kind::JobKind;
use client::codes::is_code;
use client::{Choice, ClientError, Cluster};
use futures::future::BoxFuture;
use grammar::mpi::{OdhArgs, OdhCommand};
use grammar::usage::Refused;
use grammar::{Cli, ClientCommand, DoctorArgs, ExplainArgs, Global, LocalCommand, PluginArgs, PluginCommand};
use std::ffi::OsString;

/// The command line, or the exit code once it has been told why there is none.
pub fn parse(words: &[OsString]) -> Result<Cli, u8> {
    grammar::usage::read(words, std::env::var_os("TRAINYARD_HOME").as_deref()).map_err(|refused| {
        match &refused {
            Refused::Nothing(text) => eprint!("{text}"),
            Refused::Line(line) => eprintln!("{line}"),
            // a closed pipe is not an error
            Refused::Clap(error) => drop(error.print()),
        }
        refused.exit_code()
    })
}

/// The server that the flags choose; its warnings are printed.
pub fn choice(global: &Global) -> Choice {
    let Global { home, kubeconfig, context, namespace, verbose: _, plugin } = global.clone();
    Choice { home, kubeconfig, context, namespace, plugin, warn }
}

/// Prints what is said while something goes on.
pub(crate) fn tell(line: &str) {
    eprintln!("{line}");
}

/// Prints a warning of the API server, as kubectl does.
pub(crate) fn warn(warning: &str) {
    eprintln!("Warning: {warning}");
}

/// Examines a cluster; `built_in` is what this binary would install there. Returns the process's exit code.
pub fn doctor<'a>(
    args: &'a DoctorArgs,
    global: &'a Global,
    built_in: BuiltIn,
) -> BoxFuture<'a, Result<u8, ClientError>> {
    Box::pin(async move {
        let cluster = Cluster::existing(&choice(global)).await?;
        let only = global.namespace.clone();
        doctor::doctor(&cluster, args, only, built_in).await.map_err(|error| error.at(&cluster))
    })
}

/// Carries out a command that needs no control plane, or finds or starts its own, and returns the process's exit code.
pub fn locally(command: LocalCommand, global: &Global) -> BoxFuture<'_, Result<u8, ClientError>> {
    Box::pin(async move {
        match command {
            LocalCommand::Run(args) => run::run(&args, global).await,
            LocalCommand::Init(args) => init::init(&args).await,
            LocalCommand::Down(args) => daemon::down(&args, global),
            LocalCommand::Status(args) => daemon::status(&args, global).await,
            LocalCommand::Dashboard(args) => dashboard::open(&args, global).await,
            LocalCommand::Clean(args) => clean::clean(&args, global).await,
            LocalCommand::Completions(args) => complete::print(args.shell),
            LocalCommand::Man(args) => {
                let failed = |source| ClientError::Io { doing: "write man pages to", path: args.dir.clone(), source };
                grammar::man::write(&args.dir).map_err(failed).map(|()| exit::OK)
            }
            LocalCommand::Mpijob(args) => mpijob::execute(&args, global).await,
            LocalCommand::Odh(OdhArgs { command: OdhCommand::Mpijob(args) }) => mpijob::execute(&args, global).await,
            LocalCommand::Sky(args) => Ok(sky::main(&args.words)),
            LocalCommand::Plugin(PluginArgs { command: PluginCommand::Install(args) }) => plugin::install(&args),
        }
    })
}

/// Carries out a command that asks a control plane, and returns the process's exit code.
pub fn execute(command: ClientCommand, global: &Global) -> BoxFuture<'_, Result<u8, ClientError>> {
    Box::pin(carry_out(command, global))
}

async fn carry_out(mut command: ClientCommand, global: &Global) -> Result<u8, ClientError> {
    match &command {
        // what is known without a server
        ClientCommand::Explain(ExplainArgs { list: true, output, .. }) => return Ok(codes::list(output.output)),
        ClientCommand::Explain(ExplainArgs { subject: Some(code), output, .. }) if is_code(code) => {
            return codes::explain(code, output.output);
        }
        _ => {}
    }
    let cluster = Cluster::existing(&choice(global)).await?;
    let done = async {
        resolved::names(&mut command, &cluster).await?;
        if let Some(named) = mpijob::named(&command) {
            let done = mpijob::on(&named?, &cluster, global).await;
            return done.map_err(|error| mpijob::told(error, &cluster));
        }
        match trials::named(&command, &cluster).await {
            Some(done) => done,
            None => ask(command, &cluster).await,
        }
    };
    done.await.map_err(|error| error.at(&cluster))
}

async fn ask(command: ClientCommand, cluster: &Cluster) -> Result<u8, ClientError> {
    match command {
        ClientCommand::Get(args) => get::get(cluster, &args).await,
        ClientCommand::Describe(args) => describe::describe(cluster, &args).await,
        ClientCommand::Explain(args) => explain::explain(cluster, &args.subject.unwrap_or_default(), args.output).await,
        ClientCommand::Logs(args) => logs::logs(cluster, &args).await,
        ClientCommand::Top(args) => top::top(cluster, &args).await,
        ClientCommand::Exec(args) => exec::exec(cluster, &args).await,
        ClientCommand::Cp(args) => cp::cp(cluster, &args).await,
        ClientCommand::Shell(args) => exec::shell(cluster, &args).await,
        ClientCommand::Apply(args) => apply::apply(cluster, &args).await,
        ClientCommand::Metrics(args) => metrics::metrics(cluster, &args).await,
        ClientCommand::Delete(args) => change::delete(cluster, &args).await,
        ClientCommand::Suspend(args) => change::suspend(cluster, &args).await,
        ClientCommand::Resume(args) => change::resume(cluster, &args).await,
        ClientCommand::Wait(args) => jobs::wait(cluster, JobKind::Train, &args.job, &args).await,
        ClientCommand::Runtimes(args) => jobs::runtimes(cluster, &args).await,
        ClientCommand::Queue(args) => queue::queue(cluster, &args).await,
        ClientCommand::Trials(args) => trials::trials(cluster, &args).await,
    }
}
