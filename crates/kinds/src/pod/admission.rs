//! What the server adds to a pod when it is created: limit ranges' defaults, the service account, priority, tolerations.
//!
//! Source: the admission plugins LimitRanger, ServiceAccount, Priority, DefaultTolerationSeconds and RuntimeClass of Kubernetes 1.36.

use super::annotations::{has_secrets, is_mirror};
use crate::kit::{at, child, int, is_true, items, items_mut, map, members, same, text, unset};
use crate::limits;
use resource::Context;
use resource::status::Status;
use serde_json::{Value, json};
use std::sync::Arc;

/// Where containers find their token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Lifetime of a token in seconds: an hour and a bit, by which kubelets tell these from others.
const TOKEN_SECS: i64 = 3607;
/// How long a pod stays on a node that is not ready or cannot be reached.
const TOLERATION_SECS: i64 = 300;

/// The name that refusals show: before a name is generated, its prefix.
pub fn shown_name(object: &Value) -> &str {
    match text(object, "metadata.name") {
        "" => text(object, "metadata.generateName"),
        name => name,
    }
}

fn forbidden(pod: &Value, why: &str) -> Status {
    Status::forbidden("", "pods", shown_name(pod), why)
}

/// All plugins, in upstream's order.
pub fn create(cx: &Context<'_>, pod: &mut Value) -> Result<(), Status> {
    limits::pod_defaults(cx, pod);
    match is_mirror(pod) {
        true => mirror(pod)?,
        false => service_account(cx, pod)?,
    }
    priority(cx, pod)?;
    tolerations(pod);
    runtime_class(cx, pod)
}

