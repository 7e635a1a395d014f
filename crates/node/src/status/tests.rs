//! Statuses of pods, from what their journals say.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn running(container: &str, attempt: u32) -> Event {
    Event::Running { container: container.into(), attempt, pid: 1 }
}

fn exited(container: &str, attempt: u32, code: i32) -> Event {
    let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
    let exit = Exit {
        code,
        signal: None,
        reason,
        message: String::new(),
        started_at: at(1),
        finished_at: at(2),
        peak_memory_bytes: None,
    };
    Event::Exited { container: container.into(), attempt, exit }
}

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {
            "initContainers": [{"name": "i", "image": "img"}],
            "containers": [{"name": "a", "image": "img"}, {"name": "b", "image": "img"}]
        }
    }))
    .unwrap()
}

fn status_of(events: Vec<Event>, problem: Option<&Problem>) -> Value {
    let records: Vec<Record> =
        events.into_iter().enumerate().map(|(n, event)| Record { at: at(n as i64), uptime: None, event }).collect();
    let pod = pod();
    let ready = [("b".to_owned(), false)].into();
    status(&Observed {
        pod: &pod,
        records: &records,
        ready: &ready,
        address: Ipv4Addr::new(127, 1, 2, 3),
        host_ip: Ipv4Addr::LOCALHOST,
        start_time: at(0),
        problem,
        previous: &Value::Null,
        entered: None,
        now: at(100),
    })
}

/// Phase, and for each container the reason or kind of its state, its readiness and its restarts.
fn summary(status: &Value) -> String {
    let state = |c: &Value| {
        let (kind, state) = c["state"].as_object().unwrap().iter().next().unwrap();
        state["reason"].as_str().unwrap_or(kind).to_owned()
    };
    let of = |member: &str| -> Vec<String> {
        let all = status[member].as_array().into_iter().flatten();
        all.map(|c| format!("{}={}/{}/{}", c["name"].as_str().unwrap(), state(c), c["ready"], c["restartCount"]))
            .collect()
    };
    let conditions = status["conditions"].as_array().unwrap();
    let held: Vec<&str> =
        conditions.iter().filter(|c| c["status"] == "True").map(|c| c["type"].as_str().unwrap()).collect();
    let containers: Vec<String> = of("initContainerStatuses").into_iter().chain(of("containerStatuses")).collect();
    format!("{} {} {}", status["phase"].as_str().unwrap(), containers.join(" "), held.join(","))
}

#[test]
fn lives_of_a_pod() {
    let taken = || Event::Taken { pid: 1, boot_id: String::new() };
    let stopping = |why| Event::Stopping { why, grace_secs: 1 };
    let waiting = || Event::Waiting { container: "a".into(), attempt: 1, back_off_secs: 10 };
    let up = || vec![taken(), running("i", 0), exited("i", 0, 0), running("a", 0), running("b", 0)];
    let with = |more: Vec<Event>| up().into_iter().chain(more).collect::<Vec<_>>();
    let sandbox = "PodReadyToStartContainers";
    let cases = [
        (
            vec![],
            "Pending i=PodInitializing/false/0 a=PodInitializing/false/0 b=PodInitializing/false/0 PodScheduled"
                .to_owned(),
        ),
        (
            vec![taken(), running("i", 0)],
            format!(
                "Pending i=running/true/0 a=PodInitializing/false/0 b=PodInitializing/false/0 {sandbox},PodScheduled"
            ),
        ),
        (
            vec![taken(), exited("i", 0, 0), running("a", 0)],
            format!(
                "Pending i=Completed/true/0 a=running/true/0 b=ContainerCreating/false/0 {sandbox},Initialized,PodScheduled"
            ),
        ),
        (
            up(),
            format!("Running i=Completed/true/0 a=running/true/0 b=running/false/0 {sandbox},Initialized,PodScheduled"),
        ),
        (
            with(vec![exited("a", 0, 1), waiting()]),
            format!(
                "Running i=Completed/true/0 a=CrashLoopBackOff/false/0 b=running/false/0 {sandbox},Initialized,PodScheduled"
            ),
        ),
        (
            with(vec![exited("a", 0, 1), waiting(), running("a", 1)]),
            format!("Running i=Completed/true/0 a=running/true/1 b=running/false/0 {sandbox},Initialized,PodScheduled"),
        ),
        (
            with(vec![exited("a", 0, 0), exited("b", 0, 0), Event::Finished]),
            "Succeeded i=Completed/true/0 a=Completed/false/0 b=Completed/false/0 Initialized,PodScheduled".to_owned(),
        ),
        (
            with(vec![exited("a", 0, 3), exited("b", 0, 0), Event::Finished]),
            "Failed i=Completed/true/0 a=Error/false/0 b=Completed/false/0 Initialized,PodScheduled".to_owned(),
        ),
        (
            with(vec![stopping(StopReason::DeadlineExceeded), exited("a", 0, 0), exited("b", 0, 0), Event::Finished]),
            "Failed i=Completed/true/0 a=Completed/false/0 b=Completed/false/0 Initialized,PodScheduled".to_owned(),
        ),
        (
            with(vec![exited("a", 0, 0), Event::Lost { message: "gone".into() }]),
            "Failed i=Completed/true/0 a=Completed/false/0 b=ContainerStatusUnknown/false/0 Initialized,PodScheduled"
                .to_owned(),
        ),
    ];
    for (events, expected) in cases {
        let told = format!("{events:?}");
        assert_eq!(summary(&status_of(events, None)), expected, "{told}");
    }
}

#[test]
fn times_of_conditions_stay_and_problems_are_named() {
    let problem =
        Problem { container: Some("a".into()), reason: "CreateContainerConfigError", message: "no map".into() };
    let status = status_of(vec![], Some(&problem));
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["message"], "no map");
    assert_eq!(status["containerStatuses"][1]["state"]["waiting"]["reason"], "PodInitializing");
    let pod = pod();
    let again = super::status(&Observed {
        pod: &pod,
        records: &[],
        ready: &BTreeMap::new(),
        address: Ipv4Addr::new(127, 1, 2, 3),
        host_ip: Ipv4Addr::LOCALHOST,
        start_time: at(0),
        problem: Some(&problem),
        previous: &status,
        entered: None,
        now: at(5000),
    });
    assert_eq!(again, status);
}

#[test]
fn a_launcher_that_has_ended_says_whether_it_entered_a_pod() {
    let pod = pod();
    let told = |events: Vec<Event>, entered: Option<bool>| {
        let records: Vec<Record> = events.into_iter().map(|event| Record { at: at(1), uptime: None, event }).collect();
        let status = status(&Observed {
            pod: &pod,
            records: &records,
            ready: &BTreeMap::new(),
            address: Ipv4Addr::new(127, 1, 2, 3),
            host_ip: Ipv4Addr::LOCALHOST,
            start_time: at(0),
            problem: None,
            previous: &Value::Null,
            entered,
            now: at(5000),
        });
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|c| c["type"] == ENTERED_PODS).map(|c| c["status"].clone())
    };
    let ended = || vec![exited("i", 0, 0), running("a", 0), exited("a", 0, 0), exited("b", 0, 0), Event::Finished];
    assert_eq!(told(ended(), Some(false)), Some(json!("False")));
    assert_eq!(told(ended(), Some(true)), Some(json!("True")));
    assert_eq!(told(ended(), None), None);
    assert_eq!(told(vec![running("a", 0)], Some(false)), None, "it may still enter one");
}
