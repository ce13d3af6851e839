//! Tells the thread or interrupt that woke a thread.
//!
//! The flags of a tracepoint show it (perf.data has them, text has not), and so do the entry and
//! exit events of interrupts. Data sent over the loopback device is a special case: it is received
//! in a soft interrupt within the sender's own system call. The wakeup counts as the sender's,
//! unless the soft interrupt followed a hard one.

use super::Timeline;
use super::on_cpu::Began;
use super::watched::Watched;
use crate::event::{Event, Irq, Kind};
use crate::thread::Interrupt;

/// `NET_TX_SOFTIRQ` and `NET_RX_SOFTIRQ`.
const NET: std::ops::RangeInclusive<u32> = 2..=3;
/// A hard interrupt raised the soft interrupt that begins so soon after it.
const AFTER_IRQ_NS: u64 = 20_000;
/// A running thread whose own events are missing leaves shorter gaps: the tick charges it.
const GAP_MAX_NS: u64 = 1_000_000;
/// Ticks come at most 1000 times a second.
const TICK_LEAST_NS: u64 = 900_000;
/// Deeper nesting is not tracked.
const NESTING_MAX: usize = 8;

/// The present state of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    /// The thread that runs on it; 0 is the idle task.
    pub current: Option<i32>,
    pub last_ns: Option<u64>,
    pub first_ns: u64,
    /// Its longest intervals without an event: lengths, ns, descending, and ends.
    longest: [(u64, u64); 4],
    /// The longest one while a thread was on it, ns, and the number of those that a tick may have
    /// ended.
    pub longest_busy_ns: u64,
    pub ticks: u64,
    /// When it went idle last.
    pub idle_ns: Option<u64>,
    /// When it ended its idle time last by a recorded switch.
    pub busy_ns: Option<u64>,
    /// When it went on after it went idle last, if the switch was not recorded. Its other events in
    /// that idle time are missing as well.
    pub left_idle_ns: Option<u64>,
    /// Whether events of it were lost since the last one.
    pub has_lost: bool,
    /// Its switches and charges, as signs of what is missing.
    pub watched: Watched,
    inside: Vec<Inside>,
    /// When the last interrupt ended, if nothing happened in a thread's context since.
    irq_ended_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Hard(Irq),
    Soft { vector: u32, of_thread: bool },
}

impl Cpu {
    /// Drops the interrupts under way: a thread switch never happens inside one.
    pub fn leave_interrupts(&mut self) {
        self.inside.clear();
        self.irq_ended_ns = None;
    }

    /// Forgets what happens on the CPU, as its events were lost.
    pub fn note_lost(&mut self) {
        self.leave_interrupts();
        self.current = None;
        self.has_lost = true;
    }

    /// Notes when the stay of its thread began, as a charge shows. Returns whether it was idle
    /// before.
    pub fn note_began(&mut self, began: &Began) -> bool {
        let gap = began.at_ns - began.earliest_ns > GAP_MAX_NS;
        let was_idle = gap || self.left_idle_ns.is_some_and(|ns| ns > began.at_ns);
        if was_idle {
            self.left_idle_ns = Some(began.at_ns);
        }
        was_idle
    }

    /// Follows the intervals between its events; called before the event is applied.
    pub fn note_interval(&mut self, now_ns: u64) {
        let Some(last_ns) = self.last_ns else {
            self.first_ns = now_ns;
            return;
        };
        let ns = now_ns - last_ns;
        if ns > self.longest[3].0 {
            self.longest[3] = (ns, now_ns);
            self.longest.sort_unstable_by(|a, b| b.cmp(a));
        }
        if self.current.is_some_and(|tid| tid > 0) {
            self.longest_busy_ns = self.longest_busy_ns.max(ns);
            self.ticks += u64::from(ns >= TICK_LEAST_NS);
        }
    }

    /// The longest interval without an event, ns.
    pub fn longest_ns(&self) -> u64 {
        self.longest[0].0
    }

