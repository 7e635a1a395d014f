//! The kind `Ingress` of networking.k8s.io: kept and validated, as `kubectl apply --prune` asks for it by name. Nothing here leads
//! requests anywhere. Source: `pkg/apis/networking/validation` of Kubernetes 1.36.

use super::kit::{age, at, int, items, keep, same, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// The kind `Ingress`.
pub struct Ingresses;

/// What is wrong with the names of the secrets of an Ingress: where there were wrong ones, there may be.
fn secret_faults(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, tls) in items(object, "spec.tls").iter().enumerate() {
        let (name, path) = (text(tls, "secretName"), Path::new("spec").child("tls").index(i).child("secretName"));
        let faults = if name.is_empty() { Vec::new() } else { names::subdomain_faults(name, false) };
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name, fault)));
    }
    errors
}

fn faults(object: &Value) -> ErrorList {
    let (spec, path, mut errors) = (at(object, "spec"), Path::new("spec"), ErrorList::new());
    let rules = items(spec, "rules");
    let standard = at(spec, "defaultBackend");
    if rules.is_empty() && standard.is_null() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        // the message shows the rules
        errors.push(Error::invalid(&path, Value::Null, detail));
    }
    if !standard.is_null() {
        backend(standard, &path.child("defaultBackend"), &mut errors);
    }
    for (i, rule) in rules.iter().enumerate() {
        let place = path.child("rules").index(i);
        let host = text(rule, "host");
        if !host.is_empty() {
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.push(Error::invalid(&place.child("host"), host, "must be a DNS name, not an IP address"));
            }
            host_faults(host, &place.child("host"), &mut errors);
        }
        if at(rule, "http").is_null() {
            continue;
        }
        let place = place.child("http").child("paths");
        if items(rule, "http.paths").is_empty() {
            errors.push(Error::required(&place, ""));
        }
        for (j, way) in items(rule, "http.paths").iter().enumerate() {
            one_path(way, &place.index(j), &mut errors);
        }
    }
    for (i, tls) in items(spec, "tls").iter().enumerate() {
        for (j, host) in items(tls, "hosts").iter().enumerate() {
            let place = path.child("tls").index(i).child("hosts").index(j);
            host_faults(host.as_str().unwrap_or_default(), &place, &mut errors);
        }
    }
    let class = text(spec, "ingressClassName");
    if !at(spec, "ingressClassName").is_null() {
        for fault in names::subdomain_faults(class, false) {
            errors.push(Error::invalid(&path.child("ingressClassName"), class, fault));
        }
    }
    errors
}

/// A host's name; with a star, only as its first label.
fn host_faults(host: &str, place: &Path, errors: &mut ErrorList) {
    if !host.contains('*') {
        errors.extend(names::subdomain_faults(host, false).into_iter().map(|fault| Error::invalid(place, host, fault)));
        return;
    }
    let rest = host.strip_prefix("*.").filter(|rest| !rest.contains('*'));
    if rest.is_none_or(|rest| !names::subdomain_faults(rest, false).is_empty()) {
        let detail = r"a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        errors.push(Error::invalid(place, host, detail));
    }
}

fn one_path(way: &Value, place: &Path, errors: &mut ErrorList) {
    let path = text(way, "path");
    let Some(kind) = at(way, "pathType").as_str() else {
        errors.push(Error::required(&place.child("pathType"), "pathType must be specified"));
        return;
    };
    match kind {
        "Exact" | "Prefix" if !path.starts_with('/') => {
            errors.push(Error::invalid(&place.child("path"), path, "must be an absolute path"));
        }
        "ImplementationSpecific" if !path.is_empty() && !path.starts_with('/') => {
            errors.push(Error::invalid(&place.child("path"), path, "must be an absolute path"));
        }
        _ if !PATH_TYPES.contains(&kind) => {
            errors.push(Error::not_supported(&place.child("pathType"), kind, &PATH_TYPES));
        }
        _ => {}
    }
    if matches!(kind, "Exact" | "Prefix") {
        for part in ["//", "/./", "/../", "%2f", "%2F"] {
            if path.contains(part) {
                errors.push(Error::invalid(&place.child("path"), path, format!("must not contain '{part}'")));
            }
        }
        for end in ["/..", "/."] {
            if path.ends_with(end) {
                errors.push(Error::invalid(&place.child("path"), path, format!("cannot end with '{end}'")));
            }
        }
    }
    backend(at(way, "backend"), &place.child("backend"), errors);
}

