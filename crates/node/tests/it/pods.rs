//! What pods see: names, volumes, environment, ports, probes.

use super::Node;
use super::cluster::script;
use node::exec::{ExecOptions, exec};
use node::gpus::Gpu;
use node::wire::Isolation;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn member(job: &str, index: u32, text: &str) -> Value {
    let mut spec = script(text);
    spec["hostname"] = json!(format!("{job}-node-0-{index}"));
    spec["subdomain"] = json!(job);
    spec["containers"][0]["env"] = json!([
        {"name": "PET_MASTER_ADDR", "value": format!("{job}-node-0-0.{job}")},
        {"name": "PET_MASTER_PORT", "value": "29533"},
        {"name": "RANK", "value": index.to_string()}
    ]);
    spec
}

/// A rendezvous as torchrun does it: rank 0 listens on all addresses, the others come by its name.
const RENDEZVOUS: &str = r#"exec python3 -u - <<'EOF'
import os, socket, time
address = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.create_server(("", address[1]))
    for _ in range(int(os.environ.get("PEERS", "1"))):
        peer, _ = server.accept()
        print("met", peer.makefile().readline().strip())
        peer.sendall(b"welcome to %s\n" % socket.gethostname().encode())
else:
    for attempt in range(400):
        try:
            peer = socket.create_connection(address); break
        except OSError: time.sleep(0.05)
    peer.sendall(socket.gethostname().encode() + b"\n")
    print(peer.makefile().readline().strip())
EOF
"#;

#[tokio::test]
async fn two_jobs_with_the_same_port_at_once() {
    let Some(node) = Node::hosts().await else { return };
    for (job, index) in [("a", 0), ("b", 0), ("b", 1), ("a", 1)] {
        node.cluster.create(&format!("{job}-{index}"), member(job, index, RENDEZVOUS));
    }
    for job in ["a", "b"] {
        for index in [0, 1] {
            node.cluster.until_phase(&format!("{job}-{index}"), "Succeeded").await;
        }
        assert_eq!(node.log(&format!("{job}-0"), "node").await, format!("met {job}-node-0-1\n"));
        assert_eq!(node.log(&format!("{job}-1"), "node").await, format!("welcome to {job}-node-0-0\n"));
    }
}

#[tokio::test]
async fn the_same_in_plain_mode() {
    let node = Node::plain().await;
    let text = RENDEZVOUS.replace("socket.gethostname()", "os.environ[\"HOSTNAME\"]");
    for (job, index) in [("a", 0), ("b", 0), ("b", 1), ("a", 1)] {
        node.cluster.create(&format!("{job}-{index}"), member(job, index, &text));
    }
    for job in ["a", "b"] {
        node.cluster.until_phase(&format!("{job}-1"), "Succeeded").await;
        assert_eq!(node.log(&format!("{job}-1"), "node").await, format!("welcome to {job}-node-0-0\n"));
    }
}

#[tokio::test]
async fn pods_resolve_each_other_whenever_they_start() {
    let Some(node) = Node::hosts().await else { return };
    let wait = "until getent hosts $NAME; do sleep 0.02; done; hostname; cat /etc/hosts >&2";
    let pod = |index: u32, name: &str| {
        let mut spec = member("job", index, wait);
        spec["containers"][0]["env"] = json!([{"name": "NAME", "value": name}]);
        spec
    };
    node.cluster.create("p0", pod(0, "job-node-0-1.job.default.svc.cluster.local"));
    node.cluster.until_phase("p0", "Running").await;
    node.cluster.create("p1", pod(1, "job-node-0-0.job"));
    for name in ["p0", "p1"] {
        node.cluster.until_phase(name, "Succeeded").await;
    }
    let ip = |name: &str| node.cluster.pod(name).unwrap()["status"]["podIP"].as_str().unwrap().to_owned();
    let log = node.log("p0", "node").await;
    assert!(log.contains(&format!("{} ", ip("p1"))) && log.contains("\njob-node-0-0\n"), "{log}");
    assert!(node.log("p1", "node").await.contains(&ip("p0")));
    assert_ne!(ip("p0"), ip("p1"));
}

#[tokio::test]
async fn volumes_are_where_the_pod_wants_them() {
    let Some(node) = Node::hosts().await else { return };
    check_volumes(node).await;
}

#[tokio::test]
async fn the_same_in_user_namespaces() {
    if Node::hosts().await.is_none() {
        return;
    }
    let isolation = Some(Isolation::Hosts { user_namespace: true });
    check_volumes(Node::with(|config| config.isolation = isolation).await).await;
}

