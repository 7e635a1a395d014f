//! Reviews of access, rules, users and tokens: kinds that are answered and never stored.

use super::rbac;
use api::field::{Error, ErrorList, Path};
use resource::User;
use resource::status::Status;
use resource::{Ask, Context, Strategy};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const GROUP: &str = "authorization.k8s.io";

/// An object with its answer, without what only a request has.
fn answered(object: &Value, spec: Value, status: Value) -> Value {
    let mut answer = object.clone();
    let mut metadata = Map::new();
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    answer["metadata"] = Value::Object(metadata);
    answer["spec"] = spec;
    answer["status"] = status;
    answer
}

/// SelfSubjectAccessReview, SubjectAccessReview, LocalSubjectAccessReview.
pub struct AccessReview {
    /// About the user who asks.
    pub own: bool,
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// A review says nothing of itself but where it is.
fn metadata_faults(object: &Value, namespace: &str) -> ErrorList {
    let said = |(field, value): (&String, &Value)| {
        let own = match field.as_str() {
            "managedFields" => true,
            "namespace" => !namespace.is_empty(),
            _ => false,
        };
        !own && !value.is_null()
    };
    let metadata = &object["metadata"];
    match metadata.as_object().is_some_and(|fields| fields.iter().any(said)) {
        true => vec![Error::invalid(&Path::new("metadata"), metadata.clone(), "must be empty")],
        false => ErrorList::new(),
    }
}

/// What a review about one namespace may not ask.
fn local_faults(spec: &Value, namespace: &str) -> ErrorList {
    let (path, mut errors) = (Path::new("spec"), ErrorList::new());
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if !resource.is_null() && text(resource, "namespace") != namespace {
        let place = path.child("resourceAttributes").child("namespace");
        errors.push(Error::invalid(&place, text(resource, "namespace"), "must match metadata.namespace"));
    }
    if !other.is_null() {
        let detail = "disallowed on this kind of request";
        errors.push(Error::invalid(&path.child("nonResourceAttributes"), other.clone(), detail));
    }
    errors
}

impl AccessReview {
    fn faults(&self, spec: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
        if !resource.is_null() && !other.is_null() {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(Error::invalid(&path.child("nonResourceAttributes"), other.clone(), detail));
        }
        if resource.is_null() && other.is_null() {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(Error::invalid(&path.child("resourceAttributes"), Value::Null, detail));
        }
        if !self.own && text(spec, "user").is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty) {
            errors.push(Error::invalid(&path.child("user"), "", "at least one of user or group must be specified"));
        }
        for field in ["fieldSelector", "labelSelector"] {
            let raw = text(&resource[field], "rawSelector");
            if !raw.is_empty() && resource[field]["requirements"].as_array().is_some_and(|list| !list.is_empty()) {
                let place = path.child("resourceAttributes").child(field).child("rawSelector");
                errors.push(Error::invalid(&place, raw, "may not specified at the same time as requirements"));
            }
        }
        errors
    }
}

