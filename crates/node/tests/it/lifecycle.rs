//! Starting, ending, restarting; the agent and the shim dying in between.

use super::Node;
use super::cluster::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node::logs::LogOptions;
use serde_json::{Value, json};
use std::path::Path;

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|c| c["type"] == kind).unwrap()
}

/// Waits until no process has this text in its command line.
pub async fn until_no_process(text: &str) {
    let found = || {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(text))
    };
    let start = std::time::Instant::now();
    while found() {
        assert!(start.elapsed().as_secs() < 20, "{text} still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_pod_succeeds() {
    let node = Node::new().await;
    node.cluster.create("p", script("echo hello; echo oops >&2; printf end"));
    let pod = node.cluster.until_phase("p", "Succeeded").await;
    let ended = &container(&pod)["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(0), &json!("Completed")));
    assert_eq!(condition(&pod, "Ready")["reason"], "PodCompleted");
    let log = node.log("p", "node").await;
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["end", "hello", "oops"]);
    assert!(log.ends_with('\n'));
    let reasons: Vec<String> = node.cluster.events("p").into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, ["Started"]);
}

#[tokio::test]
async fn a_pod_fails_with_its_last_words() {
    let node = Node::new().await;
    let mut spec = script("echo one; echo two; exit 3");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    node.cluster.create("p", spec);
    node.cluster.create("q", script("echo written > /dev/termination-log; kill -9 $$$$"));
    let pod = node.cluster.until_phase("p", "Failed").await;
    let ended = &container(&pod)["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
    assert_eq!(ended["message"], "one\ntwo\n");
    let pod = node.cluster.until_phase("q", "Failed").await;
    let ended = &container(&pod)["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["message"]), (&json!(137), &json!("written\n")));
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let node = Node::new().await;
    let spec = |command: Value| json!({"restartPolicy": "Never", "containers": [{"name": "node", "image": "img", "command": command}]});
    let cases = [
        (
            "a",
            spec(json!(["no-such-program"])),
            "StartError",
            "exec: \"no-such-program\": executable file not found in $PATH",
        ),
        ("b", spec(json!(["/none/at-all"])), "StartError", "no such file or directory"),
        ("c", spec(json!([])), "RunContainerError", "container \"node\" has no command"),
    ];
    for (name, spec, _, _) in &cases {
        node.cluster.create(name, spec.clone());
    }
    for (name, _, reason, message) in cases {
        let pod = node.cluster.until_phase(name, "Failed").await;
        let ended = &container(&pod)["state"]["terminated"];
        assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(128), &json!(reason)), "{name}");
        let said = ended["message"].as_str().unwrap();
        assert!(said.contains(message) && said.contains("\"node\""), "{said}");
    }
}

