//! Kubernetes' own types: their schemas, how Go decodes them and what Go writes of them.
//!
//! The facts are in `data/kubernetes-types.json` (made by `xtask kubernetes-types`): type name → fields in Go's order. A
//! field is `j` JSON name, `t` shape (`string`, `int32`, …, a type's name; `[]` and `{}` in front for lists and maps of
//! it), `n` protobuf number, and where so: `p` pointer, `e` always written, `o` left out where all zero, `r` required,
//! `a` atomic map, `d` default, `l` list type (`set` or the map keys), `s` patch strategy, `k` patch merge key, `g` Go's
//! name of a scalar type, `i` inlined (its fields stand in this type in JSON, it is a message of its own in protobuf).
//! A type with `A` is atomic wherever it stands. The file is read once; a schema is built when first asked for.

mod decode;
mod normalize;
mod recursive;

pub use decode::{DecodeError, Order, canonical_time, convert, decode, decode_in};
pub use normalize::{as_internal, normalize, write_out};
pub use recursive::prune_schemas;

use crate::schema::{ListType, PatchStrategy, Schema, Type};
use objects::memo::Memo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, OnceLock};

/// The type of every object's metadata.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    String,
    Boolean,
    Int32,
    Int64,
    Number,
    /// Base64 in JSON, bytes in protobuf.
    Byte,
    Quantity,
    IntOrString,
    /// RFC 3339, whole seconds.
    Time,
    /// RFC 3339, microseconds.
    MicroTime,
    /// Any JSON object (`runtime.RawExtension`).
    Raw,
    /// A field set (`metav1.FieldsV1`).
    Fields,
    /// Any JSON.
    Any,
    /// A CRD's schema, or something else in its place.
    SchemaOr(Other),
    List(Box<Shape>),
    Map(Box<Shape>),
    /// An object of the named type.
    Message(String),
}

/// What may stand in the place of a schema inside of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// A list of schemas (`items`).
    Array,
    /// Whether anything goes (`additionalProperties`).
    Bool,
    /// Names of properties (`dependencies`).
    Strings,
}

/// Go's name of a quantity, which documents call a text.
pub(crate) const QUANTITY: &str = "Quantity";

/// Go's name for what may be any value, which server-side apply takes whole.
pub(crate) const RAW: &str = "RawExtension";

/// The name of the type of a CRD's schema.
pub const JSON_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

impl Shape {
    fn parse(text: &str) -> Self {
        if let Some(rest) = text.strip_prefix("[]") {
            return Self::List(Box::new(Self::parse(rest)));
        }
        if let Some(rest) = text.strip_prefix("{}") {
            return Self::Map(Box::new(Self::parse(rest)));
        }
        match text {
            "string" => Self::String,
            "boolean" => Self::Boolean,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "number" => Self::Number,
            "byte" => Self::Byte,
            "quantity" => Self::Quantity,
            "intorstring" => Self::IntOrString,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "raw" => Self::Raw,
            "fields" => Self::Fields,
            "any" => Self::Any,
            "schemaorarray" => Self::SchemaOr(Other::Array),
            "schemaorbool" => Self::SchemaOr(Other::Bool),
            "schemaorstrings" => Self::SchemaOr(Other::Strings),
            name => Self::Message(name.to_owned()),
        }
    }
}

/// A field of a type.
#[derive(Clone, Debug)]
pub struct Field {
    /// JSON name; empty where inlined.
    pub name: String,
    pub shape: Shape,
    /// Protobuf number; `None`: not on that wire.
    pub number: Option<u32>,
    pub pointer: bool,
    /// Written even where empty.
    pub always: bool,
    /// A struct that is left out where it is all zero.
    pub omit_zero: bool,
    pub required: bool,
    pub atomic: bool,
    /// Owned by its parts, though its type is owned as a whole elsewhere.
    pub granular: bool,
    pub inline: bool,
    pub default: Option<Value>,
    pub list: ListType,
    pub patch: PatchStrategy,
    /// Go's name of the scalar type, as its decoding errors show it.
    pub go: Option<String>,
}

