//! The catalog of served kinds, and the conversion of stored objects into each of their versions.

use super::Object;
use api::field::{Error, Path};
use bytes::Bytes;
use futures::future::BoxFuture;
use merge::apply::{Schemas, Versions, Writer};
use merge::builtin::{DecodeError, OBJECT_META};
use merge::schema::Schema;
use objects::packed::Packed;
use resource::Resource;
use resource::admission::Objects;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use store::{Entry, Revision};
use tokio_util::sync::CancellationToken;

/// Name of the store's bucket for a kind.
pub(crate) fn bucket(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// What a custom resource has beyond other kinds.
pub struct Custom {
    /// `metadata.uid` and `metadata.generation` of the definition.
    pub uid: String,
    pub generation: i64,
    /// `status.acceptedNames` of the definition.
    pub accepted: Value,
    /// `openAPIV3Schema` of this version, as JSON: a part of the definition's text. Its tree would take ten times as much, and is read
    /// once at most.
    pub openapi: Bytes,
    /// The version in which objects are stored, and whether it is served.
    pub storage_version: String,
    pub serves_storage_version: bool,
    /// The schemas of all versions of the definition, served or not, by name; each is built at first use.
    pub schemas: BTreeMap<String, (Bytes, OnceLock<Arc<Schema>>)>,
    /// What clients of this version are told, where it is deprecated.
    pub deprecation: Option<String>,
    /// The definition is being deleted: nothing new may be made.
    pub terminating: bool,
    /// Fires when the kind is no longer served like this; its watches end.
    pub ended: CancellationToken,
    /// `spec.selectableFields` of this version: JSON paths.
    pub selectable: Vec<String>,
    /// `subresources.scale` of this version.
    pub scale: Option<Value>,
    pub has_status: bool,
    /// Objects written before this revision may lack defaults of the present schema, or hold fields it does not know.
    pub fresh_from: Revision,
}

/// Objects that are made when somebody asks for them, and never stored.
pub trait Live: Send + Sync {
    /// Those in a namespace (empty: in all), by namespace and name. `stored`: what they may be made from.
    fn objects(&self, stored: &dyn Objects, namespace: &str) -> BoxFuture<'static, Vec<Value>>;
}

/// A kind in one version, as the server serves it.
pub struct Served {
    pub resource: Resource,
    pub bucket: Arc<str>,
    pub custom: Option<Custom>,
    /// Where the objects come from, if not from the store.
    pub live: Option<Arc<dyn Live>>,
    schema: OnceLock<Arc<Schema>>,
    /// What the text of objects of this version begins with.
    lead: String,
}

/// As [`crate::wire`] begins.
fn lead(resource: &Resource) -> String {
    let version = Value::from(api_version(resource));
    if resource.custom {
        format!("{{\"apiVersion\":{version}")
    } else {
        format!("{{\"kind\":{},\"apiVersion\":{version}", Value::from(&*resource.kind))
    }
}

fn api_version(Resource { group, version, .. }: &Resource) -> String {
    if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
}

impl Versions for Served {
    /// `None` also for a kind that no definition makes.
    fn schema_in(&self, api_version: &str) -> Option<Arc<Schema>> {
        let custom = self.custom.as_ref()?;
        let (group, version) = api_version.rsplit_once('/')?;
        if group != self.resource.group {
            return None;
        }
        self.schema_of(custom, version).cloned()
    }
}

impl Served {
    pub fn builtin(resource: Resource) -> Self {
        let bucket = match resource.facts.storage {
            Some(storage) => bucket(storage.group, storage.plural),
            None => bucket(&resource.group, &resource.plural),
        };
        let schema = OnceLock::from(resource.schema.clone());
        Self { bucket: bucket.into(), custom: None, live: None, schema, lead: lead(&resource), resource }
    }

    pub fn live(resource: Resource, live: Arc<dyn Live>) -> Self {
        Self { live: Some(live), ..Self::builtin(resource) }
    }

    pub fn custom(resource: Resource, custom: Custom) -> Self {
        let bucket = bucket(&resource.group, &resource.plural).into();
        let lead = lead(&resource);
        Self { bucket, custom: Some(custom), live: None, schema: OnceLock::new(), lead, resource }
    }

    /// The paths of the scale subresource, where there is one.
    pub fn scale(&self) -> Option<Value> {
        match &self.custom {
            Some(custom) => custom.scale.clone(),
            None => self
                .resource
                .facts
                .scale
                .map(|_| json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"})),
        }
    }

    /// The whole object's schema; a custom resource's is built at first use.
    pub fn schema(&self) -> &Arc<Schema> {
        self.schema.get_or_init(|| match &self.custom {
            Some(custom) => crate::crd::schema_of(&custom.openapi),
            None => self.resource.schema.clone(),
        })
    }

    pub fn api_version(&self) -> String {
        api_version(&self.resource)
    }

    /// Whether this is the version in which objects are stored.
    fn is_storage_version(&self, custom: &Custom) -> bool {
        self.resource.version == custom.storage_version
    }

    /// The group that the store knows the kind by, which another group may share.
    pub(crate) fn storage_group(&self) -> &str {
        self.bucket.split_once('/').map_or("", |(group, _)| group)
    }

    fn storage_schema<'a>(&'a self, custom: &'a Custom) -> &'a Arc<Schema> {
        self.schema_of(custom, &custom.storage_version).unwrap_or_else(|| self.schema())
    }

    /// The schema of a version of a custom resource.
    fn schema_of<'a>(&'a self, custom: &'a Custom, version: &str) -> Option<&'a Arc<Schema>> {
        if version == self.resource.version {
            return Some(self.schema());
        }
        let (openapi, schema) = custom.schemas.get(version)?;
        Some(schema.get_or_init(|| crate::crd::schema_of(openapi)))
    }

    /// The schemas for server-side apply.
    pub(crate) fn schemas(&self) -> Schemas<'_> {
        match &self.custom {
            Some(_) => Schemas::by_version(self.schema(), self),
            None => Schemas::from(self.schema()),
        }
    }

    /// Gives `work` what managed fields say of who writes what. `subresource`: empty for the object itself.
    pub(crate) fn as_writer<T>(&self, manager: &str, subresource: &str, work: impl FnOnce(&Writer<'_>) -> T) -> T {
        let (api_version, kind) = (self.api_version(), &self.resource.kind);
        let ignored = self.resource.strategy.ignored(subresource);
        work(&Writer { manager, api_version: &api_version, kind, subresource, ignored: &ignored })
    }

    /// Reads a value as Go would read the kind, metadata and all.
    ///
    /// # Errors
    /// Go's words.
    pub(crate) fn decode(&self, value: &mut Value) -> Result<(), ReadError> {
        match self.resource.type_name {
            Some(name) => Ok(merge::builtin::decode(name, value)?),
            None => {
                if let Some(meta) = value.get_mut("metadata").filter(|meta| !meta.is_null()) {
                    merge::builtin::decode(OBJECT_META, meta)?;
                }
                if self.is_other_kind(value) { Ok(()) } else { embedded(self.schema(), value, "", true) }
            }
        }
    }

    /// Whether a custom resource says that it is of another kind: the schema is not its, until it is refused for that.
    pub(crate) fn is_other_kind(&self, value: &Value) -> bool {
        self.custom.is_some() && api::object::text(value, "kind") != self.resource.kind
    }

    /// Drops what the kind does not know, and returns the paths dropped.
    pub(crate) fn prune(&self, value: &mut Value) -> Vec<String> {
        if self.is_other_kind(value) {
            let unknown = value.get_mut("metadata").map(|meta| merge::schema::object_meta().prune(meta));
            return unknown.into_iter().flatten().map(|path| format!("metadata.{path}")).collect();
        }
        if self.custom.is_some() {
            return self.schema().prune_sent(value);
        }
        let mut dropped = self.schema().prune(value);
        if let Some(name) = self.resource.type_name {
            dropped.extend(merge::builtin::prune_schemas(name, value));
            // metadata is part of a built-in type like the rest
            dropped.sort();
        }
        dropped
    }

    /// Brings a value into the form in which Go writes the kind.
    pub(crate) fn normalize(&self, value: &mut Value) {
        match self.resource.type_name {
            Some(name) => merge::builtin::normalize(name, value),
            None => {
                if let Some(meta) = value.get_mut("metadata") {
                    merge::builtin::normalize(OBJECT_META, meta);
                }
            }
        }
    }

    fn foreign(&self) -> bool {
        self.resource.facts.storage.is_some()
    }

    /// A stored object as this version shows it.
    pub fn present(&self, entry: &Arc<Entry>) -> Object {
        let stale = self.custom.as_ref().is_some_and(|c| entry.revision < c.fresh_from);
        if !stale && !self.foreign() && self.is_of_this_version(entry) {
            return Object::Stored(entry.clone());
        }
        let mut value = (*entry.value()).clone();
        self.shape(&mut value);
        Object::Made(Arc::new(value))
    }

    /// A stored object's value as this version shows it.
    pub(crate) fn present_value(&self, entry: &Arc<Entry>) -> Arc<Value> {
        match self.present(entry) {
            Object::Stored(entry) => entry.value(),
            Object::Made(value) => value,
        }
    }

    /// A stored object as this version shows it, as it is kept.
    pub(crate) fn packed(&self, entry: &Arc<Entry>) -> Arc<Packed> {
        self.present(entry).packed(self.resource.custom)
    }

    /// Whether an object is stored in this version. Its text says so at its beginning, as the server writes it.
    fn is_of_this_version(&self, entry: &Entry) -> bool {
        let text = entry.bytes();
        let rest = text.strip_prefix(self.lead.as_bytes());
        match rest.and_then(|rest| rest.first()) {
            Some(b',' | b'}') => true,
            _ => api::object::text(&entry.value(), "apiVersion") == self.api_version(),
        }
    }

    fn shape(&self, value: &mut Value) {
        if let Some(storage) = &self.resource.facts.storage {
            (storage.to_shape)(value);
        }
        value["apiVersion"] = self.api_version().into();
        value["kind"] = self.resource.kind.clone().into();
        if let Some(custom) = &self.custom {
            let storage = self.storage_schema(custom);
            storage.prune(value);
            storage.default(value);
            if !self.is_storage_version(custom) {
                // Only what this version knows is shown.
                self.schema().prune(value);
            }
        }
    }

    /// An object of this version as it is stored.
    pub(crate) fn to_storage(&self, value: &mut Value) {
        if let Some(storage) = &self.resource.facts.storage {
            (storage.to_storage)(value);
        }
        if let Some(custom) = &self.custom {
            if !self.is_storage_version(custom) {
                let storage = self.storage_schema(custom);
                storage.prune(value);
                storage.default(value);
            }
            value["apiVersion"] = format!("{}/{}", self.resource.group, custom.storage_version).into();
        }
    }

    /// A trial stores nothing, and is answered with what would have been read of what would have been stored.
    pub(crate) fn through_storage(&self, value: &mut Value) {
        if self.custom.as_ref().is_some_and(|custom| !self.is_storage_version(custom)) {
            self.to_storage(value);
            self.shape(value);
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&resource::Subresource> {
        self.resource.subresources.iter().find(|s| s.name == name)
    }
}

/// Why a value is not of a served kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The type of an object within.
    #[error("{0}")]
    EmbeddedType(Error),
    /// The metadata of an object within.
    #[error("{path}.metadata: Invalid value: {shown}: {why}")]
    EmbeddedMeta { path: String, shown: String, why: DecodeError },
}

/// Reads the type and metadata of objects inside a custom resource (`x-kubernetes-embedded-resource`) as Go does.
fn embedded(schema: &Schema, value: &mut Value, path: &str, root: bool) -> Result<(), ReadError> {
    match value {
        Value::Object(members) => {
            if schema.embedded && !root {
                for name in ["apiVersion", "kind"] {
                    if let Some(value) = members.get(name).filter(|value| !value.is_string()) {
                        let at = Path::new(path).child(name);
                        return Err(ReadError::EmbeddedType(Error::invalid(&at, value.clone(), "must be a string")));
                    }
                }
                if let Some(meta) = members.get_mut("metadata").filter(|meta| meta.is_null()) {
                    // a null that the schema does not drop says that there is metadata, with nothing in it
                    let stated = schema.properties.get("metadata");
                    if stated.is_none_or(|stated| Arc::ptr_eq(stated, &merge::schema::object_meta())) {
                        *meta = serde_json::json!({});
                    }
                } else if let Some(meta) = members.get_mut("metadata") {
                    let shown = meta.to_string();
                    merge::builtin::decode(OBJECT_META, meta).map_err(|why| ReadError::EmbeddedMeta {
                        path: path.to_owned(),
                        shown,
                        why,
                    })?;
                }
            }
            for (key, member) in members.iter_mut() {
                if let Some(schema) = schema.properties.get(key).or(schema.additional.as_ref()) {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    embedded(schema, member, &path, false)?;
                }
            }
            Ok(())
        }
        Value::Array(elements) => {
            let Some(items) = &schema.items else { return Ok(()) };
            elements
                .iter_mut()
                .enumerate()
                .try_for_each(|(i, element)| embedded(items, element, &format!("{path}[{i}]"), false))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// All kinds served, by group, version and plural.
#[derive(Clone, Default)]
pub struct Catalog {
    pub kinds: BTreeMap<(String, String, String), Arc<Served>>,
    /// Order of groups in discovery; those not named follow by name.
    pub groups: Vec<String>,
}

impl Catalog {
    /// The kind of an object, by its `apiVersion` and `kind`.
    pub(crate) fn kind_of(&self, object: &Value) -> Option<&Arc<Served>> {
        let gvk = api::object::Gvk::of(object);
        self.kinds.values().find(|served| {
            let resource = &served.resource;
            resource.group == gvk.group && resource.version == gvk.version && resource.kind == gvk.kind
        })
    }

    pub fn add(&mut self, served: Served) {
        let Resource { group, version, plural, .. } = &served.resource;
        if !self.groups.contains(group) {
            self.groups.push(group.clone());
        }
        self.kinds.insert((group.clone(), version.clone(), plural.clone()), Arc::new(served));
    }

    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        // One lookup a request: the allocations do not matter beside the rest.
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Any served version of a group's resource.
    pub fn any(&self, group: &str, plural: &str) -> Option<&Arc<Served>> {
        self.kinds.values().find(|s| s.resource.group == group && s.resource.plural == plural)
    }

    /// Whether the kind has a scale in a version (`apps/v1`).
    pub(crate) fn scales(&self, served: &Served, api_version: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.get(group, version, &served.resource.plural).is_some_and(|served| served.scale().is_some())
    }

    /// Drops all versions of a group's custom resource.
    pub fn remove_custom(&mut self, group: &str, plural: &str) {
        self.kinds.retain(|(g, _, p), served| {
            let custom = served.custom.as_ref().filter(|_| g == group && p == plural);
            if let Some(custom) = custom {
                custom.ended.cancel();
            }
            custom.is_none()
        });
        let kinds = &self.kinds;
        self.groups.retain(|group| kinds.keys().any(|(g, _, _)| g == group));
    }

    /// Versions of a group, the preferred one first.
    pub fn versions(&self, group: &str) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        for (g, version, _) in self.kinds.keys() {
            if g == group && !versions.contains(version) {
                versions.push(version.clone());
            }
        }
        versions.sort_by(|a, b| compare_versions(b, a));
        versions
    }

    /// Kinds of a group and version, by plural.
    pub fn of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Served>> {
        self.kinds.iter().filter(move |((g, v, _), _)| g == group && v == version).map(|(_, served)| served)
    }
}

/// Kubernetes' order of versions: stable over beta over alpha, higher numbers first, all else by name.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    /// (stability, major, minor); `None` where the name is no version.
    fn parts(version: &str) -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (rank, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((rank, major, minor.parse().ok()?))
    }
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_upstream() {
        let mut versions = ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2", "bar"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "bar", "foo"]);
    }
}
