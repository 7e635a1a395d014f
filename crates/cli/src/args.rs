//! Flags and subcommands.

use crate::runs::Which;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Run distributed training from one binary, on a laptop and on Kubernetes.
#[derive(Parser, Debug)]
#[command(name = "trainyard", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "The server is the first of these that is given: --kubeconfig or --context; --home or $TRAINYARD_HOME; \
$KUBECONFIG; this machine's control plane where it runs; ~/.kube/config. Without any, `run` starts this machine's control plane.

Exit codes: 0 done; 1 failed; 2 wrong use; 3 not found; 4 no control plane answers; 5 doctor found errors; 124 timed out; \
130 interrupted.\n`run` and `logs -f` return the exit code of the job's first failed process.";

/// The heading of the flags of all subcommands in `--help`.
const GLOBAL: &str = "Options of all commands";

/// Flags of all subcommands.
#[derive(Args, Debug, Clone)]
pub struct Global {
    /// Use the control plane of this machine that keeps its data in this folder [default: $XDG_DATA_HOME/trainyard]
    #[arg(long, global = true, help_heading = GLOBAL, env = "TRAINYARD_HOME", value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Use the cluster of this kubeconfig
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig (of $KUBECONFIG or ~/.kube/config without --kubeconfig) [default: its current one]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace [default: the context's, else "default"]
    #[arg(short, long, global = true, help_heading = GLOBAL, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Print details of what is done on stderr
    #[arg(short, long, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Output {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a script as a training job and follow it
    ///
    /// On this machine's control plane the script runs where it lies, in the current folder. To a cluster it is sent, alone or with
    /// its folder (--workdir, or a folder instead of SCRIPT), in a ConfigMap that is mounted at /mnt/trainyard and goes with the job.
    ///
    /// Prints the log lines of all ranks and returns the exit code of the first process that failed. Ctrl-C suspends the job.
    Run(Box<RunArgs>),
    /// Write a commented job.yaml for a script, to start from
    ///
    /// The file is for kubectl: here as it is, on a cluster with an image. The runtime is chosen by what the script imports; `plain`,
    /// which clusters lack, is written to runtime.yaml.
    Init(InitArgs),
    /// List jobs, or show one
    Get(GetArgs),
    /// Show everything about a job: settings, pods, events, and why it is pending or failed
    Describe(JobArgs),
    /// Show why a job waits, fails or does not get on, with evidence and the next command to type
    ///
    /// Looks at the job, its pods, their events and the ends of their logs. `-o json` prints {state, reason, why, rank, evidence:
    /// [{source, text}], ruled_out, remedies: [{text, command}]}; the reasons are in docs/reasons.md.
    Explain(JobArgs),
    /// Print a job's logs, of all ranks and any attempt, also when it has ended
    Logs(LogsArgs),
    /// Show what jobs use at present: CPUs, memory, GPUs, disk, network; of one job by rank
    Top(TopArgs),
    /// Run a command in a running job, where one of its ranks runs
    ///
    /// Returns the command's exit code. The command sees the container's files and environment.
    Exec(ExecArgs),
    /// Open a shell in a running job, where one of its ranks runs
    Shell(ShellArgs),
    /// Show the progress and metrics that a job reported, from start to end
    Metrics(MetricsArgs),
    /// Delete jobs, with their pods
    Delete(DeleteArgs),
    /// Stop a job's pods but keep the job
    Suspend(JobArgs),
    /// Start a suspended job's pods again
    Resume(JobArgs),
    /// Wait until a job reaches a state
    Wait(WaitArgs),
    /// List the runtimes that jobs can use
    Runtimes(ListArgs),
    /// List jobs that wait: what is ahead of each, and what would let it run
    ///
    /// Compares what pods without a node need with what the nodes have left; of jobs that Kueue holds back, tells what Kueue says.
    Queue(ListArgs),
    /// List searches for parameters (OptimizationJobs), or the trials of one
    Trials(TrialsArgs),
    /// Start the control plane on this machine
    Up(UpArgs),
    /// Stop the control plane (running jobs go on)
    Down(DownArgs),
    /// Show whether the control plane runs, and where it listens
    Status(ListArgs),
    /// Write this machine's control plane to a file: its objects, keys, and what jobs left
    ///
    /// Also while it runs: the file holds all objects as of one moment, and writes go on. What runs is no part of it. The file holds
    /// the keys and tokens of the home; only its owner may read it.
    Backup(BackupArgs),
    /// Put a backup in the place of what this machine's control plane holds
    ///
    /// Refused while a control plane runs, and over one's data without --force. Jobs come back as they were when the backup was made;
    /// of those that run by then, `up` ends what the backup does not know.
    Restore(RestoreArgs),
    /// Print the path of the kubeconfig of this machine's control plane
    Kubeconfig(KubeconfigArgs),
    /// Check whether jobs can run on a cluster, and say what to do where they cannot
    ///
    /// Looks at versions, kinds (CustomResourceDefinitions), rights (yours and the operator's), webhooks, controllers, runtimes, and
    /// at jobs that do not move; with -n at jobs of that namespace alone. It only reads: one TrainJob is sent as a dry run, to see
    /// whether admission answers. What you may not see is `unknown`, with the right that it needs.
    ///
    /// Exit code 5 when there are errors, 0 with warnings, 4 when no server answers.
    Doctor(DoctorArgs),
    /// Print the completion script of a shell: commands, flags, names of jobs and runtimes
    ///
    /// `make install` and the .deb put it where the shells look for it. By hand: `source <(trainyard completions bash)` in ~/.bashrc,
    /// the same with zsh in ~/.zshrc, `trainyard completions fish | source` in ~/.config/fish/config.fish.
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man(ManArgs),
    /// Run the controllers and webhooks on a Kubernetes cluster, in place of Kubeflow Trainer's
    Operator(Box<crate::operator_args::OperatorArgs>),
    /// Keeps one pod alive (started by the node agent)
    #[command(hide = true, disable_help_flag = true)]
    Shim(ShimArgs),
}

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
    /// Run again whenever a source file of --workdir changes, or beside the script without it; the job before is deleted.
    /// Ctrl-C ends
    #[arg(long, conflicts_with_all = ["detach", "sweep"])]
    pub watch: bool,
    /// Search: try each of these values, in every combination with other --sweep flags. A parameter is an argument of the script
    /// (--NAME=VALUE, or where the arguments say {NAME}), one in capitals is a variable
    #[arg(long, value_name = "NAME=VALUE,VALUE…", requires = "objective")]
    pub sweep: Vec<String>,
    /// The metric that a search is for, as the script reports it, and which way is better [default: min]
    #[arg(long, value_name = "METRIC[:min|max]", requires = "sweep")]
    pub objective: Option<String>,
    /// Trials of a search that run at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sweep", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub parallel_trials: i32,
    /// Do not look whether the job can run (interpreter, framework, syntax, names, resources) before it is created
    #[arg(long)]
    pub no_checks: bool,
    /// Fork the processes from one that has imported torch already; remembered for this folder until --no-warm
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
    /// The script to run, or a folder with a __main__.py, main.py or train.py; all that follows is its arguments. Programs and
    /// shell scripts run as well, and with --runtime plain commands of the PATH
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
    /// Write over files that exist
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct GetArgs {
    /// Name of a job
    pub job: Option<String>,
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct JobArgs {
    /// Name of the job
    pub job: String,
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
    /// Go on until the job ends, and return its exit code
    #[arg(short, long)]
    pub follow: bool,
    /// Only this rank
    #[arg(long, value_name = "N", conflicts_with = "step")]
    pub rank: Option<i64>,
    /// Only this step: node-0, dataset-initializer, …
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// Attempt N of each rank: its Nth start, from 1, whether its container, its pod or the job was started again; or `all`
    /// [default: the last]
    #[arg(long, value_name = "N|all", value_parser = attempt, conflicts_with = "follow")]
    pub attempt: Option<Attempt>,
    /// The attempt before the last of each rank
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
    /// What torchrun says of itself, too; else it is folded into one line
    #[arg(long)]
    pub all: bool,
    /// Print the lines alone, without rank
    #[arg(long)]
    pub no_prefix: bool,
    /// `json` prints one object a line: {"step", "rank", "pod", "attempt", "time", "line"}
    #[command(flatten)]
    pub output: Output,
}

/// Which attempts to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    All,
    Nth(i64),
}

impl LogsArgs {
    pub(crate) fn which(&self) -> Which {
        match self.attempt {
            Some(Attempt::All) => Which::All,
            Some(Attempt::Nth(n)) => Which::Nth(n),
            None if self.previous => Which::Previous,
            None => Which::Last,
        }
    }
}

fn attempt(text: &str) -> Result<Attempt, String> {
    match text.parse::<i64>() {
        Ok(n @ 1..) => Ok(Attempt::Nth(n)),
        _ if text == "all" => Ok(Attempt::All),
        _ => Err("attempts are counted from 1; or `all`".to_owned()),
    }
}

/// A time, or how long ago.
fn since(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = duration(text)
        .map_err(|_| format!("{text:?} is neither a time (2026-01-02T03:04:05Z) nor a duration (10m)"))?;
    jiff::Timestamp::now().checked_sub(ago).map_err(|error| error.to_string())
}

#[derive(Args, Debug)]
pub struct TopArgs {
    /// Name of a job [default: all jobs, a line for each]
    pub job: Option<String>,
    /// Print one table and end, as where the output is no terminal
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
    /// Pass our input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Run it in a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
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
    /// Name of the job
    pub job: String,
    /// Only this metric; may be repeated
    #[arg(long, value_name = "NAME")]
    pub metric: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = MetricsFormat::Table)]
    pub output: MetricsFormat,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Names of jobs
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Return before their pods are gone
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub output: Output,
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

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// How long a job may stand still before it is reported: seconds, or with a unit (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub stuck_after: std::time::Duration,
    /// json and yaml: a list of {"severity": ok|unknown|warning|error, "check", "object", "message", "remedy"}
    #[command(flatten)]
    pub output: Output,
}