/// All about one type.
#[derive(Clone, Debug, Default)]
pub struct TypeFacts {
    pub fields: Vec<Field>,
    /// See [`fields`]; worked out when they are first asked for.
    shown: OnceLock<Vec<&'static Field>>,
    /// Server-side apply treats it as one value.
    pub atomic: bool,
}

/// The whole table.
pub fn table() -> &'static BTreeMap<String, TypeFacts> {
    static TABLE: OnceLock<BTreeMap<String, TypeFacts>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let raw: BTreeMap<String, Vec<Value>> = serde_json::from_str(include_str!("../data/kubernetes-types.json"))
            .expect("invariant: the committed table is JSON of this form");
        raw.into_iter().map(|(name, rows)| (name, type_facts(&rows))).collect()
    })
}

fn type_facts(rows: &[Value]) -> TypeFacts {
    let mut facts = TypeFacts::default();
    for row in rows {
        if row.get("A").is_some() {
            facts.atomic = true;
            continue;
        }
        let has = |key: &str| row.get(key).is_some();
        let text = |key: &str| row.get(key).and_then(Value::as_str);
        let list = match row.get("l") {
            Some(Value::Array(keys)) => {
                ListType::Map(keys.iter().filter_map(|k| k.as_str().map(str::to_owned)).collect())
            }
            Some(_) => ListType::Set,
            None => ListType::Atomic,
        };
        let strategies: Vec<&str> = text("s").unwrap_or_default().split(',').collect();
        facts.fields.push(Field {
            name: text("j").unwrap_or_default().to_owned(),
            shape: Shape::parse(text("t").unwrap_or("any")),
            number: row.get("n").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
            pointer: has("p"),
            always: has("e"),
            omit_zero: has("o"),
            required: has("r"),
            atomic: has("a"),
            granular: has("G"),
            inline: has("i"),
            default: row.get("d").cloned(),
            list,
            patch: PatchStrategy {
                merge: strategies.contains(&"merge"),
                merge_key: text("k").map(str::to_owned),
                retain_keys: strategies.contains(&"retainKeys"),
                replace: strategies.contains(&"replace"),
            },
            go: text("g").map(str::to_owned),
        });
    }
    facts
}

/// The facts about a type, where the table has it.
pub fn facts(name: &str) -> Option<&'static TypeFacts> {
    #[expect(clippy::disallowed_types, reason = "each write looks up hundreds of types; nobody goes through it")]
    type Index = std::collections::HashMap<&'static str, &'static TypeFacts, BuildHasherDefault<DefaultHasher>>;
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| table().iter().map(|(name, facts)| (name.as_str(), facts)).collect()).get(name).copied()
}

/// Whether the table has kinds of that `apiVersion` of Kubernetes, but not this one.
fn lacks(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    let prefix = format!("io.k8s.api.{package}.{version}.");
    let known = table().keys().any(|name| name.starts_with(prefix.as_str()));
    // a list of a kind is one, and so is one of anything
    let single = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
    let is_kind = |kind: &str| facts(&format!("{prefix}{kind}")).is_some();
    known && !is_kind(kind) && !single.is_some_and(is_kind) && (kind, api_version) != ("List", "v1")
}

/// Whether upstream's registry of types, as the server of `group` has it, knows a kind. The server of definitions has a
/// registry of its own, with both their versions.
pub fn is_registered(group: &str, api_version: &str, kind: &str) -> bool {
    if group == "apiextensions.k8s.io" {
        let of_group = matches!(api_version, "apiextensions.k8s.io/v1" | "apiextensions.k8s.io/v1beta1");
        return of_group && matches!(kind, "CustomResourceDefinition" | "CustomResourceDefinitionList");
    }
    // versions that nobody serves any more, but still reads
    const OLD: [(&str, &[&str]); 3] = [
        (
            "extensions/v1beta1",
            &["Deployment", "DeploymentRollback", "Scale", "DaemonSet", "Ingress", "ReplicaSet", "NetworkPolicy"],
        ),
        ("apps/v1beta1", &["Deployment", "DeploymentRollback", "Scale", "StatefulSet", "ControllerRevision"]),
        ("apps/v1beta2", &["Deployment", "Scale", "StatefulSet", "DaemonSet", "ReplicaSet", "ControllerRevision"]),
    ];
    if let Some((_, kinds)) = OLD.iter().find(|(version, _)| *version == api_version) {
        let single = kind.strip_suffix("List").unwrap_or(kind);
        return kinds.contains(&kind)
            || (kinds.contains(&single) && !["DeploymentRollback", "Scale"].contains(&single));
    }
    !lacks(api_version, kind) && knows(api_version)
}

