//! Gangs: which pods of a TrainJob are placed together, what a PodGroup says of them, and how pods name theirs. What both
//! PodGroup plugins share.

use super::Build;
use crate::annotations::GangScope;
use crate::info::{Info, PodSet, Scheduler};
use crate::job::{Job, list};
use crate::resources::{self, ResourceList};
use api::object::{self, Target};
use serde_json::Value;

/// Pods that are placed together or not at all.
#[derive(Debug, PartialEq)]
pub(super) struct Gang {
    /// Of the PodGroup.
    pub name: String,
    pub members: i32,
    pub requests: ResourceList,
}

/// The gangs of a TrainJob, in the order in which their first pods start.
// Q-29 (kept): by default all pods are one, initializers included, although they end before the others may start: Kueue's
// quota has it so, too. A strict gang scheduler waits for ever, ours counts what is there. A TrainJob may ask for a gang for
// each stage instead.
pub(super) fn gangs(info: &Info, job: &Job) -> Vec<Gang> {
    let mut gangs: Vec<Gang> = Vec::new();
    for (set, name) in info.pod_sets.iter().zip(names(info, job)) {
        let at = gangs.iter().position(|gang| gang.name == name).unwrap_or_else(|| {
            gangs.push(Gang { name, members: 0, requests: ResourceList::new() });
            gangs.len() - 1
        });
        gangs[at].members += set.count;
        resources::add(&mut gangs[at].requests, &set.requests, set.count.into());
    }
    gangs
}

/// Puts on pods what names their gang.
pub(super) fn mark(info: &mut Info, job: &Job, put: impl Fn(&mut Scheduler, String)) {
    match job.options.gang {
        GangScope::All => put(&mut info.scheduler, job.name.clone()),
        GangScope::Stages => {
            let names = names(info, job);
            info.pod_sets.iter_mut().zip(names).for_each(|(set, name)| put(&mut set.scheduler, name));
        }
    }
}

/// Whether a PodGroup may be written: where there is none, or while no pod of the gang can be there.
pub(super) fn may_write(cx: &Build<'_>, group: &Target) -> bool {
    cx.job.suspend || cx.view.get(group).is_none()
}

/// The name of each pod set's gang: the TrainJob's where there is but one, else with the name of the first replicated job of
/// the stage behind it, which is shorter than the names of pods.
fn names(info: &Info, job: &Job) -> Vec<String> {
    let stages = match job.options.gang {
        GangScope::All => vec![0; info.pod_sets.len()],
        GangScope::Stages => stages(info),
    };
    if stages.iter().all(|stage| *stage == 0) {
        return vec![job.name.clone(); stages.len()];
    }
    let first = |stage: usize| stages.iter().position(|other| *other == stage).unwrap_or(0);
    stages.iter().map(|stage| format!("{}-{}", job.name, info.pod_sets[first(*stage)].name)).collect()
}

