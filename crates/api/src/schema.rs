//! What `schemars` needs to make CRD schemas of our types (feature `schema`, used only by `xtask crds`).
//!
//! A field that holds a part of Kubernetes' own API names it with a marker type. Its schema is a reference, which `xtask`
//! replaces with the schema of that part from the table of Kubernetes' types.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Prefix of a reference to a type of Kubernetes' OpenAPI document.
pub const KUBERNETES_REF: &str = "kubernetes:";
/// Prefix of a reference to a schema that `xtask` knows by name.
pub const OWN_REF: &str = "trainyard:";

macro_rules! markers {
    ($($(#[$doc:meta])* $name:ident => $reference:literal,)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "$ref": $reference })
            }
        }
    )*};
}

markers! {
    /// Where the scheduler may place a pod.
    Affinity => "kubernetes:io.k8s.api.core.v1.Affinity",
    /// An environment variable.
    EnvVar => "kubernetes:io.k8s.api.core.v1.EnvVar",
    /// Which objects, by their labels.
    LabelSelector => "kubernetes:io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    /// Names an object of the same namespace.
    LocalObjectReference => "kubernetes:io.k8s.api.core.v1.LocalObjectReference",
    /// A Job's spec and metadata.
    JobTemplateSpec => "kubernetes:io.k8s.api.batch.v1.JobTemplateSpec",
    /// A pod's scheduling gate.
    PodSchedulingGate => "kubernetes:io.k8s.api.core.v1.PodSchedulingGate",
    /// A pod's spec and metadata.
    PodTemplateSpec => "kubernetes:io.k8s.api.core.v1.PodTemplateSpec",
    /// A pod's security context.
    PodSecurityContext => "kubernetes:io.k8s.api.core.v1.PodSecurityContext",
    /// A claim of a volume.
    PersistentVolumeClaim => "kubernetes:io.k8s.api.core.v1.PersistentVolumeClaim",
    /// An amount of a resource.
    Quantity => "kubernetes:io.k8s.apimachinery.pkg.api.resource.Quantity",
    /// Limits and requests.
    ResourceRequirements => "kubernetes:io.k8s.api.core.v1.ResourceRequirements",
    /// A container's security context.
    SecurityContext => "kubernetes:io.k8s.api.core.v1.SecurityContext",
    /// A tolerated taint.
    Toleration => "kubernetes:io.k8s.api.core.v1.Toleration",
    /// A pod's volume.
    Volume => "kubernetes:io.k8s.api.core.v1.Volume",
    /// A mount of a pod's volume.
    VolumeMount => "kubernetes:io.k8s.api.core.v1.VolumeMount",
    /// A condition, with the bounds of Go's `metav1.Condition`.
    Condition => "trainyard:Condition",
    /// Metadata of an object inside a template: name, namespace, labels, annotations, finalizers.
    EmbeddedMeta => "trainyard:EmbeddedMetadata",
    /// The spec of a JobSet.
    JobSetSpec => "trainyard:JobSetSpec",
    /// Metadata of a stored object: the API server knows its fields.
    ObjectMeta => "trainyard:ObjectMeta",
    /// Go's `int`: a whole number without a format.
    PlainInteger => "trainyard:Integer",
    /// A point in time, RFC 3339.
    Time => "trainyard:Time",
}

/// Adds a CEL rule to a schema, after those it has.
fn rule(schema: &mut Schema, rule: &str, message: &str) {
    let added = json!({ "rule": rule, "message": message });
    match schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| json!([])) {
        Value::Array(rules) => rules.push(added),
        other => *other = json!([added]),
    }
}

/// The field cannot be changed once it is set; like upstream's rule, it does not look at additions and removals.
pub fn immutable(schema: &mut Schema) {
    rule(schema, "self == oldSelf", "field is immutable");
}

/// The field cannot be changed once it is set, in JobSet's words.
pub fn value_immutable(schema: &mut Schema) {
    rule(schema, "self == oldSelf", "Value is immutable");
}

/// The bounds of an interval are in order.
pub fn min_below_max(schema: &mut Schema) {
    rule(schema, "double(self.min) < double(self.max)", "min must be strictly less than max");
}

/// The bounds of an interval are in order and above zero.
pub fn positive_min_below_max(schema: &mut Schema) {
    min_below_max(schema);
    rule(schema, "double(self.min) > 0.0", "min must be strictly greater than 0");
}
