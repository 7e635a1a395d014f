//! Whether a CRD's schema is structural, and otherwise fit to be served
//! (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema`, `…/pkg/apis/apiextensions/validation`).
//!
//! Works on the JSON as the CRD holds it: what a [`Schema`] cannot even express is among what is refused.

mod rules;
mod shape;
use crate::cel::cost::Cardinality;
use crate::pattern;
use crate::schema::{Schema, Steps, field_path};
use api::field::{Error, ErrorList, Path};
use serde_json::{Map, Value};

type Node = Map<String, Value>;

/// Reasons that a rule may state.
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Members that no CRD schema may have.
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// All faults of an `openAPIV3Schema` (JSON) that stands at `path` in its CRD.
pub fn check(openapi: &Value, path: &Path) -> ErrorList {
    let Value::Object(root) = openapi else {
        return vec![Error::type_invalid(path, openapi.clone(), "must be an object")];
    };
    let mut errors = ErrorList::new();
    if flag(root, "nullable") {
        errors.push(Error::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    if pattern::too_large(patterns(root).into_iter()) {
        let why = "the patterns of the schema are too large together; counts in braces and classes of Unicode multiply their size";
        errors.push(Error::forbidden(path, why));
        return errors;
    }
    // A schema that cannot be read as structural is only checked for why that is.
    let readable = is_readable(root);
    let mut sound = false;
    if readable {
        let mut faults = shape::faults(root, path);
        if faults.is_empty() {
            let steps = Steps::default();
            default_faults(openapi, path, &steps, &mut faults);
            faults.extend(steps.spent(path));
            sound = faults.is_empty();
        }
        errors.extend(faults);
    }
    let place = Place {
        defaults_forbidden: None,
        inside_metadata: false,
        uncorrelated: None,
        cardinality: Cardinality::once(),
        ruled: false,
        untyped: false,
    };
    let mut walk = Walk { errors: ErrorList::new(), rule_errors: ErrorList::new(), costs: Vec::new(), rules: sound };
    walk.node(root, path, true, &place);
    errors.append(&mut walk.errors);
    errors.append(&mut walk.rule_errors);
    errors.extend(total_cost_faults(walk.costs, path));
    if errors.is_empty()
        && let Err(why) = Schema::from_openapi(openapi)
    {
        errors.push(Error::invalid(path, "", format!("error building validator: {why}")));
    }
    errors
}

/// What a rule, or a message of one, may cost.
const COST_MAX: u64 = 10_000_000;

/// What all rules of a schema may cost together.
const TOTAL_COST_MAX: u64 = 100_000_000;

/// A rule that costs less is not named among those that make a schema too expensive.
const NAMED_COST_MIN: u64 = TOTAL_COST_MAX / 100;

/// How many of the most expensive rules are named.
const NAMED_RULES_MAX: usize = 4;

#[expect(clippy::cast_precision_loss, reason = "of large numbers the first digits do")]
fn too_expensive(what: &str, cost: u64, most: u64) -> String {
    let factor = cost as f64 / most as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// Faults of all rules together; `costs` are those of each, by where it stands.
fn total_cost_faults(mut costs: Vec<(Path, u64)>, path: &Path) -> ErrorList {
    let total = costs.iter().fold(0, |sum: u64, (_, cost)| sum.saturating_add(*cost));
    if total <= TOTAL_COST_MAX {
        return ErrorList::new();
    }
    costs.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
    let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
    let expensive = costs.iter().filter(|(_, cost)| *cost >= NAMED_COST_MIN).take(NAMED_RULES_MAX);
    let mut out: ErrorList = expensive.map(|(at, _)| Error::forbidden(at, why)).collect();
    let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
    out.push(Error::forbidden(path, too_expensive(what, total, TOTAL_COST_MAX)));
    out
}

fn flag(node: &Node, name: &str) -> bool {
    node.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(node: &'a Node, name: &str) -> &'a str {
    node.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn object<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.get(name).and_then(Value::as_object)
}

fn list<'a>(node: &'a Node, name: &str) -> &'a [Value] {
    node.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn properties(node: &Node) -> impl Iterator<Item = (&String, &Node)> {
    object(node, "properties").into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_object()?)))
}

/// How many of each of its parts a value of this schema may have at most. A map with members of its own counts as a map.
fn parts_max(node: &Node) -> Option<u64> {
    let bound = |name: &str| node.get(name).and_then(Value::as_i64).map(|most| u64::try_from(most).unwrap_or(0));
    match text(node, "type") {
        "object" if node.get("additionalProperties").is_some_and(|of| !of.is_null()) => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}

fn has_default(node: &Node) -> bool {
    node.get("default").is_some_and(|default| !default.is_null())
}

fn is_set(node: &Node, name: &str) -> bool {
    match node.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => true,
    }
}

/// All schemas directly under a node.
fn children(node: &Node) -> impl Iterator<Item = &Node> {
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|name| object(node, name));
    let branches =
        ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| list(node, name)).filter_map(Value::as_object);
    properties(node).map(|(_, child)| child).chain(single).chain(branches)
}

