//! The driver against an API server on which things go wrong, one scenario for each thing. Time is tokio's own, so minutes pass
//! in no time. Each scenario ends in the right state and in silence: nothing is asked for any more but watches.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod server;
mod source;

use api::object::{self, Gvk, Target};
use driver::Driver;
use http::Method;
use jiff::Timestamp;
use reconcile::{
    Decision, Event, EventType, OnError, Op, Primary, Reconciler, StatusWrite, Wakes, Watch, World, Write,
};
use serde_json::{Value, json};
use server::{Fault, Server};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

fn gvk(kind: &str) -> Gvk {
    Gvk::new("example.dev", "v1", kind)
}

/// Keeps a Part of the same name and size beside each Thing, and says in the Thing's status how large it is.
struct Keeper;

struct Seen {
    thing: Arc<Value>,
    part: Option<Arc<Value>>,
}

impl Reconciler for Keeper {
    type Observed = Seen;

    fn name(&self) -> &'static str {
        "keeper"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(gvk("Thing"))
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: gvk("Part"), wakes: Wakes::ControllerOwner }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Seen> {
        let thing = world.get(&target.gvk, &target.key)?;
        Some(Seen { thing, part: world.get(&gvk("Part"), &target.key) })
    }

    fn decide(&self, seen: &Seen, _now: Timestamp) -> Decision {
        let (thing, size) = (&seen.thing, &seen.thing["spec"]["size"]);
        assert!(size.is_u64(), "a size of {size}");
        let failed = Event {
            regarding: None,
            kind: EventType::Warning,
            reason: "PartFailed".to_owned(),
            message: "{error}".to_owned(),
            reporter: "keeper",
            action: "",
        };
        let op = match &seen.part {
            None => {
                let owner = json!({"apiVersion": "example.dev/v1", "kind": "Thing", "name": object::meta(thing, "name"),
                    "uid": object::uid(thing), "controller": true});
                let meta = json!({"name": object::meta(thing, "name"), "namespace": "ns", "ownerReferences": [owner]});
                Some(Op::Create {
                    object: json!({"apiVersion": "example.dev/v1", "kind": "Part", "metadata": meta, "spec": {"size": size}}),
                })
            }
            Some(part) if part["spec"]["size"] != *size => {
                let mut object = (**part).clone();
                object["spec"]["size"] = size.clone();
                Some(Op::Update { object })
            }
            Some(_) => None,
        };
        let write = |op| Write { op, on_error: OnError::EventThenStop(failed.clone()), on_success: None };
        let told = thing["status"]["size"] == *size;
        Decision {
            writes: op.map(write).into_iter().collect(),
            status: (!told).then(|| StatusWrite::Merge(json!({"status": {"size": size}}))),
            ..Decision::default()
        }
    }
}

/// A driver with the keeper, on a server.
struct Scene {
    server: Server,
    troubles: Box<dyn Fn() -> Vec<String>>,
    stop: CancellationToken,
    run: JoinHandle<()>,
}

fn thing(name: &str, size: u64) -> Value {
    json!({"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": name, "namespace": "ns"}, "spec": {"size": size}})
}

