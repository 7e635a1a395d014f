//! What watches may rely on: a watch of some of the objects hears of those alone, and a restart takes nothing away.

use super::{Plain, put, write};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Event, Expect, Gone, Interest, Key, Limits, Op, Revision, Store, Txn, Watcher};

/// A seeded sequence of numbers below a bound.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn small() -> Limits {
    Limits { events: 20, ..Limits::default() }
}

/// Puts or deletes one of a few objects of a few namespaces.
fn write_some(store: &Store, dice: &mut Dice) -> Event {
    let bucket = format!("b{}", dice.roll(2));
    let key = Key::new(&format!("ns{}", dice.roll(4)), &format!("o{}", dice.roll(3)));
    let current = store.get(&bucket, &key).map(|entry| entry.revision);
    let op = match current {
        Some(expect) if dice.roll(3) == 0 => Op::Delete { bucket: bucket.as_str().into(), key, expect },
        _ => {
            let expect = current.map_or(Expect::Absent, Expect::Revision);
            let value = json!({"n": dice.roll(1000), "text": "x".repeat(usize::try_from(dice.roll(2000)).unwrap())});
            Op::Put { bucket: bucket.as_str().into(), key, value, expect }
        }
    };
    store.submit(Txn::one(op)).wait().unwrap().remove(0)
}

/// What a watch shows of an event.
fn shown(event: &Event) -> (Revision, bool, String, Option<String>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let before = event.previous.as_ref().map(|entry| text(&entry.bytes()));
    (event.revision, event.deleted, text(&event.entry.bytes()), before)
}

fn drain(watcher: &mut Watcher) -> Result<Vec<Event>, Gone> {
    let mut out = Vec::new();
    loop {
        let batch = watcher.poll()?;
        out.extend(batch.events);
        if !batch.more {
            return Ok(out);
        }
    }
}

fn interests() -> Vec<Interest> {
    let object = |ns, name| Interest::Object(Key::new(ns, name));
    let namespace = |ns: &str| Interest::Namespace(ns.to_owned());
    vec![Interest::All, namespace("ns1"), namespace("never"), object("ns2", "o0"), object("ns2", "o0")]
}

/// From whatever revision, before or after a restart, from memory or from the disk: what is heard is what happened.
#[test]
fn watchers_hear_of_what_they_want_and_of_nothing_else() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sqlite");
        let mut dice = Dice(seed);
        let mut all: Vec<Event> = Vec::new();
        for _ in 0..3 {
            let store = Store::open_with(&path, Plain, small()).unwrap();
            let mut live: Vec<_> = interests()
                .into_iter()
                .map(|interest| {
                    (interest.clone(), store.watch_some("b1", interest, store.revision()).unwrap(), Vec::new())
                })
                .collect();
            let begin = all.len();
            for _ in 0..120 {
                all.push(write_some(&store, &mut dice));
                if dice.roll(15) == 0 {
                    store.rest();
                }
                for (_, watcher, heard) in &mut live {
                    if dice.roll(30) == 0 {
                        heard.extend(drain(watcher).unwrap());
                    }
                }
            }
            let wanted = |interest: &Interest, events: &[Event]| -> Vec<_> {
                let of_interest = events.iter().filter(|e| &*e.bucket == "b1" && interest.covers(&e.entry.key));
                of_interest.map(shown).collect()
            };
            for (interest, mut watcher, mut heard) in live {
                heard.extend(drain(&mut watcher).unwrap());
                assert_eq!(
                    heard.iter().map(shown).collect::<Vec<_>>(),
                    wanted(&interest, &all[begin..]),
                    "seed {seed}"
                );
            }
            for interest in interests() {
                let after = usize::try_from(dice.roll(all.len() as u64)).unwrap();
                let from = all[..after].last().map_or(0, |event| event.revision);
                let heard = drain(&mut store.watch_some("b1", interest.clone(), from).unwrap()).unwrap();
                let heard: Vec<_> = heard.iter().map(shown).collect();
                assert_eq!(heard, wanted(&interest, &all[after..]), "seed {seed}, after {from}");
            }
            // and the past can be seen as it was
            let after = usize::try_from(dice.roll(all.len() as u64)).unwrap();
            let mut then = BTreeMap::new();
            for event in all[..after].iter().filter(|event| &*event.bucket == "b1") {
                if event.deleted {
                    then.remove(&event.entry.key)
                } else {
                    then.insert(event.entry.key.clone(), event.revision)
                };
            }
            let from = all[..after].last().map_or(0, |event| event.revision);
            let snapshot = store.snapshot_at("b1", from).unwrap();
            let found: Vec<_> = snapshot.iter(None, None).map(|entry| (entry.key.clone(), entry.revision)).collect();
            assert_eq!(found, then.into_iter().collect::<Vec<_>>(), "seed {seed}, at {from}");
        }
    }
}

