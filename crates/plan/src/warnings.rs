//! Settings of a TrainJob that do not do what their owner would expect: each is a sentence for the client that writes the job, and an
//! event on it. Upstream takes these settings without a word.

use crate::build;
use crate::info::{Info, PodSet};
use crate::job::Job;
use crate::kept;
use crate::names::env::STORAGE_URI;
use crate::names::{Ancestor, EVENT_ACTION_RECONCILING, EVENT_REPORTER, LAUNCHER, NODE};
use crate::plugins::{CaSource, Settings, StatusServer, mpi};
use crate::runtime::{Framework, Runtime};
use api::object;
use api::trainer::InitializerStep;
use reconcile::{Event, EventType};
use serde_json::Value;

/// `reason` of the events.
pub const REASON: &str = "CheckSettings";

/// What is to be said of a job on its runtime; nothing where its children cannot be built, which is reported elsewhere.
pub fn of(job: &Job, runtime: &Runtime, settings: &Settings) -> Vec<String> {
    let Ok((info, kept)) = build::enforced_with(job, runtime, settings) else { return Vec::new() };
    let mut warnings = Vec::new();
    ranks_apart(job, runtime, &info, &mut warnings);
    nodes(job, runtime, &info, &mut warnings);
    without_effect(job, runtime, &info, &mut warnings);
    mpi_commands(job, &info, &mut warnings);
    locations(job, &mut warnings);
    warnings.extend(kept.iter().map(kept::Kept::sentence));
    warnings
}

/// The same where it is not known whether this process has a status server: jobs whose volumes stand in its way are told.
pub fn at_admission(job: &Job, runtime: &Runtime) -> Vec<String> {
    let server = StatusServer { base_url: String::new(), ca: CaSource::Inline(String::new()) };
    of(job, runtime, &Settings { status_server: Some(server) })
}

/// The same as events.
pub fn events(warnings: Vec<String>) -> impl Iterator<Item = Event> {
    warnings.into_iter().map(|message| Event {
        regarding: None,
        kind: EventType::Warning,
        reason: REASON.to_owned(),
        message,
        reporter: EVENT_REPORTER,
        action: EVENT_ACTION_RECONCILING,
    })
}

/// Without a section `trainer` the ranks of several nodes do not get the variables by which they meet.
fn ranks_apart(job: &Job, runtime: &Runtime, info: &Info, warnings: &mut Vec<String>) {
    let variables = match &info.framework {
        Framework::Torch(_) => "PET_*",
        Framework::Jax => "JAX_*",
        Framework::XgBoost => "DMLC_*",
        Framework::Mpi(_) | Framework::Flux(_) | Framework::Plain => return,
    };
    let nodes = info.by_ancestor(Ancestor::Trainer).map_or(0, |set| set.count);
    if job.trainer.is_none() && nodes > 1 {
        warnings.push(format!(
            "spec.trainer is absent: the {nodes} nodes of runtime {} get no {variables} variables and train apart from each other; \
             add `trainer: {{}}`",
            runtime.name
        ));
    }
}

/// The pod sets in which ranks run.
fn ranks(info: &Info) -> impl Iterator<Item = &PodSet> {
    info.pod_sets.iter().filter(|set| match &info.framework {
        Framework::Mpi(policy) => set.name == NODE || (set.name == LAUNCHER && policy.run_launcher_as_node()),
        _ => set.ancestor == Some(Ancestor::Trainer),
    })
}

