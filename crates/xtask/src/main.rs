//! Repository chores: `cargo xtask <chore>`. Generated files are committed; `--check` fails if one is out of date.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod chart;
mod conformance;
mod control_plane;
mod crds;
mod documents;
mod elf;
mod errors;
mod image;
mod kubernetes;
mod kubernetes_types;
mod licences;
mod monitoring;
mod sbom;
mod schema;
mod skypilot;
mod tidy;
mod yaml;

use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Chores of the Trainyard repository.
#[derive(Parser)]
#[command(name = "xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Write the table of Kubernetes' types from upstream's OpenAPI documents and Go structs.
    KubernetesTypes {
        /// Folder with `*_openapi.json` (k8s.io/kubernetes/api/openapi-spec/v3).
        #[arg(long)]
        openapi: PathBuf,
        /// Folder with the modules `api@VERSION`, `apimachinery@VERSION` and `apiextensions-apiserver@VERSION`.
        #[arg(long)]
        go: PathBuf,
        /// Version of those modules.
        #[arg(long, default_value = "v0.36.3")]
        version: String,
        /// Write nothing; fail if the table is not what it would be.
        #[arg(long)]
        check: bool,
    },
    /// Write manifests/crds from the types of crate `api`.
    Crds {
        /// Write nothing; fail if a manifest is not what it would be.
        #[arg(long)]
        check: bool,
    },
    /// Write the chart's copies of the objects in manifests/.
    Chart {
        /// Write nothing; fail if a copy is not what it would be.
        #[arg(long)]
        check: bool,
    },
    /// Write monitoring/ and manifests/components/monitoring: rules, alerts and boards.
    Monitoring {
        /// Write nothing; fail if a file is not what it would be.
        #[arg(long)]
        check: bool,
    },
    /// Write a container image as an OCI archive, and print its path.
    Image {
        #[command(flatten)]
        options: image::Options,
    },
    /// Write what the binary is made of (CycloneDX 1.5).
    Sbom {
        /// A file [default: stdout]
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Build Helm 3 and 4, pinned in e2e/helm, into the cache, and print their paths.
    Helm,
    /// Replay recordings of SkyPilot (`task/NAME/`) against our reading of task files; a line for each that differs.
    SkypilotGoldens {
        /// The folder; `catalog/v8` in it holds the prices.
        folder: PathBuf,
        /// Only cases whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Write into COMPATIBILITY.md how many of the recorded scenarios pass.
    Conformance {
        /// JUnit reports of `e2e/golden/replay.py check`; fail where they and e2e/golden/not-yet.yaml differ.
        #[arg(long, num_args = 1..)]
        report: Vec<PathBuf>,
        /// Write nothing; fail if the page does not hold what it would.
        #[arg(long)]
        check: bool,
    },
    /// A real control plane on loopback, built from the Go modules pinned in e2e/kubernetes.
    Kubernetes {
        #[command(subcommand)]
        verb: Kubernetes,
    },
    /// Check what reviewers should not have to: crate edges, purity, licences, file headers.
    Tidy,
}

#[derive(Subcommand)]
enum Kubernetes {
    /// Build the programs into the cache ($XDG_CACHE_HOME/trainyard-kubernetes) and print its folder, one for each module.
    Build {
        #[command(flatten)]
        with: control_plane::With,
    },
    /// Start a control plane, and print its kubeconfig's path.
    Up {
        /// Where its data, keys and logs go; made if it is not there.
        dir: PathBuf,
        /// The first of eight ports in a row; 0 finds some that are free.
        #[arg(default_value_t = 0)]
        port: u16,
        #[command(flatten)]
        with: control_plane::With,
    },
    /// Install controllers in the control plane that runs in a folder.
    Add {
        dir: PathBuf,
        #[command(flatten)]
        with: control_plane::With,
    },
    /// Stop one of its programs.
    Stop {
        dir: PathBuf,
        program: String,
        /// Leave it no time to put things in order (SIGKILL)
        #[arg(long)]
        kill: bool,
    },
    /// Start a program that was stopped, as it was started at first.
    Start {
        dir: PathBuf,
        program: String,
        /// `--flag=value`: in the place of the one for the same flag, this time
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Stop the control plane that was started in a folder; its data stays.
    Down {
        dir: PathBuf,
        /// Leave the programs no time to put things in order (SIGKILL): a good part of a minute less
        #[arg(long)]
        kill: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::KubernetesTypes { openapi, go, version, check } => {
            kubernetes_types::run(&root(), &openapi, &go, &version, check)
        }
        Chore::Crds { check } => crds::run(&root(), check),
        Chore::Chart { check } => chart::run(&root(), check),
        Chore::Monitoring { check } => monitoring::run(&root(), check),
        Chore::Image { options } => image::run(&root(), &options),
        Chore::Sbom { out } => sbom::run(&root(), out.as_deref()),
        Chore::SkypilotGoldens { folder, only } => skypilot::replay(&folder, &only),
        Chore::Helm => control_plane::helm(&root()),
        Chore::Conformance { report, check } => conformance::run(&root(), &report, check),
        Chore::Kubernetes { verb: Kubernetes::Build { with } } => control_plane::build(&root(), with),
        Chore::Kubernetes { verb: Kubernetes::Up { dir, port, with } } => control_plane::up(&root(), &dir, port, with),
        Chore::Kubernetes { verb: Kubernetes::Add { dir, with } } => control_plane::add(&root(), &dir, with),
        Chore::Kubernetes { verb: Kubernetes::Stop { dir, program, kill } } => {
            control_plane::stop(&dir, &program, kill)
        }
        Chore::Kubernetes { verb: Kubernetes::Start { dir, program, arguments } } => {
            control_plane::start_again(&dir, &program, &arguments)
        }
        Chore::Kubernetes { verb: Kubernetes::Down { dir, kill } } => control_plane::down(&dir, kill),
        Chore::Tidy => tidy::run(&root()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The names of all chores.
fn chores() -> BTreeSet<String> {
    Arguments::command().get_subcommands().map(|chore| chore.get_name().to_owned()).collect()
}

/// The repository's root: two folders above this crate.
fn root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).expect("invariant: the crate lies in crates/xtask").to_owned()
}

/// Writes a generated file, or checks that it is there as it would be written.
fn emit(path: &Path, text: &str, check: bool) -> Result<()> {
    if check {
        let there = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        ensure!(there == text, "{} is out of date: run the same command without --check", path.display());
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
