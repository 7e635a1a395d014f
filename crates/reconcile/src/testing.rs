//! A world in memory for tests of reconcilers: scenarios run to their fixpoint without an API server.
//!
//! [`Model`] does to its objects what an API server would, as far as controllers can tell: resource versions and conflicts,
//! uids, generations, finalizers, grace periods of bound pods, owner finalizers by propagation policy. It knows no schema,
//! no admission and no defaults; lists are replaced by merge patches and by strategic ones alike.

use crate::execution::{Answer, Call, Execution, Outcome, Refusal, Request, Step, Verb};
use crate::{Decision, Event, Next, Propagation, Reconciler, World};
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The first moment of a scenario, unless it says otherwise.
pub const START: &str = "2026-01-01T00:00:00Z";
/// How many decisions a fixpoint may take before it is held to be a loop.
const DECISIONS_MAX: usize = 200;

/// Objects, a clock that stands still until told, and everything that was said and done.
#[derive(Clone, Debug)]
pub struct Model {
    objects: BTreeMap<(Gvk, Key), Arc<Value>>,
    /// Every kind that there was an object of.
    served: BTreeSet<Gvk>,
    /// Shared by all objects, as in a real server.
    revision: u64,
    uids: u64,
    pub now: Timestamp,
    /// Events in order, as `Type Reason: message`; those about another object than the primary one with its name in front.
    pub events: Vec<String>,
    /// Writes in order, as `verb Kind name`; status writes as `status Kind name`.
    pub writes: Vec<String>,
    /// Refuses a write: gets `verb Kind name`, returns the error's text.
    pub refuse: Option<fn(&str) -> Option<String>>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            served: BTreeSet::new(),
            revision: 0,
            uids: 0,
            now: START.parse().expect("invariant: a constant in RFC 3339"),
            events: Vec::new(),
            writes: Vec::new(),
            refuse: None,
        }
    }
}

fn refusal(code: u16, reason: &str, message: impl Into<String>) -> Refusal {
    Refusal { code, reason: reason.to_owned(), message: message.into(), ..Refusal::default() }
}

fn conflict() -> Refusal {
    refusal(409, "Conflict", "the object has been modified")
}

fn not_found(target: &Target) -> Refusal {
    refusal(404, "NotFound", format!("{target} not found"))
}

