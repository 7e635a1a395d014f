//! JSON Patch (RFC 6902) as kube-apiserver understands it, which is `evanphx/json-patch` v4: looser than the RFC.
//!
//! Where it differs: a member that is missing from an object reads as null (so `test` against null, `replace` and
//! `copy` of it succeed), negative indices count from the end, an unknown member of an operation is ignored.

use crate::PatchError;
use crate::bounds::{self, DEPTH_MAX};
use serde_json::{Map, Value};

/// Most operations in one patch (`maxJSONPatchOperations` of the API server).
const OPERATIONS_MAX: usize = 10_000;

/// Most bytes by which `copy` may grow a document (the API server's limit on a request's body).
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Most values that all operations together may look at or shift: a second's work. Thousands of moves inside a list of
/// a hundred thousand elements would take minutes.
const WORK_MAX: usize = 50_000_000;

/// What a patch has used up.
#[derive(Default)]
struct Spent {
    copied: usize,
    work: usize,
}

impl Spent {
    fn work(&mut self, values: usize) -> Result<(), PatchError> {
        self.work = self.work.saturating_add(values);
        if self.work > WORK_MAX {
            return Err(PatchError::TooLarge(
                "The operations of the JSON patch take too much work together".to_owned(),
            ));
        }
        Ok(())
    }

    /// Refuses to put `value` where the document would become deeper than objects may be: each copy of a document into
    /// itself doubles the depth.
    fn fits(&mut self, path: &str, value: &Value) -> Result<(), PatchError> {
        let (depth, values) = bounds::extent(value);
        self.work(values)?;
        if path.matches('/').count().saturating_add(depth) > DEPTH_MAX {
            return Err(PatchError::Malformed(format!("JSON patch: {path}: {}", bounds::Exceeded::Depth)));
        }
        Ok(())
    }
}

/// `doc` after all operations of `patch`; none is applied if one fails.
///
/// # Errors
/// `Malformed` where `patch` is no list of operations or nests values too deeply, `TooLarge` beyond 10,000 operations, 3 MiB
/// of copies or a second's work, `Unprocessable` for everything that depends on the document.
pub fn apply(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(list) = patch else {
        let kind = go_kind(patch);
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch"
        )));
    };
    let mut operations = Vec::with_capacity(list.len());
    for operation in list {
        match operation {
            Value::Object(members) => operations.push(Some(members)),
            Value::Null => operations.push(None),
            other => {
                let kind = go_kind(other);
                return Err(PatchError::Malformed(format!(
                    "json: cannot unmarshal {kind} into Go value of type jsonpatch.Operation"
                )));
            }
        }
    }
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let mut out = doc.clone();
    let mut spent = Spent::default();
    let none = Map::new();
    for operation in operations {
        step(&mut out, operation.unwrap_or(&none), &mut spent)?;
    }
    Ok(out)
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn unprocessable<T>(message: String) -> Result<T, PatchError> {
    Err(PatchError::Unprocessable(message))
}

fn step(doc: &mut Value, operation: &Map<String, Value>, spent: &mut Spent) -> Result<(), PatchError> {
    let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    let text = |member: &str| match operation.get(member) {
        Some(Value::String(path)) => Ok(path.as_str()),
        Some(Value::Null) | None => unprocessable(format!("{kind} operation failed to decode {member}: missing value")),
        Some(_) => unprocessable(format!("{kind} operation failed to decode {member}: not a string")),
    };
    // An absent value reads as null, as the explicit null does.
    let value = operation.get("value").unwrap_or(&Value::Null);
    match kind {
        "add" => {
            let path = text("path")?;
            spent.fits(path, value)?;
            add(doc, path, value.clone(), Work::Add, spent)
        }
        "remove" => remove(doc, text("path")?, Work::Remove, spent).map(drop),
        "replace" => {
            let path = text("path")?;
            spent.fits(path, value)?;
            replace(doc, path, value)
        }
        "move" => {
            let from = text("from")?;
            let moved = remove(doc, from, Work::MoveFrom, spent)?;
            let path = text("path")?;
            spent.fits(path, &moved)?;
            add(doc, path, moved, Work::MoveTo, spent)
        }
        "copy" => {
            let from = text("from")?;
            let found = get(doc, from, Work::CopyFrom)?.cloned().unwrap_or(Value::Null);
            let path = text("path")?;
            spent.copied = spent.copied.saturating_add(found.to_string().len());
            if spent.copied > COPIED_BYTES_MAX {
                return Err(PatchError::TooLarge(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit \
                     {COPIED_BYTES_MAX}",
                    spent.copied
                )));
            }
            spent.fits(path, &found)?;
            add(doc, path, found, Work::CopyTo, spent)
        }
        "test" => {
            let path = text("path")?;
            let found = if path.is_empty() { Some(&*doc) } else { get(doc, path, Work::Test)? };
            if same(found.unwrap_or(&Value::Null), value) {
                Ok(())
            } else {
                Err(PatchError::TestFailed(format!("testing value {path} failed: test failed")))
            }
        }
        other => unprocessable(format!("Unexpected kind: {other}")),
    }
}

