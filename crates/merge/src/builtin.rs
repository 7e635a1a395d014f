//! Kubernetes' own types: their schemas, how Go decodes them and what Go writes of them.
//!
//! The facts are in `data/kubernetes-types.json` (made by `xtask kubernetes-types`): type name → fields in Go's order. A
//! field is `j` JSON name, `t` shape (`string`, `int32`, …, a type's name; `[]` and `{}` in front for lists and maps of
//! it), `n` protobuf number, and where so: `p` pointer, `e` always written, `o` left out where all zero, `r` required,
//! `a` atomic map, `d` default, `l` list type (`set` or the map keys), `s` patch strategy, `k` patch merge key, `g` Go's
//! name of a scalar type, `i` inlined (its fields stand in this type in JSON, it is a message of its own in protobuf).
//! A type with `A` is atomic wherever it stands. The file is read once; a schema is built when first asked for.

use crate::schema::{ListType, PatchStrategy, Schema, Type};
use api::quantity;
use base64::Engine;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

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
            inline: has("i"),
            default: row.get("d").cloned(),
            list,
            patch: PatchStrategy {
                merge: strategies.contains(&"merge"),
                merge_key: text("k").map(str::to_owned),
                retain_keys: strategies.contains(&"retainKeys"),
            },
            go: text("g").map(str::to_owned),
        });
    }
    facts
}

/// The facts about a type, where the table has it.
pub fn facts(name: &str) -> Option<&'static TypeFacts> {
    table().get(name)
}

/// Whether the table has kinds of that `apiVersion` of Kubernetes, but not this one.
pub fn lacks(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    let prefix = format!("io.k8s.api.{package}.{version}.");
    let known = table().keys().any(|name| name.starts_with(prefix.as_str()));
    known && facts(&format!("{prefix}{kind}")).is_none()
}

