//! The admission webhooks over HTTPS: `AdmissionReview` in, [`Webhook`]'s pure functions, `AdmissionReview` out.
//!
//! What a rule wants to know of other objects is asked of the API server while the request waits; the rules are pure, so they
//! simply run again once their questions are answered. Runtimes alone may come from memory, and only to admit: one that was
//! made a moment ago is asked for, and nothing is refused for what a runtime said before it was changed.

use crate::cluster::leader::form;
use crate::controllers::admission::{Denial, Lookup, Operation, Review, Webhook};
use crate::serve::{Answer, Service, answer, text};
use api::metrics::{VERDICTS, WEBHOOK_REQUESTS, WEBHOOK_SECONDS, WEBHOOKS_IN_FLIGHT};
use api::object::{self, Gvk, Target};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use driver::metrics::Registry;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use kube::Client;
use reconcile::World;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A review may have this many bytes: an object of 3 MiB (the API server's own limit) before and after, and more.
const BODY_MAX: usize = 16 << 20;
/// How long the rules' questions may take; the API server gives up after 10 s.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// Questions lead to further questions (runtime, then priority classes) a few times at most, and once from the beginning.
const ROUNDS_MAX: usize = 8;

/// One of the two halves of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Mutate,
    Validate,
}

/// The webhooks that a cluster gets from us, as upstream has them: the name, the path, and what is behind it.
pub const SERVED: [(Webhook, Half, &str); 4] = [
    (Webhook::TrainJob, Half::Mutate, "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"),
    (Webhook::ClusterTrainingRuntime, Half::Validate, "/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime"),
    (Webhook::TrainingRuntime, Half::Validate, "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"),
    (Webhook::TrainJob, Half::Validate, "/validate-trainer-kubeflow-org-v1alpha1-trainjob"),
];

/// Answers admission reviews by means of a client that may read what the rules look at.
pub struct Webhooks {
    client: Client,
    metrics: Arc<Registry>,
    /// Runtimes as a watch tells of them.
    remembered: Arc<dyn World + Send + Sync>,
}

/// The answers that are there, and the questions that are not answered yet.
struct Known<'a> {
    objects: BTreeMap<Target, Option<Arc<Value>>>,
    open: Mutex<BTreeSet<Target>>,
    /// Where answers may come from that are not asked for, and whether any did.
    memory: Option<&'a (dyn World + Send + Sync)>,
    remembered: AtomicBool,
}

impl<'a> Known<'a> {
    fn new(memory: Option<&'a (dyn World + Send + Sync)>) -> Self {
        Self { objects: BTreeMap::new(), open: Mutex::default(), memory, remembered: AtomicBool::new(false) }
    }
}

impl Lookup for Known<'_> {
    fn get(&self, target: &Target) -> Option<Arc<Value>> {
        if let Some(object) = self.objects.get(target) {
            return object.clone();
        }
        let remembered = self.memory.and_then(|memory| memory.get(&target.gvk, &target.key));
        match &remembered {
            Some(_) => self.remembered.store(true, Ordering::Relaxed),
            None => _ = self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(target.clone()),
        }
        remembered
    }

    /// Only the rules for pods ask for lists, and on a cluster these are JobSet's.
    fn list(&self, _: &Gvk, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }
}

/// The path of one object. The kinds that the rules look at have regular plurals.
fn path(target: &Target) -> String {
    let Target { gvk, key } = target;
    let base =
        if gvk.group.is_empty() { format!("/api/{}", gvk.version) } else { format!("/apis/{}", gvk.api_version()) };
    let place = if key.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", key.namespace) };
    format!("{base}{place}/{}/{}", gvk.regular_plural(), key.name)
}

impl Webhooks {
    pub fn new(client: Client, metrics: Arc<Registry>, remembered: Arc<dyn World + Send + Sync>) -> Self {
        Self { client, metrics, remembered }
    }

