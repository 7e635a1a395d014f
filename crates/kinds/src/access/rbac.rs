//! RBAC's evaluation: whether a binding gives a user a rule that covers a request.

use resource::{Ask, User};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The stored roles and bindings, by (group, plural, namespace): all objects of that kind there.
pub type List<'a> = &'a dyn Fn(&str, &str, &str) -> Vec<Arc<Value>>;

fn texts<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    value[member].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn has(value: &Value, member: &str, wanted: &str) -> bool {
    texts(value, member).any(|text| text == wanted || text == "*")
}

/// Whether a rule covers a request.
pub fn covers(rule: &Value, ask: &Ask<'_>) -> bool {
    match ask {
        Ask::Resource { verb, group, resource, namespace: _, name, fields: _ } => {
            has(rule, "verbs", verb)
                && has(rule, "apiGroups", group)
                && covers_resource(rule, resource)
                && (rule["resourceNames"].as_array().is_none_or(Vec::is_empty)
                    || texts(rule, "resourceNames").any(|named| named == *name))
        }
        Ask::Path { verb, path } => {
            has(rule, "verbs", verb)
                && texts(rule, "nonResourceURLs").any(|url| match url.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => url == *path,
                })
        }
    }
}

fn covers_resource(rule: &Value, resource: &str) -> bool {
    texts(rule, "resources").any(|allowed| {
        // `*/scale`: that subresource of every resource
        let any_parent =
            allowed.strip_prefix("*/").is_some_and(|sub| resource.split_once('/').is_some_and(|(_, s)| s == sub));
        allowed == "*" || allowed == resource || any_parent
    })
}

/// The subject of a binding that is the user, as reasons name it.
fn subject(binding: &Value, user: &User) -> Option<String> {
    binding["subjects"].as_array()?.iter().find_map(|subject| {
        let name = subject["name"].as_str()?;
        match subject["kind"].as_str()? {
            "User" => (user.name == name).then(|| format!("User \"{name}\"")),
            "Group" => user.groups.iter().any(|group| group == name).then(|| format!("Group \"{name}\"")),
            "ServiceAccount" => {
                let namespace = match subject["namespace"].as_str() {
                    Some(namespace) if !namespace.is_empty() => namespace,
                    _ => api::object::meta(binding, "namespace"),
                };
                (user.name == format!("system:serviceaccount:{namespace}:{name}"))
                    .then(|| format!("ServiceAccount \"{name}/{namespace}\""))
            }
            _ => None,
        }
    })
}

/// The rules of the role that a binding refers to. A role that does not exist has none.
pub fn rules_of(binding: &Value, list: List<'_>) -> Vec<Value> {
    let role_ref = &binding["roleRef"];
    let (plural, namespace) = match role_ref["kind"].as_str() {
        Some("Role") => ("roles", api::object::meta(binding, "namespace")),
        _ => ("clusterroles", ""),
    };
    let name = role_ref["name"].as_str().unwrap_or_default();
    let role = list(GROUP, plural, namespace).into_iter().find(|role| api::object::meta(role, "name") == name);
    role.and_then(|role| role["rules"].as_array().cloned()).unwrap_or_default()
}

/// Calls `visit` with each rule that the user has in the namespace (empty: in the cluster), and why; until it says stop.
pub fn visit_rules(user: &User, namespace: &str, list: List<'_>, mut visit: impl FnMut(&Value, &str) -> bool) {
    let mut visit_bindings = |plural: &str, kind: &str, namespace: &str| {
        for binding in list(GROUP, plural, namespace) {
            let Some(subject) = subject(&binding, user) else { continue };
            let name = match namespace {
                "" => api::object::meta(&binding, "name").to_owned(),
                namespace => format!("{}/{namespace}", api::object::meta(&binding, "name")),
            };
            let role = &binding["roleRef"];
            let reason = format!(
                "RBAC: allowed by {kind} \"{name}\" of {} \"{}\" to {subject}",
                role["kind"].as_str().unwrap_or_default(),
                role["name"].as_str().unwrap_or_default()
            );
            for rule in rules_of(&binding, list) {
                if !visit(&rule, &reason) {
                    return false;
                }
            }
        }
        true
    };
    if visit_bindings("clusterrolebindings", "ClusterRoleBinding", "") && !namespace.is_empty() {
        visit_bindings("rolebindings", "RoleBinding", namespace);
    }
}

