//! The webhook configurations: what they say (trainer.md §5.1), and how the certificate authority gets into them.

use crate::admission::Webhook;
use crate::leader::form;
use crate::webhooks::{Half, SERVED};
use api::object::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

/// Name of the MutatingWebhookConfiguration, as upstream's, so that ours takes its place.
pub const DEFAULTER: &str = "defaulter.trainer.kubeflow.org";
/// Name of the ValidatingWebhookConfiguration.
pub const VALIDATOR: &str = "validator.trainer.kubeflow.org";
/// Label of runtimes that come with the installation and are not looked at: they must go in before the webhooks serve.
const UNCHECKED: (&str, &str) = ("trainer.kubeflow.org/webhook-validation", "disabled");

/// Where the API server finds the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the cluster, behind a Service whose port 443 leads to them. The manifests bring the configurations.
    Service { namespace: String, name: String },
    /// Anywhere else: `https://host:port`, no slash at the end. The configurations are ours to write.
    Url(String),
}

impl Place {
    /// The names for which the certificate must be good.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Service { namespace, name } => vec![format!("{name}.{namespace}.svc")],
            Self::Url(url) => {
                let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
                host.map(|host| host.trim_matches(['[', ']']).to_owned()).into_iter().collect()
            }
        }
    }

    fn client_config(&self, path: &str, bundle: Option<&str>) -> Value {
        let mut config = match self {
            Self::Service { namespace, name } => {
                json!({"service": {"namespace": namespace, "name": name, "path": path, "port": 443}})
            }
            Self::Url(url) => json!({"url": format!("{url}{path}")}),
        };
        if let Some(bundle) = bundle {
            config["caBundle"] = json!(STANDARD.encode(bundle));
        }
        config
    }
}

/// Why the API server does not know of our webhooks.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    #[error("{kind} {name} is not there: kubectl apply --server-side -k manifests/overlays/manager")]
    Missing { kind: &'static str, name: &'static str },
    #[error("cannot read or write {kind} {name}: {source}")]
    Request {
        kind: &'static str,
        name: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
}

const CONFIGURATIONS: [(&str, &str, &str, Half); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", DEFAULTER, Half::Mutate),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", VALIDATOR, Half::Validate),
];

fn name(webhook: Webhook, half: Half) -> &'static str {
    if half == Half::Mutate { webhook.mutator() } else { webhook.validator() }
}

/// The webhooks of one configuration, with every field that the API server would fill in.
fn webhooks(half: Half, place: &Place, bundle: Option<&str>, namespace: Option<&str>) -> Vec<Value> {
    let served = SERVED.into_iter().filter(|(_, h, _)| *h == half);
    let webhook = |(webhook, half, path): (Webhook, Half, &str)| {
        let (group, resource) = webhook.resource();
        let objects = if resource == "trainjobs" {
            json!({})
        } else {
            json!({"matchExpressions": [{"key": UNCHECKED.0, "operator": "NotIn", "values": [UNCHECKED.1]}]})
        };
        let namespaces = match namespace {
            Some(namespace) if webhook != Webhook::ClusterTrainingRuntime => {
                json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}})
            }
            _ => json!({}),
        };
        let mut object = json!({
            "name": name(webhook, half),
            "admissionReviewVersions": ["v1"],
            "clientConfig": place.client_config(path, bundle),
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespaces,
            "objectSelector": objects,
            "rules": [{"apiGroups": [group], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"],
                "resources": [resource], "scope": "*"}],
            "sideEffects": "None",
            "timeoutSeconds": 10,
        });
        if half == Half::Mutate {
            object["reinvocationPolicy"] = json!("Never");
        }
        object
    };
    served.map(webhook).collect()
}

/// Both configurations as objects.
pub fn configurations(place: &Place, bundle: Option<&str>, namespace: Option<&str>) -> Vec<Value> {
    let object = |(kind, _, name, half): (&str, &str, &str, Half)| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "webhooks": webhooks(half, place, bundle, namespace)})
    };
    CONFIGURATIONS.into_iter().map(object).collect()
}

/// Keeps the configurations as they should be.
pub struct Registration {
    pub client: Client,
    pub place: Place,
    /// The only namespace whose objects are guarded; `None`: all.
    pub namespace: Option<String>,
}

