//! Managed fields: their form in objects, and the rules by which managers are recorded.

use super::recorded::Recorded;
use super::typed::by_time;
use super::{Conflict, Writer};
use crate::fields::{Element, FieldSet, path_text};
use crate::gotext;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most entries of updates in one object; the oldest are merged beyond that.
const UPDATERS_MAX: usize = 10;

/// The manager that the oldest updates are merged under.
const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The order of managers in a list of conflicts, which upstream sorts by their identities as JSON: manager, operation and version,
/// and those of a subresource before the one of none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(String, Operation, String, bool, String);

/// What makes an entry one of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub operation: Operation,
    pub manager: String,
    pub subresource: String,
    /// Empty for appliers, which keep their entry across versions.
    api_version: String,
}

impl Identity {
    pub fn of(writer: &Writer<'_>, operation: Operation) -> Self {
        let manager = if writer.manager.is_empty() { "unknown" } else { writer.manager };
        Self::new(manager, operation, writer.api_version, writer.subresource)
    }

    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Self {
            operation,
            manager: manager.to_owned(),
            subresource: subresource.to_owned(),
            api_version: api_version.to_owned(),
        }
    }

    /// A conflict with the manager about a field.
    pub fn conflict(&self, path: &[Element]) -> Conflict {
        let version = self.api_version.clone();
        let rank =
            Rank(self.manager.clone(), self.operation, version, self.subresource.is_empty(), self.subresource.clone());
        Conflict { manager: self.text(), field: path_text(path), path: path.to_vec(), rank }
    }

    /// As conflict messages name the manager.
    fn text(&self) -> String {
        let mut out = gotext::quoted(&self.manager);
        if !self.subresource.is_empty() {
            out += &format!(" with subresource {}", gotext::quoted(&self.subresource));
        }
        match self.operation {
            Operation::Apply => {}
            Operation::Update => out += &format!(" using {}", self.api_version),
        }
        out
    }
}

/// What an entry records.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub fields: Recorded,
    pub api_version: String,
    /// As it stands in the object.
    pub time: Option<String>,
}

fn seconds(time: Option<&str>) -> Option<i64> {
    time?.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// A time as managed fields hold it.
pub(super) fn time_text(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// All entries of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed {
    pub entries: BTreeMap<Identity, Entry>,
}

/// What is wrong with an entry of managed fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ManagedError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    NoVersion,
    #[error("missing fieldsType in managed fields entry {entry}")]
    NoType { entry: usize },
    #[error("invalid fieldsType {} in managed fields entry {entry}", gotext::quoted(given))]
    Type { entry: usize, given: String },
    #[error("error decoding set")]
    Set,
}

impl Managed {
    /// From `metadata.managedFields`.
    ///
    /// # Errors
    /// What is wrong with the first entry that cannot be read.
    pub fn decode(list: &[Value]) -> Result<Self, ManagedError> {
        Self::read(list, |fields| FieldSet::from_json(fields).map(Recorded::from))
    }

    /// Of a list that a write has stored: sets are read when they are looked at.
    ///
    /// # Errors
    /// See [`Managed::decode`]; not those of sets, which count as empty.
    pub fn of_stored(list: &[Value]) -> Result<Self, ManagedError> {
        Self::read(list, |fields| Some(Recorded::stored(fields.clone())))
    }

