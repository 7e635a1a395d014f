//! Objects as rows of a table, for kubectl.

use crate::registry::Served;
use jiff::Timestamp;
use resource::Column;
use resource::jsonpath::JsonPath;
use serde::Serialize;
use serde_json::{Value, json};

/// What rows carry beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    /// From `includeObject`; `None` for what is not known.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "" | "Metadata" => Self::Metadata,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// `columnDefinitions`.
pub fn columns(served: &Served) -> Value {
    let mut out = Vec::new();
    if served.custom.is_some() || served.resource.columns.is_empty() {
        out.push(json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0}));
    }
    if served.custom.is_none() && served.resource.columns.is_empty() {
        out.push(json!({"name": "Created At", "type": "date", "format": "", "description": CREATED, "priority": 0}));
    }
    for Column { name, kind, format, description, priority, json_path } in &served.resource.columns {
        let description = match json_path {
            Some(path) if description.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            _ => description.clone(),
        };
        out.push(json!({
            "name": name, "type": kind, "format": format, "description": description, "priority": priority,
        }));
    }
    out.into()
}

const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// One row. What it carries of the object is written as it is kept: in long tables that is most of the work.
pub struct Row<'a> {
    cells: Vec<Value>,
    conditions: Vec<Value>,
    object: Included<'a>,
}

enum Included<'a> {
    None,
    /// With the version of meta.k8s.io.
    Metadata(Shown<'a>, &'a str),
    Object(Shown<'a>),
}

/// An object of which all or a part is written.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// Its tree, from which managed fields may be missing where there is a text.
    pub tree: &'a Value,
    /// All of it in compact JSON.
    pub text: Option<&'a [u8]>,
}

impl Shown<'_> {
    fn write(self, out: &mut Vec<u8>) {
        match self.text {
            Some(text) => out.extend_from_slice(text),
            None => json(out, self.tree),
        }
    }

    /// `PartialObjectMetadata`.
    pub fn write_metadata(self, version: &str, out: &mut Vec<u8>) {
        let version = if version == "v1beta1" { "v1beta1" } else { "v1" };
        let head =
            format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":");
        out.extend_from_slice(head.as_bytes());
        match self.text.and_then(|text| objects::part::member(text, "metadata")) {
            Some(metadata) => out.extend_from_slice(metadata),
            None => json(out, &self.tree["metadata"]),
        }
        out.push(b'}');
    }
}

fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // writing to memory cannot fail, and keys are strings
    serde_json::to_writer(out, value).expect("invariant: JSON serialises");
}

/// The row of an object.
pub fn row<'a>(served: &Served, object: Shown<'a>, include: Include, version: &'a str, now: Timestamp) -> Row<'a> {
    let tree = object.tree;
    let name = api::object::meta(tree, "name");
    let cells: Vec<Value> = if served.custom.is_some() {
        let own = served.resource.columns.iter().map(|column| cell(tree, column, now));
        std::iter::once(name.into()).chain(own).collect()
    } else if served.resource.columns.is_empty() {
        vec![name.into(), api::object::meta(tree, "creationTimestamp").into()]
    } else {
        served.resource.strategy.row(tree, now)
    };
    let included = match include {
        Include::None => Included::None,
        Include::Metadata => Included::Metadata(object, version),
        Include::Object => Included::Object(object),
    };
    let conditions = match &served.custom {
        Some(_) => Vec::new(),
        None => (served.resource.facts.row_conditions)(tree),
    };
    Row { cells, conditions, object: included }
}

/// Whether a row shows nothing of managed fields, so that a tree without them will do.
pub fn is_lean(served: &Served) -> bool {
    let passes = |path: &str| {
        let apart = path.strip_prefix(".metadata.").is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_alphabetic())
                && !rest.contains("..")
                && !rest.starts_with("managedFields")
        });
        apart || path.starts_with(".spec") || path.starts_with(".status")
    };
    let mut paths = served.resource.columns.iter().filter_map(|column| column.json_path.as_deref());
    paths.all(passes)
}

impl<'a> Row<'a> {
    /// A row of these cells, with the object's metadata.
    pub fn of(cells: Vec<Value>, object: &'a Value, version: &'a str) -> Self {
        let shown = Shown { tree: object, text: None };
        Self { cells, conditions: Vec::new(), object: Included::Metadata(shown, version) }
    }

    /// Cells that say that there is no object for them to be about.
    pub fn without_object(&mut self) {
        for cell in self.cells.iter_mut().filter(|cell| *cell == "<invalid>") {
            *cell = "<unknown>".into();
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"cells\":");
        json(out, &self.cells);
        if !self.conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            json(out, &self.conditions);
        }
        out.extend_from_slice(b",\"object\":");
        match &self.object {
            Included::None => out.extend_from_slice(b"null"),
            Included::Metadata(object, version) => object.write_metadata(version, out),
            Included::Object(object) => object.write(out),
        }
        out.push(b'}');
    }
}

