//! Reads the facts that `doctor` judges. It writes nothing: it sends one TrainJob as a dry run, which must be refused.

use crate::facts::{Account, Facts, Probe, Right, Seen};
use crate::rules::deployed;
use crate::{BuiltIn, Scope};
use api::object::{meta, text};
use client::{ClientError, Cluster, is_not_served};
use futures::StreamExt;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use view::state::last_seen;

/// Requests at a time.
const CONCURRENCY: usize = 8;
/// Objects in one answer.
const PAGE: usize = 500;
/// The operator's namespace, if nothing names another.
const OPERATOR_NAMESPACE: &str = "kubeflow-system";
/// The operator's service account there.
const OPERATOR_ACCOUNT: &str = "kubeflow-trainer-controller-manager";
/// A runtime that does not exist: a webhook of TrainJobs refuses one that names it.
const NO_RUNTIME: &str = "trainyard-doctor-asks-for-none";

const TRAINER: &str = "trainer.kubeflow.org";

/// The requests of our commands: group, resource, subresource, verbs, and the commands that need them.
const NEEDED: [(&str, &str, &str, &[&str], &str); 9] = [
    (TRAINER, "trainjobs", "", &["get", "list", "watch"], "all commands"),
    (TRAINER, "trainjobs", "", &["create", "patch", "delete"], "run, suspend, resume, delete"),
    (TRAINER, "trainingruntimes", "", &["get", "list"], "run, runtimes"),
    (TRAINER, "clustertrainingruntimes", "", &["get", "list"], "run, runtimes"),
    ("", "configmaps", "", &["create", "patch", "delete"], "run"),
    ("", "pods", "", &["list", "watch"], "run, logs, describe"),
    ("", "pods", "log", &["get"], "run, logs, describe"),
    ("", "events", "", &["list"], "describe"),
    ("jobset.x-k8s.io", "jobsets", "", &["get"], "describe"),
];

