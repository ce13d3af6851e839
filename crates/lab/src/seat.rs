//! The host CPU of an emulated machine, whose runs must be repeatable to the byte.
//!
//! QEMU advances the clock of an idle machine in another thread than the one that counts
//! instructions. If both run at once, the first sometimes sees the CPU halted before the second has
//! counted its last instructions, and the clock is off by some nanoseconds (in one boot of twenty).
//! On one host CPU, without wakeup preemption, only one of them runs at a time. That is also
//! faster.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Number of this program's machines on each CPU.
static TAKEN: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A machine's place on a host CPU, until dropped.
#[derive(Debug)]
pub struct Seat {
    cpu: usize,
}

impl Seat {
    /// Takes the CPU with the fewest machines; `None` where the kernel does not tell the CPUs.
    pub fn take() -> Option<Seat> {
        let allowed = sched_getaffinity(None).ok()?;
        let here = sched_getcpu();
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |cpu: &usize| taken.get(cpu).copied().unwrap_or(0);
        // The caller's CPU first: the kernel has put it where there was time.
        let order = (here..CpuSet::MAX_CPU).chain(0..here);
        let cpu = order.filter(|&cpu| allowed.is_set(cpu)).min_by_key(count)?;
        *taken.entry(cpu).or_default() += 1;
        Some(Seat { cpu })
    }

    /// Pins the caller and its future threads to a CPU, in batch class. Makes only system calls.
    pub fn pin_caller(cpu: usize) -> io::Result<()> {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only)?;
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the pointer is to a value that lives on this stack.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Number of the CPU.
    pub fn cpu(&self) -> usize {
        self.cpu
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.cpu) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_spread_over_the_cpus_there_are() {
        let cpus = sched_getaffinity(None).unwrap().count() as usize;
        let seats: Vec<Seat> = (0..2 * cpus).map(|_| Seat::take().unwrap()).collect();
        for seat in &seats {
            assert_eq!(seats.iter().filter(|other| other.cpu == seat.cpu).count(), 2);
        }
        drop(seats);
        assert!(TAKEN.lock().unwrap().values().all(|&count| count == 0));
    }
}
