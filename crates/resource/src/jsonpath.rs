//! The JSONPath of printer columns, selectable fields and scale paths (`k8s.io/client-go/util/jsonpath`, the part that CRDs
//! may use): members, `['quoted.names']`, escaped dots, indices (negative too), `[*]`, and filters by equality.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    /// start, end
    Slice(Option<i64>, Option<i64>),
    All,
    /// `?(@.path == value)`
    Filter(Vec<Step>, Comparison, Value),
    /// `..name`
    Descend(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Exists,
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Parses `.a.b`, with or without braces and the leading dot or `$`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = step(rest, &mut steps)?;
        }
        Some(Self(steps))
    }

    /// All values that the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        walk(&self.0, value)
    }
}

/// Takes one step off the text.
fn step<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    if let Some(rest) = text.strip_prefix("..") {
        let (name, rest) = member(rest);
        steps.push(Step::Descend(name));
        return Some(rest);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let end = closing(rest)?;
        let (inner, rest) = (&rest[..end], &rest[end + 1..]);
        steps.push(bracket(inner.trim())?);
        return Some(rest);
    }
    let rest = text.strip_prefix('.').unwrap_or(text);
    if rest.is_empty() || rest.starts_with('[') {
        return Some(rest);
    }
    let (name, rest) = member(rest);
    steps.push(if name == "*" { Step::All } else { Step::Member(name) });
    Some(rest)
}

fn member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (name, &text[at..]),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket ends that has been opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|q| text.strip_prefix(q)?.strip_suffix(q))
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(name) = unquoted(inner) {
        return Some(Step::Member(name.to_owned()));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let (path, comparison, value) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some((path, value)), _) => (path, Comparison::Equal, literal(value.trim())?),
            (_, Some((path, value))) => (path, Comparison::NotEqual, literal(value.trim())?),
            _ => (filter, Comparison::Exists, Value::Null),
        };
        let path = JsonPath::parse(path.trim().strip_prefix('@')?)?;
        return Some(Step::Filter(path.0, comparison, value));
    }
    if let Some((start, end)) = inner.split_once(':') {
        let number = |text: &str| if text.trim().is_empty() { Some(None) } else { text.trim().parse().ok().map(Some) };
        return Some(Step::Slice(number(start)?, number(end)?));
    }
    inner.parse().ok().map(Step::Index)
}

fn literal(text: &str) -> Option<Value> {
    match unquoted(text) {
        Some(text) => Some(text.into()),
        None => serde_json::from_str(text).ok(),
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let Some((first, rest)) = steps.split_first() else { return vec![value] };
    let next: Vec<&Value> = match first {
        Step::Member(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => value.as_array().and_then(|list| at(list, *index)).into_iter().collect(),
        Step::Slice(start, end) => value.as_array().map_or_else(Vec::new, |list| slice(list, *start, *end)),
        Step::All => children(value),
        Step::Filter(path, comparison, wanted) => children(value)
            .into_iter()
            .filter(|item| {
                let found = walk(path, item);
                match comparison {
                    Comparison::Equal => found.contains(&wanted),
                    Comparison::NotEqual => !found.is_empty() && found.iter().all(|v| *v != wanted),
                    Comparison::Exists => !found.is_empty(),
                }
            })
            .collect(),
        Step::Descend(name) => {
            let mut out = Vec::new();
            descend(value, name, &mut out);
            out
        }
    };
    next.into_iter().flat_map(|v| walk(rest, v)).collect()
}

fn descend<'a>(value: &'a Value, name: &str, out: &mut Vec<&'a Value>) {
    if let Some(found) = value.get(name) {
        out.push(found);
    }
    for child in children(value) {
        descend(child, name, out);
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

/// A place in a list; negative ones count from its end.
fn place(len: usize, index: i64) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    usize::try_from(if index < 0 { index + len } else { index }).ok()
}

fn at(list: &[Value], index: i64) -> Option<&Value> {
    list.get(place(list.len(), index)?)
}

fn slice(list: &[Value], start: Option<i64>, end: Option<i64>) -> Vec<&Value> {
    let start = place(list.len(), start.unwrap_or(0)).unwrap_or(0);
    let end = end.map_or(list.len(), |end| place(list.len(), end).unwrap_or(0)).min(list.len());
    if start >= end { Vec::new() } else { list[start..end].iter().collect() }
}

/// The value at a path of plain members (`spec.color`, also with a leading dot).
pub fn simple<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    JsonPath::parse(path)?.find(value).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds() {
        let value = json!({"a": {"b.c": 1}, "l": [{"t": "x", "v": 1}, {"t": "y", "v": 2}]});
        for (path, found) in [
            (".a['b.c']", json!([1])),
            (".a.b\\.c", json!([1])),
            (".l[-1:].t", json!(["y"])),
            (".l[-1].t", json!(["y"])),
            (".l[?(@.t==\"x\")].v", json!([1])),
            (".l[*].v", json!([1, 2])),
            ("$.l[0].v", json!([1])),
            ("{.l[5].v}", json!([])),
            (".none.more", json!([])),
        ] {
            assert_eq!(json!(JsonPath::parse(path).unwrap().find(&value)), found, "{path}");
        }
    }
}
