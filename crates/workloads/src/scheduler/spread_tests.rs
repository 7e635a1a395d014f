//! Host ports, topology spread, and what pods would rather have, on a world in memory.

use super::tests::{Live, bound, node, pod, told};
use super::*;

fn live(objects: &[Value]) -> Live {
    let mut live = Live::of(objects);
    live.run();
    live.model.run(&live.scheduler, &Scheduler::telling());
    live
}

fn in_zone(name: &str, zone: &str) -> Value {
    node(name, "8", json!({"metadata": {"labels": {"zone": zone, "host": name}}}))
}

/// A pod labelled `app: a` with one constraint.
fn spread(name: &str, constraint: Value) -> Value {
    let mut held = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}}});
    reconcile::testing::merge(&mut held, &constraint);
    pod(name, "1", json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [held]}}))
}

fn on_port(name: &str, port: Value) -> Value {
    pod(
        name,
        "1",
        json!({"spec": {"containers": [{"name": "main", "ports": [port], "resources": {"requests": {"cpu": "1"}}}]}}),
    )
}

#[test]
fn a_port_of_a_node_is_one_pods() {
    let (n, o) = (node("n", "8", json!({})), node("o", "8", json!({})));
    let eighty = |name: &str| on_port(name, json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
    let mut world = live(&[n.clone(), o, eighty("a"), eighty("b"), eighty("c")]);
    assert_eq!(bound(&world.model), ["a:n", "b:o"]);
    let why = "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(told(&world.model, "c"), why);
    // others are not held up, and the port is free when its pod has ended
    world.model.put(pod("d", "1", json!({})));
    world.run();
    assert!(bound(&world.model).iter().any(|line| line.starts_with("d:")));
    world.model.change(&core("Pod"), &Key::new("ns", "b"), |pod| pod["status"]["phase"] = "Succeeded".into());
    world.run();
    assert!(bound(&world.model).contains(&"c:o".to_owned()), "{:?}", bound(&world.model));

    let at = |name: &str, protocol: &str, address: &str| {
        on_port(name, json!({"hostPort": 80, "protocol": protocol, "hostIP": address}))
    };
    for (second, fits) in [
        (at("b", "UDP", "127.0.0.2"), true),
        (at("b", "TCP", "127.0.0.3"), true),
        (at("b", "TCP", "127.0.0.2"), false),
        (at("b", "TCP", "0.0.0.0"), false),
    ] {
        let world = live(&[n.clone(), at("a", "TCP", "127.0.0.2"), second.clone()]);
        assert_eq!(bound(&world.model).len(), 1 + usize::from(fits), "{second}");
    }
}

/// A pod that waits for a port that is taken has a message that says so, and the port is kept for it.
#[test]
fn a_kept_port_is_not_given_away() {
    let at = |second: usize| json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}});
    let mut world = Live::of(&[node("n", "4", json!({}))]);
    world.model.put(pod("old", "4", at(0)));
    world.run();
    let port = |name: &str, cpu: &str, second| {
        let mut pod = on_port(name, json!({"hostPort": 80, "protocol": "TCP"}));
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
        reconcile::testing::merge(&mut pod, &at(second));
        pod
    };
    world.model.put(port("head", "3", 1));
    world.run();
    world.model.put(port("late", "0", 2));
    world.run();
    assert_eq!(bound(&world.model), ["old:n"], "the port is the head's");
    world.model.change(&core("Pod"), &Key::new("ns", "old"), |pod| pod["status"]["phase"] = "Succeeded".into());
    world.run();
    assert!(bound(&world.model).contains(&"head:n".to_owned()));
}

