//! What a kind decides for itself.

use crate::status::Status;
use crate::{ClockAndDice, Facts, List, Lookup, PluralOf, Tokens, User};
use api::field::ErrorList;
use jiff::Timestamp;
use merge::apply::Ignored;
use serde_json::Value;

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
    pub world: &'a dyn ClockAndDice,
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

/// The rules of one kind; what is constant of it are its [`Facts`]. Every method has the default that suits most kinds.
pub trait Strategy: Send + Sync {
    /// Asked once, when the kind is made.
    fn facts(&self) -> Facts {
        Facts::default()
    }

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

    /// As `admit_create`, about an object that is valid in itself; it may only refuse. `part`: of an update of a subresource, its name
    /// and the object as it was.
    fn admit_valid(&self, _cx: &Context<'_>, _new: &Value, _part: Option<(&str, &Value)>) -> Result<(), Status> {
        Ok(())
    }

    /// Warnings (`Warning: 299`) about an accepted create or update.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether a change between these two raises `metadata.generation`, where the kind keeps one.
    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        new.get("spec") != old.get("spec")
    }

    /// Fields that field selectors may name beside `metadata.name` and `metadata.namespace`, with their values.
    fn selectable(&self, _object: &Value) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The cells of a table row, for columns without a JSONPath.
    fn row(&self, _object: &Value, _now: Timestamp) -> Vec<Value> {
        Vec::new()
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

    /// The object as managed fields are to see it when it is created, where that is not as it stands: a Job shows the labels of
    /// its template before the server adds to them.
    fn as_tracked(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// Fields that nobody comes to manage through this endpoint because it resets them.
    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::paths(&["spec"]),
            _ => Ignored::paths(&["status"]),
        }
    }
}
