//! What OpenAPI documents say in words, where no schema of a custom kind does: metadata, what all objects have, parameters.

use serde_json::{Map, Value};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Fields of `ObjectMeta`.
const OBJECT_META: [(&str, &str); 15] = [
    ("annotations", "Notes of people and tools, by key. Nothing selects objects by them."),
    ("creationTimestamp", "When the server created the object. Read-only."),
    ("deletionGracePeriodSeconds", "Seconds between the request to delete the object and its removal. Read-only."),
    ("deletionTimestamp", "When the object will be removed; set when its deletion is requested. Read-only."),
    (
        "finalizers",
        "Who must act before the object is removed. Each removes its own entry; the object stays until none is left.",
    ),
    ("generateName", "Start of a generated name, for an object that is created without a name."),
    ("generation", "Counts changes of the wanted state. Read-only."),
    ("labels", "Keys and values by which selectors find the object."),
    ("managedFields", "Which client last set which fields. The server keeps this for server-side apply."),
    ("name", "Name of the object, unique among objects of its kind in a namespace. It cannot change."),
    ("namespace", "Namespace of the object; empty for kinds of the whole cluster. It cannot change."),
    ("ownerReferences", "Objects that this one belongs to. It is deleted when all of them are gone."),
    ("resourceVersion", "Version of the stored object. An update with an older version is refused."),
    ("selfLink", "No longer set."),
    ("uid", "Identity of the object. An object created again under the same name gets another one. Read-only."),
];

/// Fields of an owner reference.
const OWNER: [(&str, &str); 6] = [
    ("apiVersion", "Group and version of the owner."),
    ("blockOwnerDeletion", "Whether an owner that is deleted in the foreground waits for this object."),
    ("controller", "Whether the owner manages this object. One owner at most does."),
    ("kind", "Kind of the owner."),
    ("name", "Name of the owner."),
    ("uid", "Identity of the owner."),
];

/// Fields of `ListMeta`.
const LIST_META: [(&str, &str); 4] = [
    ("continue", "Where the next page of the list begins; empty on the last page."),
    ("remainingItemCount", "How many objects come after this page, if the server knows."),
    ("resourceVersion", "Version of the list: a watch from here on misses nothing."),
    ("selfLink", "No longer set."),
];

/// Fields that objects of all kinds have.
const OBJECT: [(&str, &str); 3] = [
    ("apiVersion", "Group and version in which the object is written."),
    ("kind", "Kind of the object."),
    ("metadata", "Name, labels and other data about the object itself."),
];

/// Fields that objects of most built-in kinds have. A definition describes its own.
const BUILT_IN: [(&str, &str); 2] = [("spec", "Wanted state."), ("status", "Observed state. Controllers write it.")];

const PARAMETERS: [(&str, &str); 36] = [
    ("allowWatchBookmarks", "Whether a watch may send bookmarks: events that carry a version and no change."),
    ("command", "Program to run in the container, with its arguments; given once for each of them."),
    ("container", "Container of the pod. Default: its only one."),
    ("continue", "The next page of a list: the value that the page before returned."),
    ("dryRun", "All: check the request and answer it, and store nothing."),
    ("fieldManager", "Name under which the changed fields are managed."),
    ("fieldSelector", "Only objects whose fields match."),
    ("fieldValidation", "What unknown and repeated fields cause: Ignore, Warn (default) or Strict."),
    ("follow", "Whether to keep the answer open and send new lines."),
    ("force", "Whether an apply takes fields over from other managers."),
    ("gracePeriodSeconds", "Seconds that the object has to end. Default: its own setting."),
    ("insecureSkipTLSVerifyBackend", "Whether the certificate of the node is not checked."),
    ("labelSelector", "Only objects whose labels match."),
    ("limit", "Most objects of a page."),
    ("limitBytes", "Most bytes of the log."),
    ("name", "Name of the object."),
    ("namespace", "Namespace of the object."),
    ("orphanDependents", "Older form of propagationPolicy: whether dependents stay."),
    ("path", "Path at the pod."),
    ("ports", "Ports of the pod to forward."),
    ("pretty", "Whether the answer is indented for people."),
    ("previous", "Whether to read the log of the container's previous run."),
    ("propagationPolicy", "How dependents are deleted: Orphan, Background or Foreground."),
    ("resourceVersion", "Version that the answer must have reached; of a watch, where it begins."),
    ("resourceVersionMatch", "How a list reads resourceVersion: Exact or NotOlderThan."),
    ("sendInitialEvents", "Whether a watch begins with all existing objects."),
    ("sinceSeconds", "Only lines that are at most this many seconds old."),
    ("stderr", "Whether the error output is connected."),
    ("stdin", "Whether the input is connected."),
    ("stdout", "Whether the output is connected."),
    ("stream", "Which output of the container: All (default), Stdout or Stderr."),
    ("tailLines", "Only this many lines at the end of the log."),
    ("timeoutSeconds", "Seconds after which a list or watch ends."),
    ("timestamps", "Whether each line of the log begins with its time."),
    ("tty", "Whether the process gets a terminal."),
    ("watch", "Whether to send changes as they come, in place of a list."),
];

