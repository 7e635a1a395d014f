//! The contract between an API server and the kinds that it serves: what the server needs to know about a kind
//! ([`Resource`]), and what a kind decides for itself ([`Strategy`]).
//!
//! The server (`apiserver`) knows no kind; the kinds (`kinds`, or a definition that a user wrote) know no server. Both speak of
//! refusals ([`status`]), users ([`User`]), what users ask for ([`Ask`]) and admission ([`admission`]) in the words of this crate.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod admission;
pub mod definitions;
pub mod jsonpath;
mod quotas;
pub mod status;
mod user;

pub use quotas::{Growth, Quotas};
pub use user::{Access, Ask, Tokens, User, bearer};

use crate::status::Status;
use api::field::{Error as FieldError, ErrorList};
use jiff::Timestamp;
use merge::apply::Ignored;
use merge::schema::Schema;
use serde_json::Value;
use std::sync::Arc;

/// One served resource (a kind in one version), built-in or from a CRD.
#[derive(Clone)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    /// `pods`: also the storage bucket, together with the group.
    pub plural: String,
    pub singular: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// In discovery's order (`create`, `delete`, `deletecollection`, `get`, `list`, `patch`, `update`, `watch`).
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// The whole object's schema.
    pub schema: Arc<Schema>,
    /// A built-in kind's name in `merge::builtin`'s table: bodies are read and objects written as Go would.
    pub type_name: Option<&'static str>,
    pub columns: Vec<Column>,
    pub strategy: Arc<dyn Strategy>,
    /// From a CRD: keys are sorted on the wire, strategic merge is refused, unknown fields are pruned by its schema.
    pub custom: bool,
    pub rechecks: Rechecks,
}

/// What a kind's own validation of updates looks at once more, after the machinery: each fault of metadata is reported as often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rechecks {
    /// What may not change, and the rest but finalizers.
    pub update: bool,
    /// All that a new object's metadata may have wrong.
    pub whole: bool,
    /// Whether updates of a part, such as the status, look at the whole again as those of the object do.
    pub of_parts: bool,
}

impl Resource {
    /// Brings a built-in kind's object into the form that Go writes.
    pub fn normalize(&self, object: &mut Value) {
        if let Some(name) = self.type_name {
            merge::builtin::normalize(name, object);
        }
    }
}

/// `status`, `scale`, `binding`, `eviction`, `log`, … with the kind its bodies have.
#[derive(Clone)]
pub struct Subresource {
    pub name: &'static str,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<&'static str>,
}

/// A column of kubectl's tables.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    /// 0 is shown always; above, only with `-o wide`.
    pub priority: i32,
    /// JSONPath of a CRD's column; `None`: the strategy's `row` fills it in.
    pub json_path: Option<String>,
}

/// The kinds that a server serves from the start, and what it asks of them beyond their strategies.
#[derive(Clone)]
pub struct Kinds {
    pub resources: Vec<Resource>,
    /// Objects that every cluster has: made at the start where they are missing.
    pub objects: Vec<Value>,
    /// Who may do what.
    pub access: Arc<dyn Access>,
    /// How much of what a namespace may have.
    pub quotas: Arc<dyn Quotas>,
}

/// Clock and chance, so that a simulator can own them.
pub trait World: Send + Sync {
    fn now(&self) -> Timestamp;
    /// A UUID in its usual form.
    fn uid(&self) -> String;
    /// Five characters for generated names.
    fn suffix(&self) -> String;
    /// A number below this one; 0 where that is 0.
    fn below(&self, bound: u32) -> u32;
}

/// One object by (group, plural, namespace, name).
pub type Lookup<'a> = dyn Fn(&str, &str, &str, &str) -> Option<Arc<Value>> + 'a;
/// All objects of (group, plural, namespace).
pub type List<'a> = dyn Fn(&str, &str, &str) -> Vec<Arc<Value>> + 'a;
/// The plural of the kind that a value names.
pub type PluralOf<'a> = dyn Fn(&Value) -> Option<String> + 'a;

/// What a strategy may look at beside the object itself.
pub struct Context<'a> {
    pub now: Timestamp,
    pub namespace: &'a str,
    /// The name in the request's path; empty where an object is posted.
    pub name: &'a str,
    /// The user that asks, for what records it (CSRs, RBAC escalation).
    pub user: &'a str,
    pub groups: &'a [String],
    /// The whole user (uid, extra); `user` and `groups` are parts of it.
    pub who: &'a User,
    /// `dryRun=All`.
    pub dry_run: bool,
    pub tokens: &'a dyn Tokens,
    /// Other objects, by (group, plural, namespace, name).
    pub lookup: &'a Lookup<'a>,
    /// All objects of (group, plural, namespace).
    pub list: &'a List<'a>,
    /// The plural of the kind that `apiVersion` and `kind` of a value name; `None`: it is not served.
    pub plural_of: &'a PluralOf<'a>,
    /// For chance; the time is `now`.
    pub world: &'a dyn World,
}

