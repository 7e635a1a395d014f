//! Reports how the machine enforces the limits that flags set.

use crate::spec::Spec;
use api::node::{Enforced, LIMITS, Limited};
use api::object::{annotation, meta};
use serde_json::Value;

/// How these nodes enforce `--memory` and `--cpus`, in one line; `None` if neither flag is given, or no node reports it.
pub(super) fn line(spec: &Spec, nodes: &[Value]) -> Option<String> {
    if spec.memory.is_none() && spec.cpus.is_none() {
        return None;
    }
    let known = nodes.iter().filter_map(|node| Some((node, Limited::parse(annotation(node, LIMITS)?)?)));
    // The job may run on any node, so the one that enforces least counts.
    let by_kernel = |limited: &Limited| {
        [limited.memory, limited.cpu].into_iter().filter(|enforced| *enforced == Enforced::ByCgroup).count()
    };
    let (node, limited) = known.min_by_key(|(_, limited)| by_kernel(limited))?;
    let place = match nodes {
        [_] => "this machine".to_owned(),
        _ => format!("node {}", meta(node, "name")),
    };
    let flags = [("--memory", "memory", &spec.memory, limited.memory), ("--cpus", "cpu", &spec.cpus, limited.cpu)];
    let flags: Vec<_> = flags
        .into_iter()
        .filter_map(|(flag, controller, value, enforced)| {
            Some((format!("{flag} {}", value.as_ref()?), controller, enforced))
        })
        .collect();
    let said: Vec<String> = flags
        .iter()
        .map(|(flag, _, enforced)| match enforced {
            Enforced::ByCgroup => format!("{flag} is enforced by a cgroup"),
            Enforced::ByLooking => format!("{flag} is enforced by looking once a second"),
            Enforced::No => format!("{flag} is not enforced"),
        })
        .collect();
    let missing: Vec<&str> = flags
        .iter()
        .filter(|(_, _, enforced)| *enforced != Enforced::ByCgroup)
        .map(|(_, controller, _)| *controller)
        .collect();
    let why = match missing.as_slice() {
        [] => String::new(),
        missing => format!(", because {place} has no {} cgroup", missing.join(" or ")),
    };
    Some(format!("{}{why}", said.join(", and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(flags: &[&str], nodes: &[&str]) -> Option<String> {
        let node =
            |(at, text): (usize, &&str)| json!({"metadata": {"name": format!("n{at}"), "annotations": {LIMITS: text}}});
        line(&Spec::of_words(flags), &nodes.iter().enumerate().map(node).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_says_which_limits_hold_and_how() {
        let none = "memory watched, cpu not enforced: cgroup v2 is not mounted";
        let both = ["--memory", "1Gi", "--cpus", "2"];
        let cases = [
            (
                &both[..2],
                &[none][..],
                "--memory 1Gi is enforced by looking once a second, because this machine has no memory cgroup",
            ),
            (&both[2..], &[none], "--cpus 2 is not enforced, because this machine has no cpu cgroup"),
            (
                &both,
                &[none],
                "--memory 1Gi is enforced by looking once a second, and --cpus 2 is not enforced, because this machine has no \
                 memory or cpu cgroup",
            ),
            (&both, &["enforced"], "--memory 1Gi is enforced by a cgroup, and --cpus 2 is enforced by a cgroup"),
            (
                &both,
                &["enforced", "cpu not enforced: the cgroup v2 at /x has no controller for cpu"],
                "--memory 1Gi is enforced by a cgroup, and --cpus 2 is not enforced, because node n1 has no cpu cgroup",
            ),
        ];
        for (flags, nodes, text) in cases {
            assert_eq!(said(flags, nodes).as_deref(), Some(text));
        }
        assert_eq!(said(&[], &[none]), None);
        assert_eq!(said(&both, &[]), None);
        assert_eq!(said(&both, &["of a later version"]), None);
    }
}