/// Why the user may do it; `None`: the user may not.
pub fn authorize(user: &User, ask: &Ask<'_>, list: List<'_>) -> Option<String> {
    if user.is_master() {
        return Some(String::new());
    }
    let namespace = match ask {
        Ask::Resource { namespace, .. } => namespace,
        Ask::Path { .. } => "",
    };
    let mut allowed = None;
    visit_rules(user, namespace, list, |rule, reason| {
        if covers(rule, ask) {
            allowed = Some(reason.to_owned());
        }
        allowed.is_none()
    });
    allowed
}

/// The parts of rules that the user does not hold there, as upstream prints them; empty: the user holds all.
///
/// Upstream compares rule by rule after breaking them up into single permissions and puts what is missing back together
/// by rule.
pub fn missing(rules: &[Value], user: &User, namespace: &str, list: List<'_>) -> Vec<String> {
    let mut held: Vec<Value> = Vec::new();
    visit_rules(user, namespace, list, |rule, _| {
        held.push(rule.clone());
        true
    });
    let mut lacked = Lacked::default();
    for rule in rules {
        lacked.add(rule, &held);
    }
    lacked.lines()
}

/// Most combinations of a rule's groups, resources, names and verbs that are looked at: a rule of more counts as not covered.
const ASKS_MAX: usize = 100_000;

fn quoted(items: &[&str]) -> String {
    items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(" ")
}

/// What is not held: the verbs of each group, resource and name, and what stands for itself.
#[derive(Default)]
struct Lacked<'a> {
    verbs: BTreeMap<(&'a str, &'a str, Option<&'a str>), Vec<&'a str>>,
    lines: BTreeSet<String>,
}

impl<'a> Lacked<'a> {
    /// Looks at a rule part by part: one group, resource, name and verb, or one path and verb.
    fn add(&mut self, rule: &'a Value, held: &[Value]) {
        let of = |field: &str| texts(rule, field).collect::<Vec<&'a str>>();
        let (verbs, urls) = (of("verbs"), of("nonResourceURLs"));
        for path in &urls {
            for verb in &verbs {
                if !held.iter().any(|rule| covers(rule, &Ask::Path { verb, path })) {
                    self.lines.insert(format!("{{NonResourceURLs:[{path:?}], Verbs:[{verb:?}]}}"));
                }
            }
        }
        let (groups, resources, names) = (of("apiGroups"), of("resources"), of("resourceNames"));
        let each_name: Vec<Option<&str>> =
            if names.is_empty() { vec![None] } else { names.iter().copied().map(Some).collect() };
        let asks =
            [groups.len(), resources.len(), each_name.len(), verbs.len()].into_iter().fold(1, usize::saturating_mul);
        if asks > ASKS_MAX {
            let shown =
                [("APIGroups", &groups), ("Resources", &resources), ("ResourceNames", &names), ("Verbs", &verbs)];
            let shown = shown.iter().filter(|(_, items)| !items.is_empty());
            let shown: Vec<String> = shown.map(|(field, items)| format!("{field}:[{}]", quoted(items))).collect();
            self.lines.insert(format!("{{{}}}", shown.join(", ")));
            return;
        }
        for group in &groups {
            for resource in &resources {
                for verb in &verbs {
                    for name in &each_name {
                        let ask = Ask::Resource {
                            verb,
                            group,
                            resource,
                            namespace: "",
                            name: name.unwrap_or_default(),
                            fields: "",
                        };
                        if !held.iter().any(|rule| covers(rule, &ask)) {
                            let lacked = self.verbs.entry((group, resource, *name)).or_default();
                            if !lacked.contains(verb) {
                                lacked.push(verb);
                            }
                        }
                    }
                }
            }
        }
    }

