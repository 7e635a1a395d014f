//! The pod that holds a machine: its request, and its state.

use super::record::Record;
use crate::fault::{Fault, shown};
use api::object::text;
use api::sky::{Candidate, keys};
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use managed::inventory::{Free, GPUS};
use managed::provider::Ended;
use serde_json::{Map, Value, json};

/// The container in which jobs run.
pub const CONTAINER: &str = "machine";
/// Label of our pods: a hash of their owner.
pub const OWNER: &str = "sky.trainyard.dev/owner";
/// Image of jobs whose task names none: it has bash, Python and the tools that bring the program there.
const IMAGE: &str = "python:3.12";
/// The container's own command.
const HOLDS: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";
/// Reasons for which a container will never start without a change.
const NEVER: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// Reasons of events about a pod that the cluster ends.
const DISRUPTIONS: [&str; 5] = ["Preempted", "Preempting", "Evicted", "TaintManagerEviction", "NodeControllerEviction"];

/// Resources of a container and of the node in it.
fn amounts(candidate: &Candidate) -> Map<String, Value> {
    let mut all = Map::new();
    if candidate.cpus > 0.0 {
        all.insert("cpu".to_owned(), candidate.cpus.to_string().into());
    }
    if candidate.memory > 0.0 {
        all.insert("memory".to_owned(), format!("{}Mi", (candidate.memory * 1024.0).floor()).into());
    }
    all
}

/// `cpu=4,memory=16384Mi`: the resources that the agent reports.
pub fn capacity(candidate: &Candidate) -> String {
    let all = amounts(candidate);
    let pairs = all.iter().map(|(name, amount)| format!("{name}={}", amount.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// The nodes with the requested GPUs: the resource, the label and its values.
fn meant(wanted: &str, nodes: &[Free]) -> Option<(String, String, Vec<String>)> {
    let gpus = nodes.iter().filter_map(|node| node.gpus.as_ref());
    let meant: Vec<_> = gpus.filter(|gpus| placement::is_named(&gpus.product, wanted)).collect();
    let first = meant.first()?;
    let mut values: Vec<String> =
        meant.iter().filter(|gpus| gpus.label == first.label).map(|gpus| gpus.product.clone()).collect();
    values.sort();
    values.dedup();
    Some((first.resource.clone(), first.label.clone(), values))
}

/// The pod. `nodes`: the nodes of the cluster, which say how its GPUs are named.
///
/// # Errors
/// `NoRoom`: no node has such GPUs.
pub fn manifest(record: &Record, owner: &str, nodes: &[Free]) -> Result<Value, Fault> {
    let candidate = &record.candidate;
    let options = &candidate.pod;
    let mut requests = amounts(candidate);
    let mut limits = Map::new();
    let mut spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 10, "enableServiceLinks": false,
        "tolerations": GPUS.map(|gpu| json!({"key": gpu, "operator": "Exists", "effect": "NoSchedule"})),
    });
    if let Some(gpus) = candidate.accelerators.as_ref().filter(|gpus| gpus.count > 0.0) {
        let Some((resource, label, values)) = meant(&gpus.name, nodes) else {
            return Err(Fault::NoRoom(format!("none of its nodes that take pods has GPUs that are a {}", gpus.name)));
        };
        let count = Value::from(gpus.count.ceil().to_string());
        requests.insert(resource.clone(), count.clone());
        limits.insert(resource, count);
        let term = json!({"matchExpressions": [{"key": label, "operator": "In", "values": values}]});
        spec["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    }
    if !options.service_account.is_empty() {
        spec["serviceAccountName"] = options.service_account.clone().into();
    }
    let image = if options.image.is_empty() { IMAGE } else { &options.image };
    spec["containers"] = json!([{
        "name": CONTAINER, "image": image, "command": ["/bin/sh", "-c", HOLDS],
        "resources": {"requests": requests, "limits": limits},
    }]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": options.labels, "annotations": options.annotations},
        "spec": spec,
    });
    for part in ["metadata", "spec"] {
        lay(&mut pod[part], &options.config[part]);
    }
    // these find it again
    pod["metadata"]["name"] = record.pod().into();
    pod["metadata"]["namespace"] = record.namespace.clone().into();
    pod["spec"]["containers"][0]["name"] = CONTAINER.into();
    let labels = [(keys::TOKEN, &record.who.token), (OWNER, &owner.to_owned())];
    for (label, value) in labels {
        pod["metadata"]["labels"][label] = value.clone().into();
    }
    if let Some(cluster) = record.who.labels.get(keys::CLUSTER) {
        pod["metadata"]["labels"][keys::CLUSTER] = cluster.clone().into();
    }
    Ok(pod)
}

/// Merges `over` into a value: maps are merged, the first container into the first; other lists are appended.
fn lay(under: &mut Value, over: &Value) {
    match (under, over) {
        (_, Value::Null) => {}
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                let slot = under.entry(key.clone()).or_insert(Value::Null);
                match (key.as_str(), slot, value) {
                    ("containers", Value::Array(has), Value::Array(more)) => {
                        if let (Some(has), Some(more)) = (has.first_mut(), more.first()) {
                            lay(has, more);
                        }
                        has.extend(more.iter().skip(1).cloned());
                    }
                    ("command" | "args", slot, value) => slot.clone_from(value),
                    (_, slot, value) => lay(slot, value),
                }
            }
        }
        (Value::Array(has), Value::Array(more)) => has.extend(more.iter().cloned()),
        (under, over) => under.clone_from(over),
    }
}

