//! Finds out what kind of file it is, has it read, and keeps the result.

use crate::cost::{EventCost, Probe};
use crate::defects::Defects;
use crate::error::Error;
use crate::event::Machine;
use crate::thread::{Edge, Io, Ready, Thread};
use crate::timeline::Timeline;
use crate::{perf_data, perf_script};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

/// So much of a file tells what it is, bytes.
const START_SIZE: usize = 4096;
const READ_SIZE: usize = 1 << 18;

/// How a recording is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// What the recording itself cost; taken off the CPU time of the threads. `None`: what the
    /// times between its events tell, where it is a file.
    pub event_cost: Option<EventCost>,
}

/// What happened on a machine, by thread.
#[derive(Debug, Clone)]
pub struct Recording {
    pub(crate) name: String,
    pub(crate) threads: Vec<Thread>,
    pub(crate) edges: Vec<Edge>,
    /// The process that started a process, where perf tells.
    pub(crate) parent_pids: BTreeMap<i32, i32>,
    pub(crate) ios: Vec<Io>,
    /// In order of time.
    pub(crate) ready: Vec<Ready>,
    /// Paths of control groups by perf's ids.
    pub(crate) groups: BTreeMap<u64, String>,
    pub(crate) machine: Machine,
    pub(crate) defects: Defects,
    pub(crate) events: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Numbers of the CPUs that have events, in order.
    pub(crate) cpus_seen: Vec<u16>,
    pub(crate) has_syscalls: bool,
    pub(crate) has_runtime: bool,
    pub(crate) has_context: bool,
    pub(crate) cost: EventCost,
}

impl Recording {
    /// Reads a file of either kind.
    ///
    /// # Errors
    /// When it is no recording, is cut where that matters, contradicts itself, or cannot be read at
    /// all.
    pub fn read(path: &Path, options: Options) -> Result<Recording, Error> {
        let name = cpumax_limit::shown(path);
        let file = File::open(path).map_err(|e| io_error(&name, e))?;
        let metadata = file.metadata().map_err(|e| io_error(&name, e))?;
        if metadata.is_dir() {
            return Err(not_a_recording(&name, "it is a directory"));
        }
        if metadata.is_file() {
            return Recording::read_seekable(&name, file, options);
        }
        Recording::read_text(&name, BufReader::with_capacity(READ_SIZE, file), options)
    }

    /// Reads what is in memory. `name` is for messages.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn read_bytes(name: &str, data: &[u8], options: Options) -> Result<Recording, Error> {
        Recording::read_seekable(name, Cursor::new(data), options)
    }

    /// Reads a file of either kind, already open. `name` is for messages.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn read_seekable(
        name: &str,
        mut file: impl Read + Seek,
        options: Options,
    ) -> Result<Recording, Error> {
        let start = start_of(&mut file).map_err(|e| io_error(name, e))?;
        file.seek(SeekFrom::Start(0)).map_err(|e| io_error(name, e))?;
        let is_perf_data = perf_data::is_perf_data(&start);
        if !is_perf_data {
            check_text(name, &start)?;
        }
        let cost = if let Some(cost) = options.event_cost {
            cost
        } else {
            let cost = probe(name, &mut file, is_perf_data);
            file.seek(SeekFrom::Start(0)).map_err(|e| io_error(name, e))?;
            cost
        };
        if is_perf_data {
            return assemble(name, cost, |sink| perf_data::read(name, file, sink));
        }
        let file = BufReader::with_capacity(READ_SIZE, file);
        assemble(name, cost, |sink| perf_script::read(name, file, sink))
    }

    /// Reads the output of `perf script`, for example from a pipe. `name` is for messages.
    ///
    /// # Errors
    /// As [`Recording::read`]; perf.data is not read this way.
    pub fn read_text(
        name: &str,
        mut file: impl BufRead,
        options: Options,
    ) -> Result<Recording, Error> {
        let start = file.fill_buf().map_err(|e| io_error(name, e))?;
        if perf_data::is_perf_data(start) {
            return Err(Error::Unsupported {
                name: name.to_owned(),
                what:
                    "perf.data cannot be read from a pipe; save it to a file, or pipe the output \
                       of `perf script` in"
                        .to_owned(),
            });
        }
        check_text(name, &start[..start.len().min(START_SIZE)])?;
        let cost = options.event_cost.unwrap_or_default();
        assemble(name, cost, |sink| perf_script::read(name, file, sink))
    }

    /// Length of the recording, first event to last, ns.
    pub fn span_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    /// CPUs of the recorded machine: as the file says, else as many as have events.
    pub fn cpus(&self) -> u16 {
        let cpus = self.machine.cpus.unwrap_or(0).max(self.cpus_seen.len() as u32);
        cpus.clamp(1, 4096) as u16
    }

    /// The CPU of this number, where those that there are are numbered from 0 without gaps.
    pub(crate) fn cpu_ix(&self, number: u16) -> Option<u16> {
        if self.cpus_seen.last().is_none_or(|last| *last < self.cpus()) {
            return Some(number).filter(|number| *number < self.cpus());
        }
        self.cpus_seen.binary_search(&number).ok().map(|ix| ix as u16)
    }

    /// What was found wrong and repaired.
    pub fn defects(&self) -> &Defects {
        &self.defects
    }
}