#[test]
fn after_a_rest_the_disk_alone_has_what_happened_before_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("s.sqlite"), Plain).unwrap();
    let interests = [Interest::All, Interest::Namespace("ns".to_owned()), Interest::Namespace("other".to_owned())];
    let mut slow = interests.map(|interest| store.watch_some("b", interest, 0).unwrap());
    let mut last = write(&store, put("a", json!({"n": 0}), Expect::Absent)).unwrap();
    let first = Arc::downgrade(&store.get("b", &Key::new("ns", "a")).unwrap());
    let bytes = first.upgrade().unwrap().bytes().len();
    for n in 1..10 {
        last = write(&store, put("a", json!({"n": n}), Expect::Revision(last))).unwrap();
    }
    store.rest();
    assert!(first.upgrade().is_some(), "the while that is over has just begun");
    store.rest();
    assert!(first.upgrade().is_none());
    let behind = |watcher: &Watcher| (watcher.is_behind(bytes * 9), watcher.is_behind(bytes * 11));
    assert_eq!(slow.each_ref().map(behind), [(true, false), (true, false), (false, false)]);
    write(&store, put("a", json!({"n": 0}), Expect::Revision(last))).unwrap();
    assert_eq!(slow.each_ref().map(|watcher| watcher.is_behind(bytes * 11)), [true, true, false]);
    assert_eq!(slow.each_mut().map(|watcher| drain(watcher).unwrap().len()), [11, 11, 0]);
    assert_eq!(slow.each_ref().map(|watcher| watcher.is_behind(0)), [false; 3]);
}

#[test]
fn a_quiet_namespaces_watcher_is_not_left_behind_by_a_busy_one() {
    let store = Store::memory_with(Plain, small());
    let mut quiet = store.watch_some("b", Interest::Namespace("quiet".to_owned()), 0).unwrap();
    let mut busy = store.watch_some("b", Interest::Namespace("ns".to_owned()), 0).unwrap();
    let mut last = write(&store, put("a", json!({}), Expect::Absent)).unwrap();
    for n in 0..100 {
        last = write(&store, put("a", json!({"n": n}), Expect::Revision(last))).unwrap();
    }
    let op = Op::Put { bucket: "b".into(), key: Key::new("quiet", "o"), value: json!({}), expect: Expect::Absent };
    write(&store, Txn::one(op)).unwrap();
    let batch = quiet.poll().unwrap();
    assert_eq!((batch.events.len(), batch.revision), (1, store.revision()));
    assert!(busy.poll().is_err(), "what it wants is forgotten");
    assert!(!quiet.is_behind(0));
}