/// Whether the table has any kind of that `apiVersion`.
fn knows(api_version: &str) -> bool {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    let prefix = format!("io.k8s.api.{package}.{version}.");
    table().keys().any(|name| name.starts_with(prefix.as_str()))
}

/// The fields of a type as JSON shows them: those of inlined types in place.
pub fn fields(name: &str) -> &'static [&'static Field] {
    let Some(facts) = facts(name) else { return &[] };
    facts.shown.get_or_init(|| {
        let mut out = Vec::with_capacity(facts.fields.len());
        for field in &facts.fields {
            match &field.shape {
                Shape::Message(inner) if field.inline => out.extend(fields(inner)),
                _ => out.push(field),
            }
        }
        out
    })
}

/// The schema of a type, which must be in the table.
///
/// # Panics
/// Where the table does not have the type: names are constants of our own code.
pub fn schema(name: &str) -> Arc<Schema> {
    find(name).unwrap_or_else(|| panic!("invariant: the table of Kubernetes' types has {name}"))
}

/// The schema of a type, where the table has it. Built once. Types that contain themselves preserve what is below.
pub fn find(name: &str) -> Option<Arc<Schema>> {
    static BUILT: Memo<Arc<Schema>> = Memo::new(usize::MAX);
    if let Some(schema) = BUILT.recall(name) {
        return Some(schema);
    }
    let mut done = BTreeMap::new();
    let schema = message_schema(name, &mut Vec::new(), &mut done)?;
    BUILT.keep(name, schema.clone());
    Some(schema)
}

fn preserve() -> Arc<Schema> {
    Arc::new(Schema { preserve_unknown: true, ..<Schema as Default>::default() })
}

fn message_schema(name: &str, open: &mut Vec<String>, done: &mut BTreeMap<String, Arc<Schema>>) -> Option<Arc<Schema>> {
    if let Some(schema) = done.get(name) {
        return Some(schema.clone());
    }
    if open.iter().any(|o| o == name) {
        return Some(preserve());
    }
    let facts = facts(name)?;
    open.push(name.to_owned());
    let go = table().get_key_value(name).and_then(|(name, _)| name.rsplit('.').next());
    let mut schema = Schema { kind: Type::Object, atomic_map: facts.atomic, go, ..<Schema as Default>::default() };
    for field in fields(name) {
        let shared = shape_schema(&field.shape, open, done);
        let mut node = (*shared).clone();
        let changed = field.atomic
            || field.granular
            || field.default.is_some()
            || field.list != ListType::Atomic
            || field.patch != PatchStrategy::default();
        let node = if changed {
            node.atomic_map = field.atomic || (node.atomic_map && !field.granular);
            node.default.clone_from(&field.default);
            node.list_type = field.list.clone();
            node.patch = field.patch.clone();
            if let (ListType::Map(keys), Shape::List(items)) = (&field.list, &field.shape) {
                node.items = node.items.map(|item| with_key_defaults(&item, keys, items));
            }
            Arc::new(node)
        } else {
            shared
        };
        schema.properties.insert(field.name.clone(), node);
        if field.required {
            schema.required.push(field.name.clone());
        }
    }
    open.pop();
    let schema = Arc::new(schema);
    done.insert(name.to_owned(), schema.clone());
    Some(schema)
}

/// A default that a marker in Go's source states; the table leaves empty ones out.
const EMPTY_DEFAULT: (&str, &str) = ("io.k8s.api.core.v1.LocalObjectReference", "name");

