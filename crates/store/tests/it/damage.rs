//! Damaged, older and newer files.

use crate::disk::{self, Faults};
use crate::{Plain, put, write};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use store::{Expect, Fault, Key, Limits, OpenError, Store};

/// A closed store of objects with these names, some larger than a page.
fn filled(dir: &Path, names: impl Iterator<Item = String>) -> (PathBuf, BTreeMap<String, Value>) {
    let path = dir.join("s.sqlite");
    let store = Store::open(&path, Plain).unwrap();
    for (n, name) in names.enumerate() {
        write(&store, put(&name, json!({"n": n, "text": "x".repeat(n * 37 % 9000)}), Expect::Absent)).unwrap();
    }
    let objects = served(&store);
    drop(store);
    (path, objects)
}

fn served(store: &Store) -> BTreeMap<String, Value> {
    store.snapshot("b").iter(None, None).map(|e| (e.key.name.clone(), (*e.value()).clone())).collect()
}

/// Valid JSON, but not what was written.
#[test]
fn a_changed_row_is_found_by_its_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut objects) = filled(dir.path(), (0..5).map(|n| format!("n{n}")));
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute(
        "UPDATE objects SET value = CAST(replace(CAST(value AS TEXT), '\"n\":1', '\"n\":7') AS BLOB) WHERE name = 'n1'",
        [],
    )
    .unwrap();
    db.execute("UPDATE objects SET created = created + 1 WHERE name = 'n2'", []).unwrap();
    db.execute("UPDATE objects SET checksum = NULL WHERE name = 'n3'", []).unwrap();
    drop(db);
    let store = Store::open(&path, Plain).unwrap();
    for name in ["n1", "n2", "n3"] {
        objects.remove(name);
        let set_aside = store.health().set_aside;
        assert!(set_aside.iter().any(|row| row.name == name && row.bucket == "b" && row.why.contains("checksum")));
    }
    assert_eq!(served(&store), objects);
    // it is reported until the object is written anew, and no longer
    write(&store, put("n1", json!({"n": 1}), Expect::Absent)).unwrap();
    write(&store, put("other", json!({"n": 9}), Expect::Absent)).unwrap();
    let names = |store: &Store| store.health().set_aside.into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names(&store), ["n2", "n3"]);
    drop(store);
    assert_eq!(names(&Store::open(&path, Plain).unwrap()), ["n2", "n3"]);
}

/// A large file is read from both ends, whatever its folder is called, with what its log alone has, and whole or damaged.
#[test]
fn a_large_file_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["a b?c=d#%41é", "other"].map(|name| dir.path().join(name));
    [&first, &second].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let (path, copy) = (first.join("s.sqlite"), second.join("s.sqlite"));
    let store = Store::open(&path, Plain).unwrap();
    let object = |n: usize| put(&format!("n{n}"), json!({"n": n, "text": "x".repeat(1 << 20)}), Expect::Absent);
    (0..40).for_each(|n| _ = write(&store, object(n)).unwrap());
    drop(store);
    let store = Store::open(&path, Plain).unwrap();
    write(&store, object(40)).unwrap();
    let objects = served(&store);
    assert_eq!(objects.len(), 41);
    // as a crash leaves it
    for end in ["", "-wal"] {
        let of = |path: &Path| format!("{}{end}", path.display());
        std::fs::copy(of(&path), of(&copy)).unwrap();
    }
    drop(store);
    for path in [&path, &copy] {
        assert!(std::fs::metadata(path).unwrap().len() > 32 << 20);
        assert!(served(&Store::open(path, Plain).unwrap()) == objects);
    }
    let db = rusqlite::Connection::open(&copy).unwrap();
    db.execute("UPDATE objects SET created = created + 1 WHERE name = 'n7'", []).unwrap();
    drop(db);
    let store = Store::open(&copy, Plain).unwrap();
    assert_eq!(served(&store).len(), 40);
    assert_eq!(store.health().set_aside.len(), 1);
}