/// What recording an event cost. Whatever is wrong with the file is told when it is read.
fn probe(name: &str, file: &mut (impl Read + Seek), is_perf_data: bool) -> EventCost {
    let mut probe = Probe::new();
    let read = || {
        if is_perf_data {
            perf_data::read(name, file, &mut probe)
        } else {
            perf_script::read(name, BufReader::with_capacity(READ_SIZE, file), &mut probe)
        }
    };
    match panic::catch_unwind(AssertUnwindSafe(read)) {
        Ok(_) => probe.cost(),
        Err(_) => EventCost::default(),
    }
}

fn assemble(
    name: &str,
    cost: EventCost,
    read: impl FnOnce(&mut Timeline) -> Result<(), Error>,
) -> Result<Recording, Error> {
    let mut timeline = Timeline::new(cost);
    // The guards before it leave no known way for the perf.data crate to panic; should there be
    // another, the file is at fault and not the caller.
    let result = panic::catch_unwind(AssertUnwindSafe(|| read(&mut timeline)));
    result.unwrap_or_else(|_| {
        Err(Error::Malformed {
            name: name.to_owned(),
            place: "somewhere".to_owned(),
            what: "the file contradicts itself in a way its reader does not survive".to_owned(),
        })
    })?;
    timeline.finish().map_err(|what| Error::Implausible { name: name.to_owned(), what })?;
    Ok(Recording {
        name: name.to_owned(),
        cpus_seen: timeline.cpus_seen(),
        parent_pids: timeline.parent_pids,
        threads: timeline.threads,
        edges: timeline.edges,
        ios: timeline.ios,
        ready: timeline.ready,
        groups: timeline.groups,
        machine: timeline.machine,
        defects: timeline.defects,
        events: timeline.events,
        first_ns: timeline.first_ns,
        last_ns: timeline.last_ns,
        has_syscalls: timeline.has_syscalls,
        has_runtime: timeline.has_runtime,
        has_context: timeline.has_context,
        cost,
    })
}

fn start_of(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(START_SIZE);
    file.take(START_SIZE as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Refuses what cannot be text, naming what it looks like.
fn check_text(name: &str, start: &[u8]) -> Result<(), Error> {
    let what = match start {
        [] => "it is empty",
        [0x1f, 0x8b, ..] => "it is compressed by gzip; unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed by zstd; unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "it is compressed by xz; unpack it first",
        [0x17, 0x08, 0x44, ..] => "it is a trace.dat file; print it with `trace-cmd report`",
        _ if start.contains(&0) => "it is neither perf.data nor text",
        _ => return Ok(()),
    };
    Err(not_a_recording(name, what))
}

fn not_a_recording(name: &str, what: &str) -> Error {
    Error::NotARecording { name: name.to_owned(), what: what.to_owned() }
}

fn io_error(name: &str, source: io::Error) -> Error {
    Error::Io { name: name.to_owned(), source }
}
