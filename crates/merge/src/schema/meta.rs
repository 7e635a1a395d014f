//! The schema of `metadata` (`io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`), which every object has.

use super::{ListType, PatchStrategy, Schema, Type};
use std::sync::{Arc, LazyLock};

fn scalar(kind: Type) -> Schema {
    Schema { kind, ..<Schema as Default>::default() }
}

fn formatted(kind: Type, format: &str) -> Schema {
    Schema { format: Some(format.to_owned()), ..scalar(kind) }
}

fn object<'a>(properties: impl IntoIterator<Item = (&'a str, Schema)>) -> Schema {
    Schema {
        properties: properties.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect(),
        ..scalar(Type::Object)
    }
}

fn list(items: Schema, list_type: ListType) -> Schema {
    Schema { items: Some(Arc::new(items)), list_type, ..scalar(Type::Array) }
}

static OBJECT_META: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let text = || scalar(Type::String);
    let time = || Schema { nullable: true, ..formatted(Type::String, "date-time") };
    let texts = || Schema { additional: Some(Arc::new(text())), ..scalar(Type::Object) };
    let fields = Schema { preserve_unknown: true, ..scalar(Type::Object) };
    let managed = object([
        ("apiVersion", text()),
        ("fieldsType", text()),
        ("fieldsV1", fields),
        ("manager", text()),
        ("operation", text()),
        ("subresource", text()),
        ("time", time()),
    ]);
    let owner = Schema {
        atomic_map: true,
        ..object([
            ("apiVersion", text()),
            ("blockOwnerDeletion", scalar(Type::Boolean)),
            ("controller", scalar(Type::Boolean)),
            ("kind", text()),
            ("name", text()),
            ("uid", text()),
        ])
    };
    let merged = |merge_key: Option<&str>| PatchStrategy {
        merge: true,
        merge_key: merge_key.map(str::to_owned),
        ..PatchStrategy::default()
    };
    Arc::new(object([
        ("annotations", texts()),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", formatted(Type::Integer, "int64")),
        ("deletionTimestamp", time()),
        ("finalizers", Schema { patch: merged(None), ..list(text(), ListType::Set) }),
        ("generateName", text()),
        ("generation", formatted(Type::Integer, "int64")),
        ("labels", texts()),
        ("managedFields", list(managed, ListType::Atomic)),
        ("name", text()),
        ("namespace", text()),
        (
            "ownerReferences",
            Schema { patch: merged(Some("uid")), ..list(owner, ListType::Map(vec!["uid".to_owned()])) },
        ),
        ("resourceVersion", text()),
        ("selfLink", text()),
        ("uid", text()),
    ]))
});

/// The schema of `metadata`, shared.
pub fn object_meta() -> Arc<Schema> {
    OBJECT_META.clone()
}
