//! Perfetto traces, as `traced_probes` and scxtop write them. Read are bundles of ftrace events,
//! the process tree, and packets about the machine and losses.
//!
//! Each bundle is of one CPU, and bundles come in the order in which they were read, so the events
//! of the machine are out of order. The file is read twice. The first pass notes the earliest event
//! of each section of the file. The second pass hands on an event once no later section can have an
//! earlier one, and holds the events in between. All times are of one clock (`ftrace_clock`, by
//! default that of boot), so none is converted. Left out: everything but the scheduler, and
//! machines other than the first.

use crate::error::Error;
use crate::event::{CPUS_MAX, Event, Kind, Machine, Named, Note, Sink, ThreadRef};
use crate::packing::Source;
use crate::tracepoint::Tracepoint;
use crate::{Defect, refused};
use std::collections::{BTreeSet, BinaryHeap, HashMap, binary_heap::PeekMut};
use std::io::{Read, Seek};

mod bundle;
mod event;
mod ours;
mod packets;
mod tree;
mod wire;

use bundle::{Bundle, Item};
use event::{Described, FtraceEvent};
use packets::End;
pub(crate) use packets::is_perfetto;
use wire::fields;

/// Size of the sections of the file whose earliest event is noted.
const SECTION_BYTES: usize = 1 << 16;
/// Bound on the bytes held to put events in order.
const HELD_MAX_BYTES: u64 = 256 << 20;
/// Most writers of packets that are remembered.
const SEQUENCES_MAX: usize = 1 << 12;
/// Most threads whose groups are remembered.
const GROUPS_MAX: usize = 1 << 18;
/// Number of wakeups that show whether events name the running thread.
const WAKINGS_LOOKED_AT: u32 = 1000;
const RECORD_WITH: &str = "record with the data source linux.ftrace and the events \
    sched/sched_switch, sched/sched_waking, sched/sched_wakeup_new, sched/sched_process_fork, \
    sched/sched_stat_runtime";

/// Fields of a packet.
const FTRACE_EVENTS: u32 = 1;
const PROCESS_TREE: u32 = 2;
const SEQUENCE: u32 = 10;
const FTRACE_STATS: u32 = 34;
const TRACE_STATS: u32 = 35;
const DROPPED: u32 = 42;
const SYSTEM_INFO: u32 = 45;
const CPU_INFO: u32 = 67;
const MACHINE_ID: u32 = 98;

/// Reads a whole trace into `sink`, in two passes; `name` is for messages. Events come in order of
/// time.
///
/// # Errors
/// The file cannot be read, is malformed, holds no thread switches, or is too much out of order; or
/// the sink wants no more.
pub(crate) fn read<F: Read + Seek>(
    name: &str,
    source: &mut Source<F>,
    sink: &mut impl Sink,
) -> Result<(), Error> {
    let mut look = FirstPass::default();
    let file = source.open().map_err(|e| Error::io(name, e))?;
    let end = packets::each(name, file, |packet| {
        look.read_packet(packet, sink);
        Ok(())
    })?;
    if end == End::Cut {
        sink.defect(Defect::CutAtTheEnd);
    }
    if !look.has_switch {
        let what = format!("it holds no thread switches; {RECORD_WITH}");
        return Err(Error::unsupported(name, what));
    }
    sink.machine(std::mem::take(&mut look.machine));
    look.pass_on_losses(sink);
    let mut order = SecondPass::new(name, look, sink);
    let file = source.open().map_err(|e| Error::io(name, e))?;
    packets::each(name, file, |packet| order.read_packet(packet))?;
    order.emit_before(u64::MAX)
}

/// The section of the file in which a packet is.
#[derive(Debug, Default)]
struct FileSection {
    index: usize,
    bytes: usize,
}

impl FileSection {
    /// Counts a packet; true if the section ends with it.
    fn pass(&mut self, packet: &[u8]) -> bool {
        self.bytes += packet.len();
        if self.bytes < SECTION_BYTES {
            return false;
        }
        (self.bytes, self.index) = (0, self.index + 1);
        true
    }
}

/// Whether the packet is of a guest, not of this machine.
fn is_of_another_machine(packet: &[u8]) -> bool {
    fields(packet).any(|(number, value)| number == MACHINE_ID && value.number() != 0)
}

