//! What is wrong with a Service (`ValidateService`).

use super::{addresses, is_reached_from_outside, needs_check_port};
use crate::kit::{at, int, items, text};
use crate::network::cidr_faults;
use crate::podspec;
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// A day.
const AFFINITY_SECS_MAX: i64 = 86_400;
const BALANCERS_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const NAMED: &str = "may not be set for ExternalName services";

pub fn of(service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(service, "spec");
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if items(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        errors.push(Error::required(&path.child("ports"), ""));
    }
    match kind {
        "ExternalName" => external_name(spec, &path, &mut errors),
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(Error::invalid(&path.child("clusterIPs").index(0), "None", detail));
        }
        kind if !TYPES.contains(&kind) => errors.push(Error::not_supported(&path.child("type"), kind, &TYPES)),
        _ => {}
    }
    ports(spec, &path.child("ports"), &mut errors);
    for (key, value) in at(spec, "selector").as_object().into_iter().flatten() {
        let path = path.child("selector");
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::qualified_name_faults(key).into_iter().map(|f| Error::invalid(&path, key.as_str(), f)));
        errors.extend(names::label_value_faults(value).into_iter().map(|f| Error::invalid(&path, value, f)));
    }
    affinity(spec, &path, &mut errors);
    if kind != "ExternalName" {
        errors.extend(addresses::related(spec));
    }
    for (i, address) in items(spec, "externalIPs").iter().enumerate() {
        external_address(address.as_str().unwrap_or_default(), &path.child("externalIPs").index(i), &mut errors);
    }
    balancer(service, spec, &path, &mut errors);
    policies(spec, &path, &mut errors);
    errors
}

fn external_name(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for field in ["clusterIPs", "ipFamilies"] {
        if !items(spec, field).is_empty() {
            errors.push(Error::forbidden(&path.child(field), NAMED));
        }
    }
    if !at(spec, "ipFamilyPolicy").is_null() {
        errors.push(Error::forbidden(&path.child("ipFamilyPolicy"), NAMED));
    }
    let name = text(spec, "externalName");
    if name.is_empty() {
        errors.push(Error::required(&path.child("externalName"), ""));
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    for fault in names::subdomain_faults(name, false) {
        errors.push(Error::invalid(&path.child("externalName"), name, fault));
    }
}

fn ports(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let ports = items(spec, "ports");
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut pairs: BTreeSet<(i64, &str)> = BTreeSet::new();
    let mut on_nodes: BTreeSet<(i64, &str)> = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let (name, protocol) = (text(port, "name"), text(port, "protocol"));
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(Error::required(&path.child("name"), ""));
            }
        } else {
            for fault in names::label_faults(name, false) {
                errors.push(Error::invalid(&path.child("name"), name, fault));
            }
            if !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
        let number = int(port, "port").unwrap_or_default();
        for fault in names::port_number_faults(number) {
            errors.push(Error::invalid(&path.child("port"), number, fault));
        }
        if protocol.is_empty() {
            errors.push(Error::required(&path.child("protocol"), ""));
        } else if !PROTOCOLS.contains(&protocol) {
            errors.push(Error::not_supported(&path.child("protocol"), protocol, &PROTOCOLS));
        }
        if let Some(name) = at(port, "appProtocol").as_str() {
            let faults = names::qualified_name_faults(name);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("appProtocol"), name, fault)));
        }
        target(at(port, "targetPort"), &path.child("targetPort"), errors);
        let on_node = int(port, "nodePort").unwrap_or_default();
        if text(spec, "type") == "ClusterIP" && on_node != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(Error::forbidden(&path.child("nodePort"), detail));
        }
        if on_node != 0 && !on_nodes.insert((on_node, protocol)) {
            errors.push(Error::duplicate(&path.child("nodePort"), on_node));
        }
        if !pairs.insert((number, protocol)) {
            // upstream prints the Go struct that it looks for
            let shown = format!(
                r#"{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            errors.push(Error::duplicate(&path, json!({"protocol": protocol, "port": number})).shown_as(shown));
        }
    }
}

