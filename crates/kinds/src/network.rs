//! What is wrong with network policies, endpoints and their slices.
//!
//! Source: `pkg/apis/networking/validation`, `pkg/apis/discovery/validation` and `ValidateEndpoints` of Kubernetes 1.36. Addresses of
//! the loopback range are endpoints here: pods have such.

use super::kit::{at, int, items, text, unset};
use super::podspec::label_selector;
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

const MORE_BITS: &str = "must not have bits set beyond the prefix length";

/// A NetworkPolicy.
pub fn policy(object: &Value) -> ErrorList {
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let mut errors = label_selector(at(spec, "podSelector"), &path.child("podSelector"));
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(spec, rules).iter().enumerate() {
            let path = path.child(rules).index(i);
            for (j, port) in items(rule, "ports").iter().enumerate() {
                policy_port(port, &path.child("ports").index(j), &mut errors);
            }
            for (j, peer) in items(rule, peers).iter().enumerate() {
                policy_peer(peer, &path.child(peers).index(j), &mut errors);
            }
        }
    }
    let (types, path) = (items(spec, "policyTypes"), path.child("policyTypes"));
    if types.len() > 2 {
        errors.push(Error::invalid(
            &path,
            at(spec, "policyTypes").clone(),
            "may not specify more than two policyTypes",
        ));
        return errors;
    }
    for (i, kind) in types.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        if !["Egress", "Ingress"].contains(&kind) {
            errors.push(Error::not_supported(&path.index(i), kind, &["Ingress", "Egress"]));
        }
    }
    errors
}

fn policy_port(rule: &Value, path: &Path, errors: &mut ErrorList) {
    let protocol = at(rule, "protocol");
    if let Some(protocol) = protocol.as_str()
        && !PROTOCOLS.contains(&protocol)
    {
        errors.push(Error::not_supported(&path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]));
    }
    let (port, end, end_path) = (at(rule, "port"), int(rule, "endPort"), path.child("endPort"));
    let path = path.child("port");
    match (port, end) {
        (Value::Null, Some(end)) => {
            errors.push(Error::invalid(&end_path, end, "may not be specified when `port` is not specified"));
        }
        (Value::String(name), end) => {
            if let Some(end) = end {
                errors.push(Error::invalid(&end_path, end, "may not be specified when `port` is non-numeric"));
            }
            let faults = names::port_name_faults(name);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name.as_str(), fault)));
        }
        (Value::Number(_), end) => {
            let number = port.as_i64().unwrap_or_default();
            port_number(number, &path, errors);
            if let Some(end) = end {
                if end < number {
                    errors.push(Error::invalid(&end_path, number, "must be greater than or equal to `port`"));
                }
                port_number(end, &end_path, errors);
            }
        }
        _ => {}
    }
}

fn port_number(number: i64, path: &Path, errors: &mut ErrorList) {
    errors.extend(names::port_number_faults(number).into_iter().map(|fault| Error::invalid(path, number, fault)));
}

fn policy_peer(peer: &Value, path: &Path, errors: &mut ErrorList) {
    let mut selectors = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if !at(peer, field).is_null() {
            selectors += 1;
            errors.extend(label_selector(at(peer, field), &path.child(field)));
        }
    }
    let block = at(peer, "ipBlock");
    if block.is_null() {
        if selectors == 0 {
            errors.push(Error::required(path, "must specify a peer"));
        }
        return;
    }
    ip_block(block, &path.child("ipBlock"), errors);
    if selectors > 0 {
        errors.push(Error::forbidden(path, "may not specify both ipBlock and another peer"));
    }
}

/// An address and how many of its bits count.
fn cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u32>().ok().filter(|n| *n <= most && bits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((address, bits))
}

/// Whether an address says more than the bits that count.
fn has_more_bits((address, bits): (IpAddr, u32)) -> bool {
    let (number, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128_u32),
    };
    number.trailing_zeros() < width.saturating_sub(bits)
}

