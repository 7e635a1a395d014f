//! A container's environment and command line: values, references, and `$(NAME)` in both.

use crate::fields::{self, Facts};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use std::collections::BTreeMap;

/// Why what a pod refers to cannot be given to it, in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("configmap {name:?} not found")]
    ConfigMap { name: String },
    #[error("secret {name:?} not found")]
    Secret { name: String },
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    ConfigMapKey { namespace: String, name: String, key: String },
    #[error("couldn't find key {key} in Secret {namespace}/{name}")]
    SecretKey { namespace: String, name: String, key: String },
    #[error("unsupported fieldPath: {path}")]
    Field { path: String },
    #[error("unsupported resource: {resource}")]
    Resource { resource: String },
    #[error("unsupported valueFrom")]
    ValueFrom,
    /// An item of a volume.
    #[error("configmap references non-existent config key: {name}")]
    ConfigMapItem { name: String },
    /// An item of a volume.
    #[error("references non-existent secret key: {name}")]
    SecretItem { name: String },
    #[error("no service account token")]
    Token,
    #[error("this kind of projection is not available to pods that run as processes")]
    Projection,
}

/// The config maps and secrets that a pod refers to; `None`: not there.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub config_maps: BTreeMap<String, Option<ConfigMap>>,
    pub secrets: BTreeMap<String, Option<Secret>>,
}

impl Sources {
    /// Error as the kubelet words it, unless optional.
    pub fn config_map(&self, name: &str, optional: bool) -> Result<Option<&ConfigMap>, ReferenceError> {
        match self.config_maps.get(name).and_then(Option::as_ref) {
            None if !optional => Err(ReferenceError::ConfigMap { name: name.to_owned() }),
            found => Ok(found),
        }
    }

    pub fn secret(&self, name: &str, optional: bool) -> Result<Option<&Secret>, ReferenceError> {
        match self.secrets.get(name).and_then(Option::as_ref) {
            None if !optional => Err(ReferenceError::Secret { name: name.to_owned() }),
            found => Ok(found),
        }
    }
}

/// An environment in the making: later values replace earlier ones in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pairs: Vec<(String, String)>,
}

impl Environment {
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        match self.pairs.iter_mut().find(|(known, _)| known == name) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((name.to_owned(), value)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn into_pairs(self) -> Vec<(String, String)> {
        self.pairs
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut String)> {
        self.pairs.iter_mut().map(|(name, value)| (name.as_str(), value))
    }
}

/// Replaces `$(NAME)` by its value; `$$` stands for `$`; what is not known stays as it is.
pub fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// What the pod itself says about a container's environment, in the kubelet's order: `envFrom`, then `env`, on top of
/// `base`. `adapt` may change a value of the pod's before others refer to it (ports).
///
/// # Errors
/// A missing object or key that is not optional, worded as the kubelet does.
pub fn resolve(
    pod: &Pod,
    container: &Container,
    facts: &Facts,
    sources: &Sources,
    base: Environment,
    adapt: impl Fn(&str, String) -> String,
) -> Result<Environment, ReferenceError> {
    let mut env = base;
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let mut add = |key: &str, value: String| {
            let name = format!("{prefix}{key}");
            if !name.is_empty() && !name.contains('=') {
                let value = adapt(&name, value);
                env.set(&name, value);
            }
        };
        if let Some(source) = &from.config_map_ref
            && let Some(map) = sources.config_map(&source.name, source.optional == Some(true))?
        {
            map.data.iter().flatten().for_each(|(key, value)| add(key, value.clone()));
        }
        if let Some(source) = &from.secret_ref
            && let Some(secret) = sources.secret(&source.name, source.optional == Some(true))?
        {
            secret.data.iter().flatten().for_each(|(key, value)| add(key, as_text(value)));
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value_from, &var.value) {
            (Some(from), _) => referred(pod, container, facts, sources, from)?,
            (None, Some(value)) => Some(expand(value, |name| env.get(name))),
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            let value = adapt(&var.name, value);
            env.set(&var.name, value);
        }
    }
    Ok(env)
}