/// The fields of a type as JSON shows them: those of inlined types in place.
pub fn fields(name: &str) -> Vec<&'static Field> {
    let mut out = Vec::new();
    if let Some(facts) = facts(name) {
        for field in &facts.fields {
            match &field.shape {
                Shape::Message(inner) if field.inline => out.extend(fields(inner)),
                _ => out.push(field),
            }
        }
    }
    out
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
    static BUILT: OnceLock<Mutex<BTreeMap<String, Arc<Schema>>>> = OnceLock::new();
    let built = BUILT.get_or_init(Mutex::default);
    let lock =
        |m: &Mutex<BTreeMap<String, Arc<Schema>>>| m.lock().unwrap_or_else(|e| e.into_inner()).get(name).cloned();
    if let Some(schema) = lock(built) {
        return Some(schema);
    }
    let mut done = BTreeMap::new();
    let schema = message_schema(name, &mut Vec::new(), &mut done)?;
    built.lock().unwrap_or_else(|e| e.into_inner()).insert(name.to_owned(), schema.clone());
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
    let mut schema = Schema { kind: Type::Object, atomic_map: facts.atomic, ..<Schema as Default>::default() };
    for field in fields(name) {
        let shared = shape_schema(&field.shape, open, done);
        let mut node = (*shared).clone();
        let changed = field.atomic
            || field.default.is_some()
            || field.list != ListType::Atomic
            || field.patch != PatchStrategy::default();
        let node = if changed {
            node.atomic_map |= field.atomic;
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

/// The schema of an associative list's elements: keys that Go always writes are empty rather than absent, so that an
/// element without them still has a place.
fn with_key_defaults(item: &Arc<Schema>, keys: &[String], shape: &Shape) -> Arc<Schema> {
    let Shape::Message(name) = shape else { return item.clone() };
    let mut item = (**item).clone();
    for field in fields(name) {
        if !keys.contains(&field.name) || !field.always || field.pointer || field.default.is_some() {
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
        Shape::Quantity | Shape::IntOrString => scalar(Type::IntOrString, ""),
        Shape::Time | Shape::MicroTime => scalar(Type::String, "date-time"),
        // what is raw is one value to those who share an object
        Shape::Raw | Shape::Fields => Arc::new(Schema {
            kind: Type::Object,
            preserve_unknown: true,
            atomic_map: true,
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

fn json_kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Reads a value as Go's decoder reads the type: checks types, turns nulls into absence, and brings quantities, times
/// and bytes into their canonical text. Fields that the type does not have are left alone (pruning is another step).
///
/// # Errors
/// The decoder's words: `json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type …`.
pub fn decode(name: &str, value: &mut Value) -> Result<(), String> {
    decode_message(name, value, "", "")
}

/// Reads a value as [`decode`] does, with the faults of Go's converter of trees, which reads what a strategic patch makes.
///
/// # Errors
/// The converter's words: `cannot restore slice from map`, `unrecognized type: string`.
pub fn convert(name: &str, value: &mut Value) -> Result<(), String> {
    match misfit(&Shape::Message(name.to_owned()), value) {
        Some(why) => Err(why),
        None => decode(name, value),
    }
}

/// What the converter finds first.
fn misfit(shape: &Shape, value: &Value) -> Option<String> {
    let kind = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    let scalar = |name: &str| Some(format!("unrecognized type: {name}"));
    match (shape, value) {
        (Shape::Message(name), Value::Object(members)) => fields(name)
            .into_iter()
            .find_map(|field| members.get(&field.name).and_then(|member| misfit(&field.shape, member))),
        (Shape::Message(_), _) => Some(format!("cannot restore struct from: {kind}")),
        (Shape::List(items), Value::Array(elements)) => elements.iter().find_map(|element| misfit(items, element)),
        (Shape::List(_), _) => Some(format!("cannot restore slice from {kind}")),
        (Shape::Map(values), Value::Object(members)) => members.values().find_map(|member| misfit(values, member)),
        (Shape::Map(_), _) => Some(format!("cannot restore map from {kind}")),
        (Shape::Byte, Value::String(text)) => decoded(text).err().map(|why| format!("error decoding from json: {why}")),
        (Shape::Byte, Value::Array(bytes)) if bytes.is_empty() => None,
        (Shape::Byte, _) => Some(format!("cannot restore slice from {kind}")),
        // Go would convert a whole number to text, as a character
        (Shape::String, _) if kind == "int64" => Some("cannot convert int64 to string".to_owned()),
        (Shape::String, _) if kind != "string" => scalar("string"),
        (Shape::Boolean, _) if kind != "bool" => scalar("bool"),
        (Shape::Int32 | Shape::Int64, Value::Number(number)) => {
            let name = if *shape == Shape::Int32 { "int32" } else { "int64" };
            let whole = number.as_f64().is_none_or(|n| n.fract() == 0.0);
            (!whole).then(|| format!("cannot convert float64 to {name}"))
        }
        (Shape::Int32, _) => scalar("int32"),
        (Shape::Int64, _) => scalar("int64"),
        _ => None,
    }
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn mismatch(what: &str, owner: &str, path: &str, go: &str) -> String {
    if path.is_empty() {
        format!("json: cannot unmarshal {what} into Go value of type {go}")
    } else {
        format!("json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {go}")
    }
}

fn decode_message(name: &str, value: &mut Value, owner: &str, path: &str) -> Result<(), String> {
    let kind = json_kind(value);
    let Some(members) = value.as_object_mut() else {
        return Err(mismatch(&kind, owner, path, &format!("v1.{}", last(name))));
    };
    for field in fields(name) {
        let Some(member) = members.get_mut(&field.name) else { continue };
        if member.is_null() {
            members.remove(&field.name);
            continue;
        }
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        decode_shape(&field.shape, field, member, last(name), &path)?;
    }
    Ok(())
}

fn go_type(shape: &Shape, field: &Field) -> String {
    let scalar = |own: &str| field.go.clone().unwrap_or_else(|| own.to_owned());
    match shape {
        Shape::String => scalar("string"),
        Shape::Boolean => scalar("bool"),
        Shape::Int32 => scalar("int32"),
        Shape::Int64 => scalar("int64"),
        Shape::Number => "float64".to_owned(),
        Shape::Byte => "[]uint8".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Time => "v1.Time".to_owned(),
        Shape::MicroTime => "v1.MicroTime".to_owned(),
        Shape::Raw => "runtime.RawExtension".to_owned(),
        Shape::Fields => "v1.FieldsV1".to_owned(),
        Shape::Any => "v1.JSON".to_owned(),
        Shape::SchemaOr(Other::Array) => "v1.JSONSchemaPropsOrArray".to_owned(),
        Shape::SchemaOr(Other::Bool) => "v1.JSONSchemaPropsOrBool".to_owned(),
        Shape::SchemaOr(Other::Strings) => "v1.JSONSchemaPropsOrStringArray".to_owned(),
        Shape::List(items) => format!("[]{}", go_type(items, field)),
        Shape::Map(values) if **values == Shape::Quantity => "v1.ResourceList".to_owned(),
        Shape::Map(values) => format!("map[string]{}", go_type(values, field)),
        Shape::Message(name) => format!("v1.{}", last(name)),
    }
}

fn decode_shape(shape: &Shape, field: &Field, value: &mut Value, owner: &str, path: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(mismatch(what, owner, path, &go_type(shape, field)));
    match shape {
        Shape::String => match value {
            Value::String(_) => Ok(()),
            other => wrong(&json_kind(other)),
        },
        Shape::Boolean => match value {
            Value::Bool(_) => Ok(()),
            other => wrong(&json_kind(other)),
        },
        Shape::Int32 | Shape::Int64 => match value {
            Value::Number(number) => {
                let whole = number.as_i64();
                let fits = whole.is_some_and(|n| *shape == Shape::Int64 || i32::try_from(n).is_ok());
                if fits { Ok(()) } else { wrong(&format!("number {number}")) }
            }
            other => wrong(&json_kind(other)),
        },
        Shape::Number => match value {
            Value::Number(_) => Ok(()),
            other => wrong(&json_kind(other)),
        },
        Shape::Byte => {
            if value.as_array().is_some_and(Vec::is_empty) {
                *value = Value::String(String::new());
            }
            let Value::String(text) = value else { return wrong(&json_kind(value)) };
            *text = decoded(text)?;
            Ok(())
        }
        Shape::Quantity => match value {
            Value::String(_) | Value::Number(_) => {
                let text = match &*value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                match quantity::canonical(&text) {
                    Some(text) => {
                        *value = text.into();
                        Ok(())
                    }
                    None => Err(quantity::Quantity::parse(&text).map_or_else(|e| e.to_string(), |_| String::new())),
                }
            }
            _ => Err(quantity::QuantityError::Format.to_string()),
        },
        Shape::IntOrString => match value {
            Value::String(_) => Ok(()),
            Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
            Value::Number(number) => Err(format!("json: cannot unmarshal number {number} into Go value of type int32")),
            other => Err(format!("json: cannot unmarshal {} into Go value of type int32", json_kind(other))),
        },
        Shape::Time | Shape::MicroTime => {
            let Value::String(text) = value else {
                return Err(format!("json: cannot unmarshal {} into Go value of type string", json_kind(value)));
            };
            *value = canonical_time(text, *shape == Shape::MicroTime)?.into();
            Ok(())
        }
        Shape::Raw | Shape::Fields | Shape::Any => Ok(()),
        Shape::SchemaOr(_) if value.is_object() => decode_message(JSON_SCHEMA, value, owner, path),
        Shape::SchemaOr(Other::Array) => {
            for element in value.as_array_mut().into_iter().flatten().filter(|element| element.is_object()) {
                decode_message(JSON_SCHEMA, element, owner, path)?;
            }
            Ok(())
        }
        Shape::SchemaOr(_) => Ok(()),
        Shape::List(items) => {
            let Value::Array(elements) = value else { return wrong(&json_kind(value)) };
            for element in elements {
                if element.is_null() {
                    *element = zero(items);
                }
                if !element.is_null() {
                    decode_shape(items, field, element, owner, path)?;
                }
            }
            Ok(())
        }
        Shape::Map(values) => {
            let Value::Object(members) = value else { return wrong(&json_kind(value)) };
            for member in members.values_mut() {
                if member.is_null() {
                    *member = zero(values);
                }
                if !member.is_null() {
                    decode_shape(values, field, member, owner, path)?;
                }
            }
            Ok(())
        }
        Shape::Message(name) => decode_message(name, value, owner, path),
    }
}

/// Base64 without its line breaks, where it is that.
fn decoded(text: &str) -> Result<String, String> {
    let compact: String = text.chars().filter(|c| *c != '\n' && *c != '\r').collect();
    match base64::engine::general_purpose::STANDARD.decode(&compact) {
        Ok(_) => Ok(compact),
        Err(error) => Err(format!("illegal base64 data at input byte {}", bad_byte(&error, &compact))),
    }
}

fn bad_byte(error: &base64::DecodeError, text: &str) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
    }
}

/// An RFC 3339 time as Kubernetes writes it: UTC, whole seconds, or microseconds where `micro`.
///
/// # Errors
/// Go's words for a text that is no such time.
pub fn canonical_time(text: &str, micro: bool) -> Result<String, String> {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    // Go reads microseconds only where all six digits stand.
    let digits = text.split_once('.').map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    if micro && digits != Some(6) && text.len() > 19 {
        let rest = text.get(19..).unwrap_or(text);
        return Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \".000000\""));
    }
    let timestamp: Timestamp = match text.parse() {
        Ok(timestamp) if text.contains('T') || text.contains('t') => timestamp,
        _ => {
            let what = if text.len() >= 4 && text.bytes().take(4).all(|b| b.is_ascii_digit()) {
                let rest = &text[4..];
                format!("cannot parse {rest:?} as \"-\"")
            } else {
                format!("cannot parse {text:?} as \"2006\"")
            };
            return Err(format!("parsing time {text:?} as {layout:?}: {what}"));
        }
    };
    Ok(timestamp.strftime(if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" }).to_string())
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

fn is_empty(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (_, Value::Null) => true,
        (Shape::String | Shape::Byte, Value::String(text)) => text.is_empty(),
        (Shape::Boolean, Value::Bool(set)) => !set,
        (Shape::Int32 | Shape::Int64 | Shape::Number, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(members)) => members.is_empty(),
        _ => false,
    }
}

/// Brings an object into the form in which Go writes it: empty members are gone where they may be left out, and those
/// that are always written are there (`status: {}`, `lastProbeTime: null`, `name: ""`).
pub fn normalize(name: &str, value: &mut Value) {
    let Value::Object(members) = value else { return };
    for field in fields(name) {
        normalize_field(field, members);
    }
}

fn normalize_field(field: &Field, members: &mut Map<String, Value>) {
    let shape = &field.shape;
    // Structs are never empty to Go's encoder.
    let structure = matches!(
        shape,
        Shape::Message(_) | Shape::Quantity | Shape::IntOrString | Shape::Time | Shape::MicroTime | Shape::Raw
    );
    let always = field.always || (structure && !field.pointer);
    let present = members.get(&field.name);
    let empty = present.is_none_or(|value| value.is_null() || (!field.pointer && is_empty(shape, value)));
    if empty {
        if field.name.is_empty() || field.omit_zero || !always {
            members.remove(&field.name);
            return;
        }
        if field.name == "kind" || field.name == "apiVersion" {
            return;
        }
        let mut value = if field.pointer { Value::Null } else { zero(shape) };
        if let (Shape::Message(name), Value::Object(_)) = (shape, &value) {
            normalize(name, &mut value);
        }
        members.insert(field.name.clone(), value);
        return;
    }
    if let Some(value) = members.get_mut(&field.name) {
        normalize_shape(shape, value);
        if field.omit_zero && value.as_object().is_some_and(Map::is_empty) {
            members.remove(&field.name);
        }
    }
}

fn normalize_shape(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Message(name), value) => normalize(name, value),
        (Shape::SchemaOr(_), value) if value.is_object() => normalize(JSON_SCHEMA, value),
        (Shape::SchemaOr(Other::Array), Value::Array(elements)) => {
            elements.iter_mut().for_each(|element| normalize(JSON_SCHEMA, element));
        }
        (Shape::List(items), Value::Array(elements)) => {
            for element in elements {
                normalize_shape(items, element);
            }
        }
        (Shape::Map(values), Value::Object(members)) => {
            for member in members.values_mut() {
                normalize_shape(values, member);
            }
        }
        _ => {}
    }
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
        let decode_pod = |value: Value| decode(POD, &mut { value }).unwrap_err();
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
