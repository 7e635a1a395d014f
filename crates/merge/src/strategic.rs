//! Strategic merge patch (`k8s.io/apimachinery/pkg/util/strategicpatch`): a merge patch that knows, from the schema,
//! which lists merge element by element, and that understands directives.
//!
//! Directives: `$patch: replace|delete` in objects and in elements of merging lists, `$retainKeys`,
//! `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`. As on the API server, a null deletes its field and is
//! dropped where there is nothing to delete.

use crate::order::{self, Ordered};
use crate::schema::Schema;
use crate::{PatchError, gotext};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// What a field that the schema does not know is merged by: objects recursively, lists replaced.
static UNKNOWN: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(<Schema as Default>::default);

/// `doc` with `patch` merged in as `schema` (of `doc`) says.
///
/// The order of a merged list is a weave: elements that the patch names keep the patch's order, the others keep theirs,
/// and where one of each compete, the one that stood first in `doc` goes first; new elements do not wait.
///
/// # Errors
/// `Malformed` for directives of a wrong shape, `Unprocessable` for lists of lists, `Internal` where elements lack their
/// merge key, the element order contradicts the patch, or a directive is unknown.
pub fn apply(doc: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let (Value::Object(doc), Value::Object(patch)) = (doc, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    Ok(Value::Object(merge_object(doc.clone(), patch, schema)?))
}

fn internal<T>(message: String) -> Result<T, PatchError> {
    Err(PatchError::Internal(message))
}

fn malformed<T>(what: &str) -> Result<T, PatchError> {
    Err(PatchError::Malformed(format!("invalid patch format of {what}")))
}

fn bad_directive<T>(directive: &Value, holder: &Map<String, Value>) -> Result<T, PatchError> {
    let holder = gotext::plain(&Value::Object(holder.clone()));
    // Go's words for what was meant to be a text
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("%!s(float64={number})"),
        Value::Number(number) => format!("%!s(int64={number})"),
        Value::Bool(flag) => format!("%!s(bool={flag})"),
        other => gotext::plain(other),
    };
    internal(format!("unknown patch type: {shown} in map: {holder}"))
}

fn no_merge_key<T>(element: &Map<String, Value>, key: &str) -> Result<T, PatchError> {
    let element = gotext::plain(&Value::Object(element.clone()));
    internal(format!("map: {element} does not contain declared merge key: {key}"))
}

fn child<'a>(schema: &'a Schema, name: &str) -> &'a Schema {
    schema.properties.get(name).or(schema.additional.as_ref()).map_or(&UNKNOWN, |s| s)
}

fn element(list: &Schema) -> &Schema {
    list.items.as_ref().map_or(&UNKNOWN, |s| s)
}

fn merge_object(
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
    schema: &Schema,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                let mut replaced = patch.clone();
                replaced.remove(DIRECTIVE);
                Ok(replaced)
            }
            Some("delete") => Ok(Map::new()),
            _ => bad_directive(directive, patch),
        };
    }
    if let Some(retained) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut original, patch, retained)?;
    }
    let mut ordered = BTreeSet::new();
    for (name, order) in patch {
        if name.starts_with(SET_ELEMENT_ORDER) {
            let Some(list) = name.strip_prefix(SET_ELEMENT_ORDER).and_then(|rest| rest.strip_prefix('/')) else {
                return malformed("setElementOrder list");
            };
            if merge_in_order(&mut original, patch, list, order, child(schema, list))? {
                ordered.insert(list);
            }
        }
    }
    for (name, change) in patch {
        if name == RETAIN_KEYS || name.starts_with(SET_ELEMENT_ORDER) || ordered.contains(name.as_str()) {
            continue;
        }
        let (name, deletes) = match name.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => match rest.strip_prefix('/') {
                Some(list) => (list, true),
                None => return malformed("primitive list"),
            },
            None => (name.as_str(), false),
        };
        if change.is_null() {
            original.remove(name);
            continue;
        }
        let Some(current) = original.get_mut(name) else {
            if !deletes && let Some(value) = without_directives(change, true) {
                original.insert(name.to_owned(), value);
            }
            continue;
        };
        let field = child(schema, name);
        match (current, change) {
            (Value::Object(current), Value::Object(change)) => {
                *current = merge_object(std::mem::take(current), change, field)?;
            }
            (Value::Array(current), Value::Array(change)) => {
                if deletes {
                    list_kind(current, change)?;
                    let gone: BTreeSet<Ordered<'_>> = change.iter().map(Ordered).collect();
                    current.retain(|item| !gone.contains(&Ordered(item)));
                } else {
                    *current = merge_field_list(std::mem::take(current), change, field)?;
                }
            }
            (current, change) => {
                // Scalars, and values of different types.
                if !deletes {
                    match without_directives(change, true) {
                        Some(value) => *current = value,
                        None => {
                            original.remove(name);
                        }
                    }
                }
            }
        }
    }
    Ok(original)
}

