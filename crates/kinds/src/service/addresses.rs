//! Addresses, families and ports that services are given: `pkg/registry/core/service/storage/alloc.go`. The cluster has IPv4 only.

use super::{has_nodes, needs_check_port, needs_node_ports};
use crate::kit::{at, child, int, items, items_mut, text, unset};
use crate::podspec;
use api::field::{Error, ErrorList, Path};
use resource::Context;
use resource::status::Status;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// First address of the services' range, 10.96.0.0/16; the first is the API server's own.
const RANGE: u32 = 0x0a60_0000;
const RANGE_BITS: u32 = 16;
const NODE_PORTS: std::ops::Range<u32> = 30_000..32_768;
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const DUPLICATE: &str = "duplicate nodePort";
const ALLOCATED: &str = "provided port is already allocated";
const NO_NODE_PORT: &str = "provided port is not in the valid range. The range of valid ports is 30000-32767";

/// The address of the Service `default/kubernetes`.
pub fn first_address() -> String {
    Ipv4Addr::from(RANGE + 1).to_string()
}

/// All numbers of a range, from one of them on that chance picks.
fn anywhere(cx: &Context<'_>, range: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
    let first = range.start.saturating_add(cx.world.below(range.end.saturating_sub(range.start)));
    (first..range.end).chain(range.start..first)
}

fn spec_path(field: &str) -> Path {
    Path::new("spec").child(field)
}

/// Fills in families, addresses and node ports, sparing those of other services; says what of those that were asked for cannot be had.
pub fn allocate(cx: &Context<'_>, service: &mut Value, old: Option<&Value>) -> ErrorList {
    let own = text(service, "metadata.uid").to_owned();
    // most services here are headless and need nothing: the others are looked at where something is to be allocated
    let others = || (cx.list)("", "services", "").into_iter().filter(|s| api::object::uid(s) != own);
    let spec = child(service, "spec");
    if items(spec, "clusterIPs").is_empty() && !text(spec, "clusterIP").is_empty() {
        spec["clusterIPs"] = json!([text(spec, "clusterIP")]);
    }
    if text(spec, "type") == "ExternalName" {
        return ErrorList::new();
    }
    // an address that is there is kept, or the change refused
    let had = old.is_some_and(|old| !text(old, "spec.clusterIP").is_empty() && !text(spec, "clusterIP").is_empty());
    let mut errors = families(spec, old.map(|old| at(old, "spec")));
    if errors.is_empty() && !had {
        errors = address(cx, spec, || others().map(|s| text(&s, "spec.clusterIP").to_owned()).collect());
    }
    if errors.is_empty() {
        let taken = || others().flat_map(|s| ports_of(&s)).collect();
        errors.extend(node_ports(cx, spec, old.map(|old| at(old, "spec")), taken).err());
    }
    errors
}

/// The ports that a service has on the nodes.
fn ports_of(service: &Value) -> Vec<i64> {
    let own = items(service, "spec.ports").iter().filter_map(|port| int(port, "nodePort"));
    own.chain(int(service, "spec.healthCheckNodePort")).collect()
}

/// What is wrong with the addresses and ports of a changed service, before anything else of it is looked at. One port of the nodes
/// for two of the service's upstream answers as a failure.
pub fn refused(cx: &Context<'_>, service: &Value, old: &Value) -> Result<(), Status> {
    let errors = allocate(cx, &mut service.clone(), Some(old));
    match errors.first() {
        Some(error) if error.detail.starts_with(DUPLICATE) => Err(Status::new(500, "", error.detail.clone())),
        Some(_) => Err(Status::invalid("", "Service", text(service, "metadata.name"), &errors)),
        None => Ok(()),
    }
}

