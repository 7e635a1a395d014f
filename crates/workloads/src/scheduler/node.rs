//! Nodes, what is left of them, and why one does not take a pod.

use super::request::{self, HostPort, Resources};
use api::jobset::keys;
use api::object;
use api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node and what is left of it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub object: Arc<Value>,
    allocatable: Resources,
    used: Resources,
    /// `None`: no limit on the number of pods.
    pods_left: Option<i64>,
    /// Pods on it, and seats that are kept.
    pub pods: usize,
    /// Those of them that belong to a JobSet, by its uid.
    members: BTreeMap<String, usize>,
    /// Ports that its pods take, and how often.
    ports: BTreeMap<HostPort, usize>,
    /// What those behind the head of the queue may take, where something is kept for it.
    pub spare: Option<Spare>,
}

/// What is left beside a share that is kept.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    pub left: Resources,
    pub pods: Option<i64>,
    /// Ports that are kept.
    pub ports: Vec<HostPort>,
}

/// Why a node does not take a pod; ordered as messages list them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// It lacks so much of a resource.
    Insufficient {
        resource: String,
        needs: String,
        free: String,
        of: String,
    },
    TooManyPods,
    /// Any other, in upstream's words.
    Other(String),
}

impl Reason {
    fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }

    /// The reason without the amounts, by which nodes are counted.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Insufficient { resource, .. } => format!("Insufficient {resource}"),
            Self::TooManyPods => "Too many pods".to_owned(),
            Self::Other(text) => text.clone(),
        }
    }

    /// The amounts, where there are some.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Insufficient { needs, free, of, .. } => format!(" (needs {needs}, {free} free of {of})"),
            Self::TooManyPods | Self::Other(_) => String::new(),
        }
    }
}

