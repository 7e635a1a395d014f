//! Warnings about pods and pod templates that are accepted but hardly meant. Source: `pkg/api/pod/warnings.go` of Kubernetes 1.36.

use super::apparmor::ANNOTATION as APPARMOR;
use crate::kit::{at, int, items, members, text};
use api::quantity::Quantity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Labels of nodes under older names: since when, and the name to use.
const OLD_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// Sorts of volumes that are on their way out.
const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings about what a volume is.
pub fn of_sources(volume: &Value, path: &str) -> Vec<String> {
    let there = OLD_VOLUMES.iter().filter(|(sort, _)| !at(volume, sort).is_null());
    there.map(|(sort, why)| format!("{path}{sort}: {why}")).collect()
}

const NEGATIVE_GRACE: &str = "must be >= 0; negative values are invalid and will be treated as 1";
const NO_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn old_label(key: &str) -> Option<String> {
    let (_, since, new) = OLD_LABELS.iter().find(|(old, ..)| *old == key)?;
    Some(format!("deprecated since {since}; use {new:?} instead"))
}

/// Warnings about a pod, or the template that stands at `prefix` (`spec.template.`; of a pod itself nothing).
pub fn of_template(template: &Value, prefix: &str) -> Vec<String> {
    let spec = at(template, "spec");
    let path = format!("{prefix}spec");
    let mut out = Vec::new();
    for (key, _) in members(spec, "nodeSelector") {
        out.extend(old_label(key).map(|why| format!("{path}.nodeSelector[{key}]: {why}")));
    }
    node_affinity(at(spec, "affinity.nodeAffinity"), &format!("{path}.affinity.nodeAffinity"), &mut out);
    for (i, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{i}]");
        let key = text(constraint, "topologyKey");
        out.extend(old_label(key).map(|why| format!("{path}.topologyKey: {key} is {why}")));
        if at(constraint, "labelSelector").is_null() {
            out.push(format!("{path}.labelSelector: {NO_SELECTOR}"));
        }
    }
    annotations(template, prefix, &mut out);
    for (i, volume) in items(spec, "volumes").iter().enumerate() {
        let place = format!("{path}.volumes[{i}]");
        out.extend(of_sources(volume, &format!("{place}.")));
        out.extend(of_claim(
            at(volume, "ephemeral.volumeClaimTemplate.spec"),
            &format!("{place}.ephemeral.volumeClaimTemplate.spec"),
        ));
    }
    repeated(spec, "hostAliases", "ip", &path, &mut out);
    repeated(spec, "imagePullSecrets", "name", &path, &mut out);
    for (i, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            out.push(format!("{path}.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
    for amount in ["memory", "ephemeral-storage"] {
        out.extend(fraction(at(spec, "overhead").get(amount)).map(|why| format!("{path}.overhead[{amount}]: {why}")));
    }
    amounts(spec, &path, &mut out);
    let told = format!("{prefix}metadata.annotations");
    let of_pod = "seccomp.security.alpha.kubernetes.io/pod";
    if annotated(template, of_pod) && at(spec, "securityContext.seccompProfile").is_null() {
        out.push(format!("{told}[{of_pod}]: {NO_SECCOMP}"));
    }
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all: Vec<(&Value, String)> = lists
        .iter()
        .flat_map(|list| items(spec, list).iter().enumerate().map(move |(i, c)| (c, format!("{list}[{i}]"))))
        .map(|(container, place)| (container, format!("{path}.{place}")))
        .collect();
    for (container, path) in &all {
        profiles(container, template, prefix, &mut out);
        self::container(container, path, &mut out);
    }
    ports(&all, &mut out);
    port_names(&all, &mut out);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        out.push(format!("{path}.terminationGracePeriodSeconds: {NEGATIVE_GRACE}"));
    }
    pod_affinity(spec, &path, &mut out);
    for (i, server) in items(spec, "dnsConfig.nameservers").iter().enumerate() {
        let place = format!("{path}.dnsConfig.nameservers[{i}]");
        out.extend(not_canonical(server.as_str().unwrap_or_default()).map(|why| format!("{place}: {why}")));
    }
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        out.extend(not_canonical(text(alias, "ip")).map(|why| format!("{path}.hostAliases[{i}].ip: {why}")));
    }
    out
}