/// Equal as JSON documents; numbers by their text, as upstream compares them (`1` is not `1.0`).
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.to_string() == b.to_string(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// What an operation does at a path, which its errors say.
#[derive(Clone, Copy)]
enum Work {
    Add,
    Remove,
    Replace,
    Test,
    MoveFrom,
    MoveTo,
    CopyFrom,
    CopyTo,
}

impl Work {
    /// There is nothing that could hold what is at `path`.
    fn missing<T>(self, path: &str) -> Result<T, PatchError> {
        let why = match self {
            Self::Add => format!("add operation does not apply: doc is missing path: \"{path}\""),
            Self::Remove => format!("remove operation does not apply: doc is missing path: \"{path}\""),
            Self::Replace => format!("replace operation does not apply: doc is missing path: {path}"),
            Self::Test => format!("test operation does not apply: is missing path: {path}"),
            Self::MoveFrom => format!("move operation does not apply: doc is missing from path: {path}"),
            Self::MoveTo => format!("move operation does not apply: doc is missing destination path: {path}"),
            Self::CopyFrom => format!("copy operation does not apply: doc is missing from path: {path}"),
            Self::CopyTo => format!("copy operation does not apply: doc is missing destination path: {path}"),
        };
        unprocessable(format!("{why}: missing value"))
    }

    /// What holds it cannot be changed so.
    fn failed<T>(self, path: &str, why: &str) -> Result<T, PatchError> {
        unprocessable(match self {
            Self::Add => format!("error in add for path: '{path}': {why}"),
            Self::Remove => format!("error in remove for path: '{path}': {why}"),
            Self::Replace => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
            Self::Test => format!("error in test for path: '{path}': {why}"),
            // upstream shows the last step of this path alone
            Self::MoveFrom => {
                let last = segments(path).and_then(|mut parts| parts.pop()).unwrap_or_default();
                format!("error in move for path: '{last}': {why}")
            }
            Self::MoveTo => format!("error in move for path: '{path}': {why}"),
            Self::CopyFrom => format!("error in copy for from: '{path}': {why}"),
            Self::CopyTo => format!("error while adding value during copy: {why}"),
        })
    }
}

/// The segments of a JSON pointer; at least one must be there.
fn segments(path: &str) -> Option<Vec<String>> {
    let mut parts = path.split('/');
    parts.next();
    let decoded: Vec<String> = parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    if decoded.is_empty() { None } else { Some(decoded) }
}

/// An index of a list of `length`: negative ones count from the end.
fn index(segment: &str, length: usize) -> Result<usize, String> {
    let digits = segment.strip_prefix(['-', '+']).unwrap_or(segment);
    let number: i64 = match segment.parse() {
        Ok(number) if !digits.is_empty() => number,
        _ => return Err(format!("strconv.Atoi: parsing {segment:?}: invalid syntax")),
    };
    let invalid = || format!("Unable to access invalid index: {number}: invalid index referenced");
    let position = if number < 0 { number.saturating_add(i64::try_from(length).unwrap_or(i64::MAX)) } else { number };
    usize::try_from(position).map_err(|_| invalid()).and_then(|at| if at < length { Ok(at) } else { Err(invalid()) })
}

/// The container that holds the last segment of `path`, and that segment.
fn parent<'a>(doc: &'a mut Value, path: &str, work: Work) -> Result<(&'a mut Value, String), PatchError> {
    let Some(mut parts) = segments(path) else { return work.missing(path) };
    let last = parts.pop().unwrap_or_default();
    let mut at = doc;
    for part in &parts {
        let next = match at {
            Value::Object(members) => members.get_mut(part),
            Value::Array(items) => index(part, items.len()).ok().and_then(|i| items.get_mut(i)),
            _ => None,
        };
        match next {
            Some(next) if next.is_object() || next.is_array() => at = next,
            _ => return work.missing(path),
        }
    }
    if at.is_object() || at.is_array() { Ok((at, last)) } else { work.missing(path) }
}

