//! Validation of changes to a pod, through the pod itself and through its subresources.

use super::set_condition;
use crate::kit::{at, child, int, items, items_mut, keep, keep_meta, map, members, same, text, unset};
use crate::podspec;
use api::field::{Error, ErrorList, Path};
use api::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                         `spec.tolerations` (only additions to existing tolerations),\
                         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Fields that stay: metadata but for labels, annotations and the like is not for these endpoints.
fn keep_metadata(new: &mut Value, old: &Value) {
    for field in ["deletionGracePeriodSeconds", "finalizers", "ownerReferences", "labels", "annotations"] {
        keep_meta(new, old, field);
    }
}

/// `/status` writes the status, nothing else.
pub fn prepare_status(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
    keep_meta(new, old, "ownerReferences");
    let old_status = at(old, "status").clone();
    let status = child(new, "status");
    if text(status, "qosClass").is_empty() {
        keep(status, &old_status, "qosClass");
    }
    if int(status, "observedGeneration").unwrap_or_default() == 0 {
        keep(status, &old_status, "observedGeneration");
    }
    let mut before: Vec<Value> = items(&old_status, "conditions").to_vec();
    for condition in items_mut(status, "conditions") {
        let found = before.iter().position(|c| text(c, "type") == text(condition, "type"));
        let old = found.map(|i| before.remove(i));
        if int(condition, "observedGeneration").unwrap_or_default() == 0
            && let Some(generation) = old.and_then(|c| int(&c, "observedGeneration"))
            && generation != 0
        {
            condition["observedGeneration"] = generation.into();
        }
    }
}

/// `/ephemeralcontainers` writes these, nothing else.
pub fn prepare_ephemeral(new: &mut Value, old: &Value) {
    let containers = at(new, "spec.ephemeralContainers").clone();
    keep(new, old, "spec");
    keep(new, old, "status");
    keep_metadata(new, old);
    if !containers.is_null() {
        child(new, "spec")["ephemeralContainers"] = containers;
    } else if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("ephemeralContainers");
    }
}

/// `/resize` writes the resources of containers, nothing else.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    let asked = at(new, "spec").clone();
    keep(new, old, "spec");
    keep(new, old, "status");
    keep_metadata(new, old);
    let spec = child(new, "spec");
    for list in ["containers", "initContainers"] {
        let asked = items(&asked, list);
        for container in items_mut(spec, list) {
            if let Some(asked) = asked.iter().find(|c| text(c, "name") == text(container, "name")) {
                for field in ["resources", "resizePolicy"] {
                    keep(container, asked, field);
                }
            }
        }
    }
}

/// Whether there are as many containers as before. As far as that is so, what is asked of every pod is asked again: an image.
fn containers_kept(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) -> bool {
    for list in ["containers", "initContainers"] {
        let containers = items(at(new, "spec"), list);
        if containers.len() != items(at(old, "spec"), list).len() {
            errors.push(Error::forbidden(&path.child(list), "pod updates may not add or remove containers"));
            return false;
        }
        for (i, container) in containers.iter().enumerate() {
            if text(container, "image").trim().is_empty() {
                errors.push(Error::required(&path.child(list).index(i).child("image"), ""));
            }
        }
    }
    true
}

/// What of a toleration may not change: all but how long it holds.
fn tolerated(toleration: &Value) -> [&str; 4] {
    ["key", "operator", "value", "effect"].map(|part| text(toleration, part))
}

