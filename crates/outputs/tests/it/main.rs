//! The output of managed jobs over a real API server in memory: pods on machines that a test scripts, a control plane that restarts, and
//! clients that read.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod machines;

use api::job_history;
use api::jobset::keys::{JOBSET_NAME, REPLICATED_JOB_NAME};
use api::sky::keys;
use apiserver::{Options, Server};
use driver::Feed;
use futures::AsyncBufReadExt;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use machines::Machines;
use outputs::{ManagedLogs, Outputs, follow};
use resource::User;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Yard {
    folder: TempDir,
    machines: Machines,
    client: Client,
    /// The part that keeps output; it restarts.
    keeping: JoinHandle<()>,
}

fn definition(group: &str, version: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn api_of(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match kind.kind.as_str() {
        "Node" | "CustomResourceDefinition" => Api::all_with(client.clone(), &kind),
        _ => Api::default_namespaced_with(client.clone(), &kind),
    }
}

/// Until a function has an answer.
async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("it comes in time")
}

impl Yard {
    async fn new() -> Self {
        let (folder, machines) = (tempfile::tempdir().unwrap(), Machines::default());
        let outputs = Outputs::new(folder.path().join("managed"));
        let logs = ManagedLogs::new(outputs.clone());
        let options = Options {
            streams: Some(Arc::new(machines.clone())),
            delegates: vec![Arc::new(logs.clone())],
            ..Options::new(kinds::built_in())
        };
        let server = tokio::task::spawn_blocking(move || Server::new(options)).await.unwrap().unwrap();
        tokio::spawn(server.clone().follow_definitions());
        let client = Client::new(server.service(User::admin()), "default");
        logs.connect(&client);
        let keeping = keeping(&client, outputs);
        let yard = Self { folder, machines, client, keeping };
        yard.create(definition("sky.trainyard.dev", "v1alpha1", "managedjobs", "ManagedJob")).await;
        yard.create(definition("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")).await;
        yard.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "machine"}})).await;
        yard.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})).await;
        let job = json!({
            "apiVersion": "sky.trainyard.dev/v1alpha1", "kind": "ManagedJob", "metadata": {"name": "job-1"},
            "spec": {"id": 1, "submission": "s"},
        });
        yard.create(job).await;
        yard
    }

    /// Kinds are served shortly after they are defined.
    async fn create(&self, object: Value) {
        let api = api_of(&self.client, object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        until(async || match api.create(&PostParams::default(), &object).await {
            Ok(_) => Some(()),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{error}"),
        })
        .await;
    }

    async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api = api_of(&self.client, api_version, kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    async fn pod(&self, name: &str, attempt: u32, stage: &str, rank: &str) {
        let jobset = format!("set-{attempt}-{stage}");
        let labels = json!({
            keys::MANAGED_JOB: "job-1", keys::TASK: "0", keys::ATTEMPT: attempt.to_string(), keys::STAGE: stage,
            REPLICATED_JOB_NAME: rank, JOBSET_NAME: jobset,
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": "machine", "containers": [{"name": "task", "image": "sky"}]},
        });
        self.create(pod).await;
    }

    async fn jobset(&self, attempt: u32, stage: &str) {
        let labels = json!({keys::MANAGED_JOB: "job-1"});
        let metadata = json!({"name": format!("set-{attempt}-{stage}"), "labels": labels});
        self.create(json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata})).await;
    }

    async fn phase(&self, pod: &str, phase: &str) {
        let api = api_of(&self.client, "v1", "Pod");
        let status = json!({"status": {"phase": phase}});
        api.patch_status(pod, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// A pod ends after its last line.
    async fn end(&self, pod: &str) {
        self.machines.end(pod);
        self.phase(pod, "Succeeded").await;
    }

    async fn delete(&self, pod: &str) {
        let api = api_of(&self.client, "v1", "Pod");
        api.delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// The part that keeps output ends, as if its process did.
    async fn stop_keeping(&mut self) {
        self.keeping.abort();
        let _ = (&mut self.keeping).await;
        until(async || self.machines.are_idle().then_some(())).await;
    }

    async fn job_is(&self, state: &str, attempts: Value) {
        let ended = if state == "RUNNING" { "" } else { "2026-01-01T00:00:00Z" };
        let tasks = json!([{"state": state, "endedAt": ended, "attempts": attempts}]);
        let status = json!({"status": {"state": state, "tasks": tasks}});
        self.patch("sky.trainyard.dev/v1alpha1", "ManagedJob", "job-1", status).await;
    }

    async fn jobset_ends(&self, attempt: u32, stage: &str) {
        let status = json!({"status": {"conditions": [{"type": "Completed", "status": "True"}]}});
        self.patch("jobset.x-k8s.io/v1alpha2", "JobSet", &format!("set-{attempt}-{stage}"), status).await;
    }

    async fn is_kept(&self, attempt: u32, stage: &str) -> bool {
        let api = api_of(&self.client, "jobset.x-k8s.io/v1alpha2", "JobSet");
        let jobset = api.get(&format!("set-{attempt}-{stage}")).await.unwrap();
        jobset.metadata.annotations.unwrap_or_default().contains_key(keys::OUTPUT_KEPT)
    }

    /// What is in the files.
    fn kept(&self) -> String {
        fn all(folder: PathBuf, text: &mut String) {
            let mut entries: Vec<PathBuf> =
                std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                if path.is_dir() {
                    all(path, text);
                } else if path.extension().is_some_and(|end| end == "log") {
                    text.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let mut text = String::new();
        all(self.folder.path().join("managed"), &mut text);
        text
    }

    async fn until_kept(&self, text: &str) {
        until(async || self.kept().contains(text).then_some(())).await;
    }

    /// The lines of a request; the channel closes with the stream.
    fn read(&self, query: &str) -> mpsc::Receiver<String> {
        let path = job_history::path("default", job_history::MANAGED_JOBS, "job-1");
        let request = http::Request::get(format!("{path}/{}?{query}", job_history::LOG)).body(Vec::new()).unwrap();
        let (lines, read) = mpsc::channel(100);
        let client = self.client.clone();
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(client.request_stream(request).await.unwrap());
            let mut line = String::new();
            while matches!(stream.read_line(&mut line).await, Ok(1..)) {
                lines.send(std::mem::take(&mut line).trim_end().to_owned()).await.unwrap();
            }
        });
        read
    }

    async fn whole(&self, query: &str) -> Vec<String> {
        let mut read = self.read(query);
        let mut all = Vec::new();
        while let Some(line) = timeout(PATIENCE, read.recv()).await.expect("it ends") {
            all.push(line);
        }
        all
    }
}

fn keeping(client: &Client, outputs: Outputs) -> JoinHandle<()> {
    tokio::spawn(follow(Feed::Requests { client: client.clone(), namespace: None }, client.clone(), outputs))
}

async fn next(read: &mut mpsc::Receiver<String>) -> String {
    timeout(PATIENCE, read.recv()).await.expect("it comes in time").expect("the stream goes on")
}

#[tokio::test(flavor = "multi_thread")]
async fn output_outlives_its_machines() {
    let yard = Yard::new().await;
    let mut read = yard.read("follow=true");
    yard.job_is("RUNNING", json!([{"number": 1, "place": "ssh/pool/h1"}])).await;
    yard.jobset(1, "setup").await;
    yard.pod("s", 1, "setup", "head").await;
    yard.machines.write("s", "(setup pid=1) installing");
    yard.phase("s", "Running").await;
    assert_eq!(next(&mut read).await, "(setup pid=1) installing");
    yard.end("s").await;
    yard.jobset_ends(1, "setup").await;
    until(async || yard.is_kept(1, "setup").await.then_some(())).await;
    for (pod, rank) in [("a0", "head"), ("a1", "worker1")] {
        yard.pod(pod, 1, "run", rank).await;
        yard.phase(pod, "Running").await;
    }
    for (pod, line) in [("a0", "one"), ("a1", "two"), ("a0", "three")] {
        yard.machines.write(pod, line);
        assert_eq!(next(&mut read).await, line);
    }
    // the machines are lost
    yard.machines.cut("a0", true);
    yard.machines.cut("a1", true);
    let attempts = json!([
        {"number": 1, "place": "ssh/pool/h1", "evidence": "machine h1 is gone"}, {"number": 2, "place": "ssh/pool/h2"},
    ]);
    yard.job_is("RECOVERING", attempts.clone()).await;
    yard.delete("a0").await;
    yard.delete("a1").await;
    yard.pod("b0", 2, "run", "head").await;
    yard.machines.write("b0", "four");
    yard.phase("b0", "Running").await;
    assert_eq!(next(&mut read).await, "--- attempt 2 on ssh/pool/h2, because: machine h1 is gone ---");
    assert_eq!(next(&mut read).await, "four");
    yard.job_is("SUCCEEDED", attempts).await;
    yard.machines.write("b0", "the last line");
    yard.end("b0").await;
    assert_eq!(next(&mut read).await, "the last line");
    assert_eq!(timeout(PATIENCE, read.recv()).await.expect("it ends"), None);

    let all = [
        "--- attempt 1 on ssh/pool/h1 ---",
        "(setup pid=1) installing",
        "one",
        "two",
        "three",
        "--- attempt 2 on ssh/pool/h2, because: machine h1 is gone ---",
        "four",
        "the last line",
    ];
    assert_eq!(yard.whole("").await, all);
    assert_eq!(yard.whole("tail=2&task=0").await, all[6..]);
    let places = yard.whole("places=true&follow=true").await;
    let (last, lines) = places.split_last().unwrap();
    assert_eq!((last.as_str(), lines.len()), (".", all.len()));
    for (at, line) in lines.iter().enumerate() {
        let (place, text) = line.split_once(' ').unwrap();
        assert_eq!(text, all[at]);
        assert_eq!(yard.whole(&format!("from={place}")).await, all[at + 1..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_control_plane_loses_and_repeats_nothing() {
    let mut yard = Yard::new().await;
    yard.job_is("RUNNING", json!([])).await;
    yard.jobset(1, "run").await;
    yard.pod("a", 1, "run", "head").await;
    yard.phase("a", "Running").await;
    let mut expected = Vec::new();
    for restart in 0..3 {
        for number in 0..7 {
            let line = format!("line {restart}.{number}");
            yard.machines.write("a", &line);
            expected.push(line);
        }
        yard.until_kept(expected.last().unwrap()).await;
        yard.stop_keeping().await;
        yard.machines.write("a", &format!("missed {restart}"));
        expected.push(format!("missed {restart}"));
        yard.keeping = keeping(&yard.client, Outputs::new(yard.folder.path().join("managed")));
        yard.until_kept(expected.last().unwrap()).await;
    }
    yard.end("a").await;
    yard.jobset_ends(1, "run").await;
    until(async || yard.is_kept(1, "run").await.then_some(())).await;
    let opened = yard.machines.opened("a");
    let kept = yard.kept();
    let lines: Vec<&str> =
        kept.lines().filter_map(|line| line.strip_prefix("1 ")?.split_once(' ')).map(|(_, text)| text).collect();
    assert_eq!(lines, expected);
    // a pod that is kept whole is not read again
    yard.stop_keeping().await;
    yard.keeping = keeping(&yard.client, Outputs::new(yard.folder.path().join("managed")));
    yard.pod("b", 2, "run", "head").await;
    yard.machines.write("b", "another");
    yard.phase("b", "Running").await;
    yard.until_kept("another").await;
    assert_eq!(yard.machines.opened("a"), opened);
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_held_until_their_output_is_kept() {
    let yard = Yard::new().await;
    yard.job_is("RUNNING", json!([])).await;
    yard.jobset(1, "run").await;
    yard.pod("a", 1, "run", "head").await;
    yard.phase("a", "Running").await;
    yard.machines.write("a", "one");
    yard.until_kept("one").await;
    // the connection breaks; lines follow that only the machine has
    yard.machines.cut("a", true);
    yard.machines.write("a", "two");
    yard.end("a").await;
    yard.jobset_ends(1, "run").await;
    let opened = yard.machines.opened("a");
    until(async || (yard.machines.opened("a") > opened + 2).then_some(())).await;
    assert!(!yard.is_kept(1, "run").await);
    yard.machines.cut("a", false);
    until(async || yard.is_kept(1, "run").await.then_some(())).await;
    assert!(yard.kept().contains("two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_goes_with_the_job() {
    let yard = Yard::new().await;
    yard.pod("a", 1, "run", "head").await;
    yard.phase("a", "Running").await;
    yard.machines.write("a", "one");
    yard.until_kept("one").await;
    let mut read = yard.read("follow=true");
    assert_eq!(next(&mut read).await, "one");
    let jobs = api_of(&yard.client, "sky.trainyard.dev/v1alpha1", "ManagedJob");
    jobs.delete("job-1", &DeleteParams::default()).await.unwrap();
    assert_eq!(timeout(PATIENCE, read.recv()).await.expect("it ends"), None);
    until(async || yard.kept().is_empty().then_some(())).await;
    let path = job_history::path("default", job_history::MANAGED_JOBS, "job-1");
    for (path, code) in [(format!("{path}/log"), 404), (format!("{path}/other"), 404), (path.clone(), 404)] {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        match yard.client.request_text(request).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, code, "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_questions_are_refused() {
    let yard = Yard::new().await;
    let path = job_history::path("default", job_history::MANAGED_JOBS, "job-1");
    for query in ["task=-1", "tail=x", "from=0.1.run", "task=99999999999"] {
        let request = http::Request::get(format!("{path}/log?{query}")).body(Vec::new()).unwrap();
        match yard.client.request_text(request).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 400, "{query}"),
            other => panic!("{query}: {other:?}"),
        }
    }
    assert!(yard.whole("").await.is_empty(), "a job without output has none");
}
