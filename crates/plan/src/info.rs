//! The picture of a TrainJob's JobSet that plugins look at and paint on: one [`PodSet`] for each replicated job of the
//! runtime, over the JobSet template they came from.
//! Source: upstream's `pkg/runtime/runtime.go`.

use crate::job::{Job, list};
use crate::names::{Ancestor, NODE};
use crate::resources::{self, ResourceList};
use crate::runtime::Framework;
use api::object;
use api::trainer::PodGroupPolicy;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a runtime and the patches and resources of a TrainJob make together, before and while plugins work on it.
///
/// Plugins change `scheduler` and `pod_sets`; the JobSet plugin writes both back into `template` at the end. The template
/// itself is plugins' to read.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// Labels of the JobSet object: the runtime's `template.metadata`, then every patch's.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the JobSet object, likewise.
    pub annotations: BTreeMap<String, String>,
    /// The runtime's ML policy.
    pub framework: Framework,
    /// Whether the runtime has an `mlPolicy` at all, if only an empty one. Without one, node counts come from the Job
    /// templates and `resourcesPerNode` is not looked at.
    pub has_ml_policy: bool,
    /// `mlPolicy.numNodes` of the runtime.
    pub num_nodes: Option<i32>,
    /// The runtime's gang scheduling.
    pub pod_group: PodGroupPolicy,
    /// What gang scheduling puts on pods.
    pub scheduler: Scheduler,
    /// What the TrainJob says about its main container.
    pub main: Main,
    /// The JobSet's spec: the runtime's, patched, with `resourcesPerNode` merged in.
    pub template: Value,
    /// One for each replicated job, in the runtime's order (index-aligned with `template.replicatedJobs`).
    pub pod_sets: Vec<PodSet>,
}

/// The TrainJob's own words for the container `node` of the trainer step; plugins that wrap the user's command rewrite them.
/// `None` leaves the runtime's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Main {
    pub image: Option<String>,
    pub command: Option<Vec<String>>,
    pub args: Option<Vec<String>>,
}

/// Labels and annotations for all pod templates; on conflict they win over the template's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduler {
    pub pod_labels: BTreeMap<String, String>,
    pub pod_annotations: BTreeMap<String, String>,
}

/// The pods of one replicated job.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSet {
    /// The replicated job's name.
    pub name: String,
    /// The step that it is: the ancestor label of its **Job** template.
    pub ancestor: Option<Ancestor>,
    /// Pods in one Job: becomes `parallelism` and `completions`. Zero only where the TrainJob asks for no nodes.
    pub count: i32,
    /// Jobs; endpoints are counted per Job.
    pub replicas: i32,
    /// As in the template, plus those that plugins append.
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    /// Core/v1 Volumes: the template's, plus plugins'. Use [`crate::upsert::volume`].
    pub volumes: Vec<Value>,
    /// What one pod requests, computed before plugins add containers.
    pub requests: ResourceList,
    /// What gang scheduling puts on these pods, beside what it puts on all.
    pub scheduler: Scheduler,
}

/// What plugins may see and change of a container. Members that are empty or `None` leave the template's value alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    pub name: String,
    pub image: Option<String>,
    pub command: Vec<String>,
    /// Core/v1 EnvVars. Use [`crate::upsert::env`].
    pub env: Vec<Value>,
    /// Core/v1 ContainerPorts. Use [`crate::upsert::port`].
    pub ports: Vec<Value>,
    /// Core/v1 VolumeMounts. Use [`crate::upsert::mount`].
    pub volume_mounts: Vec<Value>,
}

impl PodSet {
    /// The regular container of that name.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The regular container of that name, to paint on.
    pub fn container_mut(&mut self, name: &str) -> Option<&mut Container> {
        self.containers.iter_mut().find(|c| c.name == name)
    }

    /// The container of that name, a regular one first, then an init container.
    pub fn any_container_mut(&mut self, name: &str) -> Option<&mut Container> {
        let Self { containers, init_containers, .. } = self;
        containers.iter_mut().chain(init_containers).find(|c| c.name == name)
    }

