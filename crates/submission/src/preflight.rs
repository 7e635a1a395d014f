//! The checks before anything is created: flags, names, the Python that the job will use, the script, the runtime, and whether the
//! nodes could ever hold the pods. A job that cannot run is refused with one line that names the flag and the value.
//!
//! The interpreter and the server are asked at the same time: [`Submission::begin`] starts the interpreter, [`Submission::ready`] judges.
//! Facts that cannot be known (missing rights, the images of a cluster) are not checked.

mod fit;
pub(crate) mod flags;
mod limits;
mod verdict;

use crate::Tell;
use crate::code::{Code, Start};
use crate::launcher::Launcher;
use crate::python::{self, Answer, Question};
use crate::runtime::{DEFAULT, PLAIN, Runtime};
use crate::setting::Setting;
use crate::spec::Spec;
use crate::{results, warm};
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Home, Kind, value};
use fit::Wanted;
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;
use verdict::Python;
use view::state::{Phase, age};

/// How long the list of a cluster's nodes may take; there may be thousands.
const NODES_MAX: Duration = Duration::from_millis(600);

/// A submission that is being checked; nothing has been created yet.
pub struct Submission {
    spec: Spec,
    code: Code,
    setting: Setting,
    asked: Option<Asked>,
}

/// A question that was sent to an interpreter.
struct Asked {
    interpreter: PathBuf,
    answer: JoinHandle<Result<Answer, String>>,
}

/// A submission that can run, as far as is known.
pub struct Ready {
    pub spec: Spec,
    pub(crate) code: Code,
    pub(crate) setting: Setting,
    pub(crate) runtime: Runtime,
    /// The ranks are forked from a process that has imported torch.
    pub(crate) warm: bool,
}

impl Submission {
    /// Checks the flags and starts to ask the interpreter. `here`: pods are processes of this machine.
    ///
    /// Errors: `Usage` for flags that are contradictory or do not work here.
    pub fn begin(spec: Spec, code: Code, here: bool) -> Result<Self, ClientError> {
        if !here && let Some(fault) = flags::only_here(&spec) {
            return Err(ClientError::Usage(ErrorCode::FlagOfOtherPlace, fault));
        }
        let setting = Setting::of(&spec, &code, flags::variables(&spec.env)?)?;
        let mut look = Self { spec, code, setting, asked: None };
        if look.spec.no_checks {
            return Ok(look);
        }
        if let Some(fault) = flags::fault(&look.spec) {
            return Err(ClientError::Usage(ErrorCode::FlagRefused, fault));
        }
        if here {
            verdict::readable(&look.code, &look.setting, None)?;
        }
        if here && look.code.start == Start::Python {
            // a runtime's name shows its framework, unless the runtime is a custom one
            let name = look.spec.runtime.as_deref().unwrap_or(DEFAULT);
            let framework = if name.starts_with("torch") { "torch" } else { name };
            look.ask(Launcher::of(framework))?;
        }
        Ok(look)
    }

