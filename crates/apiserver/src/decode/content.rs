//! A request's body: its text, or the tree that a client in this process hands over.
//!
//! A tree says what its text would say; nothing can be there twice in it, and it is no YAML. So what is read of either is the
//! same, and the text of a tree is made only for those who quote it or read it in another way.

use super::{ParseError, json, yaml};
use bytes::Bytes;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// What a request brings.
pub struct Content {
    text: OnceLock<Bytes>,
    tree: Option<Arc<Value>>,
}

impl From<Bytes> for Content {
    fn from(text: Bytes) -> Self {
        Self { text: text.into(), tree: None }
    }
}

impl Content {
    /// Of a client in this process; null stands for nothing.
    pub fn tree(tree: Arc<Value>) -> Self {
        if tree.is_null() { Self::from(Bytes::new()) } else { Self { text: OnceLock::new(), tree: Some(tree) } }
    }

    /// Its text.
    pub fn text(&self) -> &Bytes {
        self.text.get_or_init(|| self.tree.as_ref().map(|tree| tree.to_string().into()).unwrap_or_default())
    }

    pub fn is_empty(&self) -> bool {
        self.tree.is_none() && self.text().is_empty()
    }

    /// Bytes of its text; of a tree, without those of escapes.
    pub fn size(&self) -> usize {
        match &self.tree {
            Some(tree) => merge::bounds::bytes(tree),
            None => self.text().len(),
        }
    }

    /// Whether it may take much longer than texts of its length do: YAML has aliases, JSON patches copy.
    pub fn may_grow(&self, media: &str) -> bool {
        if self.tree.is_some() {
            return false;
        }
        match media {
            "application/json-patch+json" => true,
            media if media.ends_with("yaml") => {
                let text = self.text().trim_ascii_start();
                text.first() != Some(&b'{') || text.contains(&b'*')
            }
            _ => false,
        }
    }

    /// What it says, and what is there twice.
    ///
    /// # Errors
    /// As [`json`].
    pub fn json(&self) -> Result<(Value, Vec<String>), ParseError> {
        match &self.tree {
            Some(tree) => Ok(((**tree).clone(), Vec::new())),
            None => json(self.text()),
        }
    }

    /// What it says as YAML, and what is there twice.
    ///
    /// # Errors
    /// As [`yaml`].
    pub fn yaml(&self) -> Result<(Value, Vec<String>), ParseError> {
        match &self.tree {
            Some(tree) if tree.is_object() && !super::yaml::has_fractions(tree) => Ok(((**tree).clone(), Vec::new())),
            _ => yaml(self.text()),
        }
    }
}
