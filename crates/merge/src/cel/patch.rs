//! What expressions of mutating policies make: parts of objects (`Object.spec{replicas: 1}`) and operations
//! (`JSONPatch{op: "remove", path: "/spec"}`).
//!
//! Source: `k8s.io/apiserver/pkg/cel/mutation` and `library/jsonpatch.go`. The library has no objects, so they are maps to it, with
//! the name of their type under a key that no expression can write.

use super::{Cel, CelError, Computed, Key, to_json};
use kube_cel::cel::common::ast::{
    EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr, StructExpr,
};
use kube_cel::cel::{Context, ExecutionError};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The type of a whole object; a type below it has the names of the fields that lead there (`Object.spec.template`).
pub(super) const OBJECT: &str = "Object";
/// The type of an operation of a JSON patch.
pub(super) const JSON_PATCH: &str = "JSONPatch";
/// The key of the type's name.
const TYPE: &str = "\u{0}type";

/// `jsonpatch.escapeKey(key)`.
pub(super) const ESCAPE_KEY: &str = "@escapeKey";

pub(super) fn is_below_object(name: &str) -> bool {
    name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(ESCAPE_KEY, |key: Arc<String>| -> Result<Cel, ExecutionError> {
        Ok(Cel::String(Arc::new(key.replace('~', "~0").replace('/', "~1"))))
    });
}

/// The map that stands for an object.
pub(super) fn as_map(object: StructExpr, id: u64) -> Expr {
    let text = |text: &str| IdedExpr { id, expr: Expr::Literal(LiteralValue::String(text.to_owned().into())) };
    let ty = MapEntryExpr { key: text(TYPE), value: text(&object.type_name), optional: false };
    let mut entries = vec![IdedEntryExpr { id, expr: EntryExpr::MapEntry(ty) }];
    for IdedEntryExpr { id, expr } in object.entries {
        let expr = match expr {
            EntryExpr::StructField(field) => EntryExpr::MapEntry(MapEntryExpr {
                key: text(&field.field),
                value: field.value,
                optional: field.optional,
            }),
            entry @ EntryExpr::MapEntry(_) => entry,
        };
        entries.push(IdedEntryExpr { id, expr });
    }
    Expr::Map(MapExpr { entries })
}

/// The name of the type of an object that an expression made.
fn type_of(value: &Cel) -> Option<&str> {
    let Cel::Map(map) = value else { return None };
    match map.map.get(&Key::String(Arc::new(TYPE.to_owned()))) {
        Some(Cel::String(name)) => Some(name),
        _ => None,
    }
}

/// The names of types below `value` that are not those of the fields that lead there; maps and lists on the way have no names.
fn misnamed(value: &Cel, path: &str, out: &mut Vec<String>) {
    let own = type_of(value);
    if let Some(name) = own
        && name != path
    {
        out.push(format!(
            "unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object type"
        ));
    }
    match value {
        Cel::Map(map) => {
            for (key, below) in map.map.iter() {
                match (own, key) {
                    (Some(_), Key::String(field)) if field.as_str() == TYPE => {}
                    (Some(_), Key::String(field)) => misnamed(below, &format!("{path}.{field}"), out),
                    _ => misnamed(below, path, out),
                }
            }
        }
        Cel::List(items) => items.iter().for_each(|item| misnamed(item, path, out)),
        _ => {}
    }
}

fn named(value: &Cel) -> Result<(), CelError> {
    let mut faults = Vec::new();
    misnamed(value, type_of(value).unwrap_or(OBJECT), &mut faults);
    faults.sort();
    if faults.is_empty() { Ok(()) } else { Err(CelError(format!("type mismatch: {}", faults.join("\n")))) }
}

/// Takes the names of types out.
fn untyped(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove(TYPE);
            members.values_mut().for_each(untyped);
        }
        Value::Array(items) => items.iter_mut().for_each(untyped),
        _ => {}
    }
}

impl Computed {
    /// The configuration that an expression of type `Object` made, to be applied.
    ///
    /// # Errors
    /// It is none, or an object in it has the type of another field.
    pub fn configuration(&self) -> Result<Value, CelError> {
        if type_of(&self.0) != Some(OBJECT) {
            let found = to_json(&self.0);
            return Err(CelError(format!("unsupported return type from ApplyConfiguration expression: {found}")));
        }
        named(&self.0)?;
        let mut out = to_json(&self.0);
        untyped(&mut out);
        Ok(out)
    }