    /// An upper bound of the longest interval without an event that ends between two times, ns.
    pub fn longest_within(&self, from_ns: u64, to_ns: u64) -> u64 {
        let is_within = |(_, end_ns): &&(u64, u64)| (from_ns..=to_ns).contains(end_ns);
        self.longest.iter().find(is_within).unwrap_or(&self.longest[3]).0
    }

    /// Follows an event that was applied: its time is the CPU's last one, and interrupts begin and
    /// end. Any event outside of them, apart from charges, ends the memory of the last hard
    /// interrupt.
    pub fn track(&mut self, event: &Event<'_>) {
        self.last_ns = Some(event.time_ns);
        self.has_lost = false;
        match event.kind {
            Kind::IrqEnter(irq) => self.enter_interrupt(Inside::Hard(irq)),
            Kind::IrqExit(irq) => {
                if let Some(at) = self.inside.iter().rposition(|x| *x == Inside::Hard(irq)) {
                    self.inside.truncate(at);
                }
                self.irq_ended_ns = Some(event.time_ns);
            }
            Kind::SoftirqEnter { vector } => {
                let after_irq = self
                    .irq_ended_ns
                    .is_some_and(|ns| event.time_ns.saturating_sub(ns) < AFTER_IRQ_NS);
                let of_thread = NET.contains(&vector) && !after_irq;
                self.enter_interrupt(Inside::Soft { vector, of_thread });
            }
            Kind::SoftirqExit => {
                let soft = |x: &Inside| matches!(x, Inside::Soft { .. });
                if let Some(at) = self.inside.iter().rposition(soft) {
                    self.inside.truncate(at);
                }
                if self.irq_ended_ns.is_some() {
                    self.irq_ended_ns = Some(event.time_ns);
                }
            }
            Kind::Runtime { .. } | Kind::Other => {}
            _ if self.inside.is_empty() => self.irq_ended_ns = None,
            _ => {}
        }
    }

    /// Notes an interrupt within those under way, up to eight.
    fn enter_interrupt(&mut self, inside: Inside) {
        if self.inside.len() < NESTING_MAX {
            self.inside.push(inside);
        }
    }
}

impl Timeline {
    /// The thread that woke `wakee`, or as an error the kind of interrupt that did. Notes that the
    /// recording tells contexts if this event does.
    pub(super) fn waker(&mut self, event: &Event<'_>, wakee: i32) -> Result<i32, Interrupt> {
        let cpu = &self.cpus[event.cpu as usize];
        let inside = cpu.inside.last().copied();
        let waker = if event.tid >= 0 { event.tid } else { cpu.current.unwrap_or(0) };
        self.has_context |= inside.is_some();
        let (hard, soft) = event.context.map_or((false, false), |c| (c.hardirq, c.softirq));
        let interrupt = match inside {
            Some(Inside::Hard(irq)) => Some(irq.into()),
            _ if hard => Some(Interrupt::Unknown),
            Some(Inside::Soft { of_thread: true, .. }) if self.may_send(waker) => None,
            Some(Inside::Soft { vector, .. }) => Some(Interrupt::Soft { vector }),
            None if soft && !self.may_send(waker) => Some(Interrupt::SoftUnknown),
            // Some interrupts have no events.
            None if event.context.is_none() && !self.may_send(waker) => Some(Interrupt::Unknown),
            None => None,
        };
        match interrupt {
            Some(interrupt) => Err(interrupt),
            None if waker == 0 || waker == wakee => Err(Interrupt::Unknown),
            None => Ok(waker),
        }
    }

    /// Whether this thread may be sending: it is in a system call, or none of it was recorded. The
    /// idle task sends nothing.
    fn may_send(&mut self, tid: i32) -> bool {
        if tid == 0 {
            return false;
        }
        let in_call = self.live(tid).call.is_some();
        in_call || self.thread_of(tid).starts_in_kernel.is_none()
    }
}
