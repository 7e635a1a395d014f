//! Admission by policies that are objects themselves: those that change objects and those that refuse them, with their bindings.

mod evaluation;
mod mutating;
mod validating;

use crate::registry::{Core, Review, Target, listed};
use api::object::Gvk;
use merge::cel::{Attributes, Authorizer, Question, Subject};
use objects::selector::Selector;
use resource::admission::{Objects, Operation};
use resource::status::Status;
use resource::{Access, Ask, User};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::Store;

const GROUP: &str = "admissionregistration.k8s.io";

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// An object without those of its members that are empty.
fn without_empty(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, member| {
            let is_empty = match member {
                Value::String(text) => text.is_empty(),
                Value::Array(elements) => elements.is_empty(),
                Value::Object(inner) => inner.is_empty(),
                Value::Null => true,
                _ => false,
            };
            !is_empty
        });
    }
    object
}

fn labels(object: &Value) -> Value {
    object["metadata"].get("labels").cloned().unwrap_or(json!({}))
}

/// The kind of what a request brings: a subresource may be of a kind of its own.
fn kind_asked(target: &Target) -> Gvk {
    let resource = &target.served.resource;
    match target.served.subresource(&target.subresource) {
        Some(own) => Gvk::new(&own.group, &own.version, &own.kind),
        None => Gvk::new(&resource.group, &resource.version, &resource.kind),
    }
}

/// The namespace that an object is in is not there.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct NoNamespace(String);

/// One request, as match rules and expressions see it.
struct Facts<'a> {
    target: &'a Target,
    operation: Operation,
    old: Option<&'a Value>,
    name: String,
    /// The name of the namespace that the request says.
    place: String,
    /// The namespace that the object is in.
    namespace: Option<Arc<Value>>,
    /// The labels of the namespace that the object is in, or is; `Err`: why there are none, of an object that must have one.
    selected_by: Option<Result<Value, NoNamespace>>,
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
            && (names.is_empty() || names.iter().any(|n| *n == self.name))
    }

    /// Whether a binding and its policy select the request, whose object is `object` now.
    ///
    /// # Errors
    /// Why that cannot be said.
    fn selected(&self, object: Option<&Value>, binding: &Value, policy: &Value) -> Result<bool, Unconfigured> {
        let unconfigured = |what: &str, of_binding| {
            let what = format!("failed to configure {what}: ");
            move |why: NoNamespace| Unconfigured { why: what + &why.to_string(), of_binding }
        };
        let constraints = &policy["spec"]["matchConstraints"];
        if !self.matched(object, constraints, true).map_err(unconfigured("policy", false))? {
            return Ok(false);
        }
        let bound = &binding["spec"]["matchResources"];
        Ok(bound.is_null() || self.matched(object, bound, false).map_err(unconfigured("binding", true))?)
    }

    /// Whether `MatchResources` select the request; without rules of its own, a binding's select all.
    ///
    /// # Errors
    /// The namespace by which it is selected is not there.
    fn matched(&self, object: Option<&Value>, matching: &Value, rules_needed: bool) -> Result<bool, NoNamespace> {
        let empty = json!({});
        let selects = |field: &str, labels: &Value| {
            let wanted = matching.get(field).unwrap_or(&empty);
            wanted.as_object().is_none_or(Map::is_empty)
                || Selector::read(wanted).is_some_and(|selector| selector.matches(labels))
        };
        let mut missing = None;
        match &self.selected_by {
            Some(Ok(labels)) if !selects("namespaceSelector", labels) => return Ok(false),
            Some(Err(why)) if matching["namespaceSelector"].as_object().is_some_and(|s| !s.is_empty()) => {
                missing = Some(why);
            }
            _ => {}
        }
        let object_fits =
            [object, self.old].into_iter().flatten().any(|object| selects("objectSelector", &labels(object)));
        if !object_fits || items(matching, "excludeResourceRules").iter().any(|rule| self.rule_matches(rule)) {
            return Ok(false);
        }
        let rules = items(matching, "resourceRules");
        let matches = if rules.is_empty() { !rules_needed } else { rules.iter().any(|rule| self.rule_matches(rule)) };
        match missing.filter(|_| matches) {
            Some(why) => Err(why.clone()),
            None => Ok(matches),
        }
    }
}

