//! Man pages, made from the texts of `--help`.

use crate::args::Cli;
use crate::exit;
use crate::sky::tree;
use clap::CommandFactory;
use client::ClientError;
use std::path::Path;

/// Writes `trainyard.1` and one page for each command (`trainyard-run.1`, `trainyard-sky-launch.1`) into a folder, which is made if it is not there.
pub(crate) fn write(dir: &Path) -> Result<u8, ClientError> {
    let failed = |source| ClientError::Io { doing: "write man pages to", path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    // apart: the options of all commands are not options of sky's
    let mut sky = Cli::command().find_subcommand("sky").cloned().map(tree::in_place_of).unwrap_or_default();
    sky = sky.name("trainyard-sky").bin_name("trainyard sky");
    clap_mangen::generate_to(sky, dir).map_err(failed)?;
    Ok(exit::OK)
}
