//! Services: addresses and ports they are given, and their rules. Source: `pkg/registry/core/service`,
//! `pkg/apis/core/v1/defaults.go` and `ValidateService` of Kubernetes 1.36. The cluster has IPv4 only.

use crate::kit::{self, age, at, child, default, int, items, items_mut, keep, labels, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

mod addresses;
mod faults;
mod warnings;

pub use addresses::first_address;

/// Three hours, in seconds.
const AFFINITY_SECS: i64 = 10_800;

/// The kind `Service`.
pub struct Services;

fn has_nodes(kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
}

/// Whether its ports are given numbers on the nodes.
fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => at(spec, "allocateLoadBalancerNodePorts") != &Value::Bool(false),
        _ => false,
    }
}

/// The numbers that its ports have on the nodes.
fn node_ports_of(spec: &Value) -> BTreeSet<i64> {
    items(spec, "ports").iter().filter_map(|port| int(port, "nodePort").filter(|number| *number != 0)).collect()
}

/// Whether load balancers ask the nodes at a port of its own.
fn needs_check_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_reached_from_outside(spec: &Value) -> bool {
    has_nodes(text(spec, "type")) || (text(spec, "type") == "ClusterIP" && !items(spec, "externalIPs").is_empty())
}

/// Takes what another type of service has no use for, unless it was changed in the same breath.
fn give_back(spec: &mut Value, old: &Value) {
    let named = |spec: &Value| text(spec, "type") == "ExternalName";
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let ended = |before: bool, now: bool| before && !now;
    let mut unused: Vec<&str> = Vec::new();
    if ended(!named(old), !named(spec)) {
        unused.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if ended(needs_check_port(old), needs_check_port(spec)) {
        unused.push("healthCheckNodePort");
    }
    if ended(balanced(old), balanced(spec)) {
        unused.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if ended(is_reached_from_outside(old), is_reached_from_outside(spec)) {
        unused.push("externalTrafficPolicy");
    }
    for field in unused {
        if at(spec, field) == at(old, field) {
            kit::map(spec).remove(field);
        }
    }
    let kinds = (has_nodes(text(old, "type")), has_nodes(text(spec, "type")));
    if ended(kinds.0, kinds.1) && node_ports_of(spec).is_subset(&node_ports_of(old)) {
        for port in items_mut(spec, "ports") {
            kit::map(port).remove("nodePort");
        }
    }
}

/// What only names something outside has no traffic inside. A policy that is none is refused.
fn no_policy_inside(service: &mut Value) {
    let is_policy = matches!(text(service, "spec.internalTrafficPolicy"), "Cluster" | "Local");
    if text(service, "spec.type") == "ExternalName" && is_policy {
        kit::map(child(service, "spec")).remove("internalTrafficPolicy");
    }
}

impl Strategy for Services {
    fn facts(&self) -> Facts {
        Facts {
            create_on_update: true,
            grows_by: Some(""),
            has_generation: false,
            delete_returns_object: true,
            name_faults: names::label_faults,
            ..Facts::default()
        }
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "sessionAffinity", "None");
        default(spec, "type", "ClusterIP");
        if text(spec, "sessionAffinity") == "ClientIP" {
            default(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", AFFINITY_SECS);
        } else if text(spec, "sessionAffinity") == "None" {
            kit::map(spec).remove("sessionAffinityConfig");
        }
        let kind = text(spec, "type").to_owned();
        if kind != "ExternalName" {
            default(spec, "internalTrafficPolicy", "Cluster");
        }
        if has_nodes(&kind) || (kind == "ClusterIP" && !items(spec, "externalIPs").is_empty()) {
            default(spec, "externalTrafficPolicy", "Cluster");
        }
        let balanced = kind == "LoadBalancer";
        if balanced {
            default(spec, "allocateLoadBalancerNodePorts", true);
        }
        for port in items_mut(spec, "ports") {
            default(port, "protocol", "TCP");
            let target = at(port, "targetPort");
            if target.is_null() || target == &json!(0) || target == &json!("") {
                port["targetPort"] = at(port, "port").clone();
            }
        }
        if let Some(status) = kit::child_if(object, "status") {
            for ingress in items_mut(child(status, "loadBalancer"), "ingress") {
                if balanced && !text(ingress, "ip").is_empty() && at(ingress, "ipMode").is_null() {
                    ingress["ipMode"] = "VIP".into();
                }
            }
        } else {
            object["status"] = json!({"loadBalancer": {}});
        }
    }

    fn admit_create(&self, cx: &Context<'_>, new: &mut Value) -> Result<(), Status> {
        let errors = addresses::allocate(cx, new, None);
        if !errors.is_empty() {
            return Err(Status::invalid("", "Service", text(new, "metadata.name"), &errors));
        }
        addresses::check_port(cx, new)
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({"loadBalancer": {}});
        no_policy_inside(new);
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        faults::of(new)
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::of(new)
    }

    fn prepare_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        let (kind, before) = (text(new, "spec.type").to_owned(), text(old, "spec.type"));
        let spec = child(new, "spec");
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
                keep(spec, old_spec, "clusterIP");
            } else if at(spec, "clusterIP") != at(old_spec, "clusterIP")
                && items(spec, "clusterIPs") == items(old_spec, "clusterIPs")
            {
                // an old client knows one address
                spec["clusterIPs"] = json!([text(spec, "clusterIP")]);
            }
            // the families follow from the policy and the addresses anew
            if unset(at(spec, "ipFamilyPolicy")) {
                keep(spec, old_spec, "ipFamilyPolicy");
            }
            if needs_node_ports(spec) && needs_node_ports(old_spec) {
                let known = &node_ports_of(spec) & &node_ports_of(old_spec);
                for port in items_mut(spec, "ports") {
                    // by name; of several without one the last counts
                    let same = items(old_spec, "ports").iter().rfind(|p| text(p, "name") == text(port, "name"));
                    if int(port, "nodePort").unwrap_or_default() == 0
                        && let Some(number) = same.and_then(|p| int(p, "nodePort")).filter(|n| !known.contains(n))
                    {
                        port["nodePort"] = number.into();
                    }
                }
            }
        }
        if needs_check_port(at(new, "spec"))
            && needs_check_port(at(old, "spec"))
            && int(new, "spec.healthCheckNodePort").unwrap_or_default() == 0
        {
            keep(child(new, "spec"), at(old, "spec"), "healthCheckNodePort");
        }
        give_back(child(new, "spec"), at(old, "spec"));
        no_policy_inside(new);
        // what is wrong there is said when the update is admitted
        let _ = addresses::allocate(cx, new, Some(old));
    }

    fn admit_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), Status> {
        addresses::refused(cx, new, old)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let kinds = [text(new, "spec.type"), text(old, "spec.type")];
        let (ips, before) = (items(new, "spec.clusterIPs"), items(old, "spec.clusterIPs"));
        let sound = |ip: &Value| ip.as_str().is_some_and(|ip| ip == "None" || ip.parse::<std::net::IpAddr>().is_ok());
        let changed = ips.first() != before.first() && ips.first().is_none_or(sound);
        if !kinds.contains(&"ExternalName") && !before.is_empty() && changed {
            let path = Path::new("spec").child("clusterIPs").index(0);
            errors.push(Error::invalid(&path, ips.to_vec(), "may not change once set"));
        }
        errors.extend(faults::class(new, Some(old)));
        errors.extend(faults::of(new));
        let spec = [at(new, "spec"), at(old, "spec")];
        if spec.iter().all(|spec| needs_check_port(spec)) {
            let [port, before] = spec.map(|spec| int(spec, "healthCheckNodePort").unwrap_or_default());
            if port != before {
                let path = Path::new("spec").child("healthCheckNodePort");
                errors.push(Error::forbidden(&path, "field is immutable"));
            }
        }
        errors
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let path = Path::new("status").child("loadBalancer").child("ingress");
        if text(new, "spec.type") != "LoadBalancer" && !items(new, "status.loadBalancer.ingress").is_empty() {
            return vec![Error::forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'")];
        }
        crate::ingress::balanced(items(new, "status.loadBalancer.ingress"), true)
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
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
