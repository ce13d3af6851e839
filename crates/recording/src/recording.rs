//! Reads a file by the reader of its form, and keeps the result.

use crate::cost::{EventCost, Probe};
use crate::defects::Defects;
use crate::error::Error;
use crate::event::{Machine, Sink};
use crate::input::{CTF, Form};
use crate::packing::{self, Source};
use crate::thread::{Edge, Io, Ready, Thread};
use crate::timeline::{Signs, Timeline};
use crate::{perf_data, perf_script, perfetto, trace_dat, wprof};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

/// The start of a file, in bytes, from which its form is recognized.
const START_SIZE: usize = 4096;
const READ_SIZE: usize = 1 << 18;

/// How a recording is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// CPU time that recording an event took, subtracted from the threads. `None`: estimated from
    /// the times between events, or 0 for text from a pipe.
    pub event_cost: Option<EventCost>,
}

/// The threads of a recorded machine, with their steps, waits and transfers.
#[derive(Debug, Clone)]
pub struct Recording {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) threads: Vec<Thread>,
    pub(crate) edges: Vec<Edge>,
    /// Parent process of each process, if perf recorded it.
    pub(crate) parent_pids: BTreeMap<i32, i32>,
    pub(crate) ios: Vec<Io>,
    /// In order of time.
    pub(crate) ready: Vec<Ready>,
    /// Paths of control groups, by perf's ids.
    pub(crate) groups: BTreeMap<u64, String>,
    pub(crate) machine: Machine,
    pub(crate) defects: Defects,
    pub(crate) events: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Numbers of the CPUs that have events, ascending.
    pub(crate) cpus_seen: Vec<u16>,
    pub(crate) has_syscalls: bool,
    pub(crate) has_runtime: bool,
    pub(crate) has_context: bool,
    pub(crate) cost: EventCost,
    /// Whether `cost` is an estimate, neither measured by the recorder nor given by the caller.
    pub(crate) is_cost_guessed: bool,
    pub(crate) signs: Signs,
}

impl Recording {
    /// Reads a file of any known form, or a directory of `perf record`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no recording, contradicts itself, or lacks its end where that is
    /// needed.
    pub fn read(path: &Path, options: Options) -> Result<Recording, Error> {
        let name = cpumax_limit::shown(path);
        let metadata = fs::metadata(path).map_err(|e| Error::io(&name, e))?;
        if metadata.is_dir() {
            return Recording::read_directory(&name, path, options);
        }
        let file = File::open(path).map_err(|e| Error::io(&name, e))?;
        if metadata.is_file() {
            return Recording::read_seekable(&name, file, options);
        }
        Recording::read_pipe(&name, BufReader::with_capacity(READ_SIZE, file), options)
    }

    /// Reads a directory of `perf record --kcore` (its file `data`) or `--threads` (also `data.0`,
    /// `data.1`, ...).
    ///
    /// # Errors
    /// The directory has no file `data`, for example because it is a CTF trace; else as
    /// [`Recording::read`].
    fn read_directory(name: &str, path: &Path, options: Options) -> Result<Recording, Error> {
        let open = |file: &str| File::open(path.join(file));
        let Ok(first) = open("data") else {
            let is_ctf = path.join("metadata").is_file();
            let what = if is_ctf { CTF } else { "it is a directory" };
            return Err(Error::not_a_recording(name, what));
        };
        let mut files = vec![first];
        while let Ok(next) = open(&format!("data.{}", files.len() - 1)) {
            files.push(next);
        }
        if files.len() == 1 {
            return Recording::read_seekable(name, files.remove(0), options);
        }
        read_source(name, &mut ThreadFiles(files), options)
    }

    /// Reads a recording in memory, of any known form. `name` is for messages.
    ///
    /// # Errors
    ///
    /// As [`Recording::read`].
    pub fn read_bytes(name: &str, data: &[u8], options: Options) -> Result<Recording, Error> {
        Recording::read_seekable(name, Cursor::new(data), options)
    }

    /// Reads an open file of any known form from its beginning. `name` is for messages.
    ///
    /// # Errors
    ///
    /// As [`Recording::read`].
    pub fn read_seekable(
        name: &str,
        file: impl Read + Seek,
        options: Options,
    ) -> Result<Recording, Error> {
        let mut source = Source::new(file).map_err(|e| Error::io(name, e))?;
        let form = Form::of(name, &source.start().map_err(|e| Error::io(name, e))?)?;
        if source.is_packed() && form.needs_seeking() {
            return read_held(name, form, source.read_into_memory(name)?, options);
        }
        read_source(name, &mut OpenFile { form, source, held_bytes: 0 }, options)
    }

    /// Reads from a pipe. Text is read as it comes, other forms when they are complete; these may
    /// have 256 MiB. `name` is for messages.
    ///
    /// # Errors
    ///
    /// As [`Recording::read`].
    pub fn read_pipe(name: &str, file: impl BufRead, options: Options) -> Result<Recording, Error> {
        let mut file = packing::unpacked(file).map_err(|e| Error::io(name, e))?;
        let start = file.fill_buf().map_err(|e| Error::io(name, e))?;
        let form = Form::of(name, &start[..start.len().min(START_SIZE)])?;
        if form != Form::Text {
            return read_held(name, form, packing::read_into_memory(name, file)?, options);
        }
        let cost = options.event_cost.unwrap_or_default();
        assemble(name, Form::Text, (cost, false), |sink| perf_script::read(name, file, sink))
    }