/// The result of the first pass.
#[derive(Debug, Default)]
struct FirstPass {
    section: FileSection,
    /// Earliest event of each section; once all are read, of this section and all later ones.
    earliest_ns: Vec<u64>,
    machine: Machine,
    described: Described,
    has_switch: bool,
    has_waking: bool,
    /// Wakeups that were examined, and those of them that name the woken thread as the running one.
    wakings: u32,
    of_wakee: u32,
    sequences: BTreeSet<u64>,
    dropped_packets: u64,
    overruns: tree::Overruns,
    is_overwritten: bool,
}

impl FirstPass {
    /// Takes machine, losses and descriptions from a packet, passes on processes and threads to
    /// `sink`, and notes the earliest event of the section.
    fn read_packet(&mut self, packet: &[u8], sink: &mut impl Sink) {
        let mut earliest_ns = u64::MAX;
        if !is_of_another_machine(packet) {
            let (mut has_bundle, mut dropped, mut sequence) = (false, false, 0);
            for (number, value) in fields(packet) {
                match number {
                    FTRACE_EVENTS => {
                        has_bundle = true;
                        earliest_ns = earliest_ns.min(self.read_bundle(value.bytes()));
                    }
                    PROCESS_TREE => tree::processes(value.bytes(), sink),
                    SEQUENCE => sequence = value.number(),
                    DROPPED => dropped = value.number() != 0,
                    FTRACE_STATS => self.overruns.add(value.bytes()),
                    TRACE_STATS => self.is_overwritten |= tree::is_overwritten(value.bytes()),
                    ours::FIELD => ours::packet(value.bytes(), &mut self.machine, sink),
                    SYSTEM_INFO => tree::system(value.bytes(), &mut self.machine),
                    CPU_INFO => tree::cpus(value.bytes(), &mut self.machine),
                    _ => {}
                }
            }
            if has_bundle {
                let is_first = !self.sequences.contains(&sequence);
                self.dropped_packets += u64::from(dropped && !is_first);
                if self.sequences.len() < SEQUENCES_MAX {
                    self.sequences.insert(sequence);
                }
            }
        }
        let index = self.section.index;
        self.earliest_ns.resize(index + 1, u64::MAX);
        self.earliest_ns[index] = self.earliest_ns[index].min(earliest_ns);
        self.section.pass(packet);
    }

    /// Takes descriptions from a bundle, and looks at its events until it knows that switches and
    /// wakings occur and whether wakings name the woken thread. Returns the time of its first
    /// event, ns; `u64::MAX` if it has none.
    fn read_bundle(&mut self, bytes: &[u8]) -> u64 {
        bundle::describe(bytes, &mut self.described);
        let Ok(Some(mut bundle)) = Bundle::new(bytes.to_vec(), 0) else { return u64::MAX };
        let first_ns = bundle.next_ns().unwrap_or(u64::MAX);
        while !(self.has_switch && self.has_waking && self.wakings >= WAKINGS_LOOKED_AT)
            && let Some(item) = bundle.item(&self.described)
        {
            let tracepoint = match item {
                Item::Switch { .. } => Tracepoint::Switch,
                Item::Waking { .. } => {
                    self.wakings += 1;
                    Tracepoint::Waking
                }
                Item::Event(event) => {
                    if let Kind::Waking(wakee, _) = event.kind {
                        self.wakings += 1;
                        self.of_wakee += u32::from(wakee.tid == event.tid);
                    }
                    event.tracepoint
                }
                Item::StillRunning(_) | Item::AtSocket(_) => Tracepoint::Other,
            };
            self.has_switch |= tracepoint == Tracepoint::Switch;
            self.has_waking |= tracepoint == Tracepoint::Waking;
            bundle.advance();
        }
        first_ns
    }

    /// Passes on to `sink` the events that were overwritten, dropped or lost, as far as the trace
    /// tells.
    fn pass_on_losses(&self, sink: &mut impl Sink) {
        if self.is_overwritten {
            sink.note(&Note::Overwritten { events: 0 });
        }
        if self.dropped_packets > 0 {
            sink.note(&Note::Lost { events: self.dropped_packets, by_the_kernel: false });
        }
        let events = self.overruns.lost();
        if events > 0 {
            sink.note(&Note::Lost { events, by_the_kernel: true });
        }
    }
}

