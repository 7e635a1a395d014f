//! JAX: the variables that `jax.distributed.initialize` needs, one process a node.
//! Source: upstream's `pkg/runtime/framework/plugins/jax`.

use super::{BuildError, Plugin};
use crate::info::Info;
use crate::job::Job;
use crate::names::env::{JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID};
use crate::names::{Ancestor, NODE, RANK_FIELD_PATH, TRAINER_PORT};
use crate::runtime::Framework;
use crate::upsert;
use serde_json::json;

/// Active where `mlPolicy.jax` is set. `numProcPerNode` means nothing to it.
pub struct Jax;

impl Plugin for Jax {
    fn name(&self) -> &'static str {
        "JAX"
    }

    fn enforce_ml_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        if info.framework != Framework::Jax {
            return Ok(());
        }
        let Some(set) = info.by_ancestor_mut(Ancestor::Trainer) else { return Ok(()) };
        set.count = job.num_nodes().unwrap_or(set.count);
        let processes = set.count;
        // Q-24 (kept): without a section `trainer` there is none of this, as with torch.
        if job.trainer.is_some()
            && let Some(node) = set.container_mut(NODE)
        {
            upsert::env_value(&mut node.env, JAX_NUM_PROCESSES, processes.to_string());
            upsert::env_field(&mut node.env, JAX_PROCESS_ID, RANK_FIELD_PATH);
            upsert::env_value(&mut node.env, JAX_COORDINATOR_ADDRESS, format!("{}:{TRAINER_PORT}", job.master_host()));
            upsert::port(&mut node.ports, json!({"containerPort": TRAINER_PORT}));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::super::fixture::{child, children, enforced, env, job, replicated, runtime};
    use super::*;

    #[test]
    fn each_node_is_a_process() {
        let runtime = runtime(json!({"mlPolicy": {"numNodes": 2, "jax": {}}}), &[replicated("node", "trainer")]);
        for (spec, processes) in
            [(json!({"trainer": {}}), "2"), (json!({"trainer": {"numNodes": 3, "numProcPerNode": 8}}), "3")]
        {
            let info = enforced(&job(spec), &runtime);
            let node = info.pod_sets[0].container(NODE).unwrap();
            assert_eq!(info.pod_sets[0].count.to_string(), processes);
            assert_eq!(
                env(&node.env),
                [
                    format!("JAX_NUM_PROCESSES={processes}"),
                    format!("JAX_PROCESS_ID={RANK_FIELD_PATH}"),
                    "JAX_COORDINATOR_ADDRESS=train-node-0-0.train:29500".to_owned(),
                ]
            );
            assert_eq!(node.ports, [json!({"containerPort": 29500})]);
        }
    }

    #[test]
    fn the_users_variables_win() {
        let runtime = runtime(json!({"mlPolicy": {"jax": {}}}), &[replicated("node", "trainer")]);
        let job = job(json!({"trainer": {"env": [{"name": "A"}, {"name": "JAX_PROCESS_ID", "value": "7"}]}}));
        let ops = children(&job, &runtime, &Settings::default(), &[]).unwrap();
        let node =
            child(&ops, "JobSet").unwrap().pointer("/spec/replicatedJobs/0/template/spec/template/spec/containers/0");
        let names = env(node.unwrap()["env"].as_array().unwrap());
        assert_eq!(names[1..], ["JAX_PROCESS_ID=7", "JAX_COORDINATOR_ADDRESS=train-node-0-0.train:29500", "A="]);
    }
}