#[tokio::test]
async fn init_containers_come_first_and_sidecars_stay() {
    let node = Node::new().await;
    node.cluster.create(
        "p",
        json!({
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [
                {"name": "first", "command": ["sh", "-c", "echo first >> /v/order"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                {"name": "side", "restartPolicy": "Always", "command": ["sh", "-c", "echo side >> /v/order; exec sleep 1000"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                {"name": "second", "command": ["sh", "-c", "until grep -q side /v/order; do :; done; echo second >> /v/order"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
            ],
            "containers": [
                {"name": "a", "command": ["cat", "/v/order"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                {"name": "b", "command": ["sh", "-c", "echo b"]}
            ]
        }),
    );
    let pod = node.cluster.until_phase("p", "Succeeded").await;
    assert_eq!(node.log("p", "a").await, "first\nside\nsecond\n");
    assert_eq!(pod["status"]["containerStatuses"].as_array().unwrap().len(), 2);
    assert_eq!(condition(&pod, "Initialized")["status"], "True");
    assert!(!Path::new("/v").exists(), "a mount point was left on the host");
}

#[tokio::test]
async fn a_failed_init_container_fails_the_pod() {
    let node = Node::new().await;
    let mut spec = script("echo never");
    spec["initContainers"] = json!([{"name": "first", "command": ["sh", "-c", "exit 7"]}]);
    node.cluster.create("p", spec);
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!(pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    assert_eq!(container(&pod)["state"]["waiting"]["reason"], "PodInitializing");
}

#[tokio::test]
async fn restarts_and_previous_logs() {
    let node = Node::new().await;
    let mut spec = script("echo run; if [ -e mark ]; then echo again; exit 0; fi; touch mark; exit 1");
    spec["restartPolicy"] = json!("OnFailure");
    node.cluster.create("p", spec);
    let pod = node.cluster.until_phase("p", "Succeeded").await;
    assert_eq!(container(&pod)["restartCount"], 1);
    assert_eq!(container(&pod)["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(node.log("p", "node").await, "run\nagain\n");
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    assert_eq!(node.log_with("p", "node", previous).await, "run\n");
}

#[tokio::test]
async fn crash_loops_back_off() {
    let node = Node::new().await;
    let mut spec = script("exit 1");
    spec["restartPolicy"] = json!("Always");
    node.cluster.create("p", spec);
    let is_waiting = |pod: &Value| container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let pod = node.cluster.until("p", is_waiting).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(container(&pod)["restartCount"], 1);
    assert_eq!(container(&pod)["lastState"]["terminated"]["exitCode"], 1);
    node.cluster.delete("p", 5);
    node.cluster.until("p", Value::is_null).await;
}

#[tokio::test]
async fn deletion_asks_first() {
    let node = Node::new().await;
    let text = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    node.cluster.create("p", script(text));
    node.cluster.until_phase("p", "Running").await;
    node.log_has("p", "node", "up").await;
    let dir = node.dir("p");
    let mut seen = None;
    node.cluster.delete("p", 30);
    node.cluster
        .until("p", |pod| {
            if !pod.is_null() && container(pod)["state"]["terminated"]["exitCode"] == 0 {
                return true;
            }
            pod.is_null()
        })
        .await;
    if dir.path().exists() {
        seen = std::fs::read_to_string(dir.log("node", 0)).ok();
    }
    node.cluster.until("p", Value::is_null).await;
    assert!(seen.is_none_or(|log| log.contains("bye")));
}

#[tokio::test]
async fn process_trees_are_gone_after_termination() {
    let node = Node::new().await;
    // A daemon that left its session, a child that ignores SIGTERM, and a main process that does too.
    let text = "trap '' TERM; (setsid sleep 98761 &) ; sh -c 'trap \"\" TERM; sleep 98762' & echo up; while :; do sleep 0.1; done";
    node.cluster.create("p", script(text));
    node.cluster.until_phase("p", "Running").await;
    node.log_has("p", "node", "up").await;
    node.cluster.delete("p", 1);
    node.cluster.until("p", Value::is_null).await;
    until_no_process("9876").await;

    // The same when only the main process ends.
    node.cluster.create("q", script("(setsid sleep 98763 &); sleep 98764 & exit 4"));
    node.cluster.until_phase("q", "Failed").await;
    until_no_process("9876").await;

    // And when the object vanishes.
    node.cluster.create("r", script("sleep 98765"));
    node.cluster.until_phase("r", "Running").await;
    node.cluster.vanish("r");
    until_no_process("98765").await;
}

#[tokio::test]
async fn pods_outlive_the_agent() {
    let mut node = Node::new().await;
    node.cluster.create("short", script("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 5"));
    node.cluster.create("long", script("echo up; until [ -e go ]; do sleep 0.02; done; echo down"));
    for name in ["short", "long"] {
        node.cluster.until_phase(name, "Running").await;
    }
    let shim = node.dir("long").shim().unwrap();
    assert!(shim.is_some());
    node.kill_agent().await;
    let go = |name: &str| std::fs::write(node.dir(name).work("node").join("go"), "").unwrap();
    go("short"); // ends while nobody looks
    let dir = node.dir("short");
    while dir.shim().unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    node.start().await;
    let pod = node.cluster.until_phase("short", "Failed").await;
    assert_eq!(container(&pod)["state"]["terminated"]["exitCode"], 5);
    assert_eq!(container(&pod)["restartCount"], 0);
    assert_eq!(node.log("short", "node").await, "one\ntwo\n");
    assert_eq!(node.dir("long").shim().unwrap(), shim, "started twice");
    std::fs::write(node.dir("long").work("node").join("go"), "").unwrap();
    node.cluster.until_phase("long", "Succeeded").await;
    assert_eq!(node.log("long", "node").await, "up\ndown\n");
}

#[tokio::test]
async fn what_is_left_of_pods_that_have_ended_goes_with_their_objects() {
    let mut node = Node::new().await;
    let names = ["deleted", "vanished", "vanished-later"];
    names.iter().for_each(|name| node.cluster.create(name, script("exit 0")));
    for name in names {
        node.cluster.until_phase(name, "Succeeded").await;
        node.cluster.until_event(name, |(reason, _)| reason == "Started").await;
    }
    let dirs = names.map(|name| node.dir(name));
    assert!(dirs.iter().all(|dir| dir.path().exists()));
    let [deleted, vanished, later] = &dirs;
    node.cluster.delete("deleted", 30);
    node.cluster.until("deleted", Value::is_null).await;
    node.cluster.vanish("vanished");
    while deleted.path().exists() || vanished.path().exists() {
        tokio::task::yield_now().await;
    }
    node.kill_agent().await;
    node.start().await;
    node.cluster.create("other", script("exit 0"));
    node.cluster.until_phase("other", "Succeeded").await;
    assert!(later.path().exists());
    node.cluster.vanish("vanished-later");
    while later.path().exists() {
        tokio::task::yield_now().await;
    }
    let events = |name: &str| node.cluster.events(name).into_iter().map(|(reason, _)| reason).collect::<Vec<_>>();
    assert!(names.iter().all(|name| events(name) == ["Started"]), "each is told of once");
}

#[tokio::test]
async fn pods_whose_objects_went_while_no_agent_ran_are_stopped() {
    let mut node = Node::new().await;
    node.cluster.create("p", script("sleep 98766"));
    node.cluster.until_phase("p", "Running").await;
    let dir = node.dir("p");
    node.kill_agent().await;
    node.cluster.vanish("p");
    node.start().await;
    until_no_process("98766").await;
    while dir.path().exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_killed_shim_takes_the_pod_with_it_and_is_told() {
    let node = Node::new().await;
    node.cluster.create("p", script("(setsid sleep 98767 &); echo up; sleep 98768"));
    node.cluster.until_phase("p", "Running").await;
    node.log_has("p", "node", "up").await;
    kill(Pid::from_raw(node.dir("p").shim().unwrap().unwrap()), Signal::SIGKILL).unwrap();
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "SupervisorLost");
    let ended = &container(&pod)["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
    until_no_process("9876").await;
}

#[tokio::test]
async fn deadlines() {
    let node = Node::new().await;
    let mut spec = script("exec sleep 1000");
    spec["activeDeadlineSeconds"] = json!(1);
    node.cluster.create("p", spec);
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(container(&pod)["state"]["terminated"]["exitCode"], 143);
}

#[tokio::test]
async fn pre_stop_hooks_run_before_the_signal() {
    let node = Node::new().await;
    let mut spec = script("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done");
    spec["volumes"] = json!([{"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "claim", "mountPath": "/claim"}]);
    spec["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /claim/hook"]}}});
    node.cluster.create("p", spec);
    node.cluster.until_phase("p", "Running").await;
    node.log_has("p", "node", "up").await;
    node.cluster.delete("p", 20);
    node.cluster.until("p", Value::is_null).await;
    let written = node.config.data.join("claims/default/c/hook");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "hook\n");
}