    /// The answer to a review: `response` of it.
    async fn review(&self, webhook: Webhook, half: Half, request: &Value) -> Value {
        let allow = |more: Value| {
            let mut response = json!({"uid": request["uid"], "allowed": true});
            response.as_object_mut().expect("made above").extend(more.as_object().cloned().unwrap_or_default());
            response
        };
        let operation = match request["operation"].as_str() {
            Some("CREATE") => Operation::Create,
            Some("UPDATE") => Operation::Update,
            _ => return allow(json!({})),
        };
        let deadline = api::time::after(tokio::time::Instant::now(), ANSWER_MAX);
        let mut known = Known::new(Some(&*self.remembered));
        for _ in 0..ROUNDS_MAX {
            let mut object = request["object"].clone();
            let decided = catch_unwind(AssertUnwindSafe(|| {
                let review = Review {
                    operation,
                    namespace: request["namespace"].as_str().unwrap_or_default(),
                    old: Some(&request["oldObject"]).filter(|old| !old.is_null()),
                    lookup: &known,
                    now: Timestamp::now(),
                };
                match half {
                    Half::Mutate => webhook.mutate(&review, &mut object).map(|()| Vec::new()),
                    Half::Validate => webhook.validate(&review, &object),
                }
            }));
            let Ok(decided) = decided else {
                tracing::error!(webhook = webhook.validator(), "bug: admission panicked on an object");
                return refuse(
                    request,
                    500,
                    "InternalError",
                    "a bug in admission stops this object; see the operator's log",
                );
            };
            let open = std::mem::take(&mut *known.open.lock().unwrap_or_else(PoisonError::into_inner));
            if open.is_empty() {
                if decided.is_err() && *known.remembered.get_mut() {
                    known = Known::new(None);
                    continue;
                }
                return match decided {
                    Ok(warnings) => {
                        let mut more = warned(json!({}), &warnings);
                        let patch = difference(&request["object"], &object);
                        if !patch.is_empty() {
                            more["patchType"] = json!("JSONPatch");
                            more["patch"] = json!(STANDARD.encode(Value::Array(patch).to_string()));
                        }
                        allow(more)
                    }
                    Err(Denial::Refused { code, reason, message, warnings }) => {
                        warned(refuse(request, code, reason, &message), &warnings)
                    }
                    Err(Denial::Invalid(errors)) => refuse(request, 422, "Invalid", &api::field::aggregate(&errors)),
                };
            }
            for target in open {
                match tokio::time::timeout_at(deadline, self.fetch(&target)).await {
                    Ok(Ok(object)) => known.objects.insert(target, object),
                    Ok(Err(error)) => {
                        let message = format!("cannot read {target}, which admission depends on: {error}");
                        tracing::warn!(object = %target, %error, "cannot read what admission depends on");
                        return refuse(request, 500, "InternalError", &message);
                    }
                    Err(_) => {
                        let message =
                            format!("reading {target}, which admission depends on, takes too long; try again");
                        return refuse(request, 504, "Timeout", &message);
                    }
                };
            }
        }
        refuse(request, 500, "InternalError", "a bug in admission: it never has enough of questions")
    }

    async fn fetch(&self, target: &Target) -> Result<Option<Arc<Value>>, kube::Error> {
        if target.key.name.is_empty() {
            return Ok(None);
        }
        match self.client.request::<Value>(form(Method::GET, &path(target), None)).await {
            Ok(object) => Ok(Some(Arc::new(object))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Answer {
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "admission reviews are posted");
        }
        let Some((webhook, half, _)) = SERVED.into_iter().find(|(_, _, path)| *path == request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "no webhook has this path");
        };
        let Ok(body) = Limited::new(request.into_body(), BODY_MAX).collect().await else {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "the review could not be read, or is too large");
        };
        let review: Value = match serde_json::from_slice(&body.to_bytes()) {
            Ok(review) => review,
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {error}")),
        };
        let version = object::text(&review, "apiVersion");
        if version != "admission.k8s.io/v1" || !review["request"]["uid"].is_string() {
            return text(StatusCode::BAD_REQUEST, "not an AdmissionReview of admission.k8s.io/v1 with a request");
        }
        let response = self.review(webhook, half, &review["request"]).await;
        let verdict = if response["allowed"] == true { "admitted" } else { "denied" };
        let name = if half == Half::Mutate { webhook.mutator() } else { webhook.validator() };
        self.metrics.add(&VERDICTS, &[("verdict", verdict), ("webhook", name)], 1.0);
        let review = json!({"apiVersion": version, "kind": "AdmissionReview", "response": response});
        answer(StatusCode::OK, "application/json", review.to_string())
    }
}