/// The current thread of a CPU, as far as it is known.
#[derive(Debug, Clone)]
struct Current {
    tid: i32,
    prio: i32,
    comm: String,
}

impl Current {
    /// A thread of which nothing is known.
    fn unknown() -> Self {
        Current { tid: -1, prio: 0, comm: String::new() }
    }
}

/// The second pass: passes on events in order of time.
struct SecondPass<'a, S> {
    name: &'a str,
    sink: &'a mut S,
    described: Described,
    has_waking: bool,
    /// Whether events name the running thread. scxtop writes another one, such as the woken thread.
    names_who_runs: bool,
    section: FileSection,
    earliest_ns: Vec<u64>,
    bundles: u64,
    pending: BinaryHeap<Bundle>,
    pending_bytes: u64,
    cpus: Vec<Current>,
    /// Groups of threads, by thread id.
    groups: HashMap<i32, u64>,
}

impl<'a, S: Sink> SecondPass<'a, S> {
    /// Prepares the second pass by the results of the first one: descriptions, whether events name
    /// the thread that runs, and the earliest time of each section and all later ones.
    fn new(name: &'a str, look: FirstPass, sink: &'a mut S) -> Self {
        let mut earliest_ns = look.earliest_ns;
        for at in (1..earliest_ns.len()).rev() {
            earliest_ns[at - 1] = earliest_ns[at - 1].min(earliest_ns[at]);
        }
        SecondPass {
            name,
            sink,
            described: look.described,
            has_waking: look.has_waking,
            names_who_runs: 2 * look.of_wakee <= look.wakings,
            section: FileSection::default(),
            earliest_ns,
            bundles: 0,
            pending: BinaryHeap::new(),
            pending_bytes: 0,
            cpus: Vec::new(),
            groups: HashMap::new(),
        }
    }

    /// Takes the bundles of a packet, unless it is of another machine; at the end of a section
    /// passes on all events that no later one precedes. An error if too much is held, or the sink
    /// wants no more.
    fn read_packet(&mut self, packet: &[u8]) -> Result<(), Error> {
        if !is_of_another_machine(packet) {
            let bundles = fields(packet).filter(|(number, _)| *number == FTRACE_EVENTS);
            for (_, value) in bundles {
                self.read_bundle(value.bytes())?;
            }
        }
        if self.section.pass(packet) {
            let later_ns = self.earliest_ns.get(self.section.index).copied();
            self.emit_before(later_ns.unwrap_or(u64::MAX))?;
        }
        Ok(())
    }

    /// Holds a bundle until its events are due; one that cannot be read is counted as a defect. An
    /// error if more than 256 MiB are held.
    fn read_bundle(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bundles += 1;
        match Bundle::new(bytes.to_vec(), self.bundles) {
            Err(wire::Broken) => self.sink.defect(Defect::UnreadableRecord),
            Ok(None) => {}
            Ok(Some(bundle)) => {
                self.pending_bytes += bundle.bytes();
                self.pending.push(bundle);
            }
        }
        if self.pending_bytes > HELD_MAX_BYTES {
            let what = format!(
                "its events are out of order over more than {} MiB; record with a shorter \
                 drain_period_ms",
                HELD_MAX_BYTES >> 20
            );
            return Err(Error::unsupported(self.name, what));
        }
        self.sink.reader_holds(self.pending_bytes);
        Ok(())
    }

