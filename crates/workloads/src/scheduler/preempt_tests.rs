//! Preemption on a world in memory: which gang ends for which, the messages to both, and that gangs end as a whole.

use super::tests::{Dice, Live, bound, declared, node, pod, told};
use super::*;
use reconcile::Propagation;
use std::collections::{BTreeMap, BTreeSet};

const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";

/// A priority, and when it was made.
fn rank(priority: i64, second: usize) -> Value {
    json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60)},
        "spec": {"priority": priority}})
}

fn put(live: &mut Live, objects: Vec<Value>) {
    objects.into_iter().for_each(|object| _ = live.model.put(object));
    live.run();
}

/// Names of the pods that are being deleted.
fn leaving(live: &Live) -> Vec<String> {
    let pods = live.model.all("Pod");
    pods.iter().filter(|pod| object::is_terminating(pod)).map(|pod| object::meta(pod, "name").to_owned()).collect()
}

/// Their grace is over.
fn let_go(live: &mut Live) {
    for name in leaving(live) {
        live.model.end_grace(&core("Pod"), &Key::new("ns", &name));
    }
    live.run();
}

#[test]
fn the_least_important_gang_goes_as_a_whole_the_newest_first() {
    let mut live = Live::of(&[node("n", "4", json!({})), node("o", "4", json!({}))]);
    // each gang has a pod on either node or two on one; all nodes are full
    for (second, (name, priority)) in [("old", 0), ("new", 0), ("important", 5), ("newest", 1)].into_iter().enumerate()
    {
        put(&mut live, declared(name, 2, "1", &rank(priority, second)));
    }
    assert_eq!(bound(&live.model).len(), 8);
    put(&mut live, declared("head", 2, "1", &rank(9, 50)));
    assert_eq!(leaving(&live), ["new-0", "new-1"]);
    assert_eq!(bound(&live.model).len(), 8, "nobody is placed before there is room");
    let victim = live.model.one("Pod", "new-0").expect("it has its grace");
    let mark = &victim["status"]["conditions"][0];
    assert_eq!(
        (object::text(mark, "type"), object::text(mark, "reason"), object::text(mark, "message")),
        (
            "DisruptionTarget",
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod"
        )
    );
    let head = live.model.one("Pod", "head-0").expect("it waits");
    assert!(["n", "o"].contains(&object::text(&head["status"], "nominatedNodeName")), "{head}");
    let place = node_of(&victim).expect("a node");
    let said = format!("new-0: Normal Preempted: Preempted by pod {} on node {place}", object::uid(&head));
    assert!(live.model.events.contains(&said), "{:?}", live.model.events);
    let said = "head-0: Normal Preempting: Ends 2 pod(s) of lower priority to make room: ns/new";
    assert_eq!(live.model.events.iter().filter(|line| **line == said).count(), 1, "{:?}", live.model.events);

    // what leaves is waited for; no pod that comes later gets the room, and what replaces the victims is a gang again
    put(&mut live, vec![pod("late", "1", rank(0, 55))]);
    put(&mut live, declared("new-again", 2, "1", &rank(0, 56)));
    assert_eq!(leaving(&live), ["new-0", "new-1"]);
    live.model.end_grace(&core("Pod"), &Key::new("ns", "new-0"));
    live.run();
    assert!(!bound(&live.model).iter().any(|line| line.starts_with("head") || line.starts_with("late")));
    let_go(&mut live);
    let held = bound(&live.model);
    assert_eq!(held.iter().filter(|line| line.starts_with("head")).count(), 2, "{held:?}");
    assert_eq!((held.len(), leaving(&live).len()), (8, 0), "{held:?}");
}

