//! What is constant of a kind.

use api::field::Error as FieldError;
use serde_json::Value;

/// What is constant of a kind: values, and functions that look at a name or an object alone. The default suits most kinds.
#[derive(Clone, Copy)]
pub struct Facts {
    // Metadata.
    /// What is wrong with a name. The flag: it is a generateName, of which a dash at the end does not count.
    pub name_faults: fn(&str, bool) -> Vec<String>,
    /// Whether the names of finalizers must have a domain or be Kubernetes' own, as most built-in kinds ask.
    pub qualified_finalizers: bool,
    /// Whether the kind's own rules look at the metadata of a new object; of others it is looked at once those hold.
    pub looks_at_metadata: bool,
    /// Whether the kind keeps `metadata.generation`.
    pub has_generation: bool,
    pub rechecks: Rechecks,

    // Writes.
    /// Whether a PUT of an object that does not exist creates it.
    pub create_on_update: bool,
    /// Whether a PUT without resourceVersion is taken (built-in kinds mostly; custom resources never).
    pub unconditional_update: bool,
    /// The subresource (empty: the object itself) whose updates can make an object use more of what quotas limit.
    pub grows_by: Option<&'static str>,
    /// The part of an object whose empty lists and maps raise `metadata.generation` whenever somebody sends them: upstream keeps
    /// none, and compares with `reflect.DeepEqual`.
    pub counts_empty: Option<&'static str>,
    /// What is wrong with an empty list or map that was given at a path: what is validated has none of those that Go does not write.
    pub refuses_empty: fn(&str) -> Option<FieldError>,
    /// Fields whose faults show another part of the object, with that part.
    pub shown_at: &'static [(&'static str, &'static str)],
    /// What a create is warned of while it is prepared: also where the object is refused then.
    pub early_warnings: fn(&Value) -> Vec<String>,
    /// Whose subresource a POST to this collection is, of the object that the body names: group, plural and subresource.
    pub alias_of: Option<(&'static str, &'static str, &'static str)>,

    // Deletions.
    pub deletion: Deletion,
    /// Whether deletes are graceful: even one that is carried out at once shows when it was.
    pub graceful: bool,
    /// Whether a deletion may wait for what becomes of dependents, or leave them: events have none.
    pub has_dependents: bool,
    /// Whether a DELETE without propagation policy orphans dependents (batch/v1 Jobs); else the garbage collector deletes them.
    pub default_orphans: bool,
    /// Whether a client that deletes without propagation policy is warned of what stays.
    pub warns_of_orphans: bool,
    /// Whether a DELETE answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// Whether finalizers in the object's `spec` hold back its deletion, too (namespaces).
    pub finalizers_in_spec: bool,

    // Storage and answers.
    /// Where the objects are kept, if not under their own group and plural.
    pub storage: Option<Storage>,
    /// Whether upstream reads the kind from a cache (`DefaultWatchCacheSizes` of its storage factory: all but events). Versions
    /// that cannot be read, or are not there yet, are refused in another way where it does not.
    pub cached: bool,
    /// Adds to an object that is not there what it says beyond what Go always writes: upstream makes bookmarks of its internal form.
    pub bookmark: fn(&mut Value),
    /// The name that the refusal of an unknown field of a field selector gives the kind.
    pub selected_as: Option<&'static str>,
    /// `conditions` of a table row: kubectl hides rows that are `Completed`.
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// What every client of the kind is warned of.
    pub deprecation: Option<&'static str>,
    /// The kind has a scale, of `spec.replicas` and `status.replicas`. The function: the label selector of the pods that are scaled,
    /// as text.
    pub scale: Option<fn(&Value) -> String>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            name_faults: api::names::subdomain_faults,
            qualified_finalizers: true,
            looks_at_metadata: true,
            has_generation: true,
            rechecks: Rechecks { update: true, whole: false, of_parts: true },
            create_on_update: false,
            unconditional_update: true,
            grows_by: None,
            counts_empty: None,
            refuses_empty: |_| None,
            shown_at: &[],
            early_warnings: |_| Vec::new(),
            alias_of: None,
            deletion: Deletion::Usual,
            graceful: false,
            has_dependents: true,
            default_orphans: false,
            warns_of_orphans: false,
            delete_returns_object: false,
            finalizers_in_spec: false,
            storage: None,
            cached: true,
            bookmark: |_| (),
            selected_as: None,
            row_conditions: |_| Vec::new(),
            deprecation: None,
            scale: None,
        }
    }
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

/// Who begins the deletion of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The machinery.
    Usual,
    /// [`Strategy::begin_delete`](crate::Strategy::begin_delete); what becomes of dependents is not asked.
    Own,
    /// [`Strategy::begin_delete`](crate::Strategy::begin_delete); finalizers say what the client wants of dependents.
    OwnWithDependents,
}

/// Another kind as which objects are kept (events.k8s.io/v1 events are core events in another shape).
#[derive(Clone, Copy)]
pub struct Storage {
    pub group: &'static str,
    pub plural: &'static str,
    /// From this kind's shape to the stored one.
    pub to_storage: fn(&mut Value),
    /// From the stored shape to this kind's.
    pub to_shape: fn(&mut Value),
}