/// The object's metadata alone.
pub fn metadata(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

fn cell(object: &Value, column: &Column, now: Timestamp) -> Value {
    let Some(path) = column.json_path.as_deref().and_then(JsonPath::parse) else { return Value::Null };
    let found = path.find(object);
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "integer" => match first {
            Value::Number(n) => n.as_i64().map_or_else(
                || {
                    // A fraction is cut off, as in a conversion to int64.
                    #[expect(clippy::cast_possible_truncation)]
                    n.as_f64().map_or(Value::Null, |f| (f as i64).into())
                },
                Value::from,
            ),
            _ => Value::Null,
        },
        "number" => {
            if first.is_number() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        "boolean" => {
            if first.is_boolean() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        // the first of several: upstream takes a path to lead to one place
        "string" => plain(first).into(),
        "date" => match first.as_str() {
            // what Go reads as no time
            Some("" | "null") => "<unknown>".into(),
            Some(text) => match text.parse::<Timestamp>() {
                Ok(then) => age(then, now).into(),
                Err(_) => "<invalid>".into(),
            },
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// As the JSONPath printer shows a value: scalars bare, the rest as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

/// How long ago, as kubectl shows it: `5s`, `3m20s`, `2d3h` (`k8s.io/apimachinery/pkg/util/duration`).
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let secs = now.as_second() - then.as_second();
    if secs < -1 {
        return "<invalid>".to_owned();
    }
    let secs = secs.max(0);
    let (minutes, hours) = (secs / 60, secs / 3600);
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    if secs < 120 {
        format!("{secs}s")
    } else if minutes < 10 {
        pair(minutes, "m", secs % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        pair(hours / 24, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{}d", hours / 24)
    } else if hours < 24 * 365 * 8 {
        pair(hours / 24 / 365, "y", (hours / 24) % 365, "d")
    } else {
        format!("{}y", hours / 24 / 365)
    }
}

/// A whole table in compact JSON. Rows write themselves.
pub fn table<R: FnOnce(&mut Vec<u8>)>(
    columns: Option<Value>,
    rows: impl IntoIterator<Item = R>,
    meta: &Value,
    version: &str,
) -> Vec<u8> {
    // Kinds without columns of their own have no rows where others have none: Go's nil.
    let plain = columns.as_ref().is_some_and(|c| c[1]["name"] == "Created At");
    let head = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
        "columnDefinitions": columns});
    let mut rows = rows.into_iter().peekable();
    let null = plain && rows.peek().is_none();
    with_list(&head, "rows", (!null).then_some(rows))
}

/// An object in compact JSON whose last member is a list, whose items write themselves.
pub fn with_list<T: FnOnce(&mut Vec<u8>)>(head: &Value, name: &str, list: Option<impl Iterator<Item = T>>) -> Vec<u8> {
    let mut out = crate::wire::to_vec(head, false);
    out.pop();
    out.extend_from_slice(format!(",\"{name}\":").as_bytes());
    match list {
        None => out.extend_from_slice(b"null"),
        Some(list) => {
            out.push(b'[');
            for (i, item) in list.enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                item(&mut out);
            }
            out.push(b']');
        }
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (secs, text) in [
            (5, "5s"),
            (130, "2m10s"),
            (120, "2m"),
            (700, "11m"),
            (4 * 3600, "4h"),
            (50 * 3600, "2d2h"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(age(now - jiff::SignedDuration::from_secs(secs), now), text);
        }
    }

    #[test]
    fn trees_without_managed_fields_do_where_no_column_shows_them() {
        let resource = kinds::resources().into_iter().find(|r| r.plural == "pods").unwrap();
        let mut served = Served::builtin(resource);
        assert!(is_lean(&served));
        for (path, lean) in [
            (".spec.a", true),
            (".status..b", true),
            (".metadata.labels.a\\.b", true),
            (".metadata.creationTimestamp", true),
            (".metadata", false),
            (".metadata.*", false),
            (".metadata..manager", false),
            (".metadata.managedFields[0].manager", false),
            (".metadata['managedFields'][0].manager", false),
            ("..manager", false),
            (".*", false),
        ] {
            served.resource.columns[0].json_path = Some(path.to_owned());
            assert_eq!(is_lean(&served), lean, "{path}");
        }
    }

    #[test]
    fn rows_are_written_as_the_values_that_they_are() {
        let resource = kinds::resources().into_iter().find(|r| r.plural == "pods").unwrap();
        let served = Served::builtin(resource);
        let pod = json!({"metadata": {"name": "p", "labels": {"b": "1", "a": "2"}}, "spec": {"containers": [{}]},
            "status": {"phase": "Succeeded"}});
        let now = Timestamp::UNIX_EPOCH;
        let text = pod.to_string();
        let lean = json!({"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": {"phase": "Succeeded"}});
        for shown in [Shown { tree: &pod, text: None }, Shown { tree: &lean, text: Some(text.as_bytes()) }] {
            for (include, carried) in [
                (Include::None, Value::Null),
                (Include::Metadata, metadata(&pod, "v1")),
                (Include::Object, pod.clone()),
            ] {
                let mut row_text = Vec::new();
                row(&served, shown, include, "v1", now).write(&mut row_text);
                let value: Value = serde_json::from_slice(&row_text).unwrap();
                assert_eq!((&value["object"], &value["cells"][0]), (&carried, &json!("p")));
                assert!(value["conditions"].is_array());
            }
        }
        let row = row(&served, Shown { tree: &pod, text: None }, Include::None, "v1", now);
        let whole = table(Some(columns(&served)), [|out: &mut Vec<u8>| row.write(out)], &json!({}), "v1");
        let none = table(None, Vec::<fn(&mut Vec<u8>)>::new(), &json!({"resourceVersion": "5"}), "v1");
        assert!(
            String::from_utf8(whole)
                .unwrap()
                .starts_with(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[{"#)
        );
        let text = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"columnDefinitions":null,"rows":[]}"#;
        assert_eq!(String::from_utf8(none).unwrap(), text);
    }
}