async fn after(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

impl Scene {
    /// Starts it; faults may be planned already.
    fn on(server: Server) -> Self {
        let mut driver = Driver::new(server.client());
        driver.add(Keeper);
        let told = driver.troubles();
        let troubles = Box::new(move || told().into_values().collect());
        let stop = CancellationToken::new();
        let run = tokio::spawn(driver.run(stop.clone()));
        Self { server, troubles, stop, run }
    }

    fn make(&self, name: &str, size: u64) {
        self.server.user(Method::POST, "/ns/things", thing(name, size));
    }

    fn resize(&self, name: &str, size: impl Into<Value>) {
        self.server.user(Method::PATCH, &format!("/ns/things/{name}"), json!({"spec": {"size": size.into()}}));
    }

    fn is_right(&self, name: &str, size: u64) -> bool {
        let (thing, part) =
            (self.server.get(&format!("things/ns/{name}")), self.server.get(&format!("parts/ns/{name}")));
        part["spec"]["size"] == size && thing["status"]["size"] == size
    }

    #[track_caller]
    fn assert_right(&self, name: &str, size: u64) {
        assert!(self.is_right(name, size), "{name} is not of size {size}: {:#?}", self.server.heard().0);
    }

    /// Ten minutes in which nothing is asked for but watches, a few of them; then the end, at once.
    async fn ends_in_silence(self) {
        after(5).await;
        self.server.heard();
        after(600).await;
        let (calls, watches) = self.server.heard();
        assert_eq!(calls, [] as [String; 0]);
        // two kinds, watched for less than five minutes at a time
        assert!(watches.len() <= 6, "{watches:?}");
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(2), self.run).await.expect("it stops at once").unwrap();
        assert_eq!(self.server.heard().0, [] as [String; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_wrong() {
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("before", 3));
    let scene = Scene::on(server);
    scene.make("a", 7);
    after(1).await;
    scene.assert_right("a", 7);
    scene.assert_right("before", 3);
    scene.resize("a", 8);
    after(1).await;
    scene.assert_right("a", 8);
    let (calls, _) = scene.server.heard();
    // two lists; a part and a status for each; an update and a status
    assert_eq!(calls.len(), 2 + 4 + 2, "{calls:?}");
    scene.ends_in_silence().await;
}

/// 409: somebody was faster. It looks again, and writes what fits.
#[tokio::test(start_paused = true)]
async fn a_conflict() {
    let scene = Scene::on(Server::default());
    scene.make("a", 1);
    after(1).await;
    scene.server.plan("PUT /ns/parts/a", 3, Fault::Outrun);
    scene.resize("a", 2);
    after(1).await;
    scene.assert_right("a", 2);
    assert!(scene.server.get("parts/ns/a")["metadata"]["labels"]["outrun"].is_string(), "theirs is still there");
    assert!(scene.server.all("events").is_empty(), "a conflict is no error");
    scene.ends_in_silence().await;
}

/// 409 without end: asked less and less often.
#[tokio::test(start_paused = true)]
async fn a_conflict_that_does_not_end() {
    let scene = Scene::on(Server::default());
    scene.make("a", 1);
    after(1).await;
    scene.server.heard();
    scene.server.plan("PUT /ns/parts/a", usize::MAX, Fault::Refuse(409, "Conflict"));
    scene.resize("a", 2);
    after(600).await;
    let (calls, _) = scene.server.heard();
    assert!((10..=24).contains(&calls.len()), "{}", calls.len());
    scene.server.mend();
    after(121).await;
    scene.assert_right("a", 2);
    scene.ends_in_silence().await;
}

/// The answer to a create is lost: the next one collides with it, and that is all.
#[tokio::test(start_paused = true)]
async fn a_lost_answer() {
    let scene = Scene::on(Server::default());
    scene.server.plan("POST /ns/parts", 2, Fault::Lost);
    scene.make("a", 1);
    after(1).await;
    scene.assert_right("a", 1);
    assert_eq!(scene.server.all("parts").len(), 1);
    scene.ends_in_silence().await;
}

/// Half an answer is none, be it to a write, to a list or in a watch.
#[tokio::test(start_paused = true)]
async fn an_answer_cut_in_the_middle() {
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("a", 1));
    server.plan("GET /things", 2, Fault::Cut);
    let scene = Scene::on(server);
    scene.server.plan("POST /ns/parts", 1, Fault::Cut);
    scene.server.plan("PATCH /ns/things/a/status", 1, Fault::Cut);
    after(3).await;
    scene.assert_right("a", 1);
    scene.server.end_watches("things", true);
    scene.resize("a", 2);
    after(2).await;
    scene.assert_right("a", 2);
    scene.ends_in_silence().await;
}

/// 410 in the stream, or as the answer: listed anew, and nothing is missed.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old() {
    let scene = Scene::on(Server::default());
    scene.make("a", 1);
    after(1).await;
    scene.server.heard();
    scene.server.plan("GET /things", 1, Fault::TooOld);
    scene.server.end_watches("things", false);
    scene.resize("a", 2);
    after(1).await;
    scene.assert_right("a", 2);
    assert!(scene.server.heard().0.iter().any(|call| call.starts_with("GET /things?limit")), "it lists");
    scene.server.forget("parts");
    after(1).await;
    assert!(scene.server.heard().0.iter().any(|call| call.starts_with("GET /parts?limit")), "it lists");
    scene.ends_in_silence().await;
}

/// A server that forgets at once is not asked all the time.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_always_too_old() {
    let scene = Scene::on(Server::default());
    scene.server.plan("GET /things", usize::MAX, Fault::TooOld);
    after(10).await;
    scene.server.heard();
    after(600).await;
    let (lists, watches) = scene.server.heard();
    assert!((100..=150).contains(&lists.len()) && watches.len() <= 160, "{} {}", lists.len(), watches.len());
    // and sees what happens all the same
    scene.make("a", 4);
    after(6).await;
    scene.assert_right("a", 4);
    scene.server.mend();
    after(6).await;
    scene.ends_in_silence().await;
}