/// The schema of an associative list's elements: keys that Go always writes are empty rather than absent, so that an
/// element without them still has a place.
fn with_key_defaults(item: &Arc<Schema>, keys: &[String], shape: &Shape) -> Arc<Schema> {
    let Shape::Message(name) = shape else { return item.clone() };
    let mut item = (**item).clone();
    for field in fields(name) {
        let stated = EMPTY_DEFAULT == (name.as_str(), field.name.as_str());
        if !keys.contains(&field.name) || !(field.always || stated) || field.pointer || field.default.is_some() {
            continue;
        }
        if let Some(property) = item.properties.get_mut(&field.name) {
            let mut own = (**property).clone();
            own.default = Some(zero(&field.shape));
            *property = Arc::new(own);
        }
    }
    Arc::new(item)
}

fn shape_schema(shape: &Shape, open: &mut Vec<String>, done: &mut BTreeMap<String, Arc<Schema>>) -> Arc<Schema> {
    let scalar = |kind: Type, format: &str| {
        let format = (!format.is_empty()).then(|| format.to_owned());
        Arc::new(Schema { kind, format, ..<Schema as Default>::default() })
    };
    match shape {
        Shape::String => scalar(Type::String, ""),
        Shape::Boolean => scalar(Type::Boolean, ""),
        Shape::Int32 => scalar(Type::Integer, "int32"),
        Shape::Int64 => scalar(Type::Integer, "int64"),
        Shape::Number => scalar(Type::Number, "double"),
        Shape::Byte => scalar(Type::String, "byte"),
        Shape::Quantity => {
            Arc::new(Schema { kind: Type::IntOrString, go: Some(QUANTITY), ..<Schema as Default>::default() })
        }
        Shape::IntOrString => scalar(Type::IntOrString, ""),
        Shape::Time | Shape::MicroTime => scalar(Type::String, "date-time"),
        // what is raw is one value to managers that share an object
        Shape::Raw | Shape::Fields => Arc::new(Schema {
            kind: Type::Object,
            preserve_unknown: true,
            atomic_map: true,
            go: (*shape == Shape::Raw).then_some(RAW),
            ..<Schema as Default>::default()
        }),
        Shape::Any | Shape::SchemaOr(_) => preserve(),
        Shape::List(items) => Arc::new(Schema {
            kind: Type::Array,
            items: Some(shape_schema(items, open, done)),
            ..<Schema as Default>::default()
        }),
        Shape::Map(values) => Arc::new(Schema {
            kind: Type::Object,
            additional: Some(shape_schema(values, open, done)),
            ..<Schema as Default>::default()
        }),
        Shape::Message(name) => message_schema(name, open, done).unwrap_or_else(preserve),
    }
}

/// Go's zero value of a shape, as JSON shows it.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Byte => json!(""),
        Shape::Boolean => json!(false),
        Shape::Int32 | Shape::Int64 | Shape::Number | Shape::IntOrString => json!(0),
        Shape::Quantity => json!("0"),
        Shape::Message(_) => json!({}),
        Shape::Time
        | Shape::MicroTime
        | Shape::Raw
        | Shape::Fields
        | Shape::Any
        | Shape::SchemaOr(_)
        | Shape::List(_)
        | Shape::Map(_) => Value::Null,
    }
}

/// Go package of a group's types, as their OpenAPI names have it.
fn package(group: &str) -> &str {
    match group {
        "" => "io.k8s.api.core.v1",
        "apps" => "io.k8s.api.apps.v1",
        "autoscaling" => "io.k8s.api.autoscaling.v1",
        "batch" => "io.k8s.api.batch.v1",
        "events.k8s.io" => "io.k8s.api.events.v1",
        "coordination.k8s.io" => "io.k8s.api.coordination.v1",
        "authorization.k8s.io" => "io.k8s.api.authorization.v1",
        "authentication.k8s.io" => "io.k8s.api.authentication.v1",
        "rbac.authorization.k8s.io" => "io.k8s.api.rbac.v1",
        "scheduling.k8s.io" => "io.k8s.api.scheduling.v1",
        "node.k8s.io" => "io.k8s.api.node.v1",
        "policy" => "io.k8s.api.policy.v1",
        "networking.k8s.io" => "io.k8s.api.networking.v1",
        "storage.k8s.io" => "io.k8s.api.storage.v1",
        "discovery.k8s.io" => "io.k8s.api.discovery.v1",
        "certificates.k8s.io" => "io.k8s.api.certificates.v1",
        "admissionregistration.k8s.io" => "io.k8s.api.admissionregistration.v1",
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        other => other,
    }
}

