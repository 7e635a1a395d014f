//! Values of a wrong type, answered as the decoder of upstream's defaulting webhook answers them: before any schema looks,
//! with Go's names for the types (golden README, quirk 19).

use super::Denial;
use api::quantity::{Quantity, QuantityError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The Go types that a TrainJob decodes into, as far as a client's mistake can reach: `struct: member type, …`. A type is
/// a primitive, `quantity`, `time`, `any` (not looked into), `[]T`, `map[string]T`, or a struct; structs are shown with
/// their package, which stands before the dot.
const TYPES: &str = "
v1alpha1.TrainJob: metadata v1.ObjectMeta, spec v1alpha1.TrainJobSpec, status v1alpha1.TrainJobStatus
v1.ObjectMeta: name string, generateName string, namespace string, labels map[string]string, annotations map[string]string, finalizers []string
v1alpha1.TrainJobSpec: runtimeRef v1alpha1.RuntimeRef, initializer v1alpha1.Initializer, trainer v1alpha1.Trainer, runtimePatches []v1alpha1.RuntimePatch, suspend bool, activeDeadlineSeconds int64, managedBy string
v1alpha1.RuntimeRef: name string, apiGroup string, kind string
v1alpha1.Initializer: dataset v1alpha1.DatasetInitializer, model v1alpha1.ModelInitializer
v1alpha1.DatasetInitializer: storageUri string, env []v1.EnvVar, secretRef v1.LocalObjectReference
v1alpha1.ModelInitializer: storageUri string, env []v1.EnvVar, secretRef v1.LocalObjectReference
v1alpha1.Trainer: image string, command []string, args []string, env []v1.EnvVar, numNodes int32, resourcesPerNode v1.ResourceRequirements, numProcPerNode int32
v1alpha1.RuntimePatch: manager string, time time, trainingRuntimeSpec v1alpha1.TrainingRuntimeSpecPatch
v1alpha1.TrainingRuntimeSpecPatch: template v1alpha1.JobSetTemplatePatch
v1alpha1.JobSetTemplatePatch: metadata v1.ObjectMeta, spec v1alpha1.JobSetSpecPatch
v1alpha1.JobSetSpecPatch: replicatedJobs []v1alpha1.ReplicatedJobPatch
v1alpha1.ReplicatedJobPatch: name string, template v1alpha1.JobTemplatePatch
v1alpha1.JobTemplatePatch: metadata v1.ObjectMeta, spec v1alpha1.JobSpecPatch
v1alpha1.JobSpecPatch: template v1alpha1.PodTemplatePatch
v1alpha1.PodTemplatePatch: metadata v1.ObjectMeta, spec v1alpha1.PodSpecPatch
v1alpha1.PodSpecPatch: serviceAccountName string, nodeSelector map[string]string, affinity v1.Affinity, tolerations []v1.Toleration, volumes []v1.Volume, initContainers []v1alpha1.ContainerPatch, containers []v1alpha1.ContainerPatch, imagePullSecrets []v1.LocalObjectReference, securityContext v1.PodSecurityContext, schedulingGates []v1.PodSchedulingGate, terminationGracePeriodSeconds int64
v1alpha1.ContainerPatch: name string, env []v1.EnvVar, volumeMounts []v1.VolumeMount, securityContext v1.SecurityContext
v1alpha1.TrainJobStatus: 
v1.LocalObjectReference: name string
v1.PodSchedulingGate: name string
v1.EnvVar: name string, value string, valueFrom v1.EnvVarSource
v1.EnvVarSource: fieldRef v1.ObjectFieldSelector, resourceFieldRef v1.ResourceFieldSelector, configMapKeyRef v1.ConfigMapKeySelector, secretKeyRef v1.SecretKeySelector, fileKeyRef v1.FileKeySelector
v1.ObjectFieldSelector: apiVersion string, fieldPath string
v1.ResourceFieldSelector: containerName string, resource string, divisor quantity
v1.ConfigMapKeySelector: name string, key string, optional bool
v1.SecretKeySelector: name string, key string, optional bool
v1.FileKeySelector: volumeName string, path string, key string, optional bool
v1.ResourceRequirements: limits map[string]quantity, requests map[string]quantity, claims []v1.ResourceClaim
v1.ResourceClaim: name string, request string
v1.Toleration: key string, operator string, value string, effect string, tolerationSeconds int64
v1.VolumeMount: name string, readOnly bool, recursiveReadOnly string, mountPath string, subPath string, mountPropagation string, subPathExpr string
v1.Volume: name string, hostPath v1.HostPathVolumeSource, emptyDir v1.EmptyDirVolumeSource, secret v1.SecretVolumeSource, configMap v1.ConfigMapVolumeSource, persistentVolumeClaim v1.PersistentVolumeClaimVolumeSource
v1.HostPathVolumeSource: path string, type string
v1.EmptyDirVolumeSource: medium string, sizeLimit quantity
v1.SecretVolumeSource: secretName string, items []v1.KeyToPath, defaultMode int32, optional bool
v1.ConfigMapVolumeSource: name string, items []v1.KeyToPath, defaultMode int32, optional bool
v1.PersistentVolumeClaimVolumeSource: claimName string, readOnly bool
v1.KeyToPath: key string, path string, mode int32
v1.PodSecurityContext: runAsUser int64, runAsGroup int64, runAsNonRoot bool, supplementalGroups []int64, fsGroup int64, fsGroupChangePolicy string
v1.SecurityContext: privileged bool, runAsUser int64, runAsGroup int64, runAsNonRoot bool, readOnlyRootFilesystem bool, allowPrivilegeEscalation bool
v1.Affinity: nodeAffinity v1.NodeAffinity, podAffinity v1.PodAffinity, podAntiAffinity v1.PodAntiAffinity
v1.NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution v1.NodeSelector, preferredDuringSchedulingIgnoredDuringExecution []v1.PreferredSchedulingTerm
v1.NodeSelector: nodeSelectorTerms []v1.NodeSelectorTerm
v1.NodeSelectorTerm: matchExpressions []v1.NodeSelectorRequirement, matchFields []v1.NodeSelectorRequirement
v1.NodeSelectorRequirement: key string, operator string, values []string
v1.PreferredSchedulingTerm: weight int32, preference v1.NodeSelectorTerm
v1.PodAffinity: 
v1.PodAntiAffinity: 
";

type Members = BTreeMap<&'static str, &'static str>;

static STRUCTS: LazyLock<BTreeMap<&'static str, Members>> = LazyLock::new(|| {
    let lines = TYPES.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(name, members)| (name, members.split(", ").filter_map(|m| m.split_once(' ')).collect())).collect()
});

