//! The command line: every command with its flags. The doc comments are the texts of `--help` and of the man pages.

use crate::global::Global;
use crate::jobs::*;
use crate::machine::*;
use crate::mpi::{MpiJobArgs, OdhArgs};
use crate::operator::OperatorArgs;
use clap::{Parser, Subcommand};

/// Run distributed training from one binary, on a laptop and on Kubernetes.
#[derive(Parser, Debug)]
#[command(name = "trainyard", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Commands use the first server of this list that exists: --kubeconfig or --context; --home or $TRAINYARD_HOME; \
$KUBECONFIG; this machine's control plane if it runs; ~/.kube/config. If there is none, `run` starts this machine's control plane.

Exit codes: 0 done; 1 failed; 2 wrong use; 3 not found; 4 no control plane answers; 5 doctor found errors; 124 timed out; \
130 interrupted. An error has a code (`error[TY0101]`); `trainyard explain TY0101` says what it means and what to do.\n`run` and `logs -f` return the exit code of the job's first failed process.";

/// What is typed after `trainyard`, by what it needs. The order of all commands in `--help` is `display_order`.
#[derive(Subcommand, Debug)]
pub enum Command {
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Local(LocalCommand),
    #[command(flatten)]
    Server(ServerCommand),
    /// Keeps one pod alive (started by the node agent)
    #[command(hide = true, disable_help_flag = true, display_order = 39)]
    Shim(ShimArgs),
}

/// Needs a control plane that runs.
#[derive(Subcommand, Debug)]
pub enum ClientCommand {
    /// List jobs, or show one
    #[command(display_order = 2)]
    Get(GetArgs),
    /// Show everything about a job: settings, pods, events, and why it is pending or failed
    #[command(display_order = 3)]
    Describe(JobArgs),
    /// Show why a job waits, fails or makes no progress, or what an error code means
    ///
    /// For a JOB: reads the job, its pods, their events and the ends of their logs; prints the reason, the evidence and the next command
    /// to type. `-o json` prints {state, reason, code, why, rank, evidence: [{source, text}], ruled_out, remedies: [{text, command}]},
    /// and `warnings` where settings do not do what one expects.
    ///
    /// For a CODE (TY0101): prints its page: what happened, why, what to do, and an example. No server is needed. The pages are also in
    /// docs/errors.
    #[command(display_order = 4)]
    Explain(ExplainArgs),
    /// Print a job's logs, of all ranks and any attempt, also when it has ended
    #[command(display_order = 5)]
    Logs(LogsArgs),
    /// Show the CPUs, memory, GPUs, disk and network that jobs use now; of one job by rank
    #[command(display_order = 6)]
    Top(TopArgs),
    /// Run a command in a running job, where one of its ranks runs
    ///
    /// Returns the command's exit code. The command sees the container's files and environment.
    #[command(display_order = 7)]
    Exec(ExecArgs),
    /// Copy files and folders from or to the pod of a running rank
    #[command(display_order = 8)]
    Cp(CpArgs),
    /// Open a shell in a running job, where one of its ranks runs
    #[command(display_order = 9)]
    Shell(ShellArgs),
    /// Show the progress and metrics that a job reported, from start to end
    #[command(display_order = 10)]
    Metrics(MetricsArgs),
    /// Create or change the objects of manifests, as `kubectl apply --server-side` does
    #[command(display_order = 11)]
    Apply(ApplyArgs),
    /// Delete jobs, by name or by flags, with their pods
    #[command(display_order = 12)]
    Delete(DeleteArgs),
    /// Stop jobs' processes but keep the jobs; waits until the processes have ended
    #[command(display_order = 13)]
    Suspend(SuspendArgs),
    /// Start suspended jobs again, once the processes of their last run have ended
    #[command(display_order = 14)]
    Resume(ResumeArgs),
    /// Wait until a job reaches a state
    #[command(display_order = 15)]
    Wait(WaitArgs),
    /// List the runtimes that jobs can use
    #[command(display_order = 20)]
    Runtimes(ListArgs),
    /// List jobs that wait: what is ahead of each, and what would let it run
    ///
    /// Compares what pods without a node need with what the nodes have free. For jobs that Kueue holds back, it shows Kueue's reason.
    #[command(display_order = 21)]
    Queue(ListArgs),
    /// List searches for parameters (OptimizationJobs), or the trials of one
    #[command(display_order = 22)]
    Trials(TrialsArgs),
}

