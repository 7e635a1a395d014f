//! A driver that gets its objects from the server in its process.

use super::*;
use api::object::Key;
use driver::{Held, Options, Source, Told};
use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use objects::packed::Packed;
use std::sync::Mutex;

/// Has Things; Parts are to be asked for by requests.
struct Things {
    server: Server,
    lists: Mutex<Vec<Vec<Arc<Packed>>>>,
    /// What the next watches tell.
    watches: Mutex<Vec<mpsc::UnboundedReceiver<Told>>>,
    takes_trees: bool,
}

fn packed(object: Value) -> Arc<Packed> {
    let text = object.to_string().into_bytes();
    Arc::new(Packed::new(Arc::new(object), text))
}

impl Source for Things {
    fn has(&self, kind: &Gvk) -> bool {
        *kind == gvk("Thing")
    }

    fn takes_trees(&self) -> bool {
        self.takes_trees
    }

    fn list(&self, kind: &Gvk) -> Option<(Vec<Arc<Packed>>, u64)> {
        if !self.has(kind) {
            return None;
        }
        let things = self.server.all("things");
        let newest = things.iter().filter_map(|thing| object::resource_version(thing).parse().ok()).max();
        let things: Vec<Arc<Packed>> =
            things.iter().map(|thing| Arc::new(Packed::from_text(thing.to_string().into_bytes()))).collect();
        self.lists.lock().unwrap().push(things.clone());
        Some((things, newest.unwrap_or_default()))
    }

