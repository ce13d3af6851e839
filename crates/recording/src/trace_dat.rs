//! Files of trace-cmd (trace.dat, versions 6 and 7), as trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5)
//! describe them. A head has the kernel's descriptions of events. For each CPU follow the pages of
//! its ring buffer as the kernel filled them; version 7 may compress them in chunks.
//!
//! The pages of all CPUs are read side by side, so a piece of each is held. Left out: symbols,
//! buffers of instances beside the first that holds events, offsets and times of guests.

use crate::error::Error;
use crate::event::{Event, Note, Sink};
use crate::raw::{Bytes, Formats, PID_AT, TYPE_AT, WalkError, context};
use crate::refused;
use crate::tracepoint::Tracepoint;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Seek};

mod chunks;
mod head;
mod head7;
mod options;
mod pages;

use head::Head;
use pages::CpuBuffer;

/// Whether the file begins as trace.dat files do.
pub(crate) fn is_trace_dat(start: &[u8]) -> bool {
    start.starts_with(b"\x17\x08\x44")
}

/// Bound on the pieces of buffers held, of all CPUs together.
const HELD_MAX_BYTES: u64 = 64 << 20;

/// Reads a whole file into `sink`, in order of time. `name` is for messages.
///
/// # Errors
/// The file cannot be read, is malformed, lacks thread switches or has a clock without ns; or the
/// sink wants no more.
pub(crate) fn read<F: Read + Seek>(
    name: &str,
    mut file: F,
    sink: &mut impl Sink,
) -> Result<(), Error> {
    let mut head = Head::read(&mut file).map_err(|e| to_error(name, "head", e))?;
    head.options.check_clock().map_err(|what| Error::unsupported(name, what))?;
    if !head.formats.has(Tracepoint::Switch) {
        return Err(Error::no_switches(name));
    }
    sink.machine(std::mem::take(&mut head.options.machine));
    if head.options.lost > 0 {
        sink.note(&Note::Lost { events: head.options.lost, by_the_kernel: true });
    }
    pass_on_in_order(name, &mut file, &head, sink)
}

/// Passes on the events of all CPUs to `sink` in order of time, and lost ones as notes. An error if
/// a buffer is malformed, there is no thread switch, or the sink wants no more.
fn pass_on_in_order<F: Read + Seek>(
    name: &str,
    file: &mut F,
    head: &Head,
    sink: &mut impl Sink,
) -> Result<(), Error> {
    let share = HELD_MAX_BYTES / head.buffers.len().max(1) as u64;
    let mut cpu_buffers = Vec::new();
    for buffer in &head.buffers {
        cpu_buffers.push(
            CpuBuffer::new(buffer, head, share)
                .map_err(|what| Error::malformed(name, "head", what))?,
        );
    }
    let place = |buffer_of_cpu: &CpuBuffer| format!("buffer of CPU {}", buffer_of_cpu.cpu);
    let mut pending = BinaryHeap::new();
    for (ix, buffer_of_cpu) in cpu_buffers.iter_mut().enumerate() {
        let next_ns =
            buffer_of_cpu.advance(file).map_err(|e| to_error(name, &place(buffer_of_cpu), e))?;
        pending.extend(next_ns.map(|ns| Reverse((ns, ix))));
    }
    let mut seen = EventsSeen { formats: &head.formats, has_switch: false, has_waking: false };
    while let Some(mut first) = pending.peek_mut() {
        let Reverse((now_ns, ix)) = *first;
        let buffer_of_cpu = &mut cpu_buffers[ix];
        if let Some(events) = buffer_of_cpu.lost.take() {
            sink.note(&Note::LostOn { cpu: buffer_of_cpu.cpu, events });
        }
        let time_ns = head.options.time_ns(now_ns);
        if let Some(record) = buffer_of_cpu.record() {
            let raw = Bytes::new(record, head.endian);
            seen.pass_on(raw, time_ns, buffer_of_cpu.cpu, sink).map_err(|e| refused(name, e))?;
        }
        match buffer_of_cpu.advance(file).map_err(|e| to_error(name, &place(buffer_of_cpu), e))? {
            Some(next_ns) => *first = Reverse((next_ns, ix)),
            None => drop(std::collections::binary_heap::PeekMut::pop(first)),
        }
    }
    if seen.has_switch {
        return Ok(());
    }
    Err(Error::no_switches(name))
}

/// The descriptions, and which events have come so far.
struct EventsSeen<'a> {
    formats: &'a Formats,
    has_switch: bool,
    /// `sched_waking` comes before `sched_wakeup`, which is not needed then.
    has_waking: bool,
}

impl EventsSeen<'_> {
    /// Passes on the event of a raw record to `sink`. Records of no described type are ignored;
    /// those that do not fit their description are counted as defects. Notes in `self` that a
    /// switch or a waking came.
    fn pass_on(
        &mut self,
        raw: Bytes<'_>,
        time_ns: u64,
        cpu: u32,
        sink: &mut impl Sink,
    ) -> Result<(), crate::event::Stop> {
        let format = raw.u16(TYPE_AT).and_then(|id| self.formats.of(id));
        let (Some(tid), Some(format)) = (raw.i32(PID_AT), format) else {
            // Descriptions of events of no use here are not kept.
            if raw.len() <= PID_AT {
                sink.defect(crate::Defect::UnreadableRecord);
            }
            return Ok(());
        };
        self.has_switch |= format.tracepoint == Tracepoint::Switch;
        self.has_waking |= format.tracepoint == Tracepoint::Waking;
        let Some(kind) = format.kind(raw, self.has_waking) else {
            sink.defect(crate::Defect::UnreadableRecord);
            return Ok(());
        };
        sink.event(&Event {
            tid,
            context: context(raw),
            kind,
            ..Event::without_thread(time_ns, cpu)
        })
    }
}

/// The error of a file that ends or contradicts itself at this place.
fn to_error(name: &str, place: &str, error: WalkError) -> Error {
    match error {
        WalkError::Io(source) => Error::io(name, source),
        WalkError::Wrong(what) => Error::malformed(name, place, what),
    }
}