/// Reads all facts; jobs of one namespace, or of all that this user may see.
///
/// Errors: the server cannot be reached, or does not know this user.
pub(super) async fn facts(cluster: &Cluster, scope: Scope, built_in: BuiltIn) -> Result<Facts, ClientError> {
    let Scope { namespace: only, stuck_after } = scope;
    let ask = Ask { client: &cluster.client };
    // the first request shows whether the others make sense
    let version = match ask.get("/version").await {
        Ok(version) => Seen::Known(version),
        Err(kube::Error::Api(status)) if status.code == 401 => return Err(kube::Error::Api(status).into()),
        Err(kube::Error::Api(status)) => Seen::Unknown(refused(&status, "get /version")),
        Err(error) => return Err(error.into()),
    };
    let health = ask.health().await;
    let scope = Reach { ask: &ask, only: only.as_deref(), fallback: &cluster.namespace };

    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let names: Vec<String> = built_in.kinds.iter().map(|kind| meta(kind, "name").to_owned()).collect();
    let installed = futures::stream::iter(names).map(|name| async {
        let path = format!("{definitions}/{name}");
        let found = ask.find(&path, "get on customresourcedefinitions.apiextensions.k8s.io").await;
        (name, found)
    });
    let installed: BTreeMap<_, _> = installed.buffered(CONCURRENCY).collect().await;

    let registered = "/apis/admissionregistration.k8s.io/v1";
    let (mutating, validating) = tokio::join!(
        ask.list(format!("{registered}/mutatingwebhookconfigurations"), ""),
        ask.list(format!("{registered}/validatingwebhookconfigurations"), ""),
    );
    let webhooks = match (mutating, validating) {
        (Seen::Known(mut mutating), Seen::Known(mut validating)) => {
            mutating.iter_mut().for_each(|one| one["kind"] = "MutatingWebhookConfiguration".into());
            validating.iter_mut().for_each(|one| one["kind"] = "ValidatingWebhookConfiguration".into());
            mutating.append(&mut validating);
            Seen::Known(mutating)
        }
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why),
    };
    let services: BTreeSet<(String, String)> = webhooks
        .items()
        .iter()
        .flat_map(crate::rules::services)
        .filter(|(namespace, _)| !namespace.is_empty())
        .collect();
    let endpoints = futures::stream::iter(services).map(|service| async {
        let ready = ask.ready(&service).await;
        (service, ready)
    });
    let endpoints: BTreeMap<_, _> = endpoints.buffered(CONCURRENCY).collect().await;

    let children = "labelSelector=jobset.sigs.k8s.io/jobset-name";
    let trainer = "/apis/trainer.kubeflow.org/v1alpha1";
    let (deployments, leases, cluster_runtimes, runtimes) = tokio::join!(
        ask.list_somewhere("/apis/apps/v1", "deployments", OPERATOR_NAMESPACE),
        ask.list_somewhere("/apis/coordination.k8s.io/v1", "leases", OPERATOR_NAMESPACE),
        ask.list(format!("{trainer}/clustertrainingruntimes"), ""),
        scope.list(trainer, "trainingruntimes", ""),
    );
    let (trainjobs, jobsets, jobs, pods, nodes, events) = tokio::join!(
        scope.list(trainer, "trainjobs", ""),
        scope.list("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", ""),
        scope.list("/apis/batch/v1", "jobs", children),
        scope.list("/api/v1", "pods", children),
        ask.list("/api/v1/nodes".to_owned(), ""),
        scope.list("/api/v1", "events", "fieldSelector=type%3DWarning"),
    );
    let events = match events {
        Seen::Known(mut events) => {
            events.sort_by(|a, b| last_seen(a).cmp(last_seen(b)));
            Seen::Known(events)
        }
        unknown => unknown,
    };

    let of_mpijobs = format!("labelSelector={}", api::mpi::names::LABEL_JOB_NAME);
    let (mpijobs, mpi_pods, searches) = tokio::join!(
        scope.list("/apis/kubeflow.org/v2beta1", "mpijobs", ""),
        scope.list("/api/v1", "pods", &of_mpijobs),
        scope.list(trainer, "optimizationjobs", ""),
    );
    let (own, account, probe, user) = tokio::join!(
        own_rights(&ask, &cluster.namespace),
        operator_account(&ask, &deployments, &built_in),
        probe(&ask, &cluster.namespace),
        who(&ask),
    );
    Ok(Facts {
        now: Timestamp::now(),
        patience: SignedDuration::try_from(stuck_after).unwrap_or(SignedDuration::MAX),
        namespace: cluster.namespace.clone(),
        user,
        only,
        flags: cluster.flags.clone(),
        server: cluster.server.clone(),
        version,
        health,
        expected: built_in.kinds,
        installed,
        own,
        account,
        webhooks,
        endpoints,
        probe,
        deployments,
        leases,
        cluster_runtimes,
        runtimes,
        trainjobs,
        mpijobs,
        mpi_pods,
        searches,
        jobsets,
        jobs,
        pods,
        nodes,
        events,
    })
}

/// Why something is unknown, from the server's answer.
fn refused(status: &kube::core::Status, needs: &str) -> String {
    match status.code {
        401 | 403 => format!("needs {needs}"),
        _ => format!("the server says: {}", status.message.trim()),
    }
}

struct Ask<'a> {
    client: &'a Client,
}