    /// Time from the first event to the last, ns.
    pub fn span_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    /// CPUs of the recorded machine, 1 to 4096: as the file says, but at least those with events.
    pub fn cpus(&self) -> u16 {
        let cpus = self.machine.cpus.unwrap_or(0).max(self.cpus_seen.len() as u32);
        cpus.clamp(1, 4096) as u16
    }

    /// Index from 0, without gaps, of the CPU with this number; `None` if the machine has no such
    /// CPU.
    pub(crate) fn cpu_ix(&self, number: u16) -> Option<u16> {
        if self.cpus_seen.last().is_none_or(|last| *last < self.cpus()) {
            return Some(number).filter(|number| *number < self.cpus());
        }
        self.cpus_seen.binary_search(&number).ok().map(|ix| ix as u16)
    }

    /// Faults that were found and repaired.
    pub fn defects(&self) -> &Defects {
        &self.defects
    }
}

/// A source that can be read more than once.
trait Readable {
    /// Form of the source.
    fn form(&self) -> Form;

    /// Bytes of it that are in memory.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Reads the source from its beginning into `sink`; an error as of the reader of its form.
    fn read<S: Sink>(&mut self, name: &str, sink: &mut S) -> Result<(), Error>;
}

struct OpenFile<F> {
    form: Form,
    source: Source<F>,
    /// Bytes of it that are in memory.
    held_bytes: u64,
}

impl<F: Read + Seek> Readable for OpenFile<F> {
    fn form(&self) -> Form {
        self.form
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    fn read<S: Sink>(&mut self, name: &str, sink: &mut S) -> Result<(), Error> {
        match self.form {
            Form::Text => {
                let file = self.source.open().map_err(|e| Error::io(name, e))?;
                perf_script::read(name, file, sink)
            }
            Form::Wprof => {
                let file = self.source.open().map_err(|e| Error::io(name, e))?;
                wprof::read(name, file, sink)
            }
            Form::Perfetto => perfetto::read(name, &mut self.source, sink),
            Form::TraceDat => trace_dat::read(name, &mut self.source.file, sink),
            Form::PerfData => perf_data::read(name, &mut self.source.file, sink),
        }
    }
}

/// The files of `perf record --threads`.
struct ThreadFiles(Vec<File>);

impl Readable for ThreadFiles {
    fn form(&self) -> Form {
        Form::PerfData
    }

    fn read<S: Sink>(&mut self, name: &str, sink: &mut S) -> Result<(), Error> {
        perf_data::read_threads(name, self.0.iter_mut().collect(), sink)
    }
}

/// Reads a recording from the bytes of a file; these count as memory that the reader holds.
fn read_held(name: &str, form: Form, held: Vec<u8>, options: Options) -> Result<Recording, Error> {
    let held_bytes = held.len() as u64;
    let source = Source::new(Cursor::new(held)).map_err(|e| Error::io(name, e))?;
    read_source(name, &mut OpenFile { form, source, held_bytes }, options)
}

/// Reads a source, twice if the caller gave no cost of events: the first time to estimate that.
fn read_source(name: &str, file: &mut impl Readable, options: Options) -> Result<Recording, Error> {
    let cost = options.event_cost.unwrap_or_else(|| estimate_cost(name, file));
    assemble(name, file.form(), (cost, options.event_cost.is_none()), |sink| {
        sink.file_bytes = file.held_bytes();
        file.read(name, sink)
    })
}

/// Estimates the cost of recording an event by a first reading; its faults do not count, as the
/// second reading reports them.
fn estimate_cost(name: &str, file: &mut impl Readable) -> EventCost {
    let mut probe = Probe::new();
    let _ = file.read(name, &mut probe);
    probe.cost()
}

/// Runs `read` with a timeline as its sink, ends that, and takes its results. `cost` is subtracted
/// from CPU times; `is_guessed`: the caller gave none. Errors are those of `read`, and of a
/// timeline that no machine can have.
fn assemble(
    name: &str,
    form: Form,
    (cost, is_guessed): (EventCost, bool),
    read: impl FnOnce(&mut Timeline) -> Result<(), Error>,
) -> Result<Recording, Error> {
    let mut timeline = Timeline::new(cost);
    read(&mut timeline)?;
    timeline.finish().map_err(|what| Error::Implausible { name: name.to_owned(), what })?;
    let about = timeline.machine.about.as_ref();
    let is_measured = about.is_some_and(|about| about.is_cost_measured());
    Ok(Recording {
        name: name.to_owned(),
        form,
        is_cost_guessed: is_guessed && !is_measured,
        cpus_seen: timeline.cpus_seen(),
        signs: timeline.signs,
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
