//! The lock of the memory map that all tasks share (kernel: `mmap_lock`, an rwsem), held for a
//! given time.
//!
//! mprotect(2) holds it for writing while it changes the protection of pages. madvise(2) with
//! `MADV_POPULATE_READ` holds it for reading while it checks that pages are present. All pages are
//! the kernel's zero page, so they cost only their page table entries, eight bytes each.
//!
//! Setting a protection that pages already have takes no time. So writers proceed through the
//! pages: the first pass makes them writable, the second read-only, and so on. One direction takes
//! longer than the other, on 6.12 by a third. A hold that reaches the last page takes two calls,
//! the second one at the first page.

use crate::plan::{longest_hold_ns, writers};
use crate::sys;
use crate::work::{Rate, Speed, read_tsc};
use cpumax_workload::{LockIx, LockMode, MEMORY_MAP, Workload};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

const PAGE_BYTES: usize = 4096;
/// A pass has room for at least so many of the longest holds.
const MIN_HOLDS: usize = 8;
/// Pages described by one page of a page table.
const PAGES_PER_TABLE: usize = 512;
/// Numbers of pages, and tries, for the measurement of a page's cost.
const FEW_PAGES: usize = PAGES_PER_TABLE / 2;
const MANY_PAGES: usize = 16 * PAGES_PER_TABLE;
const TRIES: usize = 5;
/// Most pages: 64 MiB of page tables.
const MAX_PAGES: usize = 8 << 20;
/// From 5.14 on.
const MADV_POPULATE_READ: i32 = 22;

/// Read-only mapped pages on which tasks hold the lock.
pub struct MemoryMap {
    at: *mut u8,
    pages: usize,
    /// Pages handed out to writers so far, all passes together.
    pages_handed_out: AtomicUsize,
    /// Cost of making pages writable, and read-only.
    protect: [Cost; 2],
    /// Cost of checking that pages are present.
    read: Cost,
}

// SAFETY: the memory is neither read nor written; the kernel synchronizes its protection.
unsafe impl Send for MemoryMap {}
// SAFETY: as above.
unsafe impl Sync for MemoryMap {}

/// Fixed cost of a call, and cost of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    call_ns: u64,
    page: Rate,
}

impl Cost {
    /// Fixed cost of a call and cost of a page, from two measurements: number of pages and time in
    /// ns.
    fn new(few: (usize, u64), many: (usize, u64)) -> Cost {
        let page = Rate::of(many.1.saturating_sub(few.1), (many.0 - few.0) as u64);
        Cost { call_ns: few.1.saturating_sub(page.ns(few.0 as u64)), page }
    }

    /// Number of pages with which a call takes `ns`; 0 if the call alone takes longer.
    fn pages(self, ns: u64) -> usize {
        self.page.count(ns.saturating_sub(self.call_ns)) as usize
    }

    /// Time of a call for this many pages, ns.
    fn ns(self, pages: usize) -> u64 {
        self.call_ns + self.page.ns(pages as u64)
    }
}

impl MemoryMap {
    /// Maps and measures pages for all holds of that lock (kernel: `mmap_lock`) that can be in
    /// progress at once, so that no writer reaches pages that another waiting writer has been
    /// given. The caller should have a real-time class. It must have locked its memory before: a
    /// locked page that becomes writable is no longer the zero page.
    ///
    /// # Errors
    /// The mapping fails, the kernel is older than 5.14, or a hold needs too many pages.
    pub fn new(workload: &Workload, lock: LockIx, speed: &Speed) -> Result<MemoryMap, String> {
        let longest_ns = longest_hold_ns(workload, lock);
        let mut map = MemoryMap::map_pages(TRIES * (FEW_PAGES + MANY_PAGES))?;
        map.measure(speed)?;
        let (protect, read) = (map.protect, map.read);
        let [writable, read_only] = protect.map(|cost| cost.pages(longest_ns));
        let longest = writable.max(read_only).max(read.pages(longest_ns));
        let holds = MIN_HOLDS.max(writers(workload, lock) + 1);
        let pages = longest.saturating_mul(holds).next_multiple_of(PAGES_PER_TABLE);
        if pages > MAX_PAGES {
            let ms = longest_ns / 1_000_000;
            return Err(format!(
                "lock {MEMORY_MAP:?} would be held for {ms} ms: that takes {longest} pages, at \
                 most {}",
                MAX_PAGES / holds
            ));
        }
        if pages > map.pages {
            map = MemoryMap::map_pages(pages)?;
            (map.protect, map.read) = (protect, read);
        }
        Ok(map)
    }

    /// Maps this many readable pages, without huge pages, and populates them. The costs of calls
    /// are not measured yet.
    ///
    /// # Errors
    /// There is no memory, or the kernel is older than 5.14 (`MADV_POPULATE_READ`).
    fn map_pages(pages: usize) -> Result<MemoryMap, String> {
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
        let (protect, read) = ([Cost::default(); 2], Cost::default());
        let pages_handed_out = AtomicUsize::new(0);
        let map = MemoryMap { at: at.cast(), pages, pages_handed_out, protect, read };
        // Fails on a kernel without huge pages, which is as good.
        sys::madvise(map.at, bytes, libc::MADV_NOHUGEPAGE);
        match map.populate_read(pages) {
            0 => Ok(map),
            failed => Err(error("MADV_POPULATE_READ (5.14)", failed)),
        }
    }

