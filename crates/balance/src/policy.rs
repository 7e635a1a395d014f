//! Chooses a backend for each request. [`Picker`] records which backends are ready and how many requests each has in flight.
//!
//! The rules are SkyPilot 0.14.1's, from its recordings (`crates/sky/golden/balancer.json`):
//! - `round_robin` takes the ready backends in turn, and starts with the first whenever their set changes.
//! - `least_load` takes the backend with the fewest requests in flight. Among equals it takes the first at or after the position that
//!   follows the last choice; that position survives changes of the set.
//! - `instance_aware_least_load` divides the requests in flight by the backend's capacity first.
//!
//! A backend that leaves the set loses its count and returns with 0. Requests that it still answers reduce the new count, but not below 0.
//! SkyPilot shuffles the backends of `round_robin` at each change; here they keep the order of the configuration.

/// How a backend is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    RoundRobin,
    #[default]
    LeastLoad,
    InstanceAwareLeastLoad,
}

impl Policy {
    /// All policies, the default first.
    pub const ALL: [Self; 3] = [Self::LeastLoad, Self::RoundRobin, Self::InstanceAwareLeastLoad];

    /// The policy with this name in a service's file.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The policy's name in a service's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastLoad => "least_load",
            Self::InstanceAwareLeastLoad => "instance_aware_least_load",
        }
    }
}

/// The capacity of a GPU type among targets such as `L4` or `A100:1`: the one of its exact name, otherwise the first with its name before
/// the colon. `None`: no target names it.
pub fn capacity_of<'a>(gpu: &str, targets: impl IntoIterator<Item = (&'a str, f64)> + Clone) -> Option<f64> {
    let exact = targets.clone().into_iter().find(|(name, _)| *name == gpu);
    let found = exact.or_else(|| targets.into_iter().find(|(name, _)| name.split(':').next() == Some(gpu)));
    found.map(|(_, rate)| rate)
}

/// Chooses backends. `T` identifies a backend.
#[derive(Debug)]
pub struct Picker<T> {
    policy: Policy,
    ready: Vec<Candidate<T>>,
    /// The position where the next choice starts, modulo the number of ready backends.
    next: usize,
}

#[derive(Debug)]
struct Candidate<T> {
    backend: T,
    in_flight: u64,
    /// Above zero.
    capacity: f64,
}

impl<T: Clone + Eq> Picker<T> {
    /// Without a ready backend.
    pub const fn new(policy: Policy) -> Self {
        Self { policy, ready: Vec::new(), next: 0 }
    }

    /// Uses another policy from now on. Counts of requests stay.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Replaces the ready backends and their capacities. The same set in another order changes only capacities.
    pub fn set_ready(&mut self, ready: impl IntoIterator<Item = (T, Option<f64>)>) {
        let capacity = |given: Option<f64>| given.filter(|rate| *rate > 0.0 && rate.is_finite()).unwrap_or(1.0);
        let new: Vec<Candidate<T>> = ready
            .into_iter()
            .map(|(backend, rate)| Candidate {
                in_flight: self.of(&backend).map_or(0, |old| old.in_flight),
                capacity: capacity(rate),
                backend,
            })
            .collect();
        let is_known = |one: &Candidate<T>| self.of(&one.backend).is_some();
        if new.len() == self.ready.len() && new.iter().all(is_known) {
            for one in new {
                if let Some(old) = self.ready.iter_mut().find(|old| old.backend == one.backend) {
                    old.capacity = one.capacity;
                }
            }
            return;
        }
        self.ready = new;
        if self.policy == Policy::RoundRobin {
            self.next = 0;
        }
    }

    /// The backend for a request, which counts as in flight from now on; none if every ready one is to be skipped.
    pub fn pick(&mut self, skip: impl Fn(&T) -> bool) -> Option<T> {
        let count = self.ready.len();
        let start = self.next.checked_rem(count)?;
        let mut best: Option<(usize, f64)> = None;
        for (position, candidate) in self.ready.iter().enumerate().cycle().skip(start).take(count) {
            let load = self.load(candidate);
            if best.is_none_or(|(_, least)| load < least) && !skip(&candidate.backend) {
                best = Some((position, load));
            }
        }
        let (position, _) = best?;
        self.next = position.wrapping_add(1).checked_rem(count)?;
        let chosen = self.ready.get_mut(position)?;
        chosen.in_flight = chosen.in_flight.saturating_add(1);
        Some(chosen.backend.clone())
    }

