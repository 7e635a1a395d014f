//! The checks of `run` before it creates anything: flags, names, the Python that the job will use, the script, the runtime, and whether the
//! nodes could ever hold the pods. A job that cannot run is refused with one line that names the flag and the value.
//!
//! The interpreter and the server are asked at the same time: [`Preflight::begin`] starts the interpreter, [`Preflight::ready`] judges.
//! What cannot be known (missing rights, the images of a cluster) is not checked.

mod fit;
mod flags;
mod limits;
mod verdict;

use crate::args::RunArgs;
use crate::code::{Code, PLAIN, Start};
use crate::launcher::{Launcher, Setting};
use crate::manifest::steps;
use crate::python::{self, Answer, Question};
use api::near::did_you_mean;
use api::object;
use api::trainer::names::LABEL_FRAMEWORK;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use fit::Wanted;
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;
use verdict::Python;
use view::state::{Phase, age};

/// The runtime of scripts whose user names none.
const DEFAULT_RUNTIME: &str = "torch-distributed";
/// How long a cluster's nodes may take to be listed; there may be thousands.
const NODES_MAX: Duration = Duration::from_millis(600);

/// A look in progress.
pub(crate) struct Preflight<'a> {
    args: &'a RunArgs,
    code: &'a Code,
    setting: &'a Setting,
    asked: Option<Asked>,
}

/// A question that an interpreter was asked.
struct Asked {
    interpreter: PathBuf,
    answer: JoinHandle<Result<Answer, String>>,
}

/// What the job is made with.
pub(crate) struct Ready {
    pub runtime: Value,
    pub kind: &'static str,
}

impl<'a> Preflight<'a> {
    /// Looks at the flags and starts to ask the interpreter. `here`: pods are processes of this machine.
    ///
    /// Errors: `Usage` for flags that cannot be meant so.
    pub(crate) fn begin(
        args: &'a RunArgs,
        code: &'a Code,
        setting: &'a Setting,
        here: bool,
    ) -> Result<Self, ClientError> {
        let mut look = Self { args, code, setting, asked: None };
        if args.no_checks {
            return Ok(look);
        }
        if let Some(fault) = flags::fault(args) {
            return Err(ClientError::Usage(ErrorCode::FlagRefused, fault));
        }
        if here {
            verdict::readable(code, setting, None)?;
        }
        if here && code.start == Start::Python {
            // only a runtime of another's making is not known by its name
            let name = args.runtime.as_deref().unwrap_or(DEFAULT_RUNTIME);
            let framework = if name.starts_with("torch") { "torch" } else { name };
            look.ask(Launcher::of(framework))?;
        }
        Ok(look)
    }

    /// Asks the interpreter that this launcher would use, unless it has been asked already.
    fn ask(&mut self, launcher: Launcher) -> Result<(), ClientError> {
        let interpreter = verdict::interpreter(launcher, self.setting)?;
        if self.asked.as_ref().is_some_and(|asked| asked.interpreter == interpreter) {
            return Ok(());
        }
        let question = Question {
            interpreter: interpreter.clone(),
            script: Some(self.code.script.clone()),
            folder: self.setting.folder.clone(),
            variables: self.setting.variables(),
            cache: python::cache_folder(),
        };
        self.asked = Some(Asked { interpreter, answer: tokio::spawn(async move { question.ask().await }) });
        Ok(())
    }

    /// What the interpreter says: that it runs, that the script is Python.
    async fn answer(&mut self) -> Result<Option<Python>, ClientError> {
        let Some(asked) = self.asked.take() else { return Ok(None) };
        let answer = asked.answer.await.expect("asking does not panic");
        let python = Python { interpreter: asked.interpreter, answer: verdict::runs(&self.code.script, answer)? };
        Ok(Some(python))
    }

    /// Judges what can be judged before a control plane is started for it.
    pub(crate) async fn before_the_server(&mut self) -> Result<(), ClientError> {
        let Some(python) = self.answer().await? else { return Ok(()) };
        if self.args.runtime.as_deref().is_none_or(|name| name == DEFAULT_RUNTIME)
            && self.chosen(Some(&python)).0 != PLAIN
        {
            python.imports(Launcher::Torchrun, "torch", self.args, self.code, self.setting)?;
        }
        self.asked = Some(Asked {
            interpreter: python.interpreter,
            answer: tokio::spawn(std::future::ready(Ok(python.answer))),
        });
        Ok(())
    }

    /// The runtime's name, and what there is to say about the choice where the user made none.
    fn chosen(&self, python: Option<&Python>) -> (String, Option<String>) {
        if let Some(name) = &self.args.runtime {
            return (name.clone(), None);
        }
        let title = self.code.title();
        if self.code.start != Start::Python {
            return (PLAIN.to_owned(), Some(format!("{title} is not a Python file: it runs with --runtime {PLAIN}")));
        }
        match python.and_then(|python| python.lacks_torch_and_needs_none()) {
            None => (DEFAULT_RUNTIME.to_owned(), None),
            Some(executable) => {
                let why = format!(
                    "{title} does not import torch, and {} does not have it: it runs with --runtime {PLAIN}",
                    executable.display()
                );
                (PLAIN.to_owned(), Some(why))
            }
        }
    }