    /// The JSON patch (RFC 6902) that an expression of type `list(JSONPatch)` made.
    ///
    /// # Errors
    /// It is none, or an object in it has the type of another field.
    pub fn json_patch(&self) -> Result<Value, CelError> {
        let mismatch =
            || CelError("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
        let Cel::List(items) = &self.0 else { return Err(mismatch()) };
        let mut out = Vec::with_capacity(items.len());
        for item in items.iter() {
            let Cel::Map(members) = item else { return Err(mismatch()) };
            if type_of(item) != Some(JSON_PATCH) {
                return Err(mismatch());
            }
            let text = |name: &str| match members.map.get(&Key::String(Arc::new(name.to_owned()))) {
                Some(Cel::String(text)) => text.as_str().to_owned(),
                _ => String::new(),
            };
            let mut operation = Map::new();
            operation.insert("op".to_owned(), text("op").into());
            operation.insert("path".to_owned(), text("path").into());
            if !text("from").is_empty() {
                operation.insert("from".to_owned(), text("from").into());
            }
            if let Some(value) = members.map.get(&Key::String(Arc::new("value".to_owned()))) {
                if type_of(value).is_some() {
                    named(value)?;
                }
                let mut value = to_json(value);
                untyped(&mut value);
                operation.insert("value".to_owned(), value);
            }
            out.push(Value::Object(operation));
        }
        Ok(Value::Array(out))
    }
}

#[cfg(test)]
mod tests {
    use crate::cel::{Computed, Expression, Given, PolicyScope, check_policy};
    use serde_json::{Value, json};

    fn computed(source: &str) -> Computed {
        let object = json!({"data": {"k": "v"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let given = Given { values: &[("object", &object)], ..Given::default() };
        Expression::compile(source).expect(source).evaluate_policy(&given).0.expect(source)
    }

    #[test]
    fn objects_are_configurations() {
        let cases: [(&str, Value); 6] = [
            ("Object{}", json!({})),
            (
                "Object{metadata: Object.metadata{labels: {'a': object.data.k}}}",
                json!({"metadata": {"labels": {"a": "v"}}}),
            ),
            ("Object{?data: object.?data, ?none: object.?none}", json!({"data": {"k": "v"}})),
            (
                "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name})}}",
                json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            ),
            ("Object{l: [1, 2], m: {'x': [true]}}", json!({"l": [1, 2], "m": {"x": [true]}})),
            ("Object{a: Object.a{b: 2}.b}", json!({"a": 2})),
        ];
        for (source, expected) in cases {
            assert_eq!(computed(source).configuration(), Ok(expected), "{source}");
        }
        let misnamed = computed("Object{spec: Object.wrong{x: 1}, l: [Object{}]}").configuration();
        let why = misnamed.expect_err("names of other fields").to_string();
        let place = |found: &str, wanted: &str| {
            format!(
                "unexpected type name {found:?}, expected {wanted:?}, which matches field name path from root Object type"
            )
        };
        let faults = [place("Object", "Object.l"), place("Object.wrong", "Object.spec")];
        assert_eq!(why, format!("type mismatch: {}", faults.join("\n")));
        assert!(computed("{'a': 1}").configuration().is_err());
    }

    #[test]
    fn operations_are_json_patches() {
        let source = "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/b~c'), value: Object.data{x: 1}}, \
                      JSONPatch{op: 'move', from: '/a', path: '/b'}, JSONPatch{op: 'test', path: '/c', value: null}]";
        let expected = json!([
            {"op": "add", "path": "/data/a~1b~0c", "value": {"x": 1}},
            {"op": "move", "from": "/a", "path": "/b"},
            {"op": "test", "path": "/c", "value": null},
        ]);
        assert_eq!(computed(source).json_patch(), Ok(expected));
        assert!(computed("[Object{}]").json_patch().is_err());
    }

    /// As kube-apiserver 1.36.3 says it.
    #[test]
    fn types_of_patches_are_known_to_mutations_alone() {
        let scope = |patch| PolicyScope { params: false, authorizer: true, variables: Some(&[]), patch };
        let check = |source: &str, patch: bool| check_policy(source, scope(patch));
        let cases: [(&str, Result<&str, &str>); 9] = [
            ("Object{a: 1}", Ok("Object")),
            ("Object.spec{a: 1}", Ok("Object.spec")),
            ("[JSONPatch{op: 'add', path: '/a', value: 1}]", Ok("list(JSONPatch)")),
            ("[]", Ok("list(dyn)")),
            ("JSONPatch{op: 'a'}.op", Ok("string")),
            ("Foo{a: 1}", Err("1:4: undeclared reference to 'Foo' (in container '')")),
            ("[JSONPatch{op: 1}]", Err("1:14: expected type of field 'op' is 'string' but provided type is 'int'")),
            ("[JSONPatch{odd: 'x'}]", Err("1:15: expected type of field 'odd' is '' but provided type is 'string'")),
            (
                "true ? Object{} : Object.x{}",
                Err("1:6: found no matching overload for '_?_:_' applied to '(bool, Object, Object.x)'"),
            ),
        ];
        for (source, expected) in cases {
            match (check(source, true), expected) {
                (Ok(found), Ok(ty)) => assert_eq!((found.ty.as_str(), found.undefined), (ty, None), "{source}"),
                (Err(found), Err(why)) => {
                    assert!(found.to_string().starts_with(&format!("ERROR: <input>:{why}\n")), "{source}: {found}")
                }
                (found, _) => panic!("{source}: {found:?}"),
            }
        }
        for source in ["Object{}", "[JSONPatch{}]", "jsonpatch.escapeKey('a')"] {
            assert!(check(source, false).is_err(), "{source}");
        }
        let undefined =
            check("type(Object{}) == Object.spec ? Object{} : Object{}", true).map(|yields| yields.undefined);
        assert_eq!(undefined, Ok(Some("Object.spec".to_owned())));
    }
}
