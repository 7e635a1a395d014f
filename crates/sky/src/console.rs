//! What `sky` commands print, as values: the command line and what a machine knows go in, texts and an exit code come out.

mod explain;
mod gpus;
mod hosts;
mod jobs;
mod launch;
mod options;
mod serving;
mod source;
mod table;
mod times;
mod usable;
mod variables;
mod window;

pub use hosts::Host;
pub use jobs::{JobColumns, JobRow, going_on, jobs_table, wrong_choice};
pub use launch::{NameError, Planned, Prepared, PreparedJob, check_name, planned, prepared, prepared_job};
pub use serving::{ReplicaRow, ServedKind, ServiceRow, served_table};
pub use source::Source;
pub use table::{plain, ruled};
pub use window::{Submitted, WindowError};

use placement::{Catalogue, Cloud, FreeNode};

use crate::check::PathKind;
use crate::commands::{Call, Command, Parsed, UsageError, commands, parse};
use crate::error::TaskError;

/// SkyPilot's version that is met.
const VERSION: &str = "0.14.1";
/// Where SkyPilot's price lists are to be had.
const PRICE_LISTS: &str = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8";

/// A place that was tried for `sky check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its name in `infra`.
    pub place: String,
    pub is_usable: bool,
    /// What was seen, or why it cannot be used.
    pub said: String,
}

/// What a machine knows.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    /// Price lists.
    pub catalogue: &'a Catalogue,
    /// Where they were looked for.
    pub catalogue_folder: &'a str,
    /// Clouds that may be used, in the order in which they are tried.
    pub enabled: &'a [Cloud],
    /// Clouds where machines are made; of the others prices are shown.
    pub makes: &'a [Cloud],
    /// Machines that are there already: this one, those of SSH pools, and nodes of Kubernetes clusters.
    pub nodes: &'a [FreeNode],
    /// GPUs of such machines, for commands that list them.
    pub hosts: &'a [Host],
    /// SSH pools by name.
    pub pools: &'a [String],
    /// Contexts of the kubeconfig.
    pub contexts: &'a [String],
    /// Why a place that is set up is of no use: its name in `infra`, and the reason.
    pub unusable: &'a [(String, String)],
    /// Places that were tried for `sky check`.
    pub tried: &'a [Tried],
    /// The text of a file.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
    /// What a path is.
    pub path: &'a dyn Fn(&str) -> PathKind,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The name of a cluster that is given none.
    pub cluster: &'a str,
}

/// What a command prints, and its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// To the standard output.
    pub out: String,
    /// To the standard error.
    pub err: String,
    /// Behind that: what SkyPilot does not say, such as where in its file a mistake is.
    pub note: String,
    /// The exit code.
    pub code: u8,
}

impl Printed {
    /// A line on the standard output.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// With a line on the standard error, and this exit code.
    pub fn fail(mut self, code: u8, text: impl AsRef<str>) -> Self {
        self.err.push_str(text.as_ref());
        self.err.push('\n');
        self.code = code;
        self
    }

    fn refused(mut self, error: &TaskError) -> Self {
        if let Some(hint) = &error.hint {
            self.add_note(hint);
        }
        let module = if error.class.is_pythons() { "" } else { "sky.exceptions." };
        self.fail(1, format!("{module}{}: {}", error.class.name(), error.message))
    }

    /// The same of what a file says, with the place.
    fn refused_in(mut self, error: &TaskError, source: Option<&Source>) -> Self {
        if let Some((source, place)) = source.and_then(|source| Some((source, source.place(error)?))) {
            self.add_note(&format!("In {}, line {}, column {}.", source.name, place.line, place.column));
        }
        self.refused(error)
    }

    fn add_note(&mut self, line: &str) {
        self.note.push_str(line);
        self.note.push('\n');
    }

    /// The message about a wrong use of a command.
    pub fn misused(self, command: &str, message: impl Into<String>) -> Self {
        let command = commands().into_iter().find(|one| one.path == command).unwrap_or_default();
        self.fail(2, UsageError::of(&command, message).to_string())
    }
}

/// The folder or address that `--catalog` names, if the words name one.
pub fn catalogue_named(words: &[String]) -> Option<String> {
    match parse(&commands(), words) {
        Ok(Parsed::Call(call)) => call.value("catalog").map(str::to_owned),
        _ => None,
    }
}