/// Needs no control plane, or finds or starts its own.
#[derive(Subcommand, Debug)]
pub enum LocalCommand {
    /// Run a script as a training job and follow it
    ///
    /// On this machine the script runs in the current folder. To a cluster `run` sends the script, alone or with
    /// its folder (--workdir, or a folder instead of SCRIPT), in a ConfigMap that is mounted at /mnt/trainyard and deleted with the job.
    ///
    /// Prints the log lines of all ranks and returns the exit code of the first process that failed. Ctrl-C suspends the job.
    #[command(display_order = 0)]
    Run(Box<RunArgs>),
    /// Write a commented job.yaml for a script, to start from
    ///
    /// kubectl can apply the file here as it is, and on a cluster once it names an image. `init` chooses the runtime by what the script
    /// imports. Clusters do not have the runtime `plain`, so it is written to runtime.yaml.
    #[command(display_order = 1)]
    Init(InitArgs),
    /// MPIJobs: create, get, describe, logs, delete, suspend, resume, wait, scale
    #[command(alias = "mpijobs", display_order = 16)]
    Mpijob(Box<MpiJobArgs>),
    /// What `kubectl odh` and `oc odh` have
    #[command(hide = true, display_order = 17)]
    Odh(OdhArgs),
    /// SkyPilot's commands: clusters on this machine (`launch`, `exec`, `status`…), which machine a task file would get (`launch --dryrun`, `explain`), GPUs and prices (`gpus list`)
    ///
    /// A link of the name `sky` to this program is the same. `trainyard sky -h` lists the commands, `trainyard sky launch -h` its options.
    /// Price lists are read from ~/.sky/catalogs/v8 or from the folder that --catalog names; `trainyard sky catalog import` says what to fetch.
    #[command(disable_help_flag = true, display_order = 18)]
    Sky(SkyArgs),
    /// Let kubectl and oc find us as their plugin `odh`
    #[command(display_order = 19)]
    Plugin(PluginArgs),
    /// Stop the control plane (running jobs go on)
    #[command(display_order = 25)]
    Down(DownArgs),
    /// Show whether the control plane runs, and where it listens
    #[command(display_order = 26)]
    Status(ListArgs),
    /// Open the dashboard of this machine's control plane in a browser
    ///
    /// Starts the control plane if it does not run. Prints an address that signs you in. The address works once, within a minute. If no
    /// browser opens, open the address yourself.
    #[command(display_order = 26)]
    Dashboard(DashboardArgs),
    /// List old, unused files, records and processes on this machine, and remove them after you confirm
    ///
    /// Kinds: facts about Pythons that `run` caches; repositories fetched for `workdir`; databases that a restore replaced; files of killed
    /// SSH connections. While the control plane runs, also logs and metrics of jobs that are gone, and records of removed clusters. While
    /// none runs, also idle processes of warm starts. The logs of a job that exists are never listed: `delete --finished` removes finished
    /// jobs with their logs.
    #[command(display_order = 30)]
    Clean(CleanArgs),
    /// Print the completion script of a shell: commands, flags, names of jobs and runtimes
    ///
    /// It also completes `sky`, if that is a link to trainyard.
    /// `make install` and the .deb install it. To load it yourself: `source <(trainyard completions bash)` in ~/.bashrc,
    /// the same with zsh in ~/.zshrc, `trainyard completions fish | source` in ~/.config/fish/config.fish.
    #[command(display_order = 33)]
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(hide = true, display_order = 34)]
    Man(ManArgs),
}

