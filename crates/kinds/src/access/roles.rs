//! Roles and bindings: their validation, and the rule that users can only grant rights that they have.

use super::rbac::{self, GROUP};
use crate::kit;
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use resource::status::Status;
use resource::{Ask, Context, Facts, Strategy};
use serde_json::{Value, json};

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

/// Faults of rules. `namespaced`: in a Role.
fn rule_faults(role: &Value, namespaced: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    for (index, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
        let path = Path::new("rules").index(index);
        if is_empty(&rule["verbs"]) {
            errors.push(Error::required(&path.child("verbs"), "verbs must contain at least one value"));
        }
        let urls = &rule["nonResourceURLs"];
        if !is_empty(urls) {
            let field = path.child("nonResourceURLs");
            if namespaced {
                errors.push(Error::invalid(&field, urls.clone(), "namespaced rules cannot apply to non-resource URLs"));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|member| !is_empty(&rule[*member])) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(Error::invalid(&field, urls.clone(), detail));
            }
            continue;
        }
        if is_empty(&rule["apiGroups"]) {
            errors.push(Error::required(&path.child("apiGroups"), "resource rules must supply at least one api group"));
        }
        if is_empty(&rule["resources"]) {
            errors.push(Error::required(&path.child("resources"), "resource rules must supply at least one resource"));
        }
    }
    errors
}

/// Whether an update changes nothing but what garbage collection needs: a user who may update roles may do that without having their rights. All
/// else counts, labels too: by a label a role becomes part of others that collect roles, and gives its rights to the holders of those.
fn is_for_collection(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(members) = object.as_object_mut() {
            members.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()));
        }
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|field, _| {
                !matches!(field.as_str(), "ownerReferences" | "finalizers" | "managedFields" | "resourceVersion")
            });
        }
        object
    };
    rest(new) == rest(old)
}

/// 403 in upstream's words, unless the user holds the rules or has the verb that lets them be granted all the same.
fn refuse_escalation(
    cx: &Context<'_>,
    object: &Value,
    plural: &str,
    rules: &[Value],
    pass: &Ask<'_>,
) -> Result<(), Status> {
    if cx.who.is_master() || rbac::authorize(cx.who, pass, cx.list).is_some() {
        return Ok(());
    }
    let lines = rbac::missing(rules, cx.who, cx.namespace, cx.list);
    if lines.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = cx.groups.iter().map(|group| format!("{group:?}")).collect();
    let why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        cx.user,
        groups.join(" "),
        lines.join("\n")
    );
    Err(Status::forbidden(GROUP, plural, api::object::meta(object, "name"), &why))
}

/// Role and ClusterRole.
pub struct Role {
    pub plural: &'static str,
}

fn aggregates(role: &Value) -> bool {
    role.get("aggregationRule").is_some_and(|rule| !rule.is_null())
}

/// What is wrong with how a role collects the rules of others.
fn aggregation_faults(rule: &Value) -> ErrorList {
    let path = Path::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = rule["clusterRoleSelectors"].as_array().map(Vec::as_slice).unwrap_or_default();
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        return vec![Error::required(&path, detail)];
    }
    let each = selectors.iter().enumerate();
    each.flat_map(|(i, selector)| {
        let path = path.index(i);
        let mut faults = crate::podspec::label_selector(selector, &path);
        if !faults.is_empty() {
            // upstream shows what it could not make of it
            faults.push(Error::invalid(&path, Value::Null, "invalid label selector."));
        }
        faults
    })
    .collect()
}

impl Role {
    /// `old`: what an update replaces. What collects the rules of other roles may come to hold any, and who takes the
    /// collecting away keeps what was collected: both need all rights.
    fn guard(&self, cx: &Context<'_>, role: &Value, old: Option<&Value>) -> Result<(), Status> {
        let name = api::object::meta(role, "name");
        let pass = Ask::Resource {
            verb: "escalate",
            group: GROUP,
            resource: self.plural,
            namespace: cx.namespace,
            // the path of a POST says no name, so a right to one name does not cover it
            name: cx.name,
            fields: "",
        };
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        refuse_escalation(cx, role, self.plural, &rules, &pass)?;
        if aggregates(role) || old.is_some_and(aggregates) {
            let all = [
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
            ];
            refuse_escalation(cx, role, self.plural, &all, &pass).map_err(|_| {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                Status::forbidden(GROUP, self.plural, name, why)
            })?;
        }
        Ok(())
    }
}

/// Those of roles and of bindings.
fn facts() -> Facts {
    Facts {
        create_on_update: true,
        has_generation: false,
        name_faults: |name, _| path_segment_faults(name),
        ..Facts::default()
    }
}

impl Strategy for Role {
    fn facts(&self) -> Facts {
        facts()
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = rule_faults(new, self.plural == "roles");
        if aggregates(new) {
            errors.extend(aggregation_faults(&new["aggregationRule"]));
        }
        errors
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(cx, new)
    }

    fn admit_create(&self, cx: &Context<'_>, new: &mut Value) -> Result<(), Status> {
        self.guard(cx, new, None)
    }

    fn admit_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), Status> {
        if is_for_collection(new, old) { Ok(()) } else { self.guard(cx, new, Some(old)) }
    }

    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        // a bookmark has no time, which Go writes as its first one
        let created = match api::object::meta(object, "creationTimestamp") {
            "" => "0001-01-01T00:00:00Z",
            time => time,
        };
        vec![api::object::meta(object, "name").into(), created.into()]
    }
}

