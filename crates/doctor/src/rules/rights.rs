//! The rights of this user and of the operator, and the commands that grant the missing ones.

use super::{deployed, install, some};
use crate::facts::{Facts, Right, Seen};
use crate::finding::{Findings, Remedy, Severity};
use api::shell::quoted;
use client::codes::ErrorCode;
use std::collections::BTreeMap;

/// How many missing rights are listed one by one.
const TOLD_MAX: usize = 4;
/// The namespace in the manifests.
const OPERATOR_NAMESPACE: &str = "kubeflow-system";

pub(super) fn judge(facts: &Facts) -> Findings {
    let mut found = Findings::new("rights");
    own(facts, &mut found);
    operator(facts, &mut found);
    found
}

/// The missing verbs, by what needs them.
fn by_target<'a>(missing: impl IntoIterator<Item = &'a Right>) -> BTreeMap<(String, String), Vec<&'a Right>> {
    let mut targets: BTreeMap<(String, String), Vec<&Right>> = BTreeMap::new();
    for right in missing {
        targets.entry((right.target(), right.namespace.clone())).or_default().push(right);
    }
    targets
}

fn verbs(rights: &[&Right]) -> String {
    rights.iter().map(|right| right.verb.as_str()).collect::<Vec<_>>().join(",")
}

fn own(facts: &Facts, found: &mut Findings) {
    let object = format!("Namespace/{}", facts.namespace);
    if let Some(why) = facts.own.iter().find_map(|(_, _, seen)| match seen {
        Seen::Unknown(why) => Some(why),
        Seen::Known(_) => None,
    }) {
        found.unknown(object, why);
        return;
    }
    // grouped by purpose, so that a user who only reads sees that reading is allowed
    let mut missing: BTreeMap<&str, Vec<&Right>> = BTreeMap::new();
    for (right, commands, _) in facts.own.iter().filter(|(_, _, seen)| *seen == Seen::Known(false)) {
        missing.entry(commands).or_default().push(right);
    }
    if missing.is_empty() {
        found.ok(object, "you may do all that trainyard's commands do");
        return;
    }
    let mut told = Vec::new();
    for (commands, rights) in missing {
        for ((target, _), rights) in by_target(rights) {
            told.push(format!("{} {target} (needed for: {commands})", verbs(&rights).replace(',', ", ")));
        }
    }
    let all = facts.own.iter().filter(|(_, _, seen)| *seen == Seen::Known(false)).map(|(right, ..)| right);
    found.add(
        ErrorCode::RightsMissing,
        Severity::Warning,
        object,
        format!("you may not {}", told.join("; ")),
        grant(&facts.user, all),
    );
}

/// The commands by which an administrator grants exactly these rights: one role per set of verbs.
fn grant<'a>(user: &str, missing: impl Iterator<Item = &'a Right>) -> Remedy {
    let mut roles: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ((target, namespace), rights) in by_target(missing) {
        roles.entry((namespace, verbs(&rights))).or_default().push(target);
    }
    let subject = match user.strip_prefix("system:serviceaccount:") {
        _ if user.is_empty() => return Remedy::advise("ask an administrator for a role with these rights"),
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={}", quoted(user)),
    };
    let commands = roles.into_iter().enumerate().map(|(at, ((namespace, verbs), targets))| {
        let (role, place) = match namespace.as_str() {
            "" => ("clusterrole", String::new()),
            namespace => ("role", format!(" -n {namespace}")),
        };
        let name = format!("trainyard-user-{}", at + 1);
        // kubectl takes `pods/log`, and `jobsets.jobset.x-k8s.io`
        let targets = targets.join(",");
        format!(
            "kubectl create {role} {name}{place} --verb={verbs} --resource={targets} && \
             kubectl create {role}binding {name}{place} --{role}={name} {subject}"
        )
    });
    Remedy::why("as an administrator", commands.collect::<Vec<_>>().join(" && "))
}

fn operator(facts: &Facts, found: &mut Findings) {
    let account = match &facts.account {
        Seen::Known(Some(account)) => account,
        // the rules of controllers report whether a Deployment is missing
        Seen::Known(None) => return,
        Seen::Unknown(_) if facts.embedded().is_some() => return,
        Seen::Unknown(why) => {
            found.unknown("ServiceAccount of the operator", why);
            return;
        }
    };
    let object = format!("ServiceAccount/{}/{}", account.namespace, account.name);
    let missing = account.rights.iter().filter(|(_, allowed)| !allowed).map(|(right, _)| right);
    let targets = by_target(missing);
    if targets.is_empty() {
        found.ok(object, format!("it may do all {} things that trainyard's operator does", account.rights.len()));
        return;
    }
    let is_ours = facts.deployments.items().iter().any(|deployment| deployed(deployment) == Some("trainyard"));
    let (severity, when) = match is_ours {
        true => (Severity::Error, "trainyard's operator needs it"),
        false => (Severity::Warning, "trainyard's operator would need it in the place of the one there"),
    };
    let told: Vec<String> = targets
        .iter()
        .map(|((target, namespace), rights)| {
            let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
            format!("{} {target}{place}", verbs(rights).replace(',', ", "))
        })
        .collect();
    let nothing = account.rights.iter().all(|(_, allowed)| !allowed);
    let message = match nothing {
        true => format!("it has none of the rights that it needs, so its role or binding is missing: {when}"),
        false => format!("it may not {}: {when}", some(&told, TOLD_MAX)),
    };
    found.add(ErrorCode::OperatorRightsMissing, severity, object, message, rbac(facts, &account.namespace));
}

/// The command that installs the operator's roles and bindings.
fn rbac(facts: &Facts, namespace: &str) -> Remedy {
    let whole = install(facts);
    // a release has its own roles, and so does an operator of one namespace
    if !whole.command.ends_with("manifests/overlays/manager") {
        return whole;
    }
    let command = "kubectl apply --server-side --force-conflicts -k manifests/base/rbac";
    match namespace {
        OPERATOR_NAMESPACE => Remedy::run(command),
        other => Remedy::why(format!("with `namespace: {other}` in its kustomization"), command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_verbs_is_granted_once() {
        let right = |verb: &str, resource: &str, namespace: &str| Right {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            ..Right::default()
        };
        let rights = [
            right("get", "pods", "ns"),
            right("list", "pods", "ns"),
            right("get", "things", ""),
            right("get", "jobs", "ns"),
            right("list", "jobs", "ns"),
        ];
        let remedy = grant("o'hara of ml", rights.iter());
        assert_eq!(
            remedy.command,
            "kubectl create clusterrole trainyard-user-1 --verb=get --resource=things && kubectl create clusterrolebinding \
             trainyard-user-1 --clusterrole=trainyard-user-1 --user='o'\\''hara of ml' && kubectl create role trainyard-user-2 -n ns \
             --verb=get,list --resource=jobs,pods && kubectl create rolebinding trainyard-user-2 -n ns --role=trainyard-user-2 \
             --user='o'\\''hara of ml'"
        );
        assert!(grant("system:serviceaccount:ns:me", rights.iter()).command.contains("--serviceaccount=ns:me"));
        assert_eq!(grant("", rights.iter()).command, "");
    }
}
