//! Managed fields of an object whose scale is written (`k8s.io/apimachinery/pkg/util/managedfields.ScaleHandler`).
//!
//! The scale is a kind of its own, of which each manager of the object's replicas manages `.spec.replicas`. What its managers
//! are after the write goes back to the object: a manager that has lost the replicas there loses them here.

use super::managed::{self, Entry, Identity, Managed, Operation};
use super::{Conflict, Writer, managed_fields};
use crate::fields::{Element, FieldSet};
use serde_json::Value;

/// What the scale is, as entries of updates name it.
const SCALE: &str = "autoscaling/v1";

/// Records in `new.metadata.managedFields` that `writer` has written the replicas of `live` at `path` (`.spec.replicas`);
/// `changed`: to this other number. `applied`: by an apply. `versions` are those in which the kind has a scale.
pub fn track_scale(
    live: &Value,
    new: &mut Value,
    writer: &Writer<'_>,
    path: &str,
    changed: Option<i64>,
    applied: bool,
    versions: impl Fn(&str) -> bool,
) {
    let path = elements(path);
    let mut replicas = FieldSet::default();
    replicas.insert(&path);
    let before = Managed::decode(managed_fields(live)).unwrap_or_default();
    let owners = || {
        let owners = before.entries.iter().filter(|(_, entry)| entry.fields.has(&path));
        owners.map(|(id, _)| Identity::new(&id.manager, id.operation, SCALE, &id.subresource))
    };
    let tracked = before.entries.iter().any(|(_, entry)| versions(&entry.api_version) && entry.fields.has(&path));
    let mut scalers: Vec<Identity> = match changed {
        // a scale that nobody manages stays so until somebody applies it
        _ if !applied && !tracked => Vec::new(),
        Some(_) if applied => vec![Identity::of(writer, Operation::Apply)],
        None if applied => {
            let own = Identity::of(writer, Operation::Apply);
            owners().filter(|id| *id != own).chain([own.clone()]).collect()
        }
        // a scale does not mention none
        Some(0) => Vec::new(),
        Some(_) => vec![Identity::new(writer.manager, Operation::Update, SCALE, writer.subresource)],
        None => owners().collect(),
    };
    let mut kept: Vec<(Identity, Entry)> = Vec::new();
    for (id, entry) in before.entries {
        if !versions(&entry.api_version) {
            continue;
        }
        if !entry.fields.has(&path) {
            kept.push((id, entry));
        } else if let Some(at) = scalers.iter().position(|scaler| *scaler == id) {
            scalers.remove(at);
            kept.push((id, entry));
        } else {
            let fields = entry.fields.difference(&replicas);
            if !fields.is_empty() {
                kept.push((id, Entry { fields: fields.into(), ..entry }));
            }
        }
    }
    // the scale's own times are lost on the way
    kept.extend(scalers.into_iter().map(|id| {
        (id, Entry { fields: replicas.clone().into(), api_version: writer.api_version.to_owned(), time: None })
    }));
    let list = managed::encode(kept.iter().map(|(id, entry)| (id, entry)));
    if let Some(Value::Object(meta)) = new.get_mut("metadata") {
        if list.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".to_owned(), list.into());
        }
    }
}

/// Who else than `writer` manages the replicas of `live` at `path`, as the scale's managers; `None`: nobody does at all.
/// `versions`: see [`track_scale`].
pub fn scale_managers(
    live: &Value,
    writer: &Writer<'_>,
    path: &str,
    versions: impl Fn(&str) -> bool,
) -> Option<Vec<Conflict>> {
    let path = elements(path);
    let managed = Managed::decode(managed_fields(live)).unwrap_or_default();
    let owners = managed.entries.iter().filter(|(_, entry)| versions(&entry.api_version) && entry.fields.has(&path));
    let owners: Vec<Identity> =
        owners.map(|(id, _)| Identity::new(&id.manager, id.operation, SCALE, &id.subresource)).collect();
    let own = Identity::of(writer, Operation::Apply);
    let conflict = |id: &Identity| id.conflict(&elements(".spec.replicas"));
    (!owners.is_empty()).then(|| owners.iter().filter(|id| **id != own).map(conflict).collect())
}

