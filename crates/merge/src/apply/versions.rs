//! The schemas of a kind's versions. A field set is judged by the schema of the version that it was written in; the object must
//! then fit that schema, too.

use super::typed;
use crate::schema::Schema;
use serde_json::Value;
use std::sync::Arc;

/// Why an object cannot be read in another version of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("request to convert CR to an invalid group/version: {version}")]
    Unknown { version: String },
    /// In the words of the faults.
    #[error("{faults}")]
    Unfit { faults: String },
}

/// A kind whose versions may differ in their fields.
pub trait Versions {
    /// The schema of a version by `apiVersion` (`example.com/v1`).
    fn schema_in(&self, api_version: &str) -> Option<Arc<Schema>>;
}

/// The schemas by which the fields of an object are told apart.
#[derive(Clone, Copy)]
pub struct Schemas<'a> {
    /// Of the version that is written.
    own: &'a Schema,
    /// Without it, the kind has this one version.
    versions: Option<&'a dyn Versions>,
}

impl<'a> From<&'a Schema> for Schemas<'a> {
    fn from(own: &'a Schema) -> Self {
        Self { own, versions: None }
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
    /// Of a kind whose versions may differ.
    pub fn by_version(own: &'a Schema, versions: &'a dyn Versions) -> Self {
        Self { own, versions: Some(versions) }
    }

    pub(super) fn own(&self) -> &'a Schema {
        self.own
    }

    /// Whether what was written in `version` has a schema of its own beside that of `current`.
    pub(super) fn differ(&self, version: &str, current: &str) -> bool {
        self.versions.is_some() && version != current
    }

    /// Whether what was written in `version` can be told apart while `current` is what is written now. Of kinds whose versions may
    /// differ it is a fault where it cannot: see [`Self::fitting`].
    pub(super) fn know(&self, version: &str, current: &str) -> bool {
        self.versions.is_some() || version == current
    }

    /// The schema of what was written in `version` while `current` is what is written now.
    ///
    /// # Errors
    /// There is no such version, in upstream's words.
    fn of(&self, version: &str, current: &str) -> Result<Found<'a>, VersionError> {
        match self.versions {
            Some(versions) if self.differ(version, current) => versions
                .schema_in(version)
                .map(Found::Other)
                .ok_or_else(|| VersionError::Unknown { version: version.to_owned() }),
            Some(_) | None => Ok(Found::Own(self.own)),
        }
    }

    /// As [`Self::of`]; the object must also be one of that version.
    ///
    /// # Errors
    /// Also where the object does not fit, in the words of the fault.
    pub(super) fn fitting(&self, version: &str, current: &str, object: &Value) -> Result<Found<'a>, VersionError> {
        let schema = self.of(version, current)?;
        match &schema {
            Found::Own(_) => Ok(schema),
            Found::Other(other) => {
                let faults = typed::faults(other, object, false);
                if faults.is_empty() {
                    Ok(schema)
                } else {
                    Err(VersionError::Unfit { faults: typed::fault_text(&faults) })
                }
            }
        }
    }
}
