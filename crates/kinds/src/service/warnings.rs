//! What of an accepted Service does nothing, or not for much longer (`pkg/api/service/warnings.go`), in the order in which it is told.

use crate::kit::{at, items, text};
use crate::pod::not_canonical;
use serde_json::Value;

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";

pub fn of(service: &Value) -> Vec<String> {
    let spec = at(service, "spec");
    let (kind, address) = (text(spec, "type"), text(spec, "clusterIP"));
    let mut out = Vec::new();
    if at(service, "metadata.annotations").get(HINTS).is_some() {
        out.push(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
    }
    let spelt = |field: &str| -> Vec<String> {
        let addresses = items(spec, field).iter().map(|address| address.as_str().unwrap_or_default()).enumerate();
        addresses.filter_map(|(i, one)| Some(format!("spec.{field}[{i}]: {}", not_canonical(one)?))).collect()
    };
    if !address.is_empty() && address != "None" {
        out.extend(spelt("clusterIPs"));
    }
    let outside = !items(spec, "externalIPs").is_empty();
    if address == "None" {
        let unused = [
            (!text(spec, "loadBalancerIP").is_empty(), "loadBalancerIP"),
            (outside, "externalIPs"),
            (text(spec, "sessionAffinity") != "None", "SessionAffinity"),
        ];
        let ignored = |field: &str| format!("spec.{field} is ignored for headless services");
        out.extend(unused.iter().filter(|(set, _)| *set).map(|(_, field)| ignored(field)));
    }
    out.extend(spelt("externalIPs"));
    if outside && address != "None" && kind != "ExternalName" {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    out.extend(not_canonical(text(spec, "loadBalancerIP")).map(|why| format!("spec.loadBalancerIP: {why}")));
    if outside && kind == "ExternalName" {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    out
}