/// A request that counts as being answered until it is, or its client has gone.
struct UnderWay<'a>(&'a Registry, &'static str);

impl<'a> UnderWay<'a> {
    fn new(metrics: &'a Registry, path: &'static str) -> Self {
        metrics.add(&WEBHOOKS_IN_FLIGHT, &[("webhook", path)], 1.0);
        Self(metrics, path)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.add(&WEBHOOKS_IN_FLIGHT, &[("webhook", self.1)], -1.0);
    }
}

impl Service for Webhooks {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let started = Instant::now();
        let known = SERVED.iter().find(|(_, _, path)| *path == request.uri().path());
        let path = known.map_or("other", |(_, _, path)| *path);
        let under_way = UnderWay::new(&self.metrics, path);
        let answer = self.respond(request).await;
        drop(under_way);
        self.metrics.add(&WEBHOOK_REQUESTS, &[("code", answer.status().as_str()), ("webhook", path)], 1.0);
        self.metrics.observe(&WEBHOOK_SECONDS, &[("webhook", path)], started.elapsed().as_secs_f64());
        answer
    }
}

fn refuse(request: &Value, code: u16, reason: &str, message: &str) -> Value {
    let mut status = json!({"metadata": {}, "status": "Failure", "message": message, "code": code});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    json!({"uid": request["uid"], "allowed": false, "status": status})
}

/// A response with warnings for the client, if there are any.
fn warned(mut response: Value, warnings: &[String]) -> Value {
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    response
}

/// The JSON patch that makes `new` of `old`. Lists are replaced whole.
fn difference(old: &Value, new: &Value) -> Vec<Value> {
    let mut patch = Vec::new();
    descend("", old, new, &mut patch);
    patch
}

fn descend(path: &str, old: &Value, new: &Value, patch: &mut Vec<Value>) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let at = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                patch.push(json!({"op": "remove", "path": at(key)}));
            }
            for (key, value) in after {
                match before.get(key) {
                    Some(held) => descend(&at(key), held, value, patch),
                    None => patch.push(json!({"op": "add", "path": at(key), "value": value})),
                }
            }
        }
        _ if old == new => {}
        _ => patch.push(json!({"op": "replace", "path": path, "value": new})),
    }
}