/// The state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It has no node; the reason, if the scheduler gave one.
    Waits(String),
    /// It has a node, and its container is being made.
    Starts,
    Runs,
    /// It will not start without a change.
    Never(String),
    /// It has ended, or is being deleted.
    Ends,
}

/// The state of the pod.
pub fn stand(pod: &DynamicObject) -> Stand {
    let (spec, status) = (&pod.data["spec"], &pod.data["status"]);
    let phase = text(status, "phase");
    if pod.metadata.deletion_timestamp.is_some() || matches!(phase, "Succeeded" | "Failed") {
        return Stand::Ends;
    }
    let list = |member: &str| status[member].as_array().map_or(&[][..], Vec::as_slice);
    let containers = list("containerStatuses");
    if phase == "Running" && containers.iter().any(|one| one["name"] == CONTAINER && one["ready"] == true) {
        return Stand::Runs;
    }
    let mut waiting = containers.iter().map(|one| &one["state"]["waiting"]);
    if let Some(never) = waiting.find(|waiting| NEVER.contains(&text(waiting, "reason"))) {
        return Stand::Never(format!("{}: {}", text(never, "reason"), text(never, "message")));
    }
    if !text(spec, "nodeName").is_empty() {
        return Stand::Starts;
    }
    let scheduled = list("conditions").iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    Stand::Waits(scheduled.map(|one| text(one, "message").to_owned()).unwrap_or_default())
}

/// When an event happened last.
fn when(event: &DynamicObject) -> &str {
    let last = text(&event.data, "lastTimestamp");
    if last.is_empty() { text(&event.data, "eventTime") } else { last }
}

/// The newest event of one of these reasons.
fn newest<'a>(events: &'a [DynamicObject], reasons: &[&str]) -> Option<&'a Value> {
    let meant = events.iter().filter(|event| reasons.contains(&text(&event.data, "reason")));
    meant.max_by_key(|event| when(event)).map(|event| &event.data)
}

/// The newest event's message about volumes that a node cannot mount or attach; `None` if there is no such event.
pub fn mount_trouble(events: &[DynamicObject]) -> Option<String> {
    Some(text(newest(events, &["FailedMount", "FailedAttachVolume"])?, "message").to_owned())
}

/// `REASON: MESSAGE`, or one of the two; empty if there is neither. A cluster's message is shown in terminals, so it is made harmless.
fn told(of: &Value) -> String {
    let parts = [text(of, "reason"), text(of, "message").trim()];
    let said = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    shown(&said).into_owned()
}

