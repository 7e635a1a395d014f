//! Discovery: lists the served kinds, in the aggregated form and the old one.

use crate::negotiate::{Clause, clauses};
use crate::registry::{Catalog, Custom, Served};
use crate::wire;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The members of `APIResourceList`, `APIGroup`, `APIGroupList` and `APIVersions`, in Go's order.
const LISTS: [&str; 19] = [
    "name",
    "singularName",
    "namespaced",
    "groupVersion",
    "group",
    "version",
    "kind",
    "apiVersion",
    "versions",
    "preferredVersion",
    "groups",
    "clientCIDR",
    "serverAddress",
    "serverAddressByClientCIDRs",
    "resources",
    "verbs",
    "shortNames",
    "categories",
    "storageVersionHash",
];

/// The members of `APIGroupDiscoveryList`, in Go's order.
const AGGREGATED: [&str; 19] = [
    "group",
    "version",
    "kind",
    "apiVersion",
    "metadata",
    "name",
    "items",
    "versions",
    "resources",
    "freshness",
    "resource",
    "subresource",
    "responseKind",
    "scope",
    "singularResource",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
];

/// A document in the aggregated form, in compact JSON.
pub(crate) fn aggregated_text(document: &Value) -> Vec<u8> {
    wire::in_order(document, &AGGREGATED)
}

/// A document in the old form, in compact JSON.
pub(crate) fn text(document: &Value) -> Vec<u8> {
    let Some(mut rest) = document.as_object().cloned() else { return wire::in_order(document, &LISTS) };
    // kind and version are first in all of them, as what Go embeds
    let mut out = b"{".to_vec();
    for name in ["kind", "apiVersion"] {
        if let Some(value) = rest.remove(name) {
            out.extend(format!("\"{name}\":{value},").bytes());
        }
    }
    out.extend_from_slice(wire::in_order(&Value::Object(rest), &LISTS).get(1..).unwrap_or_default());
    out
}

/// The version of the aggregated form that a client asks for; `None`: the old form.
pub(crate) fn aggregated(accept: Option<&str>) -> Option<&'static str> {
    let wanted = |clause: &Clause| {
        let aggregated = clause.parameter("g") == Some("apidiscovery.k8s.io")
            && clause.parameter("as") == Some("APIGroupDiscoveryList");
        match clause.parameter("v") {
            Some("v2") if aggregated => Some(Some("v2")),
            _ if clause.media == "application/json" && clause.parameter("as").is_none() => Some(None),
            _ => None,
        }
    };
    clauses(accept?).iter().find_map(wanted)?
}

/// Built-in kinds whose hash is of the version v1beta1: definitions kept that in which they were first stored, and mutating policies
/// are stored so that the minor version before this one can read them.
const STORED_AS_V1BETA1: [&str; 3] =
    ["customresourcedefinitions", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];