impl Node {
    /// An empty node.
    pub(super) fn new(object: Arc<Value>) -> Self {
        let status = &object["status"];
        let list = status.get("allocatable").or_else(|| status.get("capacity"));
        let mut allocatable = request::resources(list);
        let pods_left = allocatable.remove("pods").map(Quantity::value);
        Self {
            allocatable,
            used: Resources::new(),
            pods_left,
            object,
            pods: 0,
            members: BTreeMap::new(),
            ports: BTreeMap::new(),
            spare: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        object::meta(&self.object, "name")
    }

    /// Whether another state of the same node takes the same pods.
    pub(super) fn is_like(&self, object: &Value) -> bool {
        let allocatable = |node: &Value| node["status"].get("allocatable").or(node["status"].get("capacity")).cloned();
        let (old, labels) = (&*self.object, |node: &Value| node["metadata"].get("labels").cloned());
        old["spec"] == object["spec"]
            && labels(old) == labels(object)
            && readiness(old) == readiness(object)
            && allocatable(old) == allocatable(object)
    }

    /// Puts a pod on it, whether it fits or not.
    pub(super) fn take(&mut self, pod: &Value, needs: &Resources) {
        request::add(&mut self.used, needs);
        self.pods_left = self.pods_left.map(|left| left - 1);
        self.pods += 1;
        for port in request::host_ports(pod) {
            *self.ports.entry(port).or_default() += 1;
        }
        if let Some(jobset) = object::label(pod, keys::JOBSET_UID) {
            *self.members.entry(jobset.to_owned()).or_default() += 1;
        }
    }

    /// Takes back what [`Node::take`] did for a pod.
    pub(super) fn give_back(&mut self, pod: &Value, needs: &Resources) {
        for (resource, amount) in needs {
            if let Some(used) = self.used.get_mut(resource) {
                *used = used.minus(*amount);
            }
        }
        self.pods_left = self.pods_left.map(|left| left + 1);
        self.pods = self.pods.saturating_sub(1);
        for port in request::host_ports(pod) {
            if let Some(count) = self.ports.get_mut(&port) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(&port);
                }
            }
        }
        if let Some(jobset) = object::label(pod, keys::JOBSET_UID)
            && let Some(members) = self.members.get_mut(jobset)
        {
            *members = members.saturating_sub(1);
            if *members == 0 {
                self.members.remove(jobset);
            }
        }
    }

    /// How many pods of the same JobSet are on it.
    pub(super) fn members_like(&self, pod: &Value) -> usize {
        object::label(pod, keys::JOBSET_UID).and_then(|jobset| self.members.get(jobset)).copied().unwrap_or_default()
    }

    fn free(&self, resource: &str) -> Quantity {
        let amount = |of: &Resources| of.get(resource).copied().unwrap_or(Quantity::ZERO);
        let left = amount(&self.allocatable).minus(amount(&self.used));
        if left.is_negative() { Quantity::ZERO } else { left }
    }

    /// How much of a resource would be left after so much more; orders nodes by how well they are filled.
    pub(super) fn left_after(&self, resource: &str, needs: &Resources) -> Quantity {
        self.free(resource).minus(needs.get(resource).copied().unwrap_or(Quantity::ZERO))
    }

    /// What is left of each resource; less than nothing where more is used than there is.
    pub(super) fn left(&self) -> Resources {
        let used = |name: &String| self.used.get(name).copied().unwrap_or(Quantity::ZERO);
        self.allocatable.iter().map(|(name, amount)| (name.clone(), amount.minus(used(name)))).collect()
    }

    pub(super) fn pods_left(&self) -> Option<i64> {
        self.pods_left
    }

    /// Whether ports are free, for units that come before what is kept, or after.
    pub(super) fn has_ports(&self, wanted: &[HostPort], is_behind: bool) -> bool {
        let kept = self.spare.as_ref().filter(|_| is_behind).into_iter().flat_map(|spare| &spare.ports);
        let mut taken = self.ports.keys().chain(kept);
        wanted.is_empty() || !taken.any(|taken| wanted.iter().any(|port| port.clashes(taken)))
    }

    /// For how many pods of a shape it has room, of units that come before what is kept, or after.
    pub(super) fn room_after(&self, needs: &Resources, is_behind: bool) -> u64 {
        let room = self.room_for(needs);
        self.spare.as_ref().filter(|_| is_behind).map_or(room, |spare| spare.room_for(needs).min(room))
    }

    /// A unit behind the head takes something (`-1`: gives it back).
    pub(super) fn spend(&mut self, needs: &Resources, sign: i64) {
        let Some(spare) = &mut self.spare else { return };
        for (resource, amount) in needs {
            let left = spare.left.entry(resource.clone()).or_insert(Quantity::ZERO);
            *left = left.minus(amount.times(sign));
        }
        spare.pods = spare.pods.map(|left| left - sign);
    }

    /// For how many pods of a shape it has room.
    pub(super) fn room_for(&self, needs: &Resources) -> u64 {
        let pods = self.pods_left.map_or(u64::MAX, |left| u64::try_from(left).unwrap_or_default());
        needs.iter().map(|(resource, amount)| self.free(resource).holds(*amount)).fold(pods, u64::min)
    }

    /// Why its state or its resources keep a pod away, all reasons.
    pub(super) fn refuses(&self, pod: &Value, needs: &Resources) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self.keeps_out(pod).into_iter().collect();
        if reasons.is_empty() && !self.has_ports(&request::host_ports(pod), false) {
            return vec![Reason::other("node(s) didn't have free ports for the requested pod ports")];
        }
        if self.pods_left.is_some_and(|left| left < 1) {
            reasons.push(Reason::TooManyPods);
        }
        for (resource, amount) in needs {
            let free = self.free(resource);
            if *amount > free {
                let of = self.allocatable.get(resource).copied().unwrap_or(Quantity::ZERO);
                reasons.push(Reason::Insufficient {
                    resource: resource.clone(),
                    needs: amount.to_string(),
                    free: free.to_string(),
                    of: of.to_string(),
                });
            }
        }
        reasons
    }

    /// Whether a pod tolerates the node's taints.
    pub(super) fn is_tolerated(&self, pod: &Value) -> bool {
        let tolerations = pod["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut taints = self.object["spec"]["taints"].as_array().into_iter().flatten();
        taints.all(|taint| {
            object::text(taint, "effect") == "PreferNoSchedule"
                || tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    }

    /// How many of the node's taints rather keep a pod away (`PreferNoSchedule`), and are not tolerated.
    pub(super) fn deterrents(&self, pod: &Value) -> usize {
        let tolerations = pod["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
        let taints = self.object["spec"]["taints"].as_array().into_iter().flatten();
        let prefers = taints.filter(|taint| object::text(taint, "effect") == "PreferNoSchedule");
        prefers.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint))).count()
    }

    /// Readiness, cordon and taints.
    pub(super) fn keeps_out(&self, pod: &Value) -> Option<Reason> {
        let tolerations = pod["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
        let tolerated = |taint: &Value| tolerations.iter().any(|toleration| tolerates(toleration, taint));
        if self.object["spec"]["unschedulable"] == true {
            let cordon = serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
            if !tolerated(&cordon) {
                return Some(Reason::other("node(s) were unschedulable"));
            }
        }
        let mut taints = self.object["spec"]["taints"].as_array().into_iter().flatten();
        let keeps = |taint: &&Value| matches!(object::text(taint, "effect"), "NoSchedule" | "NoExecute");
        if let Some(taint) = taints.find(|taint| keeps(taint) && !tolerated(taint)) {
            let (key, value) = (object::text(taint, "key"), object::text(taint, "value"));
            return Some(Reason::other(format!("node(s) had untolerated taint {{{key}: {value}}}")));
        }
        (readiness(&self.object) != Some("True")).then(|| Reason::other("node(s) were not ready"))
    }
}

/// Status of the node's Ready condition; `None` where it has never reported any.
pub(super) fn readiness(node: &Value) -> Option<&str> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|c| object::text(c, "type") == "Ready").map(|c| object::text(c, "status"))
}