/// The name of a group's kind in the table of types.
pub fn type_name(group: &str, kind: &str) -> Option<&'static str> {
    let name = format!("{}.{kind}", package(group));
    table().get_key_value(name.as_str()).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "io.k8s.api.core.v1.Pod";

    #[test]
    fn schemas_know_lists_and_patches() {
        let pod = schema(POD);
        let containers = &pod.properties["spec"].properties["containers"];
        assert_eq!(containers.list_type, ListType::Map(vec!["name".to_owned()]));
        assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
        let item = containers.items.as_ref().expect("items");
        assert_eq!(
            item.properties["ports"].items.as_ref().expect("items").properties["protocol"].default,
            Some(json!("TCP"))
        );
        let volumes = &pod.properties["spec"].properties["volumes"];
        assert!(volumes.patch.retain_keys);
        assert!(
            volumes.items.as_ref().expect("items").properties.contains_key("configMap"),
            "inlined fields stand in place"
        );
        assert!(find("io.k8s.api.core.v1.Nothing").is_none());
    }

    #[test]
    fn every_type_has_a_schema() {
        for name in table().keys() {
            assert!(find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn decoding_errors_are_gos() {
        let decode_pod = |value: Value| decode(POD, &mut { value }).unwrap_err().to_string();
        assert_eq!(
            decode_pod(json!({"spec": {"containers": "x"}})),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"
        );
        assert_eq!(
            decode_pod(json!({"metadata": {"name": 1}})),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"
        );
        assert_eq!(
            decode_pod(json!({"metadata": {"labels": {"a": 1}}})),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
        );
        assert_eq!(
            decode_pod(json!({"metadata": []})),
            "json: cannot unmarshal array into Go struct field Pod.metadata of type v1.ObjectMeta"
        );
    }

    #[test]
    fn conversion_errors_name_gos_types() {
        let fault = |name: &str, value: Value| convert(name, &mut { value }).unwrap_err().to_string();
        assert_eq!(fault(POD, json!({"spec": {"restartPolicy": 1}})), "cannot convert int64 to v1.RestartPolicy");
        assert_eq!(fault(POD, json!({"spec": {"nodeName": 1}})), "cannot convert int64 to string");
        assert_eq!(fault(POD, json!({"spec": {"restartPolicy": true}})), "unrecognized type: string");
        let claim = json!({"spec": {"accessModes": ["ReadWriteOnce", 1]}});
        let why = "cannot convert int64 to v1.PersistentVolumeAccessMode";
        assert_eq!(fault("io.k8s.api.core.v1.PersistentVolumeClaim", claim), why);
    }

    #[test]
    fn reads_and_writes_as_go_does() {
        let mut pod = json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null}, "spec": {
            "hostNetwork": false, "nodeSelector": null,
            "containers": [{"name": "c", "stdin": false, "env": [], "resources": {"limits": {"cpu": 2.0, "memory": "1024Mi"}},
                "securityContext": {"privileged": false}}]}});
        decode(POD, &mut pod).unwrap();
        normalize(POD, &mut pod);
        assert_eq!(
            pod,
            json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c",
                "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "securityContext": {"privileged": false}}]},
                "status": {}})
        );
        let mut event = json!({"involvedObject": {}, "firstTimestamp": "2024-01-02T03:04:05.6+01:00"});
        decode("io.k8s.api.core.v1.Event", &mut event).unwrap();
        normalize("io.k8s.api.core.v1.Event", &mut event);
        assert_eq!(event["firstTimestamp"], "2024-01-02T02:04:05Z");
        assert_eq!(event["eventTime"], Value::Null);
        assert_eq!(event["reportingComponent"], "");
    }
}
