//! The types of what expressions of admission policies know of a request, beside its objects
//! (`k8s.io/apiserver/pkg/admission/plugin/cel`, `compile.go`).

use crate::schema::{Schema, Type};
use std::sync::{Arc, LazyLock};

fn of(kind: Type) -> Arc<Schema> {
    Arc::new(Schema { kind, ..Default::default() })
}

fn text() -> Arc<Schema> {
    of(Type::String)
}

fn time() -> Arc<Schema> {
    Arc::new(Schema { kind: Type::String, format: Some("date-time".to_owned()), ..Default::default() })
}

fn list(items: Arc<Schema>) -> Arc<Schema> {
    Arc::new(Schema { kind: Type::Array, items: Some(items), ..Default::default() })
}

fn map(values: Arc<Schema>) -> Arc<Schema> {
    Arc::new(Schema { kind: Type::Object, additional: Some(values), ..Default::default() })
}

fn structure(name: &'static str, fields: Vec<(&str, Arc<Schema>)>) -> Schema {
    let properties = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    Schema { kind: Type::Object, go: Some(name), properties, ..Default::default() }
}

/// `request`.
pub(super) static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    // one type stands at several places
    let kind = Arc::new(structure(
        "kubernetes.GroupVersionKind",
        vec![("group", text()), ("version", text()), ("kind", text())],
    ));
    let resource = Arc::new(structure(
        "kubernetes.GroupVersionResource",
        vec![("group", text()), ("version", text()), ("resource", text())],
    ));
    let user = structure(
        "kubernetes.UserInfo",
        vec![("username", text()), ("uid", text()), ("groups", list(text())), ("extra", map(list(text())))],
    );
    structure(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", Arc::new(user)),
            ("dryRun", of(Type::Boolean)),
            ("options", of(Type::IntOrString)),
        ],
    )
});

/// `namespaceObject`.
pub(super) static NAMESPACE: LazyLock<Schema> = LazyLock::new(|| {
    let metadata = structure(
        "kubernetes.NamespaceMetadata",
        vec![
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", of(Type::Integer)),
            ("deletionTimestamp", time()),
            ("generation", of(Type::Integer)),
            ("resourceVersion", text()),
            ("finalizers", list(text())),
        ],
    );
    let condition = structure(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status =
        structure("kubernetes.NamespaceStatus", vec![("conditions", list(Arc::new(condition))), ("phase", text())]);
    let spec = structure("kubernetes.NamespaceSpec", vec![("finalizers", list(text()))]);
    structure(
        "kubernetes.Namespace",
        vec![("metadata", Arc::new(metadata)), ("spec", Arc::new(spec)), ("status", Arc::new(status))],
    )
});
