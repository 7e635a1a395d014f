//! The command line: flags become intent, intent becomes requests, answers are rendered.
//!
//! Data goes to stdout, all else to stderr; everything that prints can print JSON and YAML (`-o`); exit codes are
//! documented in [`exit`]. `up` and the hidden `shim` are composed in the `trainyard` crate, because this one knows no
//! server and no node: it is a client like any other.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

#[macro_use]
mod say;

mod apply;
pub mod args;
mod change;
mod clean;
mod codes;
pub mod complete;
mod consent;
mod cp;
pub mod daemon;
pub mod damaged;
mod describe;
mod doctor;
mod ending;
mod exec;
pub mod exit;
mod explain;
mod follow;
mod get;
mod init;
mod jobs;
mod logs;
mod man;
mod metrics;
mod mpijob;
pub mod operator_args;
mod output;
pub mod plugin;
mod queue;
mod resolved;
mod retried;
mod run;
mod screen;
pub mod sky;
mod sweep;
mod tensorboard;
mod terminal;
mod top;
mod trials;
pub mod usage;
mod watch;

pub use ::doctor::BuiltIn;
use api::job_kind::JobKind;
use args::{Command, ExplainArgs, PluginArgs, PluginCommand};
use client::codes::is_code;
use client::{ClientError, Cluster};
use futures::future::BoxFuture;
use mpijob::args::{OdhArgs, OdhCommand};

/// Examines a cluster; `built_in` is what this binary would install there. Returns the process's exit code.
pub fn doctor<'a>(
    args: &'a args::DoctorArgs,
    global: &'a args::Global,
    built_in: BuiltIn,
) -> BoxFuture<'a, Result<u8, ClientError>> {
    Box::pin(async move {
        let cluster = Cluster::existing(&global.choice()).await?;
        let only = global.namespace.clone();
        doctor::doctor(&cluster, args, only, built_in).await.map_err(|error| error.at(&cluster))
    })
}

/// Carries out a command that talks to a control plane and returns the process's exit code.
///
/// `Up`, `Backup`, `Restore`, `Damaged`, `Operator`, `Doctor`, `Initialize`, `MpiWait`, `Relay` and `Shim` are not for here: the caller composes those.
pub fn execute(command: Command, global: &args::Global) -> BoxFuture<'_, Result<u8, ClientError>> {
    Box::pin(carry_out(command, global))
}

async fn carry_out(command: Command, global: &args::Global) -> Result<u8, ClientError> {
    match command {
        Command::Run(args) => run::run(&args, global).await,
        Command::Init(args) => init::init(&args).await,
        Command::Down(args) => daemon::down(&args, global),
        Command::Status(args) => daemon::status(&args, global).await,
        Command::Clean(args) => clean::clean(&args, global).await,
        Command::Kubeconfig(_) => daemon::kubeconfig(global),
        Command::Completions(args) => complete::print(args.shell),
        Command::Man(args) => man::write(&args.dir),
        Command::Explain(ExplainArgs { list: true, output, .. }) => Ok(codes::list(output.output)),
        Command::Explain(ExplainArgs { subject: Some(code), output, .. }) if is_code(&code) => {
            codes::explain(&code, output.output)
        }
        Command::Mpijob(args) => mpijob::execute(&args, global).await,
        Command::Odh(OdhArgs { command: OdhCommand::Mpijob(args) }) => mpijob::execute(&args, global).await,
        Command::Sky(args) => Ok(sky::main(&args.words)),
        Command::Plugin(PluginArgs { command: PluginCommand::Install(args) }) => plugin::install(&args),
        mut command => {
            let cluster = Cluster::existing(&global.choice()).await?;
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
    }
}

async fn ask(command: Command, cluster: &Cluster) -> Result<u8, ClientError> {
    match command {
        Command::Get(args) => get::get(cluster, &args).await,
        Command::Describe(args) => describe::describe(cluster, &args).await,
        Command::Explain(args) => explain::explain(cluster, &args.subject.unwrap_or_default(), args.output).await,
        Command::Logs(args) => logs::logs(cluster, &args).await,
        Command::Top(args) => top::top(cluster, &args).await,
        Command::Exec(args) => exec::exec(cluster, &args).await,
        Command::Cp(args) => cp::cp(cluster, &args).await,
        Command::Shell(args) => exec::shell(cluster, &args).await,
        Command::Apply(args) => apply::apply(cluster, &args).await,
        Command::Metrics(args) => metrics::metrics(cluster, &args).await,
        Command::Delete(args) => change::delete(cluster, &args).await,
        Command::Suspend(args) => change::suspend(cluster, &args).await,
        Command::Resume(args) => change::resume(cluster, &args).await,
        Command::Wait(args) => jobs::wait(cluster, JobKind::Train, &args.job, &args).await,
        Command::Runtimes(args) => jobs::runtimes(cluster, &args).await,
        Command::Queue(args) => queue::queue(cluster, &args).await,
        Command::Trials(args) => trials::trials(cluster, &args).await,
        Command::Run(_) | Command::Init(_) | Command::Down(_) | Command::Status(_) | Command::Kubeconfig(_) => {
            unreachable!("carried out without a cluster, or with one of their own")
        }
        Command::Completions(_)
        | Command::Clean(_)
        | Command::Man(_)
        | Command::Plugin(_)
        | Command::Sky(_)
        | Command::Mpijob(_)
        | Command::Odh(_) => {
            unreachable!("carried out without a cluster, or with one of their own")
        }
        Command::Up(_)
        | Command::Node(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Damaged(_)
        | Command::Operator(_)
        | Command::Doctor(_)
        | Command::Initialize(_)
        | Command::MpiWait(_)
        | Command::Relay(_)
        | Command::Shim(_) => {
            unreachable!("the binary composes these itself")
        }
    }
}
