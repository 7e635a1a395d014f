//! Reads what the queue is made of, and a job's place in it.

use api::mpi::names::LABEL_JOB_NAME;
use api::object;
use api::queue_place::{self, AHEAD_MAX, QueuePlace};
use api::trainer::names::LABEL_JOBSET_NAME;
use client::{ClientError, Cluster, Kind};
use jiff::Timestamp;
use kube::api::ListParams;
use objects::take::{self, Take};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use view::queue::{self, Facts, KUEUE_QUEUE, Queue};

/// Versions of Kueue's API, the newest first.
const KUEUE_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Where a job of the namespace stands; `None` where it is not for the scheduler to place.
///
/// A control plane of our own knows it. Of a cluster the line is made here, from all that waits.
pub async fn place(cluster: &Cluster, job: &str) -> Result<Option<QueuePlace>, ClientError> {
    let path = queue_place::path(&cluster.namespace, job);
    let request = http::Request::get(path).body(Vec::new()).expect("invariant: names are path segments");
    match cluster.client.request::<QueuePlace>(request).await {
        Ok(place) => Ok(Some(place)),
        Err(kube::Error::Api(status)) if status.details.as_ref().is_some_and(|of| of.group == queue_place::GROUP) => {
            Ok(None)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => read_place(cluster, job).await,
        Err(error) => Err(error.into()),
    }
}

async fn read_place(cluster: &Cluster, job: &str) -> Result<Option<QueuePlace>, ClientError> {
    let mut facts = Facts::default();
    let add = |job| facts.jobs.push(job);
    cluster.each(Kind::TrainJob, false, ListParams::default(), of_job, add).await?;
    let add = |job| facts.mpijobs.push(job);
    // a cluster need not have them
    let _unreadable = cluster.each(Kind::MpiJob, false, ListParams::default(), of_job, add).await;
    let have_no_node = ListParams::default().fields("spec.nodeName=");
    let add = |pod| facts.pods.push(pod);
    cluster.each(Kind::Pod, false, have_no_node, of_pod, add).await?;
    let mut ahead = queue::of(&facts, Timestamp::now());
    Ok(ahead.iter().position(|name| name == job).map(|place| {
        ahead.truncate(place.min(AHEAD_MAX));
        QueuePlace { position: place + 1, ahead, ..QueuePlace::default() }
    }))
}

/// What of a job the line is made of. There may be thousands.
fn of_job(member: &str) -> Take {
    fn spec(member: &str) -> Take {
        if matches!(member, "suspend" | "runPolicy") { Take::All } else { Take::Nothing }
    }
    if member == "spec" { Take::Some(spec) } else { take::lean(member) }
}

/// The same of a pod.
fn of_pod(member: &str) -> Take {
    fn metadata(member: &str) -> Take {
        match member {
            "name" | "namespace" | "deletionTimestamp" => Take::All,
            "labels" => Take::Some(labels),
            _ => Take::Nothing,
        }
    }
    fn labels(label: &str) -> Take {
        if matches!(label, LABEL_JOBSET_NAME | LABEL_JOB_NAME) { Take::All } else { Take::Nothing }
    }
    fn spec(member: &str) -> Take {
        match member {
            "nodeName" | "overhead" | "priority" => Take::All,
            "containers" | "initContainers" => Take::Some(container),
            _ => Take::Nothing,
        }
    }
    fn container(member: &str) -> Take {
        if matches!(member, "resources" | "restartPolicy") { Take::All } else { Take::Nothing }
    }
    fn status(member: &str) -> Take {
        if matches!(member, "conditions" | "phase") { Take::All } else { Take::Nothing }
    }
    match member {
        "metadata" => Take::Some(metadata),
        "spec" => Take::Some(spec),
        "status" => Take::Some(status),
        _ => Take::Nothing,
    }
}

/// All that the queue of our namespace is made of. Jobs must be readable; all else is read as far as it may be.
pub async fn read(cluster: &Cluster) -> Result<Facts, ClientError> {
    let (mut facts, room) = tokio::join!(jobs(cluster), room(cluster));
    if let Ok(facts) = &mut facts {
        (facts.pods, facts.nodes) = room?;
    }
    facts
}

/// The queues of several namespaces, each with its name. The first namespace that cannot be read ends it.
pub async fn read_each(cluster: &Cluster, namespaces: &[String]) -> Result<Vec<(String, Queue)>, ClientError> {
    let (mut pods, mut nodes) = room(cluster).await?;
    let mut queues = Vec::new();
    for namespace in namespaces {
        let within = Cluster { namespace: namespace.clone(), ..cluster.clone() };
        let facts = Facts { pods, nodes, ..jobs(&within).await? };
        queues.push((namespace.clone(), Queue::of(&facts, Timestamp::now())));
        (pods, nodes) = (facts.pods, facts.nodes);
    }
    Ok(queues)
}

/// The pods of all namespaces, and the nodes; without a right to list all pods, those of our namespace, and no nodes.
pub async fn room(cluster: &Cluster) -> Result<(Vec<Value>, Vec<Value>), ClientError> {
    let (pods, nodes) =
        tokio::join!(list(cluster, Kind::Pod, true, of_pod), list(cluster, Kind::Node, true, take::lean));
    match pods {
        Ok(pods) => Ok((pods, nodes.unwrap_or_default())),
        // what others' pods hold is unknown, and so what is free
        Err(_) => Ok((list(cluster, Kind::Pod, false, of_pod).await?, Vec::new())),
    }
}

async fn list(
    cluster: &Cluster,
    kind: Kind,
    everywhere: bool,
    take: fn(&str) -> Take,
) -> Result<Vec<Value>, ClientError> {
    let mut listed = Vec::new();
    let listing = cluster.each(kind, everywhere, ListParams::default(), take, |object| listed.push(object)).await;
    listing.map(|()| listed)
}

/// The jobs of our namespace, and what Kueue says about them.
async fn jobs(cluster: &Cluster) -> Result<Facts, ClientError> {
    let (jobs, mpijobs) =
        tokio::join!(list(cluster, Kind::TrainJob, false, of_job), list(cluster, Kind::MpiJob, false, of_job));
    // a cluster need not have MPIJobs, nor the user a right to them
    let (jobs, mpijobs) = (jobs?, mpijobs.unwrap_or_default());
    let queues: BTreeSet<&str> =
        jobs.iter().chain(&mpijobs).filter_map(|job| object::label(job, KUEUE_QUEUE)).collect();
    let (workloads, positions) = if queues.is_empty() { Default::default() } else { kueue(cluster, &queues).await };
    Ok(Facts { workloads, positions, jobs, mpijobs, ..Facts::default() })
}

/// Kueue's Workloads of the namespace, and their positions where its visibility API answers.
async fn kueue(cluster: &Cluster, queues: &BTreeSet<&str>) -> (Vec<Value>, BTreeMap<String, (i64, i64)>) {
    let namespace = &cluster.namespace;
    let mut workloads = Vec::new();
    let mut positions = BTreeMap::new();
    for version in KUEUE_VERSIONS {
        let path = format!("/apis/kueue.x-k8s.io/{version}/namespaces/{namespace}/workloads");
        let Some(mut list) = get(cluster, path).await else { continue };
        if let Value::Array(items) = list["items"].take() {
            workloads = items;
        }
        break;
    }
    for queue in queues {
        for version in KUEUE_VERSIONS {
            let group = format!("/apis/visibility.kueue.x-k8s.io/{version}");
            let Some(list) =
                get(cluster, format!("{group}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads")).await
            else {
                continue;
            };
            for item in list["items"].as_array().into_iter().flatten() {
                let place = |member: &str| item[member].as_i64().unwrap_or(0);
                let places = (place("positionInLocalQueue"), place("positionInClusterQueue"));
                positions.insert(object::meta(item, "name").to_owned(), places);
            }
            break;
        }
    }
    (workloads, positions)
}

async fn get(cluster: &Cluster, path: String) -> Option<Value> {
    let request = http::Request::get(path).body(Vec::new()).expect("invariant: names are path segments");
    cluster.client.request(request).await.ok()
}
