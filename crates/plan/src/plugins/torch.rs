//! Torch: the `PET_*` variables that `torchrun` reads, and their injection into other containers.
//! Source: upstream's `pkg/runtime/framework/plugins/torch/torch.go`.

use super::{BuildError, Findings, Plugin, Validation, torchtune};
use crate::info::{Container, Info};
use crate::job::Job;
use crate::names::env::{PET_MASTER_ADDR, PET_MASTER_PORT, PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE};
use crate::names::{Ancestor, NODE, RANK_FIELD_PATH, TRAINER_PORT};
use crate::runtime::Framework;
use crate::upsert;
use api::field::{Error, Path};
use api::trainer::{EnvInjectionTarget, TorchPolicy};
use serde_json::json;

/// Sorted: faults name offenders in this order.
const RESERVED: [&str; 5] = [PET_MASTER_ADDR, PET_MASTER_PORT, PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE];

/// Active where `mlPolicy.torch` is set.
pub struct Torch;

/// Processes on one node, as `PET_NPROC_PER_NODE` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// `auto`: torchrun counts GPUs.
    Auto,
    Count(i64),
}

impl Processes {
    /// What the TrainJob says, else `auto` on GPUs, else one for each CPU.
    fn of(info: &Info, job: &Job) -> Self {
        match job.num_proc_per_node() {
            Some(count) => Self::Count(i64::from(count)),
            None if info.gpus_per_node(job) > 0 => Self::Auto,
            None => Self::Count(info.cpus_per_node(job).max(1)),
        }
    }

    fn render(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Count(count) => count.to_string(),
        }
    }
}

impl Plugin for Torch {
    fn name(&self) -> &'static str {
        "Torch"
    }

    fn validate(&self, cx: &Validation<'_>, findings: &mut Findings) {
        let Framework::Torch(policy) = &cx.info.framework else { return };
        for (target, container) in missing_targets(cx.info, policy) {
            let shown = json!({"jobName": target.job_name, "containerNames": target.container_names});
            let field = Path::new("spec").child("runtimeRef");
            findings.errors.push(Error::invalid(&field, shown, missing_target(target, container)));
        }
        let Some(trainer) = &cx.new.trainer else { return };
        let used: Vec<&str> =
            RESERVED.into_iter().filter(|name| trainer.env.iter().any(|e| e["name"] == **name)).collect();
        if !used.is_empty() {
            let field = Path::new("spec").child("trainer").child("env");
            let detail = format!("must not have reserved envs, invalid envs configured: [{}]", used.join(" "));
            findings.errors.push(Error::invalid(&field, trainer.env.clone(), detail));
        }
        if torchtune::is_asked_for(trainer.command.as_deref()) {
            torchtune::validate(cx, trainer, findings);
        }
    }

    fn enforce_ml_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        let Framework::Torch(policy) = info.framework.clone() else { return Ok(()) };
        let processes = Processes::of(info, job);
        let nodes = info.by_ancestor_mut(Ancestor::Trainer).map_or(1, |set| {
            set.count = job.num_nodes().unwrap_or(set.count);
            set.count
        });
        let pet = Pet { nodes, processes };
        let tune = torchtune::is_asked_for(info.main.command.as_deref())
            .then(|| torchtune::arguments(info, job, nodes, processes));
        // Q-24 (kept): without a section `trainer` there is none of this; recordings hold it.
        if let Some(trainer) = &job.trainer
            && let Some(node) = info.by_ancestor_mut(Ancestor::Trainer).and_then(|set| set.container_mut(NODE))
        {
            upsert::env_all(&mut node.env, &trainer.env);
            pet.count_and_rank(node);
            if tune.is_none() {
                pet.master(node, job);
            }
            upsert::port(&mut node.ports, json!({"containerPort": TRAINER_PORT}));
            if let (Some(arguments), Some(command)) = (tune, &mut info.main.command) {
                command.extend(arguments);
            }
        }
        allow_checkpoints(info, job);
        inject(info, job, &policy, pet)
    }
}