/// Two objects or patches laid over each other, RFC 7386.
pub fn merge(base: &mut Value, over: &Value) {
    let Value::Object(over) = over else {
        *base = over.clone();
        return;
    };
    if !base.is_object() {
        *base = Value::Object(Map::new());
    }
    let map = base.as_object_mut().expect("invariant: made an object above");
    for (key, value) in over {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// `add`, `remove`, `replace` and `test` of RFC 6902.
fn json_patch(document: &mut Value, patch: &Value) -> Result<(), String> {
    for step in patch.as_array().into_iter().flatten() {
        let (op, path) = (object::text(step, "op"), object::text(step, "path"));
        let (parent, last) = path.rsplit_once('/').ok_or("no path")?;
        let last = last.replace("~1", "/").replace("~0", "~");
        let target = document.pointer_mut(parent).ok_or_else(|| format!("nothing at {parent}"))?;
        let value = step.get("value").cloned().unwrap_or_default();
        match (op, target) {
            ("test", parent) => {
                let held = if parent.is_array() { parent.pointer(&format!("/{last}")) } else { parent.get(&last) };
                if held != Some(&value) {
                    return Err(format!("testing value {path} failed"));
                }
            }
            ("remove", Value::Object(map)) => _ = map.remove(&last),
            (_, Value::Object(map)) => _ = map.insert(last, value),
            ("remove", Value::Array(list)) => _ = list.remove(last.parse().map_err(|_| "no index")?),
            ("replace", Value::Array(list)) => list[last.parse::<usize>().map_err(|_| "no index")?] = value,
            (_, Value::Array(list)) => match last.as_str() {
                "-" => list.push(value),
                at => list.insert(at.parse().map_err(|_| "no index")?, value),
            },
            (_, _) => return Err(format!("nothing at {path}")),
        }
    }
    Ok(())
}

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

impl Model {
    /// A model that holds these objects.
    pub fn of(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut model = Self::default();
        for object in objects {
            model.put(object);
        }
        model
    }

    /// How many changes there were.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn bump(&mut self, object: &mut Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
    }

    fn store(&mut self, mut object: Value) {
        self.bump(&mut object);
        self.served.insert(Gvk::of(&object));
        self.objects.insert((Gvk::of(&object), Key::of(&object)), Arc::new(object));
    }

    /// Adds an object as it is, with a uid (the lower-case kind and name, where it says none), a creation time and a
    /// generation.
    pub fn put(&mut self, mut object: Value) -> Arc<Value> {
        let kind = object::text(&object, "kind").to_lowercase();
        let uid = format!("{kind}-{}", object::meta(&object, "name"));
        let now = self.now.to_string();
        let meta = object["metadata"].as_object_mut().expect("an object has metadata");
        for (name, value) in [("uid", json!(uid)), ("creationTimestamp", json!(now)), ("generation", json!(1))] {
            meta.entry(name).or_insert(value);
        }
        let at = (Gvk::of(&object), Key::of(&object));
        self.store(object);
        self.objects[&at].clone()
    }

    /// Changes an object as a user or a kubelet would; `change` sees it whole. A changed spec raises the generation.
    pub fn change(&mut self, gvk: &Gvk, key: &Key, change: impl FnOnce(&mut Value)) {
        let held = self.objects[&(gvk.clone(), key.clone())].clone();
        let mut object = (*held).clone();
        change(&mut object);
        self.settle(&held, object);
    }

    /// Stores a changed object, or lets it go if it was to be deleted and nothing holds it any more.
    fn settle(&mut self, held: &Value, mut object: Value) {
        if object == *held {
            return;
        }
        if object.get("spec") != held.get("spec") {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
            object["metadata"]["generation"] = generation.into();
        }
        let released =
            finalizers(&object).is_empty() && object["metadata"]["deletionGracePeriodSeconds"].as_i64() == Some(0);
        if object::is_terminating(&object) && released {
            self.revision += 1;
            self.objects.remove(&(Gvk::of(&object), Key::of(&object)));
        } else {
            self.store(object);
        }
    }

    /// The end of a terminating object's grace period, as a kubelet's last DELETE brings about.
    pub fn end_grace(&mut self, gvk: &Gvk, key: &Key) {
        self.change(gvk, key, |object| object["metadata"]["deletionGracePeriodSeconds"] = 0.into());
    }

    /// DELETE. Bound pods that have not ended keep their grace period; everything else goes once no finalizer holds it.
    pub fn delete(&mut self, target: &Target, propagation: Propagation, grace_secs: Option<i64>) {
        let Some(held) = self.get(&target.gvk, &target.key) else { return };
        let mut object = (*held).clone();
        let ended = object::has_ended(&object);
        let bound = object["spec"].get("nodeName").is_some() && !ended;
        let grace = if target.gvk.kind == "Pod" && bound {
            grace_secs.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30)
        } else {
            0
        };
        let policy = match propagation {
            Propagation::Background => None,
            Propagation::Foreground => Some("foregroundDeletion"),
            Propagation::Orphan => Some("orphan"),
        };
        if let Some(policy) = policy.filter(|policy| !finalizers(&object).contains(policy)) {
            if !object["metadata"]["finalizers"].is_array() {
                object["metadata"]["finalizers"] = json!([]);
            }
            let list = object["metadata"]["finalizers"].as_array_mut().expect("invariant: made a list above");
            list.push(policy.into());
        }
        if !object::is_terminating(&object) {
            let at = api::time::later_secs(self.now, grace);
            object["metadata"]["deletionTimestamp"] = at.to_string().into();
        }
        object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        self.settle(&held, object);
    }

    /// All of a kind, by name.
    pub fn all(&self, kind: &str) -> Vec<Arc<Value>> {
        self.objects.iter().filter(|((gvk, _), _)| gvk.kind == kind).map(|(_, object)| object.clone()).collect()
    }

    /// The one object of a kind and name.
    pub fn one(&self, kind: &str, name: &str) -> Option<Arc<Value>> {
        self.all(kind).into_iter().find(|object| object::meta(object, "name") == name)
    }

    fn noted(&mut self, verb: &str, target: &Target) -> Result<(), Refusal> {
        let line = format!("{verb} {} {}", target.gvk.kind, target.key.name);
        if let Some(text) = self.refuse.and_then(|refuse| refuse(&line)) {
            return Err(refusal(403, "Forbidden", text));
        }
        self.writes.push(line);
        Ok(())
    }

    fn update(&mut self, object: &Value) -> Result<(), Refusal> {
        let target = Target::of(object);
        let held = self.get(&target.gvk, &target.key).ok_or_else(|| not_found(&target))?;
        for member in ["resourceVersion", "uid"] {
            let (wanted, has) = (object::meta(object, member), object::meta(&held, member));
            if !wanted.is_empty() && wanted != has {
                return Err(conflict());
            }
        }
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = held["metadata"]["resourceVersion"].clone();
        self.settle(&held, object);
        Ok(())
    }

    fn patch(&mut self, call: &Call) -> Result<(), Refusal> {
        let target = &call.target;
        let held = self.get(&target.gvk, &target.key).ok_or_else(|| not_found(target))?;
        let mut object = (*held).clone();
        match call.verb {
            Verb::JsonPatch => {
                json_patch(&mut object, &call.body).map_err(|text| refusal(422, "Invalid", text))?;
            }
            _ => merge(&mut object, &call.body),
        }
        self.update(&object)
    }

    fn create(&mut self, object: &Value) -> Result<(), Refusal> {
        let target = Target::of(object);
        if self.get(&target.gvk, &target.key).is_some() {
            return Err(refusal(409, "AlreadyExists", format!("{target} already exists")));
        }
        self.noted("create", &target)?;
        self.uids += 1;
        let mut object = object.clone();
        object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        self.put(object);
        Ok(())
    }

    fn subresource(&mut self, name: &str, call: &Call) -> Result<(), Refusal> {
        let target = &call.target;
        if name == "status" {
            self.writes.push(format!("status {} {}", target.gvk.kind, target.key.name));
            return if call.verb == Verb::Put { self.update(&call.body) } else { self.patch(call) };
        }
        self.noted(if call.method() == "PATCH" { "patch" } else { name }, target)?;
        match name {
            "binding" => {
                let node = call.body["target"]["name"].clone();
                self.change(&target.gvk, &target.key, |pod| pod["spec"]["nodeName"] = node);
                Ok(())
            }
            "eviction" => {
                self.delete(target, Propagation::Background, None);
                Ok(())
            }
            _ if call.method() == "PATCH" => self.patch(call),
            _ => self.update(&call.body),
        }
    }

    fn delete_call(&mut self, call: &Call) -> Result<(), Refusal> {
        let (target, options) = (&call.target, &call.body);
        let propagation = match object::text(options, "propagationPolicy") {
            "Foreground" => Propagation::Foreground,
            "Orphan" => Propagation::Orphan,
            _ => Propagation::Background,
        };
        if target.key.name.is_empty() {
            self.noted("delete-collection", target)?;
            for object in self.list(&target.gvk, Some(&target.key.namespace)) {
                self.delete(&Target::of(&object), propagation, None);
            }
            return Ok(());
        }
        let held = self.get(&target.gvk, &target.key).ok_or_else(|| not_found(target))?;
        for member in ["uid", "resourceVersion"] {
            let wanted = object::text(&options["preconditions"], member);
            if !wanted.is_empty() && wanted != object::meta(&held, member) {
                return Err(conflict());
            }
        }
        self.noted("delete", target)?;
        self.delete(target, propagation, options["gracePeriodSeconds"].as_i64());
        Ok(())
    }

    /// Answers a call as an API server would.
    fn answer(&mut self, call: &Call) -> Answer {
        let done = match (call.subresource, call.verb) {
            (Some(name), _) => self.subresource(name, call),
            (None, Verb::Get) => Ok(()),
            (None, Verb::Post) => self.create(&call.body),
            (None, Verb::Put) => self.noted("update", &call.target).and_then(|()| self.update(&call.body)),
            (None, Verb::MergePatch | Verb::JsonPatch | Verb::StrategicPatch) => {
                self.noted("patch", &call.target).and_then(|()| self.patch(call))
            }
            (None, Verb::Apply(_)) => self.noted("apply", &call.target).and_then(|()| {
                if self.get(&call.target.gvk, &call.target.key).is_some() {
                    return self.patch(call);
                }
                self.put(call.body.clone());
                Ok(())
            }),
            (None, Verb::Delete) => self.delete_call(call),
        };
        match done.map(|()| self.get(&call.target.gvk, &call.target.key)) {
            Ok(Some(object)) => Answer::Accepted(object),
            Ok(None) if call.verb == Verb::Get => Answer::Refused(not_found(&call.target)),
            Ok(None) => Answer::Accepted(Arc::default()),
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    fn say(&mut self, event: &Event) {
        let about = event.regarding.as_ref().map(|object| format!("{}: ", object::meta(object, "name")));
        let line = format!("{} {}: {}", event.kind.as_str(), event.reason, event.message);
        self.events.push(about.unwrap_or_default() + &line);
    }

    /// Carries out a decision. False: it ended early, by a conflict or a refusal.
    pub fn execute(&mut self, target: &Target, decision: &Decision) -> bool {
        let mut execution = Execution::new(target.clone(), decision.clone());
        let mut answer = None;
        loop {
            answer = Some(match execution.step(answer) {
                Step::End(outcome) => return outcome == Outcome::Done,
                Step::Ask(Request::Call(call)) => self.answer(&call),
                Step::Ask(Request::Draw) => Answer::Drawn([7; _]),
                Step::Ask(Request::Show(_)) => Answer::Noted,
                Step::Ask(Request::Record(event)) => {
                    self.say(&event);
                    Answer::Noted
                }
            });
        }
    }

    /// Observes and decides once; `None` where there is nothing to reconcile.
    pub fn decide<R: Reconciler>(&self, reconciler: &R, target: &Target) -> Option<Decision> {
        reconciler.observe(self, target).map(|observed| reconciler.decide(&observed, self.now))
    }

    /// Reconciles one object until a decision changes nothing; returns when it wants to look again.
    ///
    /// # Panics
    /// If that takes more than 200 decisions: a loop.
    pub fn run<R: Reconciler>(&mut self, reconciler: &R, target: &Target) -> Next {
        for _ in 0..DECISIONS_MAX {
            let Some(decision) = self.decide(reconciler, target) else { return Next::AwaitChange };
            let before = self.revision;
            self.execute(target, &decision);
            if self.revision == before {
                return decision.next;
            }
        }
        panic!(
            "{} does not come to rest at {target}; last writes: {:?}",
            reconciler.name(),
            self.writes.iter().rev().take(6).collect::<Vec<_>>()
        );
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: i64) {
        self.now = api::time::later_secs(self.now, seconds);
    }
}

impl World for Model {
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(&(gvk.clone(), key.clone())).cloned()
    }

    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.objects
            .iter()
            .filter(|((g, key), _)| g == gvk && namespace.is_none_or(|n| n == key.namespace))
            .map(|(_, object)| object.clone())
            .collect()
    }

    fn owned_by(&self, gvk: &Gvk, owner_uid: &str) -> Vec<Arc<Value>> {
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
            if owner_uid.is_empty() {
                owners.is_empty()
            } else {
                owners.iter().any(|owner| object::text(owner, "uid") == owner_uid)
            }
        };
        self.list(gvk, None).into_iter().filter(|object| owned(object)).collect()
    }

    fn kinds(&self) -> Vec<Gvk> {
        self.served.iter().cloned().collect()
    }
}
