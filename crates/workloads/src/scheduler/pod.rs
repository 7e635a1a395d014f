//! A pod as the scheduler keeps it.
//!
//! Of thousands that wait or have ended, a pass looks at those alone for whom there is room, so what is asked of all of them is beside the
//! object, and the object is text: a fifth of its tree. A pod that holds a node is a tree, as others ask for their neighbours again and again.

use super::gang::{self, Group};
use super::index::State;
use super::line::Shape;
use super::preempt;
use api::object;
use jiff::Timestamp;
use objects::packed::Packed;
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Pod {
    object: Held,
    pub state: State,
    pub shape: Arc<Shape>,
    pub group: Group,
    /// It holds the room of a pod that is to come, and is nowhere but here.
    pub is_room: bool,
    /// Its place in its gang.
    pub rank: (i64, i64),
    /// The replicated job that it is of.
    pub role: Box<str>,
    pub priority: i64,
    /// Nobody is to go for it.
    pub never_preempts: bool,
    pub created: Option<Timestamp>,
}

#[derive(Debug)]
enum Held {
    Tree(Arc<Value>),
    Text(Packed),
}

/// Its JSON, without the detour over its display.
fn text_of(object: &Value) -> Vec<u8> {
    serde_json::to_vec(object).unwrap_or_default()
}

impl Held {
    fn new(object: &Arc<Value>, state: &State) -> Self {
        match state {
            State::On(_) => Self::Tree(object.clone()),
            State::Waits | State::Ended | State::Apart => Self::Text(Packed::from_text(text_of(object))),
        }
    }
}

impl Pod {
    pub(super) fn new(object: &Arc<Value>, state: State, shape: Arc<Shape>, group: Group) -> Self {
        Self {
            object: Held::new(object, &state),
            state,
            shape,
            group,
            is_room: false,
            rank: gang::rank(object),
            role: gang::replicated_job(object).into(),
            priority: preempt::priority(object),
            never_preempts: object["spec"]["preemptionPolicy"] == "Never",
            created: object::meta(object, "creationTimestamp").parse().ok(),
        }
    }

    /// The members of its object that are read.
    pub(super) fn object(&self) -> Arc<Value> {
        match &self.object {
            Held::Tree(tree) => tree.clone(),
            Held::Text(text) => text.glance(),
        }
    }

    /// The same, for a search of nodes, of which there may be several in a row.
    pub(super) fn open(&self) -> Arc<Value> {
        match &self.object {
            Held::Tree(tree) => tree.clone(),
            Held::Text(text) => text.open(),
        }
    }

    /// Takes another state of its object, which differs in nothing that is beside it.
    pub(super) fn keep(&mut self, object: &Arc<Value>) {
        self.object = Held::new(object, &self.state);
    }

    /// The same, on a node.
    pub(super) fn on(self, node: &Arc<str>) -> Self {
        let state = State::On(node.clone());
        Self { object: Held::new(&self.object(), &state), state, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::core;
    use super::super::index::Index;
    use super::*;
    use api::object::Target;
    use serde_json::json;

    fn waiting(name: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-global-index": "2"}},
            "spec": {"priority": 7, "preemptionPolicy": "Never", "containers": [{"resources": {"limits": {"cpu": "2"}}}]},
        }))
    }

    #[test]
    fn one_that_waits_is_text_and_one_that_has_a_node_a_tree() {
        let mut index = Index::default();
        for name in ["a", "b"] {
            let object = waiting(name);
            index.take_in(&Target { gvk: core("Pod"), key: object::Key::of(&object) }, Some(&object));
            index.settle();
        }
        let [a, b] = ["a", "b"].map(|name| &index.pods[&object::Key::new("n", name)]);
        assert!(Arc::ptr_eq(&a.shape, &b.shape), "one for all that ask for the same");
        assert!(matches!(a.object, Held::Text(_)));
        assert_eq!((&*a.object(), &*a.open()), (&*waiting("a"), &*waiting("a")));
        let beside = (a.rank, &*a.role, a.priority, a.never_preempts, a.created);
        assert_eq!(beside, ((2, 0), "node", 7, true, "2026-01-01T00:00:00Z".parse().ok()));
        let key = object::Key::new("n", "a");
        index.assume(&key, &"node".into());
        let a = &index.pods[&key];
        assert!(matches!(a.object, Held::Tree(_)));
        assert_eq!(*a.object(), *waiting("a"));
    }
}
