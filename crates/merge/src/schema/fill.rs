//! Defaults (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting`).

use super::Schema;
use crate::bounds;
use serde_json::Value;

/// Defaults on their way into an object.
///
/// A list of a million empty elements, each with a default of a megabyte, would fill the memory. So no default is filled in
/// once those that were are too large for any object: what comes of it is refused for its size, whatever else it lacks.
struct Filling {
    drop_nulls: bool,
    left: usize,
}

impl Filling {
    fn new(drop_nulls: bool) -> Self {
        Self { drop_nulls, left: bounds::BYTES_MAX + 1 }
    }

    fn take(&mut self, default: &Value) -> Option<Value> {
        if self.left == 0 {
            return None;
        }
        self.left = self.left.saturating_sub(bounds::bytes(default));
        Some(default.clone())
    }
}

impl Schema {
    /// Fills in defaults, as the API server does on every read of a request or of storage.
    ///
    /// A null where null is not allowed counts as absent: the default takes its place, or the field goes.
    pub fn default(&self, value: &mut Value) {
        self.fill(value, &mut Filling::new(true));
    }

    /// Fills in defaults once more after mutating admission: a null that a webhook left is a fault that validation finds.
    pub fn default_again(&self, value: &mut Value) {
        self.fill(value, &mut Filling::new(false));
    }

    fn fill(&self, value: &mut Value, filling: &mut Filling) {
        match value {
            Value::Object(members) => {
                if filling.drop_nulls {
                    members.retain(|name, member| {
                        !member.is_null() || self.member(name).is_none_or(|s| s.nullable || s.default.is_some())
                    });
                }
                if self.facts().defaults {
                    for (name, property) in &self.properties {
                        let Some(default) = &property.default else { continue };
                        match members.get_mut(name) {
                            Some(member) if member.is_null() && !property.nullable => {
                                *member = filling.take(default).unwrap_or_default();
                            }
                            Some(_) => {}
                            None => {
                                members.extend(filling.take(default).map(|value| (name.clone(), value)));
                            }
                        }
                    }
                }
                for (name, member) in members {
                    let Some(schema) = self.member(name) else { continue };
                    if member.is_null()
                        && !schema.nullable
                        && let Some(default) = &schema.default
                    {
                        *member = filling.take(default).unwrap_or_default();
                    }
                    schema.fill(member, filling);
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    if item.is_null()
                        && !schema.nullable
                        && let Some(default) = &schema.default
                    {
                        *item = filling.take(default).unwrap_or_default();
                    }
                    schema.fill(item, filling);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn fills_as_the_api_server_does() {
        let schema = Schema::node_from_openapi(&json!({"type":"object","properties":{
            "n":{"type":"integer","default":1},
            "nn":{"type":"string","nullable":true,"default":"z"},
            "o":{"type":"object","default":{"a":1},"properties":{
                "a":{"type":"integer"},"c":{"type":"string","default":"deep"}}},
            "p":{"type":"object","properties":{"q":{"type":"string","default":"x"}}},
            "l":{"type":"array","items":{"type":"object","properties":{"v":{"type":"string","default":"lv"}}}},
            "m":{"type":"object","additionalProperties":{"type":"object","properties":{"d":{"type":"integer","default":7}}}},
            "s":{"type":"string"},
            "t":{"type":"object","additionalProperties":{"type":"string"}},
            "u":{"type":"object","additionalProperties":{"type":"string","nullable":true}},
            "w":{"type":"object","additionalProperties":{"type":"string","default":"x"}}
        }}))
        .expect("a schema");
        let cases = [
            (json!({}), json!({"n":1,"nn":"z","o":{"a":1,"c":"deep"}})),
            (json!({"n":null,"nn":null,"o":null,"s":null}), json!({"n":1,"nn":null,"o":{"a":1,"c":"deep"}})),
            (
                json!({"n":5,"o":{},"p":{},"l":[{},{"v":"own"}],"m":{"x":{},"y":{"d":1}}}),
                json!({"n":5,"nn":"z","o":{"c":"deep"},"p":{"q":"x"},"l":[{"v":"lv"},{"v":"own"}],"m":{"x":{"d":7},"y":{"d":1}}}),
            ),
            (
                json!({"t":{"a":null,"b":"c"},"u":{"a":null},"w":{"a":null},"unknown":null}),
                json!({"n":1,"nn":"z","o":{"a":1,"c":"deep"},"t":{"b":"c"},"u":{"a":null},"w":{"a":"x"},"unknown":null}),
            ),
        ];
        for (mut value, expected) in cases {
            schema.default(&mut value);
            assert_eq!(value, expected);
        }
        let mut left_by_a_webhook = json!({"n":null,"s":null});
        schema.default_again(&mut left_by_a_webhook);
        assert_eq!(left_by_a_webhook, json!({"n":1,"nn":"z","o":{"a":1,"c":"deep"},"s":null}));
    }

    #[test]
    fn defaults_do_not_multiply_without_bound() {
        let schema = Schema::node_from_openapi(&json!({"type":"object","properties":{
            "l":{"type":"array","items":{"type":"object","properties":{"v":{"type":"string","default":"x".repeat(1 << 20)}}}}}}))
        .expect("a schema");
        let mut value = json!({"l": vec![json!({}); 100_000]});
        schema.default(&mut value);
        assert!(crate::bounds::bytes(&value) < 4 << 20);
        assert_eq!(crate::bounds::check(&value), Err(crate::bounds::Exceeded::Bytes));
    }
}