/// What is wrong with a port for health checks that was asked for; upstream answers it as a failure.
pub fn check_port(cx: &Context<'_>, service: &mut Value) -> Result<(), Status> {
    let spec = child(service, "spec");
    if !needs_check_port(spec) {
        return Ok(());
    }
    let wanted = int(spec, "healthCheckNodePort").unwrap_or_default();
    if wanted == 0 || cx.dry_run {
        return Ok(());
    }
    let taken = (cx.list)("", "services", "").iter().any(|s| ports_of(s).contains(&wanted));
    let why = match u32::try_from(wanted).is_ok_and(|port| NODE_PORTS.contains(&port)) {
        false => NO_NODE_PORT,
        true if taken => ALLOCATED,
        true => return Ok(()),
    };
    let why = format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}");
    Err(Status::internal(why))
}

fn texts<'a>(spec: &'a Value, field: &str) -> Vec<&'a str> {
    items(spec, field).iter().map(|value| value.as_str().unwrap_or_default()).collect()
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Whether the fields about addresses and families go together (`ValidateServiceClusterIPsRelatedFields`).
pub fn related(spec: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (single, many) = (text(spec, "clusterIP"), texts(spec, "clusterIPs"));
    let path = spec_path("clusterIPs");
    let all = || items(spec, "clusterIPs").to_vec();
    match many.first() {
        None if !single.is_empty() => errors.push(Error::required(&path, "")),
        Some(first) if !single.is_empty() && *first != single => {
            errors.push(Error::invalid(&path, all(), "first value must match `clusterIP`"));
        }
        Some(_) if single.is_empty() => {
            errors.push(Error::invalid(&path, all(), "must be empty when `clusterIP` is not specified"));
        }
        _ => {}
    }
    let families = texts(spec, "ipFamilies");
    for (i, family) in families.iter().enumerate() {
        let place = spec_path("ipFamilies").index(i);
        if !FAMILIES.contains(family) {
            errors.push(Error::not_supported(&place, *family, &FAMILIES));
        }
        if families.iter().take(i).any(|other| other == family) {
            errors.push(Error::duplicate(&place, *family));
        }
    }
    if let Some(policy) = at(spec, "ipFamilyPolicy").as_str()
        && !POLICIES.contains(&policy)
    {
        errors.push(Error::not_supported(&spec_path("ipFamilyPolicy"), policy, &POLICIES));
    }
    let mut sound = true;
    for (i, address) in many.iter().enumerate() {
        let before = errors.len();
        if i == 0 && *address == "None" {
            if many.len() > 1 {
                errors.push(Error::invalid(&path, all(), "'None' must be the first and only value"));
            }
        } else {
            podspec::ip(address, &path.index(i), &mut errors);
        }
        sound &= errors.len() == before;
    }
    if many.len() > 2 {
        errors.push(Error::invalid(&path, all(), "may only hold up to 2 values"));
    }
    if !sound {
        return errors;
    }
    let parsed: Vec<IpAddr> = many.iter().filter_map(|address| address.parse().ok()).collect();
    if let [first, second] = parsed[..]
        && first.is_ipv4() == second.is_ipv4()
    {
        errors.push(Error::invalid(&path, all(), "may specify no more than one IP for each IP family"));
    }
    if errors.is_empty() {
        for (i, (address, wanted)) in parsed.iter().zip(&families).enumerate() {
            if family(*address) != *wanted {
                let detail = format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`");
                errors.push(Error::invalid(&path.index(i), many[i], detail));
            }
        }
    }
    errors
}

/// Fills in the families, as far as they are not said (`initIPFamilyFields`).
fn families(spec: &mut Value, old: Option<&Value>) -> ErrorList {
    let mut errors = related(spec);
    if !errors.is_empty() {
        return errors;
    }
    let policy = at(spec, "ipFamilyPolicy").as_str().map(str::to_owned);
    let path = spec_path("ipFamilyPolicy");
    if let Some(old) = old
        && text(old, "type") != "ExternalName"
        && items(old, "ipFamilies").len() == 2
    {
        let same = items(spec, "ipFamilies") == items(old, "ipFamilies");
        if policy.as_deref() == Some("SingleStack") && text(old, "ipFamilyPolicy") != "SingleStack" && same {
            // the second is given up
            spec["ipFamilies"] = json!([items(old, "ipFamilies")[0]]);
        } else if policy.as_deref() != Some("SingleStack") && items(spec, "ipFamilies").len() == 1 {
            let detail = "must be 'SingleStack' to release the secondary IP family";
            errors.push(Error::invalid(&path, policy.clone().unwrap_or_default(), detail));
        }
    }
    let headless = text(spec, "clusterIP") == "None";
    let selectorless = headless && at(spec, "selector").as_object().is_none_or(serde_json::Map::is_empty);
    if policy.as_deref() == Some("SingleStack") || (policy.is_none() && !selectorless) {
        let detail =
            |what: &str| format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
        if items(spec, "clusterIPs").len() == 2 {
            errors.push(Error::invalid(&path, "SingleStack", detail("cluster IPs")));
        }
        if items(spec, "ipFamilies").len() == 2 {
            errors.push(Error::invalid(&path, "SingleStack", detail("IP families")));
        }
    }
    let known = items(spec, "ipFamilies").len();
    let addresses: Vec<IpAddr> = texts(spec, "clusterIPs").iter().filter_map(|address| address.parse().ok()).collect();
    // written only once all holds: what is refused is looked at again, as it was sent
    let mut inferred = false;
    for (i, address) in addresses.iter().enumerate().skip(known) {
        if address.is_ipv4() {
            inferred = true;
        } else {
            let detail = format!("{} is not configured on this cluster", family(*address));
            let place = spec_path("clusterIPs").index(i);
            errors.push(Error::invalid(&place, items(spec, "clusterIPs").to_vec(), detail));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    if selectorless {
        // nobody needs an address for it: the cluster need not have the family
        if unset(at(spec, "ipFamilies")) || items(spec, "ipFamilies").is_empty() {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        let policy = policy.unwrap_or_else(|| "RequireDualStack".to_owned());
        if policy != "SingleStack" && items(spec, "ipFamilies").len() == 1 {
            let second = if items(spec, "ipFamilies")[0] == "IPv4" { "IPv6" } else { "IPv4" };
            spec["ipFamilies"] = json!([items(spec, "ipFamilies")[0], second]);
        }
        spec["ipFamilyPolicy"] = policy.into();
        return errors;
    }
    if policy.as_deref() == Some("RequireDualStack") {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(Error::invalid(&path, "RequireDualStack", detail));
    }
    for (i, family) in texts(spec, "ipFamilies").iter().enumerate() {
        if *family != "IPv4" {
            errors.push(Error::invalid(&spec_path("ipFamilies").index(i), *family, "not configured on this cluster"));
        }
    }
    if errors.is_empty() {
        if inferred || items(spec, "ipFamilies").is_empty() {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        spec["ipFamilyPolicy"] = policy.unwrap_or_else(|| "SingleStack".to_owned()).into();
    }
    errors
}

/// Fills in the address; `taken`: those of other services.
fn address(cx: &Context<'_>, spec: &mut Value, taken: impl Fn() -> BTreeSet<String>) -> ErrorList {
    let wanted = text(spec, "clusterIP").to_owned();
    if wanted == "None" {
        return ErrorList::new();
    }
    let hosts = 1..(1u32 << RANGE_BITS) - 1;
    if wanted.is_empty() {
        let taken = taken();
        let free = anywhere(cx, 2..hosts.end).map(|host| Ipv4Addr::from(RANGE + host).to_string());
        let address = free.into_iter().find(|address| !taken.contains(address)).unwrap_or_default();
        spec["clusterIP"] = address.clone().into();
        spec["clusterIPs"] = json!([address]);
        return ErrorList::new();
    }
    let number = wanted.parse::<Ipv4Addr>().map(u32::from).unwrap_or_default();
    let inside = number >> RANGE_BITS == RANGE >> RANGE_BITS && hosts.contains(&(number % (1 << RANGE_BITS)));
    let why = if !inside && cx.dry_run {
        format!("the provided IP ({wanted}) is not in the valid range. The range of valid IPs is 10.96.0.0/16")
    } else if !inside {
        "the provided network does not match the current range".to_owned()
    } else if !cx.dry_run && taken().contains(&wanted) {
        "provided IP is already allocated".to_owned()
    } else {
        return ErrorList::new();
    };
    let detail = format!("failed to allocate IP {wanted}: {why}");
    vec![Error::invalid(&spec_path("clusterIPs"), items(spec, "clusterIPs").to_vec(), detail)]
}

/// Fills in the ports on the nodes; `taken`: those of other services. A port is had by one service, whatever its protocols.
fn node_ports(
    cx: &Context<'_>,
    spec: &mut Value,
    old: Option<&Value>,
    taken: impl Fn() -> BTreeSet<i64>,
) -> Result<(), Error> {
    let checked = needs_check_port(spec) && int(spec, "healthCheckNodePort").unwrap_or_default() == 0;
    if !checked && !has_nodes(text(spec, "type")) {
        return Ok(());
    }
    let on_node = |port: &Value| int(port, "nodePort").unwrap_or_default();
    let others = taken();
    let asked: Vec<(i64, i64)> =
        items(spec, "ports").iter().map(|port| (int(port, "port").unwrap_or_default(), on_node(port))).collect();
    let mut used: BTreeSet<i64> = others.iter().copied().chain(asked.iter().map(|(_, number)| *number)).collect();
    let mut free = || {
        let number = anywhere(cx, NODE_PORTS).map(i64::from).find(|port| !used.contains(port))?;
        used.insert(number);
        Some(number)
    };
    let mut own = BTreeSet::new();
    let mut claim = |i: usize, number: i64| {
        let is_known = u32::try_from(number).is_ok_and(|port| NODE_PORTS.contains(&port));
        let why = match (is_known || cx.dry_run, others.contains(&number) || !own.insert(number)) {
            (false, _) => NO_NODE_PORT,
            (true, true) => ALLOCATED,
            (true, false) => return Ok(()),
        };
        Err(Error::invalid(&spec_path("ports").index(i).child("nodePort"), number, why))
    };
    let allocates = needs_node_ports(spec);
    if let Some(old) = old {
        let had: BTreeSet<i64> = items(old, "ports").iter().map(on_node).collect();
        let (mut claimed, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for (i, port) in items_mut(spec, "ports").enumerate() {
            let number = on_node(port);
            if number != 0 {
                if !had.contains(&number) && claimed.insert(number) {
                    claim(i, number)?;
                }
                let protocol = text(port, "protocol").to_owned();
                if !seen.insert((protocol.clone(), number)) {
                    let path = spec_path("ports").index(i).child("nodePort");
                    return Err(Error::invalid(&path, number, format!("{DUPLICATE}: {{{protocol} {number}}}")));
                }
            } else if allocates && let Some(number) = free() {
                port["nodePort"] = number.into();
            }
        }
    } else {
        // what is one port with two protocols is one port on the nodes
        let mut given: BTreeMap<i64, i64> = BTreeMap::new();
        for (i, port) in items_mut(spec, "ports").enumerate() {
            let (number, inner) = (on_node(port), int(port, "port").unwrap_or_default());
            if number == 0 && !allocates {
                continue;
            }
            if let Some(first) = given.get(&inner).copied() {
                if number == 0 {
                    port["nodePort"] = first.into();
                } else if number != first {
                    claim(i, number)?;
                }
                continue;
            }
            let wanted = asked.iter().find(|(of, number)| *of == inner && *number != 0).map(|(_, number)| *number);
            if let Some(wanted) = wanted {
                claim(i, wanted)?;
            }
            if let Some(number) = wanted.or_else(&mut free) {
                port["nodePort"] = number.into();
                given.insert(inner, number);
            }
        }
    }
    if checked && let Some(number) = free() {
        spec["healthCheckNodePort"] = number.into();
    }
    Ok(())
}
