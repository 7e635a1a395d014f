//! Man pages, generated from the texts of `--help`.

use crate::command::Cli;
use crate::sky;
use clap::CommandFactory;
use std::io;
use std::path::Path;

/// Writes `trainyard.1` and one page for each command (`trainyard-run.1`, `trainyard-sky-launch.1`) into a folder, which is made if it is
/// missing.
pub fn write(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    // separately, because the options of all commands do not apply to sky
    let in_place_of = |stub| sky::in_place_of(stub, &|_, arg| arg);
    let mut sky = Cli::command().find_subcommand("sky").cloned().map(in_place_of).unwrap_or_default();
    sky = sky.name("trainyard-sky").bin_name("trainyard sky");
    clap_mangen::generate_to(sky, dir)
}
