//! Gangs by a rule, on a world in memory: of a kind that is made up here.

use super::tests::{Dice, Live, bound, node, pod, told};
use super::*;
use reconcile::testing::merge;
use std::collections::BTreeMap;

fn team() -> Gvk {
    Gvk::new("example.org", "v1", "Team")
}

/// A leader and its followers; the leader may come late.
fn rule() -> Rule {
    fn read(team: &Value) -> Option<Needs> {
        let followers = usize::try_from(team["spec"]["followers"].as_u64()?).ok()?;
        if team["spec"]["rests"] == true {
            return None;
        }
        let count = followers + 1;
        let cpu = team["spec"]["leader"].clone();
        let template = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}});
        let least = team["spec"]["least"].as_u64().map_or(count, |least| usize::try_from(least).unwrap());
        let kept = Kept { role: "leader", template, is_late: team["spec"]["late"] == true };
        Some(Needs { count, least, kept: Some(kept) })
    }
    Rule { owner: team, owner_label: "team", role_label: "role", read }
}

fn owner(name: &str, followers: usize, more: Value) -> Value {
    let mut team = json!({"apiVersion": "example.org/v1", "kind": "Team", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"followers": followers, "leader": "1"}});
    merge(&mut team, &json!({"spec": more}));
    team
}

fn member(team: &str, role: &str, index: usize, second: usize) -> Value {
    // a Job owns the leader, as it owns pods that are started anew
    let kind = if role == "leader" { "Job" } else { "Team" };
    let name = format!("{team}-{role}-{index}");
    let metadata = json!({"labels": {"team": team, "role": role}, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        "uid": format!("{name}-{second}"),
        "ownerReferences": [{"kind": kind, "name": team, "uid": team, "controller": true}]});
    pod(&name, "1", json!({"metadata": metadata}))
}

fn followers(team: &str, count: usize, second: usize) -> Vec<Value> {
    (0..count).map(|index| member(team, "follower", index, second)).collect()
}

fn live(objects: Vec<Value>) -> Live {
    let mut live = Live::of(&[]);
    live.scheduler = Scheduler::with_rules(vec![rule()]);
    put(&mut live, objects);
    live
}

fn put(live: &mut Live, objects: Vec<Value>) {
    objects.into_iter().for_each(|object| _ = live.model.put(object));
    live.run();
}

fn change(live: &mut Live, name: &str, over: Value) {
    live.model.change(&core("Pod"), &Key::new("ns", name), |pod| merge(pod, &over));
    live.run();
}

fn remove(live: &mut Live, name: &str) {
    live.model.delete(
        &Target { gvk: core("Pod"), key: Key::new("ns", name) },
        reconcile::Propagation::Background,
        Some(0),
    );
    live.run();
}

#[test]
fn leader_and_followers_start_together() {
    let mut live = live(vec![node("n", "4", json!({})), owner("a", 2, json!({}))]);
    put(&mut live, followers("a", 2, 0));
    assert!(bound(&live.model).is_empty(), "the leader is not there");
    put(&mut live, vec![member("a", "leader", 0, 0)]);
    assert_eq!(bound(&live.model).len(), 3);
    // one that is made anew follows by itself, and so does one more
    remove(&mut live, "a-follower-1");
    put(&mut live, vec![member("a", "follower", 1, 1)]);
    assert_eq!(bound(&live.model), ["a-follower-0:n", "a-follower-1:n", "a-leader-0:n"]);
}

#[test]
fn nobody_goes_before_the_owner_is_known() {
    let mut live = live(vec![node("n", "9", json!({}))]);
    put(&mut live, vec![member("a", "follower", 0, 0), member("a", "leader", 0, 0)]);
    assert!(bound(&live.model).is_empty());
    put(&mut live, vec![owner("a", 2, json!({}))]);
    assert!(bound(&live.model).is_empty(), "one is missing");
    put(&mut live, vec![member("a", "follower", 1, 0)]);
    assert_eq!(bound(&live.model).len(), 3);
    // whose owner has no gang goes alone, and so do pods of nobody that have the labels
    let mut alone = member("x", "follower", 0, 0);
    alone["metadata"]["ownerReferences"] = json!([]);
    put(&mut live, vec![owner("b", 2, json!({"rests": true})), member("b", "follower", 0, 0), alone]);
    assert_eq!(bound(&live.model).len(), 5);
}

#[test]
fn fewer_may_be_enough() {
    let mut live = live(vec![node("n", "2", json!({})), owner("a", 4, json!({"least": 2}))]);
    put(&mut live, [followers("a", 4, 0), vec![member("a", "leader", 0, 0)]].concat());
    assert_eq!(bound(&live.model).len(), 2);
    live.model.put(node("m", "1", json!({})));
    live.run();
    assert_eq!(bound(&live.model).len(), 3, "the others follow one by one");
}

#[test]
fn the_room_of_a_leader_that_comes_late_is_kept() {
    let mut live = live(vec![node("n", "3", json!({})), owner("a", 2, json!({"late": true}))]);
    put(&mut live, followers("a", 2, 0));
    assert_eq!(bound(&live.model).len(), 2, "they do not wait for it");
    put(&mut live, vec![pod("other", "1", json!({}))]);
    assert_eq!(bound(&live.model).len(), 2, "the third cpu is the leader's");
    // one that starts anew keeps it as well
    live.scheduler = Scheduler::with_rules(vec![rule()]);
    live.run();
    assert_eq!(bound(&live.model).len(), 2);
    put(&mut live, vec![member("a", "leader", 0, 5)]);
    assert_eq!(bound(&live.model), ["a-follower-0:n", "a-follower-1:n", "a-leader-0:n"]);
    // it failed: its Job makes another, but somewhat later
    change(&mut live, "a-leader-0", json!({"status": {"phase": "Failed"}}));
    assert_eq!(bound(&live.model).len(), 3);
    put(&mut live, vec![member("a", "leader", 1, 9)]);
    assert!(bound(&live.model).contains(&"a-leader-1:n".to_owned()));
    // over: others come
    live.model.put(owner("a", 2, json!({"late": true, "rests": true})));
    change(&mut live, "a-leader-1", json!({"status": {"phase": "Succeeded"}}));
    assert!(bound(&live.model).contains(&"other:n".to_owned()));
}

