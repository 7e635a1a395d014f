//! JSON as values of CEL, by a schema, and back.

use super::*;

/// A JSON value as CEL sees it. The schema decides what numbers are, which strings are times, and which names are fields.
pub(crate) fn to_cel(value: &Value, schema: Option<&Schema>) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let float = || Cel::Float(number.as_f64().unwrap_or(f64::NAN));
            match (schema.map(|s| s.kind), number.as_i64(), number.as_u64()) {
                (Some(Type::Number), _, _) => float(),
                (_, Some(int), _) => Cel::Int(int),
                (_, None, Some(uint)) => Cel::UInt(uint),
                #[expect(clippy::cast_possible_truncation, reason = "integers were validated to be whole")]
                (Some(Type::Integer), None, None) => Cel::Int(number.as_f64().unwrap_or_default() as i64),
                (_, None, None) => float(),
            }
        }
        Value::String(text) => string_to_cel(text, schema),
        Value::Array(items) => {
            let element = schema.and_then(|s| s.items.as_deref());
            Cel::List(Arc::new(items.iter().map(|item| to_cel(item, element)).collect()))
        }
        Value::Object(members) => {
            let mut entries: Vec<(Key, Cel)> = Vec::with_capacity(members.len());
            for (name, member) in members {
                let field = schema.and_then(|s| s.properties.get(name));
                let key = match field {
                    Some(_) => match escape_field(name) {
                        Some(key) => key,
                        None => continue,
                    },
                    None => name.clone(),
                };
                if key != *name && names::RESERVED.contains(&name.as_str()) {
                    // Rules that select a reserved word as it is written are admitted too (JobSet's `t.metadata.namespace`).
                    entries.push((Key::String(Arc::new(name.clone())), to_cel(member, field.map(AsRef::as_ref))));
                }
                let of = field.or_else(|| schema.and_then(|s| s.additional.as_ref()));
                entries.push((Key::String(Arc::new(key)), to_cel(member, of.map(AsRef::as_ref))));
            }
            Cel::Map(CelMap { map: Arc::new(entries.into_iter().collect()) })
        }
    }
}

fn string_to_cel(text: &str, schema: Option<&Schema>) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    let Some(schema) = schema.filter(|s| s.kind == Type::String) else { return plain() };
    match schema.format.as_deref() {
        Some("byte") => {
            base64::engine::general_purpose::STANDARD.decode(text).map_or_else(|_| plain(), |b| Cel::Bytes(Arc::new(b)))
        }
        Some(format @ ("date-time" | "date" | "duration")) => {
            // Let CEL's own functions read them, so that they compare with what expressions make of texts.
            let text = if format == "date" { format!("{text}T00:00:00Z") } else { text.to_owned() };
            let function = if format == "duration" { "duration(self)" } else { "timestamp(self)" };
            static CONVERSIONS: LazyLock<[Option<Expression>; 2]> =
                LazyLock::new(|| ["duration(self)", "timestamp(self)"].map(|source| Expression::compile(source).ok()));
            let conversion = CONVERSIONS.iter().flatten().find(|e| e.source() == function);
            let run = conversion.and_then(|e| e.run(vec![("self", Cel::String(Arc::new(text)))]).ok());
            run.unwrap_or_else(plain)
        }
        Some(_) | None => plain(),
    }
}

/// An optional value, as `optionalOldSelf` rules get it.
pub(crate) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// A CEL value as JSON; times and durations as text, what JSON cannot hold as null.
pub(crate) fn to_json(value: &Cel) -> Value {
    match value {
        Cel::Null | Cel::Opaque(_) | Cel::Function(..) => Value::Null,
        Cel::Bool(flag) => (*flag).into(),
        Cel::Int(int) => (*int).into(),
        Cel::UInt(uint) => (*uint).into(),
        Cel::Float(float) => serde_json::Number::from_f64(*float).map_or(Value::Null, Value::Number),
        Cel::String(text) => text.strip_prefix("\u{0}type:").unwrap_or(text).into(),
        Cel::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes.as_slice()).into(),
        Cel::Duration(duration) => {
            let nanos = duration.num_nanoseconds().unwrap_or_default();
            format!("{}s", nanos as f64 / 1e9).into()
        }
        Cel::Timestamp(time) => time.to_rfc3339().replace("+00:00", "Z").into(),
        Cel::List(items) => items.iter().map(to_json).collect(),
        Cel::Map(map) => {
            let mut out = Map::new();
            for (key, value) in map.map.iter() {
                let name = match key {
                    Key::String(text) => text.as_str().to_owned(),
                    Key::Int(int) => int.to_string(),
                    Key::Uint(uint) => uint.to_string(),
                    Key::Bool(flag) => flag.to_string(),
                };
                out.insert(name, to_json(value));
            }
            Value::Object(out)
        }
    }
}