/// The patterns of a node and of all below it.
fn patterns(node: &Node) -> Vec<&str> {
    let mut out = Vec::new();
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        out.extend(node.get("pattern").and_then(Value::as_str));
        left.extend(children(node));
    }
    out
}

fn is_readable(node: &Node) -> bool {
    !UNSUPPORTED.iter().any(|name| is_set(node, name))
        && !node.get("items").is_some_and(Value::is_array)
        && node.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(false))
        && children(node).all(is_readable)
}

/// Defaults must be valid where they stand, and hold nothing that pruning would drop.
fn default_faults(openapi: &Value, path: &Path, steps: &Steps, out: &mut ErrorList) {
    let Value::Object(node) = openapi else { return };
    if let Some(default) = node.get("default").filter(|d| !d.is_null())
        && let Ok(schema) = Schema::node_from_openapi(openapi)
    {
        let at = path.child("default");
        let mut pruned = default.clone();
        schema.prune(&mut pruned);
        if pruned != *default {
            out.push(Error::invalid(&at, default.clone(), "must not have unknown fields"));
        }
        // As what is created, and as what is set again.
        let mut faults = schema.validate_within(steps, default, None);
        if faults.is_empty() {
            faults = schema.validate_within(steps, default, Some(default));
        }
        for mut error in faults {
            if error.detail.starts_with("some validation rules were not checked") {
                continue;
            }
            error.field = match error.field.as_str() {
                "" => at.clone(),
                relative if relative.starts_with('[') => Path::new(&format!("{}{relative}", at.as_str())),
                relative => at.child(relative),
            };
            out.push(error);
        }
    }
    if let Some(items) = node.get("items") {
        default_faults(items, &path.child("items"), steps, out);
    }
    for (name, _) in properties(node) {
        let child = &node["properties"][name];
        default_faults(child, &path.child("properties").key(name), steps, out);
    }
}

/// Where a node stands, as far as that decides what it may hold.
#[derive(Clone)]
struct Place {
    /// Why a default may not stand here.
    defaults_forbidden: Option<String>,
    inside_metadata: bool,
    /// The list or map above whose parts have no old value to compare with.
    uncorrelated: Option<Path>,
    cardinality: Cardinality,
    /// Whether a node above has rules, so that types are looked at from there on.
    ruled: bool,
    /// Whether one of those is of no type that CEL knows: the rules below it cannot be compiled, either.
    untyped: bool,
}

/// The types of JSON that a schema may name.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

struct Walk {
    errors: ErrorList,
    rule_errors: ErrorList,
    costs: Vec<(Path, u64)>,
    /// Whether rules are to be compiled.
    rules: bool,
}

impl Walk {
    fn node(&mut self, node: &Node, path: &Path, root: bool, place: &Place) {
        let before = self.errors.len();
        self.plain(node, path, place);
        if flag(node, "uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(Error::forbidden(&path.child("uniqueItems"), why));
        }
        self.below(node, path, root, place);
        self.extensions(node, path);
        self.stated_rules(node, path);
        if self.rules && self.errors.len() == before {
            self.compiled_rules(node, path, root, place);
        }
    }

