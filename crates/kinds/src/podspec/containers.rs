//! Validation of containers.

use super::environment::{env, env_from};
use super::probes::probes;
use super::resources::resource_requirements;
use super::validate::{choice, container_security};
use crate::kit::{at, int, is_true, items, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a container's validity depends on beside itself.
pub struct Scene<'a> {
    /// Volumes of the pod, by name.
    pub volumes: &'a BTreeMap<String, Value>,
    pub restart_policy: &'a str,
    /// `terminationGracePeriodSeconds` of the pod.
    pub grace: Option<i64>,
    /// Whether the pod has the users of its machine.
    pub host_users: bool,
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
    let (list, mut names): (&[Value], BTreeSet<&str>) = match kind {
        Kind::Main => (main, BTreeSet::new()),
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
            names.insert(name);
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
    let mut resized: BTreeSet<&str> = BTreeSet::new();
    for (i, policy) in items(container, "resizePolicy").iter().enumerate() {
        let path = path.child("resizePolicy");
        let resource = text(policy, "resourceName");
        if !resized.insert(resource) {
            errors.push(Error::duplicate(&path.index(i), resource));
        }
        choice(resource, &["cpu", "memory"], &path, errors);
        let restart = text(policy, "restartPolicy");
        choice(restart, &["NotRequired", "RestartContainer"], &path, errors);
        if scene.restart_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(&path, restart, detail));
        }
    }
    container_security(at(container, "securityContext"), scene.host_users, &path.child("securityContext"), errors);
}

fn ports(ports: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let faults = names::port_name_faults(name);
            if faults.is_empty() {
                if names.contains(&name) {
                    errors.push(Error::duplicate(&path.child("name"), name));
                }
                names.insert(name);
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
    let mut seen: BTreeSet<String> = BTreeSet::new();
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
                seen.insert(key);
            }
        }
    }
}

fn descending(value: &str, path: &Path, errors: &mut ErrorList) {
    if value.starts_with('/') {
        errors.push(Error::invalid(path, value, "must be a relative path"));
    }
    super::volumes::no_backsteps(value, path, errors);
}

fn mounts(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
    let mut points: BTreeSet<&str> = BTreeSet::new();
    let devices = items(container, "volumeDevices").iter();
    let (devices, paths): (BTreeSet<&str>, BTreeSet<&str>) =
        devices.map(|device| (text(device, "name"), text(device, "devicePath"))).unzip();
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
        points.insert(point);
        if devices.contains(name) {
            errors.push(Error::invalid(&at_mount.child("name"), name, "must not already exist in volumeDevices"));
        }
        if paths.contains(point) {
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
    let (mut names, mut paths): (BTreeSet<&str>, BTreeSet<&str>) = (BTreeSet::new(), BTreeSet::new());
    for (i, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = path.index(i);
        let (name, point) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.push(Error::required(&path.child("name"), ""));
        }
        if !name.is_empty() && names.contains(&name) {
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
        names.insert(name);
        paths.insert(point);
    }
}

const POLICY_OF_RULES: &str = "must specify restartPolicy when restart rules are used";

fn restart_rules(container: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = items(container, "restartPolicyRules");
    let policy = at(container, "restartPolicy").as_str();
    if policy.is_none() && !rules.is_empty() {
        errors.push(Error::required(&path.child("restartPolicy"), POLICY_OF_RULES));
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
        let supported = ["Restart", "RestartAllContainers"];
        if !supported.contains(&action) {
            errors.push(Error::not_supported(&path.child("action"), action, &supported));
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
    if at(container, "restartPolicy").is_null() && !items(container, "restartPolicyRules").is_empty() {
        errors.push(Error::required(&path.child("restartPolicy"), POLICY_OF_RULES));
    } else {
        restart_rules(container, path, errors);
    }
    if text(container, "restartPolicy") == "Always" {
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

fn ephemeral_rules(container: &Value, others: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let target = text(container, "targetContainerName");
    if !target.is_empty() && !others.contains(target) {
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
        // an empty list or map counts as set; the sizes are a struct, whose members count
        let is_set = match at(container, field) {
            Value::Object(sizes) if field == "resources" => sizes.values().any(|value| !value.is_null()),
            value => !value.is_null(),
        };
        if is_set {
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