/// RoleBinding and ClusterRoleBinding.
pub struct Binding {
    pub plural: &'static str,
}

impl Binding {
    fn faults(&self, binding: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let role = &binding["roleRef"];
        let path = Path::new("roleRef");
        if role["apiGroup"] != GROUP {
            errors.push(Error::not_supported(
                &path.child("apiGroup"),
                role["apiGroup"].as_str().unwrap_or_default(),
                &[GROUP],
            ));
        }
        let kinds: &[&str] = if self.plural == "rolebindings" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        if !kinds.iter().any(|kind| role["kind"] == *kind) {
            errors.push(Error::not_supported(&path.child("kind"), role["kind"].as_str().unwrap_or_default(), kinds));
        }
        match role["name"].as_str().unwrap_or_default() {
            "" => errors.push(Error::required(&path.child("name"), "")),
            name => {
                for fault in path_segment_faults(name) {
                    errors.push(Error::invalid(&path.child("name"), name, fault));
                }
            }
        }
        for (index, subject) in binding["subjects"].as_array().into_iter().flatten().enumerate() {
            let path = Path::new("subjects").index(index);
            let name = subject["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(Error::required(&path.child("name"), ""));
            }
            match subject["kind"].as_str().unwrap_or_default() {
                "ServiceAccount" => {
                    if !subject["apiGroup"].as_str().unwrap_or_default().is_empty() {
                        let given = subject["apiGroup"].clone();
                        errors.push(Error::not_supported(&path.child("apiGroup"), given, &[""]));
                    }
                    if !name.is_empty() {
                        let faults = api::names::subdomain_faults(name, false);
                        let invalid = |fault| Error::invalid(&path.child("name"), name, fault);
                        errors.extend(faults.into_iter().map(invalid));
                    }
                    let namespace = subject["namespace"].as_str().unwrap_or_default();
                    if self.plural == "clusterrolebindings" && namespace.is_empty() {
                        errors.push(Error::required(&path.child("namespace"), ""));
                    }
                }
                "User" | "Group" => {
                    if subject["apiGroup"] != GROUP {
                        let given = subject["apiGroup"].clone();
                        errors.push(Error::not_supported(&path.child("apiGroup"), given, &[GROUP]));
                    }
                }
                other => {
                    let kinds = &["ServiceAccount", "User", "Group"];
                    errors.push(Error::not_supported(&path.child("kind"), other, kinds));
                }
            }
        }
        errors
    }

    fn guard(&self, cx: &Context<'_>, binding: &Value) -> Result<(), Status> {
        if cx.who.is_master() {
            return Ok(());
        }
        let role = &binding["roleRef"];
        let name = role["name"].as_str().unwrap_or_default();
        let (resource, namespace) = match role["kind"].as_str().unwrap_or_default() {
            "Role" => ("roles", cx.namespace),
            "ClusterRole" => ("clusterroles", ""),
            kind => return Err(Status::new(500, "", format!("unsupported role reference kind: {kind:?}"))),
        };
        let pass = Ask::Resource { verb: "bind", group: GROUP, resource, namespace: cx.namespace, name, fields: "" };
        if rbac::authorize(cx.who, &pass, cx.list).is_some() {
            return Ok(());
        }
        if (cx.lookup)(GROUP, resource, namespace, name).is_none() {
            return Err(Status::not_found(GROUP, self.plural, name));
        }
        refuse_escalation(cx, binding, self.plural, &rbac::rules_of(binding, cx.list), &pass)
    }
}

impl Strategy for Binding {
    fn facts(&self) -> Facts {
        facts()
    }

    fn default(&self, object: &mut Value) {
        kit::default(kit::child(object, "roleRef"), "apiGroup", GROUP);
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                kit::default(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        self.faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = self.faults(new);
        if new["roleRef"] != old["roleRef"] {
            errors.push(Error::invalid(&Path::new("roleRef"), new["roleRef"].clone(), "cannot change roleRef"));
        }
        errors
    }

    fn admit_create(&self, cx: &Context<'_>, new: &mut Value) -> Result<(), Status> {
        self.guard(cx, new)
    }

    fn admit_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), Status> {
        if is_for_collection(new, old) { Ok(()) } else { self.guard(cx, new) }
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let role = &object["roleRef"];
        let role =
            format!("{}/{}", role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default());
        let named = |kind: &str| {
            let subjects = object["subjects"].as_array().into_iter().flatten().filter(|s| s["kind"] == kind);
            let names = subjects.map(|subject| {
                let name = subject["name"].as_str().unwrap_or_default();
                match subject["namespace"].as_str() {
                    Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
                    _ => name.to_owned(),
                }
            });
            json!(names.collect::<Vec<_>>().join(", "))
        };
        vec![
            api::object::meta(object, "name").into(),
            role.into(),
            kit::age(object, now),
            named("User"),
            named("Group"),
            named("ServiceAccount"),
        ]
    }
}

/// RBAC's names may be anything that fits into one segment of a path (`system:node`).
fn path_segment_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if matches!(name, "." | "..") {
        faults.push(format!("may not be '{name}'"));
    }
    for part in ["/", "%"] {
        if name.contains(part) {
            faults.push(format!("may not contain '{part}'"));
        }
    }
    faults
}
