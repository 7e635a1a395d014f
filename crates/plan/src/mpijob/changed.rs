//! Whether the launcher's Job, which was made while its MPIJob was suspended, still is what the MPIJob asks for.

use super::Settings;
use super::children;
use api::mpi::MpiJob;
use api::object::Key;
use serde_json::Value;

/// Members that the API server fills in where a pod template, or the template of a Job, does not have them.
const FILLED_IN: [&str; 33] = [
    "apiVersion",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "creationTimestamp",
    "defaultMode",
    "divisor",
    "dnsPolicy",
    "enableServiceLinks",
    "failureThreshold",
    "imagePullPolicy",
    "initialDelaySeconds",
    "job-name",
    "optional",
    "periodSeconds",
    "preemptionPolicy",
    "priority",
    "protocol",
    "readOnly",
    "requests",
    "restartPolicy",
    "schedulerName",
    "scheme",
    "securityContext",
    "serviceAccount",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "timeoutSeconds",
    "tolerations",
    "type",
    "volumeMode",
];

/// Whether a launcher that has never started differs in more than scheduling directives, which a resumption brings up to date. Such a
/// Job is made anew (mpi-operator#687); upstream starts what it made first.
pub(super) fn is_outdated(held: &Value, job: &MpiJob, key: &Key, uid: &str, settings: &Settings) -> bool {
    let status = &held["status"];
    let has_started = ["startTime", "active", "succeeded", "failed"]
        .iter()
        .any(|member| status.get(*member).is_some_and(|value| !value.is_null() && value.as_i64() != Some(0)));
    let wanted = children::launcher_job(job, key, uid, settings);
    !has_started && !says(&held["spec"]["template"]["spec"], &wanted["spec"]["template"]["spec"], true)
}

/// Whether a held value is what was asked for, with what the API server fills in.
fn says(held: &Value, wanted: &Value, is_pod: bool) -> bool {
    match (held, wanted) {
        (Value::Object(held), Value::Object(wanted)) => {
            // a resumption writes these
            let is_aligned =
                |member: &str| is_pod && matches!(member, "nodeSelector" | "tolerations" | "schedulingGates");
            let is_expected = |member: &str, value: &Value| {
                wanted.contains_key(member) || FILLED_IN.contains(&member) || is_aligned(member) || is_empty(value)
            };
            let is_held = |member: &str, wanted: &Value| {
                is_aligned(member) || says(held.get(member).unwrap_or(&Value::Null), wanted, false)
            };
            wanted.iter().all(|(member, wanted)| is_held(member, wanted))
                && held.iter().all(|(member, value)| is_expected(member, value))
        }
        (Value::Array(held), Value::Array(wanted)) => {
            held.len() == wanted.len() && held.iter().zip(wanted).all(|(held, wanted)| says(held, wanted, false))
        }
        (held, wanted) if is_empty(held) && is_empty(wanted) => true,
        // quantities and numbers may be written in other ways
        (held, wanted) => held == wanted || quantity(held).is_some_and(|held| Some(held) == quantity(wanted)),
    }
}

fn quantity(value: &Value) -> Option<api::quantity::Quantity> {
    api::quantity::Quantity::from_json(value).ok()
}

/// Nothing, in whichever form.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_fills_in_is_no_change() {
        let wanted = json!({"containers": [{"name": "l", "image": "i", "command": ["a"], "resources": {"limits": {"cpu": "1000m"}}}],
            "hostname": "h", "nodeSelector": {"a": "b"}});
        let mut held = wanted.clone();
        held["containers"][0]["resources"]["limits"]["cpu"] = json!("1");
        held["containers"][0]["resources"]["requests"] = json!({"cpu": "1"});
        held["containers"][0]["imagePullPolicy"] = json!("Always");
        held["dnsPolicy"] = json!("ClusterFirst");
        held["securityContext"] = json!({});
        held["containers"][0]["ports"] = json!([]);
        held["nodeSelector"] = json!({"other": "x"});
        assert!(says(&held, &wanted, true));
        for (path, value) in [
            ("/containers/0/command", json!(["b"])),
            ("/containers/0/image", json!("j")),
            ("/containers/0/resources/limits/cpu", json!("2")),
            ("/hostname", json!("other")),
        ] {
            let mut changed = wanted.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(!says(&held, &changed, true), "{path}");
        }
        let mut fewer = wanted.clone();
        fewer["containers"][0].as_object_mut().unwrap().remove("resources");
        assert!(!says(&held, &fewer, true), "limits were taken away");
    }
}