/// A watch that ends goes on where it was, without a list.
#[tokio::test(start_paused = true)]
async fn a_dropped_watch() {
    let scene = Scene::on(Server::default());
    scene.make("a", 1);
    after(1).await;
    scene.server.heard();
    scene.server.end_watches("things", false);
    scene.resize("a", 2);
    after(1).await;
    scene.assert_right("a", 2);
    let (calls, watches) = scene.server.heard();
    assert!(!calls.iter().any(|call| call.contains("limit=")), "{calls:?}");
    assert_eq!(watches.len(), 1, "{watches:?}");
    scene.ends_in_silence().await;
}

/// A proxy that ends each watch as it begins: a few requests a second, and changes are still seen.
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once() {
    let scene = Scene::on(Server::default());
    scene.server.plan("GET /things", usize::MAX, Fault::Short);
    scene.make("a", 1);
    after(60).await;
    scene.assert_right("a", 1);
    let (_, watches) = scene.server.heard();
    assert!(watches.len() <= 60 * 4 + 4, "{}", watches.len());
    scene.server.mend();
    scene.ends_in_silence().await;
}

/// A connection that a firewall has forgotten: the watch neither tells nor ends.
#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_silent() {
    let scene = Scene::on(Server::default());
    scene.server.plan("GET /things", 1, Fault::Silent);
    after(1).await;
    scene.make("a", 1);
    after(300).await;
    assert!(!scene.is_right("a", 1), "nobody has told");
    after(10).await;
    scene.assert_right("a", 1);
    scene.ends_in_silence().await;
}

/// 403 on a list: it says so, decides nothing on half a world, and goes on once it may.
#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed() {
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("a", 1));
    server.plan("GET /parts", usize::MAX, Fault::Refuse(403, "Forbidden"));
    let scene = Scene::on(server);
    after(10).await;
    scene.server.heard();
    after(600).await;
    let (calls, _) = scene.server.heard();
    assert!((100..=130).contains(&calls.len()) && calls.iter().all(|call| call.starts_with("GET /parts")), "{calls:?}");
    assert_eq!((scene.troubles)(), ["Forbidden, says the server"]);
    scene.server.mend();
    after(6).await;
    scene.assert_right("a", 1);
    assert!((scene.troubles)().is_empty());
    scene.ends_in_silence().await;
}

/// 403 on a write may pass by itself: an event tells, and it is tried again, two minutes apart in the end.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_forbidden() {
    let scene = Scene::on(Server::default());
    scene.server.plan("POST /ns/parts", usize::MAX, Fault::Refuse(403, "Forbidden"));
    scene.make("a", 1);
    scene.make("b", 1);
    after(1).await;
    scene.server.heard();
    after(1200).await;
    let tries = scene.server.heard().0.iter().filter(|call| call.starts_with("POST /ns/parts")).count();
    assert!((2 * 10..=2 * 20).contains(&tries), "{tries}");
    let events = scene.server.all("events");
    assert_eq!(events.len(), 2, "counted up, not multiplied: {events:?}");
    assert!(
        events.iter().all(|event| event["reason"] == "PartFailed" && event["message"] == "Forbidden, says the server")
    );
    scene.server.mend();
    after(121).await;
    scene.assert_right("a", 1);
    scene.assert_right("b", 1);
    scene.ends_in_silence().await;
}

/// 422: only a change can mend it. Until then it is looked at every two minutes; the change is carried out at once.
#[tokio::test(start_paused = true)]
async fn an_invalid_object() {
    let scene = Scene::on(Server::default());
    scene.make("a", 101);
    after(1).await;
    let (calls, _) = scene.server.heard();
    assert_eq!(calls.iter().filter(|call| call.starts_with("POST /ns/parts")).count(), 1, "{calls:?}");
    after(600).await;
    let (calls, _) = scene.server.heard();
    assert_eq!(calls.iter().filter(|call| call.starts_with("POST /ns/parts")).count(), 5, "{calls:?}");
    scene.resize("a", 99);
    sleep(Duration::from_millis(100)).await;
    scene.assert_right("a", 99);
    scene.ends_in_silence().await;
}

