//! Scheduling on a world in memory: which pod gets which node, which waits, and the message of a pod that waits.

use super::*;
use reconcile::testing::{Model, merge};

/// A node with so many cpus, and other members.
pub(super) fn node(name: &str, cpu: &str, more: Value) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    merge(&mut node, &more);
    node
}

/// A pod that asks for cpus (`""`: none), and other members.
pub(super) fn pod(name: &str, cpu: &str, more: Value) -> Value {
    let resources = if cpu.is_empty() { json!({}) } else { json!({"requests": {"cpu": cpu}}) };
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Pending"}});
    merge(&mut pod, &more);
    pod
}

/// Schedules to the fixpoint with a scheduler that knows nothing yet, and writes the messages to the pods that wait.
pub(super) fn run(model: &mut Model) -> Next {
    let scheduler = Scheduler::default();
    model.run(&scheduler, &Scheduler::key());
    model.run(&scheduler, &Scheduler::telling())
}

/// `pod:node` of those that have one, in order of their names.
pub(super) fn bound(model: &Model) -> Vec<String> {
    let pods = model.all("Pod");
    let pods = pods.iter().filter_map(|pod| Some(format!("{}:{}", object::meta(pod, "name"), node_of(pod)?)));
    pods.collect()
}

/// Why a pod has no node.
pub(super) fn told(model: &Model, pod: &str) -> String {
    let pod = model.one("Pod", pod).expect("a pod");
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.map(|c| object::text(c, "message").to_owned()).next().unwrap_or_default()
}

pub(super) fn schedule(objects: &[Value]) -> Model {
    let mut model = Model::of(objects.iter().cloned());
    run(&mut model);
    model
}

#[test]
fn pods_go_where_they_fit() {
    let gpu = json!({"status": {"allocatable": {"nvidia.com/gpu": "2"}}});
    let wants_gpu = json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}});
    let a_node = node("n", "4", json!({}));
    let cases: [(&str, Vec<Value>, Value, &str); 15] = [
        ("nothing asked", vec![a_node.clone()], json!({}), ""),
        ("no nodes", vec![], json!({}), "-"),
        ("a node that has not reported", vec![node("n", "4", json!({"status": {"conditions": null}}))], json!({}), "-"),
        (
            "too little",
            vec![a_node.clone()],
            json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "8"}}}]}}),
            "0/1 nodes are available: 1 Insufficient cpu (needs 8, 4 free of 4).",
        ),
        ("a device", vec![node("n", "4", gpu)], wants_gpu.clone(), ""),
        (
            "no device",
            vec![a_node.clone(), node("o", "4", json!({}))],
            wants_gpu,
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu (needs 1, 0 free of 0).",
        ),
        (
            "not ready",
            vec![node("n", "4", json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}))],
            json!({}),
            "0/1 nodes are available: 1 node(s) were not ready.",
        ),
        (
            "cordoned",
            vec![node("n", "4", json!({"spec": {"unschedulable": true}}))],
            json!({}),
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        ),
        (
            "tainted",
            vec![node("n", "4", json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}))],
            json!({}),
            "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}.",
        ),
        (
            "tolerated",
            vec![node("n", "4", json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}))],
            json!({"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}),
            "",
        ),
        (
            "elsewhere",
            vec![a_node.clone()],
            json!({"spec": {"nodeSelector": {"zone": "b"}}}),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            "full of pods",
            vec![node("n", "4", json!({"status": {"allocatable": {"pods": "0"}}}))],
            json!({}),
            "0/1 nodes are available: 1 Too many pods.",
        ),
        (
            "no claim",
            vec![a_node.clone()],
            json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}),
            "0/1 nodes are available: persistentvolumeclaim \"data\" not found.",
        ),
        ("another's", vec![a_node.clone()], json!({"spec": {"schedulerName": "mine"}}), "-"),
        ("gated", vec![a_node], json!({"spec": {"schedulingGates": [{"name": "x"}]}}), "-"),
    ];
    for (about, nodes, more, why) in cases {
        let model = schedule(&[nodes, vec![pod("p", "", more)]].concat());
        let expected = if why.is_empty() { vec!["p:n".to_owned()] } else { vec![] };
        assert_eq!(bound(&model), expected, "{about}");
        assert_eq!(told(&model, "p"), why.trim_start_matches('-'), "{about}");
        let event = match why {
            "" => vec!["p: Normal Scheduled: Successfully assigned ns/p to n".to_owned()],
            "-" => vec![],
            why => vec![format!("p: Warning FailedScheduling: {why}")],
        };
        assert_eq!(model.events, event, "{about}");
    }
}