/// Whatever bit of the file flips: what is served is what was written, and what is not served is reported.
#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (path, objects) = filled(dir.path(), (0..60).map(|n| format!("n{n}")));
    let whole = std::fs::read(&path).unwrap();
    let mut rng = StdRng::seed_from_u64(11);
    let (mut refused, mut lost, mut most_lost) = (0, 0, 0);
    for round in 0..300 {
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        }
        let bit = rng.random_range(0..whole.len() * 8);
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        let store = match Store::open(&path, Plain) {
            Ok(store) => store,
            Err(OpenError::Database(_) | OpenError::Newer { .. }) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("round {round}, bit {bit}: {other}"),
        };
        let now = served(&store);
        for (name, value) in &now {
            assert_eq!(objects.get(name), Some(value), "round {round}, bit {bit}: {name}");
        }
        if now.len() < objects.len() {
            lost += 1;
            most_lost = most_lost.max(objects.len() - now.len());
            assert!(!store.health().set_aside.is_empty(), "round {round}, bit {bit}: {} objects", now.len());
        }
        assert!(store.revision() >= 60, "round {round}, bit {bit}: revision {}", store.revision());
        // and it goes on
        let revision = store.revision();
        assert!(write(&store, put("new", json!({}), Expect::Absent)).unwrap() > revision);
        drop(store);
        let again = Store::open(&path, Plain).unwrap();
        assert_eq!(again.snapshot("b").len(), now.len() + 1, "round {round}, bit {bit}");
        assert_eq!(again.health().set_aside.is_empty(), now.len() == objects.len(), "round {round}, bit {bit}");
    }
    println!("{refused} refused, {lost} with objects set aside, at most {most_lost} of {}", objects.len());
    assert!(refused < 30 && lost > 30, "{refused} {lost}");
}

/// A page that is gone takes the objects of one leaf with it, or a branch; the rest is served, and the damaged file is kept.
#[test]
fn what_a_lost_page_leaves_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (path, objects) = filled(dir.path(), (0..60).map(|n| format!("n{n}")));
    let whole = std::fs::read(&path).unwrap();
    let mut salvaged = 0;
    for page in 1..whole.len() / 8192 {
        let mut bytes = whole.clone();
        bytes[page * 8192..(page + 1) * 8192].fill(0);
        std::fs::write(&path, bytes).unwrap();
        let Ok(store) = Store::open(&path, Plain) else { continue };
        let now = served(&store);
        assert!(now.iter().all(|(name, value)| objects.get(name) == Some(value)), "page {page}");
        let set_aside = store.health().set_aside;
        assert_eq!(now.len() < objects.len(), !set_aside.is_empty(), "page {page}: {set_aside:?}");
        if set_aside.iter().any(|row| row.name.is_empty()) {
            salvaged += 1;
            // the second page is the root of all objects
            assert!(!now.is_empty() || page == 1, "page {page}");
            let kept = set_aside[0].why.rsplit("kept as ").next().unwrap();
            assert!(Path::new(kept).exists(), "{kept}");
        }
        assert!(write(&store, put("new", json!({}), Expect::Absent)).unwrap() > 60);
    }
    assert!(salvaged > 0);
}

#[test]
fn a_damaged_revision_is_never_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = filled(dir.path(), (0..3).map(|n| format!("n{n}")));
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE meta SET value = value - 2 WHERE key = 'revision'", []).unwrap();
    drop(db);
    let store = Store::open(&path, Plain).unwrap();
    assert!(store.revision() > 1_000_000, "{}", store.revision());
}

const FORMAT_1: &str = "
    CREATE TABLE objects (
        bucket TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        created INTEGER NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (bucket, namespace, name)) WITHOUT ROWID;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO objects VALUES ('b', 'ns', 'a', 3, 5, CAST('{\"n\":1}' AS BLOB)), ('b', 'ns', 'c', 4, 4, x'00');
    INSERT INTO meta VALUES ('layout', 1), ('revision', 7);";