/// Why a policy or its binding cannot be asked.
struct Unconfigured {
    why: String,
    /// The fault is the binding's, not the policy's.
    of_binding: bool,
}

impl Core {
    /// What a request is to policies; `None`: none may decide about its kind, so that nobody can lock himself out of changing
    /// policies.
    fn policy_facts<'a>(&self, review: &Review<'a>, object: Option<&'a Value>) -> Option<Facts<'a>> {
        let Review { target, operation, old, user, manner } = *review;
        let resource = &target.served.resource;
        if resource.group == GROUP && resource.plural.contains("admissionpolic") {
            return None;
        }
        let made = || object.map_or("", |object| api::object::meta(object, "name"));
        let name = Some(target.name.as_str()).filter(|name| !name.is_empty()).unwrap_or_else(made);
        let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
        let namespace = match (is_namespace, target.namespace.as_str()) {
            (true, _) | (false, "") => None,
            (false, namespace) => Objects::get(self, "", "namespaces", "", namespace),
        };
        // a namespace is selected by what it is to be; its parts change no labels
        let own = if target.subresource.is_empty() { object.or(old) } else { old };
        let selected_by = match &namespace {
            _ if is_namespace => own.map(labels).map(Ok),
            Some(namespace) => Some(Ok(labels(namespace))),
            None if target.namespace.is_empty() => None,
            None => Some(Err(NoNamespace(Status::not_found("", "namespaces", &target.namespace).message))),
        };
        // upstream takes a namespace to be in itself, but for what of it is looked up
        let place = if is_namespace { &target.name } else { &target.namespace };
        let kind = kind_asked(target);
        let kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
        let rights = Rights { store: self.store.clone(), access: self.access.clone(), user: user.clone() };
        let asked = Attributes {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            subresource: target.subresource.clone(),
            namespace: place.clone(),
            name: name.to_owned(),
            fields: String::new(),
        };
        Some(Facts {
            rights: (Arc::new(rights), asked),
            target,
            operation,
            old,
            namespace,
            selected_by,
            // members that are empty are left out, as Go writes it
            request: without_empty(json!({
                "options": manner.options(),
                "kind": kind, "resource": plural, "subResource": target.subresource,
                "requestKind": kind, "requestResource": plural, "requestSubResource": target.subresource,
                "name": name, "namespace": place, "operation": operation.as_str(), "dryRun": manner.dry_run,
                "userInfo": without_empty(json!({
                    "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                })),
            })),
            name: name.to_owned(),
            place: place.clone(),
        })
    }

    /// The parameter objects of a binding; one `null` for a policy without.
    fn params(&self, policy: &Value, binding: &Value, place: &str) -> Result<Vec<Value>, Unconfigured> {
        let wanted = &policy["spec"]["paramKind"];
        let reference = &binding["spec"]["paramRef"];
        if !wanted.is_object() || !reference.is_object() {
            return Ok(vec![Value::Null]);
        }
        let gvk = api::object::Gvk::from_api_version(text(wanted, "apiVersion"), text(wanted, "kind"));
        let catalog = self.catalog();
        let Some(served) = catalog.kind_of(wanted) else {
            let why = format!("failed to configure policy: failed to find resource referenced by paramKind: '{gvk}'");
            return Err(Unconfigured { why, of_binding: false });
        };
        let of_binding =
            |why: &str| Unconfigured { why: format!("failed to configure binding: {why}"), of_binding: true };
        let namespace = match (served.resource.namespaced, text(reference, "namespace")) {
            (false, "") => "",
            (false, _) => {
                return Err(of_binding("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"));
            }
            (true, "") if place.is_empty() => {
                let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(of_binding(why));
            }
            (true, "") => place,
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
            return Err(of_binding("no params found for policy binding with `Deny` parameterNotFoundAction"));
        }
        Ok(found)
    }
}
