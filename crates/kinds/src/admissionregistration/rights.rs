//! Who makes a policy or a binding must be able to read its parameters: expressions put what they read there into messages, so
//! that a policy would show everybody's objects to whoever may write policies.
//!
//! Source: `pkg/registry/admissionregistration/{validating,mutating}admissionpolicy{,binding}/authz.go` of Kubernetes 1.36. As
//! there, the check comes last, on an object without other faults.

use super::GROUP;
use crate::access;
use crate::kit::{at, text};
use api::field::{Error, ErrorList, Path};
use resource::{Ask, Context, User};
use serde_json::Value;

/// A user as Go prints one.
fn printed(user: &User) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(name, values)| format!("{name}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

/// Group and plural of what a `paramKind` names, and what is not known of it; `*`, which only a right to everything covers,
/// stands for that.
fn resource(cx: &Context<'_>, kind: &Value) -> (String, String, Option<Unknown>) {
    let written = text(kind, "apiVersion");
    let all = || "*".to_owned();
    if !kind.is_object() {
        return (all(), all(), None);
    }
    if written.matches('/').count() > 1 {
        return (all(), all(), Some(Unknown::Version));
    }
    let group = written.split_once('/').map_or("", |(group, _)| group).to_owned();
    match (cx.plural_of)(kind) {
        Some(plural) => (group, plural, None),
        None => (group, all(), Some(Unknown::Kind)),
    }
}

/// What cannot be told of the parameters of a binding.
enum Unknown {
    Policy,
    Version,
    Kind,
}

fn may(cx: &Context<'_>, ask: &Ask<'_>) -> bool {
    access::authorize(cx.who, ask, cx.list).is_some()
}

/// The fault of a policy whose parameters the user may not all read. `old`: what an update replaces.
pub(super) fn of_kind(cx: &Context<'_>, new: &Value, old: Option<&Value>) -> ErrorList {
    let kind = at(new, "spec.paramKind");
    if kind.is_null() || cx.who.is_master() || old.is_some_and(|old| at(old, "spec.paramKind") == kind) {
        return ErrorList::new();
    }
    let (group, plural, _) = resource(cx, kind);
    let ask = Ask::Resource { verb: "get", group: &group, resource: &plural, namespace: "*", name: "*", fields: "" };
    if may(cx, &ask) {
        return ErrorList::new();
    }
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        printed(cx.who),
        text(kind, "kind"),
        text(kind, "apiVersion")
    );
    vec![Error::forbidden(&Path::new("spec").child("paramKind"), &why)]
}

/// The fault of a binding that refers to parameters that the user may not read. `policies`: the plural of its policies.
///
/// An update that leaves the reference as it is is checked too: upstream compares where its parts are, not what they say.
pub(super) fn of_reference(cx: &Context<'_>, binding: &Value, policies: &str) -> ErrorList {
    let reference = at(binding, "spec.paramRef");
    if reference.is_null() || cx.who.is_master() {
        return ErrorList::new();
    }
    let policy = (cx.lookup)(GROUP, policies, "", text(binding, "spec.policyName"));
    let kind = policy.as_deref().map_or(&Value::Null, |policy| at(policy, "spec.paramKind"));
    let (group, plural, unknown) = resource(cx, kind);
    let unknown = if policy.is_none() { Some(Unknown::Policy) } else { unknown };
    let (name, namespace) = (text(reference, "name"), text(reference, "namespace"));
    // a selector lists
    let verb = if name.is_empty() { "list" } else { "get" };
    if may(cx, &Ask::Resource { verb, group: &group, resource: &plural, namespace, name, fields: "" }) {
        return ErrorList::new();
    }
    let user = printed(cx.who);
    let kind = format!("paramKind &{{{} {}}}", text(kind, "apiVersion"), text(kind, "kind"));
    let cannot = match unknown {
        Some(Unknown::Policy) => format!("get policy {}", text(binding, "spec.policyName")),
        Some(Unknown::Version) => format!("parse {kind}"),
        Some(Unknown::Kind) => format!("resolve {kind}"),
        None => {
            // upstream's message of the mutating kind has the user and the verb in each other's place
            let mutating = policies == "mutatingadmissionpolicies";
            let (who, what) = if mutating { (verb, user.as_str()) } else { (user.as_str(), verb) };
            let why = format!("user {who} does not have \"{what}\" permission on the object referenced by paramRef");
            return vec![Error::forbidden(&Path::new("spec").child("paramRef"), &why)];
        }
    };
    let why = format!(
        "unable to {cannot} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
    );
    vec![Error::forbidden(&Path::new("spec").child("paramRef"), &why)]
}
