//! Flags of the commands about this machine: its control plane, what is installed on it, folders to fill.

use crate::output::Output;
use crate::values::{duration, mpi_profile, pair};
use api::config::MpiProfile;
use clap::{Args, Subcommand, ValueEnum};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// How long a job may stand still before it is reported: seconds, or with a unit (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub stuck_after: std::time::Duration,
    /// json and yaml: a list of {"severity": ok|unknown|warning|error, "code", "check", "object", "message", "remedy"}
    #[command(flatten)]
    pub output: Output,
}

/// Where a server listens that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAt {
    /// There is none.
    Nowhere,
    Address(SocketAddr),
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        let wrong = |_| format!("{text:?} is neither ADDRESS:PORT (127.0.0.1:10443, [::1]:0) nor none");
        text.parse().map(Self::Address).map_err(wrong)
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct UpArgs {
    /// Address at which the API listens; port 0 is a free port, the same at each start
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR:PORT")]
    pub listen: String,
    /// Return as soon as it is ready, and keep it running in the background
    #[arg(long, short)]
    pub detach: bool,
    /// Leave the terminal and the session of who started it (what `--detach` gives its background process)
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub own_session: bool,
    /// Do not run pods on this machine
    #[arg(long)]
    pub no_node: bool,
    /// Which controllers to run: all, none, or names with commas
    #[arg(long, default_value = "all", value_name = "all|none|NAME,…")]
    pub controllers: String,
    /// What MPIJobs' pods have beyond mpi-operator's: nothing, or what OpenShift AI asks for (docs/mpijob.md)
    #[arg(long, value_name = "PROFILE", default_value = "upstream", value_parser = mpi_profile())]
    pub mpi_profile: MpiProfile,
    /// Address at which training code reports its progress (Kubeflow's feature gate TrainJobStatus), which pods are given; or `none`
    /// [default: a free port of 127.0.0.1, the same at each start; with --no-node none]
    #[arg(long, value_name = "ADDR:PORT|none")]
    pub status_server: Option<ListenAt>,
    /// Address at which the dashboard listens, on this machine's loopback alone; or `none`. `trainyard dashboard` opens it
    /// [default: a free port of 127.0.0.1, the same at each start]
    #[arg(long, value_name = "ADDR:PORT|none")]
    pub dashboard: Option<ListenAt>,
    /// Administrator's token instead of a generated one (for tests; a generated one is safer). In the environment other users do
    /// not see it; given here it leaves the arguments as soon as the program has started
    #[arg(long, env = "TRAINYARD_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Audit log of all requests: lines of JSON (audit.k8s.io/v1, level Metadata), mode 0600; at 64 MiB the file becomes FILE.1, and
    /// four such files are kept
    #[arg(long, env = "TRAINYARD_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Also accept client certificates of these authorities (PEM): the common name is the user, organisations are groups
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct DashboardArgs {
    /// Print the address, but open no browser
    #[arg(long)]
    pub no_open: bool,
    /// json: {"url", "expiresInSeconds"}
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct KubeconfigArgs {
    /// Print a kubeconfig for this user, with a certificate signed by this machine's control plane; RBAC grants the user's rights
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The user's group
    #[arg(long, value_name = "NAME", requires = "user")]
    pub group: Option<String>,
    /// Print the kubeconfig of the agent of this node (`trainyard node` on another machine); the Node object is made if it is missing, and
    /// the token is worth nothing once it is deleted
    #[arg(long, value_name = "NAME", conflicts_with = "user")]
    pub node: Option<String>,
    /// The address of the API server as that machine reaches it [default: the one at which it listens]
    #[arg(long, value_name = "https://HOST:PORT", requires = "node")]
    pub server: Option<String>,
    /// Days for which the certificate or the token is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,
}

#[derive(Args, Debug)]
pub struct PrometheusConfigArgs {
    /// Where the token and the authority's certificate are written, for its owner alone [default: prometheus in the home]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Days for which the token is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,
}

#[derive(Args, Debug)]
pub struct NodeArgs {
    /// Where the agent keeps its pods; made if it is missing, for its owner alone
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub data: PathBuf,
    /// The node's name [default: the one that the kubeconfig's user system:node:NAME has]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The machine's address, which its Node object shows [default: the first one that is not a loopback address]
    #[arg(long, value_name = "IP")]
    pub address: Option<std::net::Ipv4Addr>,
    /// Labels of the Node object, beside those that are found
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Taints of effect NoSchedule, with which the Node object is made
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', value_parser = pair)]
    pub taints: Vec<(String, String)>,
    /// Resources of the node instead of what is found (cpu=4)
    #[arg(long, value_name = "NAME=AMOUNT,…", value_delimiter = ',', value_parser = pair)]
    pub capacity: Vec<(String, String)>,
    /// Instead: end the agent that runs with this folder, and all its pods
    #[arg(long, conflicts_with = "end")]
    pub stop: bool,
    /// Instead: end the agent that runs with this folder, and all its pods, and remove the folder
    #[arg(long)]
    pub end: bool,
}

#[derive(Args, Debug)]
pub struct BackupArgs {
    /// The file to write
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Leave out the logs and reports of jobs, which may be large
    #[arg(long)]
    pub no_history: bool,
    /// Overwrite an existing file
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
    /// Replace existing data
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct DamagedArgs {
    /// Drop these for ever, named as they are listed [with -n: of this namespace]
    #[arg(long, value_name = "RESOURCE/NAME", num_args = 1.., conflicts_with = "all")]
    pub forget: Vec<String>,
    /// Drop all of them for ever [with -n: of this namespace]
    #[arg(long)]
    pub all: bool,
    /// json and yaml: {"items" or, of what was dropped, "forgotten": [{"bucket", "namespace", "name", "revision", "why"}]}
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct CleanArgs {
    /// List only items older than this: seconds, or with a unit (12h, 7d)
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = duration)]
    pub older_than: std::time::Duration,
    /// Remove the listed items without asking
    #[arg(short, long)]
    pub yes: bool,
    /// json and yaml: {"items": [{"kind", "name", "bytes", "ageSeconds", "files"}], "removed"}; removed: true if every item was
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
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Subcommand, Debug)]
pub enum PluginCommand {
    /// Make the links `kubectl-odh`, `oc-odh` and, for completion, `kubectl_complete-odh`
    ///
    /// Files that are not ours are left alone, and said.
    Install(PluginInstallArgs),
}

#[derive(Args, Debug)]
pub struct PluginInstallArgs {
    /// Where the links go; kubectl looks for them on the PATH [default: where trainyard is]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where they go
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// What a folder is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InitializeKind {
    Dataset,
    Model,
}

/// How the outcome of `initialize` is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InitializeFormat {
    #[default]
    Text,
    Json,
}

