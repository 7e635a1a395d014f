//! Admission by policies that are objects themselves (ValidatingAdmissionPolicy and its bindings).

use crate::registry::{Core, Target, listed};
use api::selector::Selector;
use merge::cel::{Attributes, Authorizer, CelError, Computed, Expression, Given, Question, Subject};
use resource::admission::{Objects, Operation};
use resource::status::Status;
use resource::{Access, Ask, User};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use store::Store;

const GROUP: &str = "admissionregistration.k8s.io";
/// Compiled expressions kept at most; policies have few.
const KEPT: usize = 1024;

/// Compiled expressions by their text.
static COMPILED: LazyLock<Mutex<BTreeMap<String, Expression>>> = LazyLock::new(Mutex::default);

fn compile(source: &str) -> Result<Expression, CelError> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(expression) = compiled.get(source) {
        return Ok(expression.clone());
    }
    let expression = Expression::compile(source)?;
    if compiled.len() >= KEPT {
        compiled.clear();
    }
    compiled.insert(source.to_owned(), expression.clone());
    Ok(expression)
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// One request, as match rules and expressions see it.
struct Facts<'a> {
    target: &'a Target,
    operation: Operation,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
    name: &'a str,
    /// The namespace that the object is in, or is.
    namespace: Option<Arc<Value>>,
    request: Value,
    /// `authorizer`, and what `authorizer.requestResource` is about.
    rights: (Arc<dyn Authorizer>, Attributes),
}

/// The rights that the variable `authorizer` asks about.
struct Rights {
    store: Store,
    access: Arc<dyn Access>,
    user: User,
}

impl Authorizer for Rights {
    fn check(&self, question: &Question) -> Option<String> {
        // without `system:authenticated`, as upstream's: nobody has authenticated this account
        let account = question.account.as_ref().map(|(namespace, name)| User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
            ..User::default()
        });
        let user = account.as_ref().unwrap_or(&self.user);
        let list = |group: &str, plural: &str, namespace: &str| listed(&self.store, group, plural, namespace);
        match &question.subject {
            Subject::Path(path) => self.access.allows(user, &Ask::Path { verb: &question.verb, path }, &list),
            Subject::Resource(Attributes { group, resource, subresource, namespace, name, fields }) => {
                let resource = match subresource.as_str() {
                    "" => resource.clone(),
                    sub => format!("{resource}/{sub}"),
                };
                let ask = Ask::Resource { verb: &question.verb, group, resource: &resource, namespace, name, fields };
                self.access.allows(user, &ask, &list)
            }
        }
    }
}

impl Facts<'_> {
    fn rule_matches(&self, rule: &Value) -> bool {
        let resource = &self.target.served.resource;
        let has = |member: &str, wanted: &str| items(rule, member).iter().any(|v| v == "*" || v == wanted);
        let full = match self.target.subresource.as_str() {
            "" => resource.plural.clone(),
            sub => format!("{}/{sub}", resource.plural),
        };
        let resource_fits = items(rule, "resources").iter().filter_map(Value::as_str).any(|wanted| {
            wanted == full
                || wanted == "*/*"
                || (wanted == "*" && self.target.subresource.is_empty())
                || wanted.strip_suffix("/*").is_some_and(|plural| plural == resource.plural)
                || wanted.strip_prefix("*/").is_some_and(|sub| sub == self.target.subresource)
        });
        let scope_fits = match text(rule, "scope") {
            "Cluster" => !resource.namespaced,
            "Namespaced" => resource.namespaced,
            _ => true,
        };
        let names = items(rule, "resourceNames");
        resource_fits
            && scope_fits
            && has("operations", self.operation.as_str())
            && has("apiGroups", &resource.group)
            && has("apiVersions", &resource.version)
            && (names.is_empty() || names.iter().any(|n| n == self.name))
    }

    /// Whether `MatchResources` select the request; without rules of its own, a binding's select all.
    fn matched(&self, matching: &Value, rules_needed: bool) -> bool {
        let empty = json!({});
        let labels =
            |object: Option<&Value>| object.and_then(|o| o["metadata"].get("labels")).cloned().unwrap_or(json!({}));
        let selects = |field: &str, labels: &Value| {
            let wanted = matching.get(field).unwrap_or(&empty);
            wanted.as_object().is_none_or(Map::is_empty)
                || Selector::read(wanted).is_some_and(|selector| selector.matches(labels))
        };
        if let Some(namespace) = &self.namespace
            && !selects("namespaceSelector", &labels(Some(namespace)))
        {
            return false;
        }
        let object_fits = [self.object, self.old]
            .into_iter()
            .flatten()
            .any(|object| selects("objectSelector", &labels(Some(object))));
        if !object_fits || items(matching, "excludeResourceRules").iter().any(|rule| self.rule_matches(rule)) {
            return false;
        }
        let rules = items(matching, "resourceRules");
        if rules.is_empty() { !rules_needed } else { rules.iter().any(|rule| self.rule_matches(rule)) }
    }
}

