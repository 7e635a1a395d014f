//! How a runtime patch merges into a JobSet's spec: the lists of the patchable part that merge by key.
//!
//! Every list that is not named here is replaced as a whole, every object merges member by member. The keys are those of
//! Kubernetes' and JobSet's Go types, which strategic merge patch goes by; not those of the CRDs, which differ for mounts.

use merge::schema::{PatchStrategy, Schema, Type};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The schema of a JobSet's spec, as far as patches reach into it.
pub fn jobset_spec() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(build);
    &SCHEMA
}

fn build() -> Schema {
    let container = || {
        object([
            ("env", keyed("name", leaf(Type::Object))),
            // Q-02 (kept): the CRD keys mounts by name, the merge by path.
            ("volumeMounts", keyed("mountPath", leaf(Type::Object))),
            ("securityContext", leaf(Type::Object)),
        ])
    };
    let mut volumes = keyed("name", leaf(Type::Object));
    volumes.patch.retain_keys = true;
    let pod = object([
        ("containers", keyed("name", container())),
        ("initContainers", keyed("name", container())),
        ("volumes", volumes),
        ("imagePullSecrets", keyed("name", leaf(Type::Object))),
        ("schedulingGates", keyed("name", leaf(Type::Object))),
        ("tolerations", list(leaf(Type::Object))),
        ("nodeSelector", map()),
        ("affinity", leaf(Type::Object)),
        ("securityContext", leaf(Type::Object)),
        ("serviceAccountName", leaf(Type::String)),
        ("terminationGracePeriodSeconds", leaf(Type::Integer)),
    ]);
    let pods = object([("metadata", metadata()), ("spec", pod)]);
    let job = object([("metadata", metadata()), ("spec", object([("template", pods)]))]);
    object([("replicatedJobs", keyed("name", object([("template", job)])))])
}

fn metadata() -> Schema {
    let mut finalizers = list(leaf(Type::String));
    finalizers.patch = PatchStrategy { merge: true, ..PatchStrategy::default() };
    object([("labels", map()), ("annotations", map()), ("finalizers", finalizers)])
}

fn leaf(kind: Type) -> Schema {
    Schema { kind, preserve_unknown: true, ..Default::default() }
}

fn map() -> Schema {
    Schema { kind: Type::Object, additional: Some(Arc::new(leaf(Type::String))), ..Default::default() }
}

fn object<const N: usize>(properties: [(&str, Schema); N]) -> Schema {
    let properties: BTreeMap<_, _> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect();
    Schema { kind: Type::Object, properties, preserve_unknown: true, ..Default::default() }
}

fn list(items: Schema) -> Schema {
    Schema { kind: Type::Array, items: Some(Arc::new(items)), ..Default::default() }
}

fn keyed(key: &str, items: Schema) -> Schema {
    let patch = PatchStrategy { merge: true, merge_key: Some(key.to_owned()), ..PatchStrategy::default() };
    Schema { patch, ..list(items) }
}