/// 429 with Retry-After: the server is left alone for as long as it asks, whatever happens meanwhile.
#[tokio::test(start_paused = true)]
async fn a_server_with_too_many_requests() {
    let scene = Scene::on(Server::default());
    after(1).await;
    scene.server.plan("POST /ns/parts", 1, Fault::Busy(429, 30));
    scene.make("a", 1);
    after(1).await;
    scene.server.heard();
    scene.resize("a", 2);
    after(28).await;
    assert_eq!(scene.server.heard().0, [] as [String; 0], "it was asked to wait");
    after(2).await;
    scene.assert_right("a", 2);
    // lists do the same
    scene.server.plan("GET /things?limit", 1, Fault::Busy(429, 20));
    scene.server.forget("things");
    after(2).await;
    scene.server.heard();
    scene.resize("a", 3);
    after(17).await;
    assert_eq!(scene.server.heard(), (vec![], vec![]));
    after(3).await;
    scene.assert_right("a", 3);
    scene.ends_in_silence().await;
}

/// 5xx: tried again, less and less often; one event reports it.
#[tokio::test(start_paused = true)]
async fn a_server_that_fails() {
    let scene = Scene::on(Server::default());
    after(1).await;
    scene.server.plan("POST /ns/parts", 4, Fault::Refuse(500, "InternalError"));
    scene.server.plan("PATCH /ns/things/a/status", 4, Fault::Refuse(503, "ServiceUnavailable"));
    scene.make("a", 1);
    after(2).await;
    scene.assert_right("a", 1);
    let (calls, _) = scene.server.heard();
    assert_eq!(calls.iter().filter(|call| call.starts_with("POST /ns/parts")).count(), 5, "{calls:?}");
    scene.server.plan("", 40, Fault::Refuse(502, "BadGateway"));
    scene.resize("a", 2);
    after(300).await;
    scene.server.mend();
    after(121).await;
    scene.assert_right("a", 2);
    scene.ends_in_silence().await;
}

/// A call that is not answered is given up after a minute, and made again; other objects do not wait for it.
#[tokio::test(start_paused = true)]
async fn a_slow_server() {
    let scene = Scene::on(Server::default());
    after(1).await;
    scene.server.plan("POST /ns/parts", 1, Fault::Slow(Duration::from_secs(3600)));
    scene.make("a", 1);
    after(1).await;
    scene.make("b", 2);
    after(1).await;
    scene.assert_right("b", 2);
    assert!(!scene.is_right("a", 1));
    after(65).await;
    scene.assert_right("a", 1);
    // slow, but in time
    scene.server.plan("PUT /ns/parts", 1, Fault::Slow(Duration::from_secs(30)));
    scene.resize("b", 3);
    after(31).await;
    scene.assert_right("b", 3);
    scene.ends_in_silence().await;
}

/// A list that is not answered does not stop the driver from starting for ever.
#[tokio::test(start_paused = true)]
async fn a_list_without_an_answer() {
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("a", 1));
    server.plan("GET /things?limit", 1, Fault::Slow(Duration::from_secs(3600)));
    let scene = Scene::on(server);
    after(70).await;
    scene.assert_right("a", 1);
    scene.ends_in_silence().await;
}

/// A bug of ours: the object says so, others go on, and a change mends it once its wait is over.
#[tokio::test(start_paused = true)]
async fn a_panic() {
    let scene = Scene::on(Server::default());
    scene.make("a", 1);
    after(1).await;
    scene.resize("a", "large");
    after(60).await;
    scene.make("b", 2);
    after(1).await;
    scene.assert_right("b", 2);
    let events = scene.server.all("events");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["reason"], "ControllerPanicked");
    assert!(events[0]["message"].as_str().unwrap().contains("a size of \"large\""), "{events:?}");
    scene.resize("a", 5);
    after(121).await;
    scene.assert_right("a", 5);
    scene.ends_in_silence().await;
}

/// What is deleted meanwhile is no error.
#[tokio::test(start_paused = true)]
async fn an_object_that_goes_while_it_is_worked_on() {
    let scene = Scene::on(Server::default());
    scene.make("a", 1);
    after(1).await;
    scene.server.plan("PUT /ns/parts/a", 1, Fault::Refuse(404, "NotFound"));
    scene.server.plan("PATCH /ns/things/a/status", 1, Fault::Refuse(404, "NotFound"));
    scene.resize("a", 2);
    after(2).await;
    // that status was of something gone: nothing is left to say, until something changes
    scene.resize("a", 3);
    after(1).await;
    scene.assert_right("a", 3);
    scene.ends_in_silence().await;
}