/// In which stage each replicated job starts: one later than the last that it waits for, be it to complete or to be ready.
/// Those that wait for nothing are stage 0. Where jobs start in order each is a stage of its own.
fn stages(info: &Info) -> Vec<usize> {
    let order = info.template.pointer("/startupPolicy/startupPolicyOrder").and_then(Value::as_str);
    if order == Some("InOrder") {
        return (0..info.pod_sets.len()).collect();
    }
    let mut stages = Vec::new();
    for replicated in list(&info.template, "replicatedJobs") {
        // JobSet lets a job wait for earlier ones only
        let earlier: &[PodSet] = &info.pod_sets[..stages.len()];
        let stage_of = |name: &str| earlier.iter().position(|set| set.name == name).map(|at| stages[at]);
        let awaited = list(replicated, "dependsOn").iter().filter_map(|on| stage_of(object::text(on, "name")));
        let stage = awaited.max().map_or(0, |stage: usize| stage + 1);
        stages.push(stage);
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::super::fixture::{child, children, enforced, replicated, runtime};
    use super::*;
    use crate::runtime::Runtime;
    use api::podgroup;
    use api::trainer::annotations::GANG;
    use reconcile::Op;
    use serde_json::json;

    fn job(scope: &str) -> Job {
        Job::parse(
            &json!({"metadata": {"name": "train", "namespace": "ns", "uid": "u-1", "annotations": {GANG: scope}},
            "spec": {"runtimeRef": {"name": "rt"}}}),
        )
    }

    /// Two initializers, then the nodes, then a launcher once they are ready.
    fn staged(policy: &str) -> Runtime {
        let on = |mut job: Value, names: &[(&str, &str)]| {
            let names: Vec<Value> = names.iter().map(|(n, s)| json!({"name": n, "status": s})).collect();
            job["dependsOn"] = json!(names);
            job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": 1}});
            job
        };
        let initializer = |name: &str| on(replicated(name, name), &[]);
        let both = [("dataset-initializer", "Complete"), ("model-initializer", "Complete")];
        runtime(
            json!({"mlPolicy": {"numNodes": 4, "torch": {}}, "podGroupPolicy": {policy: {}}}),
            &[
                initializer("dataset-initializer"),
                initializer("model-initializer"),
                on(replicated("node", "trainer"), &both),
                on(replicated("launcher", ""), &[("node", "Ready")]),
            ],
        )
    }

    fn told(runtime: &Runtime, scope: &str) -> Vec<(String, i32, String)> {
        let job = job(scope);
        let gangs = gangs(&enforced(&job, runtime), &job);
        gangs.into_iter().map(|gang| (gang.name, gang.members, gang.requests["cpu"].to_string())).collect()
    }

    #[test]
    fn pods_that_start_together_are_a_gang() {
        let runtime = staged("coscheduling");
        let gang = |name: &str, members: i32| (name.to_owned(), members, members.to_string());
        assert_eq!(told(&runtime, "all"), [gang("train", 7)]);
        let stages = [gang("train-dataset-initializer", 2), gang("train-node", 4), gang("train-launcher", 1)];
        assert_eq!(told(&runtime, "stages"), stages);
        let mut in_order = runtime;
        in_order.template["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
        assert_eq!(told(&in_order, "stages").len(), 4);
    }

    #[test]
    fn one_stage_is_the_whole_gang() {
        let plain = runtime(
            json!({"mlPolicy": {"numNodes": 4, "torch": {}}, "podGroupPolicy": {"coscheduling": {}}}),
            &[replicated("node", "trainer")],
        );
        let build = |scope: &str| children(&job(scope), &plain, &Settings::default(), &[]).expect("it can be built");
        assert_eq!(build("stages"), build("all"));
    }

    #[test]
    fn pods_name_the_group_of_their_stage() {
        let label = "/labels/scheduling.x-k8s.io~1pod-group";
        let annotation = "/annotations/scheduling.k8s.io~1group-name";
        for (policy, gvk, mark) in
            [("coscheduling", podgroup::coscheduling::gvk(), label), ("volcano", podgroup::volcano::gvk(), annotation)]
        {
            let ops = children(&job("stages"), &staged(policy), &Settings::default(), &[]).expect("it can be built");
            let groups: Vec<&Value> = ops
                .iter()
                .filter_map(|op| match op {
                    Op::Apply { object, .. } if object::Gvk::of(object) == gvk => Some(object),
                    _ => None,
                })
                .collect();
            let names: Vec<&str> = groups.iter().map(|group| object::meta(group, "name")).collect();
            assert_eq!(names, ["train-dataset-initializer", "train-node", "train-launcher"]);
            assert_eq!(groups[1]["spec"]["minMember"], 4);
            assert_eq!(groups[1]["spec"]["minResources"], json!({"cpu": "4"}));
            let jobset = child(&ops, "JobSet").expect("there is one");
            let named: Vec<&str> = (0..4)
                .map(|index| {
                    let pod = format!("/spec/replicatedJobs/{index}/template/spec/template/metadata{mark}");
                    jobset.pointer(&pod).and_then(Value::as_str).expect("the pods are marked")
                })
                .collect();
            assert_eq!(named, [names[0], names[0], names[1], names[2]]);
        }
    }
}
