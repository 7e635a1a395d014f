//! Compares the requests of a job's pods with the capacity of the nodes: whether the pods could ever run.

use crate::spec::Spec;
use api::object;
use api::quantity::Quantity;
use api::trainer::names::NODE;
use serde_json::Value;
use std::collections::BTreeMap;
use view::amounts::{Amounts, GPU, amounts, requested, shown};

/// The requests of a job.
#[derive(Debug)]
pub(super) struct Wanted {
    pub nodes: i64,
    /// The request of each node, by resource, each with its source: a flag, or the runtime.
    each: BTreeMap<String, (Quantity, String)>,
}

impl Wanted {
    /// The requests of the flags, and of the runtime's trainer where there is no flag.
    pub(super) fn of(spec: &Spec, runtime: &Value, step: &str) -> Self {
        let nodes = spec.nodes.map(i64::from);
        let nodes = nodes.or_else(|| runtime["spec"]["mlPolicy"]["numNodes"].as_i64()).unwrap_or(1);
        let mut each = BTreeMap::new();
        let gpus = spec.gpus.map(|gpus| gpus.to_string());
        let flags = [("cpu", "--cpus", &spec.cpus), ("memory", "--memory", &spec.memory), (GPU, "--gpus", &gpus)];
        let flagged = flags.iter().any(|(_, _, value)| value.is_some());
        for (resource, flag, value) in flags {
            if let Some(amount) = value.as_ref().and_then(|value| Quantity::parse(value).ok()) {
                let flag = format!("{flag} {}", value.as_deref().unwrap_or_default());
                each.insert(resource.to_owned(), (amount, flag));
            }
        }
        let jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array();
        let of_step = jobs.into_iter().flatten().find(|job| object::text(job, "name") == step);
        let pod = of_step.map_or(&Value::Null, |job| &job["template"]["spec"]["template"]["spec"]);
        for container in pod["containers"].as_array().into_iter().flatten() {
            // flags replace all resources that the runtime sets for this container
            if flagged && container["name"] == NODE {
                continue;
            }
            for (resource, amount) in requested(container) {
                let said = || format!("runtime {}", object::meta(runtime, "name"));
                let held = each.entry(resource).or_insert_with(|| (Quantity::ZERO, said()));
                held.0 = held.0.plus(amount);
            }
        }
        each.retain(|_, (amount, _)| !amount.is_zero());
        Self { nodes, each }
    }

    pub(super) fn asks_for_something(&self) -> bool {
        !self.each.is_empty()
    }

    /// Why these nodes can never run it, in one line; `None` if they can, or if nothing is known about them. `machine`: the node is this
    /// machine.
    pub(super) fn fault(&self, nodes: &[Value], machine: bool) -> Option<String> {
        let nodes: Vec<Amounts> = nodes.iter().map(|node| amounts(&node["status"]["allocatable"])).collect();
        if nodes.is_empty() {
            return None;
        }
        let held = |node: &Amounts, resource: &str| node.get(resource).copied().unwrap_or(Quantity::ZERO);
        for (resource, (amount, said)) in &self.each {
            let most =
                nodes.iter().map(|node| held(node, resource)).max_by(|a, b| a.partial_cmp(b).expect("they compare"));
            let most = most.unwrap_or(Quantity::ZERO);
            if *amount > most {
                let has = if machine { "this machine has" } else { "the largest node has" };
                let flag = if said.starts_with("--") {
                    said.clone()
                } else {
                    format!("{said} asks for {} a node", shown(resource, *amount))
                };
                return Some(format!("{flag}: {has} {}", shown(resource, most)));
            }
        }
        let room: i64 = nodes.iter().map(|node| self.room(node)).sum();
        if room >= self.nodes {
            return None;
        }
        let flags: Vec<&str> = self.each.values().map(|(_, said)| said.as_str()).collect();
        let flags: String = flags.iter().map(|flag| format!(" {flag}")).collect();
        // report the scarcest resource: the one whose requests fit into the nodes the fewest times
        let scarce = self.each.iter().min_by_key(|(resource, (amount, _))| {
            nodes.iter().map(|node| times(held(node, resource), *amount)).sum::<i64>()
        });
        let total = |resource: &str| nodes.iter().fold(Quantity::ZERO, |sum, node| sum.plus(held(node, resource)));
        let place = if machine { "this machine has" } else { "the cluster has" };
        let why = match scarce {
            Some((resource, (amount, _))) => format!(
                "all nodes run at the same time and need {}; {place} {}",
                shown(resource, amount.times(self.nodes)),
                shown(resource, total(resource))
            ),
            None => format!("{place} room for {room} pods"),
        };
        Some(format!("--nodes {}{flags}: {why}, enough for {room}", self.nodes))
    }