    /// Passes on the held events before that time, in order; all if it is `u64::MAX`. Lost events
    /// before a bundle are passed on as a note, and make the CPU's thread unknown. An error if the
    /// sink wants no more.
    fn emit_before(&mut self, end_ns: u64) -> Result<(), Error> {
        while let Some(mut bundle) = self.pending.peek_mut() {
            let Some(now_ns) = bundle.next_ns() else {
                self.pending_bytes -= bundle.bytes();
                PeekMut::pop(bundle);
                continue;
            };
            if now_ns >= end_ns && end_ns != u64::MAX {
                return Ok(());
            }
            let cpu = bundle.cpu;
            if self.cpus.len() <= cpu as usize && cpu < CPUS_MAX {
                self.cpus.resize(cpu as usize + 1, Current::unknown());
            }
            let mut beyond = Current::unknown();
            let current = self.cpus.get_mut(cpu as usize).unwrap_or(&mut beyond);
            let lost = std::mem::take(&mut bundle.lost);
            if lost > 0 {
                *current = Current::unknown();
                self.sink.note(&Note::LostOn { cpu, events: lost });
            }
            if let Some(item) = bundle.item(&self.described) {
                let known = (self.has_waking, self.names_who_runs, &mut self.groups);
                emit(&item, now_ns, cpu, known, current, self.sink)
                    .map_err(|e| refused(self.name, e))?;
            }
            bundle.advance();
        }
        Ok(())
    }
}

/// Remembers the group of a thread, if there is one; new threads only up to a bound.
fn note_group(groups: &mut HashMap<i32, u64>, tid: i32, group: Option<u64>) {
    if let Some(group) = group
        && (groups.len() < GROUPS_MAX || groups.contains_key(&tid))
    {
        groups.insert(tid, group);
    }
}

/// The name that the thread of an event takes, if it takes one.
fn new_name<'a>(event: &FtraceEvent<'a>) -> Option<&'a str> {
    let (_, comm) = event.renamed.filter(|(tid, _)| *tid == event.tid)?;
    Some(comm).filter(|comm| !comm.is_empty())
}

/// Passes on one event of a CPU to `sink`. `has_waking`: wakeups repeat earlier events and count
/// for nothing; `names_who_runs`: events other than switches and forks tell their thread; `groups`:
/// by thread, the group last seen. `current`: the thread on that CPU, by which compact events are
/// completed; a switch replaces it.
fn emit(
    item: &Item<'_>,
    time_ns: u64,
    cpu: u32,
    (has_waking, names_who_runs, groups): (bool, bool, &mut HashMap<i32, u64>),
    current: &mut Current,
    sink: &mut impl Sink,
) -> Result<(), crate::event::Stop> {
    let mut event = Event::without_thread(time_ns, cpu);
    let next = match *item {
        Item::Event(of) => {
            let is_known =
                names_who_runs || matches!(of.kind, Kind::Switch { .. } | Kind::Fork { .. });
            (event.tid, event.context) = (if is_known { of.tid } else { -1 }, of.context);
            let is_second = of.tracepoint == Tracepoint::Wakeup && has_waking;
            event.kind = if is_second { Kind::Other } else { of.kind };
            event.comm = new_name(&of);
            if let Some(comm) = event.comm.filter(|_| of.tid == current.tid) {
                comm.clone_into(&mut current.comm);
            }
            if let Kind::Switch { next, .. } = of.kind { Some(next) } else { None }
        }
        Item::Switch { left, next, charged_ns, group } => {
            if let Some(ns) = charged_ns {
                // The charge came with the switch: it is the thread's, but no event of its own.
                sink.event(&Event { kind: Kind::Runtime { tid: current.tid, ns }, ..event })?;
            }
            event.tid = current.tid;
            event.cgroup = groups.get(&current.tid).copied();
            note_group(groups, next.tid, group);
            let prev = ThreadRef { tid: current.tid, comm: &current.comm, prio: current.prio };
            event.kind = Kind::Switch { prev, left, next };
            Some(next)
        }
        Item::StillRunning(running) => {
            if current.tid != running.tid {
                *current = Current { tid: running.tid, prio: 120, comm: String::new() };
            }
            event.tid = running.tid;
            None
        }
        Item::AtSocket(at) => {
            (event.tid, event.kind) = (at.tid, at.kind);
            None
        }
        Item::Waking { wakee, cpu, context } => {
            (event.tid, event.context) = (current.tid, context);
            event.kind = Kind::Waking(wakee, cpu.map(Named::Last));
            None
        }
    };
    let result = sink.event(&event);
    if let Some(next) = next {
        (current.tid, current.prio) = (next.tid, next.prio);
        next.comm.clone_into(&mut current.comm);
    }
    result
}
