//! Flags of the commands about jobs.

use crate::output::Output;
use crate::values::{Attempt, attempt, duration, interval, since};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use view::runs::Which;

#[derive(Args, Clone, Debug, Default)]
#[command(override_usage = "trainyard run [OPTIONS] SCRIPT [ARGS]...")]
pub struct RunArgs {
    /// Name of the job [default: made from the script's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Number of nodes (pods), each running the script [default: the runtime's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub nodes: Option<i32>,
    /// Number of processes on each node [default: the runtime's; of torch one for each GPU or CPU]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(i32).range(1..))]
    pub nproc_per_node: Option<i32>,
    /// ClusterTrainingRuntime or TrainingRuntime to run with [default: torch-distributed; on this machine `plain` for what is not
    /// Python, and for a script that does not import torch where torch is not installed]
    #[arg(long)]
    pub runtime: Option<String>,
    /// Python to run with on this machine: a file, or a name on the PATH [default: the one of torchrun, else python3]
    #[arg(long, value_name = "PYTHON", conflicts_with_all = ["venv", "uv"])]
    pub python: Option<PathBuf>,
    /// Virtual environment to run in on this machine; it need not be active
    #[arg(long, value_name = "DIR", conflicts_with = "uv")]
    pub venv: Option<PathBuf>,
    /// Run in the environment of uv's project (or of the script's own dependencies, PEP 723), which uv updates first
    #[arg(long)]
    pub uv: bool,
    /// Environment variable for all processes; may be repeated
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// CPUs that each node needs (e.g. 4, or 500m: thousandths) [default: the runtime's]
    #[arg(long, value_name = "QUANTITY")]
    pub cpus: Option<String>,
    /// Memory that each node needs, in bytes or with a unit (e.g. 8Gi, 500M) [default: the runtime's]
    #[arg(long, value_name = "QUANTITY")]
    pub memory: Option<String>,
    /// GPUs that each node needs (nvidia.com/gpu) [default: the runtime's]
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// Folder to run in. On a cluster all of it goes to the pods, read-only (at most 1 MiB, without .git, __pycache__ and
    /// virtual environments), and SCRIPT must be in it [default: here; on a cluster SCRIPT alone goes, and runs in the
    /// image's folder]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Image of the pods on a cluster; ignored on a laptop [default: the runtime's]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Start the job again up to N times when it fails, whatever the reason; all ranks start anew [default: 0, the first process
    /// that fails ends the job]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub retries: Option<u16>,
    /// End the job, all attempts together, after this long: seconds, or with a unit (90s, 10m, 2h). Exit code 124
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<std::time::Duration>,
    /// Folder for what the job writes, on this machine: each node gets a folder of its own in DIR/JOB, by the variable
    /// TRAINYARD_OUTPUT. It stays when the job is deleted
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Read a metric from the output of rank 0: a name (`loss` finds loss=0.5 and loss: 0.5), or a regular expression with a group
    /// for the number (`'loss: ([0-9.]+)'`); may be repeated
    #[arg(long = "metric", value_name = "PATTERN")]
    pub metrics: Vec<String>,
    /// Run again whenever a source file changes, in --workdir or beside the script; the previous job is deleted. Ctrl-C ends it
    #[arg(long, conflicts_with_all = ["detach", "sweep"])]
    pub watch: bool,
    /// Search: try each of these values, in every combination with other --sweep flags. A parameter is an argument of the script
    /// (--NAME=VALUE, or wherever the arguments have {NAME}); a parameter in capitals is a variable
    #[arg(long, value_name = "NAME=VALUE,VALUE…", requires = "objective")]
    pub sweep: Vec<String>,
    /// The metric that the search optimizes, as the script reports it, and whether less (min) or more (max) is better [default: min]
    #[arg(long, value_name = "METRIC[:min|max]", requires = "sweep")]
    pub objective: Option<String>,
    /// How many trials of a search run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sweep", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub parallel_trials: i32,
    /// Run SCRIPT as a module (python -m): package.module, found from --workdir or from here
    #[arg(short = 'm', long)]
    pub module: bool,
    /// Create the job without checking first whether it can run (interpreter, framework, syntax, names, resources)
    #[arg(long)]
    pub no_checks: bool,
    /// Fork the processes from one that has already imported torch; remembered for this folder until --no-warm
    #[arg(long, conflicts_with = "no_warm")]
    pub warm: bool,
    /// Start this folder's runs cold again
    #[arg(long)]
    pub no_warm: bool,
    /// Start the job and return at once, printing its name
    #[arg(long, short)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
    /// The script to run, or a folder with a __main__.py, main.py or train.py; everything after it is passed to the script. Programs
    /// and shell scripts run, too, and with --runtime plain commands on the PATH
    #[arg(trailing_var_arg = true, required = true, value_name = "SCRIPT")]
    pub words: Vec<String>,
}