    fn watch(&self, kind: &Gvk, _: u64) -> Option<BoxStream<'static, Told>> {
        assert!(self.has(kind), "{kind}");
        let mut watches = self.watches.lock().unwrap();
        (!watches.is_empty()).then(|| watches.remove(0).boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_source_are_shared_and_not_asked_for() {
    share(false).await;
}

#[tokio::test(start_paused = true)]
async fn trees_go_to_a_source_that_takes_them_and_its_answers_are_held_as_they_are() {
    share(true).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_hears_what_there_is_and_what_becomes_of_it() {
    use driver::Feed;
    use kube::runtime::watcher::{Config, Event};
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("a", 1));
    let ((first, first_told), (second, second_told)) = (mpsc::unbounded(), mpsc::unbounded());
    let things = Arc::new(Things {
        server: server.clone(),
        lists: Mutex::default(),
        watches: Mutex::new(vec![first_told, second_told]),
        takes_trees: false,
    });
    let mut changes = Feed::Source(things.clone()).changes(&gvk("Thing"), "things", Config::default());
    let mut hear = async || match changes.next().await.expect("it never ends") {
        Event::Init => "begins".to_owned(),
        Event::InitApply(thing) => format!("there is {}", object::meta(&thing, "name")),
        Event::InitDone => "listed".to_owned(),
        Event::Apply(thing) => format!("is {}", object::meta(&thing, "name")),
        Event::Delete(thing) => format!("was {}", object::meta(&thing, "name")),
    };
    let thing = |name: &str| Held::Packed(packed(json!({"metadata": {"name": name, "resourceVersion": "9"}})));
    first.unbounded_send(Told::Is(thing("b"))).unwrap();
    first.unbounded_send(Told::Nothing("12".to_owned())).unwrap();
    drop(first);
    second.unbounded_send(Told::Was(thing("b"))).unwrap();
    second.unbounded_send(Told::Forgotten).unwrap();
    for told in ["begins", "there is a", "listed", "is b", "was b", "begins", "there is a", "listed"] {
        assert_eq!(hear().await, told);
    }
    // there is no third watch: all is listed again
    assert_eq!(hear().await, "begins");
    assert_eq!(server.heard(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_news_hears_of_no_list_and_one_of_parts_reads_no_more() {
    use driver::Feed;
    use kube::runtime::watcher::{Config, Event};
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("a", 1));
    let ((first, first_told), (second, second_told)) = (mpsc::unbounded(), mpsc::unbounded());
    let (lists, watches) = (Mutex::default(), Mutex::new(vec![first_told, second_told]));
    let feed = Feed::Source(Arc::new(Things { server: server.clone(), lists, watches, takes_trees: false }));
    let mut news = feed.news(&gvk("Thing"), "things", Config::default());
    let thing = |name: &str| Held::Packed(packed(json!({"metadata": {"name": name, "resourceVersion": "9"}})));
    // forgotten: it is listed again, of which nobody hears
    for (sender, name) in [(first, "b"), (second, "c")] {
        sender.unbounded_send(Told::Is(thing(name))).unwrap();
        sender.unbounded_send(Told::Forgotten).unwrap();
        let heard = news.next().await;
        assert!(matches!(&heard, Some(Event::Apply(thing)) if object::meta(thing, "name") == name), "{heard:?}");
    }
    let parts = feed.parts(&gvk("Thing"), "things", Config::default(), objects::take::state);
    let listed: Vec<_> = parts.take(3).collect().await;
    let [Event::Init, Event::InitApply(part), Event::InitDone] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((object::meta(part, "name"), part.get("spec")), ("a", None));
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_searched_first_and_lets_others_have_their_turn() {
    use driver::Feed;
    use kube::runtime::watcher::{Config, Event};
    use std::sync::atomic::{AtomicUsize, Ordering};
    const THINGS: usize = 1000;
    let server = Server::default();
    for at in 0..THINGS {
        server.user(Method::POST, "/ns/things", thing(&format!("t{at}"), 1));
    }
    let (lists, watches) = (Mutex::default(), Mutex::default());
    let feed = Feed::Source(Arc::new(Things { server, lists, watches, takes_trees: false }));
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let listed = async |which: Config| {
        let mut names = Vec::new();
        let mut changes = feed.changes(&gvk("Thing"), "things", which);
        loop {
            match changes.next().await.expect("it never ends") {
                Event::InitDone => return names,
                Event::InitApply(thing) => names.push(object::meta(&thing, "name").to_owned()),
                _ => {}
            }
        }
    };
    assert_eq!(listed(Config::default()).await.len(), THINGS);
    assert!(turns.load(Ordering::Relaxed) > 3, "{turns:?}");
    assert_eq!(listed(Config::default().fields("metadata.name=t777")).await, ["t777"]);
    assert_eq!(
        listed(Config::default().fields("metadata.name!=t777")).await.len(),
        THINGS,
        "the reader passes over it"
    );
    assert!(listed(Config::default().labels("nobody=has")).await.is_empty());
}

async fn share(takes_trees: bool) {
    let server = Server::default();
    server.user(Method::POST, "/ns/things", thing("a", 1));
    let ((first, first_told), (second, second_told)) = (mpsc::unbounded(), mpsc::unbounded());
    let things = Arc::new(Things {
        server: server.clone(),
        lists: Mutex::default(),
        watches: Mutex::new(vec![first_told, second_told]),
        takes_trees,
    });
    let mut driver = Driver::with(server.client(), Options { source: Some(things.clone()), ..Options::default() });
    driver.add(Keeper);
    let cache = driver.cache();
    let stop = CancellationToken::new();
    let run = tokio::spawn(driver.run(stop.clone()));
    after(5).await;
    assert_eq!(server.get("parts/ns/a")["spec"]["size"], 1, "it was listed");

    let shown = cache.get(&gvk("Thing"), &Key::new("ns", "a")).expect("its status was written");
    let handed = server.handed("a").map(|handed| handed.open());
    assert_eq!(handed.is_some_and(|handed| Arc::ptr_eq(&handed, &shown)), takes_trees);

    // what the watch tells is held as it is, also in place of the answer to the write before
    let now = packed(server.get("things/ns/a"));
    let tree = now.open();
    assert_eq!(tree["status"]["size"], 1);
    first.unbounded_send(Told::Is(Held::Packed(now.clone()))).unwrap();
    after(5).await;
    let held = |name: &str| cache.get(&gvk("Thing"), &Key::new("ns", name));
    assert!(held("a").is_some_and(|held| Arc::ptr_eq(&held, &tree)));

    // a stream that ends is followed by another; one that has forgotten something, by a list
    drop(first);
    after(5).await;
    server.user(Method::POST, "/ns/things", thing("b", 2));
    second.unbounded_send(Told::Is(Held::Packed(packed(server.get("things/ns/b"))))).unwrap();
    after(5).await;
    assert_eq!(server.get("parts/ns/b")["spec"]["size"], 2);
    second.unbounded_send(Told::Was(Held::Packed(packed(server.get("things/ns/b"))))).unwrap();
    after(5).await;
    assert!(held("b").is_none());
    assert_eq!(things.lists.lock().unwrap().len(), 1);
    second.unbounded_send(Told::Forgotten).unwrap();
    after(5).await;
    assert!(things.lists.lock().unwrap().len() > 1);
    assert!(held("b").is_some(), "the list has it");

    let (asked, watched) = server.heard();
    let of_things = |line: &&String| line.contains("things") && line.contains("GET");
    assert_eq!(asked.iter().chain(&watched).filter(of_things).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(watched.iter().any(|line| line.contains("parts")), "{watched:?}");
    stop.cancel();
    run.await.unwrap();
}

/// Keeps an index: its first look is at all Things, the others are at those that were noted since.
#[derive(Clone, Default)]
struct Indexer {
    notes: Arc<reconcile::wakes::Notes>,
    /// How many things each look was at.
    looks: Arc<Mutex<Vec<usize>>>,
}

impl Indexer {
    fn key() -> Target {
        Target { gvk: gvk("Part"), key: Key::new("", "all Things") }
    }
}

impl Reconciler for Indexer {
    type Observed = ();

    fn name(&self) -> &'static str {
        "indexer"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(gvk("Part"))
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: gvk("Thing"), wakes: Wakes::Noted(self.notes.clone(), vec![Self::key()]) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<()> {
        let mut looks = self.looks.lock().unwrap();
        let noted = self.notes.take().len();
        let all = || world.list(&gvk("Thing"), None).len();
        if *target == Self::key() {
            let seen = if looks.is_empty() { all() } else { noted };
            looks.push(seen);
        }
        None
    }

    fn decide(&self, (): &(), _now: Timestamp) -> Decision {
        Decision::nothing()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_first_look_sees_is_not_noted_for_a_second_one() {
    const THINGS: usize = 1000;
    let server = Server::default();
    for at in 0..THINGS {
        server.user(Method::POST, "/ns/things", thing(&format!("t{at}"), 1));
    }
    let (tells, told) = mpsc::unbounded();
    let (lists, watches) = (Mutex::default(), Mutex::new(vec![told]));
    let things = Arc::new(Things { server: server.clone(), lists, watches, takes_trees: false });
    let mut driver = Driver::with(server.client(), Options { source: Some(things.clone()), ..Options::default() });
    let indexer = Indexer::default();
    driver.add(indexer.clone());
    let stop = CancellationToken::new();
    let run = tokio::spawn(driver.run(stop.clone()));
    after(5).await;
    let first = indexer.looks.lock().unwrap().clone();
    assert_eq!((first[0], first[1..].iter().sum::<usize>()), (THINGS, 0), "{first:?}");

    server.user(Method::PATCH, "/ns/things/t7", json!({"spec": {"size": 2}}));
    tells.unbounded_send(Told::Is(Held::Packed(packed(server.get("things/ns/t7"))))).unwrap();
    after(5).await;
    assert_eq!(indexer.looks.lock().unwrap().split_off(first.len()), [1]);

    // what a later list has may be news, also where its watch ends at once
    tells.unbounded_send(Told::Forgotten).unwrap();
    after(5).await;
    let lists = things.lists.lock().unwrap().len() - 1;
    assert!(lists > 0);
    let noted: usize = indexer.looks.lock().unwrap()[first.len() + 1..].iter().sum();
    assert!(noted >= THINGS, "{noted} of {lists} lists");
    stop.cancel();
    run.await.unwrap();
}