/// A number of nodes that is not the one given, and launchers that start more than once.
fn nodes(job: &Job, runtime: &Runtime, info: &Info, warnings: &mut Vec<String>) {
    let pods = ranks(info).map(|set| i64::from(set.count) * i64::from(set.replicas)).fold(0, i64::saturating_add);
    if let Some(asked) = job.num_nodes()
        && i64::from(asked) != pods
    {
        let why = match &info.framework {
            Framework::Mpi(policy) if policy.run_launcher_as_node() && asked <= 1 => {
                ": with runLauncherAsNode the launcher runs ranks beside at least one node"
            }
            _ if !info.has_ml_policy => ": the runtime has no mlPolicy, so its template alone counts",
            _ => "",
        };
        let are = if pods == 1 { "1 pod runs".to_owned() } else { format!("{pods} pods run") };
        warnings.push(format!("spec.trainer.numNodes is {asked}, but {are} ranks on runtime {}{why}", runtime.name));
    }
    let launcher = info.by_name(LAUNCHER).filter(|_| matches!(info.framework, Framework::Mpi(_)));
    if let Some(count) = launcher.map(|set| i64::from(set.count) * i64::from(set.replicas)).filter(|count| *count > 1) {
        warnings.push(format!(
            "runtime {} starts {count} launchers, and each starts all ranks: its mlPolicy.numNodes counts launchers; set it to 1 and \
             give the number of nodes as spec.trainer.numNodes",
            runtime.name
        ));
    }
}

/// Fields of `spec.trainer` that this runtime does not read.
fn without_effect(job: &Job, runtime: &Runtime, info: &Info, warnings: &mut Vec<String>) {
    let Some(trainer) = &job.trainer else { return };
    let mut say = |field: &str, why: &str| {
        warnings.push(format!("spec.trainer.{field} has no effect on runtime {}: {why}", runtime.name));
    };
    let reads_processes = matches!(info.framework, Framework::Torch(_) | Framework::Mpi(_) | Framework::Flux(_));
    if trainer.num_proc_per_node.is_some() && !reads_processes {
        say("numProcPerNode", "it starts one process on each node");
    }
    if trainer.resources_per_node.is_some() && !info.has_ml_policy {
        say("resourcesPerNode", "the runtime has no mlPolicy");
    }
    let main = info.by_ancestor(Ancestor::Trainer).and_then(|set| set.container(NODE));
    if main.is_none() {
        let given = [
            ("image", trainer.image.is_some()),
            ("command", trainer.command.is_some()),
            ("args", trainer.args.is_some()),
            ("env", !trainer.env.is_empty()),
        ];
        for (field, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            say(field, "it has no step of the trainer with a container \"node\"");
        }
    }
}

/// Commands that take the place of the ssh servers to which mpirun connects, and variables that mpirun does not pass on.
fn mpi_commands(job: &Job, info: &Info, warnings: &mut Vec<String>) {
    let (Framework::Mpi(_), Some(trainer)) = (&info.framework, &job.trainer) else { return };
    let is_server = |set: &&PodSet| set.name == NODE && set.ancestor == Some(Ancestor::Trainer);
    if (trainer.command.is_some() || trainer.args.is_some()) && info.pod_sets.iter().any(|set| is_server(&set)) {
        warnings.push(
            "spec.trainer.command also replaces the ssh server of the nodes, because the runtime labels `node` as a step of the \
             trainer: mpirun will not reach them"
                .to_owned(),
        );
    }
    if !trainer.env.is_empty() && mpi::chooses_variables(job, info) {
        warnings.push(
            "mpirun in spec.trainer.command chooses by itself which variables it passes on: those of spec.trainer.env that it does \
             not name with -x do not reach the ranks on other nodes"
                .to_owned(),
        );
    }
}

