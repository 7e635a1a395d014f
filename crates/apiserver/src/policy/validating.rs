//! Policies that refuse requests, or warn of them (ValidatingAdmissionPolicy).

use super::evaluation::Evaluation;
use super::{GROUP, Unconfigured, items, kind_asked, text};
use crate::registry::{Core, Review, Target, scale};
use resource::admission::Objects;
use resource::status::{Cause, Status};
use serde_json::Value;

/// What became of one validation.
struct Failure {
    reason: String,
    message: String,
}

impl Evaluation<'_> {
    /// The validations that fail, in order. An error counts as a failure unless the policy says to ignore those.
    fn failures(mut self) -> Vec<Failure> {
        match self.speaks() {
            Ok(true) => self.compute(),
            Ok(false) => return Vec::new(),
            Err(error) => return vec![Failure { reason: String::new(), message: error.to_string() }],
        }
        let spec = &self.policy["spec"];
        let ignores = text(spec, "failurePolicy") == "Ignore";
        let mut out = Vec::new();
        for validation in items(spec, "validations") {
            let source = text(validation, "expression");
            let failure = match self.evaluate(source) {
                Ok(Value::Bool(true)) => continue,
                Ok(_) => Failure { reason: text(validation, "reason").to_owned(), message: self.message(validation) },
                Err(_) if ignores => continue,
                // the reason is that of a validation that fails, not of one that cannot be asked
                Err(error) => Failure {
                    reason: String::new(),
                    message: format!("expression '{source}' resulted in error: {error}"),
                },
            };
            out.push(failure);
        }
        out
    }

    fn message(&self, validation: &Value) -> String {
        let computed = match text(validation, "messageExpression") {
            "" => None,
            source => self.evaluate(source).ok(),
        };
        if let Some(Value::String(message)) = computed
            && !message.trim().is_empty()
            && !message.contains('\n')
        {
            return message.trim().to_owned();
        }
        match text(validation, "message").trim() {
            "" => format!("failed expression: {}", text(validation, "expression").trim()),
            message => message.to_owned(),
        }
    }
}

impl Core {
    /// As [`Core::admit_policies`], of a request that stores no object of its own: one that connects to a pod or is the body of
    /// a subresource.
    pub(crate) fn admit_body(
        &self,
        review: &Review<'_>,
        body: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let kind = kind_asked(review.target);
        let mut body = body.clone();
        if let Some(type_name) = merge::builtin::type_name(&kind.group, &kind.kind) {
            merge::builtin::normalize(type_name, &mut body);
        }
        let admitted = self.admit_policies(review, Some(&body), warnings);
        admitted.map_err(|status| status.with_warnings(warnings))
    }

    /// Refuses what a bound policy refuses; adds the warnings of those that only warn.
    ///
    /// # Errors
    /// The first refusal, with the reason that the policy gives.
    pub(crate) fn admit_policies(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let target = review.target;
        let bindings = Objects::list(self, GROUP, "validatingadmissionpolicybindings", "");
        if bindings.is_empty() {
            return Ok(());
        }
        // policies judge a scale by itself, not by the object that it is of
        let scaled = |object: Option<&Value>| {
            let paths = (target.subresource == "scale").then(|| target.served.scale())??;
            scale::view(&target.served, object?, &paths, true).ok()
        };
        let scales = (scaled(object), scaled(review.old));
        let object = scales.0.as_ref().or(object);
        let review = Review { old: scales.1.as_ref().or(review.old), ..*review };
        let Some(facts) = self.policy_facts(&review, object) else { return Ok(()) };
        for binding in &bindings {
            let policy_name = text(&binding["spec"], "policyName");
            let Some(policy) = Objects::get(self, GROUP, "validatingadmissionpolicies", "", policy_name) else {
                continue;
            };
            let selected = match facts.selected(object, binding, &policy) {
                Ok(false) => continue,
                Ok(true) => Ok(()),
                Err(Unconfigured { of_binding: false, .. }) if text(&policy["spec"], "failurePolicy") == "Ignore" => {
                    continue;
                }
                Err(Unconfigured { why, of_binding: false }) => {
                    let failure = Failure { reason: String::new(), message: why };
                    let who = format!("ValidatingAdmissionPolicy '{policy_name}'");
                    return Err(denied(target, &facts.name, &failure, &who));
                }
                Err(why) => Err(why),
            };
            let actions = items(&binding["spec"], "validationActions");
            let does = |action: &str| actions.iter().any(|a| a == action);
            let who = format!(
                "ValidatingAdmissionPolicy '{policy_name}' with binding '{}'",
                api::object::meta(binding, "name")
            );
            let failures = match selected.and_then(|()| self.params(&policy, binding, &facts.place)) {
                Ok(all) => {
                    all.iter().flat_map(|params| Evaluation::new(&facts, object, &policy, params).failures()).collect()
                }
                Err(Unconfigured { why, .. }) if text(&policy["spec"], "failurePolicy") != "Ignore" => {
                    vec![Failure { reason: String::new(), message: why }]
                }
                Err(_) => Vec::new(),
            };
            for failure in failures {
                if does("Warn") {
                    warnings.push(format!("Validation failed for {who}: {}", failure.message));
                }
                if does("Deny") {
                    return Err(denied(target, &facts.name, &failure, &who));
                }
            }
        }
        Ok(())
    }
}

fn denied(target: &Target, name: &str, failure: &Failure, who: &str) -> Status {
    let resource = &target.served.resource;
    let why = format!("{who} denied request: {}", failure.message);
    let name = if name.is_empty() { "Unknown" } else { name };
    let mut status = Status::forbidden(&resource.group, &resource.plural, name, &why);
    (status.code, status.reason) = match failure.reason.as_str() {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    status.causes.push(Cause { message: why, ..Cause::default() });
    status
}