/// What a parameter means. Those of all requests share one meaning for a name.
pub(super) fn of_parameter(name: &str) -> &'static str {
    PARAMETERS.iter().find(|(other, _)| *other == name).map_or("", |(_, text)| text)
}

/// Adds words to the types that all kinds share, and to the root of each kind.
pub(super) fn add(schemas: &mut Map<String, Value>) {
    for (name, texts) in [("ObjectMeta", &OBJECT_META[..]), ("OwnerReference", &OWNER), ("ListMeta", &LIST_META)] {
        if let Some(schema) = schemas.get_mut(&format!("{META}.{name}")) {
            describe(schema, texts);
        }
    }
    if let Some(meta) = schemas.get_mut(&format!("{META}.ObjectMeta")) {
        describe(&mut meta["properties"]["ownerReferences"]["items"], &OWNER);
    }
    let is_root = |schema: &Value| schema.get("x-kubernetes-group-version-kind").is_some();
    for (name, schema) in schemas.iter_mut().filter(|(_, schema)| is_root(schema)) {
        describe(schema, &OBJECT);
        if name.starts_with("io.k8s.") {
            describe(schema, &BUILT_IN);
        }
    }
}

/// Adds words to fields that have none.
fn describe(schema: &mut Value, texts: &[(&str, &str)]) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, text) in texts {
        if let Some(field) = properties.get_mut(*name).and_then(Value::as_object_mut) {
            field.entry("description").or_insert_with(|| (*text).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_get_words_where_they_have_none() {
        let mut schemas = Map::new();
        let text = || json!({"type": "string"});
        let own = json!({"type": "object", "description": "mine"});
        let root = |spec: Value| json!({"x-kubernetes-group-version-kind": [], "properties": {"kind": text(), "spec": spec, "other": text()}});
        for (name, spec) in [("a.K", own), ("a.L", text()), ("io.k8s.M", text())] {
            schemas.insert(name.to_owned(), root(spec));
        }
        schemas.insert("a.Part".to_owned(), json!({"properties": {"kind": text()}}));
        schemas.insert(format!("{META}.ObjectMeta"), crate::openapi::object_meta());
        add(&mut schemas);
        let of = |schema: &str, field: &str| schemas[schema]["properties"][field]["description"].clone();
        assert_eq!(of("a.K", "kind"), "Kind of the object.");
        assert_eq!(of("a.K", "spec"), "mine");
        assert_eq!(
            [of("a.K", "other"), of("a.L", "spec"), of("a.Part", "kind")],
            [Value::Null, Value::Null, Value::Null]
        );
        assert_eq!(of("io.k8s.M", "spec"), "Wanted state.");
        let meta = format!("{META}.ObjectMeta");
        let fields = schemas[&meta]["properties"].as_object().unwrap();
        for (name, field) in fields {
            assert!(field["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}: {field}");
        }
        assert_eq!(fields.len(), OBJECT_META.len());
        let owner = &fields["ownerReferences"]["items"]["properties"];
        assert!(owner.as_object().unwrap().values().all(|field| field["description"].is_string()), "{owner}");
    }
}
