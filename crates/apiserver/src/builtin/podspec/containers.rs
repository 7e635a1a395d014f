//! Validation of containers.

use super::validate::{choice, container_security};
use crate::builtin::kit::{at, int, is_true, items, text, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a container's validity depends on beside itself.
pub struct Scene<'a> {
    /// Volumes of the pod, by name.
    pub volumes: &'a BTreeMap<String, Value>,
    pub restart_policy: &'a str,
    /// `terminationGracePeriodSeconds` of the pod.
    pub grace: Option<i64>,
}

/// Which of a pod's lists a container stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Main,
    Init,
    Ephemeral,
}

/// Validates one of the lists of containers of a pod spec.
pub fn validate(spec: &Value, scene: &Scene<'_>, kind: Kind, path: &Path, errors: &mut ErrorList) {
    let main = items(spec, "containers");
    let init = items(spec, "initContainers");
    let (list, mut names): (&[Value], Vec<&str>) = match kind {
        Kind::Main => (main, Vec::new()),
        Kind::Init => (init, main.iter().map(|c| text(c, "name")).collect()),
        Kind::Ephemeral => {
            let others = main.iter().chain(init).map(|c| text(c, "name")).collect();
            (items(spec, "ephemeralContainers"), others)
        }
    };
    if kind == Kind::Main && list.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let others = names.clone();
    for (i, container) in list.iter().enumerate() {
        let path = path.index(i);
        common(container, scene, &path, errors);
        let name = text(container, "name");
        if names.contains(&name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        } else if kind == Kind::Main || !name.is_empty() {
            names.push(name);
        }
        match kind {
            Kind::Main => {
                probes(container, scene, &path, errors);
                restart_rules(container, &path, errors);
            }
            Kind::Init => init_rules(container, scene, &path, errors),
            Kind::Ephemeral => ephemeral_rules(container, &others, &path, errors),
        }
    }
    match kind {
        Kind::Main => host_ports(list, path, errors),
        Kind::Init => list.iter().for_each(|c| host_ports(std::slice::from_ref(c), path, errors)),
        Kind::Ephemeral => {}
    }
}

/// Images of pods (not of templates) have no space around them.
pub fn trimmed_images(spec: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for list in super::CONTAINER_LISTS {
        for (i, container) in items(spec, list).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let at = path.child(list).index(i).child("image");
                errors.push(Error::invalid(&at, image, "must not have leading or trailing whitespace"));
            }
        }
    }
    errors
}

fn common(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else {
        for fault in names::label_faults(name, false) {
            errors.push(Error::invalid(&path.child("name"), name, fault));
        }
    }
    if text(container, "image").is_empty() {
        errors.push(Error::required(&path.child("image"), ""));
    }
    choice(
        text(container, "terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
        &path.child("terminationMessagePolicy"),
        errors,
    );
    ports(items(container, "ports"), &path.child("ports"), errors);
    for (i, variable) in items(container, "env").iter().enumerate() {
        env(variable, &path.child("env").index(i), errors);
    }
    for (i, source) in items(container, "envFrom").iter().enumerate() {
        env_from(source, &path.child("envFrom").index(i), errors);
    }
    mounts(container, scene, &path.child("volumeMounts"), errors);
    devices(container, scene, &path.child("volumeDevices"), errors);
    choice(
        text(container, "imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        &path.child("imagePullPolicy"),
        errors,
    );
    errors.extend(resource_requirements(at(container, "resources"), &path.child("resources")));
    for (i, policy) in items(container, "resizePolicy").iter().enumerate() {
        let path = path.child("resizePolicy");
        let resource = text(policy, "resourceName");
        if items(container, "resizePolicy")[..i].iter().any(|p| text(p, "resourceName") == resource) {
            errors.push(Error::duplicate(&path.index(i), resource));
        }
        choice(resource, &["cpu", "memory"], &path, errors);
        let restart = text(policy, "restartPolicy");
        choice(restart, &["NotRequired", "RestartContainer"], &path, errors);
        if scene.restart_policy == "Never" && restart == "RestartContainer" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(&path, restart, detail));
        }
    }
    container_security(at(container, "securityContext"), &path.child("securityContext"), errors);
}