/// Carries out the words behind `sky`.
pub fn run(words: &[String], world: &Circumstances<'_>) -> Printed {
    let all = commands();
    let mut printed = Printed::default();
    match parse(&all, words) {
        Err(error) => printed.fail(2, error.to_string()),
        Ok(Parsed::Help(text)) => Printed { out: text, ..printed },
        Ok(Parsed::Version) => {
            printed.line(format!("skypilot, version {VERSION}"));
            printed
        }
        Ok(Parsed::Commit) => {
            printed.line("skypilot, as trainyard reads its files and commands");
            printed
        }
        Ok(Parsed::Call(call)) => carry_out(&call, &all, world),
    }
}

fn carry_out(call: &Call, all: &[Command], world: &Circumstances<'_>) -> Printed {
    let wrong = (call.path == "sky jobs cancel").then(|| wrong_choice(call)).flatten();
    if let Some(message) = wrong {
        return Printed::default().misused(&call.path, message);
    }
    match call.path.as_str() {
        "sky launch" if call.is_set("dryrun") => launch::dryrun(call, world),
        "sky explain" => explain::explain(call, world),
        "sky gpus list" => gpus::list(call, world),
        "sky show-gpus" => {
            let mut printed = gpus::list(call, world);
            printed.err.insert_str(0, "WARNING: `sky show-gpus` has been renamed to `sky gpus list` and will be removed in a future release. Please use the latter instead.\n");
            printed
        }
        "sky check" => usable::check(call, world),
        "sky catalog import" => import(call, world),
        path => {
            let hint = match path {
                "sky launch" => "; `sky launch --dryrun` shows which machine it would get",
                _ => "",
            };
            let known = all.iter().any(|command| command.path == path);
            let what = match path.split(' ').nth(1) {
                _ if !known => "there is no such command",
                Some("jobs") if path == "sky jobs dashboard" => {
                    "a dashboard comes later; `sky jobs queue` shows the same"
                }
                Some("serve") => "services come later; run the server with `sky launch` on a cluster",
                Some("storage") => "buckets come later; `trainyard initialize` fetches from them",
                Some("volumes" | "volume") => "volumes come later; use a folder of the machines",
                Some("ssh") => "pools need no preparation; `sky launch --infra ssh/POOL` uses them as they are",
                Some("api") => {
                    "the control plane needs no server of its own; `trainyard up`, `down` and `status` manage it"
                }
                Some("dashboard" | "ui") => "a dashboard comes later; `sky status` and `sky queue` show the same",
                Some("workspace") => "workspaces come later",
                Some("debug-dump") => "use `trainyard doctor`, and the log `up.log` of the home",
                _ => "it comes later",
            };
            Printed::default().fail(1, format!("`{path}` does nothing yet: {what}{hint}."))
        }
    }
}

/// The pool that a region of SSH machines stands for.
fn pool(region: &str) -> &str {
    region.strip_prefix("ssh-").unwrap_or(region)
}

/// Which files to fetch, and where to put them.
fn import(call: &Call, world: &Circumstances<'_>) -> Printed {
    let mut printed = Printed::default();
    let folder = call.value("folder").unwrap_or(world.catalogue_folder);
    printed.line(format!(
        "Nothing is fetched unasked. Price lists are read from {folder}; to have those of a cloud there, fetch:\n"
    ));
    let mut files = vec!["common/accelerators.csv".to_owned(), "common/metadata.csv".to_owned()];
    for cloud in ["aws", "gcp", "azure", "lambda", "runpod"] {
        files.push(format!("{cloud}/vms.csv"));
    }
    for file in files {
        printed.line(format!("curl -fsS --create-dirs -o {folder}/{file} {PRICE_LISTS}/{file}"));
    }
    let here: Vec<String> = world
        .catalogue
        .clouds()
        .map(|cloud| format!("{} ({} offers)", cloud.display(), world.catalogue.offers(cloud).len()))
        .collect();
    printed.line(format!("\nHere now: {}.", if here.is_empty() { "none".to_owned() } else { here.join(", ") }));
    printed
}