impl Ask<'_> {
    async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        self.client.request(Request::get(path).body(Vec::new()).expect("paths are well-formed")).await
    }

    /// The server's report about itself, whether good or bad.
    async fn health(&self) -> Seen<String> {
        let request = Request::get("/readyz?verbose").body(kube::client::Body::empty()).expect("paths are well-formed");
        let answer = match self.client.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Seen::Unknown(error.to_string()),
        };
        if !matches!(answer.status().as_u16(), 200 | 500) {
            return Seen::Unknown("needs get on /readyz".to_owned());
        }
        match http_body_util::BodyExt::collect(answer.into_body()).await {
            Ok(body) => Seen::Known(String::from_utf8_lossy(&body.to_bytes()).into_owned()),
            Err(error) => Seen::Unknown(error.to_string()),
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let request = Request::post(path).header("content-type", "application/json");
        self.client.request(request.body(body.to_string().into_bytes()).expect("paths are well-formed")).await
    }

    /// One object; `Known(None)` if it does not exist.
    async fn find(&self, path: &str, needs: &str) -> Seen<Option<Value>> {
        match self.get(path).await {
            Ok(object) => Seen::Known(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Seen::Known(None),
            Err(kube::Error::Api(status)) => Seen::Unknown(refused(&status, needs)),
            Err(error) => Seen::Unknown(error.to_string()),
        }
    }

    /// All objects of a collection, page by page; none if the kind is not served.
    async fn list(&self, collection: impl AsRef<str>, query: &str) -> Seen<Vec<Value>> {
        let collection = collection.as_ref();
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let mut path = format!("{collection}?limit={PAGE}");
            if !query.is_empty() {
                path += &format!("&{query}");
            }
            if !next.is_empty() {
                path += &format!("&continue={next}");
            }
            match self.get(&path).await {
                Ok(mut page) => {
                    if let Value::Array(found) = page["items"].take() {
                        items.extend(found);
                    }
                    next = text(&page["metadata"], "continue").to_owned();
                    if next.is_empty() {
                        return Seen::Known(items);
                    }
                }
                Err(kube::Error::Api(status)) if is_not_served(&status) => return Seen::Known(Vec::new()),
                Err(kube::Error::Api(status)) => {
                    let kind = collection.rsplit('/').next().unwrap_or_default();
                    return Seen::Unknown(refused(&status, &format!("list on {kind}")));
                }
                Err(error) => return Seen::Unknown(error.to_string()),
            }
        }
    }

    /// The objects of all namespaces; of this namespace if the user may not list all.
    async fn list_somewhere(&self, group: &str, kind: &str, namespace: &str) -> Seen<Vec<Value>> {
        match self.list(format!("{group}/{kind}"), "").await {
            Seen::Unknown(why) => match self.list(format!("{group}/namespaces/{namespace}/{kind}"), "").await {
                Seen::Known(items) => Seen::Known(items),
                Seen::Unknown(_) => Seen::Unknown(why),
            },
            known => known,
        }
    }

    /// The number of ready addresses behind a Service.
    async fn ready(&self, (namespace, name): &(String, String)) -> Seen<usize> {
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        match self.list(&path, &format!("labelSelector=kubernetes.io/service-name%3D{name}")).await {
            Seen::Known(slices) => {
                let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
                // a missing value counts as ready (discovery/v1)
                let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false);
                Seen::Known(ready.map(|endpoint| endpoint["addresses"].as_array().map_or(0, Vec::len)).sum())
            }
            Seen::Unknown(why) => Seen::Unknown(why),
        }
    }

    /// Whether a review grants the right.
    async fn is_allowed(&self, kind: &str, right: &Right, whose: Option<(&str, &[String])>) -> Seen<bool> {
        let Right { verb, group, resource, subresource, name, namespace } = right;
        let mut spec = json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource,
            "subresource": subresource, "name": name, "namespace": namespace}});
        if let Some((user, groups)) = whose {
            spec["user"] = user.into();
            spec["groups"] = groups.into();
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let plural = format!("{}s", kind.to_lowercase());
        match self.post(&format!("/apis/authorization.k8s.io/v1/{plural}"), &review).await {
            Ok(answer) => Seen::Known(answer["status"]["allowed"] == true),
            Err(kube::Error::Api(status)) => {
                Seen::Unknown(refused(&status, &format!("create on {plural}.authorization.k8s.io")))
            }
            Err(error) => Seen::Unknown(error.to_string()),
        }
    }
}

/// Lists in the chosen namespace, or in all; if that is not allowed, in the current one.
struct Reach<'a> {
    ask: &'a Ask<'a>,
    only: Option<&'a str>,
    fallback: &'a str,
}

impl Reach<'_> {
    async fn list(&self, group: &str, kind: &str, query: &str) -> Seen<Vec<Value>> {
        if self.only.is_none() {
            match self.ask.list(format!("{group}/{kind}"), query).await {
                Seen::Known(items) => return Seen::Known(items),
                Seen::Unknown(_) => {}
            }
        }
        let namespace = self.only.unwrap_or(self.fallback);
        self.ask.list(format!("{group}/namespaces/{namespace}/{kind}"), query).await
    }
}

/// Our name on this server; empty if it does not say (Kubernetes before 1.28).
async fn who(ask: &Ask<'_>) -> String {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    match ask.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await {
        Ok(answer) => text(&answer["status"]["userInfo"], "username").to_owned(),
        Err(_) => String::new(),
    }
}

/// The rights that our commands need in a namespace, one by one.
fn needed(namespace: &str) -> Vec<(Right, &'static str)> {
    let mut needed = Vec::new();
    for (group, resource, subresource, verbs, commands) in NEEDED {
        for verb in verbs {
            let right = Right {
                verb: (*verb).to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                name: String::new(),
                namespace: if resource.starts_with("cluster") { String::new() } else { namespace.to_owned() },
            };
            needed.push((right, commands));
        }
    }
    needed
}