/// What is at `path`; `None` for a member that its object lacks.
fn get<'a>(doc: &'a mut Value, path: &str, work: Work) -> Result<Option<&'a Value>, PatchError> {
    let (container, last) = parent(doc, path, work)?;
    match container {
        Value::Array(items) => match index(&last, items.len()) {
            Ok(at) => Ok(items.get(at)),
            Err(why) => work.failed(path, &why),
        },
        other => Ok(other.get(&last)),
    }
}

fn add(doc: &mut Value, path: &str, value: Value, work: Work, spent: &mut Spent) -> Result<(), PatchError> {
    let (container, last) = parent(doc, path, work)?;
    match container {
        Value::Array(items) => {
            if last == "-" {
                items.push(value);
                return Ok(());
            }
            // One past the end is a place to add at.
            match index(&last, items.len() + 1) {
                Ok(at) => {
                    spent.work(items.len() - at)?;
                    items.insert(at, value);
                    Ok(())
                }
                Err(why) => work.failed(path, &why),
            }
        }
        Value::Object(members) => {
            members.insert(last, value);
            Ok(())
        }
        _ => work.missing(path),
    }
}

fn remove(doc: &mut Value, path: &str, work: Work, spent: &mut Spent) -> Result<Value, PatchError> {
    let (container, last) = parent(doc, path, work)?;
    let removed = match container {
        Value::Array(items) => match index(&last, items.len()) {
            Ok(at) => {
                spent.work(items.len() - at)?;
                Ok(items.remove(at))
            }
            Err(why) => Err(why),
        },
        Value::Object(members) => {
            members.remove(&last).ok_or_else(|| format!("Unable to remove nonexistent key: {last}: missing value"))
        }
        _ => return work.missing(path),
    };
    removed.or_else(|why| work.failed(path, &why))
}

