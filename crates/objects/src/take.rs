//! Reads only the wanted parts of an object. The rest of its text is searched for its end, and takes no memory.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// How much of a member is read.
pub enum Take {
    All,
    Nothing,
    /// The members of an object for which the function says so; of a list, the same of each element.
    Some(fn(&str) -> Take),
}

/// A copy of the wanted members.
pub fn copied(value: &Value, take: fn(&str) -> Take) -> Value {
    match value {
        Value::Object(members) => {
            let wanted = members.iter().filter_map(|(name, member)| {
                let copy = match take(name) {
                    Take::All => member.clone(),
                    Take::Nothing => return None,
                    Take::Some(take) => copied(member, take),
                };
                Some((name.clone(), copy))
            });
            Value::Object(wanted.collect())
        }
        Value::Array(elements) => elements.iter().map(|element| copied(element, take)).collect(),
        scalar => scalar.clone(),
    }
}

/// Removes the members that are not wanted.
pub fn cut(value: &mut Value, take: fn(&str) -> Take) {
    match value {
        Value::Object(members) => members.retain(|name, member| match take(name) {
            Take::All => true,
            Take::Nothing => false,
            Take::Some(take) => {
                cut(member, take);
                true
            }
        }),
        Value::Array(elements) => elements.iter_mut().for_each(|element| cut(element, take)),
        _ => {}
    }
}

/// An object without `metadata.managedFields`.
pub fn lean(member: &str) -> Take {
    if member == "metadata" { Take::Some(metadata) } else { Take::All }
}

/// An object without `metadata.managedFields` and `spec`.
pub fn state(member: &str) -> Take {
    if member == "spec" { Take::Nothing } else { lean(member) }
}

/// Metadata without `managedFields`.
pub fn metadata(member: &str) -> Take {
    if member == "managedFields" { Take::Nothing } else { Take::All }
}

/// Reads a JSON value; of objects, only the members that the function chooses.
#[derive(Clone, Copy)]
pub struct Taking(pub fn(&str) -> Take);

impl<'de> DeserializeSeed<'de> for Taking {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Taking {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = match (self.0)(&name) {
                Take::All => members.next_value()?,
                Take::Some(take) => members.next_value_seed(Taking(take))?,
                Take::Nothing => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taken(object: &Value, take: fn(&str) -> Take) -> Value {
        let read =
            Taking(take).deserialize(&mut serde_json::Deserializer::from_str(&object.to_string())).expect("JSON");
        let mut whole = object.clone();
        cut(&mut whole, take);
        assert_eq!(whole, read, "cut or read");
        assert_eq!(copied(object, take), read, "copied or read");
        read
    }

    #[test]
    fn a_state_is_without_what_was_asked_for() {
        let object =
            json!({"kind": "K", "metadata": {"name": "a", "managedFields": [1]}, "spec": {"x": 1}, "status": {"y": 2}});
        assert_eq!(taken(&object, state), json!({"kind": "K", "metadata": {"name": "a"}, "status": {"y": 2}}));
    }

    #[test]
    fn what_is_not_wanted_is_not_there_in_lists_either() {
        let resources = |name: &str| if name == "resources" { Take::All } else { Take::Nothing };
        fn containers(name: &str) -> Take {
            let resources = |name: &str| if name == "resources" { Take::All } else { Take::Nothing };
            if name == "containers" { Take::Some(resources) } else { Take::Nothing }
        }
        let spec = json!({"containers": [{"image": "x", "resources": {"a": [1, -2, 0.5, null, true, "é\n"]}}, {"image": "y"}], "x": [{}]});
        assert_eq!(
            taken(&spec, containers),
            json!({"containers": [{"resources": {"a": [1, -2, 0.5, null, true, "é\n"]}}, {}]})
        );
        for scalar in [json!(null), json!(true), json!(-1), json!(1), json!(1.5), json!("a")] {
            assert_eq!(taken(&scalar, resources), scalar);
            assert_eq!(taken(&json!({ "containers": scalar }), containers), json!({ "containers": scalar }));
        }
    }
}
