//! Validation of a whole pod spec.

use super::containers::{Kind, Scene};
use super::{containers, os, resources, scheduling, volumes};
use crate::kit::{at, int, is_true, items, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::Value;
use std::collections::BTreeSet;

const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const MAX_INT32: i64 = i32::MAX as i64;

/// What is wrong with a node's name, which must fit into labels and paths.
pub fn node_name_faults(name: &str) -> Vec<String> {
    names::subdomain_faults(name, false)
}

fn invalid_each(errors: &mut ErrorList, path: &Path, value: &str, faults: Vec<String>) {
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, value, fault)));
}

/// All faults of a pod spec (after defaults).
pub fn spec(spec: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let known = volumes::validate(items(spec, "volumes"), &path.child("volumes"), &mut errors);
    let scene = Scene {
        volumes: &known,
        restart_policy: text(spec, "restartPolicy"),
        grace: int(spec, "terminationGracePeriodSeconds"),
        host_users: at(spec, "hostUsers") != &Value::Bool(false),
    };
    containers::validate(spec, &scene, Kind::Main, &path.child("containers"), &mut errors);
    containers::validate(spec, &scene, Kind::Init, &path.child("initContainers"), &mut errors);
    containers::validate(spec, &scene, Kind::Ephemeral, &path.child("ephemeralContainers"), &mut errors);
    resources::pod_resources(spec, path, &mut errors);
    host_network(spec, path, &mut errors);
    resource_claims(items(spec, "resourceClaims"), &path.child("resourceClaims"), &mut errors);
    references(spec, path, &mut errors);

    choice(text(spec, "restartPolicy"), &RESTART, &path.child("restartPolicy"), &mut errors);
    choice(text(spec, "dnsPolicy"), &DNS, &path.child("dnsPolicy"), &mut errors);
    labels(at(spec, "nodeSelector"), &path.child("nodeSelector"), &mut errors);
    security_context(spec, &path.child("securityContext"), &mut errors);
    for (i, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if secret.as_object().is_some_and(|s| s.keys().any(|key| key != "name")) {
            errors.push(Error::invalid(
                &path.child("imagePullSecrets").index(i),
                secret.clone(),
                "only name may be set",
            ));
        }
    }
    scheduling::affinity(at(spec, "affinity"), &path.child("affinity"), &mut errors);
    dns_config(spec, &path.child("dnsConfig"), &mut errors);
    for (i, gate) in items(spec, "readinessGates").iter().enumerate() {
        let at = path.child("readinessGates").index(i).child("conditionType");
        let name = text(gate, "conditionType");
        invalid_each(&mut errors, &at, name, names::qualified_name_faults(name));
    }
    let mut gates: BTreeSet<&str> = BTreeSet::new();
    for (i, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        let at = path.child("schedulingGates").index(i);
        invalid_each(&mut errors, &at, name, names::qualified_name_faults(name));
        if gates.contains(&name) {
            errors.push(Error::duplicate(&at, name));
        }
        gates.insert(name);
    }
    scheduling::topology_spread(spec, &path.child("topologySpreadConstraints"), &mut errors);
    os::host_process(spec, path, &mut errors);
    host_users(spec, path, &mut errors);
    host_name(spec, path, &mut errors);
    for (field, faults) in [
        ("serviceAccountName", names::subdomain_faults as fn(&str, bool) -> Vec<String>),
        ("nodeName", names::subdomain_faults),
    ] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_each(&mut errors, &path.child(field), name, faults(name, false));
        }
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds")
        && !(1..=MAX_INT32).contains(&seconds)
    {
        let detail = format!("must be between 1 and {MAX_INT32}, inclusive");
        errors.push(Error::invalid(&path.child("activeDeadlineSeconds"), seconds, detail));
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_each(&mut errors, &path.child(field), name, names::label_faults(name, false));
        }
    }
    scheduling::tolerations(items(spec, "tolerations"), &path.child("tolerations"), &mut errors);
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        let at = path.child("hostAliases").index(i);
        ip(text(alias, "ip"), &at.child("ip"), &mut errors);
        for (j, host) in items(alias, "hostnames").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            invalid_each(&mut errors, &at.child("hostnames").index(j), host, names::subdomain_faults(host, false));
        }
    }
    for field in ["priorityClassName", "runtimeClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            invalid_each(&mut errors, &path.child(field), name, names::subdomain_faults(name, false));
        }
    }
    if !at(spec, "preemptionPolicy").is_null() {
        let policy = text(spec, "preemptionPolicy");
        choice(policy, &["PreemptLowerPriority", "Never"], &path.child("preemptionPolicy"), &mut errors);
    }
    if !at(spec, "overhead").is_null() {
        let overhead = serde_json::json!({ "limits": at(spec, "overhead") });
        let at = path.child("overhead");
        errors.extend(resources::resource_requirements(&overhead, &at));
    }
    os::system(spec, path, &mut errors);
    errors
}