#[test]
fn without_room_for_the_late_leader_nobody_starts() {
    let mut live = live(vec![node("n", "2", json!({})), owner("a", 2, json!({"late": true}))]);
    put(&mut live, followers("a", 2, 0));
    assert!(bound(&live.model).is_empty());
    live.model.run(&live.scheduler, &Scheduler::telling());
    let why = told(&live.model, "a-follower-0");
    assert!(why.contains("Gang a needs nodes for 3 pods at once"), "{why}");
    put(&mut live, vec![node("m", "1", json!({}))]);
    assert_eq!(bound(&live.model).len(), 2);
}

#[test]
fn kept_room_goes_with_its_gang() {
    let mut live = live(vec![node("n", "3", json!({})), owner("a", 2, json!({"late": true}))]);
    put(&mut live, followers("a", 2, 0));
    put(&mut live, vec![pod("other", "3", json!({}))]);
    assert_eq!(bound(&live.model).len(), 2);
    remove(&mut live, "a-follower-0");
    remove(&mut live, "a-follower-1");
    assert_eq!(bound(&live.model), ["other:n"]);
}

#[test]
fn those_who_have_ended_are_not_waited_for() {
    let mut live = live(vec![node("n", "3", json!({})), owner("a", 2, json!({}))]);
    put(&mut live, [followers("a", 2, 0), vec![member("a", "leader", 0, 0)]].concat());
    for name in ["a-follower-0", "a-follower-1", "a-leader-0"] {
        change(&mut live, name, json!({"status": {"phase": "Failed"}}));
    }
    put(&mut live, vec![member("a", "leader", 1, 9)]);
    assert!(bound(&live.model).contains(&"a-leader-1:n".to_owned()));
    // all are made anew, the leader's first run left as it is: they are a gang again
    ["a-follower-0", "a-follower-1", "a-leader-1"].iter().for_each(|name| remove(&mut live, name));
    put(&mut live, vec![member("a", "follower", 0, 20), member("a", "leader", 2, 20)]);
    assert_eq!(bound(&live.model), ["a-leader-0:n"], "one is missing");
    put(&mut live, vec![member("a", "follower", 1, 20)]);
    assert_eq!(bound(&live.model).len(), 4);
}

/// Teams that each fit alone, made in any order, members and owners mixed: both come to their end.
#[test]
fn gangs_that_fit_alone_never_block_each_other() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let cpus = 3 + dice.below(3);
        let mut nodes = vec![node("n", &cpus.to_string(), json!({}))];
        if dice.below(2) == 0 {
            nodes.push(node("m", "1", json!({})));
        }
        let count = usize::try_from(cpus - 1).unwrap();
        let mut late = BTreeMap::new();
        let mut coming = Vec::new();
        for team in ["a", "b", "c"] {
            let is_late = dice.below(2) == 0;
            late.insert(team, is_late);
            coming.push(owner(team, count, json!({"late": is_late})));
            coming.extend(followers(team, count, usize::try_from(dice.below(3)).unwrap()));
            if !is_late {
                coming.push(member(team, "leader", 0, 0));
            }
        }
        let mut live = live(nodes);
        let mut over = 0;
        for _ in 0..200 {
            if coming.is_empty() && over == 3 {
                break;
            }
            if !coming.is_empty() {
                let at = usize::try_from(dice.below(coming.len() as u64)).unwrap();
                let object = coming.swap_remove(at);
                put(&mut live, vec![object]);
            }
            if dice.below(10) == 0 {
                live.scheduler = Scheduler::with_rules(vec![rule()]);
            }
            live.run();
            let is_bound =
                |live: &Live, prefix: &str| bound(&live.model).iter().filter(|pod| pod.starts_with(prefix)).count();
            for team in ["a", "b", "c"] {
                let here = is_bound(&live, &format!("{team}-follower"));
                assert!(here == 0 || here == count, "seed {seed}: {here} of {count} followers of {team}");
                if here == count && late[team] && live.model.one("Pod", &format!("{team}-leader-0")).is_none() {
                    put(&mut live, vec![member(team, "leader", 0, 9)]);
                    assert_eq!(is_bound(&live, &format!("{team}-leader")), 1, "seed {seed}: its room was kept");
                }
                // a whole team may end
                if is_bound(&live, team) == count + 1 && dice.below(2) == 0 {
                    over += 1;
                    live.model.delete(
                        &Target { gvk: self::team(), key: Key::new("ns", team) },
                        reconcile::Propagation::Background,
                        None,
                    );
                    for name in (0..count).map(|at| format!("{team}-follower-{at}")).chain([format!("{team}-leader-0")])
                    {
                        live.model.delete(
                            &Target { gvk: core("Pod"), key: Key::new("ns", &name) },
                            reconcile::Propagation::Background,
                            Some(0),
                        );
                    }
                    live.run();
                }
            }
        }
        assert!(coming.is_empty() && over == 3, "seed {seed}: {:?}", bound(&live.model));
    }
}
