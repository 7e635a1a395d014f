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

/// One row. What it carries of the object is borrowed: in long tables that is most of the work.
#[derive(Serialize)]
pub struct Row<'a> {
    cells: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Value>,
    object: Included<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Included<'a> {
    None,
    Metadata(Metadata<'a>),
    Object(&'a Value),
}

/// An object's metadata alone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a Value,
}

impl<'a> Metadata<'a> {
    pub fn of(object: &'a Value, version: &str) -> Self {
        let api_version = if version == "v1beta1" { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" };
        Self { api_version, kind: "PartialObjectMetadata", metadata: &object["metadata"] }
    }
}

/// The row of an object.
pub fn row<'a>(served: &Served, object: &'a Value, include: Include, version: &str, now: Timestamp) -> Row<'a> {
    let name = api::object::meta(object, "name");
    let cells: Vec<Value> = if served.custom.is_some() {
        let own = served.resource.columns.iter().map(|column| cell(object, column, now));
        std::iter::once(name.into()).chain(own).collect()
    } else if served.resource.columns.is_empty() {
        vec![name.into(), api::object::meta(object, "creationTimestamp").into()]
    } else {
        served.resource.strategy.row(object, now)
    };
    let object_of_row = match include {
        Include::None => Included::None,
        Include::Metadata => Included::Metadata(Metadata::of(object, version)),
        Include::Object => Included::Object(object),
    };
    let conditions = match &served.custom {
        Some(_) => Vec::new(),
        None => served.resource.strategy.row_conditions(object),
    };
    Row { cells, conditions, object: object_of_row }
}

impl<'a> Row<'a> {
    /// A row of these cells, with the object's metadata.
    pub fn of(cells: Vec<Value>, object: &'a Value, version: &str) -> Self {
        Self { cells, conditions: Vec::new(), object: Included::Metadata(Metadata::of(object, version)) }
    }

    /// Cells that say that there is no object for them to be about.
    pub fn without_object(&mut self) {
        for cell in self.cells.iter_mut().filter(|cell| *cell == "<invalid>") {
            *cell = "<unknown>".into();
        }
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

/// A whole table in compact JSON.
pub fn table<R: Serialize>(
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

/// An object in compact JSON whose last member is a list, which is written as it comes.
pub fn with_list<T: Serialize>(head: &Value, name: &str, list: Option<impl Iterator<Item = T>>) -> Vec<u8> {
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
                // writing to memory cannot fail, and keys are strings
                serde_json::to_writer(&mut out, &item).expect("invariant: a row serialises");
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
    fn rows_are_written_as_the_values_that_they_are() {
        let resource = kinds::resources().into_iter().find(|r| r.plural == "pods").unwrap();
        let served = Served::builtin(resource);
        let pod = json!({"metadata": {"name": "p", "labels": {"b": "1", "a": "2"}}, "spec": {"containers": [{}]},
            "status": {"phase": "Succeeded"}});
        let now = Timestamp::UNIX_EPOCH;
        for (include, shown) in
            [(Include::None, Value::Null), (Include::Metadata, metadata(&pod, "v1")), (Include::Object, pod.clone())]
        {
            let row = serde_json::to_string(&row(&served, &pod, include, "v1", now)).unwrap();
            let value: Value = serde_json::from_str(&row).unwrap();
            assert_eq!(row, value.to_string(), "keys in the order of all others");
            assert_eq!((&value["object"], &value["cells"][0]), (&shown, &json!("p")));
            assert!(value["conditions"].is_array());
        }
        let whole = table(Some(columns(&served)), [row(&served, &pod, Include::None, "v1", now)], &json!({}), "v1");
        let none = table(None, Vec::<Row<'_>>::new(), &json!({"resourceVersion": "5"}), "v1");
        assert!(
            String::from_utf8(whole)
                .unwrap()
                .starts_with(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[{"#)
        );
        let text = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"columnDefinitions":null,"rows":[]}"#;
        assert_eq!(String::from_utf8(none).unwrap(), text);
    }
}