/// Where the status server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusServerAt {
    /// There is none, and pods are told of none.
    Nowhere,
    Address(SocketAddr),
}

impl FromStr for StatusServerAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        let wrong = |_| format!("{text:?} is neither ADDRESS:PORT (127.0.0.1:10443, [::1]:0) nor none");
        text.parse().map(Self::Address).map_err(wrong)
    }
}

impl fmt::Display for StatusServerAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct UpArgs {
    /// Where the API listens
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR:PORT")]
    pub listen: String,
    /// Return once it is ready; it goes on in the background
    #[arg(long, short)]
    pub detach: bool,
    /// Do not run pods on this machine
    #[arg(long)]
    pub no_node: bool,
    /// Which controllers to run: all, none, or names with commas
    #[arg(long, default_value = "all", value_name = "all|none|NAME,…")]
    pub controllers: String,
    /// Take progress from training code here, and tell pods so (Kubeflow's feature gate TrainJobStatus), or `none`
    /// [default: a free port of 127.0.0.1, the same at each start; with --no-node none]
    #[arg(long, value_name = "ADDR:PORT|none")]
    pub status_server: Option<StatusServerAt>,
    /// Administrator's token instead of a generated one (for tests; a generated one is safer)
    #[arg(long, env = "TRAINYARD_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Record here who asked for what, and how it was answered: lines of JSON (audit.k8s.io/v1, level Metadata), mode 0600;
    /// at 64 MiB it becomes FILE.1, and four such are kept
    #[arg(long, env = "TRAINYARD_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Let in who has a certificate of these authorities (PEM), beside this control plane's own: the common name is the
    /// user, organisations are groups
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct KubeconfigArgs {
    /// Print a kubeconfig for this user instead, with a certificate signed by this machine's control plane; what the user may do
    /// is for RBAC to say
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The user's group
    #[arg(long, value_name = "NAME", requires = "user")]
    pub group: Option<String>,
    /// Days that the certificate is good for
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650), requires = "user")]
    pub days: u16,
}

