//! Ends that somebody stands in the way of: held pipes, FIFOs, killed supervisors; and what stays of pods, which is nothing.

use super::Node;
use super::cluster::{PATIENCE, script};
use super::lifecycle::until_no_process;
use api::node::Limited;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use node::cgroup::Support;
use node::exec::{ExecOptions, exec};
use node::wire::{Event, Record};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Instant;

fn ended(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["terminated"]
}

/// The process of the pod's first container.
fn main_process(node: &Node, pod: &str) -> i32 {
    let records: Vec<Record> = node.dir(pod).read_journal().unwrap();
    let running = records.iter().find_map(|record| match record.event {
        Event::Running { pid, .. } => Some(pid),
        _ => None,
    });
    running.unwrap()
}

/// A field of `/proc/PID/stat`, counted from the one after the name.
fn field(pid: i32, index: usize) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(index).unwrap().to_owned()
}

fn state(pid: Pid) -> String {
    field(pid.as_raw(), 0)
}

fn parent(pid: i32) -> i32 {
    field(pid, 1).parse().unwrap()
}

pub fn without_cgroups() -> Support {
    Support { group: None, limits: Limited::without(&["memory", "cpu"], "not wanted") }
}

#[tokio::test]
async fn a_held_pipe_does_not_keep_a_pod() {
    let node = Node::new().await;
    node.cluster.create("p", script("echo up; until [ -e go ]; do sleep 0.02; done; echo down; exit 3"));
    node.log_has_once_running("p", "up").await;
    let path = format!("/proc/{}/fd/1", main_process(&node, "p"));
    let held = OpenOptions::new().write(true).open(path).unwrap();
    fs::write(node.dir("p").work("node").join("go"), "").unwrap();
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!(ended(&pod)["exitCode"], 3);
    assert_eq!(node.log("p", "node").await, "up\ndown\n");
    drop(held);
}

#[tokio::test]
async fn a_fifo_for_the_last_words_is_not_read() {
    let node = Node::plain().await;
    let mut spec = script("rm -f /dev/termination-log; mkfifo /dev/termination-log; exit 3");
    spec["restartPolicy"] = json!("OnFailure");
    node.cluster.create("p", spec.clone());
    // started again, it finds a file there once more
    node.cluster.until("p", |pod| pod["status"]["containerStatuses"][0]["restartCount"].as_i64() > Some(0)).await;
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    spec["containers"][0]["command"][2] =
        json!("echo words; rm -f /dev/termination-log; ln -s /etc/passwd /dev/termination-log; exit 4");
    node.cluster.create("q", spec);
    let pod = node.cluster.until_phase("q", "Failed").await;
    assert_eq!((&ended(&pod)["exitCode"], &ended(&pod)["message"]), (&json!(4), &json!("words\n")));
}

#[tokio::test]
async fn a_program_ignores_no_signal_that_the_agent_ignores() {
    // As `nohup trainyard up` does. Nobody sends it to the tests.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    #[expect(unsafe_code, reason = "sets an action, installs no handler")]
    unsafe {
        sigaction(Signal::SIGHUP, &ignore).unwrap();
    }
    let node = Node::new().await;
    node.cluster.create("p", script("grep SigIgn /proc/self/status; kill -HUP $$$$; exit 0"));
    let pod = node.cluster.until_phase("p", "Failed").await;
    let log = node.log("p", "node").await;
    let ignored = u64::from_str_radix(log.trim().trim_start_matches("SigIgn:\t"), 16).unwrap();
    // Those above the standard ones are the C library's own (signal(7)).
    assert_eq!(ignored & 0x7fff_ffff, 0, "{log}");
    assert_eq!(ended(&pod)["exitCode"], 129);
}

#[tokio::test]
async fn what_was_killed_by_hand_did_not_lack_memory() {
    let node = Node::new().await;
    node.cluster.create("p", script("kill -9 $$$$"));
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!((&ended(&pod)["exitCode"], &ended(&pod)["reason"]), (&json!(137), &json!("Error")));
}