fn annotated(template: &Value, key: &str) -> bool {
    at(template, "metadata.annotations").get(key).is_some()
}

/// Why an IPv6 address is not spelt as it should be.
pub fn not_canonical(address: &str) -> Option<String> {
    let canonical = address.parse::<std::net::Ipv6Addr>().ok()?.to_string();
    (canonical != address)
        .then(|| format!("IPv6 address {address:?} should be in RFC 5952 canonical format ({canonical:?})"))
}

/// Annotations about a container whose fields have long taken their place.
fn profiles(container: &Value, template: &Value, prefix: &str, out: &mut Vec<String>) {
    let name = text(container, "name");
    let told = format!("{prefix}metadata.annotations");
    let seccomp = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
    if annotated(template, &seccomp) && at(container, "securityContext.seccompProfile").is_null() {
        out.push(format!("{told}[{seccomp}]: {NO_SECCOMP}"));
    }
    // of a pod itself, upstream tells of it while the field is filled in (`apparmor::warnings`)
    let apparmor = format!("{APPARMOR}{name}");
    let has_field = |o: &Value| !at(o, "securityContext.appArmorProfile").is_null();
    if !prefix.is_empty() && annotated(template, &apparmor) && !has_field(container) && !has_field(at(template, "spec"))
    {
        out.push(format!("{told}[{apparmor}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
    }
}

fn node_affinity(affinity: &Value, path: &str, out: &mut Vec<String>) {
    let mut term = |term: &Value, path: String| {
        for (i, wanted) in items(term, "matchExpressions").iter().enumerate() {
            let key = text(wanted, "key");
            out.extend(old_label(key).map(|why| format!("{path}.matchExpressions[{i}].key: {key} is {why}")));
        }
    };
    let required = at(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    for (i, one) in items(required, "nodeSelectorTerms").iter().enumerate() {
        term(one, format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]"));
    }
    for (i, one) in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        term(at(one, "preference"), format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}].preference"));
    }
}

fn pod_affinity(spec: &Value, path: &str, out: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let affinity = at(at(spec, "affinity"), side);
        for (list, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
        ] {
            for (i, term) in items(affinity, list).iter().enumerate() {
                let (term, inner) =
                    if inner.is_empty() { (term, String::new()) } else { (at(term, inner), format!("{inner}.")) };
                if at(term, "labelSelector").is_null() {
                    out.push(format!("{path}.affinity.{side}.{list}[{i}].{inner}labelSelector: {NO_SELECTOR}"));
                }
            }
        }
    }
}

/// Annotations that have done nothing for long.
fn annotations(template: &Value, prefix: &str, out: &mut Vec<String>) {
    const SYSCTLS: &str = "non-functional in v1.11+; use the \"sysctls\" field instead";
    for (key, why) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", SYSCTLS),
        ("security.alpha.kubernetes.io/unsafe-sysctls", SYSCTLS),
    ] {
        if annotated(template, key) {
            out.push(format!("{prefix}metadata.annotations[{key}]: {why}"));
        }
    }
}

fn repeated(spec: &Value, list: &str, field: &str, path: &str, out: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (i, item) in items(spec, list).iter().enumerate() {
        let value = text(item, field);
        if !seen.insert(value) {
            out.push(format!("{path}.{list}[{i}].{field}: duplicate {field} {value:?}"));
        }
    }
}

/// Why an amount of bytes is none.
fn fraction(amount: Option<&Value>) -> Option<String> {
    let shown = amount?.as_str()?;
    let quantity = Quantity::parse(shown).ok()?;
    (!quantity.is_whole()).then(|| format!("fractional byte value {shown:?} is invalid, must be an integer"))
}

