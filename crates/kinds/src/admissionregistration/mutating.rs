//! The kinds `MutatingAdmissionPolicy` and `MutatingAdmissionPolicyBinding`.

use super::parameters::{param_kind_cell, param_ref_cell};
use super::{
    binding_defaults, binding_faults, expression, optional, or_else, policy_defaults, policy_faults, reserved_name,
    rights,
};
use crate::kit::{age, at, items, text};
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use merge::cel::{PolicyScope, Yields, check_policy};
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// The kind `MutatingAdmissionPolicy`.
pub struct MutatingPolicies;

/// The kind `MutatingAdmissionPolicyBinding`.
pub struct MutatingPolicyBindings;

/// A delete has no object that could be changed.
const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// How a mutation changes an object: by which `patchType`, in which field its expression is, and what that must yield.
const PATCHES: [(&str, &str, &str); 2] =
    [("ApplyConfiguration", "applyConfiguration", "Object"), ("JSONPatch", "jsonPatch", "list(JSONPatch)")];

fn mutation(mutation: &Value, scope: PolicyScope<'_>, path: &Path, errors: &mut ErrorList) {
    let kind = text(mutation, "patchType");
    if kind.is_empty() {
        errors.push(Error::required(&path.child("patchType"), ""));
        return;
    }
    if !PATCHES.iter().any(|(known, ..)| *known == kind) {
        errors.push(Error::not_supported(&path.child("patchType"), kind, &PATCHES.map(|(known, ..)| known)));
        return;
    }
    // the one that is meant comes first
    for meant in [true, false] {
        for (_, field, yields) in PATCHES.iter().filter(|(known, ..)| (*known == kind) == meant) {
            let (patch, path) = (at(mutation, field), path.child(field));
            match (meant, patch.is_null()) {
                (true, true) => {
                    errors.push(Error::required(&path, format!("must be specified when patchType is {kind}")));
                }
                (true, false) => {
                    let (source, path) = (text(patch, "expression").trim(), path.child("expression"));
                    if source.is_empty() {
                        errors.push(Error::required(&path, ""));
                    } else if let Some(why) = expression(source, scope, &[yields]) {
                        errors.push(Error::invalid(&path, source, why));
                    } else if let Ok(Yields { undefined: Some(name), .. }) = check_policy(source, scope) {
                        let why = format!("program instantiation failed: reference to undefined type: {name}");
                        errors.push(Error::internal(&path, why));
                    }
                }
                (false, true) => {}
                (false, false) => {
                    let why = format!("must not be specified when patchType is {kind}");
                    errors.push(Error::invalid(&path, format!("{{{field}}}"), why));
                }
            }
        }
    }
}

impl MutatingPolicies {
    fn faults(policy: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(policy, "spec");
        let typed = policy_faults(spec, old, &path, Some(&OPERATIONS), &mut errors);
        let params = at(spec, "paramKind").is_object();
        let declared: Vec<(&str, &str)> = typed.iter().map(|(name, ty)| (*name, ty.as_str())).collect();
        let scope = PolicyScope { params, authorizer: true, variables: Some(&declared), patch: true };
        let at_mutations = path.child("mutations");
        if items(spec, "mutations").is_empty() {
            errors.push(Error::required(&at_mutations, "mutations must contain at least one item"));
        }
        for (i, one) in items(spec, "mutations").iter().enumerate() {
            mutation(one, scope, &at_mutations.index(i), &mut errors);
        }
        let at_again = path.child("reinvocationPolicy");
        if text(spec, "reinvocationPolicy").is_empty() {
            errors.push(Error::required(&at_again, ""));
        } else {
            optional(at(spec, "reinvocationPolicy"), &["IfNeeded", "Never"], &at_again, &mut errors);
        }
        errors
    }
}

impl Strategy for MutatingPolicies {
    fn facts(&self) -> Facts {
        Facts { qualified_finalizers: false, unconditional_update: false, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        policy_defaults(object);
    }

    fn validate_create(&self, cx: &Context<'_>, new: &Value) -> ErrorList {
        or_else(Self::faults(new, None), || rights::of_kind(cx, new, None))
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        or_else(Self::faults(new, Some(old)), || rights::of_kind(cx, new, Some(old)))
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        reserved_name(new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            json!(text(object, "metadata.name")),
            json!(items(object, "spec.mutations").len()),
            json!(param_kind_cell(object)),
            age(object, now),
        ]
    }
}

impl MutatingPolicyBindings {
    fn faults(binding: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(binding, "spec");
        binding_faults(spec, &path, Some(&OPERATIONS), &mut errors);
        errors
    }
}

impl Strategy for MutatingPolicyBindings {
    fn facts(&self) -> Facts {
        Facts { qualified_finalizers: false, unconditional_update: false, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        binding_defaults(object);
    }

    fn validate_create(&self, cx: &Context<'_>, new: &Value) -> ErrorList {
        or_else(Self::faults(new), || rights::of_reference(cx, new, "mutatingadmissionpolicies"))
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(cx, new)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        reserved_name(new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            json!(text(object, "metadata.name")),
            json!(text(object, "spec.policyName")),
            json!(param_ref_cell(object)),
            age(object, now),
        ]
    }
}