#[test]
fn what_is_bound_holds_its_share_until_it_has_ended() {
    let holder = |phase: &str| pod("old", "3", json!({"spec": {"nodeName": "n"}, "status": {"phase": phase}}));
    let mut model = schedule(&[node("n", "4", json!({})), holder("Running"), pod("new", "2", json!({}))]);
    assert_eq!(told(&model, "new"), "0/1 nodes are available: 1 Insufficient cpu (needs 2, 1 free of 4).");
    model.writes.clear();
    run(&mut model);
    assert_eq!(model.writes, Vec::<String>::new());
    model.change(&core("Pod"), &Key::new("ns", "old"), |pod| pod["status"]["phase"] = "Succeeded".into());
    run(&mut model);
    assert_eq!(bound(&model), ["new:n", "old:n"]);
}

#[test]
fn amounts_are_told_anew_now_and_then() {
    let holder = |name: &str| pod(name, "1", json!({"spec": {"nodeName": "n"}}));
    let mut model = schedule(&[node("n", "4", json!({})), pod("big", "8", json!({}))]);
    let said = |free: u8| format!("0/1 nodes are available: 1 Insufficient cpu (needs 8, {free} free of 4).");
    assert_eq!(told(&model, "big"), said(4));
    model.put(holder("a"));
    assert_eq!(run(&mut model), Next::After(SignedDuration::from_secs(AMOUNTS_SECS)));
    assert_eq!(told(&model, "big"), said(4));
    model.pass(AMOUNTS_SECS);
    assert_eq!(run(&mut model), Next::AwaitChange);
    assert_eq!(told(&model, "big"), said(3));
    assert_eq!(model.events.len(), 1, "{:?}", model.events);
    // another reason is news
    model.change(&core("Node"), &Key::new("", "n"), |node| node["spec"]["unschedulable"] = true.into());
    run(&mut model);
    assert_eq!(model.events.len(), 2, "{:?}", model.events);
}

#[test]
fn the_most_important_come_first_and_nobody_is_held_up() {
    let priority = |number: i64| json!({"spec": {"priority": number}});
    let made = |at: &str| json!({"metadata": {"creationTimestamp": at}});
    let model = schedule(&[
        node("n", "4", json!({})),
        pod("a", "3", priority(0)),
        pod("b", "3", priority(10)),
        pod("small", "1", priority(-5)),
    ]);
    assert_eq!(bound(&model), ["b:n", "small:n"]);
    let model = schedule(&[
        node("n", "4", json!({})),
        pod("a", "3", made("2026-01-01T00:00:02Z")),
        pod("b", "3", made("2026-01-01T00:00:01Z")),
    ]);
    assert_eq!(bound(&model), ["b:n"]);
}

#[test]
fn pods_that_ask_are_packed_and_those_that_do_not_are_spread() {
    let nodes = [node("a", "8", json!({})), node("b", "4", json!({}))];
    let model = schedule(&[&nodes[..], &[pod("p", "2", json!({}))]].concat());
    assert_eq!(bound(&model), ["p:b"]);
    let model = schedule(&[&nodes[..], &[pod("p", "", json!({})), pod("q", "", json!({}))]].concat());
    assert_eq!(bound(&model), ["p:a", "q:b"]);
    let preferred = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}}]}}}});
    let model = schedule(&[&nodes[..], &[pod("p", "2", preferred)]].concat());
    assert_eq!(bound(&model), ["p:a"]);
}

