//! The webhook configurations: makes them, and writes the certificate authority into them.
//! Source: upstream's `pkg/webhooks`.

use crate::cluster::leader::form;
use crate::cluster::webhooks::{Half, SERVED};
use crate::controllers::admission::Webhook;
use api::object::{meta, text};
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

    /// Whether a webhook of a configuration leads here.
    fn is_of(&self, webhook: &Value) -> bool {
        let config = &webhook["clientConfig"];
        match self {
            Self::Service { namespace, name } => {
                let service = &config["service"];
                text(service, "namespace") == namespace && text(service, "name") == name
            }
            Self::Url(url) => text(config, "url").strip_prefix(url.as_str()).is_some_and(|path| path.starts_with('/')),
        }
    }

    /// Whether a configuration leads here, with any of its webhooks.
    fn leads_from(&self, configuration: &Value) -> bool {
        configuration["webhooks"].as_array().into_iter().flatten().any(|webhook| self.is_of(webhook))
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
    #[error(
        "{kind} {name} leads to {whom}: another operator has taken over, and this replica leaves it alone. Stop this one, or \
         take over again: {again}"
    )]
    Taken { kind: &'static str, name: &'static str, whom: String, again: &'static str },
    #[error("cannot read or write {kind} {name}")]
    Request {
        kind: &'static str,
        name: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
}

/// What was done about the configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both trust the authority.
    Trusted,
    /// Somebody else wrote at the same time: look again.
    Raced,
}

const BASE: &str = "/apis/admissionregistration.k8s.io/v1";
/// How an operator in the cluster gets its configurations back.
const BY_SERVICE: &str = "kubectl apply --server-side --force-conflicts -k manifests/overlays/manager";

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

/// Both configurations as the API server held them at one look.
#[derive(Debug)]
pub struct Held([Option<Value>; 2]);

impl Held {
    /// Whether both lead to `place`.
    pub fn is_at(&self, place: &Place) -> bool {
        self.0.iter().flatten().filter(|configuration| place.leads_from(configuration)).count() == self.0.len()
    }
}

/// Keeps the configurations as they should be.
pub struct Registration {
    pub client: Client,
    pub place: Place,
    /// The only namespace whose objects are guarded; `None`: all.
    pub namespace: Option<String>,
}

impl Registration {
    /// The configurations as they are. Read them before the authority that they are to trust: a write of ours then fails where
    /// another operator has written its own in between.
    pub async fn read(&self) -> Result<Held, RegistrationError> {
        let mut held = [None, None];
        for ((kind, plural, name, _), held) in CONFIGURATIONS.into_iter().zip(&mut held) {
            *held =
                match self.client.request::<Value>(form(Method::GET, &format!("{BASE}/{plural}/{name}"), None)).await {
                    Ok(found) => Some(found),
                    Err(kube::Error::Api(status)) if status.code == 404 => None,
                    Err(source) => return Err(RegistrationError::Request { kind, name, source: Box::new(source) }),
                };
        }
        Ok(Held(held))
    }

    /// Makes both configurations trust `bundle` and nothing else; by URL, writes all of them. A configuration that leads to
    /// another operator is taken over by URL, and only where it was not ours before (`claimed`).
    pub async fn ensure(&self, held: Held, bundle: &str, claimed: bool) -> Result<Outcome, RegistrationError> {
        let wanted = configurations(&self.place, Some(bundle), self.namespace.as_deref());
        let mut outcome = Outcome::Trusted;
        for (at, (held, wanted)) in held.0.into_iter().zip(wanted).enumerate() {
            let (kind, _, name, _) = CONFIGURATIONS[at];
            let Some(request) = write(&self.place, at, held, &wanted, bundle, claimed)? else { continue };
            match self.client.request::<Value>(request).await {
                Ok(_) => tracing::info!(kind, name, "told the API server whom to trust"),
                Err(kube::Error::Api(status)) if status.code == 409 => outcome = Outcome::Raced,
                Err(source) => return Err(RegistrationError::Request { kind, name, source: Box::new(source) }),
            }
        }
        Ok(outcome)
    }
}

/// The request that makes a configuration what it should be; `None` where it is. Each request is for the version that was read,
/// and fails where that is not the newest.
fn write(
    place: &Place,
    at: usize,
    held: Option<Value>,
    wanted: &Value,
    bundle: &str,
    claimed: bool,
) -> Result<Option<Request<Vec<u8>>>, RegistrationError> {
    let (kind, plural, name, _) = CONFIGURATIONS[at];
    let collection = format!("{BASE}/{plural}");
    let path = format!("{collection}/{name}");
    let Some(mut held) = held else {
        return match place {
            Place::Service { .. } => Err(RegistrationError::Missing { kind, name }),
            Place::Url(_) => Ok(Some(form(Method::POST, &collection, Some(wanted)))),
        };
    };
    let is_ours = place.leads_from(&held);
    match place {
        Place::Service { .. } if is_ours => Ok(injection(place, &path, &held, bundle)),
        Place::Url(_) if is_ours || !claimed => {
            if held["webhooks"] == wanted["webhooks"] {
                return Ok(None);
            }
            held["webhooks"] = wanted["webhooks"].clone();
            Ok(Some(form(Method::PUT, &path, Some(&held))))
        }
        Place::Service { .. } => Err(RegistrationError::Taken { kind, name, whom: whom(&held), again: BY_SERVICE }),
        Place::Url(_) => Err(RegistrationError::Taken { kind, name, whom: whom(&held), again: "start it again" }),
    }
}