fn contains((net, bits): (IpAddr, u32), address: IpAddr) -> bool {
    let (net, address, width) = match (net, address) {
        (IpAddr::V4(net), IpAddr::V4(address)) => (u128::from(net.to_bits()), u128::from(address.to_bits()), 32),
        (IpAddr::V6(net), IpAddr::V6(address)) => (net.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let rest = 128_u32.min(width).saturating_sub(bits);
    net.checked_shr(rest).unwrap_or(0) == address.checked_shr(rest).unwrap_or(0)
}

/// A range of addresses.
pub fn cidr_faults(range: &str, path: &Path, errors: &mut ErrorList) {
    match cidr(range) {
        None => errors.push(Error::invalid(path, range, BAD_CIDR)),
        Some(parsed) if has_more_bits(parsed) => errors.push(Error::invalid(path, range, MORE_BITS)),
        Some(_) => {}
    }
}

fn ip_block(block: &Value, path: &Path, errors: &mut ErrorList) {
    let net = text(block, "cidr");
    if net.is_empty() {
        errors.push(Error::required(&path.child("cidr"), ""));
        return;
    }
    cidr_faults(net, &path.child("cidr"), errors);
    let Some(net) = cidr(net) else { return };
    for (i, except) in items(block, "except").iter().enumerate() {
        let (path, except) = (path.child("except").index(i), except.as_str().unwrap_or_default());
        cidr_faults(except, &path, errors);
        if let Some((address, bits)) = cidr(except)
            && (!contains(net, address) || net.1 >= bits)
        {
            errors.push(Error::invalid(&path, except, "must be a strict subset of `cidr`"));
        }
    }
}

/// The endpoints of an EndpointSlice.
pub fn slice_endpoints(object: &Value, errors: &mut ErrorList) {
    const ADDRESSES_MAX: usize = 100;
    for (i, endpoint) in items(object, "endpoints").iter().enumerate() {
        let path = Path::new("endpoints").index(i);
        let (addresses, at_addresses) = (items(endpoint, "addresses"), path.child("addresses"));
        if addresses.is_empty() {
            errors.push(Error::required(&at_addresses, "must contain at least 1 address"));
        } else if addresses.len() > ADDRESSES_MAX {
            errors.push(Error::too_many(&at_addresses, addresses.len(), ADDRESSES_MAX));
        }
        for (j, address) in addresses.iter().enumerate() {
            let (address, path) = (address.as_str().unwrap_or_default(), at_addresses.index(j));
            slice_address(text(object, "addressType"), address, &at_addresses, &path, errors);
        }
        if let Some(node) = at(endpoint, "nodeName").as_str() {
            let faults = super::podspec::node_name_faults(node);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("nodeName"), node, fault)));
        }
        if let Some(host) = at(endpoint, "hostname").as_str() {
            let faults = names::label_faults(host, false);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("hostname"), host, fault)));
        }
        slice_hints(at(endpoint, "hints"), &path.child("hints"), errors);
    }
}

/// Of what zones and nodes an endpoint is to be used.
fn slice_hints(hints: &Value, path: &Path, errors: &mut ErrorList) {
    const HINTS_MAX: usize = 8;
    type Faults = fn(&str) -> Vec<String>;
    let kinds: [(&str, Faults); 2] =
        [("forZones", names::label_value_faults), ("forNodes", super::podspec::node_name_faults)];
    for (list, faults) in kinds {
        let (hints, path) = (items(hints, list), path.child(list));
        if hints.len() > HINTS_MAX {
            errors.push(Error::too_many(&path, hints.len(), HINTS_MAX));
            return;
        }
        let mut seen = BTreeSet::new();
        for (i, hint) in hints.iter().enumerate() {
            let (name, path) = (text(hint, "name"), path.index(i).child("name"));
            if !seen.insert(name) {
                errors.push(Error::duplicate(&path, name));
            }
            errors.extend(faults(name).into_iter().map(|fault| Error::invalid(&path, name, fault)));
        }
    }
}

/// The ports of an EndpointSlice.
pub fn slice_ports(object: &Value, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, port) in items(object, "ports").iter().enumerate() {
        let (path, name) = (Path::new("ports").index(i), text(port, "name"));
        if !name.is_empty() {
            let faults = names::label_faults(name, false);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("name"), name, fault)));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        protocol(port, &path, errors);
    }
}

/// One address of the type that its slice has.
fn slice_address(kind: &str, address: &str, list: &Path, path: &Path, errors: &mut ErrorList) {
    let before = errors.len();
    match kind {
        "IPv4" | "IPv6" => {
            super::podspec::ip(address, path, errors);
            let Some(parsed) = address.parse::<IpAddr>().ok().filter(|_| errors.len() == before) else { return };
            if parsed.is_ipv4() != (kind == "IPv4") {
                errors.push(Error::invalid(list, address, format!("must be an {kind} address")));
            }
            special(parsed, address, path, errors);
        }
        "FQDN" => {
            if address.is_empty() {
                errors.push(Error::required(path, ""));
            } else {
                let name = address.strip_suffix('.').unwrap_or(address);
                let faults = names::subdomain_faults(name, false);
                errors.extend(faults.into_iter().map(|fault| Error::invalid(path, address, fault)));
                if !name.contains('.') {
                    let why = "should be a domain with at least two segments separated by dots";
                    errors.push(Error::invalid(path, address, why));
                }
            }
        }
        _ => {}
    }
}

