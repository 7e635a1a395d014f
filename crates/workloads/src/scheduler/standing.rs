//! Where a gang stands in the queue, for those who ask.

use super::Scheduler;
use super::index::Index;
use super::line::Place;
use api::object::Key;
use api::queue_place::AHEAD_MAX;
use std::sync::Arc;

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// From 1, among those of the gang's namespace.
    pub position: usize,
    /// From 1, among all.
    pub overall: usize,
    /// Those of its namespace that are tried before it, the first one first, at most [`AHEAD_MAX`]: a gang by its name, a single pod by
    /// the pod's.
    pub ahead: Vec<String>,
}

impl Scheduler {
    /// Where the gang of a JobSet stands; of several, the one that is tried first. `None` where none of its pods is to get a node. As of the
    /// last pass.
    pub fn standing(&self, jobset: &Key) -> Option<Standing> {
        self.memory().index.as_ref()?.standing(jobset)
    }
}

impl Index {
    fn standing(&self, jobset: &Key) -> Option<Standing> {
        let members = self.groups_of(jobset).filter_map(|group| self.groups.get(group));
        let units = members.flat_map(|members| &members.units).filter_map(|unit| self.units.get(unit));
        let place = units.map(|unit| &unit.place).min()?;
        let mut standing = Standing { position: 1, overall: 1, ahead: Vec::new() };
        for before in self.queue.range::<Arc<Place>, _>(..place) {
            standing.overall += 1;
            if before.unit.namespace != jobset.namespace {
                continue;
            }
            standing.position += 1;
            if standing.ahead.len() < AHEAD_MAX {
                standing.ahead.push(before.title().to_owned());
            }
        }
        Some(standing)
    }
}

impl Place {
    /// The gang's name, or that of a pod on its own.
    fn title(&self) -> &str {
        if self.name.is_empty() { &self.unit.name } else { &self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Live, declared, node, pod};
    use super::*;
    use api::jobset::keys;
    use serde_json::json;

    /// Gangs of one pod that has the labels of a JobSet; `more` is merged into the pod.
    fn waiting(namespace: &str, name: &str, second: u32, priority: i64) -> serde_json::Value {
        let made = format!("2026-01-01T00:00:{second:02}Z");
        let labels = json!({keys::JOBSET_NAME: name, keys::RESTART_ATTEMPT: "0"});
        let mut pod = pod(&format!("{name}-x"), "4", json!({"spec": {"priority": priority}}));
        pod["metadata"]["namespace"] = namespace.into();
        pod["metadata"]["creationTimestamp"] = made.into();
        pod["metadata"]["labels"] = labels;
        pod
    }

    #[test]
    fn the_place_is_by_priority_and_age_and_names_the_namespaces_own() {
        let mut objects = vec![
            node("n", "2", json!({})),
            waiting("ns", "late", 3, 0),
            waiting("ns", "early", 1, 0),
            waiting("ns", "urgent", 9, 7),
            waiting("other", "theirs", 2, 0),
        ];
        objects.extend(declared("gang", 2, "8", &json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})));
        let mut live = Live::of(&objects);
        let of = |live: &Live, namespace: &str, name: &str| live.scheduler.standing(&Key::new(namespace, name));
        assert_eq!(of(&live, "ns", "late"), None, "nothing was looked at yet");
        live.run();
        let late = of(&live, "ns", "late").expect("it waits");
        assert_eq!((late.position, late.overall), (4, 5));
        assert_eq!(late.ahead, ["urgent", "gang", "early"]);
        assert_eq!(of(&live, "other", "theirs").map(|place| (place.position, place.overall)), Some((1, 4)));
        assert_eq!(of(&live, "ns", "theirs"), None);
        // what has a node stands nowhere
        live.model.put(node("n", "4", json!({})));
        live.run();
        assert_eq!(of(&live, "ns", "urgent"), None);
        assert_eq!(of(&live, "ns", "gang").map(|place| place.position), None, "no JobSet's");
        assert_eq!(of(&live, "ns", "late").expect("it waits").position, 3);
    }

    #[test]
    fn of_thousands_a_hundred_are_named() {
        let mut objects: Vec<_> = (0..150).map(|at| waiting("ns", &format!("g{at:03}"), 0, 0)).collect();
        objects.push(node("n", "2", json!({})));
        let mut live = Live::of(&objects);
        live.run();
        let last = live.scheduler.standing(&Key::new("ns", "g149")).expect("it waits");
        assert_eq!((last.position, last.ahead.len()), (150, AHEAD_MAX));
        assert_eq!(last.ahead[0], "g000");
    }
}