fn as_text(bytes: &ByteString) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}

/// The value of a reference; `None` if it is optional and not there.
fn referred(
    pod: &Pod,
    container: &Container,
    facts: &Facts,
    sources: &Sources,
    from: &EnvVarSource,
) -> Result<Option<String>, ReferenceError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &from.field_ref {
        let value = fields::field(pod, facts, &source.field_path);
        return value.map(Some).ok_or_else(|| ReferenceError::Field { path: source.field_path.clone() });
    }
    if let Some(source) = &from.resource_field_ref {
        let other = source.container_name.as_ref().and_then(|name| find_container(pod, name));
        let value = fields::resource(other.unwrap_or(container), facts, source);
        return value.map(Some).ok_or_else(|| ReferenceError::Resource { resource: source.resource.clone() });
    }
    if let Some(source) = &from.config_map_key_ref {
        let optional = source.optional == Some(true);
        let Some(map) = sources.config_map(&source.name, optional)? else { return Ok(None) };
        return match map.data.as_ref().and_then(|data| data.get(&source.key)) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => Err(ReferenceError::ConfigMapKey {
                namespace: namespace.to_owned(),
                name: source.name.clone(),
                key: source.key.clone(),
            }),
        };
    }
    if let Some(source) = &from.secret_key_ref {
        let optional = source.optional == Some(true);
        let Some(secret) = sources.secret(&source.name, optional)? else { return Ok(None) };
        return match secret.data.as_ref().and_then(|data| data.get(&source.key)) {
            Some(value) => Ok(Some(as_text(value))),
            None if optional => Ok(None),
            None => Err(ReferenceError::SecretKey {
                namespace: namespace.to_owned(),
                name: source.name.clone(),
                key: source.key.clone(),
            }),
        };
    }
    Err(ReferenceError::ValueFrom)
}

/// A container or init container of the pod by name.
pub fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expansion() {
        let cases = [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y$(B)"),
            ("$$(A)", "$(A)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("$$$(A)", "$1"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, |name| (name == "A").then_some("1")), expected, "{text}");
        }
    }

    #[test]
    fn references_and_order() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"l": "v"}},
            "spec": {"nodeName": "n", "containers": [{
                "name": "c",
                "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
                "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}, {"secretRef": {"name": "gone", "optional": true}}],
                "env": [
                    {"name": "A", "value": "$(P_key)-$(BASE)"},
                    {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['l']"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "none", "optional": true}}},
                    {"name": "LATER", "value": "$(L)"},
                    {"name": "PORT", "value": "29500"},
                    {"name": "URL", "value": "h:$(PORT)"}
                ]
            }]}
        }))
        .unwrap();
        let cm: ConfigMap = serde_json::from_value(json!({"data": {"key": "value"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"k": "c2VjcmV0"}})).unwrap();
        let sources = Sources {
            config_maps: [("cm".to_owned(), Some(cm))].into(),
            secrets: [("s".to_owned(), Some(secret)), ("gone".to_owned(), None)].into(),
        };
        let facts = Facts { pod_ip: "127.1.2.3".into(), ..Facts::default() };
        let mut base = Environment::default();
        base.set("BASE", "b");
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let adapt = |name: &str, value: String| if name == "PORT" { "20001".to_owned() } else { value };
        let env = resolve(&pod, container, &facts, &sources, base.clone(), adapt).unwrap().into_pairs();
        let env: Vec<String> = env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            env,
            [
                "BASE=b",
                "P_key=value",
                "A=value-b",
                "NAME=p",
                "L=v",
                "IP=127.1.2.3",
                "CPU=2",
                "MEM=1024",
                "S=secret",
                "LATER=v",
                "PORT=20001",
                "URL=h:20001"
            ]
        );
        let none = Sources { config_maps: [("cm".to_owned(), None)].into(), ..sources };
        let error = resolve(&pod, container, &facts, &none, base, |_, v| v).unwrap_err().to_string();
        assert_eq!(error, "configmap \"cm\" not found");
    }
}
