//! CoScheduling: a PodGroup of scheduler-plugins, and the label by which pods name it.
//! Source: upstream's `pkg/runtime/framework/plugins/coscheduling`.

use super::{Build, BuildError, Plugin, Settings, apply, gang};
use crate::info::Info;
use crate::job::Job;
use crate::names::LABEL_POD_GROUP;
use crate::resources;
use api::object::{Gvk, Target};
use api::podgroup::coscheduling;
use reconcile::Op;
use serde_json::json;

/// Seconds that the scheduler waits for the gang where the runtime does not say; the schema's default.
const DEFAULT_TIMEOUT_SECS: i32 = 60;

/// Active where `podGroupPolicy.coscheduling` is set.
pub struct Coscheduling;

impl Plugin for Coscheduling {
    fn name(&self) -> &'static str {
        "CoScheduling"
    }

    fn enforce_pod_group_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        if info.pod_group.coscheduling.is_some() {
            gang::mark(info, job, |scheduler, name| _ = scheduler.pod_labels.insert(LABEL_POD_GROUP.to_owned(), name));
        }
        Ok(())
    }

    fn build(&self, cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        let Some(policy) = &cx.info.pod_group.coscheduling else { return Ok(Vec::new()) };
        let mut groups = Vec::new();
        for gang in gang::gangs(cx.info, cx.job) {
            if gang::may_write(cx, &target(cx.job, &gang.name)) {
                let mut group = cx.job.child(&coscheduling::gvk().api_version(), coscheduling::KIND, &gang.name);
                group["spec"] = json!({
                    "minMember": gang.members,
                    "minResources": resources::render(&gang.requests),
                    "scheduleTimeoutSeconds": policy.schedule_timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECS),
                });
                groups.push(apply(group));
            }
        }
        Ok(groups)
    }

    fn reads(&self, job: &Job, _settings: &Settings) -> Vec<Target> {
        vec![target(job, &job.name)]
    }

    fn watches(&self) -> Vec<Gvk> {
        vec![coscheduling::gvk()]
    }
}

fn target(job: &Job, name: &str) -> Target {
    job.sibling(&coscheduling::gvk().api_version(), coscheduling::KIND, name)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{child, children, job, replicated, runtime};
    use super::*;
    use crate::runtime::Runtime;
    use serde_json::Value;

    fn gang(policy: Value) -> Runtime {
        let with_requests = |name: &str, step: &str| {
            let mut job = replicated(name, step);
            job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"requests": {"cpu": 1, "memory": "4Gi"}});
            job
        };
        runtime(
            json!({"mlPolicy": {"numNodes": 100, "torch": {}}, "podGroupPolicy": {"coscheduling": policy}}),
            &[
                with_requests("dataset-initializer", "dataset-initializer"),
                with_requests("model-initializer", "model-initializer"),
                with_requests("node", "trainer"),
            ],
        )
    }

    #[test]
    fn the_group_is_the_sum_of_all_pods() {
        let ops = children(&job(json!({})), &gang(json!({})), &Settings::default(), &[]).unwrap();
        let expected = json!({
            "minMember": 102, "minResources": {"cpu": "102", "memory": "408Gi"}, "scheduleTimeoutSeconds": 60,
        });
        assert_eq!(child(&ops, "PodGroup").unwrap()["spec"], expected);
        let jobset = child(&ops, "JobSet").unwrap();
        for index in 0..3 {
            let labels =
                jobset.pointer(&format!("/spec/replicatedJobs/{index}/template/spec/template/metadata/labels"));
            assert_eq!(labels, Some(&json!({"scheduling.x-k8s.io/pod-group": "train"})));
        }
    }

    #[test]
    fn a_group_in_use_is_left_alone() {
        let runtime = gang(json!({"scheduleTimeoutSeconds": 5}));
        let ops = children(&job(json!({})), &runtime, &Settings::default(), &[]).unwrap();
        let group = child(&ops, "PodGroup").unwrap().clone();
        for (suspend, written) in [(false, false), (true, true)] {
            let live = std::slice::from_ref(&group);
            let ops = children(&job(json!({"suspend": suspend})), &runtime, &Settings::default(), live).unwrap();
            assert_eq!(child(&ops, "PodGroup").is_some(), written, "suspend: {suspend}");
        }
    }
}