async fn own_rights(ask: &Ask<'_>, namespace: &str) -> Vec<(Right, &'static str, Seen<bool>)> {
    let (rights, commands): (Vec<Right>, Vec<&'static str>) = needed(namespace).into_iter().unzip();
    let answers = futures::stream::iter(rights).map(|right| async move {
        let answer = ask.is_allowed("SelfSubjectAccessReview", &right, None).await;
        (right, answer)
    });
    let answers: Vec<(Right, Seen<bool>)> = answers.buffered(CONCURRENCY).collect().await;
    answers.into_iter().zip(commands).map(|((right, answer), commands)| (right, commands, answer)).collect()
}

/// Which rights of its roles the operator has; the roles for a single namespace if it watches only one.
async fn operator_account(ask: &Ask<'_>, deployments: &Seen<Vec<Value>>, built_in: &BuiltIn) -> Seen<Option<Account>> {
    let operator = deployments.items().iter().find(|deployment| deployed(deployment) == Some("trainyard"));
    let namespace = operator.map_or(OPERATOR_NAMESPACE, |operator| meta(operator, "namespace")).to_owned();
    let spec = operator.map(|operator| &operator["spec"]["template"]["spec"]);
    let name = spec.map(|spec| text(spec, "serviceAccountName")).filter(|name| !name.is_empty());
    let name = name.unwrap_or(OPERATOR_ACCOUNT).to_owned();
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
    match ask.find(&path, &format!("get on serviceaccounts in namespace {namespace}")).await {
        // only its rights can be asked for, by name
        Seen::Known(Some(_)) | Seen::Unknown(_) => {}
        Seen::Known(None) => return Seen::Known(None),
    }
    let args: Vec<&str> = spec
        .and_then(|spec| spec["containers"][0]["args"].as_array())
        .map(|args| args.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let keeps_to_one = args.iter().any(|arg| arg.starts_with("--watch-namespace"));
    let mut roles = vec![if keeps_to_one { built_in.roles_of_one_namespace } else { built_in.roles }];
    roles.extend(args.contains(&"--install-runtimes").then_some(built_in.roles_to_install_runtimes));
    let rights: Vec<Right> = roles.into_iter().flat_map(|text| granted(text, &namespace)).collect();

    let user = format!("system:serviceaccount:{namespace}:{name}");
    let mut groups = vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()];
    groups.push(format!("system:serviceaccounts:{namespace}"));
    let (user, groups) = (user.as_str(), groups.as_slice());
    // the first answer shows whether this user may ask at all
    let Some(first) = rights.first() else { return Seen::Known(None) };
    if let Seen::Unknown(why) = ask.is_allowed("SubjectAccessReview", first, Some((user, groups))).await {
        return Seen::Unknown(why);
    }
    let asked = rights.into_iter().map(|right| async move {
        let answer = ask.is_allowed("SubjectAccessReview", &right, Some((user, groups))).await;
        (right, answer)
    });
    let answers: Vec<(Right, Seen<bool>)> = futures::stream::iter(asked).buffered(CONCURRENCY).collect().await;
    let mut rights = Vec::new();
    for (right, answer) in answers {
        match answer {
            Seen::Known(allowed) => rights.push((right, allowed)),
            Seen::Unknown(why) => return Seen::Unknown(why),
        }
    }
    Seen::Known(Some(Account { namespace, name, rights }))
}

/// The requests that ClusterRoles and Roles (YAML documents) allow, one by one. Roles count in this namespace.
fn granted(documents: &str, namespace: &str) -> Vec<Right> {
    let roles: Vec<Value> = serde_saphyr::from_multiple(documents).expect("the binary's own manifests are YAML");
    let list = |rule: &Value, member: &str| -> Vec<String> {
        let items = rule[member].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = Vec::new();
    for role in roles.iter().filter(|role| role["rules"].is_array()) {
        let namespace = if role["kind"] == "Role" { namespace } else { "" };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let mut names = list(rule, "resourceNames");
            if names.is_empty() {
                names.push(String::new());
            }
            for group in list(rule, "apiGroups") {
                for resource in list(rule, "resources") {
                    for name in &names {
                        for verb in list(rule, "verbs") {
                            let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
                            rights.push(Right {
                                verb,
                                group: group.clone(),
                                resource: resource.to_owned(),
                                subresource: subresource.to_owned(),
                                name: name.clone(),
                                namespace: namespace.to_owned(),
                            });
                        }
                    }
                }
            }
        }
    }
    rights
}

/// Sends a TrainJob that must be refused, as a dry run.
async fn probe(ask: &Ask<'_>, namespace: &str) -> Seen<Probe> {
    let job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"generateName": "trainyard-doctor-"},
        "spec": {"suspend": true, "runtimeRef": {"name": NO_RUNTIME}},
    });
    let path = format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs?dryRun=All");
    match ask.post(&path, &job).await {
        Ok(_) => Seen::Known(Probe::Taken),
        Err(kube::Error::Api(status)) => answered(&status, namespace),
        Err(error) => Seen::Unknown(error.to_string()),
    }
}

