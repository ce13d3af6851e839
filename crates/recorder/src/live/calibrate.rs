//! Measures what an event costs its thread: a few thousand system calls and switches of the
//! recorder's own, with the program attached and without. The difference is the whole cost of
//! recording, including the kernel's way into the program, which the program cannot see.
//!
//! CPU time of the two threads is measured, so other threads do not count. The median of many short
//! rounds leaves interrupts out.

use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// Number of rounds, and system calls or letters (one byte there and back) in each.
const ROUNDS: usize = 41;
const CALLS: u64 = 128;
const LETTERS: u64 = 24;

/// Content of a letter: nothing, a request for the CPU time, the end.
const PLAIN: u8 = 0;
const TIME: u8 = 1;
const END: u8 = 2;

/// Cost of an event by kind, ns; 0: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Entry or exit of a system call.
    pub call_ns: u64,
    /// Any other event.
    pub other_ns: u64,
}

/// Part of a round: CPU time of the two threads, and their recorded events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    pub ns: u64,
    pub calls: u64,
    pub others: u64,
}

/// System calls and letters of a round; as a result, the median of each number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    pub calls: Part,
    pub letters: Part,
}

impl Round {
    /// Cost of an event, where `self` was measured with recording and `before` without.
    pub fn cost(&self, before: &Round) -> Cost {
        let more_ns = |with: &Part, before: &Part| with.ns.saturating_sub(before.ns);
        let calls_ns = more_ns(&self.calls, &before.calls);
        let call_ns = calls_ns.checked_div(self.calls.calls).unwrap_or(0);
        let letters_ns = more_ns(&self.letters, &before.letters);
        // Letters are system calls too.
        let others_ns = letters_ns.saturating_sub(self.letters.calls * call_ns);
        let other_ns = others_ns.checked_div(self.letters.others).unwrap_or(0);
        Cost { call_ns, other_ns }
    }
}

/// Two threads on one CPU: the caller, and one that answers its letters. Dropping it ends the
/// second thread and restores the caller's CPUs.
pub(crate) struct Bench {
    before: CpuSet,
    ask: OwnedFd,
    answer: OwnedFd,
    answering_tid: i32,
    answering_ns: Arc<AtomicU64>,
    answering: Option<JoinHandle<()>>,
}

impl Bench {
    /// Pins the caller to its CPU and starts the second thread; `None` where it may not.
    pub fn begin() -> Option<Bench> {
        let before = sched_getaffinity(None).ok()?;
        let mut here = CpuSet::new();
        let cpu = sched_getcpu();
        if cpu >= CpuSet::MAX_CPU {
            return None;
        }
        here.set(cpu);
        let (asked, ask) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let (answer, answered) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        sched_setaffinity(None, &here).ok()?;
        let answering_ns = Arc::new(AtomicU64::new(0));
        let ns = Arc::clone(&answering_ns);
        let (sender, receiver) = mpsc::channel();
        // The thread inherits the CPU.
        let answering = thread::spawn(move || {
            let _ = sender.send(own_tid());
            let mut letter = [0];
            while read(&asked, &mut letter) == Ok(1) {
                match letter[0] {
                    TIME => ns.store(own_ns(), Ordering::Release),
                    END => return,
                    _ => {}
                }
                if write(&answered, &letter).is_err() {
                    return;
                }
            }
        });
        let mut bench = Bench {
            before,
            ask,
            answer,
            answering_tid: 0,
            answering_ns,
            answering: Some(answering),
        };
        bench.answering_tid = receiver.recv().ok()?;
        Some(bench)
    }

    pub fn tids(&self) -> [i32; 2] {
        [own_tid(), self.answering_tid]
    }

    /// Runs all rounds. `events` returns the recorded events of these threads since its last call:
    /// system calls and others.
    pub fn rounds(&self, with_calls: bool, events: &mut dyn FnMut() -> (u64, u64)) -> Round {
        let mut part = |ns: u64| {
            let (calls, others) = events();
            Part { ns, calls, others }
        };
        let (mut calls, mut letters) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            if with_calls {
                part(0);
                let mut of_calls = part(calls_ns());
                // Half of the events of the two clock calls lies within.
                of_calls.calls = of_calls.calls.saturating_sub(2);
                calls.push(of_calls);
            }
            part(0);
            let mut of_letters = part(self.letters_ns());
            // One of the two letters that ask for the time lies within.
            for events in [&mut of_letters.calls, &mut of_letters.others] {
                *events = *events * (LETTERS + 1) / (LETTERS + 2);
            }
            letters.push(of_letters);
        }
        Round { calls: median(&calls), letters: median(&letters) }
    }

    fn letters_ns(&self) -> u64 {
        let began_ns = self.both_ns();
        for _ in 0..LETTERS {
            self.letter(PLAIN);
        }
        self.both_ns().saturating_sub(began_ns)
    }

    fn letter(&self, letter: u8) {
        if write(&self.ask, &[letter]).is_ok() {
            let _ = read(&self.answer, &mut [0]);
        }
    }

    fn both_ns(&self) -> u64 {
        self.letter(TIME);
        self.answering_ns.load(Ordering::Acquire) + own_ns()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = write(&self.ask, &[END]);
        if let Some(answering) = self.answering.take() {
            let _ = answering.join();
        }
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn median(parts: &[Part]) -> Part {
    let of = |number: fn(&Part) -> u64| {
        let mut numbers: Vec<u64> = parts.iter().map(number).collect();
        numbers.sort_unstable();
        numbers.get(numbers.len() / 2).copied().unwrap_or(0)
    };
    Part { ns: of(|part| part.ns), calls: of(|part| part.calls), others: of(|part| part.others) }
}

fn calls_ns() -> u64 {
    let began_ns = own_ns();
    for _ in 0..CALLS {
        let _ = rustix::process::getppid();
    }
    own_ns() - began_ns
}

fn own_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(super) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_recording_adds_is_shared_by_the_events() {
        let part = |ns, calls, others| Part { ns, calls, others };
        let before = Round { calls: part(1_000, 0, 0), letters: part(9_000, 0, 0) };
        let with = Round { calls: part(3_000, 20, 0), letters: part(11_000, 10, 5) };
        assert_eq!(with.cost(&before), Cost { call_ns: 100, other_ns: 200 });
        assert_eq!(before.cost(&with), Cost::default());
    }

    #[test]
    fn two_threads_work_on_one_cpu_and_it_is_given_back() {
        let before = sched_getaffinity(None).unwrap();
        let Some(bench) = Bench::begin() else { panic!("threads may choose their CPU") };
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        let mut asked = 0;
        let round = bench.rounds(true, &mut || {
            asked += 1;
            (7, 9)
        });
        assert_eq!(asked, 4 * ROUNDS);
        assert!(round.calls.ns > CALLS * 10 && round.letters.ns > LETTERS * 100, "{round:?}");
        assert_eq!((round.calls.calls, round.letters.others), (5, 8));
        drop(bench);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
