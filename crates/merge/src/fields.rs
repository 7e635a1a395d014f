//! Sets of fields, as managed fields record them (`FieldsV1`,
//! `sigs.k8s.io/structured-merge-diff/fieldpath`).
//!
//! A set is a tree. A node may be a member of the set itself, have members below it, or both; that a field is a member
//! says nothing of the fields below it.

use crate::gotext;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// One step of a path.
#[derive(Clone, Debug)]
pub enum Element {
    /// A member of an object.
    Field(String),
    /// The element of an associative list with these keys, sorted by name.
    Key(Vec<(String, Value)>),
    /// The element of a set.
    Value(Value),
    /// A position in a list.
    Index(usize),
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// As `FieldsV1` writes it: `f:name`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let object: Map<String, Value> = keys.iter().cloned().collect();
                format!("k:{}", Value::Object(object))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(2)?;
        match kind {
            "f:" => Some(Self::Field(rest.to_owned())),
            "k:" => match serde_json::from_str(rest).ok()? {
                Value::Object(keys) => {
                    let mut keys: Vec<(String, Value)> = keys.into_iter().collect();
                    keys.sort_by(|a, b| a.0.cmp(&b.0));
                    Some(Self::Key(keys))
                }
                _ => None,
            },
            "v:" => serde_json::from_str(rest).ok().map(Self::Value),
            "i:" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    /// Whether [`Element::encode`] writes equal elements alike: numbers are equal by value.
    fn is_written_alike(&self) -> bool {
        match self {
            Self::Field(_) | Self::Index(_) => true,
            Self::Key(keys) => keys.iter().all(|(_, value)| value.is_string()),
            Self::Value(value) => value.is_string(),
        }
    }

    /// As messages show it: `.name`, `[name="a"]`, `[="x"]`, `[0]`.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(keys) => {
                let parts: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
                format!("[{}]", parts.join(","))
            }
            Self::Value(value) => format!("[={}]", shown(value)),
            Self::Index(index) => format!("[{index}]"),
        }
    }
}

/// A value as messages show it: strings quoted, objects as nothing but their members.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => gotext::quoted(text),
        Value::Null => "null".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(members) => members.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect(),
        other => gotext::plain(other),
    }
}

/// A total order of JSON values in which numbers compare by value.
fn compare(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or(f64::NAN).total_cmp(&y.as_f64().unwrap_or(f64::NAN)),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            x.iter().zip(y).map(|(x, y)| compare(x, y)).find(|o| o.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => x
            .iter()
            .zip(y)
            .map(|((k, x), (l, y))| k.cmp(l).then_with(|| compare(x, y)))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| x.len().cmp(&y.len())),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => a
                .iter()
                .zip(b)
                .map(|((n, x), (m, y))| n.cmp(m).then_with(|| compare(x, y)))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len())),
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) member: bool,
    pub(crate) below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