#[test]
fn neighbours_are_wanted_or_not() {
    let nodes: Vec<Value> = ["a", "b"].map(|n| node(n, "8", json!({"metadata": {"labels": {"rack": n}}}))).into();
    let near = |kind: &str, own: &str, other: &str| {
        json!({"metadata": {"labels": {"app": own}}, "spec": {"affinity": {kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack", "namespaceSelector": {},
                "labelSelector": {"matchLabels": {"app": other}}}]}}}})
    };
    let there = pod("there", "1", json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": "b"}}));
    let with = |more: Value| [nodes.clone(), vec![there.clone(), pod("p", "1", more)]].concat();
    assert_eq!(bound(&schedule(&with(near("podAffinity", "y", "x")))), ["p:b", "there:b"]);
    assert_eq!(bound(&schedule(&with(near("podAntiAffinity", "y", "x")))), ["p:a", "there:b"]);
    // the first of its kind settles anywhere; nobody comes for one that is not there
    assert_eq!(bound(&schedule(&with(near("podAffinity", "z", "z")))).len(), 2);
    let model = schedule(&with(near("podAffinity", "y", "z")));
    assert_eq!(told(&model, "p"), "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.");
    // what is there keeps others away
    let guard = pod("guard", "1", near("podAntiAffinity", "g", "q"));
    let mut model = schedule(
        &[vec![nodes[0].clone(), guard], vec![pod("q", "1", json!({"metadata": {"labels": {"app": "q"}}}))]].concat(),
    );
    run(&mut model);
    assert_eq!(bound(&model), ["guard:a"]);
    let text = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_eq!(told(&model, "q"), text);
}

/// A scheduler that stays, in a world whose changes it hears of.
pub(super) struct Live {
    pub model: Model,
    pub scheduler: Scheduler,
    /// What it was told of.
    seen: std::collections::BTreeMap<Target, Arc<Value>>,
}

impl Live {
    pub(super) fn of(objects: &[Value]) -> Self {
        let model = Model::of(objects.iter().cloned());
        Self { model, scheduler: Scheduler::default(), seen: std::collections::BTreeMap::new() }
    }

    /// Tells of all that has changed since.
    pub(super) fn tell(&mut self) {
        let mut now = std::collections::BTreeMap::new();
        for gvk in self.scheduler.kinds().collect::<Vec<_>>() {
            for object in self.model.list(&gvk, None) {
                now.insert(Target { gvk: gvk.clone(), key: Key::of(&object) }, object);
            }
        }
        let gone = self.seen.iter().filter(|(target, _)| !now.contains_key(target));
        let changed = now.iter().filter(|(target, object)| self.seen.get(target) != Some(object));
        for (target, object) in changed.chain(gone) {
            for watch in self.scheduler.watches() {
                watch.woken_by(&self.scheduler.primary(), &self.model, &target.gvk, object);
            }
        }
        self.seen = now;
    }

    /// Schedules to the fixpoint; how many units it looked at.
    pub(super) fn run(&mut self) -> u64 {
        let before = self.scheduler.looked();
        self.tell();
        self.model.run(&self.scheduler, &Scheduler::key());
        self.tell();
        self.model.run(&self.scheduler, &Scheduler::key());
        self.scheduler.looked() - before
    }
}

/// Numbers of chance, the same in each run.
pub(super) struct Dice(pub u64);

impl Dice {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A gang of so many pods as a PodGroup, which takes few objects.
pub(super) fn declared(name: &str, pods: usize, cpu: &str, more: &Value) -> Vec<Value> {
    let mut objects = vec![json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ns"}, "spec": {"minMember": pods}})];
    for index in 0..pods {
        let mut member = pod(
            &format!("{name}-{index}"),
            cpu,
            json!({"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": name}}}),
        );
        merge(&mut member, more);
        objects.push(member);
    }
    objects
}