/// The kinds of objects that admission may read, for the roles that grant it: kinds of Trainer's rules.
pub(crate) fn looked_at() -> [(&'static str, &'static str); 5] {
    [
        ("", "configmaps"),
        ("jobset.x-k8s.io", "jobsets"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("trainer.kubeflow.org", "clustertrainingruntimes"),
        ("trainer.kubeflow.org", "trainingruntimes"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object::Key;
    use reconcile::testing::Model;
    use std::convert::Infallible;

    /// An API server that holds these objects by path, and counts how often it is asked.
    fn api(objects: Value) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            notes.lock().unwrap().push(path.clone());
            let (code, body) = match objects.get(&path) {
                Some(object) => (200, object.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"}),
                ),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            async move { Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap()) }
        });
        (Client::new(service, "default"), asked)
    }

    fn trainjob(runtime: &str) -> Value {
        json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": "train", "namespace": "ns"},
            "spec": {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": runtime},
                "runtimePatches": [{"manager": "acme.io/x"}]}})
    }

    #[tokio::test]
    async fn rules_get_what_they_ask_for() {
        let runtime = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "torch", "labels": {"trainer.kubeflow.org/support": "deprecated"}},
            "spec": {"template": {"spec": {"replicatedJobs": []}}}});
        let (client, asked) =
            api(json!({"/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch": runtime}));
        let webhooks = Webhooks::new(client, Arc::default(), Arc::new(Model::default()));
        let request = json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "object": trainjob("torch")});
        let response = webhooks.review(Webhook::TrainJob, Half::Validate, &request).await;
        assert_eq!((&response["allowed"], &response["uid"]), (&json!(true), &json!("u")), "{response}");
        assert!(response["warnings"][0].as_str().unwrap().contains("deprecated"));
        assert!(!asked.lock().unwrap().is_empty());

        let mut wrong = trainjob("torch");
        wrong["spec"]["runtimePatches"][0]["manager"] = json!("nobody");
        let request = json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "object": wrong});
        let response = webhooks.review(Webhook::TrainJob, Half::Validate, &request).await;
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)), "{response}");
        assert!(response["warnings"][0].as_str().unwrap().contains("deprecated"), "warned all the same: {response}");

        let request = json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "object": trainjob("gone")});
        let response = webhooks.review(Webhook::TrainJob, Half::Validate, &request).await;
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)), "{response}");
        assert!(response["status"]["message"].as_str().unwrap().contains("must be created before the TrainJob"));
    }

    #[tokio::test]
    async fn memory_admits_and_never_refuses() {
        let runtime = |policy: Value| {
            json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "torch", "uid": "u", "resourceVersion": "1"},
            "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}}]}}}})
        };
        let served = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch";
        let (client, asked) = api(json!({served: runtime(json!({}))}));
        let mut job = trainjob("torch");
        job["spec"]["runtimePatches"] = json!([]);
        job["spec"]["trainer"] = json!({"env": [{"name": "PET_NNODES", "value": "1"}]});
        let create = json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "object": job});
        let remembers = |runtime| {
            let mut memory = Model::default();
            memory.put(runtime);
            Webhooks::new(client.clone(), Arc::default(), Arc::new(memory))
        };
        let webhooks = remembers(runtime(json!({})));
        let response = webhooks.review(Webhook::TrainJob, Half::Validate, &create).await;
        assert_eq!((&response["allowed"], asked.lock().unwrap().len()), (&json!(true), 0), "{response}");
        // what it remembers would refuse the job; the runtime has changed since
        let webhooks = remembers(runtime(json!({"torch": {}})));
        let response = webhooks.review(Webhook::TrainJob, Half::Validate, &create).await;
        assert_eq!((&response["allowed"], asked.lock().unwrap().len()), (&json!(true), 1), "{response}");
    }

    #[tokio::test]
    async fn defaults_are_a_patch() {
        let (client, asked) = api(json!({}));
        let request = json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "object": trainjob("torch")});
        let response = Webhooks::new(client, Arc::default(), Arc::new(Model::default()))
            .review(Webhook::TrainJob, Half::Mutate, &request)
            .await;
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!((&patch[0]["op"], &patch[0]["path"]), (&json!("replace"), &json!("/spec/runtimePatches")));
        assert!(patch[0]["value"][0]["time"].is_string());
        assert!(asked.lock().unwrap().is_empty(), "defaulting asks nobody");
    }

    #[test]
    fn differences_are_json_patches() {
        let old = json!({"a": {"b/c": 1, "d": [1]}, "gone": 1, "same": {"x": 1}});
        let new = json!({"a": {"b/c": 2, "d": [1, 2], "e": {}}, "same": {"x": 1}});
        let patch = Value::Array(difference(&old, &new));
        let expected = json!([{"op": "remove", "path": "/gone"}, {"op": "replace", "path": "/a/b~1c", "value": 2},
            {"op": "replace", "path": "/a/d", "value": [1, 2]}, {"op": "add", "path": "/a/e", "value": {}}]);
        assert_eq!(patch, expected);
    }

    #[test]
    fn paths_have_regular_plurals() {
        let path = |group, version, kind, namespace| {
            path(&Target { gvk: Gvk::new(group, version, kind), key: Key::new(namespace, "x") })
        };
        assert_eq!(path("", "v1", "ConfigMap", "ns"), "/api/v1/namespaces/ns/configmaps/x");
        assert_eq!(
            path("scheduling.k8s.io", "v1", "PriorityClass", ""),
            "/apis/scheduling.k8s.io/v1/priorityclasses/x"
        );
    }
}