impl Strategy for AccessReview {
    fn review(&self, cx: &Context<'_>, object: &Value) -> Option<Result<Value, Status>> {
        let spec = object["spec"].clone();
        let mut errors = self.faults(&spec);
        errors.extend(metadata_faults(object, cx.namespace));
        if !cx.namespace.is_empty() {
            errors.extend(local_faults(&spec, cx.namespace));
        }
        if !errors.is_empty() {
            // upstream leaves the kind out here
            return Some(Err(Status::invalid(GROUP, "", "", &errors)));
        }
        let named;
        let user = if self.own {
            cx.who
        } else {
            let groups = spec["groups"].as_array().into_iter().flatten();
            let extra = spec["extra"].as_object().into_iter().flatten().map(|(key, values)| {
                let values = values.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned));
                (key.clone(), values.collect())
            });
            named = User {
                name: text(&spec, "user").to_owned(),
                uid: text(&spec, "uid").to_owned(),
                groups: groups.filter_map(|group| group.as_str().map(str::to_owned)).collect(),
                extra: extra.collect::<BTreeMap<_, _>>(),
            };
            &named
        };
        let attributes = &spec["resourceAttributes"];
        let resource = match text(attributes, "subresource") {
            "" => text(attributes, "resource").to_owned(),
            sub => format!("{}/{sub}", text(attributes, "resource")),
        };
        let ask = if attributes.is_null() {
            let other = &spec["nonResourceAttributes"];
            Ask::Path { verb: text(other, "verb"), path: text(other, "path") }
        } else {
            Ask::Resource {
                verb: text(attributes, "verb"),
                group: text(attributes, "group"),
                resource: &resource,
                namespace: text(attributes, "namespace"),
                name: text(attributes, "name"),
                fields: text(&attributes["fieldSelector"], "rawSelector"),
            }
        };
        let status = match super::authorize(user, &ask, cx.list) {
            Some(reason) if reason.is_empty() => json!({"allowed": true}),
            Some(reason) => json!({"allowed": true, "reason": reason}),
            None => json!({"allowed": false}),
        };
        Some(Ok(answered(object, spec, status)))
    }
}

/// SelfSubjectRulesReview.
pub struct RulesReview;

impl Strategy for RulesReview {
    fn review(&self, cx: &Context<'_>, object: &Value) -> Option<Result<Value, Status>> {
        let namespace = text(&object["spec"], "namespace");
        if namespace.is_empty() {
            return Some(Err(Status::bad_request("no namespace on request")));
        }
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        if cx.who.is_master() {
            resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
            paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        }
        rbac::visit_rules(cx.who, namespace, cx.list, |rule, _| {
            let is_path = rule["nonResourceURLs"].as_array().is_some_and(|urls| !urls.is_empty());
            if is_path {
                paths.push(rule.clone())
            } else {
                resources.push(rule.clone())
            }
            true
        });
        let status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
        Some(Ok(answered(object, json!({}), status)))
    }
}

/// A user as authentication reviews show it.
fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".to_owned(), user.name.clone().into());
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}

/// SelfSubjectReview.
pub struct SelfReview;

impl Strategy for SelfReview {
    fn review(&self, cx: &Context<'_>, object: &Value) -> Option<Result<Value, Status>> {
        let mut answer = answered(object, Value::Null, json!({"userInfo": user_info(cx.who)}));
        answer.as_object_mut()?.remove("spec");
        // alone among the reviews it says when it was made
        answer["metadata"]["creationTimestamp"] = crate::pod::stamp(cx.now);
        Some(Ok(answer))
    }
}

/// TokenReview.
pub struct TokenReview;

impl Strategy for TokenReview {
    fn review(&self, cx: &Context<'_>, object: &Value) -> Option<Result<Value, Status>> {
        let spec = object["spec"].clone();
        let token = text(&spec, "token");
        if token.is_empty() {
            return Some(Err(Status::bad_request("token is required for TokenReview in authentication")));
        }
        let asked: Vec<&str> = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let asked = if asked.is_empty() { vec![cx.tokens.issuer()] } else { asked };
        let status = match resource::bearer(cx.tokens, token, cx.now, cx.lookup) {
            None => json!({"user": {}, "error": "invalid bearer token"}),
            Some(user) => {
                let good_for = cx.tokens.audiences(token, cx.now);
                let audiences: Vec<&str> =
                    asked.iter().copied().filter(|one| good_for.iter().any(|good| good == one)).collect();
                if audiences.is_empty() {
                    let why = format!(
                        "[invalid bearer token, token audiences {} is invalid for the target audiences {}]",
                        json!(good_for),
                        json!(asked)
                    );
                    json!({"user": {}, "error": why})
                } else {
                    json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
                }
            }
        };
        Some(Ok(answered(object, spec, status)))
    }
}