    fn lines(mut self) -> Vec<String> {
        for ((group, resource, name), verbs) in &self.verbs {
            let name = name.map(|name| format!(", ResourceNames:[{name:?}]")).unwrap_or_default();
            let verbs = quoted(verbs);
            self.lines.insert(format!("{{APIGroups:[{group:?}], Resources:[{resource:?}]{name}, Verbs:[{verbs}]}}"));
        }
        self.lines.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn world(group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        assert_eq!(group, GROUP);
        let objects = match (plural, namespace) {
            ("roles", "ns") => vec![json!({"metadata": {"name": "reader", "namespace": "ns"}, "rules": [
                {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["one"]}]})],
            ("rolebindings", "ns") => vec![json!({"metadata": {"name": "b", "namespace": "ns"},
                "roleRef": {"kind": "Role", "name": "reader"},
                "subjects": [{"kind": "Group", "name": "team"}, {"kind": "ServiceAccount", "name": "sa"}]})],
            ("clusterroles", "") => vec![json!({"metadata": {"name": "paths"}, "rules": [
                {"nonResourceURLs": ["/debug/*"], "verbs": ["get"]}]})],
            ("clusterrolebindings", "") => {
                vec![json!({"metadata": {"name": "c"}, "roleRef": {"kind": "ClusterRole", "name": "paths"},
                "subjects": [{"kind": "User", "name": "alice"}]})]
            }
            _ => Vec::new(),
        };
        objects.into_iter().map(Arc::new).collect()
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.to_owned(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
    }

    fn pods<'a>(verb: &'a str, resource: &'a str, namespace: &'a str, name: &'a str) -> Ask<'a> {
        Ask::Resource { verb, group: "", resource, namespace, name, fields: "" }
    }

    #[test]
    fn bindings_give_what_their_roles_say() {
        let member = user("bob", &["team"]);
        let reason = authorize(&member, &pods("get", "pods", "ns", "p"), &world).unwrap();
        assert_eq!(reason, "RBAC: allowed by RoleBinding \"b/ns\" of Role \"reader\" to Group \"team\"");
        assert!(authorize(&member, &pods("get", "pods/log", "ns", "p"), &world).is_some());
        assert!(authorize(&member, &pods("list", "pods", "ns", ""), &world).is_none());
        assert!(authorize(&member, &pods("get", "pods", "other", "p"), &world).is_none());
        assert!(authorize(&member, &pods("get", "configmaps", "ns", "one"), &world).is_some());
        assert!(authorize(&member, &pods("get", "configmaps", "ns", "two"), &world).is_none());
        assert!(authorize(&user("system:serviceaccount:ns:sa", &[]), &pods("get", "pods", "ns", ""), &world).is_some());
        let alice = user("alice", &[]);
        assert!(authorize(&alice, &Ask::Path { verb: "get", path: "/debug/x" }, &world).is_some());
        assert!(authorize(&alice, &Ask::Path { verb: "get", path: "/metrics" }, &world).is_none());
    }

    #[test]
    fn what_is_not_held_is_named() {
        let rules = [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}),
        ];
        let lines = missing(&rules, &user("bob", &["team"]), "ns", &world);
        assert_eq!(lines[0], r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#);
        assert_eq!(lines[1], r#"{APIGroups:[""], Resources:["secrets"], Verbs:["*"]}"#);
        assert!(missing(&rules[..0], &user("bob", &[]), "ns", &world).is_empty());
        // part by part, whatever rules they come from
        let rules = [
            json!({"apiGroups": ["", "apps"], "resources": ["a", "b"], "verbs": ["get", "list"]}),
            json!({"apiGroups": [""], "resources": ["a"], "verbs": ["watch", "get"]}),
            json!({"apiGroups": [""], "resources": ["a"], "verbs": ["get"], "resourceNames": ["n", "o"]}),
            json!({"nonResourceURLs": ["/x", "/y"], "verbs": ["get", "post"]}),
        ];
        let expected = r#"{APIGroups:[""], Resources:["a"], ResourceNames:["n"], Verbs:["get"]}
{APIGroups:[""], Resources:["a"], ResourceNames:["o"], Verbs:["get"]}
{APIGroups:[""], Resources:["a"], Verbs:["get" "list" "watch"]}
{APIGroups:[""], Resources:["b"], Verbs:["get" "list"]}
{APIGroups:["apps"], Resources:["a"], Verbs:["get" "list"]}
{APIGroups:["apps"], Resources:["b"], Verbs:["get" "list"]}
{NonResourceURLs:["/x"], Verbs:["get"]}
{NonResourceURLs:["/x"], Verbs:["post"]}
{NonResourceURLs:["/y"], Verbs:["get"]}
{NonResourceURLs:["/y"], Verbs:["post"]}"#;
        assert_eq!(missing(&rules, &user("bob", &[]), "ns", &world).join("\n"), expected);
    }
}