/// Adds the faults of an update of the pod itself.
pub fn validate(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec");
    if !containers_kept(new, old, &path, errors) {
        return;
    }
    let deadline = |pod| int(pod, "spec.activeDeadlineSeconds");
    let at_deadline = path.child("activeDeadlineSeconds");
    match (deadline(new), deadline(old)) {
        (Some(secs), _) if !(0..=i64::from(i32::MAX)).contains(&secs) => {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.push(Error::invalid(&at_deadline, secs, detail));
            return;
        }
        (Some(secs), Some(before)) if before < secs => {
            errors.push(Error::invalid(&at_deadline, secs, "must be less than or equal to previous value"));
            return;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(Error::invalid(&at_deadline, Value::Null, detail));
        }
        _ => {}
    }
    let tolerated_now: BTreeSet<_> = items(new, "spec.tolerations").iter().map(tolerated).collect();
    if items(old, "spec.tolerations").iter().all(|old| tolerated_now.contains(&tolerated(old))) {
        // the validation of the whole spec has told these faults before; upstream tells them twice, too
        podspec::tolerations(items(new, "spec.tolerations"), &path.child("tolerations"), errors);
    } else {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(Error::forbidden(&path.child("tolerations"), detail));
    }
    let gates: BTreeSet<&str> = items(old, "spec.schedulingGates").iter().map(|g| text(g, "name")).collect();
    for (i, gate) in items(new, "spec.schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !gates.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(Error::forbidden(&path.child("schedulingGates").index(i).child("name"), detail));
        }
    }
    let mut munged = at(new, "spec").clone();
    let before = at(old, "spec");
    for list in ["containers", "initContainers"] {
        for (i, container) in items_mut(&mut munged, list).enumerate() {
            keep(container, &before[list][i], "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(&mut munged, before, field);
    }
    if !gates.is_empty() {
        gated(&mut munged, before, &path, errors);
    }
    if !same(&munged, before) {
        errors.push(Error::forbidden(&path, format!("pod updates may not change fields other than {UPDATABLE}\n")));
    }
}

/// While a pod is gated, its place may still be narrowed: node selectors may grow, node affinity may be added.
fn gated(munged: &mut Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let selector = at(munged, "nodeSelector").clone();
    if members(before, "nodeSelector").any(|(key, value)| selector.get(key) != Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(Error::invalid(&path.child("nodeSelector"), selector, detail));
    }
    keep(munged, before, "nodeSelector");
    let affinity = at(munged, "affinity.nodeAffinity").clone();
    let old = at(before, "affinity.nodeAffinity");
    if same(&affinity, old) {
        return;
    }
    narrowed(&affinity, old, &path.child("affinity").child("nodeAffinity"), errors);
    let others = ["podAffinity", "podAntiAffinity"];
    let given = at(munged, "affinity");
    if given.is_null() && old.is_null() {
        return;
    }
    if at(before, "affinity").is_null() && others.iter().all(|other| at(given, other).is_null()) {
        map(munged).remove("affinity");
        return;
    }
    keep(child(munged, "affinity"), at(before, "affinity"), "nodeAffinity");
}

/// Adds the faults of a node affinity that takes the place of another: it must not let the pod onto more nodes.
fn narrowed(affinity: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let list = format!("{required}.nodeSelectorTerms");
    let (terms, old_terms) = (items(affinity, &list), items(old, &list));
    let path = path.child(required).child("nodeSelectorTerms");
    const TERM: &str = "io.k8s.api.core.v1.NodeSelectorTerm";
    if !old_terms.is_empty() && terms.len() != old_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let each: Vec<String> = terms.iter().map(|term| merge::builtin::as_internal(TERM, term).to_string()).collect();
        let shown = if terms.is_empty() { "null".to_owned() } else { format!("[{}]", each.join(",")) };
        errors.push(Error::invalid(&path, terms.to_vec(), detail).shown_as(shown));
        return;
    }
    for (i, (term, old)) in terms.iter().zip(old_terms).enumerate() {
        let lists = ["matchExpressions", "matchFields"].map(|list| (items(term, list), items(old, list)));
        // a term without requirements matches no node, and stays so
        let matches_none = lists.iter().all(|(_, old)| old.is_empty());
        let grown = match matches_none {
            true => lists.iter().all(|(new, _)| new.is_empty()),
            false => lists
                .iter()
                .all(|(new, old)| new.len() >= old.len() && new.iter().zip(*old).all(|(new, old)| same(new, old))),
        };
        if !grown {
            let detail = "only additions are allowed (no mutations or deletions)";
            let shown = merge::builtin::as_internal(TERM, term);
            errors.push(Error::invalid(&path.index(i), term.clone(), detail).shown_as(shown));
        }
    }
}