    /// Judges the rest, with what the server knows.
    ///
    /// Errors: `Usage` for what cannot work.
    pub(crate) async fn ready(mut self, cluster: &Cluster) -> Result<Ready, ClientError> {
        let python = self.answer().await?;
        let (name, note) = self.chosen(python.as_ref());
        let (found, taken, nodes) = tokio::join!(runtime(cluster, &name), self.taken(cluster), self.machine(cluster));
        let (runtime, kind) = found?;
        let ready = Ready { runtime, kind };
        if !self.args.no_checks {
            self.judge(cluster, &ready, python, taken, &nodes).await?;
        }
        for said in note.into_iter().chain(limits::line(self.args, &nodes)) {
            eprintln!("{said}");
        }
        Ok(ready)
    }

    async fn judge(
        &mut self,
        cluster: &Cluster,
        ready: &Ready,
        mut python: Option<Python>,
        taken: Option<String>,
        nodes: &[Value],
    ) -> Result<(), ClientError> {
        if let Some(fault) = taken {
            return Err(ClientError::Usage(ErrorCode::NameTaken, fault));
        }
        let framework = object::label(&ready.runtime, LABEL_FRAMEWORK).unwrap_or_default();
        let launcher = Launcher::of(framework);
        if cluster.local {
            verdict::readable(self.code, self.setting, cluster.pods_user)?;
            if self.code.start == Start::Python {
                let asked = python.as_ref().map(|python| python.interpreter.clone());
                if asked != Some(verdict::interpreter(launcher, self.setting)?) {
                    self.ask(launcher)?;
                    python = self.answer().await?;
                }
            }
            if let Some(python) = &python {
                python.imports(launcher, framework, self.args, self.code, self.setting)?;
            }
            let name = object::meta(&ready.runtime, "name");
            verdict::programs(launcher, name, self.code, self.setting)?;
        }
        self.fits(cluster, ready, nodes).await
    }

    /// Why the job cannot have its name.
    async fn taken(&self, cluster: &Cluster) -> Option<String> {
        let name = self.args.name.as_deref().filter(|_| !self.args.no_checks)?;
        // a user who may not look gets the error when the job is created
        let job = cluster.find(Kind::TrainJob, name).await.ok().flatten()?;
        let flags = &cluster.flags;
        if object::is_terminating(&job) {
            return Some(format!(
                "--name {name}: the job of this name is being deleted\n  wait for it: trainyard wait {name} --for deleted{flags}"
            ));
        }
        let phase = Phase::of(&job).as_str().to_lowercase();
        Some(format!(
            "--name {name}: there is a job of this name ({phase}, made {} ago); choose another\n  look at it: trainyard describe \
             {name}{flags}\n  remove it: trainyard delete {name}{flags}",
            age(&job, Timestamp::now())
        ))
    }

    /// This machine's node.
    async fn machine(&self, cluster: &Cluster) -> Vec<Value> {
        if !cluster.local || self.args.no_checks {
            return Vec::new();
        }
        nodes(cluster).await
    }

    /// Refuses what this machine can never run, and what no name is left for. A cluster may grow, so there it is only said.
    async fn fits(&self, cluster: &Cluster, ready: &Ready, machine: &[Value]) -> Result<(), ClientError> {
        for step in steps(&ready.runtime) {
            let wanted = Wanted::of(self.args, &ready.runtime, &step);
            let name = self.args.name.as_deref();
            if let Some(fault) = name.and_then(|name| flags::pod_name_fault(name, &step, wanted.nodes)) {
                return Err(ClientError::Usage(ErrorCode::FlagRefused, fault));
            }
            if cluster.local {
                if let Some(fault) = wanted.fault(machine, machine.len() == 1) {
                    return Err(ClientError::Usage(ErrorCode::DoesNotFit, fault));
                }
            } else if wanted.asks_for_something()
                && let Ok(nodes) = tokio::time::timeout(NODES_MAX, nodes(cluster)).await
                && let Some(fault) = wanted.fault(&nodes, false)
            {
                eprintln!("warning: {fault}; it waits until the cluster has grown");
            }
        }
        Ok(())
    }
}

/// All nodes; none where they may not be listed.
async fn nodes(cluster: &Cluster) -> Vec<Value> {
    let listed = cluster.api_all(Kind::Node).list(&ListParams::default()).await;
    listed.map(|nodes| nodes.items.iter().map(value).collect()).unwrap_or_default()
}

/// The runtime that the flag names, the namespace's before the cluster's, with its kind.
async fn runtime(cluster: &Cluster, name: &str) -> Result<(Value, &'static str), ClientError> {
    let (own, shared) = tokio::join!(
        cluster.find(Kind::TrainingRuntime, name),
        cluster.find_shared(Kind::ClusterTrainingRuntime, name)
    );
    if let Some(found) = own? {
        return Ok((found, "TrainingRuntime"));
    }
    if let Some(found) = shared? {
        return Ok((found, "ClusterTrainingRuntime"));
    }
    let shared = cluster.api_all(Kind::ClusterTrainingRuntime).list(&ListParams::default()).await?;
    let mut there: Vec<Value> = shared.items.iter().map(value).collect();
    there.extend(cluster.list(Kind::TrainingRuntime, "").await?);
    let meant = did_you_mean(name, there.iter().map(|runtime| object::meta(runtime, "name")));
    let flags = &cluster.flags;
    Err(ClientError::Usage(
        ErrorCode::RuntimeUnknown,
        format!("--runtime {name}: there is no such runtime{meant}\n  see which there are: trainyard runtimes{flags}"),
    ))
}

/// A path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
