//! The JSONPath of printer columns, selectable fields and scale paths (`k8s.io/client-go/util/jsonpath`, the part that CRDs
//! may use): members, `['quoted.names']`, escaped dots, indices (negative too), slices, unions, `[*]`, and filters.

use serde_json::Value;
use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    /// start, end, step; of lists alone
    Slice(Option<i64>, Option<i64>, Option<i64>),
    All,
    /// `['a','b']`
    Union(Vec<Step>),
    /// `?(@.path)`
    Exists(Side),
    /// `?(@.path == value)`
    Filter(Side, String, Side),
    /// `..name`
    Descend(String),
}

/// A side of a comparison.
#[derive(Clone, Debug, PartialEq)]
enum Side {
    Path(Vec<Step>),
    Literal(Value),
    /// A word that means nothing: nothing compares with it.
    Word,
}

impl Side {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        match text.strip_prefix('@') {
            Some(path) => Some(Self::Path(JsonPath::parse(path)?.0)),
            None if !["true", "false"].contains(&text) && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                text.chars().all(|c| c.is_ascii_alphanumeric()).then_some(Self::Word)
            }
            None => literal(text).map(Self::Literal),
        }
    }

    fn find<'a>(&'a self, item: &'a Value) -> Option<Vec<&'a Value>> {
        match self {
            Self::Path(steps) => walk(steps, vec![item]),
            Self::Literal(value) => Some(vec![value]),
            Self::Word => None,
        }
    }
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

    /// All values that the path leads to; none where it does not fit the value, such as an index beyond the end of a list.
    pub fn find<'a>(&'a self, value: &'a Value) -> Vec<&'a Value> {
        walk(&self.0, vec![value]).unwrap_or_default()
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
    if name.contains(['{', ']']) {
        return None;
    }
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
        return Some(Step::Slice(None, None, None));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return filtered(filter);
    }
    if inner.contains(',') {
        return inner.split(',').map(|part| bracket(part.trim())).collect::<Option<_>>().map(Step::Union);
    }
    if let Some(name) = inner.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) {
        return Some(Step::Member(name.to_owned()));
    }
    if let Some((start, rest)) = inner.split_once(':') {
        let (end, step) = rest.split_once(':').unwrap_or((rest, ""));
        let number = |text: &str| if text.trim().is_empty() { Some(None) } else { text.trim().parse().ok().map(Some) };
        return Some(Step::Slice(number(start)?, number(end)?, number(step)?));
    }
    inner.parse().ok().map(Step::Index)
}

/// What is written between `?(` and `)`: the first run of comparing characters is the operator.
fn filtered(filter: &str) -> Option<Step> {
    let compares = |c: char| "!<>=".contains(c);
    let Some(start) = filter.find(compares) else { return Side::parse(filter).map(Step::Exists) };
    let (left, rest) = filter.split_at(start);
    let (operator, right) = rest.split_at(rest.find(|c| !compares(c))?);
    Some(Step::Filter(Side::parse(left)?, operator.to_owned(), Side::parse(right)?))
}

fn literal(text: &str) -> Option<Value> {
    match unquoted(text) {
        Some(text) => Some(text.into()),
        None => serde_json::from_str(text).ok(),
    }
}

/// All values that the steps lead to from these; `None`: they do not fit.
fn walk<'a>(steps: &'a [Step], mut values: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
    for step in steps {
        let mut next = Vec::new();
        for value in values {
            take(step, value, &mut next)?;
        }
        values = next;
    }
    Some(values)
}

/// Adds what one step leads to.
fn take<'a>(step: &'a Step, value: &'a Value, out: &mut Vec<&'a Value>) -> Option<()> {
    match step {
        Step::Member(name) => out.extend(value.get(name)),
        Step::Index(_) | Step::Slice(..) if value.is_null() => {}
        Step::Index(index) => {
            let list = value.as_array()?;
            out.push(list.get(place(list.len(), *index)?)?);
        }
        Step::Slice(start, end, step) => {
            let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
            out.extend(slice(value.as_array()?, *start, *end)?.iter().step_by(step));
        }
        Step::All => out.extend(children(value)),
        Step::Union(parts) => {
            for part in parts {
                take(part, value, out)?;
            }
        }
        Step::Exists(side) => {
            for item in value.as_array()? {
                if side.find(item).is_some_and(|found| !found.is_empty()) {
                    out.push(item);
                }
            }
        }
        Step::Filter(left, operator, right) => {
            for item in value.as_array()? {
                let (left, right) = (left.find(item)?, right.find(item)?);
                let ([left], [right]) = (left.as_slice(), right.as_slice()) else {
                    // two things at once cannot be compared, and nothing compares with nothing
                    match left.len() > 1 || (!left.is_empty() && right.len() > 1) {
                        true => return None,
                        false => continue,
                    }
                };
                if compare(left, operator, right)? {
                    out.push(item);
                }
            }
        }
        Step::Descend(name) => descend(value, name, out),
    }
    Some(())
}