async fn check_volumes(node: Node) {
    node.cluster.config_map("cm", json!({"hostfile": "node-0 slots=1\n"}));
    let text = r#"
        set -e
        cat /etc/mpi/hostfile
        test -e /etc/passwd
        echo data > /workspace/model/file; ls /workspace
        (echo x > /etc/mpi/new) 2>/dev/null && echo writable || echo read-only
        cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo
        test -d /run; grep -c " /home/mpiuser/.ssh " /proc/self/mountinfo
        echo home > /home/mpiuser/.ssh/id; cat /home/mpiuser/.ssh/id
        stat -f -c %T /memory; stat -f -c %T /dev/shm; test -c /dev/null
        df --output=size -B1 /memory | tail -1
        pwd; touch here
    "#;
    let mut spec = script(text);
    spec["volumes"] = json!([
        {"name": "hostfile", "configMap": {"name": "cm"}},
        {"name": "workspace", "emptyDir": {}},
        {"name": "model", "persistentVolumeClaim": {"claimName": "model"}},
        {"name": "ssh", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    ]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "hostfile", "mountPath": "/etc/mpi", "readOnly": true},
        {"name": "model", "mountPath": "/workspace/model"},
        {"name": "workspace", "mountPath": "/workspace"},
        {"name": "ssh", "mountPath": "/home/mpiuser/.ssh"},
        {"name": "memory", "mountPath": "/memory"},
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}
    ]);
    node.cluster.create("p", spec);
    let is_over = |pod: &Value| ["Succeeded", "Failed"].iter().any(|p| pod["status"]["phase"] == *p);
    let pod = node.cluster.until("p", is_over).await;
    let work = node.dir("p").work("node").canonicalize().unwrap();
    let expected = format!(
        "node-0 slots=1\nmodel\nread-only\ntoken of default for p\n1\nhome\ntmpfs\ntmpfs\n1048576\n{}\n",
        work.display()
    );
    let log = node.log("p", "node").await;
    let log: String = log.lines().map(|l| format!("{}\n", l.trim())).collect();
    assert_eq!(log, expected, "{:#}", pod["status"]);
    assert_eq!(std::fs::read_to_string(node.config.data.join("claims/default/model/file")).unwrap(), "data\n");
    for path in ["/workspace", "/etc/mpi", "/home/mpiuser", "/memory"] {
        assert!(!std::path::Path::new(path).exists(), "{path} was left on the host");
    }
}

#[tokio::test]
async fn mount_paths_are_rewritten_in_plain_mode() {
    let node = Node::plain().await;
    let mut spec = script("echo data > /workspace/file; cat $FILE; pwd; hostname > /dev/null");
    spec["volumes"] = json!([{"name": "workspace", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "workspace", "mountPath": "/workspace"}]);
    spec["containers"][0]["env"] = json!([{"name": "FILE", "value": "/workspace/file"}]);
    node.cluster.create("p", spec);
    node.cluster.until_phase("p", "Succeeded").await;
    assert!(node.log("p", "node").await.starts_with("data\n"));
}