fn ports(ports: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let faults = names::port_name_faults(name);
            if faults.is_empty() {
                if names.contains(&name) {
                    errors.push(Error::duplicate(&path.child("name"), name));
                }
                names.push(name);
            }
            errors.extend(faults.into_iter().map(|fault| Error::invalid(&path.child("name"), name, fault)));
        }
        let number = int(port, "containerPort").unwrap_or_default();
        if number == 0 {
            errors.push(Error::required(&path.child("containerPort"), ""));
        } else {
            for fault in names::port_number_faults(number) {
                errors.push(Error::invalid(&path.child("containerPort"), number, fault));
            }
        }
        let host = int(port, "hostPort").unwrap_or_default();
        if host != 0 {
            for fault in names::port_number_faults(host) {
                errors.push(Error::invalid(&path.child("hostPort"), host, fault));
            }
        }
        choice(text(port, "protocol"), &["SCTP", "TCP", "UDP"], &path.child("protocol"), errors);
    }
}

fn host_ports(containers: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut seen: Vec<String> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if seen.contains(&key) {
                let at = path.index(i).child("ports").index(j).child("hostPort");
                errors.push(Error::duplicate(&at, key));
            } else {
                seen.push(key);
            }
        }
    }
}

fn env(variable: &Value, path: &Path, errors: &mut ErrorList) {
    let name = text(variable, "name");
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else {
        for fault in names::env_name_faults(name) {
            errors.push(Error::invalid(&path.child("name"), name, fault));
        }
    }
    let from = at(variable, "valueFrom");
    if from.is_null() {
        return;
    }
    let path = path.child("valueFrom");
    let mut sources = 0;
    let mut source = |member: &str| {
        let value = at(from, member);
        (!value.is_null()).then(|| {
            sources += 1;
            (value, path.child(member))
        })
    };
    if let Some((field, path)) = source("fieldRef") {
        field_selector(field, &ENV_FIELDS, &path, errors);
    }
    if let Some((field, path)) = source("resourceFieldRef") {
        resource_selector(field, false, &path, errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some((key, path)) = source(kind) {
            let name = text(key, "name");
            if !name.is_empty() {
                for fault in names::subdomain_faults(name, false) {
                    errors.push(Error::invalid(&path.child("name"), name, fault));
                }
            }
            config_key(text(key, "key"), &path, errors);
        }
    }
    if let Some((key, path)) = source("fileKeyRef") {
        if text(key, "key").is_empty() {
            errors.push(Error::required(&path.child("key"), ""));
        }
        if text(key, "volumeName").is_empty() {
            errors.push(Error::required(&path.child("volumeName"), ""));
        }
        if text(key, "path").is_empty() {
            errors.push(Error::required(&path.child("path"), ""));
        }
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(Error::invalid(&path, "", detail));
    } else if !text(variable, "value").is_empty() {
        errors.push(Error::invalid(&path, "", "may not be specified when `value` is not empty"));
    } else if sources > 1 {
        errors.push(Error::invalid(&path, "", "may not have more than one field specified at a time"));
    }
}

fn config_key(key: &str, path: &Path, errors: &mut ErrorList) {
    if key.is_empty() {
        errors.push(Error::required(&path.child("key"), ""));
    } else {
        for fault in names::config_key_faults(key) {
            errors.push(Error::invalid(&path.child("key"), key, fault));
        }
    }
}

/// Fields of a pod that a variable may show.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that the downward API knows at all.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

/// A reference to a field of the pod; `supported` are those that may be named here.
pub(super) fn field_selector(selector: &Value, supported: &[&str], path: &Path, errors: &mut ErrorList) {
    let version = text(selector, "apiVersion");
    let field = text(selector, "fieldPath");
    if version.is_empty() {
        errors.push(Error::required(&path.child("apiVersion"), ""));
        return;
    }
    if field.is_empty() {
        errors.push(Error::required(&path.child("fieldPath"), ""));
        return;
    }
    let wrong =
        |why: String| Error::invalid(&path.child("fieldPath"), field, format!("error converting fieldPath: {why}"));
    if version != "v1" {
        errors.push(wrong(format!("unsupported pod version: {version}")));
        return;
    }
    let subscript = field.strip_suffix("']").and_then(|head| head.split_once("['"));
    if let Some((name, key)) = subscript {
        match name {
            "metadata.annotations" => qualified(&key.to_lowercase(), path, errors),
            "metadata.labels" => qualified(key, path, errors),
            _ => errors.push(wrong(format!("field label does not support subscript: {field}"))),
        }
        return;
    }
    if !KNOWN_FIELDS.contains(&field) {
        errors.push(wrong(format!("field label not supported: {field}")));
    } else if !supported.contains(&field) {
        errors.push(Error::not_supported(&path.child("fieldPath"), field, supported));
    }
}

fn qualified(name: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(names::qualified_name_faults(name).into_iter().map(|fault| Error::invalid(path, name, fault)));
}

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// A reference to what a container may use. In volumes it must say which container.
pub(super) fn resource_selector(selector: &Value, volume: bool, path: &Path, errors: &mut ErrorList) {
    let resource = text(selector, "resource");
    if volume && text(selector, "containerName").is_empty() {
        errors.push(Error::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(Error::required(&path.child("resource"), ""));
    } else if !RESOURCE_FIELDS.contains(&resource)
        && !resource.starts_with("limits.hugepages-")
        && !resource.starts_with("requests.hugepages-")
    {
        errors.push(Error::not_supported(&path.child("resource"), resource, &RESOURCE_FIELDS));
    }
    let Ok(divisor) = Quantity::from_json(at(selector, "divisor")) else { return };
    if divisor.is_zero() {
        return;
    }
    let shown = divisor.to_string();
    let path = path.child("divisor");
    let kind = resource.split_once('.').map_or("", |(_, kind)| kind);
    let sizes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let what = match kind {
        "cpu" => {
            if !["1m", "1"].contains(&shown.as_str()) {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.push(Error::invalid(&path, "cpu", detail));
            }
            return;
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        _ if kind.starts_with("hugepages-") => "hugepages",
        _ => return,
    };
    if !sizes.contains(&shown.as_str()) {
        let detail = format!("only divisor's values {} are supported with the {what} resource", sizes.join(", "));
        errors.push(Error::invalid(&path, kind, detail));
    }
}

fn env_from(source: &Value, path: &Path, errors: &mut ErrorList) {
    let prefix = text(source, "prefix");
    if !prefix.is_empty() {
        for fault in names::env_name_faults(prefix) {
            errors.push(Error::invalid(&path.child("prefix"), prefix, fault));
        }
    }
    let mut sources = 0;
    for kind in ["configMapRef", "secretRef"] {
        let reference = at(source, kind);
        if reference.is_null() {
            continue;
        }
        sources += 1;
        let path = path.child(kind).child("name");
        let name = text(reference, "name");
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
        } else {
            for fault in names::subdomain_faults(name, false) {
                errors.push(Error::invalid(&path, name, fault));
            }
        }
    }
    // Upstream reports these two at the list.
    let list = Path::new(path.as_str().rsplit_once('[').map_or(path.as_str(), |(list, _)| list));
    match sources {
        0 => errors.push(Error::invalid(&list, "", "must specify one of: `configMapRef` or `secretRef`")),
        1 => {}
        _ => errors.push(Error::invalid(&list, "", "may not have more than one field specified at a time")),
    }
}

fn descending(value: &str, path: &Path, errors: &mut ErrorList) {
    if value.starts_with('/') {
        errors.push(Error::invalid(path, value, "must be a relative path"));
    }
    super::volumes::no_backsteps(value, path, errors);
}

fn mounts(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    let mut points: Vec<&str> = Vec::new();
    let devices = items(container, "volumeDevices");
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        let at_mount = path.index(i);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(Error::required(&at_mount.child("name"), ""));
        }
        if !scene.volumes.contains_key(name) {
            errors.push(Error::not_found(&at_mount.child("name"), name));
        }
        if point.is_empty() {
            errors.push(Error::required(&at_mount.child("mountPath"), ""));
        }
        if points.contains(&point) {
            errors.push(Error::invalid(&at_mount.child("mountPath"), point, "must be unique"));
        }
        points.push(point);
        if devices.iter().any(|d| text(d, "name") == name) {
            errors.push(Error::invalid(&at_mount.child("name"), name, "must not already exist in volumeDevices"));
        }
        if devices.iter().any(|d| text(d, "devicePath") == point) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(Error::invalid(&at_mount.child("mountPath"), point, detail));
        }
        let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        if !sub.is_empty() {
            descending(sub, &path.child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.push(Error::invalid(&at_mount.child("subPathExpr"), expression, detail));
            }
            descending(expression, &path.child("subPathExpr"), errors);
        }
        let propagation = at(mount, "mountPropagation").as_str();
        if let Some(propagation) = propagation {
            let path = path.child("mountPropagation");
            let supported = ["Bidirectional", "HostToContainer", "None"];
            if !supported.contains(&propagation) {
                errors.push(Error::not_supported(&path, propagation, &supported));
            } else if propagation == "Bidirectional" && !is_true(container, "securityContext.privileged") {
                let detail = "Bidirectional mount propagation is available only to privileged containers";
                errors.push(Error::forbidden(&path, detail));
            }
        }
        if let Some(mode) = at(mount, "recursiveReadOnly").as_str() {
            let path = path.child("recursiveReadOnly");
            match mode {
                "Disabled" => {}
                "Enabled" | "IfPossible" => {
                    if !is_true(mount, "readOnly") {
                        errors.push(Error::forbidden(&path, "may only be specified when readOnly is true"));
                    }
                    if propagation.is_some_and(|p| p != "None") {
                        let detail = "may only be specified when mountPropagation is None or not specified";
                        errors.push(Error::forbidden(&path, detail));
                    }
                }
                other => errors.push(Error::not_supported(&path, other, &["Disabled", "Enabled", "IfPossible"])),
            }
        }
    }
}

