//! A manager's set of fields: read only when somebody has to look into it, as most writes touch no field of most managers.

use crate::fields::FieldSet;
use serde_json::Value;
use std::cell::OnceCell;
use std::ops::Deref;

/// A set, and the JSON that it was read from, if it was not changed since.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    json: Option<Value>,
    set: OnceCell<FieldSet>,
}

impl Recorded {
    /// A set that an earlier write has stored.
    pub fn stored(json: Value) -> Self {
        Self { json: Some(json), set: OnceCell::new() }
    }

    /// The JSON that it was read from.
    pub fn json(&self) -> Option<&Value> {
        self.json.as_ref()
    }

    /// Whether a member of `other` may be in it; `false` is certain.
    pub fn may_meet(&self, other: &FieldSet) -> bool {
        match &self.json {
            Some(Value::Object(fields)) => other.may_meet(fields),
            Some(_) | None => !other.is_empty(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match &self.json {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) | None => self.deref().is_empty(),
        }
    }

    /// As `fieldsV1`.
    pub fn to_json(&self) -> Value {
        self.json.clone().unwrap_or_else(|| self.deref().to_json())
    }

    pub fn into_set(self) -> FieldSet {
        let Self { json, set } = self;
        set.into_inner().unwrap_or_else(|| read(json.as_ref()))
    }
}

fn read(json: Option<&Value>) -> FieldSet {
    json.and_then(FieldSet::from_json).unwrap_or_default()
}

impl Deref for Recorded {
    type Target = FieldSet;

    fn deref(&self) -> &FieldSet {
        self.set.get_or_init(|| read(self.json.as_ref()))
    }
}

impl From<FieldSet> for Recorded {
    fn from(set: FieldSet) -> Self {
        Self { json: None, set: set.into() }
    }
}