fn elements(path: &str) -> Vec<Element> {
    path.trim_start_matches('.').split('.').map(|part| Element::Field(part.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::Ignored;
    use serde_json::json;

    fn entry(manager: &str, subresource: &str, time: Option<&str>, fields: Value) -> Value {
        let mut out =
            json!({"manager": manager, "operation": "Update", "apiVersion": "e.g/v1", "fieldsType": "FieldsV1"});
        if !subresource.is_empty() {
            out["subresource"] = subresource.into();
        }
        if let Some(time) = time {
            out["time"] = time.into();
        }
        out["fieldsV1"] = fields;
        out
    }

    /// Somebody who scales.
    const SCALER: Writer<'static> =
        Writer { manager: "me", api_version: "e.g/v1", kind: "W", subresource: "scale", ignored: &Ignored::Nothing };

    fn scaled(changed: Option<i64>) -> Value {
        let then = Some("2026-01-01T00:00:00Z");
        let live = json!({"metadata": {"managedFields": [
            entry("maker", "", then, json!({"f:spec": {"f:color": {}, "f:replicas": {}}})),
            entry("other", "", then, json!({"f:metadata": {}})),
        ]}});
        let mut new = live.clone();
        track_scale(&live, &mut new, &SCALER, ".spec.replicas", changed, false, |version| version == "e.g/v1");
        new["metadata"]["managedFields"].take()
    }

    #[test]
    fn whoever_scales_manages_the_replicas() {
        let then = Some("2026-01-01T00:00:00Z");
        let rest = [
            entry("maker", "", then, json!({"f:spec": {"f:color": {}}})),
            entry("other", "", then, json!({"f:metadata": {}})),
        ];
        let own =
            |manager: &str, subresource: &str| entry(manager, subresource, None, json!({"f:spec": {"f:replicas": {}}}));
        let [color, meta] = rest;
        assert_eq!(scaled(Some(3)), json!([own("me", "scale"), color, meta]));
        assert_eq!(scaled(Some(0)), json!([color, meta]));
        // a number that stays is managed by whom it was, apart from the rest
        assert_eq!(scaled(None), json!([own("maker", ""), color, meta]));
        let unmanaged = json!({"metadata": {"managedFields": [color, meta]}});
        let mut new = unmanaged.clone();
        track_scale(&unmanaged, &mut new, &SCALER, ".spec.replicas", Some(3), false, |version| version == "e.g/v1");
        assert_eq!(new, unmanaged);
    }

    #[test]
    fn an_apply_conflicts_with_those_who_manage_the_replicas() {
        let live = json!({"metadata": {"managedFields": [
            entry("maker", "", None, json!({"f:spec": {"f:replicas": {}}})),
            entry("other", "", None, json!({"f:metadata": {}})),
        ]}});
        let managers = |live: &Value, version: &str| {
            let found = scale_managers(live, &SCALER, ".spec.replicas", |known| known == version);
            found.map(|all| all.into_iter().map(|conflict| conflict.manager).collect::<Vec<_>>())
        };
        assert_eq!(managers(&live, "e.g/v1"), Some(vec!["\"maker\" using autoscaling/v1".to_owned()]));
        // what was written in a version that has no scale does not count
        assert_eq!(managers(&live, "e.g/v2"), None);
        let mut own = live.clone();
        own["metadata"]["managedFields"][0]["operation"] = "Apply".into();
        own["metadata"]["managedFields"][0]["manager"] = "me".into();
        own["metadata"]["managedFields"][0]["subresource"] = "scale".into();
        assert_eq!(managers(&own, "e.g/v1"), Some(Vec::new()));
    }
}