impl Registration {
    /// Makes both configurations trust `bundle` and nothing else; by URL, writes all of them. True where nothing was to do.
    pub async fn ensure(&self, bundle: &str) -> Result<bool, RegistrationError> {
        let wanted = configurations(&self.place, Some(bundle), self.namespace.as_deref());
        let mut settled = true;
        for ((kind, plural, name, _), wanted) in CONFIGURATIONS.into_iter().zip(wanted) {
            let collection = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
            let failed = |source| RegistrationError::Request { kind, name, source: Box::new(source) };
            let held =
                match self.client.request::<Value>(form(Method::GET, &format!("{collection}/{name}"), None)).await {
                    Ok(held) => Some(held),
                    Err(kube::Error::Api(status)) if status.code == 404 => None,
                    Err(error) => return Err(failed(error)),
                };
            let request = match (&self.place, held) {
                (Place::Service { .. }, None) => return Err(RegistrationError::Missing { kind, name }),
                (Place::Service { .. }, Some(held)) => injection(&format!("{collection}/{name}"), &held, bundle),
                (Place::Url(_), None) => Some(form(Method::POST, &collection, Some(&wanted))),
                (Place::Url(_), Some(held)) if held["webhooks"] == wanted["webhooks"] => None,
                (Place::Url(_), Some(mut held)) => {
                    held["webhooks"] = wanted["webhooks"].clone();
                    Some(form(Method::PUT, &format!("{collection}/{name}"), Some(&held)))
                }
            };
            if let Some(request) = request {
                settled = false;
                match self.client.request::<Value>(request).await {
                    Ok(_) => tracing::info!(kind, name, "told the API server whom to trust"),
                    // another replica writes the same: the next look will show
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(settled)
    }
}

/// The patch that puts the authority into all webhooks of a configuration; `None` where it is there.
fn injection(path: &str, held: &Value, bundle: &str) -> Option<Request<Vec<u8>>> {
    let bundle = STANDARD.encode(bundle);
    let webhooks = held["webhooks"].as_array().into_iter().flatten();
    let lacking: Vec<Value> = webhooks
        .filter(|webhook| webhook["clientConfig"]["caBundle"] != bundle.as_str())
        .map(|webhook| json!({"name": text(webhook, "name"), "clientConfig": {"caBundle": bundle}}))
        .collect();
    if lacking.is_empty() {
        return None;
    }
    // names are the list's key: the rest of each webhook stays as it was installed
    let mut request = form(Method::PATCH, path, Some(&json!({"webhooks": lacking})));
    let merge = http::HeaderValue::from_static("application/strategic-merge-patch+json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, merge);
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_guard_our_kinds_only() {
        let place = Place::Url("https://127.0.0.1:9443".to_owned());
        assert_eq!(place.names(), ["127.0.0.1"]);
        assert_eq!(Place::Url("https://[::1]:9443".to_owned()).names(), ["::1"]);
        let both = configurations(&place, Some("PEM"), Some("team"));
        let all: Vec<&Value> = both.iter().flat_map(|c| c["webhooks"].as_array().unwrap()).collect();
        assert_eq!(all.len(), 4);
        for webhook in all {
            assert_eq!(webhook["rules"][0]["apiGroups"], json!(["trainer.kubeflow.org"]));
            assert_eq!(webhook["clientConfig"]["caBundle"], STANDARD.encode("PEM"));
            let cluster_wide = text(webhook, "name").contains("clustertrainingruntime");
            assert_eq!(webhook["namespaceSelector"] == json!({}), cluster_wide);
        }
    }

    #[test]
    fn only_what_lacks_the_authority_is_patched() {
        let service = Place::Service { namespace: "sys".to_owned(), name: "manager".to_owned() };
        assert_eq!(service.names(), ["manager.sys.svc"]);
        let mut held = configurations(&service, None, None).remove(1);
        assert!(injection("/x", &held, "PEM").is_some());
        for webhook in held["webhooks"].as_array_mut().unwrap().iter_mut().skip(1) {
            webhook["clientConfig"]["caBundle"] = json!(STANDARD.encode("PEM"));
        }
        let request = injection("/x", &held, "PEM").unwrap();
        let patch: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(patch["webhooks"].as_array().unwrap().len(), 1);
        held["webhooks"][0]["clientConfig"]["caBundle"] = json!(STANDARD.encode("PEM"));
        assert!(injection("/x", &held, "PEM").is_none());
    }
}
