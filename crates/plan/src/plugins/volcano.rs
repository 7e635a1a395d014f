//! Volcano: a PodGroup, and the annotation by which pods name it.
//! Source: upstream's `pkg/runtime/framework/plugins/volcano`.

use super::{Build, BuildError, Findings, Plugin, Settings, Validation, apply, gang};
use crate::info::Info;
use crate::job::{Job, list};
use crate::names::{ANNOTATION_VOLCANO_GROUP, ANNOTATION_VOLCANO_QUEUE};
use crate::resources;
use api::field::{Error, Path};
use api::object::{Gvk, Key, Target};
use api::podgroup::volcano;
use api::trainer::TopologyMode;
use reconcile::Op;
use serde_json::{Value, json};

/// Priority classes that every cluster has.
const SYSTEM_PRIORITIES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Active where `podGroupPolicy.volcano` is set.
pub struct Volcano;

impl Plugin for Volcano {
    fn name(&self) -> &'static str {
        "Volcano"
    }

    fn validate(&self, cx: &Validation<'_>, findings: &mut Findings) {
        if cx.info.pod_group.volcano.is_none() {
            return;
        }
        let spec = Path::new("spec");
        if cx.info.annotations.get(ANNOTATION_VOLCANO_QUEUE).is_some_and(String::is_empty) {
            let field = spec.child("annotations").key(ANNOTATION_VOLCANO_QUEUE);
            findings.errors.push(Error::invalid(&field, "", "Volcano queue name must not be empty"));
        }
        for class in priority_classes(&cx.info.template) {
            if SYSTEM_PRIORITIES.contains(&class) {
                return;
            }
            let gvk = Gvk::new("scheduling.k8s.io", "v1", "PriorityClass");
            if cx.view.get(&Target { gvk, key: Key::new("", class) }).is_none() {
                let field = spec.child("templateSpec").child("priorityClassName");
                let detail = format!(
                    "PriorityClass {class:?} doesn't exist: PriorityClass.scheduling.k8s.io {class:?} not found"
                );
                findings.errors.push(Error::invalid(&field, class, detail));
            }
        }
    }

    fn enforce_pod_group_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        if info.pod_group.volcano.is_some() {
            gang::mark(info, job, |scheduler, name| {
                scheduler.pod_annotations.insert(ANNOTATION_VOLCANO_GROUP.to_owned(), name);
            });
        }
        Ok(())
    }

    fn build(&self, cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        let Some(policy) = &cx.info.pod_group.volcano else { return Ok(Vec::new()) };
        let mut groups = Vec::new();
        for gang in gang::gangs(cx.info, cx.job) {
            if !gang::may_write(cx, &target(cx.job, &gang.name)) {
                continue;
            }
            let mut spec = json!({"minMember": gang.members, "minResources": resources::render(&gang.requests)});
            if let Some(queue) = cx.info.annotations.get(ANNOTATION_VOLCANO_QUEUE) {
                spec["queue"] = json!(queue);
            }
            if let Some(class) = priority_classes(&cx.info.template).last() {
                spec["priorityClassName"] = json!(class);
            }
            if let Some(topology) = &policy.network_topology {
                spec["networkTopology"] = json!({
                    "mode": topology.mode.unwrap_or(TopologyMode::Hard),
                    "highestTierAllowed": topology.highest_tier_allowed.unwrap_or(1),
                });
            }
            let mut group = cx.job.child(&volcano::gvk().api_version(), volcano::KIND, &gang.name);
            group["spec"] = spec;
            groups.push(apply(group));
        }
        Ok(groups)
    }

    fn reads(&self, job: &Job, _settings: &Settings) -> Vec<Target> {
        vec![target(job, &job.name)]
    }

    fn watches(&self) -> Vec<Gvk> {
        vec![volcano::gvk()]
    }
}

fn target(job: &Job, name: &str) -> Target {
    job.sibling(&volcano::gvk().api_version(), volcano::KIND, name)
}

/// The priority classes that replicated jobs name, in order.
fn priority_classes(template: &Value) -> impl Iterator<Item = &str> {
    list(template, "replicatedJobs")
        .iter()
        .filter_map(|job| job.pointer("/template/spec/template/spec/priorityClassName").and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{child, children, faults, job, replicated, runtime};
    use super::*;
    use crate::runtime::Runtime;

    fn gang(policy: Value, annotations: Value, class: Option<&str>) -> Runtime {
        let mut node = replicated("node", "trainer");
        if let Some(class) = class {
            node["template"]["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        }
        let spec = json!({
            "mlPolicy": {"numNodes": 2, "torch": {}},
            "podGroupPolicy": {"volcano": policy},
            "template": {"metadata": {"annotations": annotations}},
        });
        runtime(spec, &[node])
    }

    #[test]
    fn the_group_says_queue_priority_and_topology() {
        let plain = gang(json!({}), json!({}), None);
        let full = gang(
            json!({"networkTopology": {"mode": "soft"}}),
            json!({"scheduling.volcano.sh/queue-name": "gold"}),
            Some("high"),
        );
        let cases = [
            (plain, json!({"minMember": 2, "minResources": {}})),
            (
                full,
                json!({
                    "minMember": 2, "minResources": {}, "queue": "gold", "priorityClassName": "high",
                    "networkTopology": {"mode": "soft", "highestTierAllowed": 1},
                }),
            ),
        ];
        for (runtime, expected) in cases {
            let ops = children(&job(json!({})), &runtime, &Settings::default(), &[]).unwrap();
            assert_eq!(child(&ops, "PodGroup").unwrap()["spec"], expected);
            let pod = "/spec/replicatedJobs/0/template/spec/template/metadata/annotations";
            let annotations = child(&ops, "JobSet").unwrap().pointer(pod);
            assert_eq!(annotations, Some(&json!({"scheduling.k8s.io/group-name": "train"})));
        }
    }

    #[test]
    fn queue_and_priority_class_must_be_real() {
        let no_queue = gang(json!({}), json!({"scheduling.volcano.sh/queue-name": ""}), None);
        assert_eq!(
            faults(&Volcano, &job(json!({})), &no_queue, &[]),
            [
                "spec.annotations[scheduling.volcano.sh/queue-name]: Invalid value: \"\": Volcano queue name must not be empty"
            ]
        );
        let class =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "there"}});
        for (name, fault) in [("system-node-critical", false), ("there", false), ("gone", true)] {
            let runtime = gang(json!({}), json!({}), Some(name));
            let found = faults(&Volcano, &job(json!({})), &runtime, std::slice::from_ref(&class));
            assert_eq!(!found.is_empty(), fault, "{found:?}");
            if fault {
                assert_eq!(
                    found,
                    [
                        "spec.templateSpec.priorityClassName: Invalid value: \"gone\": PriorityClass \"gone\" doesn't exist: \
                      PriorityClass.scheduling.k8s.io \"gone\" not found"
                    ]
                );
            }
        }
    }
}
