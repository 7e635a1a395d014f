//! What of an accepted Service does nothing (`pkg/api/service/warnings.go`).

use crate::kit::{at, items, text};
use serde_json::Value;

pub fn of(service: &Value) -> Vec<String> {
    let spec = at(service, "spec");
    let mut out = Vec::new();
    if text(spec, "type") != "ExternalName" && !text(spec, "externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    let outside = !items(spec, "externalIPs").is_empty();
    if outside && text(spec, "type") == "ExternalName" {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    } else if outside && text(spec, "clusterIP") != "None" {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    if text(spec, "clusterIP") == "None" {
        let unused = [
            (!text(spec, "loadBalancerIP").is_empty(), "loadBalancerIP"),
            (!items(spec, "externalIPs").is_empty(), "externalIPs"),
            (text(spec, "sessionAffinity") != "None", "SessionAffinity"),
        ];
        let ignored = |field: &str| format!("spec.{field} is ignored for headless services");
        out.extend(unused.iter().filter(|(set, _)| *set).map(|(_, field)| ignored(field)));
    }
    out
}
