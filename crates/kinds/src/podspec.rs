//! The spec of a pod, wherever it stands (pods, pod templates, jobs): defaults, and validation in its modules.
//!
//! Source: `pkg/apis/core/v1/defaults.go`, `conversion.go` and `pkg/apis/core/validation` of Kubernetes 1.36.

mod containers;
mod environment;
mod os;
mod probes;
mod resources;
mod scheduling;
mod validate;
mod volumes;

pub(crate) use scheduling::{node_selector, tolerations};
pub(crate) use validate::{ip, labels};
pub(crate) use volumes::{local_path, volume_type};

pub use containers::trimmed_images;
pub use resources::{refuses_empty, resource_name, resource_requirements};
pub use scheduling::label_selector;
pub use validate::{app_armor, node_name_faults, spec as validate};

use super::kit::{at, child, child_if, default, default_number, is_true, items_mut, map, text};
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Lists of containers in a pod's spec.
pub const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Takes out what belongs to features that Kubernetes 1.36 does not turn on by itself (`dropDisabledFields`).
/// `path`: where in the object the spec of a pod stands, if there is one.
pub fn drop_disabled(object: &mut Value, path: &str) {
    let Some(spec) = object.pointer_mut(path).filter(|spec| spec.is_object()) else { return };
    map(spec).remove("schedulingGroup");
    for list in CONTAINER_LISTS {
        for container in items_mut(spec, list) {
            let Some(Value::Object(lifecycle)) = container.get_mut("lifecycle") else { continue };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                map(container).remove("lifecycle");
            }
        }
    }
}

/// Fills in what every pod spec gets, template or pod.
pub fn defaults(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "terminationGracePeriodSeconds", 30);
    if spec.get("securityContext").is_none_or(Value::is_null) {
        spec["securityContext"] = json!({});
    }
    // The old name of the account and the new one are one field.
    let account = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !account.is_empty() {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    for list in CONTAINER_LISTS {
        for container in items_mut(spec, list) {
            container_defaults(container);
        }
    }
    for volume in items_mut(spec, "volumes") {
        volume_defaults(volume);
    }
}

/// Fills in what pods get and templates do not.
pub fn pod_defaults(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            requests_from_limits(container);
        }
    }
    requests_of_pod(spec);
    default(spec, "enableServiceLinks", true);
    if is_true(spec, "hostNetwork") {
        for list in ["containers", "initContainers"] {
            for container in items_mut(spec, list) {
                for port in items_mut(container, "ports") {
                    let number = at(port, "containerPort").as_i64().unwrap_or_default();
                    default_number(port, "hostPort", number);
                }
            }
        }
    }
}

/// Resources that a pod can have as a whole, beside huge pages.
const OF_PODS: [&str; 2] = ["cpu", "memory"];
const HUGE_PAGES: &str = "hugepages-";

fn is_of_pods(name: &str) -> bool {
    OF_PODS.contains(&name) || name.starts_with(HUGE_PAGES)
}

/// A pod that is limited as a whole asks for what its containers ask for together, else for what it is limited to; huge pages that
/// only containers are limited to limit the pod.
fn requests_of_pod(spec: &mut Value) {
    let given = |spec: &Value, part: &str| at(spec, part).as_object().cloned().unwrap_or_default();
    let asked = given(spec, "resources.requests");
    if asked.is_empty() && given(spec, "resources.limits").is_empty() {
        return;
    }
    let mut wanted = super::limits::of_containers(spec, "limits");
    wanted.retain(|name, _| name.starts_with(HUGE_PAGES) && !asked.contains_key(name));
    if !wanted.is_empty() {
        let limits = map(child(child(spec, "resources"), "limits"));
        for (name, sum) in wanted {
            limits.entry(name).or_insert_with(|| sum.to_string().into());
        }
    }
    let limits = given(spec, "resources.limits");
    if limits.is_empty() {
        return;
    }
    let mut together = super::limits::of_containers(spec, "requests");
    together.retain(|name, _| OF_PODS.contains(&name.as_str()));
    let sums = together.into_iter().map(|(name, sum)| (name, Value::from(sum.to_string())));
    let rest = limits.into_iter().filter(|(name, _)| is_of_pods(name));
    let wanted: Vec<(String, Value)> = sums.chain(rest).collect();
    if wanted.is_empty() {
        return;
    }
    let requests = map(child(child(spec, "resources"), "requests"));
    for (name, value) in wanted {
        requests.entry(name).or_insert(value);
    }
}

/// What is limited and not asked for is asked for in full.
pub fn requests_from_limits(container: &mut Value) {
    let limits = at(container, "resources.limits").as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let requests = map(child(child(container, "resources"), "requests"));
    for (name, value) in limits {
        requests.entry(name).or_insert(value);
    }
}

/// A whole image reference, its registry written out.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let digest = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let registry = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let whole = format!(r"^{registry}/{part}(?:/{part})*(?::([A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?(@{digest})?$");
    Regex::new(&whole).expect("invariant: a constant pattern")
});