/// A set of fields. No node is kept that has no member in it, so equal sets are equal trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: BTreeMap<Element, Node>,
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.nodes.values().map(|node| usize::from(node.member) + node.below.len()).sum()
    }

    /// Adds the field at `path`; the empty path stands for the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        // most nodes of a path are there already
        let node = match self.nodes.get_mut(first) {
            Some(node) => node,
            None => self.nodes.entry(first.clone()).or_default(),
        };
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Whether the field at `path` is a member.
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.nodes.get(first).is_some_and(|node| if rest.is_empty() { node.member } else { node.below.has(rest) })
    }

    pub(crate) fn node(&self, element: &Element) -> Option<&Node> {
        self.nodes.get(element)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Element, &Node)> {
        self.nodes.iter()
    }

    /// Adds a child with what is below it; nothing is added for an empty one.
    pub(crate) fn put(&mut self, element: Element, member: bool, below: FieldSet) {
        if !member && below.is_empty() {
            return;
        }
        match self.nodes.entry(element) {
            Entry::Vacant(vacant) => {
                vacant.insert(Node { member, below });
            }
            Entry::Occupied(mut occupied) => {
                let node = occupied.get_mut();
                node.member |= member;
                node.below = std::mem::take(&mut node.below).union(below);
            }
        }
    }

    /// Members of either.
    #[must_use]
    pub fn union(self, other: FieldSet) -> FieldSet {
        let (mut large, small) = if self.nodes.len() < other.nodes.len() { (other, self) } else { (self, other) };
        for (element, node) in small.nodes {
            large.put(element, node.member, node.below);
        }
        large
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet::default();
        for (element, node) in &self.nodes {
            if let Some(theirs) = other.nodes.get(element) {
                let below = node.below.intersection(&theirs.below);
                let both = Node { member: node.member && theirs.member, below };
                if !both.is_empty() {
                    out.nodes.insert(element.clone(), both);
                }
            }
        }
        out
    }

    /// Members of `self` that are not members of `other`.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return self.clone();
        }
        let mut out = FieldSet::default();
        for (element, node) in &self.nodes {
            let left = match other.nodes.get(element) {
                None => node.clone(),
                Some(theirs) => {
                    Node { member: node.member && !theirs.member, below: node.below.difference(&theirs.below) }
                }
            };
            if !left.is_empty() {
                out.nodes.insert(element.clone(), left);
            }
        }
        out
    }

    /// As [`FieldSet::difference`], but what is below a member of `other` goes with it.
    #[must_use]
    pub fn without_subtrees(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet::default();
        for (element, node) in &self.nodes {
            let left = match other.nodes.get(element) {
                None => node.clone(),
                Some(theirs) if theirs.member => continue,
                Some(theirs) => Node { member: node.member, below: node.below.without_subtrees(&theirs.below) },
            };
            if !left.is_empty() {
                out.nodes.insert(element.clone(), left);
            }
        }
        out
    }

    /// What of `self` is on the way to, at, or below a member of `pattern`.
    #[must_use]
    pub fn only_subtrees(&self, pattern: &FieldSet) -> FieldSet {
        let mut out = FieldSet::default();
        for (element, node) in &self.nodes {
            let left = match pattern.nodes.get(element) {
                None => continue,
                Some(theirs) if theirs.member => node.clone(),
                Some(theirs) => Node { member: node.member, below: node.below.only_subtrees(&theirs.below) },
            };
            if !left.is_empty() {
                out.nodes.insert(element.clone(), left);
            }
        }
        out
    }

    /// Whether a member of it may be in `fields`, which [`FieldSet::to_json`] has written; `false` is certain.
    pub(crate) fn may_meet(&self, fields: &Map<String, Value>) -> bool {
        self.nodes.iter().any(|(element, node)| {
            if !element.is_written_alike() {
                return true;
            }
            let Some(Value::Object(below)) = fields.get(&element.encode()) else { return false };
            let is_member = below.is_empty() || below.contains_key(".");
            (node.member && is_member) || node.below.may_meet(below)
        })
    }

    /// Calls `visit` with every member as messages show it, members of a node before those below its children.
    pub fn visit(&self, visit: &mut impl FnMut(&[Element])) {
        self.visit_below(&mut Vec::new(), visit);
    }

    fn visit_below(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for (element, node) in &self.nodes {
            if node.member {
                path.push(element.clone());
                visit(path);
                path.pop();
            }
        }
        for (element, node) in &self.nodes {
            if !node.below.is_empty() {
                path.push(element.clone());
                node.below.visit_below(path, visit);
                path.pop();
            }
        }
    }

    /// As `fieldsV1`.
    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (element, node) in &self.nodes {
            let mut below = match node.below.to_json() {
                Value::Object(below) => below,
                _ => Map::new(),
            };
            if node.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), Value::Object(below));
        }
        Value::Object(out)
    }

    /// From `fieldsV1`; `None` where that is no such set. Elements of unknown kinds are left out.
    pub fn from_json(value: &Value) -> Option<Self> {
        let mut out = FieldSet::default();
        for (name, below) in value.as_object()? {
            if name == "." {
                continue;
            }
            let children = below.as_object()?;
            let Some(element) = Element::decode(name) else {
                if name.as_bytes().get(1) == Some(&b':') && !matches!(name.as_bytes()[0], b'k' | b'v' | b'i') {
                    continue;
                }
                return None;
            };
            let member = children.is_empty() || children.contains_key(".");
            out.put(element, member, Self::from_json(below)?);
        }
        Some(out)
    }
}

/// A path as messages show it: `.spec.containers[name="a"].image`.
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_json(&value).expect("a set")
    }

    #[test]
    fn is_written_as_it_was_read() {
        let cases = [
            json!({}),
            json!({"f:data": {}}),
            json!({"f:data": {".": {}, "f:k": {}}}),
            json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}),
            json!({"f:tags": {"v:\"x\"": {}, "v:3": {}}, "f:l": {"i:0": {}}}),
        ];
        for case in cases {
            assert_eq!(set(case.clone()).to_json(), case);
        }
    }

    #[test]
    fn computes() {
        let a = set(json!({"f:x": {".": {}, "f:y": {}, "f:z": {}}, "f:w": {}}));
        let b = set(json!({"f:x": {"f:y": {}}, "f:w": {}}));
        assert_eq!(a.difference(&b).to_json(), json!({"f:x": {".": {}, "f:z": {}}}));
        assert_eq!(a.intersection(&b), b);
        assert_eq!(b.clone().union(a.clone()), a);
        let x = set(json!({"f:x": {}}));
        assert_eq!(a.difference(&x).to_json(), json!({"f:w": {}, "f:x": {"f:y": {}, "f:z": {}}}));
        assert_eq!(a.without_subtrees(&x).to_json(), json!({"f:w": {}}));
        assert_eq!(a.only_subtrees(&x).to_json(), json!({"f:x": {".": {}, "f:y": {}, "f:z": {}}}));
        assert_eq!(a.len(), 4);
    }

    #[test]
    fn members_are_visited_before_what_is_below() {
        let s = set(json!({"f:a": {"f:b": {"f:c": {}}}, "f:z": {}, "f:k": {"k:{\"n\":1}": {".": {}}}}));
        let mut seen = Vec::new();
        s.visit(&mut |path| seen.push(path_text(path)));
        assert_eq!(seen, [".z", ".a.b.c", ".k[n=1]"]);
    }
}
