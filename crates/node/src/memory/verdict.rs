//! Whose memory is too much: a function of what was measured.

use std::fmt;

/// Above this share of a limit, in percent, a pod is looked at more often.
const NEAR_PERCENT: u64 = 80;
/// The memory that a machine keeps back is this part of what it has, within these bounds.
const RESERVE_PART: u64 = 100;
const RESERVE_MIN: u64 = 64 << 20;
const RESERVE_MAX: u64 = 512 << 20;

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub total: u64,
    /// What can be had without taking it from somebody; `None` where the kernel does not say.
    pub available: Option<u64>,
}

impl Machine {
    fn reserve(&self) -> u64 {
        (self.total / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX)
    }

    /// Whether a pod has to end.
    pub(super) fn is_short(&self) -> bool {
        self.available.is_some_and(|available| available < self.reserve())
    }

    /// Whether that may soon be so.
    pub(super) fn is_near(&self) -> bool {
        self.available.is_some_and(|available| available < self.reserve().saturating_mul(4))
    }
}

/// What a pod uses, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub uid: String,
    /// Of all containers together.
    pub limit: Option<u64>,
    pub request: u64,
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    pub name: String,
    pub attempt: u32,
    pub limit: Option<u64>,
    pub used: u64,
}

impl Pod {
    fn used(&self) -> u64 {
        self.containers.iter().map(|container| container.used).sum()
    }

    pub(super) fn is_near(&self) -> bool {
        let near = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used > limit / 100 * NEAR_PERCENT);
        near(self.used(), self.limit) || self.containers.iter().any(|one| near(one.used, one.limit))
    }
}

/// A container that is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub uid: String,
    pub container: String,
    pub attempt: u32,
    pub used: u64,
    /// For its status.
    pub message: String,
}

impl End {
    fn of(pod: &Pod, container: &Container, message: String) -> Self {
        let Container { name, attempt, used, .. } = container.clone();
        Self { uid: pod.uid.clone(), container: name, attempt, used, message }
    }
}

/// The containers that use more than their limits; of a pod that does so as a whole, the one that uses most.
pub(super) fn over_limits(pods: &[Pod]) -> Vec<End> {
    let mut ends = Vec::new();
    for pod in pods {
        let before = ends.len();
        for container in &pod.containers {
            if let Some(limit) = container.limit.filter(|limit| container.used > *limit) {
                let message = format!("used {} of {}", Bytes(container.used), Bytes(limit));
                ends.push(End::of(pod, container, message));
            }
        }
        let used = pod.used();
        if let Some(limit) = pod.limit.filter(|limit| ends.len() == before && used > *limit)
            && let Some(largest) = pod.containers.iter().max_by_key(|container| container.used)
        {
            let message = format!(
                "the pod used {} of {}; this container used {} of that",
                Bytes(used),
                Bytes(limit),
                Bytes(largest.used)
            );
            ends.push(End::of(pod, largest, message));
        }
    }
    ends
}

/// The containers of the pod that is furthest over its request, on a machine that has run short; none where all pods keep to their requests.
pub(super) fn furthest_over(pods: &[Pod], machine: Machine) -> Vec<End> {
    let over = |pod: &Pod| pod.used().saturating_sub(pod.request);
    let Some(pod) = pods.iter().filter(|pod| over(pod) > 0).max_by_key(|pod| over(pod)) else { return Vec::new() };
    let message = format!(
        "the machine ran short of memory ({} of {} left), and this pod was furthest over its request: used {} of {}",
        Bytes(machine.available.unwrap_or(0)),
        Bytes(machine.total),
        Bytes(pod.used()),
        Bytes(pod.request)
    );
    pod.containers.iter().map(|container| End::of(pod, container, message.clone())).collect()
}

/// Bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let unit = units.into_iter().find(|(_, size)| self.0 >= *size);
        let Some((name, size)) = unit else { return write!(f, "{} B", self.0) };
        let text = format!("{:.2}", self.0 as f64 / size as f64);
        write!(f, "{} {name}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pod(uid: &str, limit: Option<u64>, request: u64, containers: &[(Option<u64>, u64)]) -> Pod {
        let container = |(at, (limit, used)): (usize, &(Option<u64>, u64))| Container {
            name: format!("c{at}"),
            attempt: 3,
            limit: limit.map(|limit| limit * MIB),
            used: used * MIB,
        };
        Pod {
            uid: uid.to_owned(),
            limit: limit.map(|limit| limit * MIB),
            request: request * MIB,
            containers: containers.iter().enumerate().map(container).collect(),
        }
    }

    fn told(ends: &[End]) -> Vec<String> {
        ends.iter().map(|end| format!("{}/{}: {}", end.uid, end.container, end.message)).collect()
    }

    #[test]
    fn a_container_or_a_pod_over_its_limit_ends() {
        let pods = [
            pod("fits", Some(100), 100, &[(Some(100), 100)]),
            pod("one", Some(200), 200, &[(Some(100), 90), (Some(100), 101)]),
            pod("whole", Some(150), 0, &[(None, 60), (None, 100)]),
            pod("free", None, 0, &[(None, 9000)]),
        ];
        let ends = over_limits(&pods);
        assert_eq!(
            told(&ends),
            [
                "one/c1: used 101 MiB of 100 MiB",
                "whole/c1: the pod used 160 MiB of 150 MiB; this container used 100 MiB of that"
            ]
        );
        assert_eq!((ends[0].attempt, ends[0].used), (3, 101 * MIB));
    }

    #[test]
    fn near_is_more_than_four_fifths() {
        assert!(!pod("p", None, 0, &[(Some(100), 80)]).is_near());
        assert!(pod("p", None, 0, &[(Some(100), 81)]).is_near());
        assert!(pod("p", Some(100), 0, &[(None, 50), (None, 31)]).is_near());
        assert!(!pod("p", None, 0, &[(None, 5000)]).is_near());
    }

    #[test]
    fn a_machine_that_runs_short_ends_the_pod_that_is_furthest_over_its_request() {
        let machine = |available| Machine { total: 24 << 30, available };
        assert!(!machine(None).is_short() && !machine(None).is_near());
        assert!(!machine(Some(300 * MIB)).is_short() && machine(Some(300 * MIB)).is_near());
        assert!(machine(Some(200 * MIB)).is_short() && !machine(Some(2 << 30)).is_near());
        let short = machine(Some(200 * MIB));
        let pods = [
            pod("large", None, 6000, &[(None, 6100)]),
            pod("none", None, 0, &[(None, 90)]),
            pod("over", None, 1024, &[(None, 1100), (None, 436)]),
        ];
        let why = "the machine ran short of memory (200 MiB of 24 GiB left), and this pod was furthest over its request: \
             used 1.5 GiB of 1 GiB";
        assert_eq!(told(&furthest_over(&pods, short)), [format!("over/c0: {why}"), format!("over/c1: {why}")]);
        assert!(furthest_over(&[pod("large", None, 6000, &[(None, 5999)])], short).is_empty());
        assert!(furthest_over(&[], short).is_empty());
    }

    #[test]
    fn bytes_for_people() {
        let cases =
            [(5, "5 B"), (1 << 30, "1 GiB"), (1_288_490_189, "1.2 GiB"), (67_108_864, "64 MiB"), (10 << 30, "10 GiB")];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
