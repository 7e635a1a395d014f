//! Keeps what is served in step with the definitions that are stored.
//!
//! One level-triggered step: look at all definitions, write the conditions and finalizers that they should have, take
//! away the objects of those that are being deleted, and hand out the new catalog. On a cluster five controllers do this.

use crate::registry::{Attempt, Catalog, Core, DeleteOptions, Target};
use resource::User;
use resource::definitions::{CLEANUP, DEFINITIONS, condition, set_condition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Entry, Expect, Op, Revision, Txn};

/// What the controller remembers between steps.
#[derive(Default)]
pub struct Definitions {
    /// Of each definition by name: uid and generation it was last served in, and the revision of that change.
    served: BTreeMap<String, (String, i64, Revision)>,
    /// (group, plural) served for each definition.
    kinds: BTreeMap<String, (String, String)>,
    /// The store's revision at the last look that found nothing to do.
    pub(crate) settled: Revision,
}

impl Definitions {
    /// One look at the definitions. Returns whether it wrote something, so that another look is due.
    ///
    /// Blocks until its writes are durable.
    pub fn step(&mut self, core: &Core) -> bool {
        let snapshot = core.store.snapshot(DEFINITIONS);
        // each is compared with all others: their trees are held as long as that takes
        let entries: Vec<(Arc<Entry>, Arc<Value>)> =
            snapshot.iter(None, None).map(|entry| (entry.clone(), entry.object.glance())).collect();
        let mut wrote = false;
        for (entry, held) in &entries {
            let mut wanted = (**held).clone();
            accept_names(&mut wanted, entry, &entries, &core.world.now());
            if api::object::is_terminating(&wanted) {
                terminating(&mut wanted, &core.world.now());
                if self.empty(core, entry) {
                    drop_finalizer(&mut wanted);
                } else {
                    wrote = true;
                }
            }
            if wanted != **held {
                wrote = true;
                write(core, entry, wanted);
            }
        }
        self.publish(core);
        wrote
    }

    /// Serves the definitions that are established.
    fn publish(&mut self, core: &Core) {
        let snapshot = core.store.snapshot(DEFINITIONS);
        let mut catalog: Option<Catalog> = None;
        let mut seen: Vec<String> = Vec::new();
        for entry in snapshot.iter(None, None) {
            let definition = &entry.object.glance();
            if !established(definition) {
                continue;
            }
            let name = &entry.key.name;
            seen.push(name.clone());
            let uid = api::object::uid(definition).to_owned();
            let generation = definition["metadata"]["generation"].as_i64().unwrap_or(0);
            let terminating = api::object::is_terminating(definition);
            let generation = if terminating { -1 } else { generation };
            let accepted = definition["status"]["acceptedNames"].clone();
            let known = self.served.get(name);
            if known.is_some_and(|(u, g, _)| *u == uid && *g == generation) && self.names(core, name) == Some(accepted)
            {
                continue;
            }
            let fresh_from = entry.revision;
            self.served.insert(name.clone(), (uid, generation, fresh_from));
            let catalog = catalog.get_or_insert_with(|| (*core.catalog()).clone());
            if let Some((group, plural)) = self.kinds.get(name) {
                catalog.remove_custom(group, plural);
            }
            for served in super::served(definition, &entry.bytes(), fresh_from) {
                self.kinds.insert(name.clone(), (served.resource.group.clone(), served.resource.plural.clone()));
                catalog.add(served);
            }
        }
        let gone: Vec<String> = self.served.keys().filter(|name| !seen.contains(name)).cloned().collect();
        for name in gone {
            self.served.remove(&name);
            if let Some((group, plural)) = self.kinds.remove(&name) {
                catalog.get_or_insert_with(|| (*core.catalog()).clone()).remove_custom(&group, &plural);
            }
        }
        if let Some(catalog) = catalog {
            core.set_catalog(catalog);
        }
    }

    /// Names under which a definition is served at present.
    fn names(&self, core: &Core, name: &str) -> Option<Value> {
        let (group, plural) = self.kinds.get(name)?;
        let catalog = core.catalog();
        Some(catalog.any(group, plural)?.custom.as_ref()?.accepted.clone())
    }

    /// Deletes the objects of a definition; whether none is left.
    fn empty(&self, core: &Core, definition: &Arc<Entry>) -> bool {
        let Some(served) = super::stored(&definition.value(), definition.revision).map(Arc::new) else {
            return true;
        };
        let snapshot = core.store.snapshot(&served.bucket);
        let user = User::admin();
        for entry in snapshot.iter(None, None) {
            let target = Target {
                served: served.clone(),
                namespace: entry.key.namespace.clone(),
                name: entry.key.name.clone(),
                subresource: String::new(),
            };
            if api::object::is_terminating(&entry.value()) {
                continue;
            }
            let options = DeleteOptions::default();
            let attempt = || match core.delete(&target, &options, &user) {
                Err(status) if status.code == 404 => Ok(Attempt::nothing()),
                other => other,
            };
            if let Err(status) = core.run_now(attempt) {
                tracing::warn!(%status, name = entry.key.name, "a custom resource cannot be deleted with its definition");
            }
        }
        core.store.snapshot(&served.bucket).is_empty()
    }
}