/// What became of one validation.
struct Failure {
    reason: String,
    message: String,
}

/// A policy with one parameter, ready to be asked.
struct Evaluation<'a> {
    facts: &'a Facts<'a>,
    policy: &'a Value,
    params: Value,
    variables: BTreeMap<String, Computed>,
    /// Variables that could not be computed, as errors of expressions that use them say it.
    broken: BTreeMap<String, String>,
    /// What its expressions may still cost together; `None`: they have cost too much.
    left: Cell<Option<u64>>,
}

/// What the expressions of a policy may cost together (upstream's `RuntimeCELCostBudget`; what one may is checked as it runs).
const COST_MAX: u64 = 10_000_000;
/// What its match conditions may cost together, apart from the others (`RuntimeCELCostBudgetMatchConditions`).
const CONDITIONS_COST_MAX: u64 = COST_MAX / 4;
/// In upstream's words.
const TOO_DEAR: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

impl<'a> Evaluation<'a> {
    fn new(facts: &'a Facts<'a>, policy: &'a Value, params: Value) -> Self {
        let left = Cell::new(Some(CONDITIONS_COST_MAX));
        Self { facts, policy, params, variables: BTreeMap::new(), broken: BTreeMap::new(), left }
    }

    /// Whether the match conditions let the policy speak; an error of theirs, where it counts as a failure.
    fn speaks(&self) -> Result<bool, Failure> {
        let spec = &self.policy["spec"];
        for condition in items(spec, "matchConditions") {
            match self.evaluate(text(condition, "expression")) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(_) if text(spec, "failurePolicy") == "Ignore" => return Ok(false),
                Err(error) => {
                    let message = format!("match condition {:?} resulted in error: {error}", text(condition, "name"));
                    return Err(Failure { reason: String::new(), message });
                }
            }
        }
        Ok(true)
    }

    /// Works the variables out.
    fn compute(&mut self) {
        self.left.set(Some(COST_MAX));
        for variable in items(&self.policy["spec"], "variables") {
            let name = text(variable, "name").to_owned();
            match self.computed(text(variable, "expression")) {
                Ok(value) => {
                    self.variables.insert(name, value);
                }
                Err(error) => {
                    let why = format!("composited variable {name:?} fails to evaluate: {error}");
                    self.broken.insert(name, why);
                }
            }
        }
    }

    fn evaluate(&self, source: &str) -> Result<Value, String> {
        self.computed(source).map(|value| value.json())
    }

    fn computed(&self, source: &str) -> Result<Computed, String> {
        let none = Value::Null;
        let expression = compile(source).map_err(|error| format!("compilation error: {error}"))?;
        let namespace = self.facts.namespace.as_deref().unwrap_or(&none);
        let left = self.left.get().ok_or(TOO_DEAR)?;
        let given = Given {
            values: &[
                ("object", self.facts.object.unwrap_or(&none)),
                ("oldObject", self.facts.old.unwrap_or(&none)),
                ("request", &self.facts.request),
                ("params", &self.params),
                ("namespaceObject", namespace),
            ],
            variables: Some(&self.variables),
            rights: Some(&self.facts.rights),
        };
        let (result, cost) = expression.evaluate_policy(&given);
        // an expression without a loop is not free
        self.left.set(left.checked_sub(cost.saturating_add(1)));
        if self.left.get().is_none() {
            return Err(TOO_DEAR.to_owned());
        }
        result.map_err(|error| {
            let uses = |name: &str| {
                source.match_indices(&format!("variables.{name}")).any(|(at, found)| {
                    let rest = source[at..].strip_prefix(found).unwrap_or_default();
                    !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                })
            };
            let broken = self.broken.iter().find(|(name, _)| uses(name)).map(|(_, why)| why.clone());
            broken.unwrap_or_else(|| error.to_string())
        })
    }

    /// The validations that fail, in order. An error counts as a failure unless the policy says to ignore those.
    fn failures(mut self) -> Vec<Failure> {
        match self.speaks() {
            Ok(true) => self.compute(),
            Ok(false) => return Vec::new(),
            Err(failure) => return vec![failure],
        }
        let spec = &self.policy["spec"];
        let ignores = text(spec, "failurePolicy") == "Ignore";
        let mut out = Vec::new();
        for validation in items(spec, "validations") {
            let source = text(validation, "expression");
            let message = match self.evaluate(source) {
                Ok(Value::Bool(true)) => continue,
                Ok(_) => self.message(validation),
                Err(_) if ignores => continue,
                Err(error) => format!("expression '{source}' resulted in error: {error}"),
            };
            out.push(Failure { reason: text(validation, "reason").to_owned(), message });
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
    /// Refuses what a bound policy refuses; adds the warnings of those that only warn.
    ///
    /// # Errors
    /// The first refusal, with the reason that the policy gives.
    #[expect(clippy::too_many_arguments, reason = "the facts of one request")]
    pub(crate) fn admit_policies(
        &self,
        target: &Target,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
        user: &User,
        dry_run: bool,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let resource = &target.served.resource;
        // Nobody can lock himself out of changing policies.
        if resource.group == GROUP {
            return Ok(());
        }
        let bindings = Objects::list(self, GROUP, "validatingadmissionpolicybindings", "");
        if bindings.is_empty() {
            return Ok(());
        }
        let any = object.or(old);
        let name = any.map_or(target.name.as_str(), |o| api::object::meta(o, "name"));
        let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
        let namespace = match (is_namespace, target.namespace.as_str()) {
            (true, _) => any.cloned().map(Arc::new),
            (false, "") => None,
            (false, namespace) => Objects::get(self, "", "namespaces", "", namespace),
        };
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
        let rights = Rights { store: self.store.clone(), access: self.access.clone(), user: user.clone() };
        let own = Attributes {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            fields: String::new(),
        };
        let facts = Facts {
            rights: (Arc::new(rights), own),
            target,
            operation,
            object,
            old,
            name,
            namespace,
            request: json!({
                "kind": kind, "resource": plural, "subResource": target.subresource,
                "requestKind": kind, "requestResource": plural, "requestSubResource": target.subresource,
                "name": name, "namespace": target.namespace, "operation": operation.as_str(), "dryRun": dry_run,
                "userInfo": {"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra},
            }),
        };
        for binding in &bindings {
            let policy_name = text(&binding["spec"], "policyName");
            let Some(policy) = Objects::get(self, GROUP, "validatingadmissionpolicies", "", policy_name) else {
                continue;
            };
            let bound = binding["spec"].get("matchResources").is_none_or(|m| m.is_null() || facts.matched(m, false));
            if !bound || !facts.matched(&policy["spec"]["matchConstraints"], true) {
                continue;
            }
            let actions = items(&binding["spec"], "validationActions");
            let does = |action: &str| actions.iter().any(|a| a == action);
            let who = format!(
                "ValidatingAdmissionPolicy '{policy_name}' with binding '{}'",
                api::object::meta(binding, "name")
            );
            let failures = match self.params(&policy, binding, target) {
                Ok(all) => {
                    all.into_iter().flat_map(|params| Evaluation::new(&facts, &policy, params).failures()).collect()
                }
                Err(message) if text(&policy["spec"], "failurePolicy") != "Ignore" => {
                    vec![Failure { reason: String::new(), message }]
                }
                Err(_) => Vec::new(),
            };
            for failure in failures {
                if does("Warn") {
                    warnings.push(format!("Validation failed for {who}: {}", failure.message));
                }
                if does("Deny") {
                    return Err(denied(target, name, &failure, &who));
                }
            }
        }
        Ok(())
    }

    /// The parameter objects of a binding; one `null` for a policy without.
    fn params(&self, policy: &Value, binding: &Value, target: &Target) -> Result<Vec<Value>, String> {
        let wanted = &policy["spec"]["paramKind"];
        let reference = &binding["spec"]["paramRef"];
        if !wanted.is_object() || !reference.is_object() {
            return Ok(vec![Value::Null]);
        }
        let gvk = api::object::Gvk::from_api_version(text(wanted, "apiVersion"), text(wanted, "kind"));
        let catalog = self.catalog();
        let Some(served) = catalog.kind_of(wanted) else {
            return Err(format!(
                "failed to configure policy: failed to find resource referenced by paramKind: '{gvk}'"
            ));
        };
        let namespace = match (served.resource.namespaced, text(reference, "namespace")) {
            (false, _) => "",
            (true, "") => target.namespace.as_str(),
            (true, namespace) => namespace,
        };
        let resource = &served.resource;
        let selector = Selector::read(&reference["selector"]);
        let found: Vec<Value> = match text(reference, "name") {
            "" => Objects::list(self, &resource.group, &resource.plural, namespace)
                .iter()
                .filter(|o| selector.as_ref().is_some_and(|selector| selector.selects(o)))
                .map(|o| (**o).clone())
                .collect(),
            name => Objects::get(self, &resource.group, &resource.plural, namespace, name)
                .map(|o| (*o).clone())
                .into_iter()
                .collect(),
        };
        if found.is_empty() && text(reference, "parameterNotFoundAction") != "Allow" {
            return Err(
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
                    .to_owned(),
            );
        }
        Ok(found)
    }
}

fn denied(target: &Target, name: &str, failure: &Failure, who: &str) -> Status {
    let resource = &target.served.resource;
    let why = format!("{who} denied request: {}", failure.message);
    let mut status = Status::forbidden(&resource.group, &resource.plural, name, &why);
    (status.code, status.reason) = match failure.reason.as_str() {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    if let Some(details) = &mut status.details {
        details["causes"] = json!([{"message": why}]);
    }
    status
}