/// What a POST, PUT or GET on a subresource such as `binding`, `eviction` or `token` comes to.
pub enum Outcome {
    /// Nothing is stored; this is the answer.
    Reply(Value),
    /// Nothing is stored; the answer is `reply`, whose managed fields are those of what was `sent`.
    Made { sent: Value, reply: Value },
    /// The parent is replaced by `parent` (a no-op where it is equal); the answer is `reply`, or the stored parent.
    Update { parent: Value, reply: Option<Value> },
    /// These objects are written as they are, in one transaction; then the parent is deleted with these DeleteOptions.
    /// The answer is `reply`.
    Delete { options: Value, reply: Value, beside: Vec<Beside> },
}

/// An object that is written along with what was asked for; it carries the resource version it was read at.
pub struct Beside {
    pub group: &'static str,
    pub plural: &'static str,
    pub object: Value,
}

/// Who begins the deletion of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The machinery.
    Usual,
    /// [`Strategy::begin_delete`]; what becomes of dependents is not asked.
    Own,
    /// [`Strategy::begin_delete`]; finalizers say what the client wants of dependents.
    OwnWithDependents,
}

/// The rules of one kind. Every method has the default that suits most kinds.
pub trait Strategy: Send + Sync {
    /// Defaults beyond those that the schema holds (`spec.selector` of a Job, `imagePullPolicy` by tag).
    fn default(&self, _object: &mut Value) {}

