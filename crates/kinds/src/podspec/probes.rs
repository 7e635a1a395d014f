//! Validation of a container's probes and of the handlers of its life cycle.

use super::containers::Scene;
use crate::kit::{at, int, items, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use serde_json::Value;

fn nonnegative(object: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let value = int(object, field).unwrap_or_default();
    if value < 0 {
        errors.push(Error::invalid(&path.child(field), value, "must be greater than or equal to 0"));
    }
}

pub(super) fn probes(container: &Value, scene: &Scene<'_>, path: &Path, errors: &mut ErrorList) {
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
