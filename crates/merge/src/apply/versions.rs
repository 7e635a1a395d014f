//! The schemas of a kind's versions. What a manager has written in another version than the present one is judged by the schema
//! of that version, of which the object must then be one, too.

use super::typed;
use crate::schema::Schema;
use serde_json::Value;
use std::sync::Arc;

/// Finds the schema of a version by `apiVersion`.
type ByVersion<'a> = dyn Fn(&str) -> Option<Arc<Schema>> + 'a;

/// The schemas by which the fields of an object are told apart.
#[derive(Clone, Copy)]
pub struct Schemas<'a> {
    /// Of the version that is written.
    own: &'a Schema,
    of_version: Option<&'a ByVersion<'a>>,
}

impl<'a> From<&'a Schema> for Schemas<'a> {
    fn from(own: &'a Schema) -> Self {
        Self { own, of_version: None }
    }
}

impl<'a> From<&'a Arc<Schema>> for Schemas<'a> {
    fn from(own: &'a Arc<Schema>) -> Self {
        Self::from(&**own)
    }
}

/// One of them, for as long as it is looked at.
pub(super) enum Found<'a> {
    Own(&'a Schema),
    Other(Arc<Schema>),
}

impl std::ops::Deref for Found<'_> {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::Own(schema) => schema,
            Self::Other(schema) => schema,
        }
    }
}

impl<'a> Schemas<'a> {
    /// Of a kind whose versions may differ: `of_version` has the schema of each (`example.com/v1`). Without it, all versions are
    /// taken to have the same fields.
    pub fn by_version(own: &'a Schema, of_version: &'a ByVersion<'a>) -> Self {
        Self { own, of_version: Some(of_version) }
    }

    pub(super) fn own(&self) -> &'a Schema {
        self.own
    }

    /// Whether what was written in `version` has a schema of its own beside that of `current`.
    pub(super) fn differ(&self, version: &str, current: &str) -> bool {
        self.of_version.is_some() && version != current
    }

    /// The schema of what was written in `version` while `current` is what is written now.
    ///
    /// # Errors
    /// There is no such version, in upstream's words.
    fn of(&self, version: &str, current: &str) -> Result<Found<'a>, String> {
        match self.of_version {
            Some(of_version) if self.differ(version, current) => of_version(version)
                .map(Found::Other)
                .ok_or_else(|| format!("request to convert CR to an invalid group/version: {version}")),
            Some(_) | None => Ok(Found::Own(self.own)),
        }
    }

    /// As [`Self::of`]; the object must also be one of that version.
    ///
    /// # Errors
    /// Besides, what of the object does not fit.
    pub(super) fn fitting(&self, version: &str, current: &str, object: &Value) -> Result<Found<'a>, String> {
        let schema = self.of(version, current)?;
        match &schema {
            Found::Own(_) => Ok(schema),
            Found::Other(other) => {
                let faults = typed::faults(other, object, false);
                if faults.is_empty() { Ok(schema) } else { Err(typed::fault_text(&faults)) }
            }
        }
    }
}
