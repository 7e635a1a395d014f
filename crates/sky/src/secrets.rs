//! Secrets of a task: values that stand in the file, and names of values that are kept elsewhere.

use crate::error::TaskError;
use crate::value::{Map, Value, quote};

/// A secret that is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Whose it is: `personal`, `workspace`, `global`.
    pub scope: Option<&'static str>,
    /// The file that it becomes; without, a variable.
    pub mount_path: Option<String>,
}

/// Secrets of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Secrets {
    /// Variables whose values stand in the file.
    pub values: Map,
    /// Secrets that are kept elsewhere.
    pub references: Vec<Reference>,
}

impl Reference {
    fn read(text: &str) -> Self {
        let text = text.strip_prefix("secrets:").unwrap_or(text);
        let scoped = ["personal", "workspace", "global"]
            .into_iter()
            .find_map(|scope| Some((scope, text.strip_prefix(scope)?.strip_prefix('.')?)));
        match scoped {
            Some((scope, name)) => Self { name: name.into(), scope: Some(scope), mount_path: None },
            None => Self { name: text.into(), scope: None, mount_path: None },
        }
    }

    fn text(&self) -> String {
        self.scope.map_or_else(|| self.name.clone(), |scope| format!("{scope}.{}", self.name))
    }
}

impl Secrets {
    /// Reads `secrets` (a mapping of name to value or null, or a list of `secrets:NAME`) and `managed_secrets`.
    ///
    /// # Errors
    /// For a list with something else in it, or a reference with a value.
    pub fn read(secrets: Option<Value>, managed: Option<Value>) -> Result<Self, TaskError> {
        let mut this = Self::default();
        match secrets {
            Some(Value::List(list)) => {
                for item in list {
                    let Some(name) = item.as_str().and_then(|text| text.strip_prefix("secrets:")) else {
                        return Err(TaskError::value(format!(
                            "Invalid secret in array form: {}. Array items must use the secrets: prefix (e.g., secrets:HF_TOKEN). For inline secrets with values, use dict form: secrets: {{MY_SECRET: \"value\"}}",
                            item.quoted()
                        ))
                        .at("$.secrets"));
                    };
                    this.references.push(Reference::read(name));
                }
            }
            Some(Value::Map(map)) => {
                for (key, value) in map {
                    this.add(&key.text(), value)?;
                }
            }
            _ => {}
        }
        if let Some(Value::List(list)) = managed {
            for item in list {
                match item {
                    Value::Map(map) => this.references.extend(map.iter().map(|(name, options)| Reference {
                        mount_path: options.as_map().and_then(|options| options.given("mount_path")).map(Value::text),
                        ..Reference::read(&name.text())
                    })),
                    name => this.references.push(Reference::read(&name.text())),
                }
            }
        }
        Ok(this)
    }

    fn add(&mut self, key: &str, value: Value) -> Result<(), TaskError> {
        match (key.strip_prefix("secrets:"), value) {
            (Some(_), value) if !value.is_null() => Err(TaskError::value(format!(
                "Invalid secret {}: secret references (secrets: prefix) must have a null value in dict form. To provide an inline secret value, remove the 'secrets:' prefix.",
                quote(key)
            ))
            .at("$.secrets")),
            (_, Value::Null) => {
                self.references.push(Reference::read(key));
                Ok(())
            }
            (_, value) => {
                self.values.insert(key, value);
                Ok(())
            }
        }
    }

    /// Puts `secrets` and `managed_secrets` as a file for the server has them.
    pub fn write(&self, out: &mut Map) {
        let name = |reference: &Reference| Value::Str(format!("secrets:{}", reference.text()));
        let mut managed: Vec<Value> = Vec::new();
        let mut named = Vec::new();
        for reference in &self.references {
            match &reference.mount_path {
                Some(path) => managed.push(Value::Map(Map::from_iter([(
                    reference.text(),
                    Map::from_iter([("mount_path", path.as_str())]),
                )]))),
                None => named.push(name(reference)),
            }
        }
        if !self.values.is_empty() {
            out.insert("secrets", self.values.clone());
            managed.extend(named);
        } else if !named.is_empty() {
            out.insert("secrets", Value::List(named));
        }
        if !managed.is_empty() {
            out.insert("managed_secrets", Value::List(managed));
        }
    }
}