/// Notes that this server manages what it wrote into the status.
fn track(core: &Core, entry: &Entry, value: &mut Value) {
    let Some(served) = core.catalog().any("apiextensions.k8s.io", "customresourcedefinitions").cloned() else { return };
    served.as_writer("kube-apiserver", "status", |writer| {
        merge::apply::track_update(Some(&entry.value()), value, writer, served.schema(), core.world.now());
    });
}

fn write(core: &Core, entry: &Entry, mut value: Value) {
    track(core, entry, &mut value);
    let finalizers = value["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    let op = if api::object::is_terminating(&value) && !finalizers {
        Op::Delete { bucket: DEFINITIONS.into(), key: entry.key.clone(), expect: entry.revision }
    } else {
        Op::Put { bucket: DEFINITIONS.into(), key: entry.key.clone(), value, expect: Expect::Revision(entry.revision) }
    };
    // A conflict means that there is a newer definition to look at, for which this is called again.
    if let Err(error) = core.store.submit(Txn::one(op)).wait() {
        tracing::debug!(%error, name = entry.key.name, "a definition was not written");
    }
}

fn is(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|c| c["status"] == "True")
}

fn established(definition: &Value) -> bool {
    is(definition, "Established")
}

/// Names that other definitions of the group hold already: (plural, singular and short names; kind and listKind).
fn taken<'a>(entry: &Entry, all: &'a [(Arc<Entry>, Arc<Value>)]) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut names, mut kinds) = (Vec::new(), Vec::new());
    let group = all.iter().find(|(other, _)| other.key == entry.key).map(|(_, value)| &value["spec"]["group"]);
    for (other, value) in all {
        let accepted = &value["status"]["acceptedNames"];
        if other.key == entry.key || Some(&value["spec"]["group"]) != group {
            continue;
        }
        names.extend([&accepted["plural"], &accepted["singular"]].into_iter().filter_map(Value::as_str));
        names.extend(accepted["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str));
        kinds.extend([&accepted["kind"], &accepted["listKind"]].into_iter().filter_map(Value::as_str));
    }
    names.retain(|name| !name.is_empty());
    kinds.retain(|name| !name.is_empty());
    (names, kinds)
}

fn accept_names(definition: &mut Value, entry: &Entry, all: &[(Arc<Entry>, Arc<Value>)], now: &jiff::Timestamp) {
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    let asked = definition["spec"]["names"].clone();
    let held = definition["status"]["acceptedNames"].clone();
    let (names, kinds) = taken(entry, all);
    let mut accepted = json!({});
    // (reason, message) of the last fault; messages of all
    let mut faults: Vec<(&str, String)> = Vec::new();
    let mut keep = |field: &str, reason: &'static str, fault: Option<String>, accepted: &mut Value| {
        let source = if fault.is_some() { &held } else { &asked };
        match source.get(field) {
            Some(value) => accepted[field] = value.clone(),
            None if matches!(field, "plural" | "kind") => accepted[field] = "".into(),
            None => {}
        }
        faults.extend(fault.map(|message| (reason, message)));
    };
    let clash = |name: &str, taken: &[&str]| taken.contains(&name).then(|| format!("{name:?} is already in use"));
    let text = |field: &str| api::object::text(&asked, field).to_owned();
    keep("plural", "PluralConflict", clash(&text("plural"), &names), &mut accepted);
    keep("singular", "SingularConflict", clash(&text("singular"), &names), &mut accepted);
    let shorts = asked["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let short_faults: Vec<String> = shorts.filter_map(|name| clash(name, &names)).collect();
    let short_fault = match short_faults.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    keep("shortNames", "ShortNamesConflict", short_fault, &mut accepted);
    keep("kind", "KindConflict", clash(&text("kind"), &kinds), &mut accepted);
    keep("listKind", "ListKindConflict", clash(&text("listKind"), &kinds), &mut accepted);
    keep("categories", "", None, &mut accepted);
    let good = faults.is_empty();
    definition["status"]["acceptedNames"] = accepted;
    match faults.pop() {
        None => set_condition(definition, now, "NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => set_condition(definition, now, "NamesAccepted", "False", reason, &message),
    }
    if good {
        set_condition(
            definition,
            now,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        );
    } else if condition(definition, "Established").is_none() {
        set_condition(definition, now, "Established", "False", "NotAccepted", "not all names are accepted");
    }
}

fn terminating(definition: &mut Value, now: &jiff::Timestamp) {
    let finalizers = super::strings(&definition["metadata"]["finalizers"]);
    if finalizers.iter().any(|f| f == CLEANUP) {
        set_condition(
            definition,
            now,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
    }
}

fn drop_finalizer(definition: &mut Value) {
    let mut finalizers = super::strings(&definition["metadata"]["finalizers"]);
    finalizers.retain(|f| f != CLEANUP);
    if let Some(meta) = definition["metadata"].as_object_mut() {
        if finalizers.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".to_owned(), json!(finalizers));
        }
    }
}