/// Kills the shim and the container's keeper so that neither can end what the other leaves. The shim is the one to be stopped
/// first: a stopped keeper would be continued by the kernel once its process group is orphaned.
async fn kill_supervisors(node: &Node, pod: &str) {
    let keeper = Pid::from_raw(parent(main_process(node, pod)));
    let shim = Pid::from_raw(node.dir(pod).shim().unwrap().unwrap());
    kill(shim, Signal::SIGSTOP).unwrap();
    let start = Instant::now();
    while state(shim) != "T" {
        assert!(start.elapsed() < PATIENCE, "the shim does not stop");
        tokio::task::yield_now().await;
    }
    kill(keeper, Signal::SIGKILL).unwrap();
    kill(shim, Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn orphans_are_ended_by_mark_and_session() {
    let node = Node::with(|config| config.cgroups = Some(without_cgroups())).await;
    // One that left the session, one that has no environment any more.
    let text = "setsid sleep 98771 & env -i sleep 98772 & echo up; sleep 98773";
    node.cluster.create("p", script(text));
    node.log_has_once_running("p", "up").await;
    kill_supervisors(&node, "p").await;
    let pod = node.cluster.until_phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "SupervisorLost");
    // Not "sooner or later": before anybody was told that the pod is over.
    for number in ["98771", "98772", "98773"] {
        assert!(!is_running(number), "sleep {number} outlived its pod");
    }
}

#[tokio::test]
async fn a_killed_shim_takes_what_commands_left_behind_along_though_no_agent_runs() {
    for support in [None, Some(without_cgroups())] {
        let mut node = Node::with(|config| config.cgroups = support.or_else(|| config.cgroups.take())).await;
        node.cluster.create("p", script("echo up; sleep 98781"));
        node.log_has_once_running("p", "up").await;
        let command = ["sh", "-c", "(setsid sleep 98782 >/dev/null 2>&1 &) ; exit 0"].map(str::to_owned).to_vec();
        let options = ExecOptions { container: "node".to_owned(), command, stdin: false, tty: false };
        assert_eq!(exec(&node.dir("p"), options).await.unwrap().exit.wait().await.unwrap(), 0);
        let shim = node.dir("p").shim().unwrap().unwrap();
        assert_eq!(parent(process_of("98782")), shim, "it is the shim's to end");
        node.kill_agent().await;
        kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
        until_no_process("9878").await;
    }
}

/// The process with this in its command line.
fn process_of(text: &str) -> i32 {
    let start = Instant::now();
    loop {
        let mut pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|p| p.file_name().to_str()?.parse().ok());
        let command = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if let Some(pid) = pids.find(|pid| command(*pid).starts_with(&format!("sleep\0{text}"))) {
            return pid;
        }
        assert!(start.elapsed() < PATIENCE, "there is no process {text}");
    }
}

fn is_running(text: &str) -> bool {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|p| fs::read(p.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(text))
}

/// Waits until the group has the main process and one process with each of these command lines (`\0` between words).
async fn until_all_run_in(group: &Path, main: i32, commands: &[&str]) {
    let start = Instant::now();
    loop {
        let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        let command = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let seen: Vec<String> = processes.lines().map(command).collect();
        if processes.lines().any(|pid| pid == main.to_string())
            && commands.iter().all(|wanted| seen.iter().any(|text| text == wanted))
        {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{main} in {processes:?}: {seen:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn orphans_are_ended_by_a_new_agent_and_nothing_stays_of_their_group() {
    let mut node = Node::new().await;
    let text = "env -i setsid sleep 98774 & echo up; sleep 98775";
    node.cluster.create("p", script(text));
    node.log_has_once_running("p", "up").await;
    let Some(group) = node.dir("p").read_launch().unwrap().unwrap().cgroup else {
        eprintln!("not tried here: this machine lends no cgroup");
        kill(Pid::from_raw(main_process(&node, "p")), Signal::SIGKILL).unwrap();
        return;
    };
    let main = main_process(&node, "p");
    until_all_run_in(&group.join("node.0"), main, &["sleep\x0098774\0", "sleep\x0098775\0"]).await;
    node.kill_agent().await;
    kill_supervisors(&node, "p").await;
    assert!(is_running("98774"), "it has neither mark nor session: only the group knows it");
    node.start().await;
    node.cluster.until_phase("p", "Failed").await;
    assert!(!is_running("98774") && !is_running("98775"));
    assert!(!group.exists(), "{} is still there", group.display());
}

#[tokio::test]
async fn the_group_of_a_pod_that_ended_is_gone() {
    let mut node = Node::new().await;
    node.cluster.create("p", script("exit 0"));
    node.cluster.until_phase("p", "Succeeded").await;
    let Some(group) = node.dir("p").read_launch().unwrap().unwrap().cgroup else { return };
    assert!(!group.exists(), "{} is still there", group.display());
    // One that nobody knows, of a pod whose directory is gone.
    let agents = group.parent().unwrap().to_owned();
    fs::create_dir_all(agents.join("gone/node.0")).unwrap();
    // And one of an agent that is not there any more.
    let others = agents.with_file_name("trainyard-of-a-test");
    fs::create_dir_all(others.join("gone/node.0")).unwrap();
    node.kill_agent().await;
    node.start().await;
    for group in [agents, others] {
        assert!(!group.exists(), "{} is still there", group.display());
    }
}

#[tokio::test]
async fn commands_and_hooks_are_in_the_containers_group() {
    let node = Node::new().await;
    let mut spec = script("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done");
    let hook = json!({"exec": {"command": ["sh", "-c", "cat /proc/self/cgroup > group"]}});
    spec["containers"][0]["lifecycle"] = json!({"postStart": hook});
    node.cluster.create("p", spec);
    node.log_has_once_running("p", "up").await;
    let Some(group) = node.dir("p").read_launch().unwrap().unwrap().cgroup else { return };
    let path = node.dir("p").work("node").join("group");
    let read = || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
    let start = std::time::Instant::now();
    let text = loop {
        assert!(start.elapsed().as_secs() < 20, "the hook does not run");
        match read() {
            Some(text) => break text,
            None => tokio::task::yield_now().await,
        }
    };
    let uid = group.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(text.lines().any(|line| line.ends_with(&format!("/{uid}/node.0"))), "{text}");
    node.cluster.delete("p", 5);
    node.cluster.until("p", Value::is_null).await;
    until_no_process("98776").await;
}