/// Whether its agent reports: pods of one that does not may have to stay until it comes back.
pub(super) fn is_up(node: &Value) -> bool {
    readiness(node).is_none_or(|ready| ready == "True")
}

/// Whether a toleration lets a pod onto a tainted node.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |value, member| object::text(value, member);
    let effect = text(toleration, "effect");
    if !effect.is_empty() && effect != text(taint, "effect") {
        return false;
    }
    let key = text(toleration, "key");
    let exists = text(toleration, "operator") == "Exists";
    if key.is_empty() {
        return exists;
    }
    key == text(taint, "key") && (exists || text(toleration, "value") == text(taint, "value"))
}

/// `0/3 nodes are available: 1 Insufficient cpu (needs 8, 2 free of 4), 2 node(s) were unschedulable.` Amounts are those of
/// the node that comes closest: nodes are asked in the order of their names, the first with the fewest reasons counts.
pub(super) fn explain(refusals: &[Vec<Reason>]) -> String {
    let mut counts: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut closest: Vec<&Vec<Reason>> = refusals.iter().collect();
    closest.sort_by_key(|reasons| reasons.len());
    for reasons in closest {
        for reason in reasons {
            let (count, detail) = counts.entry(reason.title()).or_default();
            *count += 1;
            if detail.is_empty() {
                *detail = reason.detail();
            }
        }
    }
    let parts: Vec<String> = counts.iter().map(|(title, (count, detail))| format!("{count} {title}{detail}")).collect();
    format!("0/{} nodes are available: {}.", refusals.len(), parts.join(", "))
}

/// What a message says without its amounts: those in brackets, and how much of a gang fits.
pub(super) fn gist(message: &str) -> String {
    let (mut gist, mut rest) = (String::new(), message);
    while let Some(at) = [" (needs ", " (at most "].into_iter().filter_map(|amount| rest.find(amount)).min() {
        gist += &rest[..at];
        rest = rest[at..].find(')').map_or("", |end| &rest[at + end + 1..]);
    }
    gist += rest;
    match gist.rfind("; ") {
        Some(at) if gist.ends_with(" fit.") => gist[..at].to_owned(),
        _ => gist,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_are_kubernetes() {
        let taint = json!({"key": "gpu", "value": "a", "effect": "NoSchedule"});
        for (toleration, want) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "gpu", "value": "a"}), true),
            (json!({"key": "gpu", "operator": "Equal", "value": "b"}), false),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "cpu", "operator": "Exists"}), false),
        ] {
            assert_eq!(tolerates(&toleration, &taint), want, "{toleration}");
        }
    }
}