#[test]
fn an_older_file_is_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch(FORMAT_1).unwrap();
    for _ in 0..2 {
        let store = Store::open(&path, Plain).unwrap();
        let entry = store.get("b", &Key::new("ns", "a")).unwrap();
        assert_eq!((store.revision(), entry.created, entry.revision, &entry.value()["n"]), (8, 3, 5, &json!(1)));
        assert!(store.watch("b", 7).is_err(), "an object is gone, of which no event tells");
        let set_aside = store.health().set_aside;
        assert!(set_aside.len() == 1 && set_aside[0].name == "c", "{set_aside:?}");
    }
}

#[test]
fn a_newer_file_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = filled(dir.path(), (0..1).map(|n| format!("n{n}")));
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "journal_mode", "DELETE").unwrap();
    db.execute_batch(
        "UPDATE meta SET value = 3 WHERE key = 'layout'; UPDATE meta SET value = '9.1' WHERE key = 'writer'",
    )
    .unwrap();
    drop(db);
    let error = Store::open(&path, Plain).err().unwrap().to_string();
    assert!(error.starts_with("it was written by trainyard 9.1 in format 3, and this is trainyard "), "{error}");
    let db = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(db.query_row("SELECT value FROM meta WHERE key = 'layout'", [], |row| row.get::<_, i64>(0)).unwrap(), 3);
}

#[test]
fn a_backup_is_of_one_moment_and_goes_on_far_above() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = filled(dir.path(), (0..50).map(|n| format!("n{n}")));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let store = Store::open(&path, Plain).unwrap();
    let backup = dir.path().join("backup.sqlite");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // both of a pair, or neither
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let mut txn = put(&format!("left{n}"), json!({}), Expect::Absent);
                txn.ops.extend(put(&format!("right{n}"), json!({}), Expect::Absent).ops);
                write(&store, txn).unwrap();
            }
        });
        while store.get("b", &Key::new("ns", "right20")).is_none() {
            std::thread::yield_now();
        }
        let revision = store.back_up(&backup).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(revision >= 50 + 42, "{revision}");
    });
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let (objects, revision) = store::adopt(&backup).unwrap();
    assert!(revision > store.revision() + 1_000_000);
    let restored = Store::open(&backup, Plain).unwrap();
    assert_eq!((restored.snapshot("b").len(), restored.revision()), (objects, revision));
    let names = |side: &str| {
        served(&restored).keys().filter_map(|name| name.strip_prefix(side).map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(names("left"), names("right"));
    assert!(store::adopt(&dir.path().join("none")).is_err());
}

/// A disk that fails refuses writes, says why, shows everything, and takes writes again when it does.
fn refuses_writes_while(vfs: &str, faults: Faults, fault: Fault, advice: &str) {
    let disk = disk::register(vfs);
    let path = format!("file:/store?vfs={vfs}");
    let store = Store::open_on(Path::new(&path), Plain, Limits::default(), disk::settle).unwrap();
    write(&store, put("a", json!({}), Expect::Absent)).unwrap();
    disk.lock().unwrap().faults = faults;
    // the second is refused without a try
    for name in ["b", "c"] {
        let error = write(&store, put(name, json!({}), Expect::Absent)).unwrap_err();
        assert!(error.to_string().contains(advice), "{error}");
        assert_eq!(store.health().trouble.unwrap().fault, fault);
    }
    assert_eq!(served(&store).len(), 1);
    disk.lock().unwrap().faults = Faults::default();
    // it finds out by itself, with no write to remind it
    let begin = std::time::Instant::now();
    while store.health().trouble.is_some() {
        assert!(begin.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    write(&store, put("b", json!({}), Expect::Absent)).unwrap();
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    refuses_writes_while("full", Faults { full: 1000, ..Faults::default() }, Fault::Full, "make room");
}

#[test]
fn a_read_only_disk_refuses_writes_until_it_is_writable() {
    let faults = Faults { read_only: true, ..Faults::default() };
    refuses_writes_while("read-only", faults, Fault::ReadOnly, "make the disk of the control plane's home writable");
}

#[test]
fn a_failing_disk_refuses_writes_until_it_is_well() {
    let faults = Faults { write: 1000, ..Faults::default() };
    refuses_writes_while("failing", faults, Fault::Other, "see to the disk");
}
