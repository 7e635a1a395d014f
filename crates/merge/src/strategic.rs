//! Strategic merge patch (`k8s.io/apimachinery/pkg/util/strategicpatch`): a merge patch that knows, from the schema,
//! which lists merge element by element, and that understands directives.
//!
//! Directives: `$patch: replace|delete` in objects and in elements of merging lists, `$retainKeys`,
//! `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`. As on the API server, a null deletes its field and is
//! dropped where there is nothing to delete.

mod lists;
mod shown;
#[cfg(test)]
mod tests;

use crate::order::{self, Ordered};
use crate::schema::Schema;
use crate::{PatchError, gotext};
use lists::*;
use serde_json::{Map, Value};
pub use shown::shown;
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

/// A value is of another type than it must be.
fn unexpected<T>(wanted: &str, value: &Value) -> Result<T, PatchError> {
    // Go's words for a type that is not there
    let found = if value.is_null() { "%!s(<nil>)" } else { gotext::type_name(value) };
    internal(format!("expected a {wanted}, but received a {found}"))
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

/// Only fields that the struct has are looked into.
fn known(schema: &Schema, name: &str) -> Result<(), PatchError> {
    match schema.go {
        Some(go) if schema.member(name).is_none() => {
            internal(format!("unable to find api field in struct {go} for the json field {name:?}"))
        }
        _ => Ok(()),
    }
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
            if order.is_array() {
                known(schema, list)?;
            }
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
                known(schema, name)?;
                if field.patch.replace {
                    *current = change.clone();
                    continue;
                }
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