/// What a scheduler that stays decides, one that knows nothing yet decides, too: after each of a hundred changes of chance,
/// nothing is left to do for it.
#[test]
fn one_that_starts_anew_has_nothing_to_add() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut live = Live::of(&[node("a", "8", json!({})), node("b", "6", json!({}))]);
        for step in 0..60 {
            let pods = live.model.all("Pod");
            let picked = (!pods.is_empty()).then(|| pods[dice.below(pods.len() as u64) as usize].clone());
            match (dice.below(10), picked) {
                (0..4, _) | (_, None) => {
                    let priority = json!({"spec": {"priority": dice.below(3)}});
                    let cpu = (1 + dice.below(4)).to_string();
                    let gang = declared(&format!("g{step}"), 1 + dice.below(4) as usize, &cpu, &priority);
                    gang.into_iter().for_each(|object| _ = live.model.put(object));
                }
                (4..8, Some(pod)) => {
                    let phase = ["Succeeded", "Failed"][dice.below(2) as usize];
                    let is_bound = node_of(&pod).is_some();
                    live.model.change(&core("Pod"), &Key::of(&pod), |pod| {
                        if is_bound {
                            pod["status"]["phase"] = phase.into();
                        } else {
                            pod["spec"]["priority"] = 5.into();
                        }
                    });
                }
                (8, Some(pod)) => live.model.delete(&Target::of(&pod), reconcile::Propagation::Background, Some(0)),
                (_, Some(_)) => {
                    let is_shut = dice.below(2) == 0;
                    live.model.change(&core("Node"), &Key::new("", "b"), |node| {
                        node["spec"]["unschedulable"] = is_shut.into();
                    });
                }
            }
            live.run();
            let held = bound(&live.model);
            // which nodes are kept for the head, it may see otherwise
            if live.scheduler.memory().index.as_ref().is_some_and(|index| index.reservation.is_some()) {
                continue;
            }
            live.model.run(&Scheduler::default(), &Scheduler::key());
            assert_eq!(bound(&live.model), held, "seed {seed}, step {step}");
        }
    }
}

/// Work is counted, not timed: a pod that fits and goes again costs as much behind two hundred gangs as behind ten, whether
/// they all ask for the same or each for something else.
#[test]
fn what_a_change_costs_does_not_grow_with_the_queue() {
    for is_varied in [false, true] {
        let costs: Vec<u64> = [10, 200]
            .into_iter()
            .map(|waiting| {
                let mut objects = vec![node("n", "2", json!({})), node("m", "4", json!({}))];
                for index in 0..waiting {
                    let cpu = if is_varied { format!("{}m", 3000 + index) } else { "3".to_owned() };
                    objects.extend(declared(&format!("g{index:04}"), 2, &cpu, &json!({})));
                }
                let mut live = Live::of(&objects);
                live.run();
                let mut looked = 0;
                for index in 0..3 {
                    let name = format!("small-{index}");
                    let small = live.model.put(pod(&name, "1", json!({})));
                    looked += live.run();
                    assert!(bound(&live.model).iter().any(|line| line.starts_with(&name)), "{:?}", bound(&live.model));
                    live.model.delete(&Target::of(&small), reconcile::Propagation::Background, Some(0));
                    looked += live.run();
                }
                looked
            })
            .collect();
        assert_eq!(costs, [3, 3], "varied: {is_varied}");
    }
}

