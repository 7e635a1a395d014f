//! Validation of values (`k8s.io/kube-openapi/pkg/validation/validate`), with ratcheting: what was already wrong and has
//! not changed may stay.
//!
//! Messages, and which faults of which branch of an `anyOf` are shown, match upstream: the branch that passed the most
//! checks speaks, so checks are counted the way upstream counts them.

use super::{Constraints, ListType, Schema, Type, formats};
use crate::order::{self, Keyed, Ordered};
use api::field::{Error, ErrorList, Path};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What a validation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub errors: ErrorList,
    /// Faults of CEL rules in parts that did not change: the API server lets them be and sends these as warnings.
    pub warnings: Vec<String>,
}

impl Schema {
    /// All faults: types, bounds, required, enums, CEL. `old` enables transition rules and ratcheting.
    pub fn validate(&self, value: &Value, old: Option<&Value>, path: &Path) -> ErrorList {
        self.check(value, old, path).errors
    }

    /// As [`Schema::validate`], with the warnings about what is let be.
    ///
    /// `value` has been pruned and defaulted. `old` is the object that an update replaces, `None` on create.
    pub fn check(&self, value: &Value, old: Option<&Value>, path: &Path) -> Findings {
        let mut found = Findings::default();
        let result = Walk { root: path.as_str().is_empty() }.node(self, value, old, &Trail::Start(path), old.is_some());
        found.errors = result.distinct();
        self.embedded_faults(value, path, &mut found.errors);
        self.check_lists_and_rules(value, old, path, &mut found);
        found
    }

    /// As [`Schema::check`], for an update of the subresource `status`: bounds hold for the status alone, whose faults are
    /// worded as if it were the object, keys of lists and rules for the whole object.
    pub fn check_status(&self, value: &Value, old: &Value) -> Findings {
        let mut found = Findings::default();
        if let (Some(schema), Some(status)) = (self.properties.get("status"), value.get("status")) {
            let root = Path::root();
            let result = Walk { root: true }.node(schema, status, old.get("status"), &Trail::Start(&root), true);
            let within = |field: &Path| match field.as_str() {
                "" => Path::new("status"),
                field => Path::new("status").child(field),
            };
            found.errors = result.distinct().into_iter().map(|e| Error { field: within(&e.field), ..e }).collect();
        }
        self.check_lists_and_rules(value, Some(old), &Path::root(), &mut found);
        found
    }

    /// What is looked at after types and bounds.
    fn check_lists_and_rules(&self, value: &Value, old: Option<&Value>, path: &Path, found: &mut Findings) {
        let mut doubled = ErrorList::new();
        if let Some(old) = old {
            self.uniqueness_faults(old, path, &mut doubled);
        }
        if doubled.is_empty() {
            self.uniqueness_faults(value, path, &mut found.errors);
        }
        if self.facts().rules {
            use api::field::ErrorType::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            let blocking = |e: &Error| matches!(e.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid);
            if found.errors.iter().any(blocking) {
                let why = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";
                found.errors.push(Error::invalid(&Path::root(), Value::Null, why));
            } else {
                self.rule_faults(value, old, path, found);
            }
        }
    }
}

/// Faults of a node that are told at most...
const FAULTS: usize = 1000;
/// ... and bytes of their texts, but for the last. Each element of a list may have a fault for each part of its schema: what there are of
/// them in all is the product of two lengths that clients choose.
const FAULTS_BYTES: usize = 1 << 20;

/// Faults of a node, and how many checks passed. One that is not valid has at least one fault, however many are left out.
#[derive(Default)]
struct Outcome {
    errors: ErrorList,
    bytes: usize,
    checks: u32,
}

