//! Validation of values (`k8s.io/kube-openapi/pkg/validation/validate`), with ratcheting: what was already wrong and has
//! not changed may stay.
//!
//! Messages, and which faults of which branch of an `anyOf` are shown, match upstream: the branch that passed the most
//! checks speaks, so checks are counted the way upstream counts them.

mod correlate;
#[cfg(test)]
mod tests;
mod values;

use super::{Constraints, Schema, Type, formats};
use crate::bounds;
use crate::order::{self, Ordered};
use api::field::{Error, ErrorList, Path};
pub(super) use correlate::{Correlation, unchanged};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::BTreeSet;
use values::{enumeration, number_faults, string_fault, type_fault, unplaced, wrong_type};

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

    /// As [`Schema::validate`] of a new object, of which others have found `before`: some faults keep rules from being asked.
    pub fn validate_new(&self, value: &Value, before: &[Error]) -> ErrorList {
        self.check_after(before, value, None, &Path::root()).errors
    }

    /// Faults of a new object beside its types and bounds: of embedded objects, sets, maps and rules.
    pub fn invariants(&self, value: &Value) -> ErrorList {
        let mut found = Findings::default();
        self.embedded_faults(value, &Path::root(), &mut found.errors);
        self.check_lists_and_rules(&[], value, None, &Path::root(), &mut found);
        found.errors
    }

    /// As [`Schema::validate`], with the warnings about what is let be.
    ///
    /// `value` has been pruned and defaulted. `old` is the object that an update replaces, `None` on create.
    pub fn check(&self, value: &Value, old: Option<&Value>, path: &Path) -> Findings {
        self.check_after(&[], value, old, path)
    }

    /// Faults of a part of an object, which takes its steps from those of the whole. Who calls this asks them whether they were enough.
    pub(crate) fn validate_within(&self, steps: &Steps, value: &Value, old: Option<&Value>) -> ErrorList {
        self.check_in(steps, &[], value, old, &Path::root()).errors
    }

    fn check_after(&self, before: &[Error], value: &Value, old: Option<&Value>, path: &Path) -> Findings {
        let steps = Steps::default();
        let mut found = self.check_in(&steps, before, value, old, path);
        found.errors.extend(steps.spent(path));
        found
    }

    fn check_in(&self, steps: &Steps, before: &[Error], value: &Value, old: Option<&Value>, path: &Path) -> Findings {
        let mut found = Findings::default();
        let walk = Walk { root: path.as_str().is_empty(), steps };
        found.errors = walk.node(self, value, old, &Trail::Start(path), old.is_some()).distinct();
        self.embedded_faults(value, path, &mut found.errors);
        self.check_lists_and_rules(before, value, old, path, &mut found);
        found
    }

    /// As [`Schema::check`], for an update of the subresource `status`: bounds hold for the status alone, whose faults are
    /// worded as if it were the object, keys of lists and rules for the whole object.
    pub fn check_status(&self, value: &Value, old: &Value) -> Findings {
        let mut found = Findings::default();
        if let (Some(schema), Some(status)) = (self.properties.get("status"), value.get("status")) {
            let root = Path::root();
            let steps = Steps::default();
            let result =
                Walk { root: true, steps: &steps }.node(schema, status, old.get("status"), &Trail::Start(&root), true);
            let within = |field: &Path| match field.as_str() {
                "" => Path::new("status"),
                field => Path::new("status").child(field),
            };
            found.errors = result.distinct().into_iter().map(|e| Error { field: within(&e.field), ..e }).collect();
            found.errors.extend(steps.spent(&root));
        }
        self.check_lists_and_rules(&[], value, Some(old), &Path::root(), &mut found);
        found
    }

    /// What is looked at after types and bounds.
    fn check_lists_and_rules(
        &self,
        before: &[Error],
        value: &Value,
        old: Option<&Value>,
        path: &Path,
        found: &mut Findings,
    ) {
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
            if before.iter().chain(&found.errors).any(blocking) {
                let why = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";
                found.errors.push(Error::invalid(&Path::root(), Value::Null, why));
            } else {
                self.rule_faults(value, old, path, found);
            }
        }
    }
}

/// Faults of a node that are reported at most...
const FAULTS: usize = 1000;

/// ... and bytes of their texts and values, but for the last. Each element of a list may have a fault for each part of its schema: what there are of
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
            let value = error.value.as_ref().map_or(0, bounds::bytes);
            let texts = error.detail.len().saturating_add(error.field.as_str().len());
            self.bytes = self.bytes.saturating_add(texts).saturating_add(value);
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

/// Steps that the validation of an object may take: a value that is held against a schema or a branch of one, or against a member of an
/// enumeration, is one. A schema of a megabyte and an object of as much could ask for their product. What an object of 1.5 MiB holds at
/// most leaves some 30 for each value.
const STEPS_MAX: u64 = 20_000_000;

/// Steps of a pattern that take as long as one of these.
const PATTERN_STEPS: u64 = 32;

/// The steps that a validation may still take.
pub(crate) struct Steps(Cell<Option<u64>>);

impl Default for Steps {
    fn default() -> Self {
        Self::of(STEPS_MAX)
    }
}

impl Steps {
    pub const fn of(steps: u64) -> Self {
        Self(Cell::new(Some(steps)))
    }

    /// Pays for steps; whether they may be taken.
    fn spend(&self, steps: u64) -> bool {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(steps)));
        self.0.get().is_some()
    }

    /// The fault of what asks for more steps than there are: what of it was not looked at is not known to be valid.
    pub fn spent(&self, path: &Path) -> Option<Error> {
        let why = "there is too much to check: values, branches of schemas and members of enumerations multiply; \
                   try shorter lists or texts, or a schema with fewer branches";
        self.0.get().is_none().then(|| Error::forbidden(path, why))
    }
}

struct Walk<'a> {
    /// Whether the walk began at an object's root, whose type members never ratchet.
    root: bool,
    steps: &'a Steps,
}

impl Walk<'_> {
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
        let allowed = constraints.map_or(0, |c| c.enumeration.len());
        if !self.steps.spend(u64::try_from(allowed).unwrap_or(u64::MAX).saturating_add(1)) {
            return out;
        }
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
                if let Some(error) =
                    constraints.and_then(|c| string_fault(c, text, at, |steps| self.steps.spend(steps / PATTERN_STEPS)))
                {
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
