//! Many at once: quotas that hold while many create, collections deleted in few commits, events that expire.

use super::hostile::Hostile;
use apiserver::{Options, Server};
use jiff::{SignedDuration, Timestamp};
use resource::ClockAndDice;
use resource::User;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const JSON: &str = "application/json";
const BASE: &str = "/api/v1/namespaces/default";

/// A clock that tests set.
#[derive(Default)]
struct Clock {
    seconds: AtomicI64,
    count: AtomicU64,
}

impl ClockAndDice for Clock {
    fn now(&self) -> Timestamp {
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        begin + SignedDuration::from_secs(self.seconds.load(Ordering::SeqCst))
    }

    fn uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.count.fetch_add(1, Ordering::SeqCst))
    }

    fn suffix(&self) -> String {
        format!("{:05}", self.count.fetch_add(1, Ordering::SeqCst))
    }

    fn below(&self, bound: u32) -> u32 {
        u32::try_from(self.count.fetch_add(1, Ordering::SeqCst) % u64::from(bound.max(1))).unwrap()
    }
}

async fn start(clock: &Arc<Clock>, database: Option<&std::path::Path>) -> Arc<Hostile> {
    let options =
        Options { world: clock.clone(), database: database.map(Into::into), ..Options::new(kinds::built_in()) };
    let server = tokio::task::spawn_blocking(move || Server::new(options)).await.unwrap().unwrap();
    let hostile = Hostile { server };
    let account = json!({"metadata": {"name": "default"}}).to_string();
    hostile.ask("POST", &format!("{BASE}/serviceaccounts"), JSON, account).await;
    Arc::new(hostile)
}