fn target(port: &Value, path: &Path, errors: &mut ErrorList) {
    match port {
        Value::String(target) => {
            for fault in names::port_name_faults(target) {
                errors.push(Error::invalid(path, target.as_str(), fault));
            }
        }
        target => {
            let target = target.as_i64().unwrap_or_default();
            for fault in names::port_number_faults(target) {
                errors.push(Error::invalid(path, target, fault));
            }
        }
    }
}

fn affinity(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let affinity = text(spec, "sessionAffinity");
    if !["ClientIP", "None"].contains(&affinity) {
        errors.push(Error::not_supported(&path.child("sessionAffinity"), affinity, &["ClientIP", "None"]));
    }
    let seconds = int(spec, "sessionAffinityConfig.clientIP.timeoutSeconds").unwrap_or_default();
    if affinity == "ClientIP" && !(1..=AFFINITY_SECS_MAX).contains(&seconds) {
        let path = path.child("sessionAffinityConfig").child("clientIP").child("timeoutSeconds");
        let detail = format!("must be greater than 0 and less than {AFFINITY_SECS_MAX}");
        errors.push(Error::invalid(&path, seconds, detail));
    }
}

/// An address outside the cluster: one of the machine or of the network that it is in is none.
fn external_address(address: &str, path: &Path, errors: &mut ErrorList) {
    let before = errors.len();
    podspec::ip(address, path, errors);
    let (true, Ok(parsed)) = (errors.len() == before, address.parse::<IpAddr>()) else { return };
    let (link_local, local_multicast) = match parsed {
        IpAddr::V4(v4) => (v4.is_link_local(), matches!(v4.octets(), [224, 0, 0, _])),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let mut refuse = |detail: String| errors.push(Error::invalid(path, address, detail));
    if parsed.is_unspecified() {
        refuse(format!("may not be unspecified ({address})"));
    }
    if parsed.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if link_local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if local_multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
}

/// What only services with a load balancer have.
fn balancer(service: &Value, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let kind = text(spec, "type");
    let ranges = items(spec, "loadBalancerSourceRanges");
    // upstream names the field as its Go struct does
    let place = path.child("LoadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        errors.push(Error::forbidden(&place, BALANCERS_ONLY));
    }
    for (i, range) in ranges.iter().enumerate() {
        cidr_faults(range.as_str().unwrap_or_default().trim(), &place.index(i), errors);
    }
    if !at(spec, "allocateLoadBalancerNodePorts").is_null() && kind != "LoadBalancer" {
        errors.push(Error::forbidden(&path.child("allocateLoadBalancerNodePorts"), BALANCERS_ONLY));
    }
    errors.extend(class(service, None));
}

/// What is wrong with the class of a load balancer, which stays as it is.
pub fn class(service: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("loadBalancerClass");
    let is_balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let class = at(service, "spec.loadBalancerClass");
    if let Some(old) = old
        && is_balanced(old)
        && is_balanced(service)
        && class != at(old, "spec.loadBalancerClass")
    {
        errors.push(Error::invalid(&path, class.clone(), "may not change once set"));
    }
    let Some(class) = class.as_str() else { return errors };
    if is_balanced(service) {
        let faults = names::qualified_name_faults(class);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, class, fault)));
    } else {
        errors.push(Error::forbidden(&path, BALANCERS_ONLY));
    }
    errors
}

/// Which traffic goes where.
fn policies(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let policy = text(spec, "externalTrafficPolicy");
    if !policy.is_empty() {
        let place = path.child("externalTrafficPolicy");
        if !is_reached_from_outside(spec) {
            errors.push(Error::invalid(&place, policy, "may only be set for externally-accessible services"));
        } else if !["Cluster", "Local"].contains(&policy) {
            errors.push(Error::not_supported(&place, policy, &["Cluster", "Local"]));
        }
    }
    let port = int(spec, "healthCheckNodePort").unwrap_or_default();
    if port != 0 && !needs_check_port(spec) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(Error::invalid(&path.child("healthCheckNodePort"), port, detail));
    }
    let known = [
        ("internalTrafficPolicy", &["Cluster", "Local"][..]),
        ("trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]),
    ];
    for (field, values) in known {
        if let Some(value) = at(spec, field).as_str()
            && !values.contains(&value)
        {
            errors.push(Error::not_supported(&path.child(field), value, values));
        }
    }
}