/// Another object of the namespace.
fn typed(reference: &Value, place: &Path, errors: &mut ErrorList) {
    if reference.is_null() {
        return;
    }
    if let Some(group) = at(reference, "apiGroup").as_str() {
        let faults = names::subdomain_faults(group, false);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&place.child("apiGroup"), group, fault)));
    }
    for field in ["kind", "name"] {
        let (value, place) = (text(reference, field), place.child(field));
        if value.is_empty() {
            errors.push(Error::required(&place, ""));
        } else {
            let faults = names::path_segment_faults(value, false);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&place, value, fault)));
        }
    }
}

fn backend(backend: &Value, place: &Path, errors: &mut ErrorList) {
    let (service, resource) = (at(backend, "service"), at(backend, "resource"));
    if service.is_null() {
        if resource.is_null() {
            errors.push(Error::invalid(place, "", "resource or service backend is required"));
        }
        typed(resource, &place.child("resource"), errors);
        return;
    }
    if !resource.is_null() {
        errors.push(Error::invalid(place, "", "cannot set both resource and service backends"));
        return;
    }
    let at_name = place.child("service").child("name");
    let name = text(service, "name");
    if name.is_empty() {
        errors.push(Error::required(&at_name, ""));
    } else {
        let faults = names::label_faults(name, false);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&at_name, name, fault)));
    }
    let at_port = place.child("service").child("port");
    let (number, named) = (int(service, "port.number").unwrap_or_default(), text(service, "port.name"));
    match (named.is_empty(), number) {
        (false, 0) => {
            let faults = names::port_name_faults(named);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&at_port.child("name"), named, fault)));
        }
        (false, _) => {
            errors.push(Error::invalid(place, "", "cannot set both port name & port number"));
        }
        (true, 0) => errors.push(Error::required(place, "port name or number is required")),
        (true, number) if !(1..=65535).contains(&number) => {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(Error::invalid(&at_port.child("number"), number, detail));
        }
        (true, _) => {}
    }
}

/// Faults of the addresses under which a balancer answers; `modes`: each address says how it is used.
pub(crate) fn balanced(entries: &[Value], modes: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status").child("loadBalancer").child("ingress");
    for (i, entry) in entries.iter().enumerate() {
        let here = path.index(i);
        let (ip, mode, host) = (text(entry, "ip"), at(entry, "ipMode").as_str(), text(entry, "hostname"));
        if !ip.is_empty() && ip.parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(Error::invalid(&here.child("ip"), ip, detail));
        }
        if modes {
            match mode {
                None if !ip.is_empty() => {
                    errors.push(Error::required(&here.child("ipMode"), "must be specified when `ip` is set"))
                }
                Some(_) if ip.is_empty() => {
                    errors.push(Error::forbidden(&here.child("ipMode"), "may not be specified when `ip` is not set"))
                }
                Some(mode) if !["Proxy", "VIP"].contains(&mode) => {
                    errors.push(Error::not_supported(&here.child("ipMode"), mode, &["Proxy", "VIP"]))
                }
                _ => {}
            }
        }
        if !host.is_empty() {
            let faults = api::names::subdomain_faults(host, false);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&here.child("hostname"), host, fault)));
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.push(Error::invalid(&here.child("hostname"), host, "must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}

impl Strategy for Ingresses {
    fn facts(&self) -> Facts {
        Facts { shown_at: &[("spec", "spec.rules")], ..Facts::default() }
    }

    fn warnings(&self, _new: &Value, old: Option<&Value>) -> Vec<String> {
        let warning = || crate::kit::stored_only("Ingresses", "routes nothing: no traffic will come by this one");
        old.is_none().then(warning).into_iter().collect()
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({"loadBalancer": {}});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = faults(new);
        errors.extend(secret_faults(new));
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = faults(new);
        if secret_faults(old).is_empty() {
            errors.extend(secret_faults(new));
        }
        errors
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        balanced(items(new, "status.loadBalancer.ingress"), false)
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        !same(at(new, "spec"), at(old, "spec"))
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let hosts: Vec<&str> =
            items(object, "spec.rules").iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty()).collect();
        let mut shown = hosts.iter().take(3).copied().collect::<Vec<_>>().join(",");
        if hosts.len() > 3 {
            shown += &format!(" + {} more...", hosts.len() - 3);
        }
        let places: Vec<&str> = items(object, "status.loadBalancer.ingress")
            .iter()
            .map(|place| if text(place, "ip").is_empty() { text(place, "hostname") } else { text(place, "ip") })
            .collect();
        let ports = if items(object, "spec.tls").is_empty() { "80" } else { "80, 443" };
        vec![
            json!(text(object, "metadata.name")),
            json!(at(object, "spec.ingressClassName").as_str().unwrap_or("<none>")),
            json!(if shown.is_empty() { "*".to_owned() } else { shown }),
            json!(places.join(",")),
            json!(ports),
            age(object, now),
        ]
    }
}