/// Clears what `$retainKeys` does not list; all that the patch sets must be listed.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    retained: &Value,
) -> Result<(), PatchError> {
    let Value::Array(retained) = retained else { return malformed("retainKeys") };
    let retained: BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let listed = |name: &str| retained.contains(name);
    for (name, value) in patch {
        let exempt = value.is_null()
            || name == RETAIN_KEYS
            || name.starts_with(DELETE_FROM_LIST)
            || name.starts_with(SET_ELEMENT_ORDER);
        if !exempt && !listed(name) {
            return malformed("retainKeys");
        }
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

/// A value as it is taken over where there is nothing to merge it with: without directives, and without nulls in objects
/// if `drop_nulls`. `None`: the value is a directive itself.
fn without_directives(value: &Value, drop_nulls: bool) -> Option<Value> {
    match value {
        Value::Object(members) => {
            if members.contains_key(DIRECTIVE) {
                return None;
            }
            let kept = members
                .iter()
                .filter(|(_, value)| !(drop_nulls && value.is_null()))
                .filter_map(|(name, value)| Some((name.clone(), without_directives(value, drop_nulls)?)))
                .collect();
            Some(Value::Object(kept))
        }
        Value::Array(items) => {
            Some(Value::Array(items.iter().filter_map(|item| without_directives(item, drop_nulls)).collect()))
        }
        scalar => Some(scalar.clone()),
    }
}

/// Whether the elements of two lists are objects (`true`) or scalars; they must all be of one type.
fn list_kind(a: &[Value], b: &[Value]) -> Result<bool, PatchError> {
    let mut seen: Option<&'static str> = None;
    for item in a.iter().chain(b) {
        let name = gotext::type_name(item);
        if item.is_array() {
            return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
        }
        match seen {
            Some(before) if before != name => {
                return internal(format!("list element types are not identical: {before}, {name}"));
            }
            Some(_) => {}
            None => seen = Some(name),
        }
    }
    Ok(a.iter().chain(b).next().is_some_and(Value::is_object))
}

fn merge_field_list(original: Vec<Value>, patch: &[Value], schema: &Schema) -> Result<Vec<Value>, PatchError> {
    if !schema.patch.merge {
        return Ok(patch.to_vec());
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !list_kind(&original, patch)? {
        let mut seen = BTreeSet::new();
        let merged = original.iter().chain(patch).filter(|item| seen.insert(Ordered(item))).cloned().collect();
        return Ok(weave(merged, patch, &original, &Identity::Itself));
    }
    let Some(key) = schema.patch.merge_key.as_deref() else {
        return internal(format!("cannot merge lists without merge key for {}", gotext::type_name(&Value::Null)));
    };
    let (original, patch) = apply_list_directives(original, patch, key)?;
    let identity = Identity::Key(key);
    let mut merged = original.clone();
    let mut places =
        order::first_of(original.iter().enumerate().filter_map(|(i, item)| Some((Ordered(item.get(key)?), i))));
    for change in &patch {
        let Some(members) = change.as_object() else { continue };
        let Some(value) = members.get(key) else { return no_merge_key(members, key) };
        match places.get(&Ordered(value)).and_then(|place| merged.get_mut(*place)) {
            Some(Value::Object(found)) => {
                *found = merge_object(std::mem::take(found), members, element(schema))?;
            }
            // Elements are objects: checked above.
            Some(_) | None => {
                places.insert(Ordered(value), merged.len());
                merged.push(change.clone());
            }
        }
    }
    for item in &merged {
        if let Some(members) = item.as_object().filter(|members| !members.contains_key(key)) {
            return no_merge_key(members, key);
        }
    }
    Ok(weave(merged, &patch, &original, &identity))
}

/// Carries out `$patch` in elements: returns the elements that remain and those to merge.
fn apply_list_directives(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut changes = Vec::with_capacity(patch.len());
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for change in patch {
        let Some(members) = change.as_object() else { continue };
        let Some(directive) = members.get(DIRECTIVE) else {
            changes.push(change.clone());
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let Some(value) = members.get(key) else { return no_merge_key(members, key) };
                gone.insert(Ordered(value));
            }
            Some("replace") => replace = true,
            Some("merge") => return internal("merging lists cannot yet be specified in the patch".to_owned()),
            _ => return bad_directive(directive, members),
        }
    }
    original.retain(|item| item.get(key).is_none_or(|value| !gone.contains(&Ordered(value))));
    Ok(if replace { (changes, Vec::new()) } else { (original, changes) })
}

/// What makes two elements the same one.
enum Identity<'a> {
    Itself,
    Key(&'a str),
}

impl Identity<'_> {
    fn of<'v>(&self, item: &'v Value) -> Option<Ordered<'v>> {
        match self {
            Self::Itself => Some(Ordered(item)),
            Self::Key(key) => item.get(*key).map(Ordered),
        }
    }

    /// Where in a list what is the same as an item stands first.
    fn positions<'v>(&self, list: &'v [Value]) -> BTreeMap<Option<Ordered<'v>>, usize> {
        order::first_of(list.iter().enumerate().map(|(position, item)| (self.of(item), position)))
    }
}

