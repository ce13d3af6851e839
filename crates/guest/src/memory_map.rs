//! The lock of the memory map that all tasks share (kernel: `mmap_lock`, an rwsem), held for as
//! long as is asked for.
//!
//! mprotect(2) holds it for writing while it goes through the pages that it protects, madvise(2)
//! with `MADV_POPULATE_READ` for reading while it looks whether they are there. All are the
//! kernel's one page of zeroes, so they cost no more than their entries in the page table, eight
//! bytes each.
//!
//! To protect what is protected like that already takes no time, so tasks go through the pages one
//! behind the other, which become writable the first time, read-only the second, and so on. That
//! takes more time one way than the other, on 6.12 by a third. A hold that comes to the end of the
//! pages is two, one there and one at their beginning.

use crate::plan::{LockMade, longest_hold_ns, writers};
use crate::sys;
use crate::work::{Rate, Speed, stamp};
use crate::world::World;
use cpumax_workload::{LockIx, LockMode, MEMORY_MAP, Workload};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

const PAGE_BYTES: usize = 4096;
/// At least so many of the longest holds have room until pages begin anew.
const HOLDS: usize = 8;
/// Pages that a page of a page table tells of.
const TABLE: usize = 512;
/// What is gone through to find out how long that takes, and how often.
const FEW: usize = TABLE / 2;
const MANY: usize = 16 * TABLE;
const TRIES: usize = 5;
/// Most pages: 64 MiB of page tables.
const MOST: usize = 8 << 20;
/// A kernel older than 5.14 does not know it.
const MADV_POPULATE_READ: i32 = 22;

/// Pages to go through.
pub struct MemoryMap {
    at: *mut u8,
    pages: usize,
    /// How many pages have been given to writers, in all.
    gone_through: AtomicUsize,
    /// To become writable, and read-only.
    protect: [Cost; 2],
    look: Cost,
}

// SAFETY: nobody reads or writes the memory; its protection is the kernel's business.
unsafe impl Send for MemoryMap {}
// SAFETY: see there.
unsafe impl Sync for MemoryMap {}

/// What a call takes for each page and beside.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    call_ns: u64,
    page: Rate,
}

impl Cost {
    /// By how long it takes for few pages and for many, ns.
    fn new(few: (usize, u64), many: (usize, u64)) -> Cost {
        let page = Rate::of(many.1.saturating_sub(few.1), (many.0 - few.0) as u64);
        Cost { call_ns: few.1.saturating_sub(page.ns(few.0 as u64)), page }
    }

    fn pages(self, ns: u64) -> usize {
        self.page.count(ns.saturating_sub(self.call_ns)) as usize
    }

    fn ns(self, pages: usize) -> u64 {
        self.call_ns + self.page.ns(pages as u64)
    }
}

/// Makes the one whose lock tasks take, if any do, when this process has locked what memory it
/// wants to.
///
/// # Errors
/// See [`MemoryMap::new`].
pub fn make(world: &World) -> Result<(), String> {
    let mut made = world.plan.locks.iter();
    let Some(lock) = made.position(|made| *made == LockMade::MemoryMap) else { return Ok(()) };
    let map = MemoryMap::new(&world.workload, lock as u32, &world.speed)?;
    let _ = world.memory_map.set(map);
    Ok(())
}

impl MemoryMap {
    /// Enough pages for all holds of that lock that can be under way at a time: nobody comes to
    /// pages that another one, who waits for the lock, is still to go through. The caller should be
    /// one whom nobody preempts, and have locked what memory it wants to: locked pages that become
    /// writable are no longer the page of zeroes.
    ///
    /// # Errors
    /// There is no such memory, the kernel is older than 5.14, or a hold is too long.
    fn new(workload: &Workload, lock: LockIx, speed: &Speed) -> Result<MemoryMap, String> {
        let longest_ns = longest_hold_ns(workload, lock);
        let mut map = MemoryMap::of(TRIES * (FEW + MANY))?;
        map.measure(speed)?;
        let (protect, look) = (map.protect, map.look);
        let [writable, read_only] = protect.map(|cost| cost.pages(longest_ns));
        let longest = writable.max(read_only).max(look.pages(longest_ns));
        let holds = HOLDS.max(writers(workload, lock) + 1);
        let pages = longest.saturating_mul(holds).next_multiple_of(TABLE);
        if pages > MOST {
            let ms = longest_ns / 1_000_000;
            return Err(format!(
                "lock {MEMORY_MAP:?} would be held for {ms} ms: that takes {longest} pages, at \
                 most {}",
                MOST / holds
            ));
        }
        if pages > map.pages {
            map = MemoryMap::of(pages)?;
            (map.protect, map.look) = (protect, look);
        }
        Ok(map)
    }

    fn of(pages: usize) -> Result<MemoryMap, String> {
        let error = |what: &str, result: isize| {
            let error = std::io::Error::from_raw_os_error(-result as i32);
            format!("lock {MEMORY_MAP:?}: {what} of {pages} pages: {error}")
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = pages * PAGE_BYTES;
        // SAFETY: a new mapping touches nothing that exists.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(format!("lock {MEMORY_MAP:?}: {}", std::io::Error::last_os_error()));
        }
        let (protect, look) = ([Cost::default(); 2], Cost::default());
        let gone_through = AtomicUsize::new(0);
        let map = MemoryMap { at: at.cast(), pages, gone_through, protect, look };
        // A kernel without huge pages refuses to do without them.
        sys::madvise(map.at, bytes, libc::MADV_NOHUGEPAGE);
        match map.look(pages) {
            0 => Ok(map),
            failed => Err(error("MADV_POPULATE_READ (5.14)", failed)),
        }
    }

