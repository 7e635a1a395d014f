//! An object as it comes over the wire: its tree, and the words of its metadata that a watch goes by. kube's own `DynamicObject` reads all
//! metadata into types and everything else twice.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;

/// An object of any kind, to be read.
#[derive(Clone, Debug)]
pub struct Untyped {
    /// Name, namespace, uid and resource version; nothing else.
    meta: ObjectMeta,
    tree: Value,
}

impl Untyped {
    pub fn into_tree(self) -> Value {
        self.tree
    }

    /// The object as the kind that it is.
    ///
    /// # Errors
    /// A field of it has another type than in that kind.
    pub fn typed<K: DeserializeOwned>(self) -> Result<K, serde_json::Error> {
        serde_json::from_value(self.tree)
    }
}

impl<'de> Deserialize<'de> for Untyped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tree = Value::deserialize(deserializer)?;
        let word = |name: &str| tree["metadata"][name].as_str().map(str::to_owned);
        let meta = ObjectMeta {
            name: word("name"),
            namespace: word("namespace"),
            uid: word("uid"),
            resource_version: word("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, tree })
    }
}

impl Resource for Untyped {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    #[test]
    fn an_object_is_its_tree_and_the_words_of_a_watch() {
        let text = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}, "spec": {"containers": []}});
        let object: Untyped = serde_json::from_str(&text.to_string()).unwrap();
        let meta = object.meta();
        assert_eq!((meta.name.as_deref(), meta.resource_version.as_deref()), (Some("p"), Some("7")));
        let pod: Pod = object.typed().unwrap();
        assert_eq!(serde_json::to_value(pod).unwrap(), text);
        let wrong: Untyped = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": 7})).unwrap();
        assert!(wrong.typed::<Pod>().is_err());
        assert_eq!(serde_json::from_value::<Untyped>(json!({})).unwrap().meta().name, None);
    }
}
