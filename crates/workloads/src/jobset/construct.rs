//! The children of a JobSet: Jobs, the headless Service, volume claims. Spec A.6, A.13, A.14, A.17, A.19.

use super::json::{entry_object, push};
use api::jobset::{self, JobSet, ReplicatedJob, Retention, keys};
use api::object;
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

/// The owner reference that makes an object the JobSet's child: it is deleted with it and wakes its controller.
fn owner(jobset: &JobSet) -> Value {
    json!([{
        "apiVersion": jobset::API_VERSION,
        "kind": jobset::KIND,
        "name": jobset.metadata.name,
        "uid": jobset.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// Lower-case hexadecimal SHA-1 of `<namespace>/<name of the Job>`: the same for each attempt of a Job (H-04).
pub(crate) fn job_key(namespace: &str, job: &str) -> String {
    Sha1::digest(format!("{namespace}/{job}")).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One Job: the replicated job's template with everything that a pod must know of its place.
pub(crate) fn job(jobset: &JobSet, replicated: &ReplicatedJob, index: i32) -> Value {
    let namespace = jobset.metadata.namespace.as_deref().unwrap_or_default();
    let name = jobset.job_name(&replicated.name, i64::from(index));
    let template = &replicated.template;

    let mut labels = object_at(template, &["metadata", "labels"]);
    let mut annotations = object_at(template, &["metadata", "annotations"]);
    let mut spec = template.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let both = place(jobset, replicated, index, &name, namespace);
    let exclusive = exclusive_placement(jobset, template);
    for map in [&mut labels, &mut annotations] {
        map.extend(both.clone());
    }
    annotations.extend(exclusive.clone());

    let pod = entry_object(&mut spec, "template");
    let pod_meta = entry_object(pod, "metadata");
    for map in ["labels", "annotations"] {
        entry_object(pod_meta, map).extend(both.clone());
    }
    entry_object(pod_meta, "annotations").extend(exclusive);

    let pod_spec = entry_object(pod, "spec");
    if has_host_names(jobset) {
        pod_spec.insert("subdomain".to_owned(), jobset.subdomain().into());
    }
    if annotations.contains_key(keys::EXCLUSIVE_TOPOLOGY) && annotations.contains_key(keys::NODE_SELECTOR_STRATEGY) {
        entry_object(pod_spec, "nodeSelector")
            .insert(keys::NAMESPACED_JOB.to_owned(), format!("{namespace}_{name}").into());
        let toleration = json!({"key": keys::NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"});
        push(pod_spec, "tolerations", toleration);
    }
    mount_claims(jobset, pod_spec);
    spec.insert("suspend".to_owned(), jobset.is_suspended().into());

    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owner(jobset),
        },
        "spec": spec,
    })
}

fn object_at(value: &Value, path: &[&str]) -> Map<String, Value> {
    let found = path.iter().try_fold(value, |value, member| value.get(member));
    found.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// What Jobs and pods carry as labels and as annotations alike: their JobSet and their place in it.
fn place(jobset: &JobSet, replicated: &ReplicatedJob, index: i32, job: &str, namespace: &str) -> Map<String, Value> {
    let replicas = |counts: &dyn Fn(&ReplicatedJob) -> bool| -> i64 {
        jobset.spec.replicated_jobs.iter().filter(|r| counts(r)).map(|r| i64::from(r.replicas)).sum()
    };
    let before = |counts: &dyn Fn(&ReplicatedJob) -> bool| -> i64 {
        let earlier = jobset.spec.replicated_jobs.iter().take_while(|r| r.name != replicated.name);
        earlier.filter(|r| counts(r)).map(|r| i64::from(r.replicas)).sum::<i64>() + i64::from(index)
    };
    let all = |_: &ReplicatedJob| true;
    let same_group = |r: &ReplicatedJob| r.group_name == replicated.group_name;
    let mut place: Vec<(&str, String)> = vec![
        (keys::JOBSET_NAME, jobset.metadata.name.clone().unwrap_or_default()),
        (keys::JOBSET_UID, jobset.metadata.uid.clone().unwrap_or_default()),
        (keys::REPLICATED_JOB_NAME, replicated.name.clone()),
        (keys::REPLICATED_JOB_REPLICAS, replicated.replicas.to_string()),
        (keys::GLOBAL_REPLICAS, replicas(&all).to_string()),
        (keys::JOB_INDEX, index.to_string()),
        (keys::JOB_GLOBAL_INDEX, before(&all).to_string()),
        (keys::JOB_KEY, job_key(namespace, job)),
        (keys::GROUP_NAME, replicated.group_name.clone()),
        (keys::GROUP_REPLICAS, replicas(&same_group).to_string()),
        (keys::JOB_GROUP_INDEX, before(&same_group).to_string()),
        (keys::RESTART_ATTEMPT, jobset.status.restarts.to_string()),
    ];
    if let Some(endpoint) = jobset.coordinator_endpoint() {
        place.push((keys::COORDINATOR, endpoint));
    }
    place.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// The annotations of exclusive placement: those of the JobSet, under those of the replicated job's template. The
/// strategy is taken only from where the topology is.
fn exclusive_placement(jobset: &JobSet, template: &Value) -> Map<String, Value> {
    let of_jobset = |key: &str| jobset.metadata.annotations.as_ref()?.get(key).cloned();
    let of_template = |key: &str| object::annotation(template, key).map(str::to_owned);
    let mut found = Map::new();
    for level in [&of_jobset as &dyn Fn(&str) -> Option<String>, &of_template] {
        let Some(topology) = level(keys::EXCLUSIVE_TOPOLOGY) else { continue };
        found.insert(keys::EXCLUSIVE_TOPOLOGY.to_owned(), topology.into());
        if let Some(strategy) = level(keys::NODE_SELECTOR_STRATEGY) {
            found.insert(keys::NODE_SELECTOR_STRATEGY.to_owned(), strategy.into());
        }
    }
    found
}

/// Whether pods get host names, and the JobSet a headless Service: so unless it says no.
pub(crate) fn has_host_names(jobset: &JobSet) -> bool {
    jobset.spec.network.as_ref().and_then(|network| network.enable_dns_hostnames).unwrap_or(true)
}

/// Adds a volume for each claim that a container of the pod mounts.
fn mount_claims(jobset: &JobSet, pod_spec: &mut Map<String, Value>) {
    let templates = jobset.spec.volume_claim_policies.iter().flat_map(|policy| &policy.templates);
    for name in templates.map(|template| object::meta(template, "name")) {
        if ["containers", "initContainers"].iter().any(|list| mounts(pod_spec.get(*list), name)) {
            let claim = claim_name(jobset, name);
            push(pod_spec, "volumes", json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}));
        }
    }
}

/// Whether a container of the list mounts the volume.
pub(crate) fn mounts(containers: Option<&Value>, volume: &str) -> bool {
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let mut mounts = containers.filter_map(|c| c.get("volumeMounts")?.as_array()).flatten();
    mounts.any(|mount| object::text(mount, "name") == volume)
}

/// The headless Service that gives pods their names.
pub(crate) fn service(jobset: &JobSet) -> Value {
    let network = jobset.spec.network.as_ref();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": jobset.subdomain(),
            "namespace": jobset.metadata.namespace,
            "ownerReferences": owner(jobset),
        },
        "spec": {
            "clusterIP": "None",
            "selector": {keys::JOBSET_NAME: jobset.metadata.name},
            "publishNotReadyAddresses": network.and_then(|n| n.publish_not_ready_addresses).unwrap_or(true),
        },
    })
}

/// Name of the claim that a template makes.
pub(crate) fn claim_name(jobset: &JobSet, template: &str) -> String {
    format!("{template}-{}", jobset.metadata.name.as_deref().unwrap_or_default())
}

/// The claims of all policies, in order. Those that are deleted with the JobSet are owned by it.
pub(crate) fn claims(jobset: &JobSet) -> Vec<Value> {
    let mut claims = Vec::new();
    for policy in &jobset.spec.volume_claim_policies {
        let retention = policy.retention_policy.as_ref().and_then(|r| r.when_deleted).unwrap_or_default();
        for template in &policy.templates {
            let mut meta = Map::new();
            meta.insert("name".to_owned(), claim_name(jobset, object::meta(template, "name")).into());
            meta.insert("namespace".to_owned(), json!(jobset.metadata.namespace));
            let mut labels = object_at(template, &["metadata", "labels"]);
            labels.insert(keys::JOBSET_NAME.to_owned(), json!(jobset.metadata.name));
            meta.insert("labels".to_owned(), labels.into());
            let annotations = object_at(template, &["metadata", "annotations"]);
            if !annotations.is_empty() {
                meta.insert("annotations".to_owned(), annotations.into());
            }
            match retention {
                Retention::Delete => _ = meta.insert("ownerReferences".to_owned(), owner(jobset)),
                Retention::Retain => {}
            }
            let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
            claims.push(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}));
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden vector of spec A.6, and `js-groups`.
    #[test]
    fn jobs_know_their_place() {
        let jobset: JobSet = serde_json::from_value(json!({
            "metadata": {"name": "js", "namespace": "default", "uid": "u"},
            "spec": {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {}},
                                        {"name": "b", "groupName": "g", "template": {}}]},
        }))
        .unwrap();
        for (at, index, global, group, of, key) in [
            (0, 0, "0", "0", "2", "48f2819cdfd2c46a2f2aea5af4915251215e08e1"),
            (0, 1, "1", "1", "2", "5d8ebc7e4df7cff659ca2df55e4c417d8864436f"),
            (1, 0, "2", "0", "1", "89f77f94410fb2090f3d4ed302c5dc3eadd4faab"),
        ] {
            let job = job(&jobset, &jobset.spec.replicated_jobs[at], index);
            for (name, value) in [
                (keys::JOB_GLOBAL_INDEX, global),
                (keys::JOB_GROUP_INDEX, group),
                (keys::GROUP_REPLICAS, of),
                (keys::JOB_KEY, key),
                (keys::GLOBAL_REPLICAS, "3"),
                (keys::RESTART_ATTEMPT, "0"),
            ] {
                assert_eq!(object::label(&job, name), Some(value));
                assert_eq!(object::annotation(&job["spec"]["template"], name), Some(value));
            }
        }
    }

    #[test]
    fn the_strategy_of_exclusive_placement_comes_from_where_the_topology_is() {
        let jobset: JobSet = serde_json::from_value(json!({
            "metadata": {"name": "js", "namespace": "n", "annotations": {keys::EXCLUSIVE_TOPOLOGY: "rack"}},
            "spec": {"replicatedJobs": [
                {"name": "plain", "template": {}},
                {"name": "own", "template": {"metadata": {"annotations":
                    {keys::EXCLUSIVE_TOPOLOGY: "zone", keys::NODE_SELECTOR_STRATEGY: "yes"}}}},
            ]},
        }))
        .unwrap();
        let plain = job(&jobset, &jobset.spec.replicated_jobs[0], 0);
        assert_eq!(object::annotation(&plain["spec"]["template"], keys::EXCLUSIVE_TOPOLOGY), Some("rack"));
        assert!(plain["spec"]["template"]["spec"].get("nodeSelector").is_none());
        let own = job(&jobset, &jobset.spec.replicated_jobs[1], 0);
        assert_eq!(object::annotation(&own, keys::EXCLUSIVE_TOPOLOGY), Some("zone"));
        let pod = &own["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], json!({keys::NAMESPACED_JOB: "n_js-own-0"}));
        assert_eq!(pod["tolerations"].as_array().map(Vec::len), Some(1));
    }
}
