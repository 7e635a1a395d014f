//! Reads values as Go's decoder reads Kubernetes' types, with its faults.

use super::{Field, JSON_SCHEMA, Other, Shape, facts, fields, zero};
use api::quantity;
use base64::Engine;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Why a value is not of a type, in the words of Go's decoder or converter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("json: cannot unmarshal {what} into Go value of type {go}")]
    Value { what: String, go: String },
    #[error("json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {go}")]
    Field { what: String, owner: String, path: String, go: String },
    #[error(transparent)]
    Quantity(#[from] quantity::QuantityError),
    #[error("parsing time {text:?} as {layout:?}: {why}")]
    Time { text: String, layout: &'static str, why: String },
    #[error("illegal base64 data at input byte {at}")]
    Base64 { at: usize },
    // the converter's
    #[error("error decoding from json: {0}")]
    Bytes(Box<Self>),
    #[error("unrecognized type: {name}")]
    Unrecognized { name: &'static str },
    #[error("cannot restore struct from: {kind}")]
    Struct { kind: &'static str },
    #[error("cannot restore {into} from {kind}")]
    Restore { into: &'static str, kind: &'static str },
    #[error("cannot convert {kind} to {go}")]
    Convert { kind: &'static str, go: String },
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
pub fn decode(name: &str, value: &mut Value) -> Result<(), DecodeError> {
    decode_in(name, value, None)
}

/// As [`decode`], of a text whose keys stand in this order: which fault is reported depends on it.
///
/// # Errors
/// As [`decode`].
pub fn decode_in(name: &str, value: &mut Value, order: Option<&Order>) -> Result<(), DecodeError> {
    Decoder::default().run(name, value, order)
}

/// The keys of a JSON text in the order in which they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Scalar,
    List(Vec<Order>),
    Map(Vec<(String, Order)>),
}

impl Order {
    /// Of a text; `None` where it is no JSON.
    pub fn of(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    fn member(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else { return None };
        members.iter().rev().find(|(name, _)| name == key).map(|(_, order)| order)
    }

    fn element(&self, index: usize) -> Option<&Self> {
        let Self::List(elements) = self else { return None };
        elements.get(index)
    }

    /// The keys of an object, each once, in the order in which they stood; `None` where that is not known.
    fn keys(order: Option<&Self>, members: &Map<String, Value>) -> Option<Vec<String>> {
        let Some(Self::Map(ordered)) = order else { return None };
        let mut seen = std::collections::BTreeSet::new();
        let names = ordered.iter().map(|(name, _)| name).chain(members.keys());
        Some(names.filter(|name| members.contains_key(*name) && seen.insert(name.as_str())).cloned().collect())
    }
}

impl<'de> serde::Deserialize<'de> for Order {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Ordered)
    }
}

struct Ordered;

impl<'de> serde::de::Visitor<'de> for Ordered {
    type Value = Order;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Order, E> {
        Ok(Order::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Order, E> {
        Ok(Order::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Order, E> {
        Ok(Order::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Order, E> {
        Ok(Order::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Order, E> {
        Ok(Order::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Order, E> {
        Ok(Order::Scalar)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Order, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            elements.push(element);
        }
        Ok(Order::List(elements))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Order, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Order::Map(members))
    }
}

/// Reads a value as [`decode`] does, with the faults of Go's converter of trees, which reads what a strategic patch makes.
///
/// # Errors
/// The converter's words: `cannot restore slice from map`, `unrecognized type: string`.
pub fn convert(name: &str, value: &mut Value) -> Result<(), DecodeError> {
    match misfit(&Shape::Message(name.to_owned()), None, value) {
        Some(why) => Err(why),
        None => Decoder { plain: true, saved: None }.run(name, value, None),
    }
}

/// What the converter finds first, of a value of this field.
fn misfit(shape: &Shape, field: Option<&Field>, value: &Value) -> Option<DecodeError> {
    // the name of the type of single values, where they have one
    let go = field.and_then(|field| field.go.as_deref());
    let kind = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    let scalar = |name| Some(DecodeError::Unrecognized { name });
    match (shape, value) {
        (Shape::Message(name), Value::Object(members)) => {
            fields(name).iter().find_map(|field| misfit(&field.shape, Some(field), members.get(&field.name)?))
        }
        (Shape::Message(_), _) => Some(DecodeError::Struct { kind }),
        (Shape::List(items), Value::Array(elements)) => {
            elements.iter().find_map(|element| misfit(items, field, element))
        }
        (Shape::List(_), _) => Some(DecodeError::Restore { into: "slice", kind }),
        (Shape::Map(values), Value::Object(members)) => {
            members.values().find_map(|member| misfit(values, field, member))
        }
        (Shape::Map(_), _) => Some(DecodeError::Restore { into: "map", kind }),
        (Shape::Byte, Value::String(text)) => decoded(text).err().map(|why| DecodeError::Bytes(Box::new(why))),
        (Shape::Byte, Value::Array(bytes)) if bytes.iter().all(|byte| byte.as_u64().is_some_and(|byte| byte < 256)) => {
            None
        }
        (Shape::Byte, _) => Some(DecodeError::Restore { into: "slice", kind }),
        // Go would convert a whole number to text, as a character
        (Shape::String, _) if kind == "int64" => {
            Some(DecodeError::Convert { kind, go: go.unwrap_or("string").to_owned() })
        }
        (Shape::String, _) if kind != "string" => scalar("string"),
        (Shape::Boolean, _) if kind != "bool" => scalar("bool"),
        (Shape::Int32 | Shape::Int64, Value::Number(number)) => {
            let name = if *shape == Shape::Int32 { "int32" } else { "int64" };
            let whole = number.as_f64().is_none_or(|n| n.fract() == 0.0);
            (!whole).then(|| DecodeError::Convert { kind: "float64", go: go.unwrap_or(name).to_owned() })
        }
        (Shape::Int32, _) => scalar("int32"),
        (Shape::Int64, _) => scalar("int64"),
        // types that read by themselves
        (Shape::Quantity | Shape::IntOrString | Shape::Time | Shape::MicroTime, _) => {
            let spot = Spot { field: field?, owner: "", path: Way::default() };
            Decoder { plain: true, saved: None }.shape(shape, &mut value.clone(), spot, None).err()
        }
        _ => None,
    }
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn mismatch(what: &str, owner: &str, path: &str, go: &str) -> DecodeError {
    let (what, go) = (what.to_owned(), go.to_owned());
    if path.is_empty() {
        DecodeError::Value { what, go }
    } else {
        DecodeError::Field { what, owner: owner.to_owned(), path: path.to_owned(), go }
    }
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

/// The field of a type that has this name in JSON, and the names of the inlined types on the way to it.
fn field_of(name: &str, member: &str) -> Option<(&'static Field, Vec<&'static str>)> {
    for field in &facts(name)?.fields {
        match &field.shape {
            Shape::Message(inner) if field.inline => {
                if let Some((found, mut through)) = field_of(inner, member) {
                    through.insert(0, last(inner));
                    return Some((found, through));
                }
            }
            _ if field.name == member => return Some((field, Vec::new())),
            _ => {}
        }
    }
    None
}

/// Reads as Go's decoder does: a value of the wrong type is noted, and reading goes on; the first that was noted is reported. What
/// a type of its own reads by itself (quantities, times, numbers or names) ends the reading with its fault.
#[derive(Default)]
struct Decoder {
    saved: Option<DecodeError>,
    /// The converter of trees: types that read by themselves do not know where they stand.
    plain: bool,
}

/// Where a value stands.
#[derive(Clone, Copy)]
struct Spot<'a> {
    field: &'a Field,
    owner: &'a str,
    path: Way<'a>,
}

/// The names of fields on the way to a value. Only faults need them as a text.
#[derive(Clone, Copy, Default)]
struct Way<'a> {
    above: Option<&'a Way<'a>>,
    /// Names of inlined types.
    through: &'a [&'static str],
    key: &'a str,
}

impl Way<'_> {
    fn text(self) -> String {
        let above = self.above.map(|above| above.text());
        let parts = above.as_deref().into_iter().chain(self.through.iter().copied()).chain([self.key]);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }
}

impl Decoder {
    fn run(mut self, name: &str, value: &mut Value, order: Option<&Order>) -> Result<(), DecodeError> {
        self.message(name, value, "", Way::default(), order)?;
        match self.saved {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn save(&mut self, fault: DecodeError) {
        self.saved.get_or_insert(fault);
    }

    fn message(
        &mut self,
        name: &str,
        value: &mut Value,
        owner: &str,
        path: Way<'_>,
        order: Option<&Order>,
    ) -> Result<(), DecodeError> {
        let Value::Object(members) = value else {
            self.save(mismatch(&json_kind(value), owner, &path.text(), &format!("v1.{}", last(name))));
            return Ok(());
        };
        let Some(keys) = Order::keys(order, members) else {
            let mut read = Ok(());
            members.retain(|key, member| {
                if read.is_err() {
                    return true;
                }
                self.member(name, key, member, path, None).unwrap_or_else(|fault| {
                    read = Err(fault);
                    true
                })
            });
            return read;
        };
        for key in keys {
            let Some(member) = members.get_mut(&key) else { continue };
            let order = order.and_then(|order| order.member(&key));
            if !self.member(name, &key, member, path, order)? {
                members.remove(&key);
            }
        }
        Ok(())
    }

    /// Reads a member of an object of this type; whether it stays.
    fn member(
        &mut self,
        name: &str,
        key: &str,
        member: &mut Value,
        above: Way<'_>,
        order: Option<&Order>,
    ) -> Result<bool, DecodeError> {
        let Some((field, through)) = field_of(name, key) else { return Ok(true) };
        if member.is_null() {
            return Ok(false);
        }
        let path = Way { above: Some(&above), through: &through, key };
        self.shape(&field.shape, member, Spot { field, owner: last(name), path }, order)?;
        Ok(true)
    }

    /// Reads a value of a map.
    fn value(
        &mut self,
        shape: &Shape,
        member: &mut Value,
        spot: Spot<'_>,
        order: Option<&Order>,
    ) -> Result<(), DecodeError> {
        if member.is_null() {
            *member = zero(shape);
        }
        if !member.is_null() {
            self.shape(shape, member, spot, order)?;
        }
        if *shape == Shape::Quantity {
            whole_millis(member);
        }
        Ok(())
    }

    /// The fault of a type that reads by itself and wanted something else.
    fn own(&self, what: &str, spot: Spot<'_>, go: &str) -> DecodeError {
        if self.plain { mismatch(what, "", "", go) } else { mismatch(what, spot.owner, &spot.path.text(), go) }
    }

    fn shape(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        spot: Spot<'_>,
        order: Option<&Order>,
    ) -> Result<(), DecodeError> {
        let fits = match (shape, &*value) {
            (Shape::String, Value::String(_))
            | (Shape::Boolean, Value::Bool(_))
            | (Shape::Number, Value::Number(_))
            | (Shape::List(_), Value::Array(_))
            | (Shape::Map(_), Value::Object(_)) => true,
            (Shape::Int32, Value::Number(number)) => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            (Shape::Int64, Value::Number(number)) => number.as_i64().is_some(),
            (Shape::String | Shape::Boolean | Shape::Number | Shape::Int32 | Shape::Int64, _)
            | (Shape::List(_) | Shape::Map(_), _) => false,
            _ => true,
        };
        if let (true, Shape::Int32 | Shape::Int64, Some(number)) = (self.plain, shape, whole(value)) {
            // the converter of trees keeps as many bits of a number as there is room for
            #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
            let kept = if *shape == Shape::Int32 { i64::from(number as i32) } else { number };
            *value = kept.into();
            return Ok(());
        }
        if !fits {
            let what = match (shape, &*value) {
                (Shape::Int32 | Shape::Int64, Value::Number(number)) => format!("number {number}"),
                (_, other) => json_kind(other),
            };
            self.save(mismatch(&what, spot.owner, &spot.path.text(), &go_type(shape, spot.field)));
            return Ok(());
        }
        match shape {
            Shape::Byte => {
                self.bytes(value, spot);
                Ok(())
            }
            Shape::Quantity => {
                let text = match &*value {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    _ => return Err(quantity::QuantityError::Format.into()),
                };
                match quantity::canonical(&text) {
                    Some(text) => *value = text.into(),
                    None => {
                        let fault = quantity::Quantity::parse(&text).err();
                        return Err(fault.unwrap_or(quantity::QuantityError::Format).into());
                    }
                }
                Ok(())
            }
            Shape::IntOrString => match value {
                Value::String(_) => Ok(()),
                Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
                Value::Number(number) => Err(self.own(&format!("number {number}"), spot, "int32")),
                other => Err(self.own(&json_kind(other), spot, "int32")),
            },
            Shape::Time | Shape::MicroTime => {
                let Value::String(text) = value else { return Err(self.own(&json_kind(value), spot, "string")) };
                *value = canonical_time(text, *shape == Shape::MicroTime)?.into();
                Ok(())
            }
            Shape::SchemaOr(_) if value.is_object() => self.message(JSON_SCHEMA, value, spot.owner, spot.path, order),
            Shape::SchemaOr(Other::Array) => {
                for (index, element) in value.as_array_mut().into_iter().flatten().enumerate() {
                    if element.is_object() {
                        let order = order.and_then(|order| order.element(index));
                        self.message(JSON_SCHEMA, element, spot.owner, spot.path, order)?;
                    }
                }
                Ok(())
            }
            Shape::List(items) => {
                for (index, element) in value.as_array_mut().into_iter().flatten().enumerate() {
                    if element.is_null() {
                        *element = zero(items);
                    }
                    if !element.is_null() {
                        self.shape(items, element, spot, order.and_then(|order| order.element(index)))?;
                    }
                }
                Ok(())
            }
            Shape::Map(values) => {
                let Value::Object(members) = value else { return Ok(()) };
                let Some(keys) = Order::keys(order, members) else {
                    return members.values_mut().try_for_each(|member| self.value(values, member, spot, None));
                };
                for key in keys {
                    let Some(member) = members.get_mut(&key) else { continue };
                    self.value(values, member, spot, order.and_then(|order| order.member(&key)))?;
                }
                Ok(())
            }
            Shape::Message(name) => self.message(name, value, spot.owner, spot.path, order),
            _ => Ok(()),
        }
    }

    /// Bytes are base64, or a list of numbers.
    fn bytes(&mut self, value: &mut Value, spot: Spot<'_>) {
        match value {
            Value::String(text) => match decoded(text) {
                Ok(canonical) => *text = canonical,
                Err(fault) => self.save(fault),
            },
            Value::Array(elements) => {
                let mut bytes = Vec::with_capacity(elements.len());
                for element in elements {
                    match element.as_u64().and_then(|number| u8::try_from(number).ok()) {
                        Some(byte) => bytes.push(byte),
                        None if element.is_null() => bytes.push(0),
                        None => {
                            let what =
                                if element.is_number() { format!("number {element}") } else { json_kind(element) };
                            self.save(mismatch(&what, spot.owner, &spot.path.text(), "uint8"));
                        }
                    }
                }
                *value = base64::engine::general_purpose::STANDARD.encode(bytes).into();
            }
            other => self.save(mismatch(&json_kind(other), spot.owner, &spot.path.text(), "[]uint8")),
        }
    }
}

/// Amounts of resources are kept to the thousandth, rounded up.
fn whole_millis(amount: &mut Value) {
    if let Value::String(text) = amount
        && text.ends_with(['n', 'u'])
        && let Ok(quantity) = quantity::Quantity::parse(text)
    {
        *text = quantity::Quantity::millis(quantity.milli_value()).with_format(quantity.format()).to_string();
    }
}

/// Base64 without its line breaks, where it is that.
fn decoded(text: &str) -> Result<String, DecodeError> {
    let compact: String = text.chars().filter(|c| *c != '\n' && *c != '\r').collect();
    match base64::engine::general_purpose::STANDARD.decode(&compact) {
        Ok(_) => Ok(compact),
        Err(error) => Err(DecodeError::Base64 { at: bad_byte(&error, &compact) }),
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
pub fn canonical_time(text: &str, micro: bool) -> Result<String, DecodeError> {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let wrong = |why| DecodeError::Time { text: text.to_owned(), layout, why };
    // Go reads microseconds only where all six digits stand.
    let digits = text.split_once('.').map(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    if micro && digits != Some(6) && text.len() > 19 {
        let rest = text.get(19..).unwrap_or(text);
        return Err(wrong(format!("cannot parse {rest:?} as \".000000\"")));
    }
    let timestamp: Timestamp = match text.parse() {
        Ok(timestamp) if text.contains('T') || text.contains('t') => timestamp,
        _ => {
            let why = if text.len() >= 4 && text.bytes().take(4).all(|b| b.is_ascii_digit()) {
                let rest = &text[4..];
                format!("cannot parse {rest:?} as \"-\"")
            } else {
                format!("cannot parse {text:?} as \"2006\"")
            };
            return Err(wrong(why));
        }
    };
    Ok(timestamp.strftime(if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" }).to_string())
}

/// A whole number, as the converter of trees takes it: beyond 64 bits it is the least of them.
fn whole(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    // 2^63, the first that is too large
    let bound = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and in bounds")]
    let kept = number as i64;
    Some(if (-bound..bound).contains(&number) { kept } else { i64::MIN })
}
