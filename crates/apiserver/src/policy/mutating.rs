//! Policies that change objects on their way in (MutatingAdmissionPolicy).
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy/{generic,mutating}`. Upstream's plugins run twice where a policy has
//! changed an object; then the policies run again that say so (`reinvocationPolicy: IfNeeded`) and have run before.

use super::evaluation::Evaluation;
use super::{Facts, GROUP, Unconfigured, items, kind_asked, text};
use crate::decode;
use crate::query::FieldValidation;
use crate::registry::write::bounded;
use crate::registry::{Core, Review, Target, internal};
use api::object::Gvk;
use merge::PatchError;
use merge::cel::Computed;
use resource::admission::Objects;
use resource::status::{Cause, Status};
use serde_json::Value;
use std::sync::Arc;

/// The policies that have run, by policy, binding and parameter: those that may run again.
#[derive(Default)]
pub(crate) struct Invoked(Vec<Key>);

type Key = (String, String, String);

/// What policies change.
enum Form {
    /// An object of the kind that is asked about.
    Own,
    Body {
        type_name: &'static str,
        gvk: Gvk,
        /// Whether upstream's document of the kind's own group and version describes it: a kind that only paths of another group
        /// have has no type there by which something could be applied.
        described: bool,
        /// Of a custom resource, whose objects alone upstream can convert.
        custom: bool,
    },
}

/// A policy with a binding and a parameter.
struct Invocation {
    key: Key,
    policy: Arc<Value>,
    params: Value,
}

/// A policy that could not do its work.
struct Failure {
    message: String,
    reason: &'static str,
}

/// A mutation that could not be made.
enum Refusal {
    /// The policy's failure: whether it refuses the request, the policy says.
    Failed(String),
    /// The request ends with this answer, whatever the policy says.
    Answered(Status),
}

impl Core {
    /// Lets policies change the body of a subresource, which is of a kind of its own.
    ///
    /// # Errors
    /// As [`Core::mutate_by_policies`].
    pub(crate) fn mutate_body(&self, review: &Review<'_>, body: &mut Value) -> Result<(), Status> {
        let target = review.target;
        let resource = &target.served.resource;
        let gvk = kind_asked(target);
        let Some(type_name) = merge::builtin::type_name(&gvk.group, &gvk.kind) else { return Ok(()) };
        if Objects::list(self, GROUP, "mutatingadmissionpolicybindings", "").is_empty() {
            return Ok(());
        }
        let mut seen = body.clone();
        merge::builtin::normalize(type_name, &mut seen);
        let described = (&gvk.group, &gvk.version) == (&resource.group, &resource.version);
        let form = Form::Body { type_name, gvk, described, custom: target.served.custom.is_some() };
        let invoked = self.run_policies(review, &form, &mut seen, None)?;
        if let Some(invoked) = &invoked {
            self.run_policies(review, &form, &mut seen, Some(invoked))?;
            *body = seen;
        }
        Ok(())
    }

    /// Lets policies change `object`. `again`: those that have run before, the second time. Returns which policies ran, if any
    /// did: then the plugins before them run once more, and these policies.
    ///
    /// # Errors
    /// A policy that fails, unless it says that failures of its own are to be ignored.
    pub(crate) fn mutate_by_policies(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        again: Option<&Invoked>,
    ) -> Result<Option<Invoked>, Status> {
        // of a scale policies have seen what was sent
        if review.target.subresource == "scale" {
            return Ok(None);
        }
        self.run_policies(review, &Form::Own, object, again)
    }

    fn run_policies(
        &self,
        review: &Review<'_>,
        form: &Form,
        object: &mut Value,
        again: Option<&Invoked>,
    ) -> Result<Option<Invoked>, Status> {
        let bindings = Objects::list(self, GROUP, "mutatingadmissionpolicybindings", "");
        if bindings.is_empty() {
            return Ok(None);
        }
        let first = object.clone();
        let Some(facts) = self.policy_facts(review, Some(&first)) else { return Ok(None) };
        let mut failures = Vec::new();
        let mut invoked = None;
        for invocation in self.invocations(&facts, &bindings, &first, &mut failures) {
            let spec = &invocation.policy["spec"];
            let mut fail = |message: String| {
                if text(spec, "failurePolicy") != "Ignore" {
                    let (policy, binding, _) = &invocation.key;
                    let message = format!("policy '{policy}' with binding '{binding}' denied request: {message}");
                    failures.push(Failure { message, reason: "Invalid" });
                }
            };
            match Evaluation::new(&facts, Some(object), &invocation.policy, &invocation.params).speaks() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    fail(why.to_string());
                    continue;
                }
            }
            // after the conditions, which are asked of all: an error of theirs counts
            if again.is_some_and(|again| !again.0.contains(&invocation.key)) {
                continue;
            }
            let ran = invoked.get_or_insert_with(Invoked::default);
            for mutation in items(spec, "mutations") {
                match mutate(&facts, form, &invocation, mutation, object) {
                    Ok(()) => {}
                    Err(Refusal::Failed(why)) => fail(why),
                    Err(Refusal::Answered(status)) => return Err(status),
                }
            }
            if text(spec, "reinvocationPolicy") == "IfNeeded" {
                ran.0.push(invocation.key);
            }
        }
        match failures.first() {
            None => Ok(invoked),
            Some(first) => {
                let prefix = || api::object::meta(object, "generateName");
                let known = [facts.name.as_str(), prefix(), "Unknown"].into_iter().find(|name| !name.is_empty());
                Err(denied(review.target, known.unwrap_or_default(), first, &failures))
            }
        }
    }

    /// What is to run, by the names of policies and bindings. Policies that cannot be asked are `failures`.
    fn invocations(
        &self,
        facts: &Facts<'_>,
        bindings: &[Arc<Value>],
        object: &Value,
        failures: &mut Vec<Failure>,
    ) -> Vec<Invocation> {
        let mut out = Vec::new();
        for policy in Objects::list(self, GROUP, "mutatingadmissionpolicies", "") {
            let name = api::object::meta(&policy, "name");
            for binding in bindings.iter().filter(|binding| text(&binding["spec"], "policyName") == name) {
                let bound = api::object::meta(binding, "name");
                let params = match facts.selected(Some(object), binding, &policy) {
                    Ok(false) => continue,
                    Ok(true) => self.params(&policy, binding, &facts.place),
                    Err(why) => Err(why),
                };
                match params {
                    Ok(all) => out.extend(all.into_iter().map(|params| {
                        let parameter = format!(
                            "{}/{}",
                            api::object::meta(&params, "namespace"),
                            api::object::meta(&params, "name")
                        );
                        Invocation {
                            key: (name.to_owned(), bound.to_owned(), parameter),
                            policy: policy.clone(),
                            params,
                        }
                    })),
                    Err(_) if text(&policy["spec"], "failurePolicy") == "Ignore" => {}
                    Err(Unconfigured { why, of_binding }) => {
                        let who = match of_binding {
                            true => format!("policy '{name}' with binding '{bound}'"),
                            false => format!("policy {name:?}"),
                        };
                        failures.push(Failure { message: format!("{who} denied request: {why}"), reason: "Forbidden" });
                    }
                }
            }
        }
        out
    }
}

/// Makes one mutation.
fn mutate(
    facts: &Facts<'_>,
    form: &Form,
    invocation: &Invocation,
    mutation: &Value,
    object: &mut Value,
) -> Result<(), Refusal> {
    let served = &facts.target.served;
    let before = object.clone();
    let mut evaluation = Evaluation::new(facts, Some(&before), &invocation.policy, &invocation.params);
    evaluation.compute();
    let evaluated = |source: &str| -> Result<Computed, Refusal> {
        let result = evaluation.computed(source);
        result.map_err(|why| {
            Refusal::Failed(match evaluation.is_spent() {
                true => why.to_string(),
                false => format!("expression '{source}' resulted in error: {why}"),
            })
        })
    };
    let failed = |error: &dyn ToString| Refusal::Failed(error.to_string());
    let strictly = if text(mutation, "patchType") == "JSONPatch" {
        let computed = evaluated(text(&mutation["jsonPatch"], "expression"))?;
        let patch = computed.json_patch().map_err(|error| failed(&error))?;
        match merge::json_patch::apply(&before, &patch) {
            Ok(patched) => *object = patched,
            Err(PatchError::TestFailed(_)) => return Ok(()),
            Err(error) => return Err(Refusal::Failed(format!("JSON Patch: {error}"))),
        }
        FieldValidation::Strict
    } else {
        let computed = evaluated(text(&mutation["applyConfiguration"], "expression"))?;
        let mut patch = computed.configuration().map_err(|error| failed(&error))?;
        for field in ["apiVersion", "kind"] {
            patch[field] = before[field].clone();
        }
        if let Form::Body { gvk, described: false, .. } = form {
            return Err(Refusal::Failed(format!(
                "error applying patch: failed to convert patch object to typed object: no corresponding type for {}/{}, Kind={}",
                gvk.group, gvk.version, gvk.kind
            )));
        }
        let schema = match form {
            Form::Own => None,
            Form::Body { type_name, .. } => Some(merge::builtin::schema(type_name)),
        };
        let schema = schema.as_deref().unwrap_or_else(|| served.schema());
        *object = merge::apply::merge_configuration(&before, &patch, schema)
            .map_err(|why| Refusal::Failed(format!("error applying patch: {why}")))?;
        FieldValidation::Ignore
    };
    let answered = |why: String| Refusal::Answered(internal(why));
    if let Form::Body { type_name, gvk, custom, .. } = form {
        if *custom {
            let why = format!("request to convert CR to an invalid group/version: {}", gvk.api_version());
            return Err(Refusal::Failed(why));
        }
        merge::builtin::decode(type_name, object).map_err(|why| answered(why.to_string()))?;
        let unknown = merge::builtin::schema(type_name).prune(object);
        decode::judge(strictly, unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect())
            .map_err(|why| answered(why.to_string()))?;
        return bounded(object).map_err(Refusal::Answered);
    }
    served.decode(object).map_err(|why| answered(why.to_string()))?;
    if served.custom.is_none() {
        decode::prune(served, object, &[], strictly).map_err(|why| answered(why.to_string()))?;
    }
    bounded(object).map_err(Refusal::Answered)?;
    served.resource.strategy.default(object);
    served.schema().default_again(object);
    served.normalize(object);
    Ok(())
}

fn denied(target: &Target, name: &str, first: &Failure, all: &[Failure]) -> Status {
    let resource = &target.served.resource;
    let mut status = Status::forbidden(&resource.group, &resource.plural, name, "");
    status.message.clone_from(&first.message);
    status.reason = first.reason;
    status.causes = all.iter().map(|failure| Cause { message: failure.message.clone(), ..Cause::default() }).collect();
    status
}