/// One of a few words; required.
pub(super) fn choice(value: &str, supported: &[&str], path: &Path, errors: &mut ErrorList) {
    if value.is_empty() {
        errors.push(Error::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(Error::not_supported(path, value, supported));
    }
}

/// Keys and values of labels, all reported at the map's own path.
pub(crate) fn labels(value: &Value, path: &Path, errors: &mut ErrorList) {
    for (key, value) in value.as_object().into_iter().flatten() {
        invalid_each(errors, path, key, names::qualified_name_faults(key));
        let value = value.as_str().unwrap_or_default();
        invalid_each(errors, path, value, names::label_value_faults(value));
    }
}

/// A textual IP address.
/// Adds the faults of an address, as the fields have them that are older than strict addresses.
pub(crate) fn ip(value: &str, path: &Path, errors: &mut ErrorList) {
    use std::net::IpAddr;
    // what earlier versions took for an address
    let sloppy = || value.split('.').map(|part| part.trim_start_matches('0')).collect::<Vec<_>>();
    let zeroless =
        || sloppy().iter().map(|part| if part.is_empty() { "0" } else { *part }).collect::<Vec<_>>().join(".");
    let why = match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address",
        Ok(_) => return,
        Err(_)
            if !value.contains("..") && !value.ends_with('.') && zeroless().parse::<std::net::Ipv4Addr>().is_ok() =>
        {
            "must not have leading 0s"
        }
        Err(_) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    };
    errors.push(Error::invalid(path, value, why));
}

fn host_network(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if !is_true(spec, "hostNetwork") {
        return;
    }
    for (i, container) in items(spec, "containers").iter().enumerate() {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            if host != int(port, "containerPort").unwrap_or_default() {
                let at = path.child("containers").index(i).child("ports").index(j).child("hostPort");
                errors.push(Error::invalid(&at, host, "must match `containerPort` when `hostNetwork` is true"));
            }
        }
    }
}

fn host_users(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if at(spec, "hostUsers") != &Value::Bool(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if is_true(spec, field) {
            errors.push(Error::forbidden(&path.child(shown), "when `hostUsers` is false"));
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, container) in items(spec, list).iter().enumerate() {
            if !items(container, "volumeDevices").is_empty() {
                let at = path.child(list).index(i).child("volumeDevices");
                errors.push(Error::forbidden(&at, "when `hostUsers` is false"));
            }
        }
    }
}

fn host_name(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let name = text(spec, "hostnameOverride");
    if at(spec, "hostnameOverride").is_null() {
        return;
    }
    let at = path.child("hostnameOverride");
    if is_true(spec, "setHostnameAsFQDN") {
        errors.push(Error::forbidden(&at, "may not be specified when setHostnameAsFQDN is true"));
    }
    if is_true(spec, "hostNetwork") {
        errors.push(Error::forbidden(&at, "may not be specified when hostNetwork is true"));
    }
    invalid_each(errors, &at, name, names::subdomain_faults(name, false));
    if name.len() > 64 {
        errors.push(Error::too_long(&at, 64));
    }
}

fn ids(context: &Value, fields: &[&str], path: &Path, errors: &mut ErrorList) {
    for field in fields {
        if let Some(id) = int(context, field) {
            for fault in names::range_faults(id, 0, MAX_INT32) {
                errors.push(Error::invalid(&path.child(field), id, fault));
            }
        }
    }
}

fn security_context(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let context = at(spec, "securityContext");
    ids(context, &["fsGroup", "runAsUser", "runAsGroup"], path, errors);
    for (i, group) in items(context, "supplementalGroups").iter().enumerate() {
        let id = group.as_i64().unwrap_or_default();
        for fault in names::range_faults(id, 0, MAX_INT32) {
            errors.push(Error::invalid(&path.child("supplementalGroups").index(i), id, fault));
        }
    }
    if is_true(spec, "shareProcessNamespace") && is_true(spec, "hostPID") {
        let at = path.child("shareProcessNamespace");
        errors.push(Error::invalid(&at, true, "ShareProcessNamespace and HostPID cannot both be enabled"));
    }
    os::sysctls(spec, path, errors);
    if !at(context, "fsGroupChangePolicy").is_null() {
        choice(
            text(context, "fsGroupChangePolicy"),
            &["Always", "OnRootMismatch"],
            &path.child("fsGroupChangePolicy"),
            errors,
        );
    }
    for (name, supported) in
        [("supplementalGroupsPolicy", &["Merge", "Strict"][..]), ("seLinuxChangePolicy", &["Recursive"][..])]
    {
        if let Some(policy) = at(context, name).as_str().filter(|policy| !supported.contains(policy)) {
            errors.push(Error::not_supported(&path.child(name), policy, supported));
        }
    }
    seccomp(context, path, errors);
    os::windows_options(context, path, errors);
    app_armor(context, path, errors);
}