/// `None`: the version in which a custom kind is stored is not served, and its hash is not told.
fn hash(served: &Served) -> Option<String> {
    let resource = &served.resource;
    let version = match &served.custom {
        Some(Custom { serves_storage_version: false, .. }) => return None,
        Some(Custom { storage_version, .. }) => storage_version,
        None => &resource.version,
    };
    let is_older = served.custom.is_none() && STORED_AS_V1BETA1.contains(&resource.plural.as_str());
    let version = if is_older { "v1beta1" } else { version.as_str() };
    // Kinds that share their storage share its hash.
    let group = served.storage_group();
    let digest = Sha256::digest(format!("{group}/{version}/{}", resource.kind).as_bytes());
    Some(STANDARD.encode(&digest[..8]))
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// `APIResourceList` of a group and version, `None` where there is none.
pub(crate) fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut out: Vec<Value> = Vec::new();
    for served in catalog.of(group, version) {
        let r = &served.resource;
        let mut entry = Map::new();
        entry.insert("name".to_owned(), r.plural.clone().into());
        entry.insert("singularName".to_owned(), r.singular.clone().into());
        entry.insert("namespaced".to_owned(), r.namespaced.into());
        entry.insert("kind".to_owned(), r.kind.clone().into());
        entry.insert("verbs".to_owned(), json!(r.verbs));
        if !r.short_names.is_empty() {
            entry.insert("shortNames".to_owned(), json!(r.short_names));
        }
        if !r.categories.is_empty() {
            entry.insert("categories".to_owned(), json!(r.categories));
        }
        if let Some(hash) = hash(served).filter(|_| r.verbs.contains(&"get")) {
            entry.insert("storageVersionHash".to_owned(), hash.into());
        }
        if !r.verbs.is_empty() {
            out.push(entry.into());
        }
        let mut subresources: Vec<_> = r.subresources.iter().collect();
        if served.custom.is_none() {
            subresources.sort_by_key(|s| s.name);
        }
        for sub in subresources {
            let mut entry = json!({
                "name": format!("{}/{}", r.plural, sub.name),
                "singularName": "",
                "namespaced": r.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if sub.group != r.group || sub.version != r.version {
                entry["group"] = sub.group.clone().into();
                entry["version"] = sub.version.clone().into();
            }
            out.push(entry);
        }
    }
    if out.is_empty() {
        return None;
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version(group, version), "resources": out});
    // upstream's oldest list goes without
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// `APIGroup`, `None` where there is none.
pub(crate) fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let versions: Vec<Value> =
        catalog.versions(name).iter().map(|v| json!({"groupVersion": group_version(name, v), "version": v})).collect();
    let preferred = versions.first()?.clone();
    Some(
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": preferred}),
    )
}

/// `APIGroupList`: all but core.
pub(crate) fn groups(catalog: &Catalog) -> Value {
    let list: Vec<Value> = catalog
        .groups
        .iter()
        .filter(|name| !name.is_empty())
        .filter_map(|name| group(catalog, name))
        .map(|mut group| {
            if let Some(map) = group.as_object_mut() {
                map.remove("kind");
                map.remove("apiVersion");
            }
            group
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

/// `APIVersions` of the core group.
pub(crate) fn legacy(host: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    })
}

/// `APIGroupDiscoveryList` of core alone (`core`) or of all others.
pub(crate) fn aggregate(catalog: &Catalog, core: bool, version: &str) -> Value {
    let items: Vec<Value> = catalog
        .groups
        .iter()
        .filter(|name| name.is_empty() == core)
        .map(|name| {
            let versions: Vec<Value> = catalog
                .versions(name)
                .iter()
                .map(|v| {
                    let resources: Vec<Value> = catalog.of(name, v).map(|s| aggregate_resource(s)).collect();
                    json!({"version": v, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut meta = json!({});
            if !name.is_empty() {
                meta["name"] = name.clone().into();
            }
            json!({"metadata": meta, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregate_resource(served: &Served) -> Value {
    let r = &served.resource;
    // Built-in kinds of the group and version itself go without them, as upstream.
    let kind = |group: &str, version: &str, kind: &str| {
        if served.custom.is_none() && group == r.group && version == r.version {
            json!({"group": "", "version": "", "kind": kind})
        } else {
            json!({"group": group, "version": version, "kind": kind})
        }
    };
    let mut out = json!({
        "resource": r.plural,
        "responseKind": kind(&r.group, &r.version, &r.kind),
        "scope": if r.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": r.singular,
        "verbs": r.verbs,
    });
    if !r.short_names.is_empty() {
        out["shortNames"] = json!(r.short_names);
    }
    if !r.categories.is_empty() {
        out["categories"] = json!(r.categories);
    }
    let mut subresources: Vec<_> = r.subresources.iter().collect();
    if served.custom.is_none() {
        subresources.sort_by_key(|s| s.name);
    }
    let subresources: Vec<Value> = subresources
        .iter()
        .map(|s| {
            json!({
                "subresource": s.name,
                "responseKind": kind(&s.group, &s.version, &s.kind),
                "verbs": s.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        out["subresources"] = subresources.into();
    }
    out
}