/// Why and when a pod ended, or began to be deleted; `place` names the pod.
///
/// Kubernetes reports it in several places: the condition `DisruptionTarget` (preempted, drained, its node is gone), the pod's own reason
/// (evicted by the kubelet), and the end of the container (exit code, out of memory).
pub fn ended(place: &str, pod: &DynamicObject) -> Ended {
    let status = &pod.data["status"];
    let list = |member: &str| status[member].as_array().map_or(&[][..], Vec::as_slice);
    let disruption = list("conditions").iter().find(|one| one["type"] == "DisruptionTarget" && one["status"] == "True");
    let container = list("containerStatuses").iter().find(|one| one["name"] == CONTAINER);
    let over = container.map(|one| &one["state"]["terminated"]).filter(|over| !over.is_null());
    let mut causes: Vec<String> = Vec::new();
    causes.extend(disruption.map(told));
    causes.push(told(status));
    causes.extend(over.map(|over| {
        let code = format!("its container ended with exit code {}", over["exitCode"]);
        match told(over) {
            why if why.is_empty() || why == "Error" || why == "Completed" => code,
            why => format!("{code} ({why})"),
        }
    }));
    causes.retain(|cause| !cause.is_empty());
    let what = match (pod.metadata.deletion_timestamp.is_some(), disruption.is_some(), text(status, "phase")) {
        (true, true, _) => "was deleted",
        (true, false, _) => "was deleted from outside",
        (false, _, "Succeeded") => "ended by itself",
        (false, _, _) => "failed",
    };
    let why = match causes.is_empty() {
        true => format!("pod {place} {what}"),
        false => format!("pod {place} {what}: {}", causes.join("; ")),
    };
    let time = |of: &Value, member: &str| text(of, member).parse::<Timestamp>().ok();
    let asked = || {
        let until = serde_json::to_value(pod.metadata.deletion_timestamp.as_ref()?).ok()?;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let until = until.as_str()?.parse::<Timestamp>().ok()?;
        until.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    let at = over.and_then(|over| time(over, "finishedAt"));
    let at = at.or_else(|| disruption.and_then(|one| time(one, "lastTransitionTime"))).or_else(asked);
    Ended { why, at }
}

/// Why and when a pod went that no longer exists, according to its events.
pub fn deleted(place: &str, events: &[DynamicObject]) -> Ended {
    match newest(events, &DISRUPTIONS) {
        None => Ended::because(format!("pod {place} is gone: it was deleted from outside")),
        Some(event) => {
            let at = ["lastTimestamp", "eventTime"].into_iter().find_map(|member| text(event, member).parse().ok());
            Ended { why: format!("pod {place} is gone: {}", told(event)), at }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Who;
    use crate::kubernetes::record::Goal;
    use api::sky::{Accelerators, PodOptions};
    use managed::inventory::Gpus;
    use std::collections::BTreeMap;

    fn record(candidate: Candidate) -> Record {
        Record {
            who: Who {
                token: "t-1".into(),
                node: "dev-0-0".into(),
                labels: [(keys::CLUSTER.to_owned(), "dev".to_owned())].into(),
                taints: BTreeMap::new(),
                address: String::new(),
                home: String::new(),
            },
            candidate,
            context: "c".into(),
            namespace: "ns".into(),
            goal: Goal::Running,
            generation: 0,
        }
    }

    #[test]
    fn what_the_user_says_is_laid_over_ours() {
        let config = json!({
            "metadata": {"labels": {"a": "b", OWNER: "theirs"}, "name": "mine"},
            "spec": {
                "containers": [{"name": "ray-node", "env": [{"name": "X", "value": "1"}], "resources": {"limits": {"cpu": "9"}}}, {"name": "side"}],
                "tolerations": [{"key": "mine"}], "nodeSelector": {"x": "y"},
            },
        });
        let pod = PodOptions { image: "img".into(), service_account: "sa".into(), config, ..PodOptions::default() };
        let made =
            manifest(&record(Candidate { cpus: 2.0, memory: 1.5, pod, ..Candidate::default() }), "me", &[]).unwrap();
        assert_eq!(made["metadata"]["name"], "sky-t1");
        assert_eq!(
            made["metadata"]["labels"],
            json!({"a": "b", OWNER: "me", keys::TOKEN: "t-1", keys::CLUSTER: "dev"})
        );
        let spec = &made["spec"];
        assert_eq!((&spec["serviceAccountName"], &spec["nodeSelector"]), (&json!("sa"), &json!({"x": "y"})));
        assert_eq!(spec["tolerations"].as_array().unwrap().len(), 3);
        let [machine, side] = spec["containers"].as_array().unwrap().as_slice() else { panic!("{spec}") };
        assert_eq!(
            (&machine["name"], &machine["image"], &side["name"]),
            (&json!(CONTAINER), &json!("img"), &json!("side"))
        );
        assert_eq!(machine["resources"], json!({"requests": {"cpu": "2", "memory": "1536Mi"}, "limits": {"cpu": "9"}}));
    }

    #[test]
    fn a_volume_that_cannot_be_mounted_is_read_from_events() {
        let event = |reason: &str, at: &str, message: &str| -> DynamicObject {
            let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": reason,
                "lastTimestamp": at, "message": message});
            serde_json::from_value(event).unwrap()
        };
        let events = [
            event("FailedMount", "2", "no such folder"),
            event("Pulled", "3", "x"),
            event("FailedMount", "1", "older"),
        ];
        assert_eq!(mount_trouble(&events).as_deref(), Some("no such folder"));
        assert_eq!(mount_trouble(&events[1..2]), None);
    }

    #[test]
    fn gpus_are_those_that_go_by_the_name() {
        let free = |product: &str| Free {
            node: product.into(),
            cpus: 1.0,
            memory: 1.0,
            gpus: Some(Gpus {
                resource: "nvidia.com/gpu".into(),
                label: "l".into(),
                product: product.into(),
                free: 8.0,
                all: 8.0,
            }),
            all: (1.0, 1.0),
            unfit: String::new(),
            is_of_cluster: false,
        };
        let nodes = [free("NVIDIA-L40S"), free("NVIDIA-L4"), free("NVIDIA-L4")];
        let accelerators = Some(Accelerators { name: "L4".into(), count: 0.5 });
        let wanted = record(Candidate { accelerators, ..Candidate::default() });
        let made = manifest(&wanted, "me", &nodes).unwrap();
        let terms = &made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"], json!(["NVIDIA-L4"]));
        let resources = &made["spec"]["containers"][0]["resources"];
        assert_eq!(resources["limits"], json!({"nvidia.com/gpu": "1"}));
        assert!(matches!(manifest(&wanted, "me", &nodes[..1]), Err(Fault::NoRoom(_))));
    }

    #[test]
    fn a_pod_stands_somewhere() {
        let of = |pod: Value| stand(&serde_json::from_value(pod).unwrap());
        let unscheduled = json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes"});
        assert_eq!(
            of(json!({"status": {"phase": "Pending", "conditions": [unscheduled]}})),
            Stand::Waits("0/3 nodes".into())
        );
        assert_eq!(
            of(json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Pending"}})),
            Stand::Starts
        );
        let container = |state: Value, ready: bool| json!({"name": CONTAINER, "state": state, "ready": ready, "image": "", "imageID": "", "restartCount": 0});
        let waiting = container(json!({"waiting": {"reason": "ErrImagePull", "message": "no such"}}), false);
        let pending = json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Pending", "containerStatuses": [waiting]}});
        assert_eq!(of(pending), Stand::Never("ErrImagePull: no such".into()));
        let runs = json!({"status": {"phase": "Running", "containerStatuses": [container(json!({}), true)]}});
        assert_eq!(of(runs.clone()), Stand::Runs);
        let mut ends = runs;
        ends["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(of(ends), Stand::Ends);
        assert_eq!(of(json!({"status": {"phase": "Failed"}})), Stand::Ends);
    }

    #[test]
    fn an_end_says_why_and_when() {
        let of = |pod: Value| ended("c/ns/sky-x", &serde_json::from_value(pod).unwrap());
        let at = |time: &str| Some(time.parse::<Timestamp>().unwrap());
        let over = json!([{"name": CONTAINER, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:09Z"}}}]);
        let killed = of(json!({"status": {"phase": "Failed", "containerStatuses": over}}));
        let why = "pod c/ns/sky-x failed: its container ended with exit code 137 (OOMKilled)";
        assert_eq!(killed, Ended { why: why.into(), at: at("2026-01-01T00:00:09Z") });
        let evicted = of(
            json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}}),
        );
        assert_eq!(evicted, Ended::because("pod c/ns/sky-x failed: Evicted: The node was low on resource: memory."));
        let preempted = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "preempting to accommodate a higher priority pod", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 10});
        let preempted = of(json!({"metadata": deleting, "status": {"phase": "Running", "conditions": preempted}}));
        let why = "pod c/ns/sky-x was deleted: PreemptionByScheduler: preempting to accommodate a higher priority pod";
        assert_eq!(preempted, Ended { why: why.into(), at: at("2026-01-01T00:00:01Z") });
        let removed = of(json!({"metadata": deleting, "status": {"phase": "Running"}}));
        let why = "pod c/ns/sky-x was deleted from outside";
        assert_eq!(removed, Ended { why: why.into(), at: at("2026-01-01T00:00:20Z") });
        let event: DynamicObject = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "reason": "Preempted", "message": "Preempted by pod u on node n", "lastTimestamp": null, "eventTime": "2026-01-01T00:00:02.5Z"})).unwrap();
        let why = "pod c/ns/sky-x is gone: Preempted: Preempted by pod u on node n";
        assert_eq!(deleted("c/ns/sky-x", &[event]), Ended { why: why.into(), at: at("2026-01-01T00:00:02.5Z") });
        assert_eq!(deleted("c/ns/sky-x", &[]).why, "pod c/ns/sky-x is gone: it was deleted from outside");
    }

    #[test]
    fn the_node_has_what_the_pod_asks_for() {
        assert_eq!(capacity(&Candidate { cpus: 0.5, memory: 2.0, ..Candidate::default() }), "cpu=0.5,memory=2048Mi");
        assert_eq!(capacity(&Candidate::default()), "");
    }
}