/// Orders `merged`: elements that `order` names as it orders them, the others as `live` has them, woven together by `live`.
fn weave(merged: Vec<Value>, order: &[Value], live: &[Value], identity: &Identity<'_>) -> Vec<Value> {
    let (order, live) = (identity.positions(order), identity.positions(live));
    let live = |item: &Value| live.get(&identity.of(item)).copied();
    let mut named: Vec<(usize, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for item in merged {
        match order.get(&identity.of(&item)) {
            Some(at) => named.push((*at, item)),
            None => others.push((live(&item).unwrap_or(usize::MAX), item)),
        }
    }
    named.sort_by_key(|(at, _)| *at);
    others.sort_by_key(|(at, _)| *at);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().map(|(_, item)| item).peekable();
    let mut others = others.into_iter().map(|(_, item)| item).peekable();
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(name)) => {
                matches!((live(other), live(name)), (Some(o), Some(n)) if o < n)
            }
        };
        out.extend(if other_first { others.next() } else { named.next() });
    }
}

/// Merges the list `name` and puts it into the order that `$setElementOrder` gives. Returns whether that did the field.
fn merge_in_order(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    order: &Value,
    schema: &Schema,
) -> Result<bool, PatchError> {
    let wrong =
        |value: &Value| internal(format!("expected a []interface {{}}, but received a {}", gotext::type_name(value)));
    let Value::Array(order) = order else { return wrong(order) };
    let live = match original.get(name) {
        Some(Value::Array(live)) => Some(live.clone()),
        Some(other) => return wrong(other),
        None => None,
    };
    let change = match patch.get(name) {
        Some(Value::Array(change)) => Some(change.as_slice()),
        Some(other) => return wrong(other),
        None => None,
    };
    let key = schema.patch.merge_key.as_deref();
    if let Some(change) = change {
        check_order(change, order, key)?;
    }
    let merged = match (live.clone(), change) {
        (None, None) => return Ok(false),
        (Some(live), None) => live,
        (None, Some(change)) => change.iter().filter_map(|item| without_directives(item, false)).collect(),
        (Some(live), Some(change)) => merge_field_list(live, change, schema)?,
    };
    let mut live = live.unwrap_or_default();
    let change = change.unwrap_or_default();
    if live.is_empty() && change.is_empty() {
        return internal("no elements in any of the given slices".to_owned());
    }
    let objects = list_kind(&live, change)?;
    if let Some(key) = key.filter(|_| schema.patch.merge && objects) {
        live = order_after_merge(live, change, key);
    }
    let identity = match key {
        Some(key) if objects => Identity::Key(key),
        Some(_) | None => Identity::Itself,
    };
    if let Identity::Key(key) = identity {
        for item in merged.iter().chain(order) {
            if let Some(members) = item.as_object().filter(|members| !members.contains_key(key)) {
                return no_merge_key(members, key);
            }
        }
    }
    original.insert(name.to_owned(), weave(merged, order, &live, &identity).into());
    Ok(true)
}

