//! A disk that fails: an SQLite VFS whose files lie in memory. Writes are refused or torn, the disk is full, `fsync` fails and
//! loses what it was to keep, reads fail or give too little; and a crash keeps an arbitrary part of what was not yet synced.
//!
//! SQLite itself runs as it is: what is tested is how it and the store together bear such a disk.

#![expect(unsafe_code, reason = "a VFS is a table of C functions")]

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rusqlite::ffi;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

const SECTOR: usize = 512;

#[derive(Default)]
struct File {
    /// What reads see.
    now: Vec<u8>,
    /// What a crash leaves for certain.
    durable: Vec<u8>,
    /// Sectors in which `now` may be newer.
    dirty: BTreeSet<usize>,
}

/// How often each operation fails, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub full: u32,
    pub write: u32,
    pub sync: u32,
    pub truncate: u32,
    pub read: u32,
    /// Reads of the next file to be opened that give too little, at most.
    pub short_reads: u32,
    /// The disk takes no change at all.
    pub read_only: bool,
}

pub struct Disk {
    files: BTreeMap<String, File>,
    rng: StdRng,
    pub faults: Faults,
    /// Faults that happened.
    pub hits: u64,
    /// The machine has crashed: nothing is written any more.
    dead: bool,
}

impl Disk {
    fn hit(&mut self, thousandths: u32) -> bool {
        let hit = self.rng.random_range(0..1000) < thousandths;
        self.hits += u64::from(hit);
        hit
    }

    fn write(&mut self, name: &str, bytes: &[u8], at: usize) {
        let file = self.files.entry(name.to_owned()).or_default();
        if file.now.len() < at + bytes.len() {
            file.now.resize(at + bytes.len(), 0);
        }
        file.now[at..at + bytes.len()].copy_from_slice(bytes);
        if !bytes.is_empty() {
            file.dirty.extend(at / SECTOR..=(at + bytes.len() - 1) / SECTOR);
        }
    }

    /// Nothing is written from here on; to be followed by dropping the store and [`Disk::restart`].
    pub fn crash(&mut self) {
        self.dead = true;
    }

    /// What is left after a crash: what was synced, and of the rest any sectors, one of them perhaps torn.
    pub fn restart(&mut self) {
        self.dead = false;
        self.faults = Faults::default();
        for file in self.files.values_mut() {
            let mut left = file.durable.clone();
            for sector in std::mem::take(&mut file.dirty) {
                let (start, mut end) = (sector * SECTOR, file.now.len().min((sector + 1) * SECTOR));
                if start >= end || self.rng.random_bool(0.5) {
                    continue;
                }
                if self.rng.random_bool(0.1) {
                    end = self.rng.random_range(start..end);
                }
                if left.len() < end {
                    left.resize(end, 0);
                }
                left[start..end].copy_from_slice(&file.now[start..end]);
            }
            file.now.clone_from(&left);
            file.durable = left;
        }
    }

    /// Whether a change is refused because the disk is read-only.
    fn refuses(&mut self) -> bool {
        self.hits += u64::from(self.faults.read_only);
        self.faults.read_only
    }

    /// Writes a file down once more and syncs it; either may fail.
    pub fn settle(&mut self, name: &str) -> std::io::Result<()> {
        if self.refuses() {
            return Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let (write, sync) = (self.faults.write, self.faults.sync);
        if self.dead || self.hit(write) {
            return Err(std::io::Error::other("the disk fails"));
        }
        let fails = self.hit(sync);
        let Some(file) = self.files.get_mut(name) else { return Ok(()) };
        file.dirty.clear();
        if fails {
            return Err(std::io::Error::other("fsync fails"));
        }
        file.durable.clone_from(&file.now);
        Ok(())
    }

    /// An empty disk.
    pub fn format(&mut self, seed: u64) {
        *self = Self {
            files: BTreeMap::new(),
            rng: StdRng::seed_from_u64(seed),
            faults: Faults::default(),
            hits: 0,
            dead: false,
        };
    }
}

/// Every disk, by the name of its VFS.
static DISKS: Mutex<BTreeMap<String, &'static Mutex<Disk>>> = Mutex::new(BTreeMap::new());

/// How the store has the log of `file:NAME?vfs=VFS` written down once more.
pub fn settle(database: &Path) -> std::io::Result<()> {
    let uri = database.to_str().expect("a URI");
    let (name, vfs) = uri.strip_prefix("file:").and_then(|rest| rest.split_once("?vfs=")).expect("of a disk of ours");
    let disk = DISKS.lock().unwrap()[vfs];
    disk.lock().unwrap().settle(&format!("{name}-wal"))
}

/// Registers a disk for as long as the process lives. Its files are `file:NAME?vfs=VFS`.
pub fn register(vfs: &str) -> &'static Mutex<Disk> {
    let empty =
        Disk { files: BTreeMap::new(), rng: StdRng::seed_from_u64(0), faults: Faults::default(), hits: 0, dead: false };
    let disk: &'static Mutex<Disk> = Box::leak(Box::new(Mutex::new(empty)));
    DISKS.lock().unwrap().insert(vfs.to_owned(), disk);
    // SAFETY: SQLite's own VFS lives for ever; what is taken of it is plain data and functions that need no instance
    let mut table: ffi::sqlite3_vfs = unsafe {
        ffi::sqlite3_initialize();
        *ffi::sqlite3_vfs_find(std::ptr::null())
    };
    table.iVersion = 1;
    table.szOsFile = size_of::<Handle>() as c_int;
    table.pNext = std::ptr::null_mut();
    table.zName = CString::new(vfs).unwrap().into_raw();
    table.pAppData = std::ptr::from_ref(disk).cast_mut().cast();
    table.xOpen = Some(open);
    table.xDelete = Some(delete);
    table.xAccess = Some(access);
    table.xFullPathname = Some(full_path);
    // SAFETY: the table and what it points to are never freed
    assert_eq!(unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(table)), 0) }, ffi::SQLITE_OK);
    disk
}