impl RunArgs {
    /// The script as it was named.
    pub fn script(&self) -> &Path {
        Path::new(self.words.first().map_or("", String::as_str))
    }

    /// Its own arguments.
    pub fn script_args(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

#[derive(Args, Debug, Default)]
pub struct InitArgs {
    /// The script [default: __main__.py, main.py or train.py in this folder]
    pub script: Option<PathBuf>,
    /// Name of the job [default: the script's]
    #[arg(long)]
    pub name: Option<String>,
    /// Runtime to run with [default: the one for what the script imports]
    #[arg(long)]
    pub runtime: Option<String>,
    /// Number of nodes [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub nodes: Option<i32>,
    /// Number of processes on each node [default: 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(i32).range(1..))]
    pub nproc_per_node: Option<i32>,
    /// Folder to run in [default: here]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug, Default)]
pub struct GetArgs {
    /// Name of a job (of any kind: NAME, mpijob/NAME, optimizationjob/NAME), or a kind: trainjobs, mpijobs, optimizationjobs
    pub job: Option<String>,
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only jobs in this state: pending, running, suspended, complete, failed, restarting, crashloop
    #[arg(long, value_name = "STATE", conflicts_with = "job")]
    pub state: Option<String>,
    /// Only jobs with these labels (NAME=VALUE,…)
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "job")]
    pub selector: Option<String>,
    /// Order of the rows
    #[arg(long, value_enum, default_value_t, conflicts_with = "job")]
    pub sort: SortBy,
    /// Show changes until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    pub output: Output,
}

/// The order of the rows of `get`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// The newest first
    #[default]
    Age,
    Name,
    State,
}