#[derive(Args, Debug)]
pub struct BackupArgs {
    /// The file to write
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Leave out the logs and reports of jobs, which may be large
    #[arg(long)]
    pub no_history: bool,
    /// Write over a file that exists
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct RestoreArgs {
    /// The file that `trainyard backup` wrote
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Replace the data that is there
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct DownArgs {
    #[command(flatten)]
    pub output: Output,
}

/// A shell that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where they go
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Args, Debug)]
pub struct ShimArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<std::ffi::OsString>,
}

/// A duration of at least a second: nobody measures more often.
fn interval(text: &str) -> Result<std::time::Duration, String> {
    let least = std::time::Duration::from_secs(1);
    duration(text).and_then(|asked| if asked < least { Err("at least 1s".to_owned()) } else { Ok(asked) })
}

/// `90`, `90s`, `10m`, `2h`, `1d`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let (number, scale) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        Some((at, 'd')) => (&text[..at], 86400.0),
        _ => (text, 1.0),
    };
    let secs: f64 = number.parse().map_err(|_| format!("{text:?} is not a duration: try 90s, 10m or 2h"))?;
    std::time::Duration::try_from_secs_f64(secs * scale).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_script_are_its_own() {
        // also where we have a flag of that name
        let words = ["train.py", "--epochs", "3", "-o", "x", "--name", "n", "--help", "-v"];
        for first in [&words[..], &[&["train.py"], &words[5..]].concat()[..]] {
            let cli = Cli::parse_from([&["trainyard", "run", "--nodes", "2"], first].concat());
            let Command::Run(run) = cli.command else { panic!("{cli:?}") };
            assert_eq!((run.nodes, run.name.as_deref()), (Some(2), None));
            assert_eq!(run.script(), Path::new("train.py"));
            assert_eq!(run.script_args(), &first[1..]);
        }
        assert!(Cli::try_parse_from(["trainyard", "run"]).is_err());
        assert!(Cli::try_parse_from(["trainyard", "run", "--node", "2", "train.py"]).is_err(), "our own typo");
    }

    #[test]
    fn a_status_server_is_told_as_it_is_printed() {
        for text in ["none", "127.0.0.1:10443", "[::1]:0"] {
            assert_eq!(text.parse::<StatusServerAt>().map(|at| at.to_string()), Ok(text.to_owned()));
        }
        assert!("localhost".parse::<StatusServerAt>().unwrap_err().contains("nor none"));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90"), Ok(std::time::Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(std::time::Duration::from_secs(7200)));
        assert!(duration("soon").is_err());
        assert!(duration("-1s").is_err());
    }
}