    /// How many of the job's pods this node could hold if it were empty.
    fn room(&self, node: &Amounts) -> i64 {
        let pods = node.get("pods").map_or(i64::MAX, |pods| pods.value());
        let of = |(resource, (amount, _)): (&String, &(Quantity, String))| {
            times(node.get(resource).copied().unwrap_or(Quantity::ZERO), *amount)
        };
        self.each.iter().map(of).min().unwrap_or(i64::MAX).min(pods).min(i64::from(i32::MAX))
    }
}

/// How many times one amount fits into another.
fn times(held: Quantity, amount: Quantity) -> i64 {
    let amount_millis = amount.milli_value().max(1);
    // memory in thousandths of a byte does not fit into 64 bits
    if amount_millis == i64::MAX || held.milli_value() == i64::MAX {
        return held.value() / amount.value().max(1);
    }
    held.milli_value() / amount_millis
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(words: &[&str], runtime: &Value, nodes: &[Value], machine: bool) -> String {
        Wanted::of(&Spec::of_words(words), runtime, "node").fault(nodes, machine).unwrap_or_default()
    }

    fn node(allocatable: Value) -> Value {
        json!({"status": {"allocatable": allocatable}})
    }

    #[test]
    fn what_never_fits_is_said_with_its_flag() {
        let laptop = [node(json!({"cpu": "2", "memory": "8Gi", "pods": "110"}))];
        let none = json!({});
        let hungry = json!({"metadata": {"name": "big"}, "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node",
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "resources":
                {"limits": {"nvidia.com/gpu": 2}}}]}}}}}]}}}});
        let cases: [(&[&str], &Value, &str); 9] = [
            (&[], &none, ""),
            (&["--nodes", "100"], &none, ""),
            (&["--cpus", "2", "--memory", "8Gi"], &none, ""),
            (&["--gpus", "8"], &none, "--gpus 8: this machine has 0 GPUs"),
            (&["--cpus", "2500m"], &none, "--cpus 2500m: this machine has 2 CPUs"),
            (&["--memory", "9Gi"], &none, "--memory 9Gi: this machine has 8.0Gi of memory"),
            (
                &["--nodes", "4", "--cpus", "1"],
                &none,
                "--nodes 4 --cpus 1: all nodes run at the same time and need 4 CPUs; this machine has 2 CPUs, enough for 2",
            ),
            (&["--nodes", "111"], &none, "--nodes 111: this machine has room for 110 pods, enough for 110"),
            (&[], &hungry, "runtime big asks for 2 GPUs a node: this machine has 0 GPUs"),
        ];
        for (words, runtime, wanted) in cases {
            assert_eq!(told(words, runtime, &laptop, true), wanted, "{words:?}");
        }
        assert_eq!(told(&["--gpus", "8"], &none, &[], true), "", "nothing is known");
        // flags replace the runtime's requests
        assert_eq!(told(&["--cpus", "1"], &hungry, &laptop, true), "");
        let cluster = [node(json!({"cpu": "4", "nvidia.com/gpu": "8"})), node(json!({"cpu": "64"}))];
        assert_eq!(told(&["--gpus", "16"], &none, &cluster, false), "--gpus 16: the largest node has 8 GPUs");
        assert_eq!(told(&["--nodes", "8", "--gpus", "1"], &none, &cluster, false), "");
        assert!(
            told(&["--nodes", "5", "--gpus", "1", "--cpus", "1"], &none, &cluster, false).ends_with("enough for 4")
        );
    }
}
