//! The control plane that holds clusters, as `sky` finds it.

use crate::{daemon, warn};
pub(super) use ::clusters::{Entries, Found, Show, Sky, user};
use client::{Choice, ClientError, Cluster, Home};
use std::io::Write as _;
use std::path::PathBuf;

/// The control plane that flags and environment lead to; it is started where it does not run.
pub(super) async fn connect() -> Result<Sky, ClientError> {
    Ok(daemon::cluster(&choice()).await?.into())
}

/// The same where it runs; nothing is started.
pub(super) async fn running() -> Option<Sky> {
    Some(Cluster::existing(&choice()).await.ok()?.into())
}

/// The control plane that the environment names: `sky` has no flags for it.
pub(super) fn choice() -> Choice {
    let home = std::env::var_os("TRAINYARD_HOME").filter(|home| !home.is_empty()).map(Into::into);
    Choice { home, warn, ..Choice::default() }
}

/// What OpenSSH knows of that control plane's clusters.
pub(super) fn entries() -> Entries {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let of = Home::find(choice().home.as_deref()).map(|of| of.root().display().to_string()).unwrap_or_default();
    Entries::of(home, &of)
}

/// Adds a cluster's machines to OpenSSH's configuration. A failure is printed only: the cluster works without it.
pub(super) async fn tell_ssh(sky: &Sky, found: &Found) -> Result<(), ClientError> {
    if let Err(why) = entries().write(sky, found).await? {
        eprintln!("`ssh {}` does not work: {why}", found.shown());
    }
    Ok(())
}

/// Prints the output of jobs, and notes beside it.
pub(super) const SHOW: Show<'static> = Show { line: &say, note: &|note| eprintln!("{note}") };

/// A line on the standard output; a reader that has gone is no error.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}