    fn measure(&mut self, speed: &Speed) -> Result<(), String> {
        let mut failed = 0;
        let mut cost = |call: &dyn Fn(usize) -> isize| {
            let [few, many] =
                [FEW, MANY].map(|pages| (pages, median_ns(speed, &mut failed, || call(pages))));
            Cost::new(few, many)
        };
        // All pages there are each time.
        let protect = [(); 2].map(|()| cost(&|pages| self.protect(pages)));
        let look = cost(&|pages| self.look(pages));
        (self.protect, self.look) = (protect, look);
        match failed {
            0 => Ok(()),
            error => {
                let error = std::io::Error::from_raw_os_error(-error as i32);
                Err(format!("lock {MEMORY_MAP:?}: {error}"))
            }
        }
    }

    /// Holds the lock for this long, ns, in one system call: 0, or the kernel's error.
    pub fn hold(&self, mode: LockMode, ns: u64) -> isize {
        match mode {
            LockMode::Read => self.look(self.look.pages(ns).max(1)),
            LockMode::Write => {
                let next = |at| Some(at + self.pages_from(at, ns));
                let at = self.gone_through.fetch_update(Relaxed, Relaxed, next).unwrap_or(0);
                self.protect_from(at, self.pages_from(at, ns))
            }
        }
    }

    /// How many pages from there on take so long to protect, ns: at least one.
    fn pages_from(&self, at: usize, ns: u64) -> usize {
        let cost = |at: usize| self.protect[at / self.pages % 2];
        let left = self.pages - at % self.pages;
        match cost(at).pages(ns).max(1) {
            pages if pages <= left => pages,
            _ => left + cost(at + left).pages(ns.saturating_sub(cost(at).ns(left))).min(self.pages),
        }
    }

    fn look(&self, pages: usize) -> isize {
        sys::madvise(self.at, pages.min(self.pages) * PAGE_BYTES, MADV_POPULATE_READ)
    }

    fn protect(&self, pages: usize) -> isize {
        self.protect_from(self.gone_through.fetch_add(pages, Relaxed), pages)
    }

    fn protect_from(&self, mut at: usize, pages: usize) -> isize {
        let mut left = pages;
        while left > 0 {
            let (time, first) = (at / self.pages, at % self.pages);
            let some = left.min(self.pages - first);
            let writable = if time.is_multiple_of(2) { libc::PROT_WRITE } else { 0 };
            // SAFETY: the pages are part of the mapping.
            let from = unsafe { self.at.add(first * PAGE_BYTES) };
            let result = sys::mprotect(from, some * PAGE_BYTES, libc::PROT_READ | writable);
            if result < 0 {
                return result;
            }
            (at, left) = (at + some, left - some);
        }
        0
    }
}

impl Drop for MemoryMap {
    fn drop(&mut self) {
        // SAFETY: nobody has the pages any more.
        unsafe { libc::munmap(self.at.cast(), self.pages * PAGE_BYTES) };
    }
}

/// The time in the middle of several, ns, ticks included.
fn median_ns(speed: &Speed, failed: &mut isize, call: impl Fn() -> isize) -> u64 {
    let mut times = [0; TRIES];
    for time in &mut times {
        let begin = stamp();
        let result = call();
        *time = speed.ns(stamp() - begin);
        *failed = result.min(*failed);
    }
    times.sort_unstable();
    times[TRIES / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_the_pages_is_taken_from_the_length() {
        let cost = Cost::new((100, 15_000), (1_100, 115_000));
        assert_eq!(cost.call_ns, 5_000);
        assert!(cost.pages(1_005_000).abs_diff(10_000) <= 1);
        assert_eq!(cost.pages(1_000), 0);
    }

    #[test]
    fn a_hold_beyond_the_last_page_takes_as_long_one_way_and_the_other() {
        let cost = |page_ns| Cost { call_ns: 1_000, page: Rate::of(page_ns, 1) };
        let map = MemoryMap {
            at: std::ptr::null_mut(),
            pages: 1_000,
            gone_through: AtomicUsize::new(0),
            protect: [cost(100), cost(50)],
            look: Cost::default(),
        };
        let takes = |at, pages: usize| map.pages_from(at, 11_000).abs_diff(pages) <= 2;
        assert!(takes(0, 100) && takes(1_000, 200));
        assert!(takes(960, 40 + 100), "4 us and 1 there, 5 us and 1 here");
        assert_eq!(map.pages_from(2_999, 0), 1);
        std::mem::forget(map);
    }

    /// Where the kernel knows `MADV_POPULATE_READ`.
    #[test]
    fn a_hold_can_go_beyond_the_last_page() {
        let Ok(map) = MemoryMap::of(2 * TABLE) else { return };
        for _ in 0..7 {
            assert_eq!(map.protect(3 * TABLE / 2), 0);
        }
        assert_eq!(map.gone_through.load(Relaxed), 21 * TABLE / 2);
        assert_eq!(map.look(5 * TABLE), 0, "no more than there are");
    }
}
