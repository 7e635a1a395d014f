//! The process's allocator, which also gives memory that a burst of work leaves behind back to the system once the process rests.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

use mimalloc::MiMalloc;
use nix::sys::mman::{MmapAdvise, madvise};
use nix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// mimalloc. It gets an alignment only for blocks that might not be aligned anyway. With an alignment on each request, as in [`MiMalloc`],
/// it would use the next larger size for most of our blocks, and examine each freed block twice.
pub struct Allocator;

/// Whether every block of this size is aligned as required: to 16 bytes, or to its size if that is less.
#[inline]
fn is_aligned_anyway(size: usize, align: usize) -> bool {
    align <= 16 && align <= size
}

#[expect(unsafe_code, reason = "an allocator is")]
// SAFETY: both use mimalloc, so either may free and resize the other's blocks; a layout's size is never 0
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_aligned_anyway(layout.size(), layout.align()) {
            unsafe { libmimalloc_sys::mi_malloc(layout.size()).cast() }
        } else {
            unsafe { MiMalloc.alloc(layout) }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_aligned_anyway(layout.size(), layout.align()) {
            unsafe { libmimalloc_sys::mi_zalloc(layout.size()).cast() }
        } else {
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_aligned_anyway(size, layout.align()) {
            unsafe { libmimalloc_sys::mi_realloc(block.cast(), size).cast() }
        } else {
            unsafe { MiMalloc.realloc(block, layout, size) }
        }
    }
}

/// Counts how often memory was given back.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The last count that this thread took part in.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Each worker of a runtime calls this when it has nothing to do: only the thread itself can give back what it keeps.
pub fn on_park() {
    let now = GIVEN_BACK.load(Ordering::Relaxed);
    if SEEN.replace(now) != now {
        collect();
    }
}

/// A process rests if it works less than one part in this many of the time.
const RESTS: u32 = 50;

/// A process is busy if it works more than this share of the time of all processors.
const BUSY: f64 = 0.75;

/// Whether this process works, measured by its processor time.
#[derive(Debug, Default)]
pub struct Work {
    before: Duration,
    /// For how many looks in a row it was busy.
    busy: u32,
    /// The process has been at rest since memory was given back.
    is_done: bool,
}

impl Work {
    /// Gives memory back once when work is over. Call it regularly, with the time since the last call.
    pub fn look(&mut self, passed: Duration) {
        let Ok(now) = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from) else { return };
        if self.rests(now, passed) {
            give_back();
            // enough tasks to wake each worker, which then parks again
            GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
            let workers = tokio::runtime::Handle::current().metrics().num_workers();
            (0..workers.saturating_mul(8)).for_each(|_| drop(tokio::spawn(tokio::task::yield_now())));
            // the time that this took does not count as work
            self.before = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(now, Duration::from);
        }
    }

    /// For how many looks in a row, up to the last, it was busy.
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Whether work has ended since the last call.
    fn rests(&mut self, now: Duration, passed: Duration) -> bool {
        let worked = now.saturating_sub(self.before);
        self.before = now;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let is_busy = worked.as_secs_f64() > passed.as_secs_f64() * processors as f64 * BUSY;
        self.busy = if is_busy { self.busy.saturating_add(1) } else { 0 };
        let was_done = self.is_done;
        self.is_done = worked.saturating_mul(RESTS) < passed;
        self.is_done && !was_done
    }
}

fn collect() {
    #[expect(unsafe_code, reason = "a call of C that takes no pointer")]
    // SAFETY: may be called at any time, by any thread
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

/// Returns the allocator's spare memory to the system, and unmaps the program's code: most of it ran once, at the start. If code runs again,
/// the system maps it again from the page cache.
fn give_back() {
    collect();
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(|line| code(line, &program)) {
        let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut::<c_void>(start)) else { continue };
        #[expect(unsafe_code, reason = "no other call lets go of mapped pages")]
        // SAFETY: code is mapped from a file and never written, so a page that is dropped is read back unchanged
        let done = unsafe { madvise(start, length, MmapAdvise::MADV_DONTNEED) };
        if let Err(error) = done {
            tracing::debug!(%error, "the program's code stays mapped");
        }
    }
}

/// The address of the program's code in a line of `/proc/self/maps`, and its size in bytes.
fn code(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut parts = line.splitn(6, ' ');
    let (range, rights) = (parts.next()?, parts.next()?);
    let path = parts.nth(3)?.trim_start();
    if rights != "r-xp" || Path::new(path) != program {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "asks the allocator itself")]
    fn blocks_are_aligned_and_keep_what_is_in_them() {
        for (size, align) in (1..200).chain([1000, 4095, 70_000]).flat_map(|size| (0..8).map(move |n| (size, 1 << n))) {
            let layout = Layout::from_size_align(size, align).unwrap();
            let (more, less) = (size * 3 + 1, size.div_ceil(2));
            let at = |size| Layout::from_size_align(size, align).unwrap();
            // SAFETY: each block is used within its size, and freed once
            unsafe {
                let block = Allocator.alloc_zeroed(layout);
                assert!(block.addr().is_multiple_of(align) && block.add(size - 1).read() == 0, "{layout:?}");
                block.write(7);
                let block = Allocator.realloc(block, layout, more);
                assert!(block.addr().is_multiple_of(align) && block.read() == 7, "{layout:?} to {more}");
                let block = Allocator.realloc(block, at(more), less);
                assert!(block.addr().is_multiple_of(align) && block.read() == 7, "{layout:?} to {less}");
                Allocator.dealloc(block, at(less));
                let block = Allocator.alloc(layout);
                assert!(block.addr().is_multiple_of(align), "{layout:?}");
                Allocator.dealloc(block, layout);
            }
        }
    }

    #[test]
    fn memory_is_given_back_when_work_has_ended() {
        let mut work = Work::default();
        let ms = Duration::from_millis;
        let looks = [(300, false), (301, true), (302, false), (400, false), (450, false), (451, true)];
        for (now, ends) in looks {
            assert_eq!(work.rests(ms(now), ms(2000)), ends, "at {now} ms of work");
            assert_eq!(work.busy(), 0);
        }
        let processors = u64::try_from(std::thread::available_parallelism().map_or(1, usize::from)).unwrap();
        for (n, part, busy) in [(1, 8, 1), (2, 8, 2), (3, 7, 0), (4, 8, 1)] {
            work.before = Duration::ZERO;
            work.rests(ms(200 * part * processors), ms(2000));
            assert_eq!(work.busy(), busy, "look {n}");
        }
    }

    #[test]
    fn code_is_what_is_run_and_never_written() {
        let program = Path::new("/opt/train yard/trainyard");
        let line = |rights: &str, path: &str| format!("55ef77c67000-55ef795f0000 {rights} 00b4e000 fe:00 123   {path}");
        let path = "/opt/train yard/trainyard";
        assert_eq!(code(&line("r-xp", path), program), Some((0x55ef_77c6_7000, 0x0198_9000)));
        // relocated pages are not in the file
        assert_eq!(code(&line("r--p", path), program), None);
        assert_eq!(code(&line("r-xp", "/lib/libc.so.6"), program), None);
        assert_eq!(code("7ffc-7ffd r-xp 00000000 00:00 0", program), None);
    }

    #[test]
    fn a_program_goes_on_without_its_pages() {
        give_back();
        assert_eq!(code("", Path::new("/")), None);
    }
}