#[test]
fn pods_are_spread_over_zones() {
    let nodes = [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")];
    let zones = |world: &Live| {
        let mut zones: Vec<char> =
            bound(&world.model).iter().filter_map(|line| line.split(':').nth(1)?.chars().next()).collect();
        zones.sort_unstable();
        zones.into_iter().collect::<String>()
    };
    let world = |constraint: &Value, count: usize, more: &[Value]| {
        let pods = (0..count).map(|index| spread(&format!("p{index}"), constraint.clone()));
        live(&nodes.iter().cloned().chain(more.iter().cloned()).chain(pods).collect::<Vec<_>>())
    };
    let required = json!({});
    assert_eq!(zones(&world(&required, 4, &[])), "aabb");
    // where one zone is shut, the other one takes as many as the skew allows
    let shut = json!({"spec": {"nodeSelector": {"zone": "a"}}});
    let mut held = spread("p0", json!({"nodeAffinityPolicy": "Ignore"}));
    reconcile::testing::merge(&mut held, &shut);
    let mut other = held.clone();
    other["metadata"]["name"] = "p1".into();
    let shut_world = live(&[nodes[0].clone(), nodes[2].clone(), held, other]);
    assert_eq!(zones(&shut_world), "a");
    assert_eq!(
        told(&shut_world.model, "p1"),
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod topology \
         spread constraints."
    );
    // a zone too few counts as an empty one; a node without the label is none
    assert_eq!(zones(&world(&json!({"minDomains": 3}), 4, &[])), "ab");
    let bare = node("bare", "8", json!({}));
    let missing = live(&[bare.clone(), spread("p0", required.clone())]);
    assert_eq!(
        told(&missing.model, "p0"),
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label)."
    );
    // a wish is no rule
    assert_eq!(zones(&world(&json!({"whenUnsatisfiable": "ScheduleAnyway"}), 4, &[])), "aabb");
    assert_eq!(bound(&live(&[bare, spread("p0", json!({"whenUnsatisfiable": "ScheduleAnyway"}))]).model), ["p0:bare"]);
}

/// Only pods with the same value of a label count, where the constraint says so: each revision is spread by itself.
#[test]
fn label_keys_part_those_that_count() {
    let by_hash = json!({"matchLabelKeys": ["hash"]});
    let mut objects = vec![in_zone("a1", "a"), in_zone("b1", "b")];
    for (index, hash) in ["x", "x", "x", "y"].into_iter().enumerate() {
        let mut pod = spread(&format!("p{index}"), by_hash.clone());
        pod["metadata"]["labels"]["hash"] = hash.into();
        if hash == "x" {
            // the first revision is all in one zone
            pod["spec"]["nodeName"] = "a1".into();
            pod["status"]["phase"] = "Running".into();
        }
        objects.push(pod);
    }
    objects.push(pod("filler", "6", json!({"spec": {"nodeName": "b1"}, "status": {"phase": "Running"}})));
    // the fullest node that may have it is taken, whatever the other revision does
    assert!(bound(&live(&objects).model).iter().any(|line| line.starts_with("p3:")));
    objects[5]["metadata"]["labels"]["hash"] = "x".into();
    assert!(bound(&live(&objects).model).contains(&"p3:b1".to_owned()));
}

#[test]
fn wishes_decide_between_nodes_that_fit() {
    let near = |kind: &str| {
        json!({"metadata": {"labels": {"app": "b"}}, "spec": {"affinity": {kind: {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": {
                "topologyKey": "host", "labelSelector": {"matchLabels": {"app": "a"}}}}]}}}})
    };
    let other = pod(
        "other",
        "1",
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"nodeName": "b1"},
        "status": {"phase": "Running"}}),
    );
    for (kind, place) in [("podAffinity", "p:b1"), ("podAntiAffinity", "p:a1")] {
        let world = live(&[in_zone("a1", "a"), in_zone("b1", "b"), other.clone(), pod("p", "1", near(kind))]);
        assert!(bound(&world.model).contains(&place.to_owned()), "{kind}: {:?}", bound(&world.model));
    }
    let taint = json!({"spec": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}});
    let world = live(&[node("a", "2", taint.clone()), node("b", "8", json!({})), pod("p", "1", json!({}))]);
    assert_eq!(bound(&world.model), ["p:b"], "a is fuller, and deters");
    let world = live(&[node("a", "2", taint), pod("p", "1", json!({}))]);
    assert_eq!(bound(&world.model), ["p:a"]);
}
