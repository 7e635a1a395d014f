//! Pods of a Job, and the small writes about them.
//!
//! A pod's name ends in five letters, as if the API server had made it from `generateName`; but they are a function of the
//! Job's uid, the index and the attempt. The attempt is the first whose name no pod in the view has; where there are no
//! indexes, counting starts at the number of pods that were counted, so that a name does not come back.

use super::indexes::Indexes;
use super::pods::Pod;
use super::policy::{Verdict, judge};
use super::spec::Spec;
use super::{INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES, TRACKING_FINALIZER, pod_gvk};
use api::object::{self, Key, Target};
use reconcile::{Op, PatchBody, Propagation};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The letters of Kubernetes' random name tails: no vowels, nothing that looks like another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// How long the part before the tail may be, so that a name has at most 63 characters.
const PREFIX_MAX: usize = 58;
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Five letters that say which pod of which Job this is.
fn tail(job_uid: &str, index: Option<u32>, attempt: u32) -> String {
    let index = index.map(|index| index.to_string()).unwrap_or_default();
    let digest = Sha256::digest(format!("{job_uid}/{index}/{attempt}"));
    let mut number = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let mut letters = String::new();
    for _ in 0..5 {
        letters.push(char::from(LETTERS[(number % 27) as usize]));
        number /= 27;
    }
    letters
}

/// `<job>-`, or `<job>-<index>-` with the Job's name cut so that the index stays.
fn prefix(job_name: &str, index: Option<u32>) -> String {
    let Some(index) = index else { return format!("{job_name}-") };
    let end = format!("-{index}-");
    let room = PREFIX_MAX - end.len();
    format!("{}{end}", &job_name[..job_name.len().min(room)])
}

/// Whether a pod of the Job may have this name.
pub fn is_like(name: &str, job: &Value) -> bool {
    let longest = prefix(object::meta(job, "name"), Some(u32::MAX));
    let cut = longest.trim_end_matches('-').rfind('-').unwrap_or_default();
    name.starts_with(&longest[..cut])
}

/// Names for new pods; never the same twice.
pub struct Names<'a> {
    job_name: &'a str,
    job_uid: &'a str,
    /// The first attempt of a pod without index.
    first: u32,
    taken: BTreeSet<String>,
}

impl<'a> Names<'a> {
    /// `counted`: how many pods of the Job are in its counters; `taken`: the names of those that there are.
    pub fn new(job: &'a Value, counted: u32, taken: BTreeSet<String>) -> Self {
        Self { job_name: object::meta(job, "name"), job_uid: object::uid(job), first: counted, taken }
    }

    fn next(&mut self, index: Option<u32>) -> (String, String) {
        let prefix = prefix(self.job_name, index);
        let stem = &prefix[..prefix.len().min(PREFIX_MAX)];
        let mut attempt = if index.is_some() { 0 } else { self.first };
        loop {
            let name = format!("{stem}{}", tail(self.job_uid, index, attempt));
            if self.taken.insert(name.clone()) {
                return (prefix, name);
            }
            attempt += 1;
        }
    }
}

fn entry<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let member = &mut object[name];
    if !member.is_object() {
        *member = json!({});
    }
    member.as_object_mut().expect("invariant: made an object above")
}

/// A new pod from the Job's template. `replaced`: the failed pod of the index whose count of failures it carries on.
pub fn pod(job: &Value, spec: &Spec<'_>, names: &mut Names<'_>, index: Option<u32>, replaced: Option<&Pod>) -> Value {
    let (generate_name, name) = names.next(index);
    let template = &spec.json["template"];
    let mut metadata = json!({
        "generateName": generate_name,
        "name": name,
        "namespace": object::meta(job, "namespace"),
        "ownerReferences": [owner(job)],
    });
    for member in ["labels", "annotations"] {
        if let Some(map) = template["metadata"].get(member).filter(|map| map.is_object()) {
            metadata[member] = map.clone();
        }
    }
    let mut finalizers = template["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if finalizers.iter().all(|finalizer| finalizer != TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.into());
    }
    metadata["finalizers"] = finalizers.into();
    let mut pod_spec = template["spec"].clone();
    if let Some(index) = index {
        let text = Value::from(index.to_string());
        entry(&mut metadata, "labels").insert(INDEX.to_owned(), text.clone());
        let annotations = entry(&mut metadata, "annotations");
        annotations.insert(INDEX.to_owned(), text);
        if spec.backoff_limit_per_index.is_some() {
            let (mut failures, mut ignored) = replaced.map_or((0, 0), |pod| (pod.index_failures, pod.index_ignored));
            match replaced.map(|pod| judge(spec.pod_failure_policy(), pod)) {
                None => {}
                Some(Verdict::Ignore) => ignored += 1,
                Some(Verdict::Count | Verdict::FailIndex | Verdict::FailJob(_)) => failures += 1,
            }
            annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string().into());
            if ignored > 0 {
                annotations.insert(INDEX_IGNORED_FAILURES.to_owned(), ignored.to_string().into());
            }
        }
        pod_spec["hostname"] = format!("{}-{index}", object::meta(job, "name")).into();
        for list in ["initContainers", "containers"] {
            for container in pod_spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                add_index_variable(container);
            }
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec})
}

