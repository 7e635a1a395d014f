//! Services: addresses and ports they are given, and their rules. Source: `pkg/registry/core/service`,
//! `pkg/apis/core/v1/defaults.go` and `ValidateService` of Kubernetes 1.36. The cluster has IPv4 only.

use super::kit::{age, at, child, default, int, is_true, items, items_mut, keep, labels, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// First address of the services' range, 10.96.0.0/16; the first is the API server's own.
const RANGE: u32 = 0x0a60_0000;
const RANGE_BITS: u32 = 16;
const NODE_PORTS: std::ops::Range<u32> = 30_000..32_768;
/// Three hours, in seconds.
const AFFINITY_SECS: i64 = 10_800;

/// The kind `Service`.
pub struct Services;

fn has_nodes(kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
}

/// The address of the Service `default/kubernetes`.
pub fn first_address() -> String {
    Ipv4Addr::from(RANGE + 1).to_string()
}

/// All numbers of a range, from one of them on that chance picks.
fn anywhere(cx: &Context<'_>, range: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
    let first = range.start.saturating_add(cx.world.below(range.end.saturating_sub(range.start)));
    (first..range.end).chain(range.start..first)
}

/// Fills in addresses and node ports, sparing those of other services.
fn allocate(cx: &Context<'_>, service: &mut Value) {
    let kind = text(service, "spec.type").to_owned();
    if kind == "ExternalName" {
        return;
    }
    let own = text(service, "metadata.uid").to_owned();
    // most services here are headless and need nothing: the others are looked at where something is to be allocated
    let others = || (cx.list)("", "services", "").into_iter().filter(|s| api::object::uid(s) != own);
    let spec = child(service, "spec");
    let headless = text(spec, "clusterIP") == "None" || items(spec, "clusterIPs").iter().any(|ip| ip == "None");
    if headless {
        spec["clusterIP"] = "None".into();
        spec["clusterIPs"] = json!(["None"]);
    } else {
        let mut ip = text(spec, "clusterIP").to_owned();
        if ip.is_empty() {
            ip = items(spec, "clusterIPs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
        }
        if ip.is_empty() {
            let taken: BTreeSet<String> = others().map(|s| text(&s, "spec.clusterIP").to_owned()).collect();
            let free = anywhere(cx, 2..(1u32 << RANGE_BITS) - 1)
                .map(|host| Ipv4Addr::from(RANGE + host).to_string())
                .find(|ip| !taken.contains(ip));
            ip = free.unwrap_or_default();
        }
        spec["clusterIP"] = ip.clone().into();
        if items(spec, "clusterIPs").is_empty() {
            spec["clusterIPs"] = json!([ip]);
        }
    }
    let selectorless = headless && unset(at(spec, "selector"));
    if selectorless && unset(at(spec, "ipFamilyPolicy")) {
        default(spec, "ipFamilyPolicy", "RequireDualStack");
        if unset(at(spec, "ipFamilies")) {
            spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
        }
    }
    default(spec, "ipFamilyPolicy", "SingleStack");
    if unset(at(spec, "ipFamilies")) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    let without_ports = kind == "LoadBalancer" && at(spec, "allocateLoadBalancerNodePorts") == &Value::Bool(false);
    if has_nodes(&kind) && !without_ports {
        let mut taken: BTreeSet<i64> = others()
            .flat_map(|s| items(&s, "spec.ports").iter().filter_map(|p| int(p, "nodePort")).collect::<Vec<_>>())
            .collect();
        taken.extend(items(spec, "ports").iter().filter_map(|p| int(p, "nodePort")));
        for port in items_mut(spec, "ports") {
            if int(port, "nodePort").unwrap_or_default() == 0 {
                let free = anywhere(cx, NODE_PORTS).map(i64::from).find(|p| !taken.contains(p));
                if let Some(number) = free {
                    taken.insert(number);
                    port["nodePort"] = number.into();
                }
            }
        }
    }
}

impl Strategy for Services {
    fn create_on_update(&self) -> bool {
        true
    }

    fn may_grow(&self, subresource: &str) -> bool {
        subresource.is_empty()
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "sessionAffinity", "None");
        default(spec, "type", "ClusterIP");
        if text(spec, "sessionAffinity") == "ClientIP" {
            default(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", AFFINITY_SECS);
        } else if text(spec, "sessionAffinity") == "None" {
            super::kit::map(spec).remove("sessionAffinityConfig");
        }
        let kind = text(spec, "type").to_owned();
        if kind != "ExternalName" {
            default(spec, "internalTrafficPolicy", "Cluster");
        }
        if has_nodes(&kind) || (kind == "ClusterIP" && !items(spec, "externalIPs").is_empty()) {
            default(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            default(spec, "allocateLoadBalancerNodePorts", true);
        }
        for port in items_mut(spec, "ports") {
            default(port, "protocol", "TCP");
            let target = at(port, "targetPort");
            if target.is_null() || target == &json!(0) || target == &json!("") {
                port["targetPort"] = at(port, "port").clone();
            }
        }
        if let Some(status) = super::kit::child_if(object, "status") {
            child(status, "loadBalancer");
        } else {
            object["status"] = json!({"loadBalancer": {}});
        }
    }

    fn admit_create(&self, cx: &Context<'_>, new: &mut Value) -> Result<(), Status> {
        allocate(cx, new);
        Ok(())
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({"loadBalancer": {}});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        faults(new)
    }

    fn prepare_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        let (kind, before) = (text(new, "spec.type").to_owned(), text(old, "spec.type"));
        let spec = child(new, "spec");
        if kind == "ExternalName" && before != "ExternalName" {
            // What it had it gives back, unless it was changed in the same breath.
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                if at(spec, field) == at(old, &format!("spec.{field}")) {
                    super::kit::map(spec).remove(field);
                }
            }
        }
        if kind != "ExternalName" && before != "ExternalName" {
            let old_spec = at(old, "spec");
            let (single, many) = (text(spec, "clusterIP").is_empty(), items(spec, "clusterIPs").is_empty());
            if single && many {
                keep(spec, old_spec, "clusterIP");
                keep(spec, old_spec, "clusterIPs");
            } else if many {
                let ip = text(spec, "clusterIP").to_owned();
                spec["clusterIPs"] = json!([ip]);
            } else if single {
                spec["clusterIP"] = items(spec, "clusterIPs")[0].clone();
            } else if at(spec, "clusterIP") != at(old_spec, "clusterIP")
                && items(spec, "clusterIPs") == items(old_spec, "clusterIPs")
            {
                // an old client knows one address
                spec["clusterIPs"] = json!([text(spec, "clusterIP")]);
            }
            for field in ["ipFamilies", "ipFamilyPolicy"] {
                if unset(at(spec, field)) {
                    keep(spec, old_spec, field);
                }
            }
            if has_nodes(&kind) && has_nodes(before) {
                for port in items_mut(spec, "ports") {
                    let same = items(old_spec, "ports")
                        .iter()
                        .find(|p| int(p, "port") == int(port, "port") && text(p, "protocol") == text(port, "protocol"));
                    if int(port, "nodePort").unwrap_or_default() == 0
                        && let Some(number) = same.and_then(|p| int(p, "nodePort"))
                    {
                        port["nodePort"] = number.into();
                    }
                }
            }
            if !has_nodes(&kind) && has_nodes(before) {
                for port in items_mut(spec, "ports") {
                    super::kit::map(port).remove("nodePort");
                }
                super::kit::map(spec).remove("externalTrafficPolicy");
            }
        }
        allocate(cx, new);
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = faults(new);
        let kinds = [text(new, "spec.type"), text(old, "spec.type")];
        let (ips, before) = (items(new, "spec.clusterIPs"), items(old, "spec.clusterIPs"));
        let sound = |ip: &Value| ip.as_str().is_some_and(|ip| ip == "None" || ip.parse::<std::net::IpAddr>().is_ok());
        let changed = ips.first() != before.first() && ips.first().is_none_or(sound);
        if !kinds.contains(&"ExternalName") && !before.is_empty() && changed {
            let path = Path::new("spec").child("clusterIPs").index(0);
            errors.push(Error::invalid(&path, ips.to_vec(), "may not change once set"));
        }
        errors
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let path = Path::new("status").child("loadBalancer").child("ingress");
        if text(new, "spec.type") != "LoadBalancer" && !items(new, "status.loadBalancer.ingress").is_empty() {
            return vec![Error::forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'")];
        }
        super::ingress::balanced(items(new, "status.loadBalancer.ingress"), true)
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn delete_returns_object(&self) -> bool {
        true
    }

    fn name_faults(&self, name: &str, prefix: bool) -> Vec<String> {
        names::label_faults(name, prefix)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![
            ("spec.clusterIP", text(object, "spec.clusterIP").to_owned()),
            ("spec.type", text(object, "spec.type").to_owned()),
        ]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = at(object, "spec");
        let join = |list: &[Value]| list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        let outside = join(items(spec, "externalIPs"));
        let balancers: Vec<&str> = items(object, "status.loadBalancer.ingress")
            .iter()
            .map(|i| match text(i, "ip") {
                "" => text(i, "hostname"),
                ip => ip,
            })
            .collect();
        let external = match text(spec, "type") {
            "ExternalName" => text(spec, "externalName").to_owned(),
            "LoadBalancer" => match (balancers.is_empty(), outside.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => outside,
                (false, true) => balancers.join(","),
                (false, false) => format!("{},{outside}", balancers.join(",")),
            },
            _ if outside.is_empty() => "<none>".to_owned(),
            _ => outside,
        };
        let ports: Vec<String> = items(spec, "ports")
            .iter()
            .map(|port| {
                let (number, protocol) = (int(port, "port").unwrap_or_default(), text(port, "protocol"));
                match int(port, "nodePort").unwrap_or_default() {
                    0 => format!("{number}/{protocol}"),
                    node => format!("{number}:{node}/{protocol}"),
                }
            })
            .collect();
        let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
        let ip = items(spec, "clusterIPs").first().and_then(Value::as_str).unwrap_or("<none>");
        vec![
            json!(text(object, "metadata.name")),
            json!(text(spec, "type")),
            json!(ip),
            json!(external),
            json!(ports),
            age(object, now),
            json!(labels(at(spec, "selector"))),
        ]
    }
}

fn faults(service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(service, "spec");
    let kind = text(spec, "type");
    let ports = items(spec, "ports");
    let headless = text(spec, "clusterIP") == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(Error::required(&path.child("ports"), ""));
    }
    match kind {
        "ExternalName" => {
            if !items(spec, "clusterIPs").is_empty() {
                let detail = "may not be set for ExternalName services";
                errors.push(Error::forbidden(&path.child("clusterIPs"), detail));
            }
            let name = text(spec, "externalName");
            if name.is_empty() {
                errors.push(Error::required(&path.child("externalName"), ""));
            } else {
                let name = name.strip_suffix('.').unwrap_or(name);
                for fault in names::subdomain_faults(name, false) {
                    errors.push(Error::invalid(&path.child("externalName"), name, fault));
                }
            }
        }
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(Error::invalid(&path.child("clusterIPs").index(0), "None", detail));
        }
        kind if !TYPES.contains(&kind) => errors.push(Error::not_supported(&path.child("type"), kind, &TYPES)),
        _ => {}
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut pairs: BTreeSet<(i64, &str)> = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.child("ports").index(i);
        let (name, protocol) = (text(port, "name"), text(port, "protocol"));
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(Error::required(&path.child("name"), ""));
            }
        } else {
            for fault in names::label_faults(name, false) {
                errors.push(Error::invalid(&path.child("name"), name, fault));
            }
            if seen.contains(&name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
            seen.insert(name);
        }
        let number = int(port, "port").unwrap_or_default();
        for fault in names::port_number_faults(number) {
            errors.push(Error::invalid(&path.child("port"), number, fault));
        }
        if protocol.is_empty() {
            errors.push(Error::required(&path.child("protocol"), ""));
        } else if !["SCTP", "TCP", "UDP"].contains(&protocol) {
            errors.push(Error::not_supported(&path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
        if let Some(name) = at(port, "appProtocol").as_str() {
            let faults = names::qualified_name_faults(name);
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("appProtocol"), name, fault)));
        }
        match at(port, "targetPort") {
            Value::String(target) => {
                for fault in names::port_name_faults(target) {
                    errors.push(Error::invalid(&path.child("targetPort"), target.as_str(), fault));
                }
            }
            target => {
                let target = target.as_i64().unwrap_or_default();
                for fault in names::port_number_faults(target) {
                    errors.push(Error::invalid(&path.child("targetPort"), target, fault));
                }
            }
        }
        if !has_nodes(kind) && int(port, "nodePort").unwrap_or_default() != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(Error::forbidden(&path.child("nodePort"), detail));
        }
        if pairs.contains(&(number, protocol)) {
            errors.push(Error::duplicate(&path, json!({"protocol": protocol, "port": number})));
        }
        pairs.insert((number, protocol));
    }
    for (key, value) in at(spec, "selector").as_object().into_iter().flatten() {
        let path = path.child("selector");
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::qualified_name_faults(key).into_iter().map(|f| Error::invalid(&path, key.as_str(), f)));
        errors.extend(names::label_value_faults(value).into_iter().map(|f| Error::invalid(&path, value, f)));
    }
    let affinity = text(spec, "sessionAffinity");
    if !["ClientIP", "None"].contains(&affinity) {
        errors.push(Error::not_supported(&path.child("sessionAffinity"), affinity, &["ClientIP", "None"]));
    }
    for (i, ip) in items(spec, "clusterIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if ip != "None" && ip.parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(Error::invalid(&path.child("clusterIPs").index(i), ip, detail));
        }
    }
    let policy = text(spec, "externalTrafficPolicy");
    if !policy.is_empty() {
        let place = path.child("externalTrafficPolicy");
        if !has_nodes(kind) && (kind != "ClusterIP" || items(spec, "externalIPs").is_empty()) {
            errors.push(Error::invalid(&place, policy, "may only be set for externally-accessible services"));
        } else if !["Cluster", "Local"].contains(&policy) {
            errors.push(Error::not_supported(&place, policy, &["Cluster", "Local"]));
        }
    }
    if is_true(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.push(Error::forbidden(&path.child("allocateLoadBalancerNodePorts"), detail));
    }
    errors
}
