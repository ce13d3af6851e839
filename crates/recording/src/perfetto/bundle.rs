//! The events of one CPU that were read at once (`FtraceEventBundle`), in order of time. Some have
//! a message of their own; switches and wakeups may be columns of numbers (`CompactSched`).

use super::event::{Described, FtraceEvent, context, event, time_ns};
use super::ours::{self, AtSocket, Ours, StillRunning};
use super::wire::{Broken, Part, Value, field, fields};
use crate::event::{Context, PrevState, ThreadRef};
use crate::tracepoint::prev_state_by_number;
use std::cmp::Ordering;

/// Bound on the names of a bundle; further ones are unknown.
const NAMES_MAX: usize = 1 << 16;

/// A bundle, and how far it has been read.
#[derive(Debug)]
pub(super) struct Bundle {
    bytes: Vec<u8>,
    pub cpu: u32,
    /// Number of lost events of this CPU before these; 1 if the number is unknown.
    pub lost: u64,
    /// Bundles of equal time are taken in the order of the file.
    order: u64,
    /// Offset from which the next event with a message is searched.
    at: usize,
    compact: Compact,
    ours: Ours,
    running: Option<StillRunning>,
    at_socket: Option<AtSocket>,
    waking: Option<Waking>,
    plain: Option<Plain>,
    switch: Option<Switch>,
}

/// Time and place of an event with a message of its own.
#[derive(Debug, Clone, Copy)]
struct Plain {
    time_ns: u64,
    part: Part,
}

#[derive(Debug, Clone, Copy)]
struct Switch {
    time_ns: u64,
    prev_state: u64,
    next: Row,
    charged_ns: Option<u64>,
    group: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Waking {
    time_ns: u64,
    wakee: Row,
    cpu: Option<u64>,
    common_flags: Option<u64>,
}

/// A thread, as a row of the columns has it.
#[derive(Debug, Clone, Copy)]
struct Row {
    tid: i32,
    prio: i32,
    name: Part,
}

/// The columns, and how far they have been read.
#[derive(Debug, Default)]
struct Compact {
    names: Vec<Part>,
    switch_ns: u64,
    waking_ns: u64,
    columns: [Part; 13],
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    Event(FtraceEvent<'a>),
    /// A switch that does not name the thread that leaves.
    Switch {
        left: PrevState,
        next: ThreadRef<'a>,
        /// CPU time charged to the thread that leaves, ns.
        charged_ns: Option<u64>,
        /// The group of the next thread.
        group: Option<u64>,
    },
    StillRunning(StillRunning),
    AtSocket(AtSocket),
    Waking {
        wakee: ThreadRef<'a>,
        cpu: Option<u32>,
        context: Option<Context>,
    },
}

impl Bundle {
    /// A bundle of one CPU at its first event; `None` if it holds no event, an error if it is no
    /// message. `order`: its place in the file.
    pub fn new(bytes: Vec<u8>, order: u64) -> Result<Option<Self>, Broken> {
        let mut bundle = Bundle {
            bytes,
            cpu: 0,
            lost: 0,
            order,
            at: 0,
            compact: Compact::default(),
            ours: Ours::default(),
            running: None,
            at_socket: None,
            waking: None,
            plain: None,
            switch: None,
        };
        let mut at = 0;
        while let Some((number, value)) = field(&bundle.bytes, &mut at)? {
            match (number, value) {
                (1, Value::Number(cpu)) => bundle.cpu = u32::try_from(cpu).unwrap_or(u32::MAX),
                (3, Value::Number(lost)) => bundle.lost = u64::from(lost != 0),
                (4, Value::Bytes(compact)) => {
                    bundle.compact = Compact::new(&bundle.bytes, at - compact.len(), at)?;
                }
                (ours::FIELD, Value::Bytes(ours)) => {
                    bundle.ours = Ours::new(&bundle.bytes, at - ours.len(), at)?;
                }
                _ => {}
            }
        }
        bundle.lost = bundle.lost.max(bundle.ours.lost);
        bundle.running = bundle.ours.next_running(&bundle.bytes);
        bundle.at_socket = bundle.ours.next_at_socket(&bundle.bytes);
        bundle.advance_waking();
        bundle.advance_plain();
        bundle.advance_switch();
        Ok(bundle.next_ns().is_some().then_some(bundle))
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let names = self.compact.names.len() * size_of::<Part>();
        (self.bytes.len() + names + size_of::<Bundle>()) as u64
    }

    /// The time of the next event; `None` after the last.
    pub fn next_ns(&self) -> Option<u64> {
        let waking = self.waking.map(|waking| waking.time_ns);
        let plain = self.plain.map(|plain| plain.time_ns);
        let switch = self.switch.map(|switch| switch.time_ns);
        let running = self.running.map(|running| running.time_ns);
        let at_socket = self.at_socket.map(|at| at.time_ns);
        [running, waking, plain, at_socket, switch].into_iter().flatten().min()
    }