/// Tells the container its index, unless it defines the variable itself.
fn add_index_variable(container: &mut Value) {
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let variables = container["env"].as_array_mut().expect("invariant: made a list above");
    if variables.iter().all(|variable| variable["name"] != INDEX_VARIABLE) {
        let path = format!("metadata.labels['{INDEX}']");
        variables.push(json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    }
}

fn owner(job: &Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": object::meta(job, "name"), "uid": object::uid(job),
        "controller": true, "blockOwnerDeletion": true})
}

pub fn target(pod: &Pod) -> Target {
    Target { gvk: pod_gvk(), key: Key::new(&pod.namespace, &pod.name) }
}

/// A change of the pod's metadata that is refused if the pod is not as it was seen.
fn patch(pod: &Pod, mut metadata: Value) -> Op {
    metadata["uid"] = pod.uid.as_str().into();
    metadata["resourceVersion"] = object::resource_version(&pod.object).into();
    Op::Patch { target: target(pod), subresource: None, body: PatchBody::Merge(json!({"metadata": metadata})) }
}

fn list(pod: &Pod, member: &str) -> Vec<Value> {
    pod.object["metadata"][member].as_array().cloned().unwrap_or_default()
}

fn or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { list.into() }
}

/// Lets go of a pod: from here on it may vanish.
pub fn remove_finalizer(pod: &Pod) -> Op {
    let mut finalizers = list(pod, "finalizers");
    finalizers.retain(|finalizer| finalizer != TRACKING_FINALIZER);
    patch(pod, json!({"finalizers": or_null(finalizers)}))
}

/// Makes an orphan a pod of the Job.
pub fn adopt(job: &Value, pod: &Pod) -> Op {
    let (mut owners, mut finalizers) = (list(pod, "ownerReferences"), list(pod, "finalizers"));
    owners.push(owner(job));
    if !pod.tracked {
        finalizers.push(TRACKING_FINALIZER.into());
    }
    patch(pod, json!({"ownerReferences": owners, "finalizers": finalizers}))
}

/// Gives up a pod that the selector no longer selects.
pub fn release(job: &Value, pod: &Pod) -> Op {
    let (mut owners, mut finalizers) = (list(pod, "ownerReferences"), list(pod, "finalizers"));
    owners.retain(|owner| owner["uid"] != object::uid(job));
    finalizers.retain(|finalizer| finalizer != TRACKING_FINALIZER);
    patch(pod, json!({"ownerReferences": or_null(owners), "finalizers": or_null(finalizers)}))
}

/// Asks for a pod's deletion, with its own grace period.
pub fn delete(pod: &Pod) -> Op {
    Op::Delete {
        target: target(pod),
        propagation: Propagation::Background,
        uid: Some(pod.uid.clone()),
        resource_version: None,
        grace_secs: None,
    }
}

/// The active pods to delete so that at least `count` go. In an Indexed Job all go that have no index, one out of range,
/// or one that another pod has as well.
pub fn surplus<'a>(spec: &Spec<'_>, active: &[&'a Pod], count: usize) -> Vec<&'a Pod> {
    let mut left: Vec<&Pod> = active.to_vec();
    left.sort_by_cached_key(|pod| pod.loss());
    let mut surplus = Vec::new();
    if spec.indexed {
        // the dearest pod of each index stays
        let mut seen = Indexes::default();
        let mut kept: Vec<&Pod> = Vec::new();
        for pod in left.into_iter().rev() {
            match pod.index.filter(|index| *index < spec.size() && !seen.has(*index)) {
                Some(index) => {
                    seen.add(index);
                    kept.push(pod);
                }
                None => surplus.push(pod),
            }
        }
        kept.reverse();
        left = kept;
    }
    let more = count.saturating_sub(surplus.len()).min(left.len());
    surplus.extend(left.into_iter().take(more));
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_so_that_the_index_stays() {
        let long = "n".repeat(63);
        let cases = [
            ("pi", None, "pi-".to_owned(), "pi-".to_owned()),
            ("idx", Some(12), "idx-12-".to_owned(), "idx-12-".to_owned()),
            (&long, None, format!("{long}-"), "n".repeat(58)),
            (&long, Some(7), format!("{}-7-", "n".repeat(55)), format!("{}-7-", "n".repeat(55))),
        ];
        for (name, index, generate_name, stem) in cases {
            let job = json!({"metadata": {"name": name, "uid": "u"}});
            let (prefix, made) = Names::new(&job, 0, BTreeSet::new()).next(index);
            assert_eq!(prefix, generate_name);
            assert_eq!((&made[..stem.len()], made.len()), (stem.as_str(), stem.len() + 5));
            assert!(made[stem.len()..].bytes().all(|letter| LETTERS.contains(&letter)), "{made}");
        }
    }

    #[test]
    fn the_same_pod_gets_the_same_name() {
        let job = json!({"metadata": {"name": "a", "uid": "u"}});
        let (mut one, mut other) = (Names::new(&job, 0, BTreeSet::new()), Names::new(&job, 0, BTreeSet::new()));
        let first: Vec<_> = (0..3).map(|_| one.next(Some(0)).1).collect();
        assert_eq!(first, (0..3).map(|_| other.next(Some(0)).1).collect::<Vec<_>>());
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_ne!(Names::new(&job, 1, BTreeSet::new()).next(None), Names::new(&job, 0, BTreeSet::new()).next(None));
    }
}