fn seccomp(context: &Value, path: &Path, errors: &mut ErrorList) {
    let profile = at(context, "seccompProfile");
    if profile.is_null() {
        return;
    }
    let path = path.child("seccompProfile");
    let kind = text(profile, "type");
    let local = at(profile, "localhostProfile").as_str();
    match kind {
        "" => errors.push(Error::required(&path.child("type"), "type is required when seccompProfile is set")),
        "Localhost" if local.is_none() => {
            let at = path.child("localhostProfile");
            errors.push(Error::required(&at, "must be set when seccomp type is Localhost"));
        }
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        other => errors.push(Error::not_supported(
            &path.child("type"),
            other,
            &["Localhost", "RuntimeDefault", "Unconfined"],
        )),
    }
    match local {
        Some(local) if kind == "Localhost" => {
            super::volumes::local_path(local, &path.child("localhostProfile"), errors);
        }
        Some(_) => {
            let shown = merge::builtin::as_internal("io.k8s.api.core.v1.SeccompProfile", profile);
            let (at, detail) = (path.child("localhostProfile"), "can only be set when seccomp type is Localhost");
            errors.push(Error::invalid(&at, profile.clone(), detail).shown_as(shown));
        }
        None => {}
    }
}

/// What containers refer to is there: volumes of the variables that come from files, and claims of resources.
fn references(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let volumes = items(spec, "volumes");
    let claims: BTreeSet<&str> = items(spec, "resourceClaims").iter().map(|claim| text(claim, "name")).collect();
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.iter().flat_map(|list| items(spec, list).iter().enumerate().map(move |(i, c)| (*list, i, c)));
    for (list, i, container) in all {
        let path = path.child(list).index(i);
        for (j, variable) in items(container, "env").iter().enumerate() {
            let reference = at(variable, "valueFrom.fileKeyRef");
            if reference.is_null() {
                continue;
            }
            let name = text(reference, "volumeName");
            let at_name = path.child("env").index(j).child("valueFrom").child("fileKeyRef").child("volumeName");
            match volumes.iter().find(|volume| text(volume, "name") == name) {
                None => errors.push(Error::not_found(&at_name, name)),
                Some(volume) if at(volume, "emptyDir").is_null() => {
                    errors.push(Error::invalid(&at_name, name, "referenced volume must be of type emptyDir"));
                }
                Some(_) => {}
            }
        }
        claims_of(at(container, "resources"), &claims, &path.child("resources").child("claims"), errors);
    }
    if text(spec, "os.name") != "windows" {
        claims_of(at(spec, "resources"), &claims, &path.child("resources").child("claims"), errors);
    }
}

/// The claims of resources that a pod names, each of a claim that is there or made from a template.
fn resource_claims(claims: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let (name, path) = (text(claim, "name"), path.index(i));
        let at_name = path.child("name");
        if name.is_empty() {
            errors.push(Error::required(&at_name, ""));
        } else if seen.insert(name) {
            invalid_each(errors, &at_name, name, names::label_faults(name, false));
        } else {
            errors.push(Error::duplicate(&at_name, name));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given: Vec<(&str, &str)> =
            sources.into_iter().filter_map(|field| Some((field, at(claim, field).as_str()?))).collect();
        let fault = match given.len() {
            0 => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => None,
            _ => Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
        };
        if let Some(detail) = fault {
            let shown = merge::builtin::as_internal("io.k8s.api.core.v1.PodResourceClaim", claim);
            errors.push(Error::invalid(&path, claim.clone(), detail).shown_as(shown));
        }
        for (field, value) in given {
            invalid_each(errors, &path.child(field), value, names::subdomain_faults(value, false));
        }
    }
}