    /// The next event, without going on to the one after it; `None` after the last.
    pub fn item<'a>(&'a self, described: &Described) -> Option<Item<'a>> {
        let now_ns = self.next_ns()?;
        if let Some(running) = self.running.filter(|running| running.time_ns == now_ns) {
            return Some(Item::StillRunning(running));
        }
        if let Some(waking) = self.waking.filter(|waking| waking.time_ns == now_ns) {
            return Some(Item::Waking {
                wakee: self.thread(waking.wakee),
                cpu: waking.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
                context: waking.common_flags.map(context),
            });
        }
        if let Some(plain) = self.plain.filter(|plain| plain.time_ns == now_ns) {
            return Some(Item::Event(event(self.part(plain.part), described)));
        }
        if let Some(at) = self.at_socket.filter(|at| at.time_ns == now_ns) {
            return Some(Item::AtSocket(at));
        }
        let switch = self.switch?;
        Some(Item::Switch {
            left: prev_state_by_number(switch.prev_state),
            next: self.thread(switch.next),
            charged_ns: switch.charged_ns,
            group: switch.group,
        })
    }

    /// Goes on to the event after the next one, of whichever of the five kinds that is.
    pub fn advance(&mut self) {
        let now_ns = self.next_ns();
        if self.running.map(|running| running.time_ns) == now_ns {
            self.running = self.ours.next_running(&self.bytes);
        } else if self.waking.map(|waking| waking.time_ns) == now_ns {
            self.advance_waking();
        } else if self.plain.map(|plain| plain.time_ns) == now_ns {
            self.advance_plain();
        } else if self.at_socket.map(|at| at.time_ns) == now_ns {
            self.at_socket = self.ours.next_at_socket(&self.bytes);
        } else {
            self.advance_switch();
        }
    }

    /// The thread of a row, its name looked up in the bundle.
    fn thread(&self, row: Row) -> ThreadRef<'_> {
        let comm = Value::Bytes(self.part(row.name)).text();
        ThreadRef { tid: row.tid, prio: row.prio, comm }
    }

    /// The bytes of a part; none if it lies outside.
    fn part(&self, part: Part) -> &[u8] {
        self.bytes.get(part.begin..part.end).unwrap_or_default()
    }

    /// Goes on to the next event that has a message of its own.
    fn advance_plain(&mut self) {
        self.plain = None;
        while let Ok(Some((number, value))) = field(&self.bytes, &mut self.at) {
            if let (2, Value::Bytes(event)) = (number, value) {
                let part = Part { begin: self.at - event.len(), end: self.at };
                self.plain = Some(Plain { time_ns: time_ns(event), part });
                return;
            }
        }
    }

    /// Goes on to the next switch in the columns, with the CPU time charged and the group, where
    /// they were recorded.
    fn advance_switch(&mut self) {
        let (bytes, compact, ours) = (&self.bytes, &mut self.compact, &mut self.ours);
        self.switch = (|| {
            let later_ns = compact.next(bytes, 1)?;
            compact.switch_ns = compact.switch_ns.wrapping_add(later_ns);
            let (charged_ns, group) = ours.next_of_switch(bytes);
            Some(Switch {
                time_ns: compact.switch_ns,
                prev_state: compact.next(bytes, 2)?,
                next: compact.read_row(bytes, [3, 4, 6])?,
                charged_ns,
                group,
            })
        })();
    }

    /// Goes on to the next wakeup in the columns.
    fn advance_waking(&mut self) {
        let (bytes, compact) = (&self.bytes, &mut self.compact);
        self.waking = (|| {
            let later_ns = compact.next(bytes, 7)?;
            compact.waking_ns = compact.waking_ns.wrapping_add(later_ns);
            Some(Waking {
                time_ns: compact.waking_ns,
                wakee: compact.read_row(bytes, [8, 10, 11])?,
                cpu: compact.next(bytes, 9),
                common_flags: compact.next(bytes, 12),
            })
        })();
    }
}

impl Compact {
    /// Finds the columns and names between two offsets of the bundle; an error if a field is
    /// malformed.
    fn new(bytes: &[u8], begin: usize, end: usize) -> Result<Self, Broken> {
        let mut compact = Compact::default();
        let mut at = begin;
        let within = bytes.get(..end).ok_or(Broken)?;
        while let Some((number, value)) = field(within, &mut at)? {
            let Value::Bytes(value) = value else { continue };
            let part = Part { begin: at - value.len(), end: at };
            if number == 5 {
                if compact.names.len() < NAMES_MAX {
                    compact.names.push(part);
                }
            } else if let Some(column) = compact.columns.get_mut(number as usize) {
                *column = part;
            }
        }
        Ok(compact)
    }

    /// Takes the next number of a column; `None` at its end.
    fn next(&mut self, bytes: &[u8], column: usize) -> Option<u64> {
        self.columns[column].next_number(bytes)
    }

    /// Takes the next thread of three columns: id, priority, and index of its name. `None` at the
    /// end.
    fn read_row(&mut self, bytes: &[u8], [tid, prio, name]: [usize; 3]) -> Option<Row> {
        let tid = self.next(bytes, tid)? as i32;
        let prio = self.next(bytes, prio)? as i32;
        let name = usize::try_from(self.next(bytes, name)?).ok()?;
        Some(Row { tid, prio, name: self.names.get(name).copied().unwrap_or_default() })
    }
}

/// The bundle with the earliest next event is the greatest, as a heap needs it.
impl Ord for Bundle {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.next_ns(), other.order).cmp(&(self.next_ns(), self.order))
    }
}

impl PartialOrd for Bundle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bundle {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bundle {}

/// Adds the descriptions of events in a bundle to `described`.
pub(super) fn describe(bundle: &[u8], described: &mut Described) {
    for (number, value) in fields(bundle) {
        if number == 11 {
            described.add(value.bytes());
        }
    }
}