fn devices(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    let (mut names, mut paths): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = path.index(i);
        let (name, point) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        if names.contains(&name) {
            errors.push(Error::invalid(&path.child("name"), name, "must be unique"));
        }
        match scene.volumes.get(name) {
            None => errors.push(Error::not_found(&path.child("name"), name)),
            Some(volume) if at(volume, "persistentVolumeClaim").is_null() && at(volume, "ephemeral").is_null() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(Error::invalid(&path.child("name"), name, detail));
            }
            Some(_) => {}
        }
        if point.is_empty() {
            errors.push(Error::required(&path.child("devicePath"), ""));
        }
        if paths.contains(&point) {
            errors.push(Error::invalid(&path.child("devicePath"), point, "must be unique"));
        }
        if point.split('/').any(|part| part == "..") {
            errors.push(Error::invalid(&path.child("devicePath"), point, "can not contain backsteps ('..')"));
        }
        names.push(name);
        paths.push(point);
    }
}

/// Names without a domain that containers may ask for.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Extended resources, and huge pages, are whole and cannot be promised twice.
fn overcommit(name: &str) -> bool {
    native(name) && !name.starts_with("hugepages-")
}

fn resource_name(name: &str, path: &Path, errors: &mut ErrorList) {
    let faults = names::qualified_name_faults(name);
    let bad = !faults.is_empty();
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, name, fault)));
    if !name.contains('/') {
        let standard = STANDARD.contains(&name) || name.starts_with("hugepages-");
        if !bad
            && !standard
            && !["storage", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods"].contains(&name)
        {
            let detail = "must be a standard resource type or fully qualified";
            errors.push(Error::invalid(path, name, detail));
        }
        if !standard {
            errors.push(Error::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !native(name) && (name.starts_with("requests.") || bad) {
        errors.push(Error::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn amount(name: &str, value: &Value, path: &Path, errors: &mut ErrorList) -> Option<Quantity> {
    let quantity = Quantity::from_json(value).ok()?;
    if quantity.is_negative() {
        errors.push(Error::invalid(path, quantity.to_string(), "must be greater than or equal to 0"));
    }
    if !native(name) && !quantity.is_whole() {
        errors.push(Error::invalid(path, quantity.to_string(), "must be an integer"));
    }
    Some(quantity)
}

/// Limits and requests of a container.
pub fn resource_requirements(resources: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let (mut compute, mut huge) = (false, false);
    let mut seen = |name: &str| {
        compute |= name == "cpu" || name == "memory";
        huge |= name.starts_with("hugepages-");
    };
    for (name, value) in at(resources, "limits").as_object().into_iter().flatten() {
        resource_name(name, &limits.key(name), &mut errors);
        amount(name, value, &limits.key(name), &mut errors);
        seen(name);
    }
    for (name, value) in at(resources, "requests").as_object().into_iter().flatten() {
        resource_name(name, &requests.key(name), &mut errors);
        let Some(asked) = amount(name, value, &requests.key(name), &mut errors) else { continue };
        seen(name);
        match Quantity::from_json(&resources["limits"][name.as_str()]) {
            Ok(limit) if asked != limit && !overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests, asked.to_string(), detail));
            }
            Ok(limit) if asked > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests, asked.to_string(), detail));
            }
            Ok(_) => {}
            Err(_) => {
                if !overcommit(name) {
                    errors.push(Error::required(&limits, "Limit must be set for non overcommitable resources"));
                }
            }
        }
    }
    if huge && !compute {
        errors.push(Error::forbidden(path, "HugePages require cpu or memory"));
    }
    errors
}

