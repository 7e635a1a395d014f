//! Limits of memory on a machine without cgroup controllers: who passes one is ended, and nobody else.

use super::Node;
use super::ends::without_cgroups;
use jiff::Timestamp;
use node::wire::{Event, Record};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const LIMIT: u64 = 32 << 20;
/// How long after it passed its limit a container may still run.
const AT_MOST: Duration = Duration::from_secs(3);

/// Takes a MiB every so often, up to so many, and prints when it passes the limit, by its own account.
const TAKE: &str = r#"
import os, sys, time
pause, most, limit = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
held, passed = [], False
for _ in range(most):
    held.append(b"x" * (1 << 20))
    if not passed and int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") > limit:
        passed = True
        print("passed", time.time(), flush=True)
    time.sleep(pause)
print("taken", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"#;

fn takes(pause: f64, most: u64) -> Value {
    let command = ["python3", "-c", TAKE, &pause.to_string(), &most.to_string(), &LIMIT.to_string()];
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "node", "image": "img", "command": command,
            "resources": {"limits": {"memory": LIMIT.to_string()}, "requests": {"memory": LIMIT.to_string()}}}]
    })
}

/// When the container's end was written down, and the most memory that it had.
fn ended_at(node: &Node, pod: &str) -> (Timestamp, u64) {
    let records: Vec<Record> = node.dir(pod).read_journal().unwrap();
    let end = records.iter().find_map(|record| match &record.event {
        Event::Exited { exit, .. } => Some((record.at, exit.peak_memory_bytes.unwrap_or(0))),
        _ => None,
    });
    end.unwrap()
}

#[tokio::test]
async fn runaways_end_soon_after_they_pass_their_limit_and_others_go_on() {
    let node = Node::with(|config| config.cgroups = Some(without_cgroups())).await;
    node.cluster.create("good", takes(0.0, 4));
    node.log_has_once_running("good", "taken").await;
    let runaways: Vec<String> = (0..20).map(|index| format!("runaway-{index}")).collect();
    for name in &runaways {
        node.cluster.create(name, takes(0.05, 1000));
    }
    for name in &runaways {
        let pod = node.cluster.until_phase(name, "Failed").await;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)), "{ended}");
        let message = ended["message"].as_str().unwrap();
        assert!(message.starts_with("used ") && message.ends_with(" MiB of 32 MiB"), "{message}");
        let log = node.log(name, "node").await;
        let passed: f64 = log.trim().strip_prefix("passed ").unwrap().parse().unwrap();
        let (at, peak) = ended_at(&node, name);
        let took = at.as_millisecond() as f64 / 1000.0 - passed;
        assert!(took < AT_MOST.as_secs_f64(), "{name} ended {took} s after it had passed its limit: {message}");
        assert!(peak > LIMIT, "{peak}");
        let is_told = |(reason, text): &(String, String)| reason == "Failed" && text.ends_with(message);
        node.cluster.until_event(name, is_told).await;
    }
    fs::write(node.dir("good").work("node").join("go"), "").unwrap();
    node.cluster.until_phase("good", "Succeeded").await;
}

#[tokio::test]
async fn a_container_that_is_ended_for_its_memory_starts_again_as_its_policy_says() {
    let node = Node::with(|config| config.cgroups = Some(without_cgroups())).await;
    let mut spec = takes(0.0, 100);
    spec["restartPolicy"] = json!("OnFailure");
    // the limit is the pod's, not that of one of its containers
    spec["containers"][0]["resources"] = json!({});
    spec["resources"] = json!({"limits": {"memory": LIMIT.to_string()}});
    node.cluster.create("p", spec);
    let pod = node.cluster.until("p", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    let last = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["reason"], "OOMKilled", "{last}");
    assert!(last["message"].as_str().unwrap().contains(" MiB of 32 MiB; this container used "), "{last}");
}
