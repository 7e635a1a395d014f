//! Upgrades: a newer agent adopts the pods of older shims, an older one leaves those of newer shims alone.

use super::Node;
use super::cluster::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node::poddir::PodDir;
use node::wire::PROTOCOL;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

/// A pod that a shim of that version runs, seen by an agent that starts only now. `changes` are made to what version 1 wrote of it.
async fn pod_of_version(protocol: u32, program: &str, changes: Value) -> (Node, PodDir) {
    let mut node = Node::new().await;
    node.kill_agent().await;
    node.cluster.create("p", script(program));
    let pod = node.cluster.pod("p").unwrap();
    let dir = node.dir("p");
    dir.create().unwrap();
    fs::create_dir_all(dir.work("node")).unwrap();
    fs::write(dir.pod(), pod.to_string()).unwrap();
    let mut launch = json!({
        "uid": pod["metadata"]["uid"], "namespace": "default", "name": "p",
        "isolation": {"mode": "plain", "why": ""}, "hostname": "p", "address": "127.1.2.3",
        "hostsFile": dir.hosts(), "restartPolicy": "Never", "graceSecs": 5, "activeDeadlineSecs": null,
        "startTime": "2026-01-01T00:00:00Z", "tmpfs": [], "initContainers": [], "gpus": {"node": [0]},
        "ports": {"29500": 20017}, "subdomain": "", "logBytesMax": 1000000, "logFilesMax": 2,
        "containers": [{
            "name": "node", "argv": ["sh", "-c", program], "env": [], "workingDir": dir.work("node"), "mounts": [],
            "terminationMessage": dir.termination_log("node"), "fallbackToLogs": false, "restartPolicy": "Never",
            "restartRules": [], "sidecar": false, "startupProbe": false, "postStart": {"exec": ["true"]},
            "preStop": null, "stopSignal": null, "refused": null
        }]
    });
    for (member, value) in changes.as_object().unwrap() {
        launch[member] = value.clone();
    }
    fs::write(dir.launch(), launch.to_string()).unwrap();
    let shim = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/shim_of_another_version.py");
    let mut shim = Command::new("python3")
        .args([shim.as_ref(), dir.path().as_os_str()])
        .args([protocol.to_string().as_str(), "sh", "-c", program])
        .env("TRAINYARD_POD_UID", dir.uid())
        .current_dir(dir.work("node"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    shim.stdout.take().unwrap().read_exact(&mut said).unwrap();
    std::thread::spawn(move || shim.wait()); // buried when it ends
    node.start().await;
    (node, dir)
}

fn requests(dir: &PodDir) -> String {
    fs::read_to_string(dir.path().join("requests")).unwrap()
}

#[tokio::test]
async fn pods_of_older_shims_are_adopted_and_stopped() {
    let (node, dir) = pod_of_version(1, "trap 'exit 3' TERM; while :; do sleep 0.05; done", json!({})).await;
    let pod = node.cluster.until_phase("p", "Running").await;
    assert_eq!(pod["status"]["podIP"], "127.1.2.3");
    let shim = dir.shim().unwrap();
    assert!(shim.is_some());
    node.cluster.declare("p", json!({"phase": "Failed", "reason": "Evicted"})); // stops it, and keeps the object
    let ended = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3;
    node.cluster.until("p", ended).await;
    assert!(requests(&dir).contains("\"op\":\"stop\""), "{}", requests(&dir));
    node.cluster.delete("p", 5);
    node.cluster.until("p", Value::is_null).await;
}

#[tokio::test]
async fn pods_of_newer_shims_are_named_and_left_alone() {
    let newer = PROTOCOL + 1;
    let hook = json!([{"name": "node", "postStart": {"aHookOfLaterTimes": {}}}]);
    let changes = json!({"protocol": newer, "containers": hook});
    let (mut node, dir) = pod_of_version(newer, "sleep 98778", changes).await;
    let named = format!("its shim speaks protocol {newer}, this one ({}) speaks {PROTOCOL}", env!("CARGO_PKG_VERSION"));
    node.cluster.until_event("p", |(reason, text)| reason == "FailedAdoption" && text.contains(&named)).await;
    let shim = dir.shim().unwrap().expect("it goes on");
    let journal = fs::read(dir.journal()).unwrap();
    // Neither a deletion nor another start makes it ours; its object stays for the newer agent.
    node.cluster.delete("p", 0);
    node.kill_agent().await;
    node.start().await;
    let told = |count: usize| {
        let events = node.cluster.events("p");
        events.iter().filter(|(reason, _)| reason == "FailedAdoption").count() >= count
    };
    node.cluster.until("p", |_| told(2)).await;
    assert_eq!(dir.shim().unwrap(), Some(shim));
    assert_eq!((fs::read(dir.journal()).unwrap(), requests(&dir).as_str()), (journal, ""));
    assert_eq!(node.cluster.pod("p").unwrap()["status"], json!({"phase": "Pending"}), "nothing is said of it");
    // Once its shim is gone, so is the pod.
    kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    node.kill_agent().await;
    node.start().await;
    node.cluster.until("p", Value::is_null).await;
    super::lifecycle::until_no_process("98778").await;
}

#[tokio::test]
async fn what_a_newer_pod_holds_is_not_given_away() {
    let changes = json!({"protocol": PROTOCOL + 1});
    let (node, dir) = pod_of_version(PROTOCOL + 1, "sleep 98779", changes).await;
    node.cluster.until_event("p", |(reason, _)| reason == "FailedAdoption").await;
    let mut other = script("env; exit 0");
    other["containers"][0]["env"] = json!([{"name": "MASTER_PORT", "value": "20017"}]);
    node.cluster.create("q", other);
    node.cluster.until_phase("q", "Succeeded").await;
    let log = node.log("q", "node").await;
    assert!(log.contains("MASTER_PORT=") && !log.contains("MASTER_PORT=20017\n"), "{log}");
    kill(Pid::from_raw(dir.shim().unwrap().unwrap()), Signal::SIGKILL).unwrap();
    kill_marked("98779");
}

/// Kills the program of a shim that was killed.
fn kill_marked(text: &str) {
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|_| line.starts_with(b"sleep") && String::from_utf8_lossy(&line).contains(text)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