fn nonnegative(object: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let value = int(object, field).unwrap_or_default();
    if value < 0 {
        errors.push(Error::invalid(&path.child(field), value, "must be greater than or equal to 0"));
    }
}

fn probes(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    lifecycle(container, scene, path, errors);
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, kind);
        if probe.is_null() {
            continue;
        }
        let path = path.child(kind);
        handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], scene, &path, errors);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            nonnegative(probe, field, &path, errors);
        }
        let grace = int(probe, "terminationGracePeriodSeconds");
        if grace.is_some_and(|grace| grace <= 0) {
            let at = path.child("terminationGracePeriodSeconds");
            errors.push(Error::invalid(&at, grace, "must be greater than 0"));
        }
        if kind == "readinessProbe" {
            if grace.is_some() {
                let at = path.child("terminationGracePeriodSeconds");
                errors.push(Error::invalid(&at, grace, "must not be set for readinessProbes"));
            }
        } else {
            let threshold = int(probe, "successThreshold").unwrap_or_default();
            if threshold != 1 {
                errors.push(Error::invalid(&path.child("successThreshold"), threshold, "must be 1"));
            }
        }
    }
}

fn lifecycle(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    let lifecycle = at(container, "lifecycle");
    for hook in ["postStart", "preStop"] {
        let value = at(lifecycle, hook);
        if !value.is_null() {
            let path = path.child("lifecycle").child(hook);
            handler(value, &["exec", "httpGet", "tcpSocket", "sleep"], scene, &path, errors);
        }
    }
    if !at(lifecycle, "stopSignal").is_null() {
        let detail = "may not be set for containers with empty `spec.os.name`";
        errors.push(Error::forbidden(&path.child("lifecycle").child("stopSignal"), detail));
    }
}