    fn read(list: &[Value], set: impl Fn(&Value) -> Option<Recorded>) -> Result<Self, ManagedError> {
        let mut out = Self::default();
        for (i, entry) in list.iter().enumerate() {
            let text = |member: &str| entry.get(member).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagedError::Operation),
            };
            if text("apiVersion").is_empty() {
                return Err(ManagedError::NoVersion);
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(ManagedError::NoType { entry: i }),
                other => {
                    return Err(ManagedError::Type { entry: i, given: other.to_owned() });
                }
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => Recorded::default(),
                Some(fields) => set(fields).ok_or(ManagedError::Set)?,
            };
            let identity = Identity::new(text("manager"), operation, text("apiVersion"), text("subresource"));
            let time = Some(text("time")).filter(|t| !t.is_empty()).map(str::to_owned);
            out.entries.insert(identity, Entry { fields, api_version: text("apiVersion").to_owned(), time });
        }
        Ok(out)
    }

    /// As `metadata.managedFields`.
    pub fn encode(&self) -> Vec<Value> {
        encode(self.entries.iter())
    }

    /// Writes the entries into an object's metadata, or takes the list away where there are none.
    pub fn store(&self, object: &mut Value) {
        let Value::Object(members) = object else { return };
        if self.entries.is_empty() {
            if let Some(Value::Object(meta)) = members.get_mut("metadata") {
                meta.remove("managedFields");
            }
            return;
        }
        let meta = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if !meta.is_object() {
            *meta = Value::Object(Map::new());
        }
        if let Value::Object(meta) = meta {
            meta.insert("managedFields".to_owned(), self.encode().into());
        }
    }

    /// Merges the oldest updates of a version into one, while there are too many.
    pub fn cap(&mut self) {
        let mut updaters: Vec<Identity> =
            self.entries.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= UPDATERS_MAX {
            return;
        }
        let time = |entries: &BTreeMap<Identity, Entry>, id: &Identity| {
            entries.get(id).and_then(|entry| seconds(entry.time.as_deref()))
        };
        updaters.sort_by(|a, b| {
            by_time(time(&self.entries, a), time(&self.entries, b)).then_with(|| {
                (&a.manager, &a.api_version, &a.subresource).cmp(&(&b.manager, &b.api_version, &b.subresource))
            })
        });
        let mut first_of: BTreeMap<String, Identity> = BTreeMap::new();
        for id in updaters {
            if count <= UPDATERS_MAX {
                break;
            }
            let Some(first) = first_of.get(&id.api_version).cloned() else {
                first_of.insert(id.api_version.clone(), id);
                continue;
            };
            let bucket = Identity::new(ANCIENT, Operation::Update, &id.api_version, "");
            if !self.entries.contains_key(&bucket)
                && let Some(entry) = self.entries.remove(&first)
            {
                self.entries.insert(bucket.clone(), entry);
            }
            // The bucket may itself be the next oldest.
            if id == bucket {
                continue;
            }
            if let Some(entry) = self.entries.remove(&id)
                && let Some(into) = self.entries.get_mut(&bucket)
            {
                into.fields = std::mem::take(&mut into.fields).into_set().union(entry.fields.into_set()).into();
                into.time = entry.time;
                count -= 1;
            }
        }
    }
}

/// Entries as `metadata.managedFields` lists them: appliers first, then by time, then by name.
pub(super) fn encode<'a>(entries: impl Iterator<Item = (&'a Identity, &'a Entry)>) -> Vec<Value> {
    let mut sorted: Vec<(&Identity, &Entry)> = entries.collect();
    sorted.sort_by(|(a, x), (b, y)| {
        (a.operation.cmp(&b.operation))
            .then_with(|| by_time(seconds(x.time.as_deref()), seconds(y.time.as_deref())))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| x.api_version.cmp(&y.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    sorted
        .into_iter()
        .map(|(identity, entry)| {
            let mut out = Map::new();
            let mut put = |name: &str, value: &str| {
                if !value.is_empty() {
                    out.insert(name.to_owned(), value.into());
                }
            };
            put("manager", &identity.manager);
            put("operation", identity.operation.as_str());
            put("apiVersion", &entry.api_version);
            put("time", entry.time.as_deref().unwrap_or_default());
            put("fieldsType", "FieldsV1");
            put("subresource", &identity.subresource);
            out.insert("fieldsV1".to_owned(), entry.fields.to_json());
            Value::Object(out)
        })
        .collect()
}