fn answered(status: &kube::core::Status, namespace: &str) -> Seen<Probe> {
    let message = status.message.trim();
    if message.contains("failed calling webhook") || message.contains("failed to call webhook") {
        return Seen::Known(Probe::NoAnswer(message.to_owned()));
    }
    // an admission webhook that refuses and the authorizer both answer Forbidden
    if message.contains("denied the request") || message.contains(NO_RUNTIME) {
        return Seen::Known(Probe::Refused);
    }
    if is_not_served(status) {
        return Seen::Unknown("TrainJobs are not served".to_owned());
    }
    Seen::Unknown(refused(status, &format!("create on trainjobs.{TRAINER} in namespace {namespace}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_become_single_requests() {
        let text = "---\nkind: ClusterRole\nrules:\n- apiGroups: ['']\n  resources: [pods, pods/log]\n  verbs: [get, list]\n---\n\
                    kind: Role\nrules:\n- apiGroups: [g]\n  resources: [things]\n  resourceNames: [one]\n  verbs: [update]\n---\n\
                    kind: RoleBinding\n";
        let rights = granted(text, "ns");
        assert_eq!(rights.len(), 5);
        assert_eq!((rights[3].subresource.as_str(), rights[3].verb.as_str()), ("log", "list"));
        let named = Right {
            verb: "update".to_owned(),
            group: "g".to_owned(),
            resource: "things".to_owned(),
            name: "one".to_owned(),
            namespace: "ns".to_owned(),
            ..Right::default()
        };
        assert_eq!(rights[4], named);
        assert_eq!(named.target(), "things.g \"one\"");
    }

    #[test]
    fn the_shipped_roles_can_be_read() {
        let cluster = granted(include_str!("../../../manifests/base/rbac/role.yaml"), "mine");
        let patches = |right: &&Right| right.resource == "jobsets" && right.verb == "patch";
        assert_eq!(cluster.iter().find(patches).map(|right| right.namespace.as_str()), Some(""));
        let one = granted(include_str!("../../../manifests/overlays/namespaced/role.yaml"), "mine");
        assert_eq!(one.iter().find(patches).map(|right| right.namespace.as_str()), Some("mine"));
        let installer = granted(include_str!("../../../manifests/base/rbac/runtimes.yaml"), "mine");
        assert!(installer.iter().all(|right| right.resource == "clustertrainingruntimes"), "{installer:?}");
    }

    #[test]
    fn a_refused_dry_run_is_an_answer() {
        let status = |code: u16, message: &str| {
            let status = json!({"code": code, "message": message, "reason": "Forbidden", "details": {"name": "x"}});
            answered(&serde_json::from_value(status).expect("a Status"), "ns")
        };
        let denied =
            "admission webhook \"validator.trainjob.trainer.kubeflow.org\" denied the request: spec.RuntimeRef: …";
        assert_eq!(status(403, denied), Seen::Known(Probe::Refused));
        let none = "Internal error occurred: failed calling webhook \"v\": no endpoints available";
        assert_eq!(status(500, none), Seen::Known(Probe::NoAnswer(none.to_owned())));
        let user = "trainjobs.trainer.kubeflow.org is forbidden: User \"u\" cannot create resource";
        let needs = "needs create on trainjobs.trainer.kubeflow.org in namespace ns";
        assert_eq!(status(403, user), Seen::Unknown(needs.to_owned()));
    }
}