fn handler(value: &Value, kinds: &[&str], scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    let mut found = false;
    for kind in kinds {
        let action = at(value, kind);
        if action.is_null() {
            continue;
        }
        let path = path.child(kind);
        if found {
            errors.push(Error::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match *kind {
            "exec" => {
                if items(action, "command").is_empty() {
                    errors.push(Error::required(&path.child("command"), ""));
                }
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.push(Error::required(&path.child("path"), ""));
                }
                port_or_name(at(action, "port"), &path.child("port"), errors);
                let scheme = text(action, "scheme");
                if !["HTTP", "HTTPS"].contains(&scheme) {
                    errors.push(Error::not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]));
                }
                for header in items(action, "httpHeaders") {
                    let name = text(header, "name");
                    if name.is_empty() || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
                        let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                                      'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
                        errors.push(Error::invalid(&path.child("httpHeaders"), name, detail));
                    }
                }
            }
            "tcpSocket" | "grpc" => port_or_name(at(action, "port"), &path.child("port"), errors),
            _ => {
                let seconds = int(action, "seconds").unwrap_or_default();
                let grace = scene.grace.unwrap_or_default();
                if seconds < 0 || seconds > grace {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.push(Error::invalid(&path, seconds, detail));
                }
            }
        }
    }
    if !found {
        errors.push(Error::required(path, "must specify a handler type"));
    }
}

