//! Flags of `mpijob`.

use crate::output::Output;
use crate::values::{Attempt, attempt, duration};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub struct MpiJobArgs {
    #[command(subcommand)]
    pub command: MpiJobCommand,
}

/// What `odh` has: the commands of `oc odh` and `kubectl odh`.
#[derive(Args, Debug)]
pub struct OdhArgs {
    #[command(subcommand)]
    pub command: OdhCommand,
}

#[derive(Subcommand, Debug)]
pub enum OdhCommand {
    /// MPIJobs: distributed jobs that mpirun starts
    #[command(alias = "mpijobs")]
    Mpijob(Box<MpiJobArgs>),
}

#[derive(Subcommand, Debug)]
pub enum MpiJobCommand {
    /// Create an MPIJob, from flags or a file
    Create(Box<CreateArgs>),
    /// List MPIJobs, or show one
    Get(GetArgs),
    /// Show all about an MPIJob: settings, conditions, pods, events
    Describe(NameArgs),
    /// Say why an MPIJob waits, fails or stands still, and what to do
    Explain(NameArgs),
    /// Print what the launcher printed, which has what all ranks print; or a worker
    Logs(LogsArgs),
    /// Delete MPIJobs, with all that was made for them
    Delete(DeleteArgs),
    /// Stop an MPIJob's pods but keep the job
    Suspend(NameArgs),
    /// Start a suspended MPIJob's pods again
    Resume(NameArgs),
    /// Wait until an MPIJob reaches a state
    Wait(WaitArgs),
    /// Change the number of workers
    ///
    /// A running mpirun keeps the ranks that it has started; horovodrun, with /etc/mpi/discover_hosts.sh, follows.
    Scale(ScaleArgs),
}

/// A whole number, of those that the API takes; whether it is too small is for who knows what it counts.
fn whole(text: &str) -> Result<i32, String> {
    text.parse().map_err(|fault: ParseIntError| match fault.kind() {
        IntErrorKind::PosOverflow => format!("must be {} or less", i32::MAX),
        IntErrorKind::NegOverflow => "must be 0 or more".to_owned(),
        _ => "is no whole number".to_owned(),
    })
}

/// The same, from 0.
fn count(text: &str) -> Result<i32, String> {
    whole(text).and_then(|number| if number < 0 { Err("must be 0 or more".to_owned()) } else { Ok(number) })
}

/// Whose `mpirun` the job is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Implementation {
    #[default]
    OpenMpi,
    Intel,
    Mpich,
}

/// What a dry run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Only print the MPIJob; no server is asked
    Client,
    /// Let the server check it, and keep nothing
    Server,
}

#[derive(Args, Clone, Debug, Default)]
#[command(group = ArgGroup::new("flags").args(["workers", "command", "image"]).multiple(true).conflicts_with("file"))]
pub struct CreateArgs {
    /// Name of the job
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub name: Option<String>,
    /// Create what this file holds, as it is: YAML or JSON; - for stdin
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Pods in which ranks run, 2 or more
    #[arg(long, value_name = "N", required_unless_present = "file", allow_negative_numbers = true, value_parser = whole)]
    pub workers: Option<i32>,
    /// The pods' image, with MPI and an SSH server; on a laptop pods run on the machine's own programs
    #[arg(long, required_unless_present = "file")]
    pub image: Option<String>,
    /// What each rank runs, split as a shell does. It is put behind `mpirun -n RANKS` unless it begins with mpirun, mpiexec or
    /// horovodrun
    #[arg(long, required_unless_present = "file", allow_hyphen_values = true)]
    pub command: Option<String>,
    /// GPUs that each worker needs (nvidia.com/gpu)
    #[arg(long, value_name = "N", conflicts_with = "file", allow_negative_numbers = true, value_parser = count)]
    pub gpu: Option<i32>,
    /// CPUs that each worker needs (e.g. 8, or 500m: thousandths)
    #[arg(long, value_name = "QUANTITY", conflicts_with = "file", allow_hyphen_values = true)]
    pub cpu: Option<String>,
    /// Memory that each worker needs, in bytes or with a unit (e.g. 64Gi)
    #[arg(long, value_name = "QUANTITY", conflicts_with = "file", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Ranks of each worker [default: its GPUs, or 1]
    #[arg(long, value_name = "N", conflicts_with = "file", allow_negative_numbers = true, value_parser = whole)]
    pub slots_per_worker: Option<i32>,
    /// Whose mpirun it is
    #[arg(long, value_enum, default_value_t, ignore_case = true, conflicts_with = "file")]
    pub implementation: Implementation,
    /// Environment variable for all ranks; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE", conflicts_with = "file")]
    pub env: Vec<String>,
    /// Kueue's LocalQueue
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub queue: Option<String>,
    /// Start a launcher that failed again up to N times
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "file", allow_negative_numbers = true, value_parser = count)]
    pub retries: i32,
    /// Folder in which the command runs [default: the image's; on a laptop the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub workdir: Option<String>,
    /// For images whose SSH server wants root; OpenShift's default policy refuses them
    #[arg(long, conflicts_with = "file")]
    pub run_as_root: bool,
    /// Create nothing
    #[arg(long, value_enum, value_name = "WHO")]
    pub dry_run: Option<DryRun>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct GetArgs {
    /// Name of an MPIJob
    #[arg(value_name = "NAME")]
    pub mpijob: Option<String>,
    /// MPIJobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// Name of the MPIJob
    #[arg(value_name = "NAME")]
    pub mpijob: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct LogsArgs {
    /// Name of the MPIJob
    #[arg(value_name = "NAME")]
    pub mpijob: String,
    /// The launcher's, which is the default
    #[arg(long, conflicts_with = "worker")]
    pub launcher: bool,
    /// Worker N's, from 0
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub worker: Option<i32>,
    /// Go on until the job ends; the exit code is then the job's
    #[arg(short, long)]
    pub follow: bool,
    /// Only attempt N (the Nth start, counted from 1, whether its container, its pod or the job was started again), or `all`
    /// [default: the last]
    #[arg(long, value_name = "N|all", value_parser = attempt, conflicts_with = "follow", allow_negative_numbers = true)]
    pub attempt: Option<Attempt>,
    /// Only the attempt before the last
    #[arg(short, long, conflicts_with_all = ["attempt", "follow"])]
    pub previous: bool,
    /// Only the last N lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..), allow_negative_numbers = true)]
    pub tail: Option<i64>,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Names of MPIJobs
    #[arg(required = true, value_name = "NAME")]
    pub mpijobs: Vec<String>,
    /// Return before their pods are gone
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct WaitArgs {
    /// Name of the MPIJob
    #[arg(value_name = "NAME")]
    pub mpijob: String,
    /// The state to wait for
    #[arg(long = "for", value_enum, default_value_t = WaitFor::Succeeded)]
    pub state: WaitFor,
    /// Give up after this long: seconds, or with a unit (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub output: Output,
}

/// A state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    #[value(alias = "complete")]
    Succeeded,
    Failed,
    Running,
    Suspended,
    /// Succeeded or failed
    Finished,
    Deleted,
}

#[derive(Args, Debug)]
pub struct ScaleArgs {
    /// Name of the MPIJob
    #[arg(value_name = "NAME")]
    pub mpijob: String,
    /// Workers that there shall be
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    pub workers: i32,
    #[command(flatten)]
    pub output: Output,
}