    /// Asks the interpreter that this launcher would use, unless it has been asked already.
    fn ask(&mut self, launcher: Launcher) -> Result<(), ClientError> {
        let interpreter = verdict::interpreter(launcher, &self.setting)?;
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

    /// The interpreter's answer: that it runs, and that the script is Python.
    async fn answer(&mut self) -> Result<Option<Python>, ClientError> {
        let Some(asked) = self.asked.take() else { return Ok(None) };
        let answer = asked.answer.await.expect("asking does not panic");
        let python = Python { interpreter: asked.interpreter, answer: verdict::runs(&self.code.script, answer)? };
        Ok(Some(python))
    }

    /// Checks all that can be checked before a control plane is started.
    pub async fn before_the_server(&mut self) -> Result<(), ClientError> {
        let Some(python) = self.answer().await? else { return Ok(()) };
        if self.spec.runtime.as_deref().is_none_or(|name| name == DEFAULT) && self.chosen(Some(&python)).0 != PLAIN {
            python.imports(Launcher::Torchrun, "torch", &self.spec, &self.code, &self.setting)?;
        }
        self.asked = Some(Asked {
            interpreter: python.interpreter,
            answer: tokio::spawn(std::future::ready(Ok(python.answer))),
        });
        Ok(())
    }

    /// The runtime's name, and a message about the choice if the user made none.
    fn chosen(&self, python: Option<&Python>) -> (String, Option<String>) {
        if let Some(name) = &self.spec.runtime {
            return (name.clone(), None);
        }
        let title = self.code.title();
        if self.code.start != Start::Python {
            return (PLAIN.to_owned(), Some(format!("{title} is not a Python file: it runs with --runtime {PLAIN}")));
        }
        match python.and_then(|python| python.lacks_torch_and_needs_none()) {
            None => (DEFAULT.to_owned(), None),
            Some(executable) => {
                let why = format!(
                    "{title} does not import torch, and {} does not have it: it runs with --runtime {PLAIN}",
                    executable.display()
                );
                (PLAIN.to_owned(), Some(why))
            }
        }
    }

    /// Checks the rest, with the facts of the server.
    ///
    /// Errors: `Usage` for a job that cannot work.
    pub async fn ready(mut self, cluster: &Cluster, tell: Tell<'_>) -> Result<Ready, ClientError> {
        let running = || cluster.home.clone().and_then(|root| Home::at(root).running());
        if !self.spec.metrics.is_empty() && running().is_some_and(|running| running.status_server.is_none()) {
            return Err(ClientError::Usage(
                ErrorCode::FlagOfOtherPlace,
                "--metric needs the status server, and this control plane runs without it (--status-server none); restart `trainyard up` without that flag".to_owned(),
            ));
        }
        let python = self.answer().await?;
        let (name, note) = self.chosen(python.as_ref());
        let (found, taken, nodes) =
            tokio::join!(Runtime::find(cluster, &name), self.taken(cluster), self.machine(cluster));
        let runtime = found?;
        if !self.spec.no_checks {
            self.judge(cluster, &runtime, python, taken, &nodes, tell).await?;
        }
        for said in note.into_iter().chain(limits::line(&self.spec, &nodes)) {
            tell(&said);
        }
        let Self { spec, code, setting, asked: _ } = self;
        let warm = !spec.module && warm::starts(cluster, &spec, &setting.folder, &runtime, tell)?;
        results::prepare(&spec)?;
        Ok(Ready { spec, code, setting, runtime, warm })
    }

    async fn judge(
        &mut self,
        cluster: &Cluster,
        runtime: &Runtime,
        mut python: Option<Python>,
        taken: Option<String>,
        nodes: &[Value],
        tell: Tell<'_>,
    ) -> Result<(), ClientError> {
        if let Some(fault) = taken {
            return Err(ClientError::Usage(ErrorCode::NameTaken, fault));
        }
        let framework = runtime.framework();
        let launcher = Launcher::of(framework);
        if cluster.local {
            verdict::readable(&self.code, &self.setting, cluster.pods_user)?;
            if self.code.start == Start::Python {
                let asked = python.as_ref().map(|python| python.interpreter.clone());
                if asked != Some(verdict::interpreter(launcher, &self.setting)?) {
                    self.ask(launcher)?;
                    python = self.answer().await?;
                }
            }
            if let Some(python) = &python {
                python.imports(launcher, framework, &self.spec, &self.code, &self.setting)?;
            }
            verdict::programs(launcher, runtime.name(), &self.code, &self.setting)?;
        }
        self.fits(cluster, runtime, nodes, tell).await
    }

    /// Why the job cannot have its name.
    async fn taken(&self, cluster: &Cluster) -> Option<String> {
        let name = self.spec.name.as_deref().filter(|_| !self.spec.no_checks)?;
        // a user who may not list jobs gets the error when the job is created
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
        if !cluster.local || self.spec.no_checks {
            return Vec::new();
        }
        nodes(cluster).await
    }

    /// Refuses a job that this machine can never run, or whose pods' names would be too long. A cluster may grow, so there the user only
    /// gets a message.
    async fn fits(
        &self,
        cluster: &Cluster,
        runtime: &Runtime,
        machine: &[Value],
        tell: Tell<'_>,
    ) -> Result<(), ClientError> {
        for step in runtime.steps() {
            let wanted = Wanted::of(&self.spec, &runtime.object, &step);
            let name = self.spec.name.as_deref();
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
                tell(&format!("warning: {fault}; it waits until the cluster has grown"));
            }
        }
        Ok(())
    }
}

/// All nodes; none if the user may not list them.
async fn nodes(cluster: &Cluster) -> Vec<Value> {
    let listed = cluster.api_all(Kind::Node).list(&ListParams::default()).await;
    listed.map(|nodes| nodes.items.iter().map(value).collect()).unwrap_or_default()
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