fn replace(doc: &mut Value, path: &str, value: &Value) -> Result<(), PatchError> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return unprocessable("replace operation value must be object or array".to_owned());
        }
        *doc = value.clone();
        return Ok(());
    }
    let (container, last) = parent(doc, path, Work::Replace)?;
    match container {
        Value::Array(items) => match index(&last, items.len()) {
            Ok(at) => {
                items[at] = value.clone();
                Ok(())
            }
            Err(why) => Work::Replace.failed(path, &why),
        },
        Value::Object(members) => {
            members.insert(last, value.clone());
            Ok(())
        }
        _ => Work::Replace.missing(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn applies() {
        let cases = [
            (json!({"a":{"b":1}}), json!([{"op":"add","path":"/a/c","value":2}]), json!({"a":{"b":1,"c":2}})),
            (json!({"l":[1,2]}), json!([{"op":"add","path":"/l/1","value":9}]), json!({"l":[1,9,2]})),
            (json!({"l":[1,2]}), json!([{"op":"add","path":"/l/2","value":9}]), json!({"l":[1,2,9]})),
            (json!({"l":[1,2]}), json!([{"op":"add","path":"/l/-","value":9}]), json!({"l":[1,2,9]})),
            (json!({"l":[1,2]}), json!([{"op":"add","path":"/l/-1","value":9}]), json!({"l":[1,2,9]})),
            (json!({"l":[1,2]}), json!([{"op":"remove","path":"/l/-1"}]), json!({"l":[1]})),
            (json!({"l":[1,2]}), json!([{"op":"replace","path":"/l/-2","value":9}]), json!({"l":[9,2]})),
            (json!({}), json!([{"op":"replace","path":"/a","value":9}]), json!({"a":9})),
            (json!({}), json!([{"op":"test","path":"/a","value":null}]), json!({})),
            (json!({}), json!([{"op":"test","path":"/a"}]), json!({})),
            (json!({"x":1}), json!([{"op":"copy","from":"/y","path":"/z"}]), json!({"x":1,"z":null})),
            (json!({"x":1}), json!([{"op":"move","from":"/x","path":"/z"}]), json!({"z":1})),
            (json!({"a/b":{"~c":1}}), json!([{"op":"remove","path":"/a~1b/~0c"}]), json!({"a/b":{}})),
            (json!({"a":1}), json!([{"op":"replace","path":"","value":{"b":2}}]), json!({"b":2})),
            (json!({"a":1}), json!([{"op":"test","path":"","value":{"a":1}}]), json!({"a":1})),
            (json!({"a":1}), json!([]), json!({"a":1})),
        ];
        for (doc, patch, expected) in cases {
            assert_eq!(apply(&doc, &patch), Ok(expected), "{doc} with {patch}");
        }
    }

    #[test]
    fn refuses() {
        let doc = json!({"data":{"k":"v","n":1},"l":["f"]});
        let cases = [
            (json!([{"op":"test","path":"/data/k","value":"other"}]), 422),
            (json!([{"op":"test","path":"/data/none","value":"x"}]), 422),
            (json!([{"op":"test","path":"/data/n","value":1.0}]), 422),
            (json!([{"op":"test","path":"/no/k","value":null}]), 422),
            (json!([{"op":"remove","path":"/data/none"}]), 422),
            (json!([{"op":"add","path":"/no/x","value":1}]), 422),
            (json!([{"op":"add","path":"/data/k/x","value":1}]), 422),
            (json!([{"op":"add","path":"/l/5","value":1}]), 422),
            (json!([{"op":"remove","path":"/l/7"}]), 422),
            (json!([{"op":"replace","path":"/l/x","value":1}]), 422),
            (json!([{"op":"replace","path":"/l/1","value":1}]), 422),
            (json!([{"op":"jump","path":"/data/k"}]), 422),
            (json!([{"path":"/data/k"}]), 422),
            (json!([{"op":"add","value":1}]), 422),
            (json!([{"op":"move","from":"/data/none","path":"/data/x"}]), 422),
            (json!({"op":"add","path":"/data/k","value":"x"}), 400),
            (json!(["x"]), 400),
            (Value::from(vec![json!({"op":"test","path":"/a"}); 10_001]), 413),
        ];
        for (patch, code) in cases {
            let error = apply(&doc, &patch).expect_err("must be refused");
            assert_eq!(error.code(), code, "{error}");
        }
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let doc = json!({"a": "x".repeat(1 << 20)});
        let copies: Vec<Value> = (0..4).map(|i| json!({"op":"copy","from":"/a","path":format!("/b{i}")})).collect();
        assert_eq!(apply(&doc, &copies.into()).expect_err("too large").code(), 413);
    }
    #[test]
    fn copies_of_the_whole_into_itself_stop_at_the_bound() {
        let doc = json!({"a": {"b": 1}});
        for operations in 1..=16 {
            let copy = json!({"op": "copy", "from": "/a", "path": "/a/b"});
            let patched = apply(&doc, &vec![copy; operations].into());
            match patched {
                Ok(patched) => assert!(bounds::extent(&patched).0 <= DEPTH_MAX, "{operations}"),
                Err(error) => assert!(operations > 5 && error.code() == 400, "{operations}: {error}"),
            }
        }
        // a step deeper with each move
        let swap =
            [json!({"op": "move", "from": "/a", "path": "/b/a"}), json!({"op": "move", "from": "/b", "path": "/a/b"})];
        let mut doc = json!({"a": {}, "b": {}});
        let mut rounds = 0;
        while let Ok(next) = apply(
            &doc,
            &json!([swap[0], {"op": "add", "path": "/a", "value": {}}, swap[1], {"op": "add", "path": "/b", "value": {}}]),
        ) {
            assert!(bounds::extent(&next).0 <= DEPTH_MAX);
            doc = next;
            rounds += 1;
        }
        assert!((10..DEPTH_MAX).contains(&rounds), "{rounds}");
    }

    #[test]
    fn work_is_bounded() {
        let doc = json!({"l": vec![0; 100_000]});
        let back = json!({"op": "move", "from": "/l/0", "path": "/l/-"});
        assert_eq!(apply(&doc, &vec![back.clone(); 10_000].into()).expect_err("too much").code(), 413);
        assert!(apply(&doc, &vec![back; 100].into()).is_ok());
    }
}
