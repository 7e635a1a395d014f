//! Label selectors as Kubernetes' `metav1.LabelSelector` means them.

use serde_json::{Map, Value};

/// A parsed selector. An empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// From the JSON of a `LabelSelector`; `None` where it is absent or holds an operator that does not exist: such a
    /// selector selects nothing.
    pub fn parse(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let operator = Operator::In(vec![value.as_str()?.to_owned()]);
            requirements.push(Requirement { key: key.clone(), operator });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let values = expression["values"].as_array().into_iter().flatten();
            let values = || values.filter_map(Value::as_str).map(str::to_owned).collect();
            let operator = match expression["operator"].as_str()? {
                "In" => Operator::In(values()),
                "NotIn" => Operator::NotIn(values()),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            requirements.push(Requirement { key: expression["key"].as_str()?.to_owned(), operator });
        }
        Some(Self(requirements))
    }

    /// Whether there is nothing that it asks for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels (`metadata.labels`, or nothing) satisfy all requirements. A label that is absent satisfies
    /// `NotIn`.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            match operator {
                Operator::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
                Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Whether the object's labels satisfy it.
    pub fn selects(&self, object: &Value) -> bool {
        self.matches(object["metadata"]["labels"].as_object())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selects_as_kubernetes_does() {
        let cases = [
            (json!({}), json!({"a": "1"}), true),
            (json!({"matchLabels": {"a": "1"}}), json!({"a": "1", "b": "2"}), true),
            (json!({"matchLabels": {"a": "1"}}), json!({"a": "2"}), false),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
                json!({"a": "2"}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), json!({}), true),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                json!({"a": "1"}),
                false,
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), json!({"a": ""}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), json!({"a": ""}), false),
        ];
        for (selector, labels, want) in cases {
            let parsed = Selector::parse(&selector).expect("a valid selector");
            assert_eq!(parsed.matches(labels.as_object()), want, "{selector} on {labels}");
        }
        assert_eq!(Selector::parse(&json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})), None);
        assert_eq!(Selector::parse(&Value::Null), None);
    }
}