/// `STORAGE_URI` beside another `storageUri`.
fn locations(job: &Job, warnings: &mut Vec<String>) {
    let steps: [(&str, Option<&InitializerStep>); 2] =
        [("dataset", job.initializer.dataset.as_ref()), ("model", job.initializer.model.as_ref())];
    for (name, step) in steps {
        let Some(step) = step else { continue };
        let variable = |env: &[Value]| {
            env.iter().find(|v| object::text(v, "name") == STORAGE_URI).map(|v| object::text(v, "value").to_owned())
        };
        let in_job = variable(&step.env);
        if let (Some(used), Some(uri)) = (&in_job, &step.storage_uri)
            && used != uri
        {
            warnings.push(format!(
                "spec.initializer.{name}.env sets {STORAGE_URI} to {used:?}, which is used; storageUri {uri:?} beside it has no effect"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::fixture::{job, replicated, runtime};
    use serde_json::json;

    fn said(spec: Value, policy: Value, steps: &[Value]) -> Vec<String> {
        of(&job(spec), &runtime(json!({"mlPolicy": policy}), steps), &Settings::default())
    }

    #[test]
    fn each_surprise_has_a_sentence_and_what_is_usual_has_none() {
        let node = || [replicated("node", "trainer")];
        let mpi = || [replicated("node", ""), replicated("launcher", "trainer")];
        let torch = json!({"numNodes": 2, "torch": {}});
        let launched =
            |words: &str| json!({"trainer": {"command": ["sh", "-c", words], "env": [{"name": "A", "value": "b"}]}});
        for (spec, policy, steps, part) in [
            (json!({}), torch.clone(), node().to_vec(), "get no PET_* variables"),
            (json!({}), json!({"numNodes": 2, "jax": {}}), node().to_vec(), "JAX_*"),
            (json!({}), json!({"numNodes": 2, "xgboost": {}}), node().to_vec(), "DMLC_*"),
            (json!({}), json!({"numNodes": 3, "mpi": {}}), mpi().to_vec(), "starts 3 launchers"),
            (
                json!({"trainer": {"numNodes": 1}}),
                json!({"mpi": {"runLauncherAsNode": true}}),
                mpi().to_vec(),
                "2 pods run ranks",
            ),
            (
                json!({"trainer": {"numProcPerNode": 2}}),
                json!({"jax": {}}),
                node().to_vec(),
                "numProcPerNode has no effect",
            ),
            (json!({"trainer": {"image": "x"}}), json!({}), vec![replicated("other", "")], "image has no effect"),
            (launched("mpirun -x B run"), json!({"mpi": {}}), mpi().to_vec(), "do not reach the ranks"),
            (
                json!({"trainer": {"command": ["mpirun", "x"]}}),
                json!({"mpi": {}}),
                vec![replicated("node", "trainer"), replicated("launcher", "")],
                "replaces the ssh server",
            ),
        ] {
            let said = said(spec.clone(), policy, &steps);
            assert!(said.iter().any(|text| text.contains(part)), "{spec}: {said:?}");
        }
        for (spec, policy, steps) in [
            (json!({"trainer": {}}), torch, node().to_vec()),
            (json!({}), json!({"numNodes": 1, "torch": {}}), node().to_vec()),
            (json!({"trainer": {"numNodes": 3, "numProcPerNode": 2}}), json!({"mpi": {}}), mpi().to_vec()),
            (json!({"trainer": {"numNodes": 3}}), json!({"mpi": {"runLauncherAsNode": true}}), mpi().to_vec()),
            (launched("mpirun train"), json!({"mpi": {}}), mpi().to_vec()),
            (launched("mpirun -x A train"), json!({"mpi": {}}), mpi().to_vec()),
            (launched("python train.py"), json!({"mpi": {}}), mpi().to_vec()),
            (json!({"trainer": {"numNodes": 2, "image": "x"}}), json!({}), node().to_vec()),
        ] {
            assert_eq!(said(spec.clone(), policy, &steps), Vec::<String>::new(), "{spec}");
        }
    }

    #[test]
    fn a_second_location_is_told() {
        let steps = [replicated("dataset-initializer", "dataset-initializer"), replicated("node", "trainer")];
        let spec =
            |env: Value| json!({"trainer": {}, "initializer": {"dataset": {"storageUri": "hf://a/b", "env": env}}});
        let clash = said(spec(json!([{"name": "STORAGE_URI", "value": "hf://c/d"}])), json!({}), &steps);
        assert!(clash[0].contains("\"hf://c/d\", which is used"), "{clash:?}");
        assert!(said(spec(json!([{"name": "STORAGE_URI", "value": "hf://a/b"}])), json!({}), &steps).is_empty());
        assert!(said(spec(json!([])), json!({}), &steps).is_empty());
    }
}