    fn plain(&mut self, node: &Node, path: &Path, place: &Place) {
        let kind = text(node, "type");
        if !kind.is_empty() && !TYPES.contains(&kind) {
            self.errors.push(Error::not_supported(&path.child("type"), kind, &TYPES));
        }
        if let Some(reason) = place.defaults_forbidden.as_ref().filter(|_| has_default(node)) {
            self.errors.push(Error::forbidden(&path.child("default"), format!("must not be set {reason}")));
        }
        for name in UNSUPPORTED {
            if is_set(node, name) {
                self.errors.push(Error::forbidden(&path.child(name), format!("{name} is not supported")));
            }
        }
        if kind == "null" {
            let why = "type cannot be set to null, use nullable as an alternative";
            self.errors.push(Error::forbidden(&path.child("type"), why));
        }
        if node.get("items").is_some_and(Value::is_array) {
            let why = "items must be a schema object and not an array";
            self.errors.push(Error::forbidden(&path.child("items"), why));
        }
        if place.inside_metadata && flag(node, "x-kubernetes-embedded-resource") {
            let at = path.child("x-kubernetes-embedded-resource");
            self.errors.push(Error::forbidden(&at, "must not be used inside of resource meta"));
        }
    }

    fn below(&mut self, node: &Node, path: &Path, root: bool, place: &Place) {
        let ruled = place.ruled || !list(node, "x-kubernetes-validations").is_empty();
        let untyped = place.untyped || (ruled && !rules::is_typed(node, root));
        let inside = Place { cardinality: place.cardinality.times(parts_max(node)), ruled, untyped, ..place.clone() };
        if let Some(additional) = node.get("additionalProperties") {
            if object(node, "properties").is_some_and(|p| !p.is_empty()) && additional != &Value::Bool(true) {
                let why = "additionalProperties and properties are mutual exclusive";
                self.errors.push(Error::forbidden(&path.child("additionalProperties"), why));
            }
            if let Value::Object(child) = additional {
                let mut place = inside.clone();
                if place.inside_metadata {
                    place.defaults_forbidden =
                        Some("inside additionalProperties applying to object metadata".to_owned());
                }
                self.node(child, &path.child("additionalProperties"), false, &place);
            }
        }
        for (name, child) in properties(node) {
            let mut place = inside.clone();
            let embedded = flag(node, "x-kubernetes-embedded-resource");
            if (root || embedded) && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                place.inside_metadata = true;
                if root {
                    place.defaults_forbidden = Some(format!("in top-level {name}"));
                }
            }
            self.node(child, &path.child("properties").key(name), false, &place);
        }
        // Rules of branches are not compiled: they are evaluated through allOf alone, which structural schemas forbid.
        let rules = std::mem::replace(&mut self.rules, false);
        if let Some(child) = object(node, "not") {
            self.node(child, &path.child("not"), false, place);
        }
        for name in ["allOf", "oneOf", "anyOf"] {
            for (i, child) in list(node, name).iter().enumerate() {
                if let Value::Object(child) = child {
                    self.node(child, &path.child(name).index(i), false, place);
                }
            }
        }
        self.rules = rules;
        if let Some(child) = object(node, "items") {
            let mut place = inside.clone();
            if text(node, "x-kubernetes-list-type") != "map" && place.uncorrelated.is_none() {
                place.uncorrelated = Some(path.clone());
            }
            self.node(child, &path.child("items"), false, &place);
        }
    }

    fn extensions(&mut self, node: &Node, path: &Path) {
        let preserve = "x-kubernetes-preserve-unknown-fields";
        if node.get(preserve) == Some(&Value::Bool(false)) {
            self.errors.push(Error::invalid(&path.child(preserve), false, "must be true or undefined"));
        }
        self.typed_extension(node, path, "x-kubernetes-map-type", "object");
        if let Some(map_type) = node.get("x-kubernetes-map-type").and_then(Value::as_str)
            && !["atomic", "granular"].contains(&map_type)
        {
            let at = path.child("x-kubernetes-map-type");
            self.errors.push(Error::not_supported(&at, map_type, &["atomic", "granular"]));
        }
        let list_type = node.get("x-kubernetes-list-type").and_then(Value::as_str);
        let items = object(node, "items");
        if !self.typed_extension(node, path, "x-kubernetes-list-type", "array")
            && list_type == Some("set")
            && let Some(items) = items
        {
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let shown = items.get("x-kubernetes-list-type").cloned().unwrap_or(Value::Null);
            let element = path.child("items");
            match (text(items, "type"), text(items, "x-kubernetes-list-type"), text(items, "x-kubernetes-map-type")) {
                ("array", of, _) if !of.is_empty() && of != "atomic" => {
                    self.errors.push(Error::invalid(&element.child("x-kubernetes-list-type"), shown, why));
                }
                ("object", _, of) if of != "atomic" => {
                    self.errors.push(Error::invalid(&element.child("x-kubernetes-map-type"), shown, why));
                }
                _ => {}
            }
        }
        let at = path.child("x-kubernetes-list-type");
        if let Some(of) = list_type
            && !["atomic", "set", "map"].contains(&of)
        {
            self.errors.push(Error::not_supported(&at, of, &["atomic", "set", "map"]));
        }
        let keys = list(node, "x-kubernetes-list-map-keys");
        if !keys.is_empty() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            match list_type {
                None => self.errors.push(Error::required(&at, why)),
                Some("map") => {}
                Some(other) => self.errors.push(Error::invalid(&at, other, why)),
            }
        }
        if list_type == Some("map") {
            self.map_keys(node, path, keys);
        }
        if let (Some(of @ ("set" | "map")), Some(items)) = (list_type, items)
            && flag(items, "nullable")
        {
            let why = format!("cannot be nullable when x-kubernetes-list-type is {of}");
            self.errors.push(Error::forbidden(&path.child("items").child("nullable"), why));
        }
    }

    /// An extension that only makes sense on one type; returns whether it stands on another.
    fn typed_extension(&mut self, node: &Node, path: &Path, name: &str, wanted: &str) -> bool {
        let kind = text(node, "type");
        if !node.contains_key(name) || kind == wanted {
            return false;
        }
        let why = format!("must be {wanted} if {name} is specified");
        let at = path.child("type");
        self.errors.push(if kind.is_empty() { Error::required(&at, why) } else { Error::invalid(&at, kind, why) });
        true
    }

    fn map_keys(&mut self, node: &Node, path: &Path, keys: &[Value]) {
        let at = path.child("x-kubernetes-list-map-keys");
        if keys.is_empty() {
            self.errors.push(Error::required(&at, "must not be empty if x-kubernetes-list-type is map"));
        }
        let Some(items) = object(node, "items") else {
            if !node.contains_key("items") {
                let why = "must have a schema if x-kubernetes-list-type is map";
                self.errors.push(Error::required(&path.child("items"), why));
            }
            return;
        };
        let element = path.child("items");
        if text(items, "type") != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(Error::invalid(&element.child("type"), text(items, "type"), why));
            return;
        }
        let all = Value::from(keys.to_vec());
        for (i, key) in keys.iter().enumerate() {
            let name = key.as_str().unwrap_or_default();
            let property = object(items, "properties").and_then(|p| p.get(name)).and_then(Value::as_object);
            let here = element.child("properties").key(name);
            match property {
                None => {
                    let why = "entries must all be names of item properties";
                    self.errors.push(Error::invalid(&at, all.clone(), why));
                }
                Some(property) => {
                    if matches!(text(property, "type"), "array" | "object") {
                        let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                        self.errors.push(Error::invalid(&here.child("type"), text(items, "type"), why));
                    }
                    let required = list(items, "required").iter().any(|r| r.as_str() == Some(name));
                    if !required && !has_default(property) {
                        let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                                   required property";
                        self.errors.push(Error::required(&here.child("default"), why));
                    }
                    if flag(property, "nullable") {
                        let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                        self.errors.push(Error::forbidden(&here.child("nullable"), why));
                    }
                }
            }
            if keys[..i].contains(key) {
                self.errors.push(Error::invalid(&at, all.clone(), "must not contain duplicate entries"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