#[derive(Args, Debug)]
pub struct InitializeArgs {
    #[arg(value_enum)]
    pub kind: InitializeKind,
    /// Where the data are; several may be given [default: $STORAGE_URI]
    #[arg(long, value_name = "URI")]
    pub uri: Vec<String>,
    /// The folder to fill [default: /workspace/dataset or /workspace/model]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Only print what would be fetched
    #[arg(long)]
    pub dry_run: bool,
    /// Only compare the folder with its source, byte for byte where the source tells a checksum
    #[arg(long, conflicts_with = "dry_run")]
    pub verify: bool,
    /// Fail and write nothing if a name cannot be a file [default: skip that file; $STRICT]
    #[arg(long)]
    pub strict: bool,
    /// json: {files: [{path, size, state}], bytes, bytesFetched, seconds, leftOut} on stdout
    #[arg(short, long, value_enum, default_value_t)]
    pub output: InitializeFormat,
}

#[derive(Args, Debug)]
pub struct BalanceArgs {
    /// The Serving whose replicas get the requests
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Args, Debug)]
pub struct RelayArgs {
    /// The port, where it is to be had; the first line that is printed says which it is
    #[arg(value_name = "PORT", default_value_t = 0)]
    pub port: u16,
}

#[derive(Args, Debug)]
pub struct MpiWaitArgs {
    /// The hosts to wait for; read again in each round
    #[arg(long, value_name = "FILE", default_value = "/etc/mpi/hostfile")]
    pub hostfile: PathBuf,
    /// A port on which an SSH server may listen; several may be given, and one that answers will do
    #[arg(long, value_name = "PORT", default_values_t = [22, 2222])]
    pub port: Vec<u16>,
    /// How long to wait in all
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub timeout: std::time::Duration,
}

#[derive(Args, Debug)]
pub struct ShimArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<std::ffi::OsString>,
}

#[derive(Args, Debug)]
pub struct SkyArgs {
    /// A command of SkyPilot's and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_server_is_told_as_it_is_printed() {
        for text in ["none", "127.0.0.1:10443", "[::1]:0"] {
            assert_eq!(text.parse::<ListenAt>().map(|at| at.to_string()), Ok(text.to_owned()));
        }
        assert!("localhost".parse::<ListenAt>().unwrap_err().contains("nor none"));
    }
}