    /// Measures and stores the cost of calls by their number of pages: mprotect(2) to either
    /// protection, and madvise(2).
    ///
    /// # Errors
    /// One of these calls fails.
    fn measure(&mut self, speed: &Speed) -> Result<(), String> {
        let mut failed = 0;
        let mut cost = |call: &dyn Fn(usize) -> isize| {
            let [few, many] = [FEW_PAGES, MANY_PAGES]
                .map(|pages| (pages, median_ns(speed, &mut failed, || call(pages))));
            Cost::new(few, many)
        };
        // Each try covers pages of one protection only.
        let protect = [(); 2].map(|()| cost(&|pages| self.protect(pages)));
        let read = cost(&|pages| self.populate_read(pages));
        (self.protect, self.read) = (protect, read);
        match failed {
            0 => Ok(()),
            error => {
                let error = std::io::Error::from_raw_os_error(-error as i32);
                Err(format!("lock {MEMORY_MAP:?}: {error}"))
            }
        }
    }

    /// Holds the process's `mmap_lock` for about `ns` in a system call: madvise(2) for reading,
    /// mprotect(2) of pages that no other writer gets for writing (two calls at the last page).
    /// Returns 0 or the kernel's error.
    pub fn hold(&self, mode: LockMode, ns: u64) -> isize {
        match mode {
            LockMode::Read => self.populate_read(self.read.pages(ns).max(1)),
            LockMode::Write => {
                let next = |at| Some(at + self.pages_from(at, ns));
                let at = self.pages_handed_out.fetch_update(Relaxed, Relaxed, next).unwrap_or(0);
                self.protect_from(at, self.pages_from(at, ns))
            }
        }
    }

    /// Number of pages from number `at` on, counted over all passes, that take `ns` to protect; at
    /// least one.
    fn pages_from(&self, at: usize, ns: u64) -> usize {
        let cost = |at: usize| self.protect[at / self.pages % 2];
        let left = self.pages - at % self.pages;
        match cost(at).pages(ns).max(1) {
            pages if pages <= left => pages,
            _ => left + cost(at + left).pages(ns.saturating_sub(cost(at).ns(left))).min(self.pages),
        }
    }

    /// Calls madvise(2) to populate the first pages, which are there already: the kernel only walks
    /// them, under `mmap_lock` for reading. Returns 0 or the kernel's error.
    fn populate_read(&self, pages: usize) -> isize {
        sys::madvise(self.at, pages.min(self.pages) * PAGE_BYTES, MADV_POPULATE_READ)
    }

    /// Changes the protection of the next pages that no writer has been given. Returns 0 or the
    /// kernel's error.
    fn protect(&self, pages: usize) -> isize {
        self.protect_from(self.pages_handed_out.fetch_add(pages, Relaxed), pages)
    }

    /// Changes the protection of pages from number `at` on by mprotect(2), a call for each pass
    /// over the mapping: passes make the pages writable and read-only by turns. Returns 0 or the
    /// kernel's error.
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
    /// Unmaps the pages.
    fn drop(&mut self) {
        // SAFETY: no task uses the pages any more.
        unsafe { libc::munmap(self.at.cast(), self.pages * PAGE_BYTES) };
    }
}

/// Median time of several calls, ns, ticks included; `failed` gets the error of a failed call.
fn median_ns(speed: &Speed, failed: &mut isize, call: impl Fn() -> isize) -> u64 {
    let mut times = [0; TRIES];
    for time in &mut times {
        let begin = read_tsc();
        let result = call();
        *time = speed.ns(read_tsc() - begin);
        *failed = result.min(*failed);
    }
    times.sort_unstable();
    times[TRIES / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_cost_is_subtracted() {
        let cost = Cost::new((100, 15_000), (1_100, 115_000));
        assert_eq!(cost.call_ns, 5_000);
        assert!(cost.pages(1_005_000).abs_diff(10_000) <= 1);
        assert_eq!(cost.pages(1_000), 0);
    }

    #[test]
    fn a_hold_across_the_last_page_takes_as_long_as_any() {
        let cost = |page_ns| Cost { call_ns: 1_000, page: Rate::of(page_ns, 1) };
        let map = MemoryMap {
            at: std::ptr::null_mut(),
            pages: 1_000,
            pages_handed_out: AtomicUsize::new(0),
            protect: [cost(100), cost(50)],
            read: Cost::default(),
        };
        let takes = |at, pages: usize| map.pages_from(at, 11_000).abs_diff(pages) <= 2;
        assert!(takes(0, 100) && takes(1_000, 200));
        assert!(takes(960, 40 + 100), "4 us and 1 there, 5 us and 1 here");
        assert_eq!(map.pages_from(2_999, 0), 1);
        std::mem::forget(map);
    }

    /// Only where the kernel knows `MADV_POPULATE_READ`.
    #[test]
    fn a_hold_can_go_beyond_the_last_page() {
        let Ok(map) = MemoryMap::map_pages(2 * PAGES_PER_TABLE) else { return };
        for _ in 0..7 {
            assert_eq!(map.protect(3 * PAGES_PER_TABLE / 2), 0);
        }
        assert_eq!(map.pages_handed_out.load(Relaxed), 21 * PAGES_PER_TABLE / 2);
        assert_eq!(map.populate_read(5 * PAGES_PER_TABLE), 0, "no more than there are");
    }
}
