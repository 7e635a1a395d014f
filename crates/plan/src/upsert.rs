//! Putting variables, ports, volumes and mounts into lists of a pod template: replace in place or append.
//!
//! Every list stays unique by the key that server-side apply of a JobSet merges it by.
//! Source: upstream's `pkg/apply/apply.go`.

use serde_json::{Map, Value, json};

/// Puts a core/v1 EnvVar where one of its name stands, else at the end.
pub fn env(list: &mut Vec<Value>, variable: Value) {
    upsert(list, variable, |a, b| a.get("name") == b.get("name"));
}

/// A literal variable.
pub fn env_value(list: &mut Vec<Value>, name: &str, value: impl Into<String>) {
    env(list, json!({"name": name, "value": value.into()}));
}

/// A variable out of the pod's own fields.
pub fn env_field(list: &mut Vec<Value>, name: &str, field_path: &str) {
    env(list, json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}));
}

/// The variables of a TrainJob's section, put in one after the other.
pub fn env_all(list: &mut Vec<Value>, variables: &[Value]) {
    for variable in variables {
        env(list, from_job(variable));
    }
}

/// Puts a core/v1 Volume where one of its name stands, else at the end.
pub fn volume(list: &mut Vec<Value>, volume: Value) {
    upsert(list, volume, |a, b| a.get("name") == b.get("name"));
}

/// Puts a core/v1 VolumeMount where one of its path stands, else at the end.
pub fn mount(list: &mut Vec<Value>, mount: Value) {
    upsert(list, mount, |a, b| a.get("mountPath") == b.get("mountPath"));
}

/// Puts a core/v1 ContainerPort where one of its number and protocol (TCP by default), or of its name, stands, else at
/// the end.
// Q-11 (fixed): upstream also takes any two unnamed ports for the same, so that a runtime's unnamed port is lost.
pub fn port(list: &mut Vec<Value>, port: Value) {
    upsert(list, port, |a, b| {
        let protocol = |p: &Value| p.get("protocol").and_then(Value::as_str).unwrap_or("TCP").to_owned();
        (a.get("containerPort") == b.get("containerPort") && protocol(a) == protocol(b))
            || (a.get("name").is_some() && a.get("name") == b.get("name"))
    });
}

fn upsert(list: &mut Vec<Value>, item: Value, same: impl Fn(&Value, &Value) -> bool) {
    match list.iter().position(|old| same(old, &item)) {
        Some(at) => list[at] = item,
        None => list.push(item),
    }
}

/// A variable of a TrainJob as it goes into a pod: with a source, no value; without one, a value even if empty.
// Q-17 (fixed): upstream knows no `fileKeyRef` and leaves an empty `valueFrom`; all sources are passed on here.
fn from_job(variable: &Value) -> Value {
    let name = variable.get("name").cloned().unwrap_or_default();
    match variable.get("valueFrom") {
        Some(Value::Object(sources)) => {
            let sources: Map<String, Value> = sources.iter().map(|(k, v)| (k.clone(), source(k, v))).collect();
            json!({"name": name, "valueFrom": sources})
        }
        _ => json!({"name": name, "value": variable.get("value").and_then(Value::as_str).unwrap_or_default()}),
    }
}

/// Sources as upstream passes them on: `fieldRef` without its version, `resourceFieldRef` complete.
fn source(kind: &str, value: &Value) -> Value {
    let mut value = value.clone();
    let Some(members) = value.as_object_mut() else { return value };
    match kind {
        "fieldRef" => {
            members.remove("apiVersion");
        }
        "resourceFieldRef" => {
            members.entry("containerName").or_insert_with(|| json!(""));
            let divisor = members.entry("divisor").or_insert_with(|| json!("0"));
            crate::resources::canonical(divisor);
        }
        "configMapKeyRef" | "secretKeyRef" => {
            members.entry("name").or_insert_with(|| json!(""));
        }
        _ => {}
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_in_place_or_appends() {
        let mut list = vec![json!({"name": "A", "value": "1"}), json!({"name": "B", "value": "2"})];
        env_value(&mut list, "A", "9");
        env_value(&mut list, "C", "3");
        let names: Vec<_> = list.iter().map(|e| (e["name"].clone(), e["value"].clone())).collect();
        assert_eq!(names, [(json!("A"), json!("9")), (json!("B"), json!("2")), (json!("C"), json!("3"))]);
    }

    #[test]
    fn unnamed_ports_are_told_apart() {
        let mut list =
            vec![json!({"containerPort": 8080, "protocol": "TCP"}), json!({"containerPort": 53, "protocol": "UDP"})];
        port(&mut list, json!({"containerPort": 29500}));
        port(&mut list, json!({"containerPort": 53}));
        assert_eq!(list.len(), 4);
        port(&mut list, json!({"containerPort": 8080, "name": "web"}));
        port(&mut list, json!({"containerPort": 9090, "name": "web"}));
        assert_eq!(list.len(), 4);
        assert_eq!(list[0], json!({"containerPort": 9090, "name": "web"}));
    }

    #[test]
    fn variables_of_a_trainjob_lose_no_source() {
        let mut list = Vec::new();
        env_all(
            &mut list,
            &[
                json!({"name": "EMPTY"}),
                json!({"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}}),
                json!({"name": "K", "valueFrom": {"fileKeyRef": {"path": "p", "key": "k", "volumeName": "v"}}}),
            ],
        );
        assert_eq!(list[0], json!({"name": "EMPTY", "value": ""}));
        assert_eq!(list[1]["valueFrom"], json!({"fieldRef": {"fieldPath": "metadata.name"}}));
        assert_eq!(list[2]["valueFrom"]["fileKeyRef"]["key"], "k");
    }
}