/// The protocol of a port, that of the application with it.
fn protocol(port: &Value, path: &Path, errors: &mut ErrorList) {
    let protocol = text(port, "protocol");
    if protocol.is_empty() {
        errors.push(Error::required(&path.child("protocol"), ""));
    } else if !PROTOCOLS.contains(&protocol) {
        errors.push(Error::not_supported(&path.child("protocol"), protocol, &PROTOCOLS));
    }
    if let Some(name) = at(port, "appProtocol").as_str() {
        let faults = names::qualified_name_faults(name);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("appProtocol"), name, fault)));
    }
}

/// Endpoints.
pub fn endpoints(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, subset) in items(object, "subsets").iter().enumerate() {
        let path = Path::new("subsets").index(i);
        if unset(at(subset, "addresses")) && unset(at(subset, "notReadyAddresses")) {
            errors.push(Error::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (j, address) in items(subset, field).iter().enumerate() {
                endpoint_address(address, &path.child(field).index(j), &mut errors);
            }
        }
        let ports = items(subset, "ports");
        for (j, port) in ports.iter().enumerate() {
            let (path, name) = (path.child("ports").index(j), text(port, "name"));
            if name.is_empty() && ports.len() > 1 {
                errors.push(Error::required(&path.child("name"), ""));
            } else if !name.is_empty() {
                let faults = names::label_faults(name, false);
                errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("name"), name, fault)));
            }
            port_number(int(port, "port").unwrap_or_default(), &path.child("port"), &mut errors);
            protocol(port, &path, &mut errors);
        }
    }
    errors
}

fn endpoint_address(address: &Value, path: &Path, errors: &mut ErrorList) {
    let (ip, at_ip) = (text(address, "ip"), path.child("ip"));
    let parsed = ip.parse::<IpAddr>();
    if parsed.is_err() {
        errors.push(Error::invalid(&at_ip, ip, BAD_IP));
    }
    for (field, faults) in [
        ("hostname", names::label_faults as fn(&str, bool) -> Vec<String>),
        ("nodeName", names::subdomain_faults as fn(&str, bool) -> Vec<String>),
    ] {
        let value = text(address, field);
        if !value.is_empty() {
            errors
                .extend(faults(value, false).into_iter().map(|fault| Error::invalid(&path.child(field), value, fault)));
        }
    }
    match parsed {
        Err(_) => errors.push(Error::invalid(&at_ip, ip, "must be a valid IP address")),
        Ok(parsed) => special(parsed, ip, &at_ip, errors),
    }
}

/// Addresses that are nobody's or everybody's.
fn special(parsed: IpAddr, written: &str, path: &Path, errors: &mut ErrorList) {
    let link_local = match parsed {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if parsed.is_unspecified() {
        errors.push(Error::invalid(path, written, format!("may not be unspecified ({parsed})")));
    } else if link_local {
        let why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        errors.push(Error::invalid(path, written, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_of_networks_are_smaller_than_they() {
        let block = |net: &str, except: &str| {
            let mut errors = ErrorList::new();
            ip_block(&json!({"cidr": net, "except": [except]}), &Path::new("b"), &mut errors);
            errors.len()
        };
        for (net, except, faults) in [
            ("10.0.0.0/8", "10.1.0.0/16", 0),
            ("10.0.0.0/8", "10.0.0.0/8", 1),
            ("10.0.0.0/8", "11.0.0.0/16", 1),
            ("0.0.0.0/0", "11.0.0.0/16", 0),
            ("2001:db8::/32", "2001:db8:1::/48", 0),
            ("2001:db8::/32", "10.0.0.0/9", 1),
            ("10.0.0.0/33", "10.0.0.0/9", 1),
            ("10.0.0.0/8", "TCP", 1),
            ("10.0.0.1/8", "10.1.0.0/16", 1),
            ("10.0.0.0/8", "10.1.0.1/16", 1),
            ("10.1.2.3/32", "10.1.2.3/32", 1),
        ] {
            assert_eq!(block(net, except), faults, "{net} without {except}");
        }
    }
}