fn claims_of(resources: &Value, known: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    // (claim, request): without a request, all of the claim's
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (i, claim) in items(resources, "claims").iter().enumerate() {
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        let at_claim = path.index(i);
        if name.is_empty() {
            errors.push(Error::required(&at_claim, ""));
            continue;
        }
        if seen.contains(&(name, "")) {
            errors.push(Error::duplicate(&at_claim, name));
        } else {
            if request.is_empty() {
                let parts = seen.iter().filter(|(other, _)| *other == name).count();
                errors.extend((0..parts).map(|_| Error::duplicate(&at_claim, name)));
            } else {
                invalid_each(errors, &at_claim.child("request"), request, names::label_faults(request, false));
                if seen.contains(&(name, request)) {
                    errors.push(Error::duplicate(&at_claim, format!("{name}/{request}")));
                }
            }
            seen.insert((name, request));
        }
        if !known.contains(name) {
            let among = match known.len() {
                0 => " which is empty".to_owned(),
                _ => format!(": {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            let mut error = Error::not_found(&at_claim, name);
            error.detail = format!("must be one of the names in pod.spec.resourceClaims{among}");
            errors.push(error);
        }
    }
}

/// The AppArmor profile of a security context.
pub fn app_armor(context: &Value, path: &Path, errors: &mut ErrorList) {
    const PROFILE_MAX: usize = 4095;
    let profile = at(context, "appArmorProfile");
    if profile.is_null() {
        return;
    }
    let path = path.child("appArmorProfile");
    let at_local = path.child("localhostProfile");
    match (text(profile, "type"), at(profile, "localhostProfile").as_str()) {
        ("", _) => errors.push(Error::required(&path.child("type"), "type is required when appArmorProfile is set")),
        ("Localhost", local) => {
            let local = local.unwrap_or_default();
            if local.trim() != local {
                errors.push(Error::invalid(&at_local, local, "must not be padded with whitespace"));
            } else if local.is_empty() {
                errors.push(Error::required(&at_local, "must be set when AppArmor type is Localhost"));
            }
            if local.len() > PROFILE_MAX {
                errors.push(Error::too_long(&at_local, PROFILE_MAX));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(local)) => {
            errors.push(Error::invalid(&at_local, local, "can only be set when AppArmor type is Localhost"));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        (other, _) => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.push(Error::not_supported(&path.child("type"), other, &supported));
        }
    }
}

/// A container's own security context.
pub(super) fn container_security(context: &Value, host_users: bool, path: &Path, errors: &mut ErrorList) {
    if context.is_null() {
        return;
    }
    ids(context, &["runAsUser", "runAsGroup"], path, errors);
    match at(context, "procMount").as_str() {
        Some("Unmasked") if host_users => {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.push(Error::invalid(&path.child("procMount"), "Unmasked", detail));
        }
        None | Some("Default" | "Unmasked") => {}
        Some(other) => {
            errors.push(Error::not_supported(&path.child("procMount"), other, &["Default", "Unmasked"]));
        }
    }
    seccomp(context, path, errors);
    if at(context, "allowPrivilegeEscalation") == &Value::Bool(false) {
        let shown = || merge::builtin::as_internal("io.k8s.api.core.v1.SecurityContext", context);
        if is_true(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(Error::invalid(path, context.clone(), detail).shown_as(shown()));
        }
        // once for each time that it is listed
        for _ in items(context, "capabilities.add").iter().filter(|capability| *capability == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(Error::invalid(path, context.clone(), detail).shown_as(shown()));
        }
    }
    os::windows_options(context, path, errors);
    app_armor(context, path, errors);
}

fn dns_config(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let config = at(spec, "dnsConfig");
    let servers = items(config, "nameservers");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            errors.push(Error::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(Error::required(&path.child("nameservers"), detail));
            return;
        }
    }
    if servers.len() > 3 {
        let at = path.child("nameservers");
        errors.push(Error::invalid(&at, servers.to_vec(), "must not have more than 3 nameservers"));
    }
    for (i, server) in servers.iter().enumerate() {
        let (server, path) = (server.as_str().unwrap_or_default(), path.child("nameservers").index(i));
        ip(server, &path, errors);
    }
    let searches = items(config, "searches");
    if searches.len() > 32 {
        let at = path.child("searches");
        errors.push(Error::invalid(&at, searches.to_vec(), "must not have more than 32 search paths"));
    }
    for (i, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        let name = search.strip_suffix('.').unwrap_or(search);
        if search != "." {
            invalid_each(errors, &path.child("searches").index(i), name, names::search_faults(name));
        }
    }
    for (i, option) in items(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.push(Error::required(&path.child("options").index(i), "must not be empty"));
        }
    }
}
