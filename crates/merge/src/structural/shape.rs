//! The form of structural schemas: every field is typed outside of `anyOf` and the like, which may only constrain.

use super::{Node, flag, is_set, list, object, properties, text};
use crate::pattern::Pattern;
use api::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps `root` from being structural, sorted by its text as upstream sorts it.
pub(super) fn faults(root: &Node, path: &Path) -> ErrorList {
    let mut out = ErrorList::new();
    invariants(root, Level::Root, path, &mut out);
    completeness(root, path, &mut out);
    out.sort_by_cached_key(ToString::to_string);
    out
}

fn invariants(node: &Node, level: Level, path: &Path, out: &mut ErrorList) {
    let kind = text(node, "type");
    if kind == "array" && object(node, "items").is_none() {
        out.push(Error::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = object(node, "items") {
        invariants(items, Level::Item, &path.child("items"), out);
    }
    for (name, child) in properties(node) {
        invariants(child, Level::Field, &path.child("properties").key(name), out);
    }
    let additional = path.child("additionalProperties");
    let has_additional = node.contains_key("additionalProperties");
    if has_additional && level == Level::Root {
        out.push(Error::forbidden(&additional, "must not be used at the root"));
    }
    if let Some(child) = object(node, "additionalProperties") {
        invariants(child, Level::Field, &additional, out);
    }
    let preserve = flag(node, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(node, "x-kubernetes-int-or-string");
    let embedded = flag(node, "x-kubernetes-embedded-resource");
    if int_or_string {
        for (name, on) in
            [("x-kubernetes-preserve-unknown-fields", preserve), ("x-kubernetes-embedded-resource", embedded)]
        {
            if on {
                out.push(Error::invalid(
                    &path.child(name),
                    true,
                    "must be false if x-kubernetes-int-or-string is true",
                ));
            }
        }
    }
    let skip_any = is_int_or_string_pattern(list(node, "anyOf"));
    let skip_all = list(node, "allOf")
        .first()
        .and_then(Value::as_object)
        .is_some_and(|b| is_int_or_string_pattern(list(b, "anyOf")));
    value_validation(node, skip_any, skip_all, path, out);
    let type_path = path.child("type");
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        out.push(if kind.is_empty() {
            Error::required(&type_path, why)
        } else {
            Error::invalid(&type_path, kind, why)
        });
    } else if kind.is_empty() && !int_or_string && !preserve {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        out.push(Error::required(&type_path, why));
    }
    if embedded && has_additional {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        out.push(Error::forbidden(&additional, why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        out.push(Error::invalid(&type_path, kind, "must be object at the root"));
    }
    let has_metadata = level == Level::Root || embedded;
    for (name, child) in properties(node) {
        let at = path.child("properties").key(name);
        let kind = text(child, "type");
        match name.as_str() {
            "kind" | "apiVersion" if has_metadata && kind != "string" => {
                out.push(Error::invalid(&at.child("type"), kind, "must be string"));
            }
            "metadata" => {
                if has_metadata && kind != "object" {
                    out.push(Error::invalid(&at.child("type"), kind, "must be object"));
                }
                if level == Level::Root && says_too_much(child) {
                    let why = "must not specify anything other than name and generateName, but metadata is implicitly \
                               specified";
                    out.push(Error::forbidden(&at, why));
                }
            }
            _ => {}
        }
    }
    if embedded && !preserve && object(node, "properties").is_none_or(|p| p.is_empty()) {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        out.push(Error::required(&path.child("properties"), why));
    }
}

/// Whether the root's metadata restricts anything but `name` and `generateName`.
fn says_too_much(metadata: &Node) -> bool {
    let others = properties(metadata).any(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
    let members = metadata.keys().any(|name| {
        !matches!(name.as_str(), "type" | "properties" | "default")
            && is_set(metadata, name)
            && metadata[name] != Value::Bool(false)
    });
    others || members
}

fn is_int_or_string_pattern(any_of: &[Value]) -> bool {
    any_of == [json!({"type": "integer"}), json!({"type": "string"})]
}

/// The branches of a node, with the path each stands at.
fn branches<'a>(node: &'a Node, name: &'static str, path: &Path) -> Vec<(&'a Node, Path)> {
    let list = list(node, name).iter().enumerate();
    list.filter_map(|(i, branch)| Some((branch.as_object()?, path.child(name).index(i)))).collect()
}

fn value_validation(node: &Node, skip_any: bool, skip_all: bool, path: &Path, out: &mut ErrorList) {
    if !skip_any {
        for (branch, at) in branches(node, "anyOf", path) {
            nested(branch, false, &at, out);
        }
    }
    for (i, (branch, at)) in branches(node, "allOf", path).into_iter().enumerate() {
        nested(branch, skip_all && i == 0, &at, out);
    }
    for (branch, at) in branches(node, "oneOf", path) {
        nested(branch, false, &at, out);
    }
    if let Some(branch) = object(node, "not") {
        nested(branch, false, &path.child("not"), out);
    }
    let pattern = text(node, "pattern");
    if !pattern.is_empty()
        && let Err(error) = Pattern::compile(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {}", go_error(pattern, &error));
        out.push(Error::invalid(&path.child("pattern"), pattern, why));
    }
}

/// A branch may constrain values; what gives them their form must stand outside.
fn nested(node: &Node, skip_any: bool, path: &Path, out: &mut ErrorList) {
    value_validation(node, skip_any, false, path, out);
    if let Some(items) = object(node, "items") {
        nested(items, false, &path.child("items"), out);
    }
    for (name, child) in properties(node) {
        nested(child, false, &path.child("properties").key(name), out);
    }
    let forbidden = [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ];
    for (name, wanted) in forbidden {
        let off = wanted == "false" && !flag(node, name);
        let there =
            if wanted == "undefined" { node.get(name).is_some_and(|v| !v.is_null()) } else { is_set(node, name) };
        if there && !off {
            out.push(Error::forbidden(&path.child(name), format!("must be {wanted} to be structural")));
        }
    }
    if object(node, "properties").is_some_and(|p| p.contains_key("metadata")) {
        let at = path.child("properties").key("metadata");
        out.push(Error::forbidden(&at, "must not be specified in a nested context"));
    }
}

/// Whatever the root's branches say something of must be specified outside of branches too. Upstream asks that of the
/// root's branches only.
fn completeness(root: &Node, path: &Path, out: &mut ErrorList) {
    complete_values(root, Some(root), path, path, out);
}

fn complete_values(branch: &Node, node: Option<&Node>, path: &Path, at: &Path, out: &mut ErrorList) {
    for name in ["allOf", "anyOf", "oneOf"] {
        for (inner, at) in branches(branch, name, at) {
            complete(inner, node, path, &at, out);
        }
    }
    if let Some(inner) = object(branch, "not") {
        complete(inner, node, path, &at.child("not"), out);
    }
}

fn complete(branch: &Node, node: Option<&Node>, path: &Path, at: &Path, out: &mut ErrorList) {
    let Some(node) = node else {
        out.push(Error::required(path, format!("because it is defined in {at}")));
        return;
    };
    complete_values(branch, Some(node), path, at, out);
    if let Some(items) = object(branch, "items") {
        complete(items, object(node, "items"), &path.child("items"), &at.child("items"), out);
    }
    for (name, child) in properties(branch) {
        let known = object(node, "properties").and_then(|p| p.get(name)).and_then(Value::as_object);
        let step = |path: &Path| path.child("properties").key(name);
        complete(child, known, &step(path), &step(at), out);
    }
}

/// What Go's `regexp` would say of a pattern that does not compile.
fn go_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let what = if text.contains("unclosed character class") {
        let open = pattern.rfind('[').unwrap_or(0);
        format!("missing closing ]: `{}`", &pattern[open..])
    } else if text.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if text.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if text.contains("repetition operator missing expression") {
        let operator = pattern.chars().find(|c| "*+?{".contains(*c)).unwrap_or('*');
        format!("missing argument to repetition operator: `{operator}`")
    } else if text.contains("look-around") {
        let start = ["(?<=", "(?<!", "(?=", "(?!"].into_iter().find(|l| pattern.contains(l)).unwrap_or("(?");
        let shown = &start[..start.len().min(3)];
        format!("invalid or unsupported Perl syntax: `{shown}`")
    } else if text.contains("incomplete escape") {
        "trailing backslash at end of expression: ``".to_owned()
    } else if text.contains("unrecognized escape") || text.contains("backreferences") {
        let at = pattern.find('\\').unwrap_or(0);
        format!("invalid escape sequence: `{}`", pattern[at..].chars().take(2).collect::<String>())
    } else if text.contains("invalid character class range") {
        let open = pattern.find('[').map_or(0, |at| at + 1);
        format!("invalid character class range: `{}`", pattern[open..].split(']').next().unwrap_or_default())
    } else {
        text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    };
    format!("error parsing regexp: {what}")
}