fn restarts(spec: &Value, name: &str, code: i64) -> bool {
    let container = items(spec, "containers").iter().find(|c| text(c, "name") == name);
    let Some(container) = container else { return false };
    for rule in items(container, "restartPolicyRules") {
        let hit = items(rule, "exitCodes.values").iter().any(|v| v.as_i64() == Some(code));
        if hit == (text(rule, "exitCodes.operator") == "In") {
            return true;
        }
    }
    let policy = match text(container, "restartPolicy") {
        "" => text(spec, "restartPolicy"),
        own => own,
    };
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// Faults of a write of the status.
pub fn validate_status(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    for (i, condition) in items(new, "status.conditions").iter().enumerate() {
        let kind = text(condition, "type");
        for fault in api::names::qualified_name_faults(kind) {
            errors.push(Error::invalid(&path.child("conditions").index(i).child("Type"), kind, fault));
        }
        let generation = int(condition, "observedGeneration").unwrap_or_default();
        if generation < 0 {
            let at = path.child("conditions").index(i).child("observedGeneration");
            errors.push(Error::invalid(&at, generation, "must be a non-negative integer"));
        }
    }
    let nominated = text(new, "status.nominatedNodeName");
    if nominated != text(old, "status.nominatedNodeName") && !nominated.is_empty() {
        for fault in podspec::node_name_faults(nominated) {
            errors.push(Error::invalid(&path.child("nominatedNodeName"), nominated, fault));
        }
        if !text(old, "spec.nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.push(Error::forbidden(&path.child("nominatedNodeName"), detail));
        }
    }
    let class = text(new, "status.qosClass");
    if class != text(old, "status.qosClass") {
        errors.push(Error::invalid(&path.child("qosClass"), class, "field is immutable"));
    }
    let spec = at(old, "spec");
    for (i, before) in items(old, "status.containerStatuses").iter().enumerate() {
        let terminated = at(before, "state.terminated");
        if terminated.is_null() {
            continue;
        }
        let name = text(before, "name");
        let now = items(new, "status.containerStatuses").iter().find(|s| text(s, "name") == name);
        let code = int(terminated, "exitCode").unwrap_or_default();
        if now.is_some_and(|s| at(s, "state.terminated").is_null()) && !restarts(spec, name, code) {
            let at = path.child("containerStatuses").index(i).child("state");
            errors.push(Error::forbidden(&at, "may not be transitioned to non-terminated state"));
        }
    }
    for (i, before) in items(old, "status.initContainerStatuses").iter().enumerate() {
        let terminated = at(before, "state.terminated");
        let name = text(before, "name");
        let sidecar = items(spec, "initContainers")
            .iter()
            .any(|c| text(c, "name") == name && text(c, "restartPolicy") == "Always");
        let code = int(terminated, "exitCode").unwrap_or_default();
        let may_fail = code != 0 && text(spec, "restartPolicy") != "Never";
        if terminated.is_null() || sidecar || may_fail || text(spec, "restartPolicy") == "Always" {
            continue;
        }
        let now = items(new, "status.initContainerStatuses").iter().find(|s| text(s, "name") == name);
        if now.is_some_and(|s| at(s, "state.terminated").is_null()) {
            let at = path.child("initContainerStatuses").index(i).child("state");
            errors.push(Error::forbidden(&at, "may not be transitioned to non-terminated state"));
        }
    }
    for field in ["podIPs", "hostIPs"] {
        addresses(at(new, "status"), at(old, "status"), field, &path.child(field), &mut errors);
    }
    if let Some(first) = items(new, "status.hostIPs").first()
        && text(first, "ip") != text(new, "status.hostIP")
    {
        let place = path.child("hostIPs").index(0).child("ip");
        errors.push(Error::invalid(&place, text(first, "ip"), "must be equal to `hostIP`"));
    }
    for (statuses, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        allocated(
            items(new, &format!("status.{statuses}")),
            items(spec, containers),
            &path.child(statuses),
            &mut errors,
        );
    }
    for (i, status) in items(new, "status.ephemeralContainerStatuses").iter().enumerate() {
        if !items(status, "allocatedResourcesStatus").is_empty() {
            let at = path.child("ephemeralContainerStatuses").index(i).child("allocatedResourcesStatus");
            errors.push(Error::forbidden(&at, "must not be specified in container status"));
        }
    }
    if let Some(generation) = int(new, "status.observedGeneration").filter(|generation| *generation < 0) {
        let place = path.child("observedGeneration");
        errors.push(Error::invalid(&place, generation, "must be a non-negative integer"));
    }
    errors
}

/// Adds the faults of what containers were given: resources that they ask for, each thing once
/// (`validateContainerStatusAllocatedResourcesStatus`).
fn allocated(statuses: &[Value], containers: &[Value], path: &Path, errors: &mut ErrorList) {
    const MESSAGE_MAX: usize = 256;
    for (i, status) in statuses.iter().enumerate() {
        let path = path.index(i).child("allocatedResourcesStatus");
        let container = containers.iter().find(|container| text(container, "name") == text(status, "name"));
        for (j, given) in items(status, "allocatedResourcesStatus").iter().enumerate() {
            let (path, name) = (path.index(j), text(given, "name"));
            if let Some(container) = container {
                let claims = || {
                    items(container, "resources.claims").iter().map(|claim| match text(claim, "request") {
                        "" => format!("claim:{}", text(claim, "name")),
                        request => format!("claim:{}/{request}", text(claim, "name")),
                    })
                };
                let (found, why) = match name.starts_with("claim:") {
                    true => (
                        claims().any(|claim| claim == name),
                        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                         'claim:<claimName>' if request is empty",
                    ),
                    false => (
                        at(container, "resources.requests").get(name).is_some(),
                        "must match one of the container's resource requests",
                    ),
                };
                if !found {
                    errors.push(Error::invalid(&path.child("name"), name, why));
                }
            }
            let mut seen = BTreeSet::new();
            for (k, resource) in items(given, "resources").iter().enumerate() {
                let path = path.child("resources").index(k);
                let (health, id) = (text(resource, "health"), text(resource, "resourceID"));
                let known = ["Healthy", "Unhealthy", "Unknown"];
                if !known.contains(&health) {
                    errors.push(Error::not_supported(&path.child("health"), health, &known));
                }
                match at(resource, "message").as_str() {
                    Some("") => errors.push(Error::required(&path.child("message"), "must be non-empty if specified")),
                    Some(message) if message.len() > MESSAGE_MAX => {
                        errors.push(Error::too_long(&path.child("message"), MESSAGE_MAX));
                    }
                    Some(_) | None => {}
                }
                if !seen.insert(id) {
                    errors.push(Error::duplicate(&path.child("resourceID"), id));
                }
            }
        }
    }
}

/// Adds the faults of a status's addresses: what was there before may stay, and there is one of each family at most.
fn addresses(new: &Value, old: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let of = |status: &Value| items(status, field).iter().map(|ip| text(ip, "ip").to_owned()).collect::<Vec<_>>();
    let (ips, known) = (of(new), of(old));
    for (i, ip) in ips.iter().enumerate().filter(|(_, ip)| !known.contains(ip)) {
        podspec::ip(ip, &path.index(i), errors);
    }
    let families = |v4: bool| {
        ips.iter().filter_map(|ip| ip.parse::<std::net::IpAddr>().ok()).filter(|ip| ip.is_ipv4() == v4).count()
    };
    if ips.len() > 1 && (ips.len() > 2 || families(true) != 1 || families(false) != 1) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(Error::invalid(path, at(new, field).clone(), detail));
    }
}