fn pod(name: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

async fn quota(hostile: &Hostile, name: &str, hard: Value, scopes: Value) {
    let object = json!({"metadata": {"name": name}, "spec": {"hard": hard, "scopes": scopes}});
    let (code, answer) = hostile.ask("POST", &format!("{BASE}/resourcequotas"), JSON, object.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    // what the quota controller does
    let status = json!({"status": {"hard": hard, "used": {}}}).to_string();
    let path = format!("{BASE}/resourcequotas/{name}/status");
    let (code, answer) = hostile.ask("PATCH", &path, "application/merge-patch+json", status).await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_holds_while_many_create() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock::default());
    for database in [None, Some(dir.path().join("s.sqlite"))] {
        let hostile = start(&clock, database.as_deref()).await;
        quota(&hostile, "q", json!({"pods": "5", "configmaps": "7"}), json!([])).await;
        for round in 0..4 {
            let tasks: Vec<_> = (0..64)
                .map(|i| {
                    let hostile = hostile.clone();
                    tokio::spawn(async move {
                        let (plural, body) = match i % 2 {
                            0 => ("pods", pod(&format!("p{round}-{i}"), "1")),
                            _ => ("configmaps", json!({"metadata": {"generateName": "m"}})),
                        };
                        let (code, answer) =
                            hostile.ask("POST", &format!("{BASE}/{plural}"), JSON, body.to_string()).await;
                        let full = code == 403
                            && answer["message"].as_str().unwrap().contains("exceeded quota: q, requested: ");
                        assert!(code == 201 || full, "{code} {answer}");
                        code == 201
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            for (plural, limit) in [("pods", 5), ("configmaps", 7)] {
                let (_, listed) = hostile.ask("GET", &format!("{BASE}/{plural}"), "", "").await;
                let items = listed["items"].as_array().unwrap();
                assert_eq!(items.len(), limit, "{plural}: as many as there is room for, and no more");
            }
            // room again
            for plural in ["pods", "configmaps"] {
                let path = format!("{BASE}/{plural}?gracePeriodSeconds=0");
                let (code, answer) = hostile.ask("DELETE", &path, "", "").await;
                assert_eq!((code, answer["items"].as_array().unwrap().len() > 4), (200, true));
            }
        }
    }
}

/// The naive count of what is there, after whatever happened: creates, deletes with and without grace, ends, time that passes, a
/// restart.
#[tokio::test]
async fn what_is_in_use_is_what_a_count_finds() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("s.sqlite");
    let clock = Arc::new(Clock::default());
    let mut hostile = start(&clock, Some(&database)).await;
    let hard = json!({"pods": "6", "requests.cpu": "10"});
    quota(&hostile, "all", hard, json!([])).await;
    quota(&hostile, "ending", json!({"pods": "2"}), json!(["Terminating"])).await;
    let mut dice = 1_u64;
    let mut roll = |below: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % below
    };
    let (mut admitted, mut refused) = (0, 0);
    for step in 0..400 {
        let (_, listed) = hostile.ask("GET", &format!("{BASE}/pods"), "", "").await;
        let pods = listed["items"].as_array().unwrap().clone();
        let picked = (!pods.is_empty()).then(|| {
            pods[usize::try_from(roll(pods.len() as u64)).unwrap()]["metadata"]["name"].as_str().unwrap().to_owned()
        });
        match (roll(10), picked) {
            (0..=4, _) | (_, None) => {
                let cpu = 1 + roll(3);
                let mut new = pod(&format!("p{step}"), &cpu.to_string());
                let ending = roll(2) == 0;
                if ending {
                    new["spec"]["activeDeadlineSeconds"] = 100.into();
                }
                let count: Vec<&Value> = pods.iter().filter(|p| counts(p, clock.now())).collect();
                let cpus: u64 = count.iter().map(|p| cpus(p)).sum();
                let endings = count.iter().filter(|p| p["spec"].get("activeDeadlineSeconds").is_some()).count();
                let room = count.len() < 6 && cpus + cpu <= 10 && (!ending || endings < 2);
                let (code, answer) = hostile.ask("POST", &format!("{BASE}/pods"), JSON, new.to_string()).await;
                assert_eq!(code, if room { 201 } else { 403 }, "step {step}: {answer}");
                *(if room { &mut admitted } else { &mut refused }) += 1;
            }
            (5, Some(name)) => {
                let path = format!("{BASE}/pods/{name}?gracePeriodSeconds=0");
                assert_eq!(hostile.ask("DELETE", &path, "", "").await.0, 200);
            }
            (6, Some(name)) => {
                // bound, so that it goes only when somebody says so
                let bind = json!({"target": {"kind": "Node", "name": "n"}}).to_string();
                hostile.ask("POST", &format!("{BASE}/pods/{name}/binding"), JSON, bind).await;
                let path = format!("{BASE}/pods/{name}?gracePeriodSeconds=20");
                assert_eq!(hostile.ask("DELETE", &path, "", "").await.0, 200);
            }
            (7, Some(name)) => {
                let ended = json!({"status": {"phase": "Succeeded"}}).to_string();
                let path = format!("{BASE}/pods/{name}/status");
                assert_eq!(hostile.ask("PATCH", &path, "application/merge-patch+json", ended).await.0, 200);
            }
            (8, _) => _ = clock.seconds.fetch_add(17, Ordering::SeqCst),
            _ if roll(4) == 0 => {
                drop(hostile);
                hostile = start(&clock, Some(&database)).await;
            }
            _ => {}
        }
    }
    assert!(admitted > 50 && refused > 50, "{admitted} {refused}");
}

fn counts(pod: &Value, now: Timestamp) -> bool {
    let ended = api::object::has_ended(pod);
    let deleted: Option<Timestamp> = pod["metadata"]["deletionTimestamp"].as_str().map(|at| at.parse().unwrap());
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    !ended && deleted.is_none_or(|at| now.as_second() <= at.as_second() + grace)
}

fn cpus(pod: &Value) -> u64 {
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_service_does_not_grow_beyond_its_quota() {
    let hostile = start(&Arc::new(Clock::default()), None).await;
    quota(&hostile, "q", json!({"services.nodeports": "1"}), json!([])).await;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    let (code, answer) = hostile.ask("POST", &format!("{BASE}/services"), JSON, service.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let patch = json!({"spec": {"type": "NodePort"}}).to_string();
    let (code, answer) =
        hostile.ask("PATCH", &format!("{BASE}/services/s"), "application/merge-patch+json", patch).await;
    assert_eq!(code, 403, "{answer}");
    let why =
        "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1";
    assert!(answer["message"].as_str().unwrap().ends_with(why), "{answer}");
}

#[tokio::test]
async fn a_collection_goes_in_few_commits_and_as_its_objects_would() {
    let clock = Arc::new(Clock::default());
    let hostile = start(&clock, None).await;
    let make = |i: usize| {
        let finalizers = if i % 10 == 3 { json!(["test.io/held"]) } else { json!([]) };
        json!({"metadata": {"name": format!("m{i:03}"), "labels": {"even": i.is_multiple_of(2).to_string()}, "finalizers": finalizers}})
    };
    for i in 0..700 {
        assert_eq!(hostile.ask("POST", &format!("{BASE}/configmaps"), JSON, make(i).to_string()).await.0, 201);
    }
    let names = |listed: &Value| -> Vec<String> {
        let items = listed["items"].as_array().unwrap();
        items
            .iter()
            .map(|m| m["metadata"]["name"].as_str().unwrap().to_owned())
            .filter(|name| name.starts_with('m'))
            .collect()
    };
    let all = format!("{BASE}/configmaps");
    // tried, not done
    let (code, dry) = hostile.ask("DELETE", &format!("{all}?dryRun=All"), "", "").await;
    assert_eq!((code, names(&dry).len()), (200, 700));
    // those of other labels stay, and so does what a precondition keeps
    let wrong = json!({"preconditions": {"uid": "other"}}).to_string();
    let (code, answer) = hostile.ask("DELETE", &all, JSON, wrong).await;
    assert_eq!(code, 409, "{answer}");
    let (code, some) = hostile.ask("DELETE", &format!("{all}?labelSelector=even%3Dtrue"), "", "").await;
    assert_eq!((code, names(&some).len()), (200, 350));
    let (_, left) = hostile.ask("GET", &all, "", "").await;
    assert_eq!(names(&left).len(), 350);
    // finalizers hold theirs
    let (code, rest) = hostile.ask("DELETE", &all, "", "").await;
    assert_eq!((code, names(&rest).len()), (200, 350));
    let (_, left) = hostile.ask("GET", &all, "", "").await;
    let held: Vec<&Value> =
        left["items"].as_array().unwrap().iter().filter(|m| m["metadata"]["name"] != "kube-root-ca.crt").collect();
    assert_eq!(held.len(), 70);
    assert!(held.iter().all(|m| m["metadata"]["deletionTimestamp"].is_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn collections_deleted_beside_other_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = start(&Arc::new(Clock::default()), Some(&dir.path().join("s.sqlite"))).await;
    for i in 0..300 {
        let body = json!({"metadata": {"name": format!("m{i}")}}).to_string();
        assert_eq!(hostile.ask("POST", &format!("{BASE}/configmaps"), JSON, body).await.0, 201);
    }
    let answers = Arc::new(Mutex::new(BTreeMap::<u16, usize>::new()));
    let writers: Vec<_> = (0..4)
        .map(|w| {
            let (hostile, answers) = (hostile.clone(), answers.clone());
            tokio::spawn(async move {
                for i in (w..300).step_by(4) {
                    let patch = json!({"data": {"k": "v"}}).to_string();
                    let path = format!("{BASE}/configmaps/m{i}");
                    let code = hostile.ask("PATCH", &path, "application/merge-patch+json", patch).await.0;
                    *answers.lock().unwrap().entry(code).or_default() += 1;
                }
            })
        })
        .collect();
    let (code, answer) = hostile.ask("DELETE", &format!("{BASE}/configmaps"), "", "").await;
    assert_eq!(code, 200, "{answer}");
    for writer in writers {
        writer.await.unwrap();
    }
    let answers = answers.lock().unwrap().clone();
    assert!(answers.keys().all(|code| matches!(code, 200 | 404)), "{answers:?}");
    let (_, left) = hostile.ask("GET", &format!("{BASE}/configmaps"), "", "").await;
    assert!(
        !left["items"].as_array().unwrap().iter().any(|m| m["metadata"]["name"].as_str().unwrap().starts_with('m'))
    );
}

#[tokio::test]
async fn events_expire_an_hour_after_their_last_write() {
    let clock = Arc::new(Clock::default());
    let hostile = start(&clock, None).await;
    let events = format!("{BASE}/events");
    for name in ["old", "patched"] {
        let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"},
            "reason": "R", "message": "m", "type": "Normal"});
        let (code, answer) = hostile.ask_as(User::admin(), "POST", &events, JSON, event.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let after = |minutes: i64| clock.seconds.store(minutes * 60, Ordering::SeqCst);
    let hour = Duration::from_secs(3600);
    after(50);
    let patch = json!({"count": 2}).to_string();
    let path = format!("{events}/patched");
    assert_eq!(hostile.ask("PATCH", &path, "application/merge-patch+json", patch).await.0, 200);
    assert_eq!(hostile.server.core.expire_events(hour).await.unwrap(), 0);
    after(61);
    assert_eq!(hostile.server.core.expire_events(hour).await.unwrap(), 1);
    assert_eq!(hostile.ask("GET", &format!("{events}/old"), "", "").await.0, 404);
    assert_eq!(hostile.ask("GET", &path, "", "").await.0, 200);
    after(111);
    assert_eq!(hostile.server.core.expire_events(hour).await.unwrap(), 1);
    assert_eq!(hostile.ask("GET", &path, "", "").await.0, 404);
}