impl Outcome {
    fn add(&mut self, error: Error) {
        if !self.is_full() {
            self.bytes = self.bytes.saturating_add(error.detail.len()).saturating_add(error.field.as_str().len());
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        other.errors.into_iter().for_each(|error| self.add(error));
        self.checks += other.checks;
    }

    /// Whether more faults would not be told: there is no need to look for them.
    fn is_full(&self) -> bool {
        self.errors.len() >= FAULTS || self.bytes >= FAULTS_BYTES
    }

    /// The faults, each once, where it was first found.
    fn distinct(self) -> ErrorList {
        fn key(error: &Error) -> (&'static str, &Path, Option<Ordered<'_>>, &str) {
            (error.kind.as_str(), &error.field, error.value.as_ref().map(Ordered), &error.detail)
        }
        let mut seen = BTreeSet::new();
        let firsts: Vec<bool> = self.errors.iter().map(|error| seen.insert(key(error))).collect();
        self.errors.into_iter().zip(firsts).filter_map(|(error, first)| first.then_some(error)).collect()
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// The elements of the list that was there before, by what makes an element the same: only associative lists correlate.
pub(super) struct Correlation<'a> {
    keys: &'a [String],
    old: BTreeMap<Keyed<'a>, &'a Value>,
}

impl<'a> Correlation<'a> {
    pub fn new(list: &'a Schema, old: Option<&'a Value>) -> Self {
        let (ListType::Map(keys), Some(Value::Array(old))) = (&list.list_type, old) else {
            return Self { keys: &[], old: BTreeMap::new() };
        };
        Self { keys, old: order::first_of(old.iter().map(|item| (Keyed { keys, item }, item))) }
    }

    /// The element that corresponds to `item`.
    pub fn of(&self, item: &'a Value) -> Option<&'a Value> {
        if self.old.is_empty() {
            return None;
        }
        self.old.get(&Keyed { keys: self.keys, item }).copied()
    }
}

/// Whether a value is what it was; the order of associative lists does not matter.
pub(super) fn unchanged(schema: &Schema, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, value)| {
                    old.get(name).is_some_and(|before| match schema.member(name) {
                        Some(member) => unchanged(member, value, before),
                        None => value == before,
                    })
                })
        }
        (Value::Array(items), Value::Array(before)) => {
            let (ListType::Map(_), Some(element)) = (&schema.list_type, &schema.items) else { return new == old };
            items.len() == before.len() && {
                let before = Correlation::new(schema, Some(old));
                items.iter().all(|item| before.of(item).is_some_and(|before| unchanged(element, item, before)))
            }
        }
        (new, old) => new == old,
    }
}

/// JSON type and format of a value, as upstream names them in messages.
fn type_and_format(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn types(kind: Type) -> &'static [&'static str] {
    match kind {
        Type::Any => &[],
        Type::Object => &["object"],
        Type::Array => &["array"],
        Type::String => &["string"],
        Type::Integer => &["integer"],
        Type::Number => &["number"],
        Type::Boolean => &["boolean"],
        Type::IntOrString => &["integer", "string"],
    }
}

/// A float as Go's `%v` prints it.
pub(super) fn go_float(number: f64) -> String {
    if number != 0.0 && (number.abs() < 1e-4 || number.abs() >= 1e21) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        format!("{mantissa}e{sign}{digits:0>2}")
    } else {
        format!("{number}")
    }
}

/// A fault that upstream does not tie to a field.
fn unplaced(why: String) -> Error {
    Error::invalid(&Path::root(), "", why)
}

/// Where a walk is. A path's text is only made where there is a fault to report.
enum Trail<'a> {
    Start(&'a Path),
    Member(&'a Trail<'a>, &'a str),
    Index(&'a Trail<'a>, usize),
}

impl Trail<'_> {
    fn path(&self) -> Path {
        match self {
            Self::Start(path) => (*path).clone(),
            Self::Member(above, name) => above.path().child(name),
            Self::Index(above, index) => above.path().index(*index),
        }
    }

    fn is_start(&self) -> bool {
        matches!(self, Self::Start(_))
    }
}

fn wrong_type(at: &Trail<'_>, wanted: &str, got: &str) -> Error {
    let path = at.path();
    Error::type_invalid(&path, got, format!("{} in body must be of type {wanted}: {got:?}", path.as_str()))
}

fn is_whole(float: f64) -> bool {
    float.is_finite() && float.abs() <= 9_007_199_254_740_991.0 && float.fract() == 0.0
}

struct Walk {
    /// Whether the walk began at an object's root, whose type members never ratchet.
    root: bool,
}