/// The class that a pod names, where there is one.
fn class_of(cx: &Context<'_>, pod: &Value) -> Result<Option<Arc<Value>>, Status> {
    let Some(name) = at(pod, "spec.runtimeClassName").as_str() else { return Ok(None) };
    match (cx.lookup)("node.k8s.io", "runtimeclasses", "", name) {
        Some(class) => Ok(Some(class)),
        None => Err(forbidden(pod, &format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// What a pod's class adds: its overhead, and where its pods run.
fn runtime_class(cx: &Context<'_>, pod: &mut Value) -> Result<(), Status> {
    let Some(class) = class_of(cx, pod)? else { return Ok(()) };
    let overhead = at(&class, "overhead");
    if !overhead.is_null() {
        let given = at(pod, "spec.overhead");
        if !unset(given) && given != at(overhead, "podFixed") {
            return Err(forbidden(pod, OTHER_OVERHEAD));
        }
        if !unset(at(overhead, "podFixed")) {
            let fixed = at(overhead, "podFixed").clone();
            child(pod, "spec")["overhead"] = fixed;
        }
    }
    let scheduling = at(&class, "scheduling");
    for (key, wanted) in members(scheduling, "nodeSelector") {
        let (wanted, selector) = (wanted.as_str().unwrap_or_default(), at(pod, "spec.nodeSelector"));
        if let Some(given) = selector.get(key).and_then(Value::as_str)
            && given != wanted
        {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            );
            return Err(forbidden(pod, &why));
        }
        map(child(child(pod, "spec"), "nodeSelector")).insert(key.clone(), wanted.into());
    }
    for toleration in items(scheduling, "tolerations") {
        let list = map(child(pod, "spec")).entry("tolerations").or_insert_with(|| json!([]));
        if list.is_null() {
            *list = json!([]);
        }
        if let Some(list) = list.as_array_mut().filter(|list| !list.contains(toleration)) {
            list.push(toleration.clone());
        }
    }
    Ok(())
}

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Whether a pod that is good in itself takes what its class says beside its containers, and nothing more.
pub fn overhead(cx: &Context<'_>, pod: &Value) -> Result<(), Status> {
    let class = class_of(cx, pod)?;
    let given = at(pod, "spec.overhead");
    match class.as_deref().map(|class| at(class, "overhead")).filter(|overhead| !overhead.is_null()) {
        Some(overhead) if !same(at(overhead, "podFixed"), given) => Err(forbidden(pod, OTHER_OVERHEAD)),
        Some(_) => Ok(()),
        None if given.is_null() => Ok(()),
        None => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(forbidden(pod, why))
        }
    }
}

/// A pod that mirrors another has no account, and nothing that the API server would have to give it.
fn mirror(pod: &Value) -> Result<(), Status> {
    let spec = at(pod, "spec");
    let projects = |volume: &Value| {
        items(volume, "projected.sources").iter().any(|source| !at(source, "serviceAccountToken").is_null())
    };
    if !text(spec, "serviceAccountName").is_empty() {
        return Err(forbidden(pod, "a mirror pod may not reference service accounts"));
    }
    if has_secrets(spec) {
        return Err(forbidden(pod, "a mirror pod may not reference secrets"));
    }
    if items(spec, "volumes").iter().any(projects) {
        return Err(forbidden(pod, "a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

fn service_account(cx: &Context<'_>, pod: &mut Value) -> Result<(), Status> {
    let spec = child(pod, "spec");
    if text(spec, "serviceAccountName").is_empty() {
        spec["serviceAccountName"] = "default".into();
        spec["serviceAccount"] = "default".into();
    }
    let name = text(spec, "serviceAccountName").to_owned();
    let Some(account) = (cx.lookup)("", "serviceaccounts", cx.namespace, &name) else {
        let why =
            format!("error looking up service account {}/{name}: serviceaccount {name:?} not found", cx.namespace);
        return Err(forbidden(pod, &why));
    };
    let spec = child(pod, "spec");
    let asked = |value: &Value| at(value, "automountServiceAccountToken").as_bool();
    if asked(spec).or_else(|| asked(&account)).unwrap_or(true) {
        mount_token(cx, spec);
    }
    if items(spec, "imagePullSecrets").is_empty() && !items(&account, "imagePullSecrets").is_empty() {
        spec["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    Ok(())
}

fn suffix(cx: &Context<'_>) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(ALPHABET[cx.world.below(ALPHABET.len() as u32) as usize % ALPHABET.len()])).collect()
}

fn mount_token(cx: &Context<'_>, spec: &mut Value) {
    let own = items(spec, "volumes").iter().find(|v| text(v, "name").starts_with("kube-api-access-"));
    let there = own.is_some();
    let name = own.map_or_else(|| format!("kube-api-access-{}", suffix(cx)), |v| text(v, "name").to_owned());
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            if items(container, "volumeMounts").iter().any(|m| text(m, "mountPath") == TOKEN_PATH) {
                continue;
            }
            needed = true;
            let mounts = map(container).entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            if let Some(mounts) = mounts.as_array_mut() {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
            }
        }
    }
    if !needed || there {
        return;
    }
    let volume = json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    });
    let volumes = map(spec).entry("volumes").or_insert_with(|| json!([]));
    if volumes.is_null() {
        *volumes = json!([]);
    }
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(volume);
    }
}

fn priority(cx: &Context<'_>, pod: &mut Value) -> Result<(), Status> {
    let name = text(pod, "spec.priorityClassName").to_owned();
    let class = if name.is_empty() {
        // The default class of lowest value, if several claim to be it.
        (cx.list)("scheduling.k8s.io", "priorityclasses", "")
            .into_iter()
            .filter(|class| is_true(class, "globalDefault"))
            .min_by_key(|class| int(class, "value").unwrap_or_default())
    } else {
        let found = (cx.lookup)("scheduling.k8s.io", "priorityclasses", "", &name);
        if found.is_none() {
            return Err(forbidden(pod, &format!("no PriorityClass with name {name} was found")));
        }
        found
    };
    let computed = class.as_ref().and_then(|class| int(class, "value")).unwrap_or_default();
    let preemption = class
        .as_ref()
        .map(|class| text(class, "preemptionPolicy").to_owned())
        .filter(|policy| !policy.is_empty())
        .unwrap_or_else(|| "PreemptLowerPriority".to_owned());
    if let Some(given) = int(pod, "spec.priority")
        && given != computed
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {computed} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    let given = text(pod, "spec.preemptionPolicy");
    if !given.is_empty() && given != preemption {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {preemption} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    let spec = child(pod, "spec");
    if let Some(class) = class.filter(|_| name.is_empty()) {
        spec["priorityClassName"] = text(&class, "metadata.name").into();
    }
    spec["priority"] = computed.into();
    spec["preemptionPolicy"] = preemption.into();
    Ok(())
}

/// How long a pod stays on a node in trouble, where it does not say; on creation as on update.
pub fn tolerations(pod: &mut Value) {
    let spec = child(pod, "spec");
    let mut missing = Vec::new();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(spec, "tolerations").iter().any(|toleration| {
            let (own, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            missing.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECS,
            }));
        }
    }
    if missing.is_empty() {
        return;
    }
    let list = map(spec).entry("tolerations").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.extend(missing);
    }
}