#[test]
fn no_more_go_than_it_takes() {
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    let mut live = Live::of(&[node("a", "4", zone("a")), node("b", "4", zone("b"))]);
    let at = |zone: &str, priority, second| {
        let mut at = rank(priority, second);
        at["spec"]["nodeSelector"] = json!({ "zone": zone });
        at
    };
    // the newest of all is in the other zone: its end would help nobody
    put(&mut live, vec![pod("small-a", "1", at("a", 0, 1)), pod("big-a", "3", at("a", 0, 0))]);
    put(&mut live, declared("in-b", 2, "2", &at("b", 0, 9)));
    put(&mut live, vec![pod("head", "3", at("a", 7, 20))]);
    assert_eq!(leaving(&live), ["big-a"], "the small one may stay, the others are elsewhere");
    let_go(&mut live);
    assert_eq!(bound(&live.model), ["head:a", "in-b-0:b", "in-b-1:b", "small-a:a"]);
}

#[test]
fn nobody_goes_in_vain() {
    let full = || {
        let mut live = Live::of(&[node("n", "4", json!({}))]);
        put(&mut live, vec![pod("low", "2", rank(1, 0)), pod("high", "2", rank(5, 1))]);
        live
    };
    for (about, cpu, priority, policy) in [
        ("no lower priority", "2", 1, "PreemptLowerPriority"),
        ("too much even so", "3", 3, "PreemptLowerPriority"),
        ("never", "2", 9, "Never"),
    ] {
        let mut live = full();
        let mut head = pod("head", cpu, rank(priority, 9));
        head["spec"]["preemptionPolicy"] = policy.into();
        put(&mut live, vec![head]);
        live.model.run(&live.scheduler, &Scheduler::telling());
        assert_eq!(leaving(&live), Vec::<String>::new(), "{about}");
        let says_so = told(&live.model, "head").contains("preemption: not eligible due to preemptionPolicy=Never.");
        assert_eq!(says_so, policy == "Never", "{about}: {}", told(&live.model, "head"));
    }
}

/// What never ends by itself is no reason to wait for ever.
#[test]
fn pods_that_run_for_ever_go_too() {
    let mut live = Live::of(&[node("n", "4", json!({}))]);
    let mut service = pod("service", "3", rank(0, 0));
    service["spec"]["restartPolicy"] = "Always".into();
    put(&mut live, vec![service]);
    // one of no higher priority has tried in vain
    put(&mut live, vec![pod("equal", "2", rank(0, 1))]);
    put(&mut live, vec![pod("head", "2", rank(1, 2))]);
    assert_eq!(leaving(&live), ["service"]);
    let_go(&mut live);
    assert_eq!(bound(&live.model), ["equal:n", "head:n"]);
}

/// A crash after each write: the next scheduler carries on with the whole gang, and ends no other.
#[test]
fn a_preemption_that_was_cut_off_is_carried_on_with() {
    for cut in 0..9 {
        let mut live = Live::of(&[node("n", "4", json!({}))]);
        put(&mut live, declared("old", 2, "1", &rank(0, 0)));
        put(&mut live, declared("new", 2, "1", &rank(0, 1)));
        for object in declared("head", 2, "1", &rank(3, 9)) {
            live.model.put(object);
        }
        live.tell();
        let mut decision = live.model.decide(&live.scheduler, &Scheduler::key()).expect("something to do");
        assert_eq!(decision.writes.len(), 6, "two marks, two deletions, two nominations");
        decision.writes.truncate(cut);
        live.model.execute(&Scheduler::key(), &decision);
        live.scheduler = Scheduler::default();
        live.run();
        assert_eq!(leaving(&live), ["new-0", "new-1"], "cut after {cut}");
        let_go(&mut live);
        assert_eq!(bound(&live.model), ["head-0:n", "head-1:n", "old-0:n", "old-1:n"], "cut after {cut}");
    }
}

