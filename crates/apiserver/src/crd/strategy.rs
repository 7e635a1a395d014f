//! The strategy of custom resources: how their schemas default, prune and validate objects.

use api::field::{Error, ErrorList, Path};
use merge::apply::Ignored;
use resource::{Context, Facts, Strategy};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

pub(crate) struct CustomStrategy {
    pub(crate) has_status: bool,
    /// `subresources.scale` of the version.
    pub(crate) scale: Option<Value>,
}

/// Why a path of a scale subresource leads to nothing that it may lead to, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} accessor error: {shown} is of the type {kind}, expected {wanted}")]
struct Misread {
    path: String,
    shown: String,
    kind: &'static str,
    wanted: &'static str,
}

/// What the path of a scale subresource leads to, as Go reads it: the value, or why there is none.
fn reach<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, Misread> {
    let mut at = object;
    let mut walked = String::new();
    for member in path.trim_start_matches('.').split('.') {
        walked = format!("{walked}.{member}");
        match at {
            Value::Null => return Ok(None),
            Value::Object(members) => match members.get(member) {
                Some(value) => at = value,
                None => return Ok(None),
            },
            other => return Err(misread(&walked, other, "map[string]interface{}")),
        }
    }
    Ok(Some(at))
}

fn misread(path: &str, value: &Value, wanted: &'static str) -> Misread {
    let (shown, kind) = (merge::gotext::plain(value), merge::gotext::type_name(value));
    Misread { path: path.to_owned(), shown, kind, wanted }
}

/// What is wrong with a number of replicas.
fn replicas(object: &Value, path: &str, errors: &mut ErrorList) {
    let place = Path::new(path);
    let number = match reach(object, path) {
        Err(why) => return errors.push(Error::invalid(&place, 0, why.to_string())),
        Ok(None) => return,
        Ok(Some(value)) => match value.as_i64() {
            Some(number) => number,
            None => {
                let path = format!(".{}", path.trim_start_matches('.'));
                return errors.push(Error::invalid(&place, 0, misread(&path, value, "int64").to_string()));
            }
        },
    };
    if number < 0 {
        errors.push(Error::invalid(&place, number, "should be a non-negative integer"));
    }
    if number > i64::from(i32::MAX) {
        errors.push(Error::invalid(&place, number, format!("should be less than or equal to {}", i32::MAX)));
    }
}

fn finalizers(object: &Value) -> BTreeSet<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a new finalizer of a custom resource is warned of; those of built-in kinds are refused for it.
fn finalizer_faults(name: &str) -> Vec<String> {
    let mut faults = api::names::qualified_name_faults(name);
    if !name.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(&name) {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        faults.push(format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    faults.into_iter().map(|fault| format!("metadata.finalizers: {name:?}: {fault}")).collect()
}

impl CustomStrategy {
    fn path(&self, field: &str) -> &str {
        self.scale.as_ref().map_or("", |scale| api::object::text(scale, field))
    }

    fn scale_spec(&self, object: &Value, errors: &mut ErrorList) {
        if self.scale.is_some() {
            replicas(object, self.path("specReplicasPath"), errors);
        }
    }

    fn scale_status(&self, object: &Value, errors: &mut ErrorList) {
        if self.scale.is_none() {
            return;
        }
        replicas(object, self.path("statusReplicasPath"), errors);
        let path = self.path("labelSelectorPath");
        if path.is_empty() {
            return;
        }
        let why = match reach(object, path) {
            Ok(None | Some(Value::String(_))) => return,
            Ok(Some(other)) => misread(&format!(".{}", path.trim_start_matches('.')), other, "string"),
            Err(why) => why,
        };
        errors.push(Error::invalid(&Path::new(path), "", why.to_string()));
    }
}

fn without<'a>(object: &'a Value, skipped: &'a [&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.as_object().into_iter().flatten().filter(move |(key, _)| !skipped.contains(&key.as_str()))
}

fn set(map: &mut Map<String, Value>, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

impl Strategy for CustomStrategy {
    fn facts(&self) -> Facts {
        Facts { unconditional_update: false, ..Facts::default() }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        if self.has_status
            && let Some(map) = new.as_object_mut()
        {
            map.remove("status");
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        self.scale_spec(new, &mut errors);
        self.scale_status(new, &mut errors);
        errors
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(cx, new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let had = old.map(finalizers).unwrap_or_default();
        finalizers(new).difference(&had).flat_map(|name| finalizer_faults(name)).collect()
    }

    fn validate_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        match subresource {
            "status" => self.scale_status(new, &mut errors),
            "scale" => self.scale_spec(new, &mut errors),
            _ => {}
        }
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        if self.has_status
            && let Some(map) = new.as_object_mut()
        {
            set(map, "status", old.get("status"));
        }
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &mut Value, old: &Value) {
        if subresource != "status" {
            return;
        }
        // Only the status is taken, and its managed fields.
        let mut result = old.clone();
        if let Some(map) = result.as_object_mut() {
            set(map, "status", new.get("status"));
            if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                set(meta, "managedFields", new["metadata"].get("managedFields"));
            }
        }
        *new = result;
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        let skipped: &[&str] = if self.has_status { &["metadata", "status"] } else { &["metadata"] };
        !without(new, skipped).eq(without(old, skipped))
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match (self.has_status, subresource) {
            (true, "") => Ignored::paths(&["status"]),
            (true, "status") => Ignored::all_but(&["status"]),
            _ => Ignored::Nothing,
        }
    }
}