/// The tag of an image reference; `latest` where it names neither tag nor digest, empty where only a digest, or where it is
/// no reference.
fn tag(image: &str) -> &str {
    let is_digest = image.len() == 64 && image.bytes().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9'));
    let has_registry = image.split_once('/').is_some_and(|(first, _)| {
        first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
    });
    let whole = if has_registry { image.to_owned() } else { format!("registry.example/{image}") };
    let Some(parts) = REFERENCE.captures(&whole).filter(|_| !is_digest) else { return "" };
    match (parts.get(1), parts.get(2)) {
        (Some(tag), _) => {
            // `whole` ends as `image` does
            let end = image.len() - (whole.len() - tag.end());
            &image[end - tag.len()..end]
        }
        (None, Some(_)) => "",
        (None, None) => "latest",
    }
}

fn container_defaults(container: &mut Value) {
    let policy = if tag(text(container, "image")) == "latest" { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        default(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child_if(container, probe) {
            default_number(probe, "timeoutSeconds", 1);
            default_number(probe, "periodSeconds", 10);
            default_number(probe, "successThreshold", 1);
            default_number(probe, "failureThreshold", 3);
            handler_defaults(probe);
            if let Some(grpc) = child_if(probe, "grpc") {
                default(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = child_if(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = child_if(lifecycle, hook) {
                handler_defaults(hook);
            }
        }
    }
    for variable in items_mut(container, "env") {
        if let Some(from) = child_if(variable, "valueFrom") {
            if let Some(field) = child_if(from, "fieldRef") {
                default(field, "apiVersion", "v1");
            }
            if let Some(key) = child_if(from, "fileKeyRef") {
                default(key, "optional", false);
            }
        }
    }
}

fn handler_defaults(handler: &mut Value) {
    if let Some(http) = child_if(handler, "httpGet") {
        default(http, "path", "/");
        default(http, "scheme", "HTTP");
    }
}

const MODE: i64 = 0o644;

/// Defaults of sources that pods and volumes have alike.
pub(crate) fn source_defaults(volume: &mut Value) {
    if let Some(disk) = child_if(volume, "azureDisk")
        && at(disk, "readOnly").is_null()
    {
        disk["readOnly"] = false.into();
    }
    if let Some(path) = child_if(volume, "hostPath")
        && path.get("type").is_none_or(Value::is_null)
    {
        path["type"] = json!("");
    }
}

fn volume_defaults(volume: &mut Value) {
    source_defaults(volume);
    let sources = map(volume).iter().filter(|(name, value)| *name != "name" && !value.is_null()).count();
    if sources == 0 {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child_if(volume, source) {
            default(source, "defaultMode", MODE);
        }
    }
    let downward = |source: &mut Value| {
        for item in items_mut(source, "items") {
            if let Some(field) = child_if(item, "fieldRef") {
                default(field, "apiVersion", "v1");
            }
        }
    };
    if let Some(source) = child_if(volume, "downwardAPI") {
        downward(source);
    }
    if let Some(projected) = child_if(volume, "projected") {
        for source in items_mut(projected, "sources") {
            if let Some(source) = child_if(source, "downwardAPI") {
                downward(source);
            }
            if let Some(token) = child_if(source, "serviceAccountToken") {
                default(token, "expirationSeconds", 3600);
            }
        }
    }
    if let Some(claim) = child_if(volume, "ephemeral")
        && let Some(template) = child_if(claim, "volumeClaimTemplate")
        && let Some(spec) = child_if(template, "spec")
    {
        default(spec, "volumeMode", "Filesystem");
    }
    if let Some(image) = child_if(volume, "image") {
        let policy = if tag(text(image, "reference")) == "latest" { "Always" } else { "IfNotPresent" };
        default(image, "pullPolicy", policy);
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from what containers ask for (cpu and memory).
pub fn qos_class(spec: &Value) -> &'static str {
    use api::quantity::Quantity;
    let quantity = |value: &Value| Quantity::from_json(value).ok().filter(|q| !q.is_zero() && !q.is_negative());
    let mut any = false;
    let mut guaranteed = true;
    let (mut requests, mut limits) = ([Quantity::ZERO; 2], [Quantity::ZERO; 2]);
    let pod_level = at(spec, "resources");
    let lists: Vec<&Value> = if pod_level.is_null() {
        ["containers", "initContainers"]
            .iter()
            .flat_map(|list| super::kit::items(spec, list))
            .map(|c| at(c, "resources"))
            .collect()
    } else {
        vec![pod_level]
    };
    for resources in lists {
        let mut limited = 0;
        for (index, name) in ["cpu", "memory"].into_iter().enumerate() {
            if let Some(amount) = resources.get("requests").and_then(|r| quantity(&r[name])) {
                requests[index] = requests[index].plus(amount);
                any = true;
            }
            if let Some(amount) = resources.get("limits").and_then(|r| quantity(&r[name])) {
                limits[index] = limits[index].plus(amount);
                any = true;
                limited += 1;
            }
        }
        guaranteed &= limited == 2;
    }
    if !any {
        "BestEffort"
    } else if guaranteed && (0..2).all(|i| !requests[i].is_zero() && requests[i] == limits[i]) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::field::{ErrorList, Path};

    #[test]
    fn pull_policy_follows_the_tag() {
        let digest = format!("img@sha256:{}", "a".repeat(64));
        for (image, expected) in [
            (digest.as_str(), ""),
            // none of these is a reference
            ("Invalid Name!", ""),
            ("$(A)", ""),
            ("", ""),
            ("img:", ""),
            (&"a".repeat(64), ""),
            ("Registry/img", "latest"),
            ("img", "latest"),
            ("img:v1", "v1"),
            ("reg:5000/img", "latest"),
            ("reg:5000/img:latest", "latest"),
            (&digest.replace('@', ":latest@"), "latest"),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }

    #[test]
    fn what_containers_refer_to_is_named_as_it_must_be() {
        let env = |volume: &str, path: &str, key: &str| json!([{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": volume, "path": path, "key": key}}}]);
        let faults = |container: Value, pod: Value| {
            let mut spec =
                json!({"containers": [container], "volumes": [{"name": "a", "emptyDir": {}}], "securityContext": pod});
            spec["containers"][0]["name"] = "main".into();
            spec["containers"][0]["image"] = "x".into();
            defaults(&mut spec);
            validate(&spec, &api::field::Path::new("spec")).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(faults(json!({"env": env("a", "b", "c")}), json!({})).is_empty());
        let bad = faults(json!({"env": env("Bad_", "../b", "x=y")}), json!({}));
        let parts = [
            "fileKeyRef.key: Invalid",
            "volumeName: Invalid value: \"Bad_\": a lowercase",
            "path: Invalid",
            "Not found",
        ];
        assert!(bad.len() == 4 && parts.iter().all(|part| bad.iter().any(|fault| fault.contains(part))), "{bad:?}");

        let claims = json!({"resources": {"claims": [{"name": ""}]}});
        assert_eq!(faults(claims, json!({})), ["spec.containers[0].resources.claims[0]: Required value"]);

        let seccomp = |kind: &str, local: &str| json!({"seccompProfile": {"type": kind, "localhostProfile": local}});
        assert_eq!(
            faults(json!({}), seccomp("RuntimeDefault", "x")),
            ["spec.securityContext.seccompProfile.localhostProfile: Invalid value: \
              {\"Type\":\"RuntimeDefault\",\"LocalhostProfile\":\"x\"}: can only be set when seccomp type is Localhost"]
        );
        assert!(faults(json!({}), seccomp("Localhost", "/x"))[0].ends_with("must be a relative path"));
    }

    #[test]
    fn classes() {
        let spec = |resources: Value| json!({"containers": [{"resources": resources}]});
        assert_eq!(qos_class(&spec(json!({}))), "BestEffort");
        assert_eq!(qos_class(&spec(json!({"requests": {"cpu": "1"}}))), "Burstable");
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(qos_class(&spec(json!({"requests": full, "limits": full}))), "Guaranteed");
        let pod = json!({"containers": [{"resources": {"requests": full}}], "resources": {}});
        assert_eq!(qos_class(&pod), "BestEffort");
    }

    #[test]
    fn pods_have_resources_of_their_own() {
        let of_pod = |resources: Value| {
            let asked = json!({"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "2Mi", "cpu": "2"}});
            let mut spec = json!({"containers": [{"resources": asked}], "resources": resources});
            requests_of_pod(&mut spec);
            spec["resources"].clone()
        };
        assert_eq!(of_pod(json!({})), json!({}));
        let limited = of_pod(json!({"limits": {"memory": "1Gi"}}));
        assert_eq!(limited["requests"], json!({"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}));
        assert_eq!(limited["limits"], json!({"memory": "1Gi", "hugepages-2Mi": "2Mi"}));
        let asked = of_pod(json!({"requests": {"hugepages-2Mi": "4Mi"}}));
        assert_eq!(asked, json!({"requests": {"hugepages-2Mi": "4Mi"}}));

        let faults = |resources: Value, os: &str| {
            let container = json!({"name": "a", "image": "b", "resources": {"limits": {"hugepages-2Mi": "4Mi"}}});
            let spec = json!({"containers": [container], "resources": resources, "os": {"name": os}});
            let mut errors = ErrorList::new();
            resources::pod_resources(&spec, &Path::new("spec"), &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let limits = json!({"limits": {"hugepages-2Mi": "3Mi", "storage": "1"}});
        assert_eq!(
            faults(limits.clone(), "linux"),
            [
                "spec.resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                "spec.resources.limits[storage]: Unsupported value: \"storage\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
                "spec.resources: Forbidden: HugePages require cpu or memory",
                "spec.resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": must be greater than or equal to aggregate container limits of 4Mi",
                "spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: \"4Mi\": must be less than or equal to pod limits of 3Mi",
            ]
        );
        assert_eq!(faults(limits, "windows"), ["spec.resources: Forbidden: may not be set for a windows pod"]);
    }
}
