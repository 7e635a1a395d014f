//! JSON values in order, so that equal ones are found without comparing each with each: lists come from outside, and may be
//! as long as a request.

use serde_json::{Number, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A value that is a key: equal and ordered as [`compare`] says.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a>(pub &'a Value);

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.0, other.0)
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Ordered<'_> {}

/// A total order in which those values are equal that `==` calls equal: 1 and 1.0 differ.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differs = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            differs.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let one = |((name, a), (other, b)): ((&String, &Value), (&String, &Value))| {
                name.cmp(other).then_with(|| compare(a, b))
            };
            let differs = a.iter().zip(b).map(one).find(|order| order.is_ne());
            differs.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

fn numbers(a: &Number, b: &Number) -> Ordering {
    let integer = |number: &Number| number.as_i128();
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        // adding zero makes one of the two zeros
        (None, None) => (a.as_f64().unwrap_or(0.0) + 0.0).total_cmp(&(b.as_f64().unwrap_or(0.0) + 0.0)),
    }
}

/// What stands first under each key.
pub(crate) fn first_of<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        out.entry(key).or_insert(value);
    }
    out
}

/// An element of an associative list, compared by the list's keys where it stands: keys that a schema names times elements may be
/// far more than either.
pub struct Keyed<'a> {
    pub keys: &'a [String],
    pub item: &'a Value,
}

impl Ord for Keyed<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.item, other.item) {
            (Value::Object(one), Value::Object(two)) => self
                .keys
                .iter()
                .map(|key| one.get(key).map(Ordered).cmp(&two.get(key).map(Ordered)))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
            (one, two) => Ordered(one).cmp(&Ordered(two)),
        }
    }
}

impl PartialOrd for Keyed<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Keyed<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Keyed<'_> {}

/// The positions at which a value stands that stood before, each value once: that of its second occurrence.
pub fn repeated<K: Ord>(keys: impl IntoIterator<Item = K>) -> Vec<usize> {
    let mut seen: BTreeMap<K, bool> = BTreeMap::new();
    let mut out = Vec::new();
    for (position, key) in keys.into_iter().enumerate() {
        match seen.get_mut(&key) {
            None => {
                seen.insert(key, false);
            }
            Some(told) if *told => {}
            Some(told) => {
                *told = true;
                out.push(position);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn values() -> impl Strategy<Value = Value> {
        let few = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            prop::sample::select(vec![
                json!(0),
                json!(-0.0),
                json!(0.0),
                json!(1),
                json!(1.0),
                json!(-1),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(1e300)
            ]),
            "[ab]{0,2}".prop_map(Value::from),
        ];
        few.prop_recursive(3, 12, 3, |below| {
            prop_oneof![
                prop::collection::vec(below.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", below, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_order_is_total_and_agrees_with_equality(a in values(), b in values(), c in values()) {
            prop_assert_eq!(compare(&a, &b).is_eq(), a == b);
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }

        #[test]
        fn repetitions_are_those_that_comparing_each_with_each_finds(list in prop::collection::vec(values(), 0..12)) {
            let naive: Vec<usize> = (0..list.len())
                .filter(|&i| list[..i].iter().filter(|other| **other == list[i]).count() == 1)
                .collect();
            prop_assert_eq!(repeated(list.iter().map(Ordered)), naive);
        }
    }
}