#[derive(Args, Debug)]
pub struct JobArgs {
    /// Name of the job
    pub job: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct SuspendArgs {
    /// Names of jobs
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Return before their processes have ended
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// Names of jobs
    #[arg(required = true)]
    pub jobs: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Name of a job (of any kind: NAME, mpijob/NAME, optimizationjob/NAME), or an error code
    #[arg(value_name = "JOB|CODE", required_unless_present = "list")]
    pub subject: Option<String>,
    /// List all error codes
    #[arg(long, conflicts_with = "subject")]
    pub list: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct TrialsArgs {
    /// Name of an OptimizationJob [default: all of them, without their trials]
    #[arg(value_name = "OPTIMIZATIONJOB")]
    pub search: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct LogsArgs {
    /// Name of the job
    pub job: String,
    /// Follow the logs until the job ends, and return its exit code
    #[arg(short, long)]
    pub follow: bool,
    /// Only this rank
    #[arg(long, value_name = "N", conflicts_with = "step")]
    pub rank: Option<i64>,
    /// Only this step: node-0, dataset-initializer, …
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// Only attempt N of each rank (its Nth start, counted from 1, whether its container, its pod or the job was started again), or
    /// `all` [default: the last]
    #[arg(long, value_name = "N|all", value_parser = attempt, conflicts_with = "follow")]
    pub attempt: Option<Attempt>,
    /// Only the attempt before the last, of each rank
    #[arg(short, long, conflicts_with_all = ["attempt", "follow"])]
    pub previous: bool,
    /// Only the last N lines of each pod
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub tail: Option<i64>,
    /// Only lines since then: a time (2026-01-02T03:04:05Z), or how long ago (90s, 10m, 2h)
    #[arg(long, value_name = "TIME|DURATION", value_parser = since)]
    pub since: Option<jiff::Timestamp>,
    /// Only lines that match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub grep: Option<regex::Regex>,
    /// Also print torchrun's own messages, which are otherwise folded into one line
    #[arg(long)]
    pub all: bool,
    /// Print lines without the rank
    #[arg(long)]
    pub no_prefix: bool,
    /// Print the time of each line before it
    #[arg(long)]
    pub timestamps: bool,
    /// `json` prints one object a line: {"step", "rank", "pod", "attempt", "time", "line"}
    #[command(flatten)]
    pub output: Output,
}

impl LogsArgs {
    pub fn which(&self) -> Which {
        which(self.attempt, self.previous)
    }
}

/// What `--attempt` and `--previous` ask for.
pub fn which(attempt: Option<Attempt>, previous: bool) -> Which {
    match attempt {
        Some(Attempt::All) => Which::All,
        Some(Attempt::Nth(n)) => Which::Nth(n),
        None if previous => Which::Previous,
        None => Which::Last,
    }
}

#[derive(Args, Debug)]
pub struct TopArgs {
    /// Name of a job [default: all jobs, a line for each]
    pub job: Option<String>,
    /// Print one table and end; the default if the output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Time between two tables: seconds, or with a unit (5s, 1m); at least 1s
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub interval: std::time::Duration,
    /// json and yaml: one list, an element for each pod
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct ExecArgs {
    /// Name of the job
    pub job: String,
    /// Where this rank runs [default: rank 0]
    #[arg(long, value_name = "N", conflicts_with = "step")]
    pub rank: Option<i64>,
    /// Where this step runs: node-0, dataset-initializer, …
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// Pass the input to the command
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Run the command in a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
#[command(override_usage = "trainyard cp [OPTIONS] JOB:PATH PATH\n       trainyard cp [OPTIONS] PATH JOB:PATH")]
pub struct CpArgs {
    /// File or folder to copy: a local path, or JOB:PATH. A relative PATH starts in the rank's working directory (laptop) or the
    /// container's (cluster)
    #[arg(value_name = "FROM")]
    pub from: String,
    /// Where to copy it; an existing folder receives the copy inside it
    #[arg(value_name = "TO")]
    pub to: String,
    /// The pod of this rank [default: rank 0]
    #[arg(long, value_name = "N", conflicts_with = "step")]
    pub rank: Option<i64>,
    /// The pod of this step: node-0, dataset-initializer, …
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
}

#[derive(Args, Debug)]
pub struct ShellArgs {
    /// Name of the job
    pub job: String,
    /// Where this rank runs [default: rank 0]
    #[arg(long, value_name = "N", conflicts_with = "step")]
    pub rank: Option<i64>,
    /// Where this step runs: node-0, dataset-initializer, …
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
}

/// How `metrics` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MetricsFormat {
    /// One line a metric: its last, least and greatest value, and its course
    #[default]
    Table,
    /// One line a report
    Wide,
    /// One line a report, for spreadsheets and plots
    Csv,
    Json,
    Yaml,
}

#[derive(Args, Debug)]
pub struct MetricsArgs {
    /// Name of the job; of several, to compare them
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Only this metric; may be repeated
    #[arg(long, value_name = "NAME")]
    pub metric: Vec<String>,
    /// Write the metrics for TensorBoard to DIR/JOB, replacing an earlier export
    #[arg(long, value_name = "DIR", conflicts_with = "output", value_hint = clap::ValueHint::DirPath)]
    pub tensorboard: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = MetricsFormat::Table)]
    pub output: MetricsFormat,
}

#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// File of objects, YAML or JSON; - for stdin; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug, Default)]
pub struct DeleteArgs {
    /// Names of jobs
    #[arg(required_unless_present_any = ["all", "finished", "older_than", "selector"], conflicts_with_all = ["all", "finished", "older_than", "selector"])]
    pub jobs: Vec<String>,
    /// Delete all jobs of the namespace
    #[arg(long)]
    pub all: bool,
    /// Delete the jobs that are complete or have failed
    #[arg(long)]
    pub finished: bool,
    /// Delete the jobs that were created longer ago than this: seconds, or with a unit (12h, 7d)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub older_than: Option<std::time::Duration>,
    /// Delete the jobs with these labels (NAME=VALUE,…)
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Do not ask before deleting jobs that flags choose
    #[arg(short, long)]
    pub yes: bool,
    /// Return before their pods are gone
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub output: Output,
}

impl DeleteArgs {
    /// Whether flags choose the jobs, rather than names.
    pub fn selects(&self) -> bool {
        self.all || self.finished || self.older_than.is_some() || self.selector.is_some()
    }
}

/// A state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    Complete,
    Failed,
    Running,
    Suspended,
    /// Complete or failed
    Finished,
    Deleted,
}

#[derive(Args, Debug)]
pub struct WaitArgs {
    /// Name of the job
    pub job: String,
    /// The state to wait for
    #[arg(long = "for", value_enum, default_value_t = WaitFor::Complete)]
    pub state: WaitFor,
    /// Give up after this long: seconds, or with a unit (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<std::time::Duration>,
    #[command(flatten)]
    pub output: Output,
}