    /// Resets what a creator may not set (status), fills in what the server owns.
    fn prepare_create(&self, _cx: &Context<'_>, _new: &mut Value) {}

    fn validate_create(&self, _cx: &Context<'_>, _new: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// Keeps what an updater of the main resource may not change (status), raises what depends on the change.
    fn prepare_update(&self, _cx: &Context<'_>, _new: &mut Value, _old: &Value) {}

    fn validate_update(&self, _cx: &Context<'_>, _new: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// As `prepare_update`, for `/status` and the other subresources that write the object.
    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, _new: &mut Value, _old: &Value) {}

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, _new: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }

    /// Admission that is part of the server itself (service accounts, quotas, limit ranges, namespace lifecycle): may
    /// change the object or refuse it with any status.
    fn admit_create(&self, _cx: &Context<'_>, _new: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// As `admit_create` for an update of the main resource; it may only refuse.
    fn admit_update(&self, _cx: &Context<'_>, _new: &Value, _old: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// As `admit_update`, for a subresource of an object that is valid in itself.
    fn admit_subresource(
        &self,
        _cx: &Context<'_>,
        _subresource: &str,
        _new: &Value,
        _old: &Value,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// As `admit_create`, about an object that is valid in itself; it may only refuse.
    fn admit_valid(&self, _cx: &Context<'_>, _new: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Whether an update can make an object use more of what quotas limit.
    fn may_grow(&self, _subresource: &str) -> bool {
        false
    }

    /// Warnings (`Warning: 299`) about an accepted create or update.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether a change between these two raises `metadata.generation`; `None`: the kind keeps no generation.
    fn generation_changed(&self, new: &Value, old: &Value) -> Option<bool> {
        Some(new.get("spec") != old.get("spec"))
    }

    /// The part of an object that a fault of this field shows, where that is another one.
    fn shown_at(&self, _field: &str) -> Option<&'static str> {
        None
    }

    /// Whether upstream reads the kind from a cache (`DefaultWatchCacheSizes` of its storage factory: all but events). Versions
    /// that cannot be read, or are not there yet, are refused in another way where it does not.
    fn cached(&self) -> bool {
        true
    }

    /// What an object of the kind that is not there says beyond what Go always writes: upstream makes bookmarks of its internal form.
    fn bookmark(&self, _object: &mut Value) {}

    /// The part of an object whose empty lists and maps raise `metadata.generation` whenever somebody sends them: upstream keeps
    /// none, and compares with `reflect.DeepEqual`.
    fn counts_empty(&self) -> Option<&'static str> {
        None
    }

    /// What is wrong with an empty list or map that was given at this path: what is validated has none of those that Go does not write.
    fn refuses_empty(&self, _path: &str) -> Option<FieldError> {
        None
    }

    /// Fields that field selectors may name beside `metadata.name` and `metadata.namespace`, with their values.
    fn selectable(&self, _object: &Value) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The cells of a table row, for columns without a JSONPath.
    fn row(&self, _object: &Value, _now: Timestamp) -> Vec<Value> {
        Vec::new()
    }

    /// `conditions` of a table row: kubectl hides rows that are `Completed`.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// The message for a field selector with a field that this kind cannot be selected by.
    fn unknown_field(&self, field: &str) -> String {
        if self.selectable(&Value::Null).is_empty() {
            format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {field}")
        }
    }

    /// Whether deletes are graceful: even one that is carried out at once shows when it was.
    fn graceful(&self) -> bool {
        false
    }

    /// Seconds of grace that a delete gives (pods: their terminationGracePeriodSeconds); 0: gone at once.
    fn grace_secs(&self, _object: &Value, _asked: Option<i64>) -> i64 {
        0
    }

    /// For kinds that begin their deletion themselves (namespaces, definitions): the object with the finalizers, phase or
    /// conditions of a terminating one. The machinery adds `deletionTimestamp` and nothing else. `None`: the usual way.
    ///
    /// # Errors
    /// What must not be deleted, now or ever.
    fn begin_delete(&self, _cx: &Context<'_>, _object: &Value) -> Result<Option<Value>, Status> {
        Ok(None)
    }

    /// Whether a DELETE answers with the object instead of a Status.
    fn delete_returns_object(&self) -> bool {
        false
    }

    /// What a DELETE without propagation policy means: batch/v1 Jobs orphan, all else is background.
    fn default_orphans(&self) -> bool {
        false
    }

    /// Whether a deletion may wait for what becomes of dependents, or leave them: events have none.
    fn has_dependents(&self) -> bool {
        true
    }

    /// What every client of the kind is warned of.
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Whether a client that deletes without propagation policy is warned of what stays.
    fn warns_of_orphans(&self) -> bool {
        false
    }

    /// Whether a PUT of an object that does not exist creates it.
    fn create_on_update(&self) -> bool {
        false
    }

    /// Whether a PUT without resourceVersion is taken (built-in kinds mostly; custom resources never).
    fn unconditional_update(&self) -> bool {
        true
    }

    /// Where the objects are kept, if under another group and plural than their own (events.k8s.io/v1 events are core
    /// events in another shape).
    fn storage(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// From this kind's shape to the stored one. Only called where [`Strategy::storage`] names another bucket.
    fn to_storage(&self, _object: &mut Value) {}

    /// From the stored shape to this kind's. Only called where [`Strategy::storage`] names another bucket.
    fn to_shape(&self, _object: &mut Value) {}

    /// A kind that is asked, never stored (SubjectAccessReview, TokenReview): the answer to its POST. `None`: stored.
    fn review(&self, _cx: &Context<'_>, _object: &Value) -> Option<Result<Value, Status>> {
        None
    }

    /// POST on a subresource of `parent` (`binding`, `eviction`, `token`), or on the collection alias of one
    /// (`/bindings`). `body` has been decoded against nothing: it is what the client sent. `None`: 405.
    fn post(
        &self,
        _cx: &Context<'_>,
        _subresource: &str,
        _parent: &Value,
        _body: &Value,
    ) -> Option<Result<Outcome, Status>> {
        None
    }

    /// What is wrong with a body for a subresource of the object `name`, whatever that is and whether it is there.
    ///
    /// # Errors
    /// The refusal.
    fn posted(&self, _subresource: &str, _name: &str, _body: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Whose subresource a POST to this collection is, of the object that the body names: group, plural and subresource.
    fn alias_of(&self) -> Option<(&'static str, &'static str, &'static str)> {
        None
    }

    /// What is wrong with a name (`prefix`: it is a generateName, of which a dash at the end does not count). The
    /// machinery validates all other metadata itself, before the kind's own rules.
    fn name_faults(&self, name: &str, prefix: bool) -> Vec<String> {
        api::names::subdomain_faults(name, prefix)
    }

    /// Whether the kind's own rules look at the metadata of a new object; of others it is looked at once those hold.
    fn looks_at_metadata(&self) -> bool {
        true
    }

    /// Whether the names of finalizers must have a domain or be Kubernetes' own, as most built-in kinds ask.
    fn qualified_finalizers(&self) -> bool {
        true
    }

    /// The object as managed fields are to see it when it is created, where that is not as it stands: a Job shows the labels of
    /// its template before the server adds to them.
    fn as_tracked(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// What a create is warned of while it is prepared: also where the object is refused then.
    fn early_warnings(&self, _new: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Who begins a deletion.
    fn deletion(&self) -> Deletion {
        Deletion::Usual
    }

    /// Whether a deleted object without metadata finalizers may go (a namespace also has finalizers in its spec).
    fn may_vanish(&self, _object: &Value) -> bool {
        true
    }

    /// The scale subresource: the paths of replicas, as a CRD's `subresources.scale` gives them. `None`: the kind has none.
    fn scale(&self) -> Option<Value> {
        None
    }

    /// The label selector of the pods that are scaled, as text; empty: none. Asked where [`Strategy::scale`] names no path.
    fn scaled_pods(&self, _object: &Value) -> String {
        String::new()
    }

    /// Fields that nobody comes to manage through this endpoint because it resets them.
    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::paths(&["spec"]),
            _ => Ignored::paths(&["status"]),
        }
    }
}
