//! Flags of all commands.

use clap::Args;
use std::path::PathBuf;

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
    /// Print details on stderr
    #[arg(short, long, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Called by kubectl or oc, whose choice of a cluster goes before ours.
    #[arg(skip)]
    pub plugin: bool,
}
