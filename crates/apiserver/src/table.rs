//! Objects as rows of a table, for kubectl.

use crate::jsonpath::JsonPath;
use crate::registry::Served;
use crate::resource::Column;
use jiff::Timestamp;
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

/// One row.
pub fn row(served: &Served, object: &Value, include: Include, version: &str, now: Timestamp) -> Value {
    let name = api::object::meta(object, "name");
    let cells: Vec<Value> = if served.custom.is_some() {
        let own = served.resource.columns.iter().map(|column| cell(object, column, now));
        std::iter::once(name.into()).chain(own).collect()
    } else if served.resource.columns.is_empty() {
        vec![name.into(), api::object::meta(object, "creationTimestamp").into()]
    } else {
        served.resource.strategy.row(object, now)
    };
    let included = match include {
        Include::None => Value::Null,
        Include::Metadata => metadata(object, version),
        Include::Object => object.clone(),
    };
    let conditions = match &served.custom {
        Some(_) => Vec::new(),
        None => served.resource.strategy.row_conditions(object),
    };
    if conditions.is_empty() {
        return json!({"cells": cells, "object": included});
    }
    json!({"cells": cells, "conditions": conditions, "object": included})
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
        "string" => {
            let texts: Vec<String> = found.iter().map(|v| plain(v)).collect();
            texts.join(" ").into()
        }
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

/// A whole table.
pub fn table(columns: Option<Value>, rows: Vec<Value>, meta: Value, version: &str) -> Value {
    // Kinds without columns of their own have no rows where others have none: Go's nil.
    let plain = columns.as_ref().is_some_and(|c| c[1]["name"] == "Created At");
    let rows = if plain && rows.is_empty() { Value::Null } else { rows.into() };
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": meta,
        "columnDefinitions": columns,
        "rows": rows,
    })
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
}