/// Adds the faults of a write of ephemeral containers: those that are there stay as they are.
pub fn validate_ephemeral(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("ephemeralContainers");
    for before in items(old, "spec.ephemeralContainers") {
        let name = text(before, "name");
        match items(new, "spec.ephemeralContainers").iter().find(|c| text(c, "name") == name) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(now) if !same(now, before) => {
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
}

/// Adds the faults of a resize: only cpu and memory of containers change, and the class of service does not.
pub fn validate_resize(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec");
    // A kubelet that can resize says so by the resources in a running container's status.
    let running = items(at(old, "status"), "containerStatuses").iter().find(|c| !at(c, "state.running").is_null());
    if running.is_some_and(|container| at(container, "resources").is_null()) {
        errors.push(Error::forbidden(&path, "Pod running on node without support for resize"));
    }
    let class = podspec::qos_class(at(new, "spec"));
    if class != text(old, "status.qosClass") {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(Error::invalid(&path, text(new, "status.qosClass"), detail));
    }
    for list in ["containers", "initContainers"] {
        for (i, (container, before)) in
            items(at(new, "spec"), list).iter().zip(items(at(old, "spec"), list)).enumerate()
        {
            let at_resources = path.child(list).index(i).child("resources");
            for kind in ["requests", "limits"] {
                for name in ["cpu", "memory"] {
                    let there = |c: &Value| !at(c, &format!("resources.{kind}.{name}")).is_null();
                    if there(before) && !there(container) {
                        let detail = format!("resource {kind} cannot be removed");
                        errors.push(Error::forbidden(&at_resources.child(kind), detail));
                    }
                }
            }
            if text(before, "restartPolicy") != "Always" && list == "initContainers" && !same(container, before) {
                errors.push(Error::forbidden(&path, "resources for non-sidecar init containers are immutable"));
                continue;
            }
            let mut munged = container.clone();
            for kind in ["requests", "limits"] {
                for name in ["cpu", "memory"] {
                    let value = at(before, "resources").get(kind).and_then(|r| r.get(name)).cloned();
                    let resources = child(&mut munged, "resources");
                    match value {
                        Some(value) => {
                            map(child(resources, kind)).insert(name.to_owned(), value);
                        }
                        None => {
                            if let Some(list) = resources.get_mut(kind).and_then(Value::as_object_mut) {
                                list.remove(name);
                            }
                        }
                    }
                }
            }
            if !same(&munged, before) && !quantities_same(&munged, before) {
                errors.push(Error::forbidden(&path, "only cpu and memory resources are mutable"));
            }
        }
    }
}

fn quantities_same(a: &Value, b: &Value) -> bool {
    let strip = |container: &Value| {
        let mut rest = container.clone();
        let resources = map(&mut rest).remove("resources").unwrap_or_default();
        (rest, resources)
    };
    let ((a, x), (b, y)) = (strip(a), strip(b));
    same(&a, &b)
        && ["requests", "limits"].iter().all(|kind| {
            let (x, y) = (at(&x, kind), at(&y, kind));
            if unset(x) && unset(y) {
                return true;
            }
            let amounts = |list: &Value| -> Vec<(String, Option<Quantity>)> {
                list.as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| (name.clone(), Quantity::from_json(value).ok()))
                    .collect()
            };
            amounts(x) == amounts(y)
        })
}

/// Marks a pod as going because somebody evicts it.
pub fn mark_evicted(pod: &mut Value, now: jiff::Timestamp) {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    set_condition(pod, condition, now);
}