/// An open file: SQLite allocates it, and reads its first field.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    disk: &'static Mutex<Disk>,
    /// Of a `String` that `close` takes back.
    name: *mut String,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

fn disk_of(vfs: *mut ffi::sqlite3_vfs) -> MutexGuard<'static, Disk> {
    // SAFETY: `register` has put it there, and leaked it
    let disk: &'static Mutex<Disk> = unsafe { &*(*vfs).pAppData.cast() };
    disk.lock().unwrap()
}

fn handle(file: *mut ffi::sqlite3_file) -> (MutexGuard<'static, Disk>, String) {
    // SAFETY: SQLite passes what `open` has filled in, and `close` not yet taken back
    let (disk, name) = unsafe {
        let handle = &*file.cast::<Handle>();
        (handle.disk, (*handle.name).clone())
    };
    (disk.lock().unwrap(), name)
}

fn text(name: *const c_char) -> String {
    // SAFETY: SQLite passes names that end with NUL
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: as `disk_of`
    let disk: &'static Mutex<Disk> = unsafe { &*(*vfs).pAppData.cast() };
    let name = if name.is_null() { "temporary".to_owned() } else { text(name) };
    disk.lock().unwrap().files.entry(name.clone()).or_default();
    let base = ffi::sqlite3_file { pMethods: &raw const METHODS };
    // SAFETY: SQLite has allocated szOsFile bytes for it
    unsafe {
        file.cast::<Handle>().write(Handle { base, disk, name: Box::into_raw(Box::new(name)) });
        if !out.is_null() {
            *out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, _sync: c_int) -> c_int {
    let mut disk = disk_of(vfs);
    if disk.dead || disk.refuses() {
        return ffi::SQLITE_IOERR_DELETE;
    }
    disk.files.remove(&text(name));
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, _: c_int, out: *mut c_int) -> c_int {
    let there = disk_of(vfs).files.contains_key(&text(name));
    // SAFETY: SQLite passes a place for the answer
    unsafe { *out = c_int::from(there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path(_: *mut ffi::sqlite3_vfs, name: *const c_char, n: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite passes a name that ends with NUL and a place of `n` bytes
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        assert!(bytes.len() <= n as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` has made it, and SQLite closes once
    drop(unsafe { Box::from_raw((*file.cast::<Handle>()).name) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, n: c_int, at: i64) -> c_int {
    let (mut disk, name) = handle(file);
    // SAFETY: SQLite passes a place of `n` bytes
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), n as usize) };
    into.fill(0);
    let faults = disk.faults;
    if disk.dead || disk.hit(faults.read) {
        return ffi::SQLITE_IOERR_READ;
    }
    let mut short = 0;
    if faults.short_reads > 0 && disk.hit(100) {
        disk.faults.short_reads -= 1;
        short = disk.rng.random_range(1..=into.len());
    }
    let Some(found) = disk.files.get(&name) else { return ffi::SQLITE_IOERR_READ };
    let found = found.now.get(at as usize..).unwrap_or_default();
    let take = found.len().min(into.len()).saturating_sub(short);
    into[..take].copy_from_slice(&found[..take]);
    if take < into.len() { ffi::SQLITE_IOERR_SHORT_READ } else { ffi::SQLITE_OK }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, n: c_int, at: i64) -> c_int {
    let (mut disk, name) = handle(file);
    // SAFETY: SQLite passes `n` bytes
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), n as usize) };
    let faults = disk.faults;
    if disk.dead || disk.refuses() {
        return ffi::SQLITE_IOERR_WRITE;
    }
    let code = if disk.hit(faults.full) {
        ffi::SQLITE_FULL
    } else if disk.hit(faults.write) {
        ffi::SQLITE_IOERR_WRITE
    } else {
        ffi::SQLITE_OK
    };
    let take = if code == ffi::SQLITE_OK { from.len() } else { disk.rng.random_range(0..from.len()) };
    disk.write(&name, &from[..take], at as usize);
    code
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let (mut disk, name) = handle(file);
    let faults = disk.faults;
    if disk.dead || disk.refuses() || disk.hit(faults.truncate) {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    disk.files.entry(name).or_default().now.truncate(size as usize);
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let (mut disk, name) = handle(file);
    let faults = disk.faults;
    if disk.dead {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    let fails = disk.hit(faults.sync);
    let file = disk.files.entry(name).or_default();
    let dirty = std::mem::take(&mut file.dirty);
    if fails {
        // as Linux does: what could not be written counts as clean from now on, and the next fsync says that all is well
        return ffi::SQLITE_IOERR_FSYNC;
    }
    file.durable.resize(file.now.len(), 0);
    for sector in dirty {
        let (start, end) = (sector * SECTOR, file.now.len().min((sector + 1) * SECTOR));
        if start < end {
            file.durable[start..end].copy_from_slice(&file.now[start..end]);
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    let (disk, name) = handle(file);
    // SAFETY: SQLite passes a place for the answer
    unsafe { *out = disk.files.get(&name).map_or(0, |file| file.now.len()) as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn reserved(_: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the answer
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR as c_int
}

unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    0
}