/// Warnings about the spec of a claim, which stands at `path`.
pub fn of_claim(spec: &Value, path: &str) -> Vec<String> {
    let lists = ["requests", "limits"].into_iter();
    let told = |list: &str| Some((list.to_owned(), fraction(at(spec, "resources").get(list)?.get("storage"))?));
    lists.filter_map(told).map(|(list, why)| format!("{path}.resources.{list}[storage]: {why}")).collect()
}

fn amounts(of: &Value, path: &str, out: &mut Vec<String>) {
    for (kind, name) in [
        ("limits", "memory"),
        ("requests", "memory"),
        ("limits", "ephemeral-storage"),
        ("requests", "ephemeral-storage"),
    ] {
        if let Some(why) = fraction(at(at(of, "resources"), kind).get(name)) {
            out.push(format!("{path}.resources.{kind}[{name}]: {why}"));
        }
    }
}

fn container(container: &Value, path: &str, out: &mut Vec<String>) {
    amounts(container, path, out);
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (i, variable) in items(container, "env").iter().enumerate() {
        let name = text(variable, "name");
        let (value, before) = (text(variable, "value"), format!("$({name})"));
        // a value made of the one before does not hide it
        let builds_on = value.contains(&before) && value != before && at(variable, "valueFrom").is_null();
        if !seen.insert(name) && !builds_on {
            out.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    for probe in ["livenessProbe", "startupProbe"] {
        if int(at(container, probe), "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
            out.push(format!("{path}.{probe}.terminationGracePeriodSeconds: {NEGATIVE_GRACE}"));
        }
    }
}

/// A port, and where it stands.
struct Port<'a> {
    port: &'a Value,
    path: String,
}

impl Port<'_> {
    fn on_host(&self) -> i64 {
        int(self.port, "hostPort").unwrap_or_default()
    }

    fn address(&self) -> &str {
        text(self.port, "hostIP")
    }

    /// Where both might be meant for the same.
    fn clash(&self, other: &Port<'_>) -> Option<&'static str> {
        let (a, b) = (self.address().is_empty(), other.address().is_empty());
        match (self.on_host(), other.on_host()) {
            (one, two) if one == two && self.address() == other.address() => Some("duplicate"),
            (0, _) | (_, 0) => Some("overlapping"),
            (one, two) if one == two && a != b => Some("dangerously ambiguous"),
            _ => None,
        }
    }
}

fn ports(all: &[(&Value, String)], out: &mut Vec<String>) {
    let mut seen: BTreeMap<(i64, &str), Vec<Port<'_>>> = BTreeMap::new();
    for (container, path) in all {
        for (i, port) in items(container, "ports").iter().enumerate() {
            let this = Port { port, path: format!("{path}.ports[{i}]") };
            let (name, number, protocol) =
                (text(port, "name"), int(port, "containerPort").unwrap_or_default(), text(port, "protocol"));
            if !this.address().is_empty() && this.on_host() == 0 {
                out.push(format!(
                    "{}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{}}}",
                    this.path,
                    this.address()
                ));
            }
            let others = seen.entry((number, protocol)).or_default();
            for other in others.iter() {
                out.extend(
                    this.clash(other).map(|how| format!("{}: {how} port definition with {}", this.path, other.path)),
                );
            }
            others.push(this);
        }
    }
}

fn port_names(all: &[(&Value, String)], out: &mut Vec<String>) {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (container, path) in all {
        for (i, port) in items(container, "ports").iter().enumerate() {
            let (name, path) = (text(port, "name"), format!("{path}.ports[{i}]"));
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                Some(first) => out.push(format!(
                    "{path}: duplicate port name {name:?} with {first}, services and probes that select ports by \
                     name will use {first}"
                )),
                None => {
                    names.insert(name, path);
                }
            }
        }
    }
}