/// The form of times in Go's words.
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// Why a value cannot be decoded, in the words of Go's decoder.
#[derive(Debug, thiserror::Error)]
enum DecodeError {
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}", layout = LAYOUT)]
    TimeForm { text: String, rest: String, part: &'static str },
    #[error("parsing time {text:?}: {what} out of range")]
    TimeRange { text: String, what: &'static str },
    #[error("parsing time {text:?}: extra text: {rest:?}")]
    TimeEnd { text: String, rest: String },
    #[error("json: cannot unmarshal {shown} into Go struct field {holder}.{path} of type {kind}")]
    Mismatch { shown: String, holder: &'static str, path: String, kind: String },
}

/// Checks that a TrainJob's members have the types they are decoded into.
pub fn decode_trainjob(object: &Value) -> Result<(), Denial> {
    let mut walk = Walk { path: Vec::new(), holder: "", first: None };
    // A quantity or time that cannot be read ends decoding at once; a plain mismatch is kept, and the first one is reported.
    let decoded = walk.value(object, "v1alpha1.TrainJob");
    decoded.and(walk.first.map_or(Ok(()), Err)).map_err(|error| Denial::Undecodable(error.to_string()))
}

struct Walk {
    path: Vec<String>,
    /// The struct that holds the member, without its package.
    holder: &'static str,
    first: Option<DecodeError>,
}

impl Walk {
    fn value(&mut self, value: &Value, kind: &'static str) -> Result<(), DecodeError> {
        if value.is_null() {
            return Ok(());
        }
        if let Some(items) = kind.strip_prefix("[]") {
            match value {
                Value::Array(values) => values.iter().try_for_each(|value| self.value(value, items))?,
                _ => self.mismatch(value, kind),
            }
        } else if let Some(values) = kind.strip_prefix("map[string]") {
            match value {
                Value::Object(members) => members.values().try_for_each(|value| self.value(value, values))?,
                _ => self.mismatch(value, kind),
            }
        } else if let Some(members) = STRUCTS.get(kind) {
            let Value::Object(values) = value else {
                self.mismatch(value, kind);
                return Ok(());
            };
            let outer = self.holder;
            for (name, value) in values {
                let Some(member) = members.get(name.as_str()) else { continue };
                self.holder = short(kind);
                self.path.push(name.clone());
                let result = self.value(value, member);
                self.path.pop();
                result?;
            }
            self.holder = outer;
        } else {
            self.scalar(value, kind)?;
        }
        Ok(())
    }

    fn scalar(&mut self, value: &Value, kind: &'static str) -> Result<(), DecodeError> {
        let fits = match kind {
            "string" => value.is_string(),
            "bool" => value.is_boolean(),
            "int32" => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            "int64" => value.as_i64().is_some(),
            "quantity" => {
                let text = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                return Ok(Quantity::parse(&text).map(drop)?);
            }
            "time" => match value {
                Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => true,
                Value::String(text) => return Err(unparsable_time(text)),
                // Decoded as a string first, which counts as a plain mismatch with an end to it.
                other => {
                    self.mismatch(other, "string");
                    return self.first.take().map_or(Ok(()), Err);
                }
            },
            _ => true,
        };
        if !fits {
            self.mismatch(value, kind);
        }
        Ok(())
    }

    fn mismatch(&mut self, value: &Value, kind: &str) {
        let shown = match value {
            Value::Number(number) if kind.starts_with("int") => format!("number {number}"),
            other => go_kind(other).to_owned(),
        };
        let kind =
            kind.replace("quantity", "resource.Quantity").replace("map[string]resource.Quantity", "v1.ResourceList");
        let error = DecodeError::Mismatch { shown, holder: self.holder, path: self.path.join("."), kind };
        self.first.get_or_insert(error);
    }
}

fn short(name: &'static str) -> &'static str {
    name.split_once('.').map_or(name, |(_, short)| short)
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's words for a time that is not RFC 3339: where it went wrong, and what was expected there.
fn unparsable_time(text: &str) -> DecodeError {
    const PARTS: [(&str, usize); 12] = [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
        ("Z07:00", 0),
    ];
    let mut rest = text;
    for (part, digits) in PARTS {
        let head = rest.get(..digits.max(part.len().min(1)));
        let fits = match (digits, head) {
            (0, Some(head)) => head == &part[..1],
            (_, Some(head)) => head.bytes().all(|b| b.is_ascii_digit()),
            (_, None) => false,
        };
        if !fits {
            return DecodeError::TimeForm { text: text.to_owned(), rest: rest.to_owned(), part };
        }
        rest = if part.starts_with('Z') { rest } else { &rest[digits.max(1)..] };
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or_default();
    let bounds = [
        ("month", 5..7, 1..=12),
        ("day", 8..10, 1..=31),
        ("hour", 11..13, 0..=23),
        ("minute", 14..16, 0..=59),
        ("second", 17..19, 0..=59),
    ];
    let unfit = bounds.into_iter().find(|(_, at, allowed)| !allowed.contains(&number(at.clone())));
    let text = text.to_owned();
    match unfit {
        Some((what, ..)) => DecodeError::TimeRange { text, what },
        // A day that the month does not have, or something after the end.
        None if rest == "Z" => DecodeError::TimeRange { text, what: "day" },
        None => DecodeError::TimeEnd { rest: rest.trim_start_matches('Z').to_owned(), text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mismatches_read_like_go() {
        let field = |holder: &str, path: &str, what: &str, kind: &str| {
            format!("json: cannot unmarshal {what} into Go struct field {holder}.{path} of type {kind}")
        };
        let quantity = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        let cases = [
            (json!({"trainer": {"numNodes": "two"}}), field("Trainer", "spec.trainer.numNodes", "string", "int32")),
            (json!({"trainer": {"numNodes": 1.5}}), field("Trainer", "spec.trainer.numNodes", "number 1.5", "int32")),
            (json!({"trainer": {"command": "x"}}), field("Trainer", "spec.trainer.command", "string", "[]string")),
            (json!({"trainer": {"command": [1]}}), field("Trainer", "spec.trainer.command", "number", "string")),
            (
                json!({"trainer": {"env": [{"name": "A", "value": 1}]}}),
                field("EnvVar", "spec.trainer.env.value", "number", "string"),
            ),
            (json!({"suspend": "yes"}), field("TrainJobSpec", "spec.suspend", "string", "bool")),
            (json!({"trainer": []}), field("TrainJobSpec", "spec.trainer", "array", "v1alpha1.Trainer")),
            (
                json!({"trainer": {"numNodes": "a", "resourcesPerNode": {"limits": {"cpu": "four"}}}}),
                quantity.to_owned(),
            ),
            (
                json!({"runtimePatches": [{"manager": "a.io/b", "time": 5}]}),
                field("RuntimePatch", "spec.runtimePatches.time", "number", "string"),
            ),
            (
                json!({"runtimePatches": [{"manager": "a.io/b", "time": "2026-13-01T00:00:00Z"}]}),
                "parsing time \"2026-13-01T00:00:00Z\": month out of range".to_owned(),
            ),
            (
                json!({"runtimePatches": [{"manager": "a.io/b", "time": "soon"}]}),
                "parsing time \"soon\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"soon\" as \"2006\"".to_owned(),
            ),
        ];
        for (spec, expected) in cases {
            let denial = decode_trainjob(&json!({"spec": spec})).expect_err("the case is malformed");
            assert_eq!(denial, Denial::Undecodable(expected));
        }
        assert_eq!(
            decode_trainjob(&json!({"spec": {"trainer": {"numNodes": 2, "unknown": []}, "suspend": null}})),
            Ok(())
        );
    }
}