impl Walk {
    /// Validates one node. `old` is the value that corresponds to `value`; with `ratchet`, a node that did not change has no
    /// faults.
    fn node(&self, schema: &Schema, value: &Value, old: Option<&Value>, at: &Trail<'_>, ratchet: bool) -> Outcome {
        let mut out = self.faults(schema, value, old, at);
        if ratchet
            && !out.is_valid()
            && let Some(old) = old
            && unchanged(schema, value, old)
        {
            out.errors.clear();
            out.bytes = 0;
        }
        out
    }

    fn faults(&self, schema: &Schema, value: &Value, old: Option<&Value>, at: &Trail<'_>) -> Outcome {
        let mut out = Outcome::default();
        let constraints = schema.constraints.as_deref();
        let typed = schema.kind != Type::Any || schema.format.is_some();
        if value.is_null() {
            if typed {
                match type_fault(schema, value, at) {
                    Some(error) => out.add(error),
                    None => out.checks += 1,
                }
            }
            enumeration(constraints, value, at, &mut out);
            return out;
        }
        if typed {
            match type_fault(schema, value, at) {
                Some(error) => out.add(error),
                None => out.checks += 1,
            }
            out.checks += 1;
        }
        // Branches count one check for themselves and one for having been consulted, whether there are any or not.
        if let Some(constraints) = constraints {
            self.branches(constraints, value, old, at, &mut out);
        }
        out.checks += 2;
        match value {
            Value::String(text) => {
                if let Some(error) = constraints.and_then(|c| string_fault(schema, c, text, at)) {
                    out.add(error);
                }
                out.checks += 1;
                if let Some(format) = &schema.format
                    && let Some(matches) = formats::matches(format, text)
                {
                    if !matches {
                        out.add(wrong_type(at, format, text));
                    }
                    out.checks += 1;
                }
            }
            Value::Number(_) => {
                number_faults(schema, constraints, value, at, &mut out);
                out.checks += 2;
            }
            Value::Array(items) => {
                self.items(schema, constraints, items, old, at, &mut out);
                out.checks += 2;
            }
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        enumeration(constraints, value, at, &mut out);
        out.checks += 1;
        if let Value::Object(members) = value {
            self.members(schema, constraints, members, old, at, &mut out);
            out.checks += 1;
        }
        out.checks += 1;
        out
    }

    fn items(
        &self,
        schema: &Schema,
        constraints: Option<&Constraints>,
        items: &[Value],
        old: Option<&Value>,
        at: &Trail<'_>,
        out: &mut Outcome,
    ) {
        if let Some(element) = &schema.items {
            let old = Correlation::new(schema, old);
            for (i, item) in items.iter().enumerate() {
                if out.is_full() {
                    return;
                }
                let before = old.of(item);
                out.merge(self.node(element, item, before, &Trail::Index(at, i), before.is_some()));
            }
        }
        let Some(c) = constraints else { return };
        let size = items.len() as u64;
        let path = &at.path();
        let name = path.as_str();
        if let Some(min) = c.min_items.filter(|min| size < *min) {
            out.add(Error::invalid(path, size, format!("{name} in body should have at least {min} items")));
        }
        if let Some(max) = c.max_items.filter(|max| size > *max) {
            out.add(Error::too_many(path, items.len(), usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if c.unique_items && !order::repeated(items.iter().map(Ordered)).is_empty() {
            out.add(Error::invalid(path, "", format!("{name} in body shouldn't contain duplicates")));
        }
    }

    fn members(
        &self,
        schema: &Schema,
        constraints: Option<&Constraints>,
        members: &Map<String, Value>,
        old: Option<&Value>,
        at: &Trail<'_>,
        out: &mut Outcome,
    ) {
        let size = members.len() as u64;
        if let Some(min) = constraints.and_then(|c| c.min_properties).filter(|min| size < *min) {
            let path = &at.path();
            let name = path.as_str();
            out.add(Error::invalid(path, size, format!("{name} in body should have at least {min} properties")));
        }
        if let Some(max) = constraints.and_then(|c| c.max_properties).filter(|max| size > *max) {
            out.add(Error::too_many(&at.path(), members.len(), usize::try_from(max).unwrap_or(usize::MAX)));
        }
        for (name, member) in members {
            let Some(child) = schema.member(name) else { continue };
            if out.is_full() {
                return;
            }
            let of_root = self.root && at.is_start();
            let before = if of_root && matches!(name.as_str(), "apiVersion" | "kind") {
                None
            } else {
                old.and_then(|old| old.get(name))
            };
            out.merge(self.node(child, member, before, &Trail::Member(at, name), before.is_some()));
        }
        for name in &schema.required {
            if !members.contains_key(name) && !out.is_full() {
                out.add(Error::required(&at.path().child(name), ""));
            }
        }
    }

    /// `anyOf`, `oneOf`, `allOf`, `not`. Their own faults do not ratchet, those of their properties do.
    fn branches(
        &self,
        constraints: &Constraints,
        value: &Value,
        old: Option<&Value>,
        at: &Trail<'_>,
        out: &mut Outcome,
    ) {
        let path = at.path();
        let name = path.as_str();
        let outcome = |branch: &Schema| self.node(branch, value, old, at, false);
        if !constraints.any_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut passed = false;
            for branch in &constraints.any_of {
                let result = outcome(branch);
                if result.is_valid() {
                    passed = true;
                    best = Some(result);
                    break;
                }
                if best.as_ref().is_none_or(|b| result.checks > b.checks) {
                    best = Some(result);
                }
            }
            if !passed {
                out.add(unplaced(format!("{name:?} must validate at least one schema (anyOf)")));
            }
            if let Some(best) = best {
                out.merge(best);
            }
        }
        if !constraints.one_of.is_empty() {
            let mut failed: Option<Outcome> = None;
            let mut first: Option<Outcome> = None;
            let mut passed = 0;
            for branch in &constraints.one_of {
                let result = outcome(branch);
                if result.is_valid() {
                    passed += 1;
                    failed = None;
                    first.get_or_insert(result);
                } else if passed == 0 && failed.as_ref().is_none_or(|b| result.checks > b.checks) {
                    failed = Some(result);
                }
            }
            if passed == 1 {
                out.merge(first.unwrap_or_default());
            } else {
                let found = if passed == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {passed} valid alternatives")
                };
                out.add(unplaced(format!("{name:?} must validate one and only one schema (oneOf). {found}")));
                out.merge(failed.unwrap_or_default());
            }
        }
        if !constraints.all_of.is_empty() {
            let mut passed = 0;
            for branch in &constraints.all_of {
                let result = outcome(branch);
                passed += usize::from(result.is_valid());
                out.merge(result);
            }
            if passed < constraints.all_of.len() {
                let none = if passed == 0 { ". None validated" } else { "" };
                out.add(unplaced(format!("{name:?} must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &constraints.not
            && outcome(not).is_valid()
        {
            out.add(unplaced(format!("{name:?} must not validate the schema (not)")));
        }
    }
}

fn type_fault(schema: &Schema, value: &Value, at: &Trail<'_>) -> Option<Error> {
    let wanted = types(schema.kind);
    let joined = || wanted.join(",");
    if value.is_null() {
        return (!wanted.is_empty() && !schema.nullable).then(|| wrong_type(at, &joined(), "null"));
    }
    let (got, got_format) = type_and_format(value);
    let whole = wanted.contains(&"integer") && got == "number" && value.as_f64().is_some_and(is_whole);
    let integral = wanted.contains(&"number") && got == "integer";
    let fits = wanted.contains(&got) || whole || integral;
    let listed = matches!(value, Value::String(_) | Value::Array(_));
    let numeric = wanted.contains(&"number") || wanted.contains(&"integer");
    if let Some(format) = schema.format.as_deref().filter(|f| formats::is_supported(f) || is_number_format(f)) {
        if !listed && !fits && got_format != format {
            return Some(wrong_type(at, format, got_format));
        }
        // A format speaks for strings and lists; what it does not know passes.
        if listed && !numeric {
            return None;
        }
    }
    (!fits && !wanted.is_empty()).then(|| wrong_type(at, &joined(), got))
}

fn is_number_format(format: &str) -> bool {
    matches!(format, "int32" | "int64" | "float" | "double")
}

fn string_fault(schema: &Schema, c: &Constraints, text: &str, at: &Trail<'_>) -> Option<Error> {
    if c.max_length.is_some() || c.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(max) = c.max_length.filter(|max| length > *max) {
            return Some(Error::too_long(&at.path(), usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if let Some(min) = c.min_length.filter(|min| length < *min) {
            let path = &at.path();
            let why = format!("{} in body should be at least {min} chars long", path.as_str());
            return Some(Error::invalid(path, text, why));
        }
    }
    let pattern = c.pattern.as_deref()?;
    let regex = schema.rules.pattern(pattern);
    if regex.is_some_and(|regex| regex.is_match(text)) {
        return None;
    }
    let path = &at.path();
    let name = path.as_str();
    match regex {
        Some(_) => Some(Error::invalid(path, text, format!("{name} in body should match '{pattern}'"))),
        None => Some(Error::invalid(
            path,
            text,
            format!("{name} in body should match '{pattern}, but pattern is invalid: error parsing regexp'"),
        )),
    }
}

fn number_faults(schema: &Schema, constraints: Option<&Constraints>, value: &Value, at: &Trail<'_>, out: &mut Outcome) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    let integer = value.as_i64();
    let format = schema.format.as_deref().unwrap_or_default();
    match schema.kind {
        Type::Integer => {
            let whole = integer.is_some() || is_whole(number);
            let format = if matches!(format, "int32" | "int64") { format } else { "" };
            let fits = whole && (format != "int32" || (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number));
            if !fits {
                let wanted =
                    if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
                out.add(unplaced(format!("Checked value must be of type integer {wanted} in {}", at.path().as_str())));
            }
        }
        Type::Number if format == "float" && number.abs() > f64::from(f32::MAX) => {
            let name = at.path();
            out.add(unplaced(format!("Checked value must be of type number with format float in {}", name.as_str())));
        }
        Type::Any | Type::Object | Type::Array | Type::String | Type::Number | Type::Boolean | Type::IntOrString => {}
    }
    let Some(c) = constraints.filter(|c| c.minimum.is_some() || c.maximum.is_some() || c.multiple_of.is_some()) else {
        return;
    };
    let path = &at.path();
    let name = path.as_str();
    let shown = |bound: f64| {
        // Against an integer, bounds are compared and shown as integers.
        if integer.is_some() { go_float(bound.trunc()) } else { go_float(bound) }
    };
    let bound = |limit: f64| if integer.is_some() { limit.trunc() } else { limit };
    // As Go prints it: whole floats without a fraction.
    let mut value = value.clone();
    if let Value::Number(number) = &mut value {
        super::prune::normalize_number(number);
    }
    if let Some(factor) = c.multiple_of {
        let fits = match integer {
            #[expect(clippy::cast_possible_truncation, reason = "factors of integers are integers")]
            Some(integer) => (factor as i64 != 0) && integer % (factor as i64) == 0,
            None => is_whole(if factor < 1.0 { 1.0 / factor * number } else { number / factor }),
        };
        if bound(factor) <= 0.0 {
            let why = format!("factor MultipleOf declared for {name} must be positive: {}", shown(factor));
            #[expect(clippy::cast_possible_truncation, reason = "a factor is shown as the integer it is compared as")]
            let factor = if integer.is_some() { Value::from(factor as i64) } else { Value::from(factor) };
            out.add(Error::invalid(path, factor, why));
        } else if !fits {
            let why = format!("{name} in body should be a multiple of {}", shown(factor));
            out.add(Error::invalid(path, value.clone(), why));
        }
    }
    if let Some(min) = c.minimum {
        let below = if c.exclusive_minimum { number <= bound(min) } else { number < bound(min) };
        if below {
            let words = if c.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            let why = format!("{name} in body should be {words} {}", shown(min));
            out.add(Error::invalid(path, value.clone(), why));
        }
    }
    if let Some(max) = c.maximum {
        let above = if c.exclusive_maximum { number >= bound(max) } else { number > bound(max) };
        if above {
            let words = if c.exclusive_maximum { "less than" } else { "less than or equal to" };
            let why = format!("{name} in body should be {words} {}", shown(max));
            out.add(Error::invalid(path, value.clone(), why));
        }
    }
}

fn enumeration(constraints: Option<&Constraints>, value: &Value, at: &Trail<'_>, out: &mut Outcome) {
    let Some(c) = constraints.filter(|c| !c.enumeration.is_empty()) else { return };
    let equal = |allowed: &Value| match (allowed, value) {
        // Upstream converts the value to the type of what is allowed, which cuts off fractions.
        (Value::Number(a), Value::Number(b)) if !a.is_f64() => a.as_f64() == b.as_f64().map(f64::trunc),
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Null, _) => false,
        (a, b) => a == b,
    };
    if c.enumeration.iter().any(equal) {
        return;
    }
    let texts: Vec<String> = c
        .enumeration
        .iter()
        .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
        .collect();
    let supported: Vec<&str> = texts.iter().map(String::as_str).collect();
    out.add(Error::not_supported(&at.path(), value.clone(), &supported));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// As [`Correlation::of`], by looking at each element.
    fn by_search<'a>(keys: &[&str], item: &Value, old: &'a [Value]) -> Option<&'a Value> {
        old.iter().find(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
    }

    /// Elements times parts of their schema: 25 million faults once took 8 GB.
    #[test]
    fn faults_have_a_bound_and_hide_none_that_matters() {
        let names: Vec<String> = (0..2000).map(|n| format!("p{n}")).collect();
        let element = json!({"type": "object", "required": names});
        let keyed = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": names, "items": element,
        });
        let words: Vec<String> = (0..20_000).map(|n| format!("word{n}")).collect();
        let listed = json!({"type": "array", "items": {"type": "string", "enum": words}});
        for (schema, element) in [(keyed, json!({})), (listed, json!("other"))] {
            let schema = Schema::node_from_openapi(&schema).expect("a schema");
            let many = json!(vec![element.clone(); 2000]);
            let errors = schema.validate(&many, None, &Path::new("spec"));
            let bytes: usize = errors.iter().map(|error| error.detail.len()).sum();
            assert!(!errors.is_empty() && errors.len() <= FAULTS + 2 && bytes < 2 * FAULTS_BYTES, "{}", errors.len());
            // what was there before may stay, a fault that is new is found behind however many of those
            assert!(
                schema
                    .validate(&many, Some(&many), &Path::new("spec"))
                    .iter()
                    .all(|e| e.kind.as_str() == "FieldValueDuplicate")
            );
        }
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}, "b": {"type": "integer"}}});
        let schema = Schema::node_from_openapi(&schema).expect("a schema");
        let old = json!({"a": vec!["y"; 5000], "b": 1});
        let new = json!({"a": vec!["y"; 5000], "b": "wrong"});
        assert_eq!(schema.validate(&new, Some(&old), &Path::root()).len(), 1);
    }

    proptest! {
        #[test]
        fn elements_correlate_as_by_searching_them(
            old in prop::collection::vec((0..4u8, 0..4u8, any::<bool>()), 0..12),
            new in prop::collection::vec((0..4u8, 0..4u8, any::<bool>()), 0..12),
        ) {
            let element = |(n, (port, protocol, given)): (usize, &(u8, u8, bool))| match given {
                true => json!({"port": port, "protocol": protocol, "n": n}),
                false => json!({"port": port, "n": n}),
            };
            let list = |of: &[(u8, u8, bool)]| of.iter().enumerate().map(element).collect::<Vec<Value>>();
            let schema = Schema::node_from_openapi(&json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object"},
            })).expect("a schema");
            let (old, new) = (list(&old), list(&new));
            let before = Value::from(old.clone());
            let correlation = Correlation::new(&schema, Some(&before));
            for item in &new {
                prop_assert_eq!(correlation.of(item), by_search(&["port", "protocol"], item, &old));
            }
        }
    }

    #[test]
    fn a_fault_that_two_branches_find_is_told_once() {
        let schema = Schema::node_from_openapi(&json!({
            "type": "object", "properties": {"a": {"type": "string", "maxLength": 1}},
            "allOf": [{"properties": {"a": {"maxLength": 1}}}],
        }))
        .expect("a schema");
        let faults = schema.validate(&json!({"a": "long"}), None, &Path::root());
        let of_a: Vec<&Error> = faults.iter().filter(|fault| fault.field.as_str() == "a").collect();
        assert_eq!(of_a.len(), 1, "{faults:?}");
    }
}