/// The order by which elements that the order list does not name are woven in: that of the live list as upstream's merge
/// leaves it, which deletes and appends in place. So an appended element takes the place of a deleted one.
fn order_after_merge(live: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
    let visible = live.len();
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    let mut places: BTreeMap<Option<Ordered<'_>>, Vec<usize>> = BTreeMap::new();
    for (place, item) in live.iter().enumerate() {
        places.entry(item.get(key).map(Ordered)).or_default().push(place);
    }
    let mut left: BTreeSet<usize> = (0..visible).collect();
    // What a deletion leaves at the end of the list as upstream shifts it: the element that was the last.
    let mut behind: Vec<usize> = Vec::new();
    for item in patch.iter().filter(|item| directive(item).as_deref() == Some("delete")) {
        for place in places.remove(&item.get(key).map(Ordered)).unwrap_or_default() {
            behind.extend(left.last());
            left.remove(&place);
        }
    }
    behind.reverse();
    let mut appended = Vec::new();
    if !patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        let mut known: BTreeSet<Option<Ordered<'_>>> = places.into_keys().collect();
        appended.extend(
            patch
                .iter()
                .filter(|item| directive(item).is_none())
                .filter(|item| known.insert(item.get(key).map(Ordered))),
        );
    }
    let overwritten = appended.len();
    let stays = left.iter().map(|place| &live[*place]);
    let list = stays.chain(appended).chain(behind.iter().skip(overwritten).map(|place| &live[*place]));
    list.take(visible).cloned().collect()
}