#[tokio::test]
async fn nobody_wakes_for_what_others_want() {
    let store = Store::memory(Plain);
    let mut other = store.watch_some("b", Interest::Namespace("other".to_owned()), 0).unwrap();
    let mut waiting = std::pin::pin!(other.next());
    let mut polls = 0;
    let mut poll = |cx: &mut std::task::Context<'_>| {
        polls += 1;
        waiting.as_mut().poll(cx).map(|batch| (batch.unwrap().events.len(), polls))
    };
    let woken = std::future::poll_fn(|cx| match poll(cx) {
        std::task::Poll::Pending if store.revision() == 0 => {
            for n in 0..100 {
                let expect = if n == 0 { Expect::Absent } else { Expect::Revision(n) };
                write(&store, put("a", json!({}), expect)).unwrap();
            }
            let op =
                Op::Put { bucket: "b".into(), key: Key::new("other", "o"), value: json!({}), expect: Expect::Absent };
            write(&store, Txn::one(op)).unwrap();
            std::task::Poll::Pending
        }
        polled => polled,
    });
    assert_eq!(woken.await, (1, 2), "polled once before and once after its own event");
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-history");
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Whatever is wrong with the history on disk: a watch that would miss something gets an error, and all else goes on.
#[test]
fn a_damaged_history_is_forgotten_not_believed() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("cut off", |path| {
            let file = std::fs::File::options().write(true).open(&segments(path)[0]).unwrap();
            file.set_len(file.metadata().unwrap().len() - 7).unwrap();
        }),
        ("overwritten", |path| {
            let mut bytes = std::fs::read(&segments(path)[0]).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 40].fill(0xff);
            std::fs::write(&segments(path)[0], bytes).unwrap();
        }),
        ("empty", |path| std::fs::write(&segments(path)[0], []).unwrap()),
        ("gone", |path| std::fs::remove_file(&segments(path)[0]).unwrap()),
    ];
    for (which, harm) in harms {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sqlite");
        let mut dice = Dice(1);
        let store = Store::open_with(&path, Plain, small()).unwrap();
        for _ in 0..60 {
            write_some(&store, &mut dice);
        }
        let last = store.revision();
        drop(store);
        harm(&path);
        let store = Store::open_with(&path, Plain, small()).unwrap();
        let told = store.watch("b1", 0).and_then(|mut watcher| drain(&mut watcher));
        assert!(told.is_err(), "{which}: {told:?}");
        let mut watcher = store.watch("b1", last).unwrap();
        let next: Vec<_> = (0..60).map(|_| write_some(&store, &mut dice)).collect();
        let heard = drain(&mut watcher).unwrap();
        assert_eq!(heard.len(), next.iter().filter(|event| &*event.bucket == "b1").count(), "{which}");
        drop((watcher, store));
        let store = Store::open_with(&path, Plain, small()).unwrap();
        let heard = drain(&mut store.watch("b1", last).unwrap()).unwrap();
        assert_eq!(heard.len(), next.iter().filter(|event| &*event.bucket == "b1").count(), "{which}, another start");
    }
}

#[test]
fn the_history_on_disk_has_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sqlite");
    let limits = Limits { archive_bytes: 9 << 20, ..small() };
    let store = Store::open_with(&path, Plain, limits).unwrap();
    let mut dice = Dice(3);
    let mut noise =
        || (0..200_000).map(|_| char::from(b'!' + u8::try_from(dice.roll(90)).unwrap())).collect::<String>();
    for n in 0..100 {
        write(&store, put(&format!("o{n}"), json!({"noise": noise()}), Expect::Absent)).unwrap();
    }
    let bytes: u64 = segments(&path).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!((4 << 20..=13 << 20).contains(&bytes), "{bytes}");
    assert!(matches!(store.watch("b", 1), Err(Gone { asked: 1, .. })));
    let recent = store.watch("b", store.revision() - 30).and_then(|mut watcher| drain(&mut watcher)).unwrap();
    assert_eq!(recent.len(), 30);
    // nothing is too old yet, and then everything but what is always kept
    drop(store);
    let limits = Limits { archive_time: Duration::ZERO, archive_kept: 0, ..limits };
    let store = Store::open_with(&path, Plain, limits).unwrap();
    write(&store, put("last", json!({}), Expect::Absent)).unwrap();
    assert_eq!(segments(&path).len(), 1);
}

/// Not a test: what the history of objects like pods' takes on disk, and how long keeping it does. `cargo test --release -p store
/// --test it measured -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn measured_history_of_many_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sqlite");
    let store = Store::open(&path, Plain).unwrap();
    let labels: serde_json::Map<_, _> =
        (0..40).map(|n| (format!("app.example.com/label-{n}"), "a-value".into())).collect();
    let begin = std::time::Instant::now();
    const WRITES: u64 = 8000;
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (store, labels) = (&store, &labels);
            scope.spawn(move || {
                let mut expect = Expect::Absent;
                for n in 0..WRITES / 16 {
                    let value = json!({"labels": labels, "n": n, "uid": format!("{:016x}", (n + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15))});
                    expect = Expect::Revision(write(store, put(&format!("o{thread}"), value, expect)).unwrap());
                }
            });
        }
    });
    let bytes: u64 = segments(&path).iter().map(|path| path.metadata().unwrap().len()).sum();
    let each = store.snapshot("b").iter(None, None).next().unwrap().bytes().len();
    println!("{WRITES} writes of {each} bytes in {:?}; {} bytes of history each", begin.elapsed(), bytes / WRITES);
}