    /// Whether a regular or init container of that name exists.
    pub fn has_container(&self, name: &str) -> bool {
        self.containers.iter().chain(&self.init_containers).any(|c| c.name == name)
    }
}

impl Info {
    /// The first pod set of a step.
    pub fn by_ancestor(&self, ancestor: Ancestor) -> Option<&PodSet> {
        self.pod_sets.iter().find(|p| p.ancestor == Some(ancestor))
    }

    /// The first pod set of a step, to paint on.
    pub fn by_ancestor_mut(&mut self, ancestor: Ancestor) -> Option<&mut PodSet> {
        self.pod_sets.iter_mut().find(|p| p.ancestor == Some(ancestor))
    }

    /// The pod set of the replicated job of that name.
    pub fn by_name(&self, name: &str) -> Option<&PodSet> {
        self.pod_sets.iter().find(|p| p.name == name)
    }

    /// The pod set of the replicated job of that name, to paint on.
    pub fn by_name_mut(&mut self, name: &str) -> Option<&mut PodSet> {
        self.pod_sets.iter_mut().find(|p| p.name == name)
    }

    /// The headless Service's name: `network.subdomain` of the template, else the TrainJob's name.
    pub fn subdomain<'a>(&'a self, job_name: &'a str) -> &'a str {
        match self.template.pointer("/network/subdomain").and_then(Value::as_str) {
            Some(subdomain) if !subdomain.is_empty() => subdomain,
            _ => job_name,
        }
    }

    /// Host names of a pod set's pods, `<job>-<set>-<replica>-<index>.<subdomain>`, in order. Call it when counts are
    /// final: from `build`.
    pub fn endpoints(&self, job_name: &str, set: &PodSet) -> Vec<String> {
        let subdomain = self.subdomain(job_name);
        (0..set.replicas)
            .flat_map(|r| (0..set.count).map(move |p| (r, p)))
            .map(|(r, p)| format!("{job_name}-{}-{r}-{p}.{subdomain}", set.name))
            .collect()
    }

    /// Resources of the first container `node` of the replicated jobs that are named `node` or are the trainer step,
    /// even where it has none. Where the ML policy is set, `resourcesPerNode` is already part of it.
    pub fn runtime_resources(&self) -> Value {
        let jobs = self.template.get("replicatedJobs").and_then(Value::as_array);
        let mut found = self.pod_sets.iter().zip(jobs.into_iter().flatten()).filter_map(|(set, job)| {
            let counts = set.name == NODE || set.ancestor == Some(Ancestor::Trainer);
            let pod = job.pointer("/template/spec/template/spec").filter(|_| counts)?;
            list(pod, "containers").iter().find(|c| object::text(c, "name") == NODE)
        });
        found.next().and_then(|node| node.get("resources")).cloned().unwrap_or(Value::Null)
    }

    /// GPUs of one node: of the TrainJob's `resourcesPerNode` where it names any, else of what the pod gets.
    // Q-16 (fixed): upstream looks at the TrainJob's part alone, so that memory given on a GPU runtime hides its GPUs.
    pub fn gpus_per_node(&self, job: &Job) -> i64 {
        let own = own_resources(job);
        if resources::names_gpu(own) {
            resources::gpu_count(own)
        } else {
            resources::gpu_count(&self.runtime_resources())
        }
    }

    /// CPUs of one node, rounded up: of the TrainJob's `resourcesPerNode` where it names any, else of what the pod gets.
    // Q-16 (fixed), as above.
    pub fn cpus_per_node(&self, job: &Job) -> i64 {
        match resources::cpu_count(own_resources(job)) {
            0 => resources::cpu_count(&self.runtime_resources()),
            cpus => cpus,
        }
    }
}

fn own_resources(job: &Job) -> &Value {
    job.trainer.as_ref().and_then(|t| t.resources_per_node.as_ref()).unwrap_or(&Value::Null)
}
