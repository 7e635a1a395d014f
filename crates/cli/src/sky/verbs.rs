//! The commands of `sky` that make, use and end clusters, with SkyPilot's words and exit codes.

mod autostop;
mod change;
mod cost;
mod fleet;
mod jobs;
mod launch;
mod output;
pub(super) mod refused;
mod show;
mod tables;

pub(super) use jobs::managed_jobs;

use super::clusters::{self, Found, Sky};
use super::submit::Trouble;
use super::words::as_typed;
use ::sky::commands::Call;
use ::sky::console::{Circumstances, Host, Prepared, Printed, prepared};
use ::sky::value::Map;
use api::foreign::visible;
use api::sky::{ClusterPhase, Power};
use managed::launch::step::skipped;
use offers::AtHand;
use std::io::{IsTerminal, Write};

/// A job, or a cluster, that is not there.
const NOT_FOUND: u8 = 102;

/// A command that needs clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Launch,
    Exec,
    Status,
    Queue,
    Logs,
    Cancel,
    Stop,
    Start,
    Down,
    Autostop,
    CostReport,
    JobsLaunch,
    JobsExplain,
    JobsQueue,
    JobsCancel,
    JobsLogs,
    FleetApply,
    FleetUpdate,
    FleetStatus,
    FleetDown,
    FleetLogs,
}

impl Verb {
    pub fn of(call: &Call) -> Option<Self> {
        Some(match call.path.as_str() {
            "sky launch" if !call.is_set("dryrun") => Self::Launch,
            "sky exec" => Self::Exec,
            "sky status" => Self::Status,
            "sky queue" => Self::Queue,
            "sky logs" => Self::Logs,
            "sky cancel" => Self::Cancel,
            "sky stop" => Self::Stop,
            "sky start" => Self::Start,
            "sky down" => Self::Down,
            "sky autostop" => Self::Autostop,
            "sky cost-report" => Self::CostReport,
            "sky jobs launch" => Self::JobsLaunch,
            "sky jobs explain" => Self::JobsExplain,
            "sky jobs queue" => Self::JobsQueue,
            "sky jobs cancel" => Self::JobsCancel,
            "sky jobs logs" => Self::JobsLogs,
            "sky serve up" | "sky jobs pool apply" => Self::FleetApply,
            "sky serve update" => Self::FleetUpdate,
            "sky serve status" | "sky jobs pool status" => Self::FleetStatus,
            "sky serve down" | "sky jobs pool down" => Self::FleetDown,
            "sky serve logs" | "sky jobs pool logs" => Self::FleetLogs,
            _ => return None,
        })
    }
}

/// Options of `sky launch` that say where machines may be.
pub(super) struct Around {
    /// Settings of `--config`.
    pub given: Option<Map>,
    /// The folder of price lists that `--catalog` names.
    pub catalog: Option<String>,
}

/// How a command ends early.
enum End {
    Trouble(Trouble),
    Printed(Printed),
}

impl<T: Into<Trouble>> From<T> for End {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

type Done = Result<u8, End>;

fn misused(call: &Call, message: impl Into<String>) -> End {
    End::Printed(Printed::default().misused(&call.path, message))
}

/// Asks the clusters of Kubernetes what they have, for commands that are about that alone.
pub(super) fn look(call: &Call, world: &Circumstances<'_>, at_hand: &mut AtHand) {
    let list = match call.path.as_str() {
        "sky launch" | "sky explain" => match prepared(call, world) {
            Ok(Prepared { task, .. }) => task.resources.list,
            Err(_) => return,
        },
        "sky check" => Vec::new(),
        _ => return,
    };
    if at_hand.contexts.all.is_empty() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        runtime.block_on(offers::look_at_contexts(at_hand, &list));
        runtime.shutdown_background();
    }
}

