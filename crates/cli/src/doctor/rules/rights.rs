//! What this user and the operator may do.

use super::deployed;
use crate::doctor::facts::{Facts, Findings, Right, Seen, Severity};
use std::collections::BTreeMap;

pub(super) fn judge(facts: &Facts) -> Findings {
    let mut found = Findings::new("rights");
    own(facts, &mut found);
    operator(facts, &mut found);
    found
}

/// The verbs that are missing, by what they are for.
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
    // by what they are needed for, so that who only looks on sees that he may
    let mut missing: BTreeMap<&str, Vec<&Right>> = BTreeMap::new();
    for (right, commands, _) in facts.own.iter().filter(|(_, _, seen)| *seen == Seen::Known(false)) {
        missing.entry(commands).or_default().push(right);
    }
    if missing.is_empty() {
        found.ok(object, "you may do all that trainyard's commands do");
        return;
    }
    let targets = missing.into_iter().flat_map(|(commands, rights)| {
        by_target(rights).into_iter().map(move |(target, rights)| (commands, target, rights))
    });
    for (commands, (target, namespace), rights) in targets {
        let verbs = verbs(&rights);
        let (role, place) = match namespace.as_str() {
            "" => ("clusterrole", String::new()),
            namespace => ("role", format!(" -n {namespace}")),
        };
        // kubectl takes `pods/log`, and `jobsets.jobset.x-k8s.io`
        found.add(
            Severity::Warning,
            object.clone(),
            format!("you may not {} {target}, which is needed for: {commands}", verbs.replace(',', ", ")),
            format!(
                "as an administrator: kubectl create {role} trainyard-{} --verb={verbs} --resource={target}{place}, and bind it",
                rights[0].resource
            ),
        );
    }
}

fn operator(facts: &Facts, found: &mut Findings) {
    let account = match &facts.account {
        Seen::Known(Some(account)) => account,
        // whether there should be one is told with the controllers
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
    for ((target, namespace), rights) in targets {
        let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
        let (severity, when) = match is_ours {
            true => (Severity::Error, "trainyard's operator needs it"),
            false => (Severity::Warning, "trainyard's operator would need it in the place of the one there"),
        };
        found.add(
            severity,
            object.clone(),
            format!("it may not {} {target}{place}: {when}", verbs(&rights).replace(',', ", ")),
            format!("kubectl apply --server-side --force-conflicts -k manifests/base/rbac -n {}", account.namespace),
        );
    }
}
