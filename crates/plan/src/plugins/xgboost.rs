//! XGBoost: the variables of its collective tracker. Node count and the user's variables come from PlainML.
//! Source: upstream's `pkg/runtime/framework/plugins/xgboost`.

use super::{BuildError, Findings, Plugin, Validation};
use crate::info::Info;
use crate::job::Job;
use crate::names::env::{DMLC_NUM_WORKER, DMLC_TASK_ID, DMLC_TRACKER_PORT, DMLC_TRACKER_URI};
use crate::names::{Ancestor, NODE, RANK_FIELD_PATH, TRAINER_PORT};
use crate::runtime::Framework;
use crate::upsert;
use api::field::{Error, Path};
use serde_json::json;

const RESERVED: [&str; 4] = [DMLC_NUM_WORKER, DMLC_TASK_ID, DMLC_TRACKER_PORT, DMLC_TRACKER_URI];

/// Active where `mlPolicy.xgboost` is set.
pub struct XgBoost;

impl Plugin for XgBoost {
    fn name(&self) -> &'static str {
        "XGBoost"
    }

    fn validate(&self, cx: &Validation<'_>, findings: &mut Findings) {
        let (Framework::XgBoost, Some(trainer)) = (&cx.info.framework, &cx.new.trainer) else { return };
        let field = Path::new("spec").child("trainer").child("env");
        for (index, variable) in trainer.env.iter().enumerate() {
            if let Some(name) = RESERVED.into_iter().find(|name| variable["name"] == **name) {
                let detail = format!("{name} is reserved for the XGBoost runtime");
                findings.errors.push(Error::forbidden(&field.index(index), detail));
            }
        }
    }

    fn enforce_ml_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        if info.framework != Framework::XgBoost {
            return Ok(());
        }
        let gpus = info.gpus_per_node(job);
        let Some(set) = info.by_ancestor_mut(Ancestor::Trainer) else { return Ok(()) };
        set.count = job.num_nodes().unwrap_or(set.count);
        // One worker a GPU. DMLC_TASK_ID all the same counts nodes: the script adds its local ranks.
        let workers = i64::from(set.count) * gpus.max(1);
        // Q-24 (kept): without a section `trainer` there is none of this, as with torch.
        if job.trainer.is_some()
            && let Some(node) = set.container_mut(NODE)
        {
            upsert::env_value(&mut node.env, DMLC_TRACKER_URI, job.master_host());
            upsert::env_value(&mut node.env, DMLC_TRACKER_PORT, TRAINER_PORT.to_string());
            upsert::env_field(&mut node.env, DMLC_TASK_ID, RANK_FIELD_PATH);
            upsert::env_value(&mut node.env, DMLC_NUM_WORKER, workers.to_string());
            upsert::port(&mut node.ports, json!({"containerPort": TRAINER_PORT}));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{enforced, env, faults, job, replicated, runtime};
    use super::*;

    #[test]
    fn workers_are_nodes_times_gpus() {
        let runtime = runtime(json!({"mlPolicy": {"numNodes": 2, "xgboost": {}}}), &[replicated("node", "trainer")]);
        let cases = [
            (json!({"trainer": {}}), "2"),
            (json!({"trainer": {"numNodes": 3}}), "3"),
            (json!({"trainer": {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}}), "12"),
        ];
        for (spec, workers) in cases {
            let info = enforced(&job(spec), &runtime);
            assert_eq!(
                env(&info.pod_sets[0].container(NODE).unwrap().env),
                [
                    "DMLC_TRACKER_URI=train-node-0-0.train".to_owned(),
                    "DMLC_TRACKER_PORT=29500".to_owned(),
                    format!("DMLC_TASK_ID={RANK_FIELD_PATH}"),
                    format!("DMLC_NUM_WORKER={workers}"),
                ]
            );
        }
    }

    #[test]
    fn its_variables_are_reserved() {
        let runtime = runtime(json!({"mlPolicy": {"xgboost": {}}}), &[replicated("node", "trainer")]);
        let job =
            job(json!({"trainer": {"env": [{"name": "A"}, {"name": "DMLC_TASK_ID"}, {"name": "DMLC_NUM_WORKER"}]}}));
        assert_eq!(
            faults(&XgBoost, &job, &runtime, &[]),
            [
                "spec.trainer.env[1]: Forbidden: DMLC_TASK_ID is reserved for the XGBoost runtime",
                "spec.trainer.env[2]: Forbidden: DMLC_NUM_WORKER is reserved for the XGBoost runtime",
            ]
        );
    }
}