/// Loads of chance with three priorities: the gang that ends is less important than the one that it ends for, gangs end as a whole, and everybody who can
/// be served is, in the end. Pods that went come again, as those of a Job do.
#[test]
fn preemption_is_by_priority_and_by_gangs() {
    let mut preempted = 0;
    for seed in 0..8 {
        let mut dice = Dice(seed);
        let mut live = Live::of(&[node("a", "4", json!({})), node("b", "3", json!({}))]);
        let mut jobs = 0;
        for step in 0..200 {
            if jobs < 25 && dice.below(2) == 0 {
                let (pods, cpu) = (1 + dice.below(3) as usize, 1 + dice.below(2));
                let mut at = rank(dice.below(3) as i64, step);
                if dice.below(5) == 0 {
                    at["spec"]["preemptionPolicy"] = "Never".into();
                }
                let gang = declared(&format!("g{jobs:02}"), pods, &cpu.to_string(), &at);
                gang.into_iter().for_each(|object| _ = live.model.put(object));
                jobs += 1;
            }
            let before: BTreeSet<String> = leaving(&live).into_iter().collect();
            if dice.below(20) == 0 {
                live.scheduler = Scheduler::default();
            }
            live.run();
            let pods = live.model.all("Pod");
            let mut gangs: BTreeMap<&str, Vec<&Arc<Value>>> = BTreeMap::new();
            for pod in &pods {
                gangs.entry(object::label(pod, POD_GROUP).expect("a gang")).or_default().push(pod);
            }
            for (name, pods) in &gangs {
                let holds = |pod: &&&Arc<Value>| node_of(pod).is_some();
                let went = pods.iter().filter(|pod| object::is_terminating(pod)).count();
                let stay = pods.iter().filter(holds).count() - went;
                // those that are made anew after one has ended follow one by one
                let has_begun = pods.iter().any(|pod| object::has_ended(pod));
                let is_whole = stay == 0 || stay + went == pods.len();
                assert!(has_begun || is_whole, "seed {seed}, step {step}: {name} is half bound");
                let newly = pods
                    .iter()
                    .filter(|pod| object::is_terminating(pod) && !before.contains(object::meta(pod, "name")));
                for victim in newly {
                    preempted += 1;
                    let left =
                        pods.iter().filter(holds).any(|pod| !object::is_terminating(pod) && !object::has_ended(pod));
                    assert!(!left, "seed {seed}, step {step}: {name} goes in part");
                    let highest = pods_that_wait(&pods_of(&gangs));
                    assert!(
                        highest > Some(preempt::priority(victim)),
                        "seed {seed}, step {step}: {name} goes for {highest:?}"
                    );
                }
            }
            // some end, and the grace of some is over: their Job makes them anew
            for pod in &pods {
                if object::is_terminating(pod) && dice.below(2) == 0 {
                    let mut again = (**pod).clone();
                    for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "uid", "resourceVersion"] {
                        again["metadata"].as_object_mut().expect("metadata").remove(gone);
                    }
                    again["spec"].as_object_mut().expect("a spec").remove("nodeName");
                    again["status"] = json!({"phase": "Pending"});
                    live.model.end_grace(&core("Pod"), &Key::of(pod));
                    live.model.put(again);
                } else if node_of(pod).is_some() && !object::is_terminating(pod) && dice.below(8) == 0 {
                    live.model.change(&core("Pod"), &Key::of(pod), |pod| pod["status"]["phase"] = "Succeeded".into());
                }
            }
        }
        for _ in 0..200 {
            live.run();
            for pod in live.model.all("Pod").iter().filter(|pod| node_of(pod).is_some()) {
                live.model.delete(&Target::of(pod), Propagation::Background, Some(0));
            }
        }
        assert_eq!(live.model.all("Pod").len(), 0, "seed {seed}: everybody is served");
    }
    assert!(preempted > 20, "only {preempted} went");
}

fn pods_of<'a>(gangs: &BTreeMap<&str, Vec<&'a Arc<Value>>>) -> Vec<&'a Arc<Value>> {
    gangs.values().flatten().copied().collect()
}

/// The highest priority among those that wait and may take others' nodes.
fn pods_that_wait(pods: &[&Arc<Value>]) -> Option<i64> {
    let wait = pods.iter().filter(|pod| waits(pod) && pod["spec"]["preemptionPolicy"] != "Never");
    wait.map(|pod| preempt::priority(pod)).max()
}