/// Needs the parts of a server, a node or an initializer, which the binary has.
#[derive(Subcommand, Debug)]
pub enum ServerCommand {
    /// Start the control plane on this machine
    #[command(display_order = 23)]
    Up(UpArgs),
    /// Run pods on this machine for an API server on another one
    ///
    /// Connects to the server of --kubeconfig, a file that its owner alone may read (`trainyard kubeconfig --node NAME` prints it on the
    /// server's machine), and keeps that connection open: logs and commands of pods come over it, and no port is opened here. Pods go on
    /// when the agent ends or the connection is lost; the next agent with the same folder takes them over.
    #[command(display_order = 24)]
    Node(NodeArgs),
    /// Write this machine's control plane to a file: its objects, keys, and what jobs left
    ///
    /// The control plane may run meanwhile: the file holds all objects as of one moment. It does not contain running processes. It
    /// contains the keys and tokens of the home, so only its owner may read it.
    #[command(display_order = 27)]
    Backup(BackupArgs),
    /// Replace the data of this machine's control plane with a backup
    ///
    /// Stop the control plane first. --force is needed to replace existing data. Jobs are then as they were when the backup was made,
    /// and the next `up` ends running pods that the backup does not know.
    #[command(display_order = 28)]
    Restore(RestoreArgs),
    /// List stored objects that were damaged on disk and set aside, or drop them
    ///
    /// Each stored object has a checksum. One whose checksum is wrong at a start is set aside: it is not served, and /readyz and `doctor`
    /// name it until it is written again or dropped here. Works with a control plane that runs and, on its files, with one that does not.
    #[command(display_order = 29)]
    Damaged(DamagedArgs),
    /// Print the path of the kubeconfig of this machine's control plane
    #[command(display_order = 31)]
    Kubeconfig(KubeconfigArgs),
    /// Print a configuration for Prometheus that scrapes this machine's control plane
    ///
    /// Writes the token and the authority's certificate that the configuration names into a folder. The token's user may read /metrics
    /// and nothing else.
    #[command(display_order = 31)]
    PrometheusConfig(PrometheusConfigArgs),
    /// Check whether jobs can run on a cluster, and say what to do where they cannot
    ///
    /// Checks versions, kinds (CustomResourceDefinitions), rights (yours and the operator's), webhooks, controllers, runtimes, and
    /// jobs that stand still; with -n only jobs of that namespace. It changes nothing: one TrainJob is sent as a dry run, to see
    /// whether admission answers. A finding is `unknown` if you lack the right to look; the finding names the right.
    ///
    /// Exit code 5 when there are errors, 0 with warnings, 4 when no server answers.
    #[command(display_order = 32)]
    Doctor(DoctorArgs),
    /// Run the controllers and webhooks on a Kubernetes cluster, in place of Kubeflow Trainer's
    #[command(display_order = 35)]
    Operator(Box<OperatorArgs>),
    /// Fill a folder with a data set or a model: from a hub, an object store, a web server or a folder
    ///
    /// What upstream's initializers do, with their variables (STORAGE_URI, ACCESS_TOKEN, ENDPOINT, IGNORE_PATTERNS, …): many streams,
    /// each file verified, and after a crash it goes on where it was. Locations: hf://OWNER/NAME[@REVISION], s3://BUCKET/PREFIX,
    /// gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, http(s)://…[#sha256=…], file:///PATH.
    ///
    /// Exit codes: 0 done; 1 other; 2 bad location, pattern or variable; 3 not found; 4 no access; 5 damaged at the source, or with
    /// --verify not as the source has it; 6 no room; 7 the network gave up; 143 stopped by a signal.
    #[command(display_order = 36)]
    Initialize(InitializeArgs),
    /// Wait until the workers of an MPIJob answer by SSH (what a launcher's pod runs first)
    ///
    /// Resolves each host of the hostfile, but its own, and reads an SSH server's greeting from it. Exit codes: 0 all have answered;
    /// 1 some have not, and the last line says which and why; 143 stopped by a signal.
    #[command(hide = true, display_order = 37)]
    MpiWait(MpiWaitArgs),
    /// Send requests to the replicas of a service (started in the service's own pod)
    #[command(hide = true, display_order = 38)]
    Balance(BalanceArgs),
    /// Make a port of this machine's loopback lead to the other end of the standard streams (started in pods that hold machines)
    #[command(hide = true, display_order = 38)]
    Relay(RelayArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::path::Path;

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
            let Command::Local(LocalCommand::Run(run)) = cli.command else { panic!("{cli:?}") };
            assert_eq!((run.nodes, run.name.as_deref()), (Some(2), None));
            assert_eq!(run.script(), Path::new("train.py"));
            assert_eq!(run.script_args(), &first[1..]);
        }
        assert!(Cli::try_parse_from(["trainyard", "run"]).is_err());
        assert!(Cli::try_parse_from(["trainyard", "run", "--node", "2", "train.py"]).is_err(), "our own typo");
    }
}