/// The patch's elements (but for directives) must stand in the order list, in the same order.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).peekable();
    for item in order {
        let Some(next) = wanted.peek() else { break };
        let equal = match key {
            Some(key) => {
                for holder in [*next, item] {
                    match holder.as_object() {
                        Some(members) if !members.contains_key(key) => return no_merge_key(members, key),
                        Some(_) => {}
                        None => {
                            return internal(format!(
                                "expected a map[string]interface {{}}, but received a {}",
                                gotext::type_name(holder)
                            ));
                        }
                    }
                }
                next.get(key) == item.get(key)
            }
            None => *next == item,
        };
        if equal {
            wanted.next();
        }
    }
    if wanted.peek().is_some() {
        return internal(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            gotext::plain(&patch.into()),
            gotext::plain(&order.into())
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{PatchStrategy, Type};
    use proptest::prelude::*;
    use serde_json::json;
    use std::sync::Arc;

    fn object(properties: &[(&str, Schema)]) -> Schema {
        Schema {
            kind: Type::Object,
            properties: properties.iter().map(|(name, s)| ((*name).to_owned(), Arc::new(s.clone()))).collect(),
            ..<Schema as Default>::default()
        }
    }

    fn list(key: Option<&str>, items: Schema) -> Schema {
        Schema {
            kind: Type::Array,
            items: Some(Arc::new(items)),
            patch: PatchStrategy { merge: true, merge_key: key.map(str::to_owned), retain_keys: false },
            ..<Schema as Default>::default()
        }
    }

    fn pod() -> Schema {
        let env = list(Some("name"), object(&[]));
        let atomic = Schema { kind: Type::Array, ..<Schema as Default>::default() };
        let container = object(&[("env", env), ("args", atomic)]);
        object(&[
            ("containers", list(Some("name"), container)),
            ("finalizers", list(None, <Schema as Default>::default())),
            ("volumes", list(Some("name"), object(&[]))),
        ])
    }

    #[test]
    fn merges() {
        let named = |names: &[&str]| Value::from(names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>());
        let cases = [
            // The worked example of the weave: a new element precedes those that the patch does not name.
            (
                json!({"containers":[{"name":"n","env":[{"name":"INIT","value":"a"},{"name":"PATH","value":"b"}]}]}),
                json!({"containers":[{"name":"n","env":[{"name":"INIT","value":"c"},{"name":"NEW","value":"d"}]}]}),
                json!({"containers":[{"name":"n","env":[
                    {"name":"INIT","value":"c"},{"name":"NEW","value":"d"},{"name":"PATH","value":"b"}]}]}),
            ),
            // Naming one element does not move it.
            (
                json!({"containers":named(&["a","b","c"])}),
                json!({"containers":named(&["b"])}),
                json!({"containers":named(&["a","b","c"])}),
            ),
            (
                json!({"containers":named(&["a","b"])}),
                json!({"containers":named(&["z"])}),
                json!({"containers":named(&["z","a","b"])}),
            ),
            // Lists without strategy are replaced, nulls delete, nested nulls of new values are dropped.
            (
                json!({"containers":[{"name":"a","args":["1","2"],"x":1}]}),
                json!({"containers":[{"name":"a","args":["3"],"x":null}]}),
                json!({"containers":[{"name":"a","args":["3"]}]}),
            ),
            (json!({}), json!({"a":{"b":null,"c":1},"d":null}), json!({"a":{"c":1}})),
            // Sets of scalars.
            (json!({"finalizers":["a","b"]}), json!({"finalizers":["c","a"]}), json!({"finalizers":["c","a","b"]})),
            (
                json!({"finalizers":["a","b","c"]}),
                json!({"$deleteFromPrimitiveList/finalizers":["b","x"]}),
                json!({"finalizers":["a","c"]}),
            ),
            (json!({}), json!({"$deleteFromPrimitiveList/finalizers":["b"]}), json!({})),
            (
                json!({"finalizers":["a","b","c"]}),
                json!({"$setElementOrder/finalizers":["c","a"]}),
                json!({"finalizers":["b","c","a"]}),
            ),
            // Directives in elements.
            (
                json!({"containers":named(&["a","b"])}),
                json!({"containers":[{"$patch":"delete","name":"a"},{"$patch":"delete","name":"q"}]}),
                json!({"containers":named(&["b"])}),
            ),
            (
                json!({"containers":named(&["a","b"])}),
                json!({"containers":[{"$patch":"replace"},{"name":"z"}]}),
                json!({"containers":named(&["z"])}),
            ),
            // Directives in objects.
            (json!({"n":{"a":1,"b":2}}), json!({"n":{"$patch":"replace","c":3}}), json!({"n":{"c":3}})),
            (json!({"n":{"a":1}}), json!({"n":{"$patch":"delete"}}), json!({"n":{}})),
            (json!({}), json!({"n":{"$patch":"merge","d":4}}), json!({})),
            // Order.
            (
                json!({"containers":named(&["a","b","c"])}),
                json!({"$setElementOrder/containers":named(&["c","a","b"]),"containers":[{"name":"a","x":1}]}),
                json!({"containers":[{"name":"c"},{"name":"a","x":1},{"name":"b"}]}),
            ),
            (
                json!({"containers":named(&["c","a","b"])}),
                json!({"$setElementOrder/containers":named(&["d","a"]),"containers":[{"name":"d"}]}),
                json!({"containers":named(&["d","c","a","b"])}),
            ),
            // What takes a deleted element's place in the list counts as standing there.
            (
                json!({"containers":named(&["b","a","c"])}),
                json!({"$setElementOrder/containers":named(&["a","c","d"]),"containers":[
                    {"$patch":"delete","name":"a"},{"$patch":"delete","name":"c"},{"name":"d"}]}),
                json!({"containers":named(&["b","d"])}),
            ),
            // A union's other member goes.
            (
                json!({"volumes":[{"name":"v","emptyDir":{}}]}),
                json!({"volumes":[{"name":"v","$retainKeys":["name","configMap"],"configMap":{"name":"x"}}]}),
                json!({"volumes":[{"name":"v","configMap":{"name":"x"}}]}),
            ),
        ];
        for (doc, patch, expected) in cases {
            assert_eq!(apply(&doc, &patch, &pod()), Ok(expected), "{doc} with {patch}");
        }
    }

    #[test]
    fn refuses() {
        let cases = [
            (json!({"containers":[]}), json!([]), 400),
            (json!({"containers":[{"name":"a"}]}), json!({"containers":[{"x":1}]}), 500),
            (json!({"containers":[{"name":"a"}]}), json!({"containers":[{"$patch":"explode","name":"a"}]}), 500),
            (json!({"containers":[{"name":"a"}]}), json!({"containers":[{"$patch":"merge","name":"a"}]}), 500),
            (json!({"n":{}}), json!({"n":{"$patch":"merge"}}), 500),
            (json!({"n":{"a":1}}), json!({"n":{"$retainKeys":["b"],"c":1}}), 400),
            (json!({"n":{"a":1}}), json!({"n":{"$retainKeys":"b"}}), 400),
            (json!({"finalizers":["a"]}), json!({"finalizers":[["b"]]}), 422),
            (json!({}), json!({"finalizers":[],"$setElementOrder/finalizers":["a"]}), 500),
            (
                json!({"containers":[{"name":"a"}]}),
                json!({"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b"}]}),
                500,
            ),
        ];
        for (doc, patch, code) in cases {
            let error = apply(&doc, &patch, &pod()).expect_err("must be refused");
            assert_eq!(error.code(), code, "{doc} with {patch}: {error}");
        }
    }

    /// As [`order_after_merge`], as upstream does it: in place, looking at each element for each of the patch.
    fn order_in_place(mut list: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
        let visible = list.len();
        let mut length = visible;
        let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
        for item in patch.iter().filter(|item| directive(item).as_deref() == Some("delete")) {
            while let Some(at) = list[..length].iter().position(|other| other.get(key) == item.get(key)) {
                for i in at..length - 1 {
                    list[i] = list[i + 1].clone();
                }
                length -= 1;
            }
        }
        if !patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
            for item in patch.iter().filter(|item| directive(item).is_none()) {
                if !list[..length].iter().any(|other| other.get(key) == item.get(key)) {
                    match list.get_mut(length) {
                        Some(place) => *place = item.clone(),
                        None => list.push(item.clone()),
                    }
                    length += 1;
                }
            }
        }
        list.truncate(visible);
        list
    }

    /// The elements of two lists merged, each looked for among all.
    fn merge_by_search(live: &[Value], patch: &[Value], key: &str) -> Vec<Value> {
        let position = |list: &[Value], item: &Value| list.iter().position(|other| other.get(key) == item.get(key));
        let mut merged = live.to_vec();
        for change in patch {
            match position(&merged, change) {
                Some(at) => {
                    let Value::Object(found) = std::mem::take(&mut merged[at]) else { panic!("elements are objects") };
                    let members = change.as_object().expect("elements are objects");
                    merged[at] = Value::Object(merge_object(found, members, &UNKNOWN).expect("no directives"));
                }
                None => merged.push(change.clone()),
            }
        }
        let (mut named, mut others): (Vec<Value>, Vec<Value>) =
            merged.into_iter().partition(|item| position(patch, item).is_some());
        named.sort_by_key(|item| position(patch, item));
        others.sort_by_key(|item| position(live, item).unwrap_or(usize::MAX));
        let mut out = Vec::new();
        while let (Some(other), Some(name)) = (others.first(), named.first()) {
            let first = matches!((position(live, other), position(live, name)), (Some(o), Some(n)) if o < n);
            out.push(if first { others.remove(0) } else { named.remove(0) });
        }
        out.extend(named.into_iter().chain(others));
        out
    }

    fn elements(directives: bool) -> impl Strategy<Value = Vec<Value>> {
        let one = (0..6u8, 0..9u8, any::<bool>()).prop_map(move |(name, value, directive)| {
            if directives && directive {
                json!({"$patch": "delete", "name": name})
            } else {
                json!({"name": name, "value": value})
            }
        });
        prop::collection::vec(one, 0..10)
    }

    proptest! {
        #[test]
        fn lists_are_ordered_as_upstream_does_in_place(live in elements(false), patch in elements(true)) {
            prop_assert_eq!(order_after_merge(live.clone(), &patch, "name"), order_in_place(live, &patch, "name"));
        }

        #[test]
        fn lists_are_merged_as_by_searching_them(live in elements(false), patch in elements(false)) {
            prop_assume!(!live.is_empty() || !patch.is_empty());
            let found = merge_field_list(live.clone(), &patch, &list(Some("name"), object(&[])));
            prop_assert_eq!(found, Ok(merge_by_search(&live, &patch, "name")));
        }
    }
}