/// Where a configuration leads, for people.
fn whom(configuration: &Value) -> String {
    let config = &configuration["webhooks"][0]["clientConfig"];
    let service = &config["service"];
    match config["url"].as_str() {
        Some(url) => url.to_owned(),
        None if service.is_object() => format!("Service {}/{}", text(service, "namespace"), text(service, "name")),
        None => "nobody".to_owned(),
    }
}

/// The patch that puts the authority into the webhooks that lead to us; `None` where it is there.
fn injection(place: &Place, path: &str, held: &Value, bundle: &str) -> Option<Request<Vec<u8>>> {
    let bundle = STANDARD.encode(bundle);
    let webhooks = held["webhooks"].as_array().into_iter().flatten();
    let lacking: Vec<Value> = webhooks
        .filter(|webhook| place.is_of(webhook) && webhook["clientConfig"]["caBundle"] != bundle.as_str())
        .map(|webhook| json!({"name": text(webhook, "name"), "clientConfig": {"caBundle": bundle}}))
        .collect();
    if lacking.is_empty() {
        return None;
    }
    // names are the list's key: the rest of each webhook stays as it was installed
    let version = meta(held, "resourceVersion");
    let patch = json!({"metadata": {"resourceVersion": version}, "webhooks": lacking});
    let mut request = form(Method::PATCH, path, Some(&patch));
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

    fn service() -> Place {
        Place::Service { namespace: "sys".to_owned(), name: "manager".to_owned() }
    }

    /// A configuration that somebody has installed.
    fn installed(place: &Place, at: usize) -> Value {
        let mut held = configurations(place, None, None).remove(at);
        held["metadata"]["resourceVersion"] = json!("7");
        held
    }

    fn sent(request: Option<Request<Vec<u8>>>) -> Value {
        serde_json::from_slice(request.expect("a request").body()).expect("JSON")
    }

    #[test]
    fn only_what_lacks_the_authority_is_patched() {
        let service = service();
        assert_eq!(service.names(), ["manager.sys.svc"]);
        let mut held = installed(&service, 1);
        let ask = |held: &Value| write(&service, 1, Some(held.clone()), &Value::Null, "PEM", true).expect("it is ours");
        assert_eq!(sent(ask(&held))["webhooks"].as_array().map(Vec::len), Some(3));
        for webhook in held["webhooks"].as_array_mut().unwrap().iter_mut().skip(1) {
            webhook["clientConfig"]["caBundle"] = json!(STANDARD.encode("PEM"));
        }
        let patch = sent(ask(&held));
        assert_eq!(patch["webhooks"].as_array().map(Vec::len), Some(1));
        assert_eq!(patch["metadata"]["resourceVersion"], "7", "for what was read, and no other");
        held["webhooks"][0]["clientConfig"]["caBundle"] = json!(STANDARD.encode("PEM"));
        assert!(ask(&held).is_none());
    }

    #[test]
    fn what_leads_to_another_operator_is_left_alone() {
        let elsewhere = Place::Service { namespace: "sys".to_owned(), name: "other".to_owned() };
        let theirs = installed(&elsewhere, 0);
        let taken = write(&service(), 0, Some(theirs), &Value::Null, "PEM", false).expect_err("not ours");
        assert!(
            taken
                .to_string()
                .starts_with("MutatingWebhookConfiguration defaulter.trainer.kubeflow.org leads to Service sys/other:"),
            "{taken}"
        );
        // one that somebody added to ours is not patched either
        let mut mixed = installed(&service(), 1);
        mixed["webhooks"][2]["clientConfig"] = json!({"url": "https://elsewhere/x"});
        let patch = sent(write(&service(), 1, Some(mixed), &Value::Null, "PEM", false).expect("partly ours"));
        assert_eq!(patch["webhooks"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn by_url_configurations_are_taken_over_once() {
        let (ours, next) =
            (Place::Url("https://127.0.0.1:1".to_owned()), Place::Url("https://127.0.0.1:12".to_owned()));
        let wanted = installed(&ours, 0);
        let ask = |place: &Place, held, claimed| write(place, 0, held, &wanted, "PEM", claimed);
        assert!(ask(&ours, None, true).expect("nobody's").is_some(), "one that was deleted is made again");
        assert!(ask(&ours, Some(installed(&ours, 0)), true).expect("ours").is_none());
        let put = sent(ask(&ours, Some(installed(&service(), 0)), false).expect("it takes over"));
        assert_eq!((&put["webhooks"], &put["metadata"]["resourceVersion"]), (&wanted["webhooks"], &json!("7")));
        assert!(matches!(ask(&ours, Some(installed(&next, 0)), true), Err(RegistrationError::Taken { .. })));
    }
}