/// Small pods keep coming, each as soon as one ends: a gang that needs the whole node starts all the same, once those have
/// ended that ran when its turn came.
#[test]
fn the_head_of_the_queue_is_not_overtaken_for_ever() {
    let mut live = Live::of(&[node("n", "4", json!({})), node("o", "1", json!({}))]);
    let at = |second: usize| json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}});
    for index in 0..4 {
        live.model.put(pod(&format!("old-{index}"), "1", at(index)));
    }
    live.run();
    declared("big", 2, "2", &at(5)).into_iter().for_each(|object| _ = live.model.put(object));
    live.run();
    let end = |live: &mut Live, name: &str| {
        live.model.change(&core("Pod"), &Key::new("ns", name), |pod| pod["status"]["phase"] = "Succeeded".into());
    };
    // what ends makes room that nobody behind it may have
    for index in 0..4 {
        live.model.put(pod(&format!("new-{index}"), "1", at(10 + index)));
        live.run();
        assert!(!bound(&live.model).iter().any(|line| line.starts_with("big")), "{:?}", bound(&live.model));
        end(&mut live, &format!("old-{index}"));
        live.run();
    }
    let bound = bound(&live.model);
    assert!(bound.contains(&"big-0:n".to_owned()) && bound.contains(&"big-1:n".to_owned()), "{bound:?}");
    // the other node was of no use to it
    assert!(bound.contains(&"new-0:o".to_owned()), "{bound:?}");
}

/// Loads of chance, each of them finite: every gang that fits an empty cluster is served, in whatever order; no gang is ever half
/// bound; and a unit that has a reservation starts once those have ended that ran when it got it.
#[test]
fn everybody_is_served_and_no_reservation_is_delayed() {
    for seed in 100..112 {
        let mut dice = Dice(seed);
        let mut live = Live::of(&[node("a", "4", json!({})), node("b", "3", json!({}))]);
        let mut jobs = 0;
        // the head, and what it has to wait for
        let mut head: Option<(Key, std::collections::BTreeSet<Key>)> = None;
        for step in 0..400 {
            if jobs < 25 && dice.below(2) == 0 {
                let at = json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", step / 60, step % 60)},
                    "spec": {"priority": dice.below(2)}});
                let (pods, cpu) = (1 + dice.below(3) as usize, 1 + dice.below(2));
                let gang = declared(&format!("g{jobs:02}"), pods, &cpu.to_string(), &at);
                gang.into_iter().for_each(|object| _ = live.model.put(object));
                jobs += 1;
            }
            live.run();
            let pods = live.model.all("Pod");
            let running: Vec<Arc<Value>> =
                pods.iter().filter(|pod| node_of(pod).is_some() && !object::has_ended(pod)).cloned().collect();
            for pod in &pods {
                let group = object::label(pod, "scheduling.x-k8s.io/pod-group").expect("a gang");
                let same = |other: &&Arc<Value>| object::label(other, "scheduling.x-k8s.io/pod-group") == Some(group);
                let placed = pods.iter().filter(same).filter(|pod| node_of(pod).is_some()).count();
                assert!(
                    placed == 0 || placed == pods.iter().filter(same).count(),
                    "seed {seed}: {group} is half bound"
                );
            }
            let now = live
                .scheduler
                .memory()
                .index
                .as_ref()
                .and_then(|index| Some(index.reservation.as_ref()?.place.unit.clone()));
            match (&mut head, now) {
                (Some((held, before)), Some(now)) if *held == now => {
                    let priority =
                        |key: &Key| live.model.one("Pod", &key.name).map(|pod| pod["spec"]["priority"].as_i64());
                    before.retain(|key| running.iter().any(|pod| Key::of(pod) == *key));
                    // a higher priority goes first, reservation or not
                    before.extend(running.iter().map(|pod| Key::of(pod)).filter(|key| priority(key) > priority(held)));
                    assert!(!before.is_empty(), "seed {seed}, step {step}: {now} waits for those that came after it");
                }
                (_, now) => head = now.map(|now| (now, running.iter().map(|pod| Key::of(pod)).collect())),
            }
            if !running.is_empty() {
                let ended = Key::of(&running[dice.below(running.len() as u64) as usize]);
                live.model.change(&core("Pod"), &ended, |pod| pod["status"]["phase"] = "Succeeded".into());
            }
        }
        let left: Vec<_> =
            live.model.all("Pod").into_iter().filter(|pod| !object::has_ended(pod)).map(|pod| Key::of(&pod)).collect();
        assert_eq!((jobs, left), (25, Vec::new()), "seed {seed}");
    }
}
