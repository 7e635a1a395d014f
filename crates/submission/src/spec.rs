//! What to run, as plain values from flags, a form or a test.

use std::path::PathBuf;
use std::time::Duration;

/// A requested training job, or search for parameters. A value that is `None` or empty is taken from the runtime, or found out.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Name of the job; `None`: made from the script's name.
    pub name: Option<String>,
    /// Number of pods, each running the script.
    pub nodes: Option<i32>,
    /// Number of processes in each pod.
    pub nproc_per_node: Option<i32>,
    pub runtime: Option<String>,
    /// The interpreter on this machine: a file, or a name on the PATH.
    pub python: Option<PathBuf>,
    /// The virtual environment on this machine.
    pub venv: Option<PathBuf>,
    /// Runs in the environment of uv's project.
    pub uv: bool,
    /// Variables, each `NAME=VALUE`.
    pub env: Vec<String>,
    pub cpus: Option<String>,
    pub memory: Option<String>,
    pub gpus: Option<u32>,
    /// The folder to run in, which is also sent to a cluster.
    pub workdir: Option<PathBuf>,
    /// Image of the pods on a cluster.
    pub image: Option<String>,
    pub retries: Option<u16>,
    /// After how long the job is ended, all attempts together.
    pub timeout: Option<Duration>,
    /// The folder for the job's output.
    pub output_dir: Option<PathBuf>,
    /// Patterns of the metrics in the output of rank 0.
    pub metrics: Vec<String>,
    /// Parameters of a search, each `NAME=VALUE,VALUE…`.
    pub sweep: Vec<String>,
    /// The goal of the search: `METRIC[:min|max]`.
    pub objective: Option<String>,
    pub parallel_trials: i32,
    /// `script` is the name of a module (`python -m`).
    pub module: bool,
    /// Whether the job is created without checking if it can run.
    pub no_checks: bool,
    /// Whether the processes are forked from one that has imported torch; `None`: as in the folder's last run.
    pub warm: Option<bool>,
    /// The script as the user named it: a file, a folder, a module or a command.
    pub script: PathBuf,
    /// The script's own arguments.
    pub arguments: Vec<String>,
}

#[cfg(test)]
impl Spec {
    /// Parses words as users type them after `run`, with only the flags that tests need.
    pub(crate) fn of_words(words: &[&str]) -> Self {
        let mut spec = Self { parallel_trials: 1, ..Self::default() };
        let mut words = words.iter().map(|word| (*word).to_owned());
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("the flag has a value");
            match word.as_str() {
                "--name" => spec.name = Some(value()),
                "--nodes" => spec.nodes = Some(value().parse().expect("a number")),
                "--nproc-per-node" => spec.nproc_per_node = Some(value().parse().expect("a number")),
                "--gpus" => spec.gpus = Some(value().parse().expect("a number")),
                "--parallel-trials" => spec.parallel_trials = value().parse().expect("a number"),
                "--runtime" => spec.runtime = Some(value()),
                "--cpus" => spec.cpus = Some(value()),
                "--memory" => spec.memory = Some(value()),
                "--image" => spec.image = Some(value()),
                "--workdir" => spec.workdir = Some(value().into()),
                "--env" | "-e" => spec.env.push(value()),
                "--sweep" => spec.sweep.push(value()),
                "--objective" => spec.objective = Some(value()),
                "--" => {}
                script => {
                    spec.script = script.into();
                    spec.arguments = words.collect();
                    break;
                }
            }
        }
        spec
    }
}