/// As Go's templates compare: values of one kind alone, where whole numbers and others are two.
fn compare(left: &Value, operator: &str, right: &Value) -> Option<bool> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
            _ => return None,
        },
        (Value::Bool(left), Value::Bool(right)) => {
            return match operator {
                "==" => Some(left == right),
                "!=" => Some(left != right),
                _ => None,
            };
        }
        _ => return None,
    };
    match operator {
        "==" => Some(order.is_some_and(Ordering::is_eq)),
        "!=" => Some(order.is_none_or(Ordering::is_ne)),
        "<" => Some(order.is_some_and(Ordering::is_lt)),
        "<=" => Some(order.is_some_and(Ordering::is_le)),
        ">" => Some(order.is_some_and(Ordering::is_gt)),
        ">=" => Some(order.is_some_and(Ordering::is_ge)),
        _ => None,
    }
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

fn slice(list: &[Value], start: Option<i64>, end: Option<i64>) -> Option<&[Value]> {
    let start = place(list.len(), start.unwrap_or(0))?;
    let end = end.map_or(Some(list.len()), |end| place(list.len(), end))?;
    // nothing may be asked for anywhere
    if start == end { Some(&[]) } else { list.get(start..end) }
}

/// The value at a path of plain members (`spec.color`, also with a leading dot).
pub fn simple<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = value;
    for step in JsonPath::parse(path)?.0 {
        at = match step {
            Step::Member(name) => at.get(name)?,
            Step::Index(index) => at.as_array().and_then(|list| list.get(place(list.len(), index)?))?,
            _ => return None,
        };
    }
    Some(at)
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
            (".l[0:3].t", json!([])),
            (".a[*]", json!([])),
            (".l[0]['v','t']", json!([1, "x"])),
            (".l[0:2:2].v", json!([1])),
            (".l[0:1:-1].v", json!([])),
        ] {
            assert_eq!(json!(JsonPath::parse(path).unwrap().find(&value)), found, "{path}");
        }
    }

    #[test]
    fn some_texts_are_no_paths() {
        for text in [".a[", ".a[x]", ".a[\"x\"]", ".a['x", ".a{", ".a]", ".a[?(@.b==1 && @.c==2)]", ".a[?(@.b==\"x\")"]
        {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
    }

    #[test]
    fn filters() {
        let list = json!([
            {"t": "x", "u": "x", "v": 1, "w": null, "b": true, "f": 1.5, "list": [1, 2], "o": {}},
            {"t": "y", "u": "x", "v": 2, "w": 0, "f": 2.5},
            {"t": "a==b", "v": 3, "o": {}},
        ]);
        let value = json!({"l": list, "m": {"a": {"t": "x"}}});
        for (filter, found) in [
            ("@.v>1", json!(["y", "a==b"])),
            ("@.v<=2", json!(["x", "y"])),
            ("@.t!=\"x\"", json!(["y", "a==b"])),
            ("@.w", json!(["x", "y"])),
            ("@.v==1.0", json!([])),
            ("@.v>\"a\"", json!([])),
            ("@.t==@.u", json!(["x"])),
            ("@.b==true", json!(["x"])),
            ("@.b>true", json!([])),
            ("@.t==\"a==b\"", json!(["a==b"])),
            ("@.t>=\"x\"", json!(["x", "y"])),
            ("@.f<2", json!([])),
            ("@.f<2.0", json!(["x"])),
            ("@.list[*]==1", json!([])),
            (" @.t == 'y' ", json!(["y"])),
            ("@.list[0]==1", json!(["x"])),
            ("@.v=>1", json!([])),
            ("@.t==x", json!([])),
            ("t==\"x\"", json!([])),
            ("@.o==@.o", json!([])),
            ("\"x\"==@.t", json!(["x"])),
        ] {
            let path = format!(".l[?({filter})].t");
            assert_eq!(json!(JsonPath::parse(&path).unwrap().find(&value)), found, "{path}");
        }
        assert_eq!(JsonPath::parse(".m[?(@.t==\"x\")].t").unwrap().find(&value), Vec::<&Value>::new());
    }
}