    /// A request that was given to this backend has ended.
    pub fn done(&mut self, backend: &T) {
        if let Some(candidate) = self.ready.iter_mut().find(|one| one.backend == *backend) {
            candidate.in_flight = candidate.in_flight.saturating_sub(1);
        }
    }

    /// Whether no backend is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    fn of(&self, backend: &T) -> Option<&Candidate<T>> {
        self.ready.iter().find(|one| one.backend == *backend)
    }

    fn load(&self, candidate: &Candidate<T>) -> f64 {
        match self.policy {
            Policy::RoundRobin => 0.0,
            Policy::LeastLoad => candidate.in_flight as f64,
            Policy::InstanceAwareLeastLoad => candidate.in_flight as f64 / candidate.capacity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// The first request of a case for which the picker chooses another backend than SkyPilot.
    fn difference(case: &Value) -> Option<String> {
        let mut picker = Picker::new(Policy::parse(case["policy"].as_str()?)?);
        let mut chosen = BTreeMap::new();
        let mut info = &Value::Null;
        for op in case["ops"].as_array()? {
            let id = op["id"].as_u64();
            match op["op"].as_str()? {
                "info" => info = op,
                "ready" => {
                    let targets = info["target_qps"].as_object().into_iter().flatten();
                    let targets: Vec<(&str, f64)> =
                        targets.filter_map(|(name, rate)| Some((name.as_str(), rate.as_f64()?))).collect();
                    picker.set_ready(op["replicas"].as_array()?.iter().filter_map(Value::as_str).map(|replica| {
                        let gpu = info["replicas"][replica]["gpu_type"].as_str().unwrap_or_default();
                        (replica, capacity_of(gpu, targets.iter().copied()))
                    }));
                }
                "request" => {
                    let got = picker.pick(|_| false);
                    if got != op["replica"].as_str() {
                        return Some(format!("{}: request {id:?} to {got:?}, not {}", case["name"], op["replica"]));
                    }
                    got.map(|got| chosen.insert(id, got));
                }
                _ => {
                    if let Some(replica) = chosen.remove(&id) {
                        picker.done(&replica);
                    }
                }
            }
        }
        None
    }

    #[test]
    fn recordings_choose_the_same_backends() {
        let recorded: Value = serde_json::from_str(include_str!("../../sky/golden/balancer.json")).unwrap();
        let cases = recorded["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 39);
        let differences: Vec<String> = cases.iter().filter_map(difference).collect();
        assert!(differences.is_empty(), "{differences:#?}");
    }

    #[test]
    fn skipped_backends_are_not_chosen() {
        for policy in Policy::ALL {
            let mut picker = Picker::new(policy);
            picker.set_ready([("a", None), ("b", None), ("c", None)]);
            let chosen: Vec<_> = (0..4).map(|_| picker.pick(|one| *one == "b")).collect();
            assert!(chosen.iter().all(|one| matches!(one, Some("a" | "c"))), "{policy:?}: {chosen:?}");
            assert_eq!(picker.pick(|_| true), None);
        }
    }

    #[test]
    fn a_new_capacity_counts_at_once() {
        let mut picker = Picker::new(Policy::InstanceAwareLeastLoad);
        picker.set_ready([("a", Some(1.0)), ("b", Some(1.0))]);
        assert_eq!(picker.pick(|_| false), Some("a"));
        picker.set_ready([("b", Some(0.1)), ("a", Some(10.0))]);
        assert_eq!(picker.pick(|_| false), Some("b"));
        let next: Vec<_> = (0..5).map(|_| picker.pick(|_| false)).collect();
        assert_eq!(next, [Some("a"); 5]);
    }
}
