//! The kinds `ValidatingAdmissionPolicy` and `ValidatingAdmissionPolicyBinding`.

use super::parameters::{param_kind_cell, param_ref_cell};
use super::{
    binding_defaults, binding_faults, expression, optional, or_else, policy_defaults, policy_faults, reserved_name,
    rights,
};
use crate::kit::{age, at, items, keep, keep_meta, text};
use crate::misc::conditions;
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use merge::apply::Ignored;
use merge::cel::PolicyScope;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// The kind `ValidatingAdmissionPolicy`.
pub struct Policies;

/// The kind `ValidatingAdmissionPolicyBinding`.
pub struct PolicyBindings;

/// Audit annotations of a policy, at most.
const ANNOTATIONS_MAX: usize = 20;

/// Bytes of an expression that makes an audit annotation, at most.
const ANNOTATION_BYTES_MAX: usize = 5 << 10;

/// What a policy adds to the audit log.
fn annotations(policy: &Value, scope: PolicyScope<'_>, path: &Path, errors: &mut ErrorList) {
    let path = path.child("auditAnnotations");
    let own = text(policy, "metadata.name");
    let annotations = items(policy, "spec.auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let why = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(Error::invalid(&path, annotations.to_vec(), why));
    }
    for (i, annotation) in annotations.iter().enumerate() {
        let path = path.index(i);
        let (key, source) = (text(annotation, "key"), text(annotation, "valueExpression"));
        if own.is_empty() {
            errors.push(Error::invalid(&path.child("key"), key, "requires metadata.name be non-empty"));
        } else {
            let full = format!("{own}/{key}");
            for fault in names::qualified_name_faults(&full) {
                errors.push(Error::invalid(&path.child("key"), full.as_str(), fault));
            }
        }
        let at_value = path.child("valueExpression");
        if source.trim().is_empty() {
            errors.push(Error::required(&at_value, "valueExpression is not specified"));
        } else if source.trim().len() > ANNOTATION_BYTES_MAX {
            let why = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
            errors.push(Error::required(&at_value, why));
        } else if let Some(why) = expression(source, scope, &["string", "null_type"]) {
            errors.push(Error::invalid(&at_value, source, why));
        }
        if annotations[..i].iter().any(|other| text(other, "key") == key) {
            errors.push(Error::duplicate(&path.child("key"), key));
        }
    }
}

impl Policies {
    fn faults(policy: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(policy, "spec");
        let typed = policy_faults(spec, old, &path, None, &mut errors);
        let params = at(spec, "paramKind").is_object();
        let declared: Vec<(&str, &str)> = typed.iter().map(|(name, ty)| (*name, ty.as_str())).collect();
        // a policy that has no variables does not know the word
        let variables = Some(declared.as_slice()).filter(|_| !items(spec, "variables").is_empty());
        let scope = PolicyScope { params, authorizer: true, variables, patch: false };
        let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
        if validations.is_empty() && annotations.is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.push(Error::required(&path.child("validations"), detail));
            errors.push(Error::required(&path.child("auditAnnotations"), detail));
        }
        for (i, validation) in validations.iter().enumerate() {
            let path = path.child("validations").index(i);
            let source = text(validation, "expression");
            if source.trim().is_empty() {
                errors.push(Error::required(&path.child("expression"), "expression is not specified"));
            } else if let Some(why) = expression(source, scope, &["bool"]) {
                errors.push(Error::invalid(&path.child("expression"), source, why));
            }
            let shown = text(validation, "messageExpression");
            if !shown.is_empty() && shown.trim().is_empty() {
                let detail = "must be non-empty if specified";
                errors.push(Error::invalid(&path.child("messageExpression"), shown, detail));
            } else if !shown.is_empty()
                && let Some(why) = expression(shown, PolicyScope { authorizer: false, ..scope }, &["string"])
            {
                errors.push(Error::invalid(&path.child("messageExpression"), shown, why));
            }
            let message = text(validation, "message");
            if !message.is_empty() && message.trim().is_empty() {
                let detail = "must be non-empty if specified";
                errors.push(Error::invalid(&path.child("message"), message, detail));
            } else if message.trim().contains(['\n', '\r']) {
                errors.push(Error::invalid(&path.child("message"), message, "must not contain line breaks"));
            }
            let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
            optional(at(validation, "reason"), &reasons, &path.child("reason"), &mut errors);
        }
        self::annotations(policy, scope, &path, &mut errors);
        errors
    }
}

impl Strategy for Policies {
    fn facts(&self) -> Facts {
        Facts { qualified_finalizers: false, unconditional_update: false, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        policy_defaults(object);
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({});
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
        for member in ["labels", "annotations", "finalizers", "ownerReferences"] {
            keep_meta(new, old, member);
        }
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let path = Path::new("status");
        let mut errors = ErrorList::new();
        let at_warnings = path.child("typeChecking").child("expressionWarnings");
        for (i, warning) in items(new, "status.typeChecking.expressionWarnings").iter().enumerate() {
            let path = at_warnings.index(i);
            if text(warning, "warning").is_empty() {
                errors.push(Error::required(&path.child("warning"), ""));
            }
            if text(warning, "fieldRef").trim().is_empty() {
                errors.push(Error::required(&path.child("fieldRef"), ""));
            }
        }
        errors.extend(conditions(items(new, "status.conditions"), &path.child("conditions")));
        errors
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::paths(&["spec", "metadata"]),
            _ => Ignored::paths(&["status"]),
        }
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
            json!(items(object, "spec.validations").len()),
            json!(param_kind_cell(object)),
            age(object, now),
        ]
    }
}

impl PolicyBindings {
    fn faults(binding: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let spec = at(binding, "spec");
        binding_faults(spec, &path, None, &mut errors);
        let actions = items(spec, "validationActions");
        let at_actions = path.child("validationActions");
        if actions.is_empty() {
            errors.push(Error::required(&at_actions, "at least one validation action is required"));
        }
        for (i, action) in actions.iter().enumerate() {
            optional(action, &["Audit", "Deny", "Warn"], &at_actions.index(i), &mut errors);
            if actions[..i].contains(action) {
                errors.push(Error::duplicate(&at_actions.index(i), action.clone()));
            }
        }
        let has = |name: &str| actions.iter().any(|a| a == name);
        if has("Deny") && has("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                          API response and headers serves no purpose)";
            errors.push(Error::invalid(&at_actions, actions.to_vec(), detail));
        }
        errors
    }
}

impl Strategy for PolicyBindings {
    fn facts(&self) -> Facts {
        Facts { qualified_finalizers: false, unconditional_update: false, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        binding_defaults(object);
    }

    fn validate_create(&self, cx: &Context<'_>, new: &Value) -> ErrorList {
        or_else(Self::faults(new), || rights::of_reference(cx, new, "validatingadmissionpolicies"))
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