/// The GPUs of machines that are there, for the command that lists them.
pub(super) fn look_for_gpus(call: &Call, at_hand: &AtHand) -> Vec<Host> {
    if !matches!(call.path.as_str(), "sky gpus list" | "sky show-gpus") || call.value("output_format") == Some("json") {
        return Vec::new();
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let found = runtime.block_on(async {
        let control_plane = clusters::running().await;
        ::clusters::hosts(at_hand, control_plane.as_ref(), &|note| eprintln!("{note}")).await
    });
    runtime.shutdown_background();
    found
}

/// Carries out a command, and returns the exit code.
pub(super) fn carry_out(verb: Verb, call: &Call, world: &Circumstances<'_>, around: Around) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return 1;
        }
    };
    let done = runtime.block_on(async {
        match verb {
            Verb::Launch => launch::launch(call, world, around).await,
            Verb::Exec => launch::exec(call, world).await,
            Verb::Status => show::status(call, world).await,
            Verb::Queue => show::queue(call).await,
            Verb::Logs => output::show_logs(call).await,
            Verb::Cancel => output::cancel(call).await,
            Verb::Stop | Verb::Start | Verb::Down | Verb::Autostop => change::several(verb, call).await,
            Verb::CostReport => cost::cost_report(call).await,
            Verb::JobsLaunch => jobs::launch(call, world, around).await,
            Verb::JobsExplain => jobs::explain(call).await,
            Verb::JobsQueue => jobs::queue(call).await,
            Verb::JobsCancel => jobs::cancel(call).await,
            Verb::JobsLogs => jobs::logs(call).await,
            Verb::FleetApply => fleet::apply(call, world, around).await,
            Verb::FleetUpdate => fleet::update(call, world, around).await,
            Verb::FleetStatus => fleet::status(call).await,
            Verb::FleetDown => fleet::down(call).await,
            Verb::FleetLogs => fleet::logs(call).await,
        }
    });
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(End::Printed(printed)) => {
            say(printed.out.trim_end());
            eprint!("{}", as_typed(&format!("{}{}", printed.err, printed.note)));
            printed.code
        }
        Err(End::Trouble(Trouble::Said(message))) => {
            eprintln!("{}", as_typed(&message));
            1
        }
        Err(End::Trouble(Trouble::Client(error))) => {
            eprintln!("{}", error.render());
            1
        }
    }
}

/// A line on the standard output, unless it is empty.
fn say(line: impl AsRef<str>) {
    if !line.as_ref().is_empty() {
        clusters::say(&visible(&as_typed(line.as_ref())));
    }
}

/// That there is no such cluster, and the name that was probably meant.
async fn missing(sky: &Sky, shown: &str) -> Trouble {
    let all = sky.all().await.unwrap_or_default(); // the sentence is true without a guess
    let near = api::near::near(shown, all.iter().map(Found::shown));
    let near = near.map(|name| format!(" Did you mean {name}?")).unwrap_or_default();
    Trouble::Said(format!("sky.exceptions.ClusterDoesNotExist: Cluster '{shown}' does not exist.{near}"))
}

/// What SkyPilot says of a command that needs a cluster that runs, where it does not. `operation`: `tailing logs`. One whose machines cannot
/// be reached for now may still tell what is known of its jobs.
fn not_up(found: &Found, operation: &str) -> Option<Trouble> {
    let status = &found.cluster.status;
    let is_stopped = found.cluster.spec.power == Power::Stopped || status.phase == ClusterPhase::Stopped;
    let is_new = status.phase == ClusterPhase::Init && status.launched_at.is_empty();
    let mut operation = operation.to_owned();
    operation.get_mut(..1).map(str::make_ascii_uppercase);
    (is_stopped || is_new).then(|| skipped(found.shown(), status.phase, &operation).into())
}

/// Asks, unless told not to. Who cannot answer says no.
fn confirm(call: &Call, question: &str) -> Result<(), End> {
    if call.is_set("yes") {
        return Ok(());
    }
    loop {
        print!("{question} [Y/n]: ");
        let _ = std::io::stdout().flush();
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match answer.trim().to_lowercase().as_str() {
            _ if !matches!(read, Ok(1..)) => break,
            "" | "y" | "yes" => return Ok(()),
            "n" | "no" => break,
            _ => println!("Error: invalid input"),
        }
    }
    if !std::io::stdin().is_terminal() {
        println!();
    }
    Err(End::Printed(Printed::default().fail(1, "Aborted!")))
}