#[tokio::test]
async fn missing_references_are_told_and_waited_for() {
    let node = Node::new().await;
    let mut spec = script("echo $KEY");
    spec["containers"][0]["env"] =
        json!([{"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "key"}}}]);
    node.cluster.create("p", spec);
    let is_waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = node.cluster.until("p", is_waiting).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"], "configmap \"cm\" not found");
    assert_eq!(pod["status"]["phase"], "Pending");
    node.cluster.config_map("cm", json!({"key": "value"}));
    node.cluster.until_phase("p", "Succeeded").await;
    assert_eq!(node.log("p", "node").await, "value\n");
}

#[tokio::test]
async fn probes_decide_readiness_and_life() {
    let node = Node::new().await;
    let mut spec = script("echo up; while :; do sleep 0.05; done");
    spec["restartPolicy"] = json!("Always");
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    spec["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["test", "!", "-e", "dead"]}, "periodSeconds": 1, "failureThreshold": 1});
    node.cluster.create("p", spec);
    let is_ready = |pod: &Value, ready: bool| pod["status"]["containerStatuses"][0]["ready"] == ready;
    let pod = node.cluster.until_phase("p", "Running").await;
    assert!(is_ready(&pod, false));
    let work = node.dir("p").work("node");
    std::fs::write(work.join("ready"), "").unwrap();
    node.cluster.until("p", |pod| is_ready(pod, true)).await;
    std::fs::write(work.join("dead"), "").unwrap();
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64() > Some(0);
    node.cluster.until("p", restarted).await;
    let events = node.cluster.events("p");
    let is_told =
        |(reason, text): &(String, String)| reason == "Unhealthy" && text.starts_with("Liveness probe failed");
    assert!(events.iter().any(is_told), "{events:?}");
}

#[tokio::test]
async fn commands_in_running_containers() {
    let Some(node) = Node::hosts().await else { return };
    let mut spec = script("echo up; sleep 1000");
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/only/here"}]);
    spec["containers"][0]["env"] = json!([{"name": "KEY", "value": "value"}]);
    spec["hostname"] = json!("the-pod");
    node.cluster.create("p", spec);
    node.cluster.until_phase("p", "Running").await;
    let options = |command: &[&str], stdin: bool, tty: bool| ExecOptions {
        container: "node".to_owned(),
        command: command.iter().map(|s| (*s).to_owned()).collect(),
        stdin,
        tty,
    };
    let text = "test -d /only/here; hostname; echo $KEY; cat; echo oops >&2; exit 3";
    let mut run = exec(&node.dir("p"), options(&["sh", "-c", text], true, false)).await.unwrap();
    let mut stdin = run.stdin.take().unwrap();
    stdin.write_all(b"from outside\n").await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    run.stdout.read_to_string(&mut out).await.unwrap();
    run.stderr.unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!(out, "the-pod\nvalue\nfrom outside\n");
    assert_eq!((err.as_str(), run.exit.wait().await.unwrap()), ("oops\n", 3));

    let mut run =
        exec(&node.dir("p"), options(&["sh", "-c", "tty; stty size; read x; echo got $x"], true, true)).await.unwrap();
    run.terminal.as_ref().unwrap().resize(100, 30).unwrap();
    run.stdin.as_mut().unwrap().write_all(b"word\n").await.unwrap();
    let mut out = String::new();
    run.stdout.read_to_string(&mut out).await.unwrap();
    assert!(out.contains("/dev/pts/") && out.ends_with("got word\r\n"), "{out:?}");
    assert_eq!(run.exit.wait().await.unwrap(), 0);

    let refused = exec(&node.dir("p"), options(&["no-such-program"], false, false)).await.err().unwrap();
    assert!(refused.to_string().contains("executable file not found in $PATH"), "{refused}");
    let refused =
        exec(&node.dir("p"), ExecOptions { container: "other".into(), ..options(&["true"], false, false) }).await;
    assert_eq!(refused.err().unwrap().to_string(), "container \"other\" not found");
}

#[tokio::test]
async fn the_node_is_registered() {
    let node = Node::new().await;
    node.cluster.create("p", script("true"));
    node.cluster.until_phase("p", "Succeeded").await;
    let object = node.cluster.node();
    assert_eq!(object["metadata"]["name"], "this");
    assert!(object["status"]["capacity"]["memory"].as_str().unwrap().ends_with("Ki"));
}

#[tokio::test]
async fn ssh_between_pods_needs_no_server() {
    let Some(node) = Node::hosts().await else { return };
    let mut worker = member("job", 1, "");
    worker["containers"][0]["command"] = json!(["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"]);
    // As the built-in runtimes probe it, although nothing listens: there is a stand-in, which has no port.
    worker["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5});
    node.cluster.create("worker", worker);
    node.cluster.until("worker", |pod| pod["status"]["containerStatuses"][0]["ready"] == true).await;
    let text = r#"
        echo input | ssh -q -p 2222 -o ConnectionAttempts=10 job-node-0-1.job 'cat; hostname; echo $RANK; exit 3'; echo $?
        ssh -l root other-node-0-0.other true 2> /dev/null; test $? != 0 && echo refused
    "#;
    node.cluster.create("launcher", member("job", 0, text));
    node.cluster.until_phase("launcher", "Succeeded").await;
    assert_eq!(node.log("launcher", "node").await, "input\njob-node-0-1\n1\n3\nrefused\n");
    node.cluster.delete("worker", 30);
    node.cluster.until("worker", Value::is_null).await;
}

#[tokio::test]
async fn ssh_waits_for_a_pod_that_is_bound_and_not_up() {
    let Some(node) = Node::hosts().await else { return };
    let mut worker = member("job", 1, "");
    worker["containers"][0]["command"] = json!(["/usr/sbin/sshd", "-De"]);
    worker["initContainers"] =
        json!([{"name": "first", "command": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"]}]);
    node.cluster.create("worker", worker);
    let text = r#"
        echo asks; ssh job-node-0-1.job.default.svc hostname; echo $?
        ssh localhost true 2>/dev/null; echo not waited for
    "#;
    node.cluster.create("launcher", member("job", 0, text));
    node.log_has_once_running("launcher", "asks\n").await;
    node.cluster.until("worker", |pod| pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object()).await;
    std::fs::write(node.dir("worker").work("first").join("go"), "").unwrap();
    node.cluster.until_phase("launcher", "Succeeded").await;
    assert_eq!(node.log("launcher", "node").await, "asks\njob-node-0-1\n0\nnot waited for\n");
}

#[tokio::test]
async fn a_launcher_waits_for_its_workers() {
    let Some(node) = Node::hosts().await else { return };
    let launcher = |timeout: &str| {
        let mut pod = member("job", 0, "echo started");
        let hosts = "echo job-node-0-0.job slots=1; echo job-node-0-1.job.default.svc:2; echo job-node-0-2.job";
        let mount = json!([{"name": "config", "mountPath": "/etc/mpi"}]);
        pod["volumes"] = json!([{"name": "config", "emptyDir": {}}]);
        pod["initContainers"] = json!([
            {"name": "hosts", "command": ["sh", "-c", format!("{{ {hosts}; }} > /etc/mpi/hostfile")], "volumeMounts": mount},
            {"name": "waits", "command": ["/trainyard", "mpi-wait", "--port=22", timeout], "volumeMounts": mount,
             "terminationMessagePolicy": "FallbackToLogsOnError"},
        ]);
        pod
    };
    let worker = |index: u32| {
        let mut pod = member("job", index, "");
        pod["containers"][0]["command"] = json!(["/usr/sbin/sshd", "-De"]);
        pod
    };
    node.cluster.create("worker-1", worker(1));
    node.cluster.until_phase("worker-1", "Running").await;
    node.cluster.create("late", launcher("--timeout=0"));
    let pod = node.cluster.until_phase("late", "Failed").await;
    let said = &pod["status"]["initContainerStatuses"][1]["state"]["terminated"]["message"];
    let expected =
        "1 of 2 workers could not be reached within 0 s: job-node-0-2.job (no pod of that name is on this node)";
    assert_eq!(said, expected);
    node.cluster.create("launcher", launcher("--timeout=300s"));
    node.cluster
        .until("launcher", |pod| pod["status"]["initContainerStatuses"][1]["state"]["running"].is_object())
        .await;
    node.log_has("launcher", "waits", "mpi-wait: waiting for 1 of 2 workers\n").await;
    node.cluster.until("launcher", |pod| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object()).await;
    node.cluster.create("worker-2", worker(2));
    node.cluster.until_phase("launcher", "Succeeded").await;
}

#[tokio::test]
async fn hosts_of_mpi_are_seen_long_before_other_volumes_are_refreshed() {
    let node = Node::new().await;
    node.cluster.config_map("hosts", json!({"hostfile": "one"}));
    let mut pod = script("cat /etc/mpi/hostfile; echo; until grep -q two /etc/mpi/hostfile; do sleep 0.02; done");
    pod["volumes"] = json!([{"name": "hosts", "configMap": {"name": "hosts"}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "hosts", "mountPath": "/etc/mpi"}]);
    node.cluster.create("p", pod);
    node.log_has_once_running("p", "one\n").await;
    let read = node.cluster.config_maps_read();
    node.cluster.config_map("hosts", json!({"hostfile": "two"}));
    // others have to wait for a minute, which is longer than this does
    node.cluster.until_phase("p", "Succeeded").await;
    assert_eq!(node.cluster.config_maps_read(), read, "the change itself says what there is to show");
}

#[tokio::test]
async fn volumes_of_objects_follow_them_and_sub_paths_do_not() {
    let Some(node) = Node::hosts_with(|config| config.refresh = Duration::from_millis(200)).await else { return };
    node.cluster.config_map("map", json!({"key": "one"}));
    node.cluster.secret("secret", "b25l");
    let mut pod = script(
        "cat /map/key /secret/key /both/map /sub; echo
        for file in /map/key /secret/key /both/map /both/secret; do until grep -q two $file; do sleep 0.02; done; done
        cat /sub",
    );
    let both = json!([{"configMap": {"name": "map", "items": [{"key": "key", "path": "map"}]}},
        {"secret": {"name": "secret", "items": [{"key": "key", "path": "secret"}]}}]);
    pod["volumes"] = json!([{"name": "map", "configMap": {"name": "map"}}, {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "both", "projected": {"sources": both}}]);
    pod["containers"][0]["volumeMounts"] = json!([
        {"name": "map", "mountPath": "/map"}, {"name": "secret", "mountPath": "/secret"}, {"name": "both", "mountPath": "/both"},
        {"name": "map", "mountPath": "/sub", "subPath": "key"},
    ]);
    node.cluster.create("p", pod);
    node.log_has_once_running("p", "oneoneoneone\n").await;
    node.cluster.config_map("map", json!({"key": "two"}));
    node.cluster.secret("secret", "dHdv");
    node.cluster.until_phase("p", "Succeeded").await;
    assert_eq!(node.log("p", "node").await, "oneoneoneone\none\n", "a file that is mounted alone stays as it was");
}

#[tokio::test]
async fn a_refresh_that_failed_is_tried_again_long_before_the_next_is_due() {
    let every = Duration::from_secs(3);
    let node = Node::with(|config| config.refresh = every).await;
    node.cluster.config_map("map", json!({"key": "one"}));
    let mut pod = script("until grep -q two /map/key; do sleep 0.02; done");
    pod["volumes"] = json!([{"name": "map", "configMap": {"name": "map"}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "map", "mountPath": "/map"}]);
    node.cluster.create("p", pod);
    node.cluster.until_phase("p", "Running").await;
    node.cluster.fail_config_maps(2);
    node.cluster.config_map("map", json!({"key": "two"}));
    node.cluster.until_phase("p", "Succeeded").await;
    let faults = node.cluster.faulted();
    assert_eq!(faults.len(), 2);
    assert!(faults[0].elapsed() < every, "{:?}", faults[0].elapsed());
}

#[tokio::test]
async fn what_is_missing_on_the_path_says_how_to_get_it() {
    let node = Node::new().await;
    let mut spec = script("python -c 'print(1)'; torchrun train.py");
    // A machine with nothing but the system's programs.
    spec["containers"][0]["env"] = json!([{"name": "PATH", "value": "/usr/bin:/bin"}]);
    node.cluster.create("p", spec);
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 127);
    let log = node.log("p", "node").await;
    assert!(log.starts_with("1\n") && log.contains("-m pip install torch"), "{log}");
    let mut spec = script("");
    spec["containers"][0]["command"] = json!(["/bin/sh", "-c", "mpirun --version"]);
    spec["containers"][0]["env"] = json!([{"name": "PATH", "value": "/nowhere"}]);
    node.cluster.create("mpi", spec);
    let pod = node.cluster.until_phase("mpi", "Failed").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 127);
    let log = node.log("mpi", "node").await;
    assert!(log.contains("Open MPI is not installed") && log.contains("apt-get install openmpi-bin"), "{log}");
}

#[tokio::test]
async fn a_pod_declared_over_is_stopped() {
    let node = Node::new().await;
    node.cluster.create("p", script("sleep 98769"));
    node.cluster.until_phase("p", "Running").await;
    node.cluster.declare("p", json!({"phase": "Failed", "reason": "Evicted"}));
    let ended = |pod: &Value| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null();
    let pod = node.cluster.until("p", ended).await;
    assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&json!("Failed"), &json!("Evicted")));
}

#[tokio::test]
async fn gpus_are_handed_out_once() {
    let gpu = |index| Gpu { index, product: "Test".into(), memory_mib: 1 };
    let mut node = Node::with(|config| config.gpus = Some(vec![gpu(0), gpu(3)])).await;
    let asking = |count: u32| {
        let mut spec = script("echo \"[$CUDA_VISIBLE_DEVICES]\"; until [ -e go ]; do sleep 0.02; done");
        spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": count.to_string()}});
        spec
    };
    node.cluster.create("a", asking(1));
    node.cluster.until_phase("a", "Running").await;
    node.cluster.create("b", asking(1));
    node.cluster.until_phase("b", "Running").await;
    // Another agent knows what the first gave away.
    node.kill_agent().await;
    node.start().await;
    node.cluster.create("c", asking(1));
    let waits = |pod: &Value| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
        waiting.as_str().is_some_and(|text| text.contains("waiting for GPUs"))
    };
    node.cluster.until("c", waits).await;
    node.cluster.create("none", script("echo \"[$CUDA_VISIBLE_DEVICES]\""));
    node.cluster.until_phase("none", "Succeeded").await;
    std::fs::write(node.dir("a").work("node").join("go"), "").unwrap();
    node.cluster.until_phase("c", "Running").await;
    for (name, visible) in [("a", "[0]\n"), ("b", "[3]\n"), ("c", "[0]\n"), ("none", "[]\n")] {
        node.log_has(name, "node", visible).await;
    }
    assert_eq!(node.cluster.node()["status"]["capacity"]["nvidia.com/gpu"], "2");
}