/// Seconds after which torchrun kills its ranks where nothing is said.
const TORCHRUN_GRACE_SECS: i64 = 30;
/// What torchrun itself needs of a pod's grace period after its ranks have ended.
const TORCHRUN_END_SECS: i64 = 5;
/// Seconds that torchrun gives its ranks between SIGTERM and SIGKILL.
const SHUTDOWN_TIMEOUT: &str = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

/// Lets ranks use a pod's longer grace period for their checkpoints (pytorch#119856): torchrun kills them after 30 s otherwise.
fn allow_checkpoints(info: &mut Info, job: &Job) {
    let Some(at) = info.pod_sets.iter().position(|set| set.ancestor == Some(Ancestor::Trainer)) else { return };
    let pod = info.template.pointer(&format!("/replicatedJobs/{at}/template/spec/template/spec"));
    let grace = pod.and_then(|pod| pod.get("terminationGracePeriodSeconds")?.as_i64()).unwrap_or(TORCHRUN_GRACE_SECS);
    let timeout = grace.saturating_sub(TORCHRUN_END_SECS);
    let is_set = job.trainer.as_ref().is_some_and(|t| t.env.iter().any(|e| e["name"] == SHUTDOWN_TIMEOUT));
    if timeout <= TORCHRUN_GRACE_SECS || is_set {
        return;
    }
    if let Some(node) = info.pod_sets.get_mut(at).and_then(|set| set.container_mut(NODE))
        && node.env.iter().all(|variable| variable["name"] != SHUTDOWN_TIMEOUT)
    {
        upsert::env_value(&mut node.env, SHUTDOWN_TIMEOUT, timeout.to_string());
    }
}

/// What the PET variables say.
#[derive(Clone, Copy)]
struct Pet {
    nodes: i32,
    processes: Processes,
}

impl Pet {
    fn count_and_rank(self, container: &mut Container) {
        upsert::env_value(&mut container.env, PET_NNODES, self.nodes.to_string());
        upsert::env_value(&mut container.env, PET_NPROC_PER_NODE, self.processes.render());
        upsert::env_field(&mut container.env, PET_NODE_RANK, RANK_FIELD_PATH);
    }

    fn master(self, container: &mut Container, job: &Job) {
        upsert::env_value(&mut container.env, PET_MASTER_ADDR, job.master_host());
        upsert::env_value(&mut container.env, PET_MASTER_PORT, TRAINER_PORT.to_string());
    }
}

/// `envInjection`: all five variables for other containers, torchtune or not.
fn inject(info: &mut Info, job: &Job, policy: &TorchPolicy, pet: Pet) -> Result<(), BuildError> {
    for (target, name) in targets(policy) {
        let container = info.by_name_mut(&target.job_name).and_then(|set| set.any_container_mut(name));
        let container = container.ok_or_else(|| BuildError::new(missing_target(target, name)))?;
        pet.count_and_rank(container);
        pet.master(container, job);
    }
    Ok(())
}

fn targets(policy: &TorchPolicy) -> impl Iterator<Item = (&EnvInjectionTarget, &str)> {
    let targets = policy.env_injection.iter().flat_map(|injection| &injection.targets);
    targets.flat_map(|target| target.container_names.iter().map(move |name| (target, name.as_str())))
}

/// Targets and containers of `envInjection` that the runtime does not have.
fn missing_targets<'a>(
    info: &Info,
    policy: &'a TorchPolicy,
) -> impl Iterator<Item = (&'a EnvInjectionTarget, &'a str)> {
    targets(policy).filter(|(target, name)| !info.by_name(&target.job_name).is_some_and(|set| set.has_container(name)))
}

fn missing_target(target: &EnvInjectionTarget, container: &str) -> String {
    format!("envInjection target podSet {:?} container {container:?} not found in runtime template", target.job_name)
}