fn port_or_name(port: &Value, path: &Path, errors: &mut ErrorList) {
    match port {
        Value::String(name) => {
            for fault in names::port_name_faults(name) {
                errors.push(Error::invalid(path, name.as_str(), fault));
            }
        }
        other => {
            let number = other.as_i64().unwrap_or_default();
            for fault in names::port_number_faults(number) {
                errors.push(Error::invalid(path, number, fault));
            }
        }
    }
}

fn restart_rules(container: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = items(container, "restartPolicyRules");
    let policy = at(container, "restartPolicy").as_str();
    if policy.is_none() && !rules.is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.push(Error::required(&path.child("restartPolicy"), detail));
    }
    if let Some(policy) = policy
        && !["Always", "Never", "OnFailure"].contains(&policy)
    {
        errors.push(Error::not_supported(&path.child("restartPolicy"), policy, &["Always", "Never", "OnFailure"]));
    }
    if rules.len() > 20 {
        errors.push(Error::too_many(&path.child("restartPolicyRules"), rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.child("restartPolicyRules").index(i);
        let action = text(rule, "action");
        if action != "Restart" {
            errors.push(Error::not_supported(&path.child("action"), action, &["Restart"]));
        }
        let codes = at(rule, "exitCodes");
        if codes.is_null() {
            errors.push(Error::required(&path.child("exitCodes"), "must be specified"));
            continue;
        }
        let operator = text(codes, "operator");
        if !["In", "NotIn"].contains(&operator) {
            let at = path.child("exitCodes").child("operator");
            errors.push(Error::not_supported(&at, operator, &["In", "NotIn"]));
        }
        let values = items(codes, "values").len();
        if values > 255 {
            errors.push(Error::too_many(&path.child("exitCodes").child("values"), values, 255));
        }
    }
}

fn init_rules(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    restart_rules(container, path, errors);
    let sidecar = text(container, "restartPolicy") == "Always";
    if sidecar {
        if !items(container, "restartPolicyRules").is_empty() {
            let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
            errors.push(Error::forbidden(&path.child("restartPolicyRules"), detail));
        }
        probes(container, scene, path, errors);
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !at(container, field).is_null() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(Error::forbidden(&path.child(field), detail));
        }
    }
    for (j, policy) in items(container, "resizePolicy").iter().enumerate() {
        if text(policy, "restartPolicy") == "RestartContainer" {
            let at = path.child("resizePolicy").index(j).child("restartPolicy");
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.push(Error::invalid(&at, "RestartContainer", detail));
        }
    }
}

fn ephemeral_rules(container: &Value, others: &[&str], path: &Path, errors: &mut ErrorList) {
    let target = text(container, "targetContainerName");
    if !target.is_empty() && !others.contains(&target) {
        errors.push(Error::not_found(&path.child("targetContainerName"), target));
    }
    let fields = [
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "startupProbe",
    ];
    for field in fields {
        if !unset(at(container, field)) {
            errors.push(Error::forbidden(&path.child(field), "cannot be set for an Ephemeral Container"));
        }
    }
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text(mount, field).is_empty() {
                let at = path.child("volumeMounts").index(i).child(field);
                errors.push(Error::forbidden(&at, "cannot be set for an Ephemeral Container"));
            }
        }
    }
}
