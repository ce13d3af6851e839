//! perf.data files.
//!
//! The `linux-perf-data` crate finds the records and sorts them by time. This module reads the
//! samples of tracepoints, by the field descriptions in the file. The crate trusts the sizes in the
//! file, so `guard` checks them first.

use crate::error::Error;
use crate::event::{Machine, Note, Sink};
use crate::raw::{Bytes, Formats, Walk, WalkError};
use crate::tracepoint::{RECORD_WITH, SWITCHES_SAMPLED, Tracepoint};
use crate::{Defect, refused};
use linux_perf_data::{AttributeDescription, Feature, PerfFile, PerfFileReader, PerfFileRecord};
use linux_perf_event_reader::{PerfEventType, RawEventRecord, RecordType, SamplingPolicy};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::num::NonZeroU64;

mod guard;
mod sample;
mod spliced;

pub(crate) use guard::is_perf_data;

const BUFFER_SIZE: usize = 1 << 18;
/// Flag in `misc` of a `LOST_SAMPLES` record: dropped by a filter.
const MISC_LOST_BY_FILTER: u16 = 1 << 15;

/// Reads a file, or what was written to a pipe, into `sink`. `name` is for messages. A pipe's
/// missing end is counted as a defect. Malformed files, and those without thread switches, are
/// errors.
pub(crate) fn read<F: Read + Seek>(
    name: &str,
    mut file: F,
    sink: &mut impl Sink,
) -> Result<(), Error> {
    let mut start = Vec::new();
    rewind(name, &mut file)?;
    (&mut file).take(16).read_to_end(&mut start).map_err(|source| Error::io(name, source))?;
    rewind(name, &mut file)?;
    if !spliced::is_pipe(&start) {
        return read_file(name, file, sink);
    }
    let (file, is_cut) = spliced::from_pipe(name, file)?;
    if is_cut {
        sink.defect(Defect::CutAtTheEnd);
    }
    read_file(name, file, sink)
}

/// Reads a directory of `perf record --threads` into `sink`: its file `data` first, then those of
/// the threads. An error as for a single file that is malformed or lacks thread switches.
pub(crate) fn read_threads<F: Read + Seek>(
    name: &str,
    files: Vec<F>,
    sink: &mut impl Sink,
) -> Result<(), Error> {
    read_file(name, spliced::from_threads(name, files)?, sink)
}

/// Checks a file and reads its machine, notes and samples into `sink`, in order of time. Records
/// that cannot be read are counted as defects; a malformed file, and one without thread switches,
/// is an error.
fn read_file<F: Read + Seek>(name: &str, file: F, sink: &mut impl Sink) -> Result<(), Error> {
    let mut file = BufReader::with_capacity(BUFFER_SIZE, file);
    sink.reader_holds(guard::check(name, &mut file)?);
    rewind(name, &mut file)?;
    let reader = PerfFileReader::parse_file(file).map_err(|e| malformed(name, "head", &e))?;
    let PerfFileReader { mut perf_file, mut record_iter } = reader;
    let machine = machine(&perf_file);
    if machine.command.as_deref().is_some_and(|c| c.split(' ').any(|w| w == "--overwrite")) {
        sink.note(&Note::Overwritten { events: 0 });
    }
    sink.machine(machine);
    let formats = formats(name, &perf_file)?;
    check_periods(name, &perf_file, &formats)?;

    let mut number = 0_u64;
    loop {
        let place = || format!("record {number} in order of time");
        let record =
            record_iter.next_record(&mut perf_file).map_err(|e| malformed(name, &place(), &e))?;
        let Some(record) = record else {
            return Ok(());
        };
        number += 1;
        let PerfFileRecord::EventRecord { record, .. } = record else {
            continue;
        };
        if record.record_type == RecordType::SAMPLE {
            match sample::read(&record, &formats) {
                Some(sample) => {
                    sample.with_event(|event| sink.event(event)).map_err(|e| refused(name, e))?;
                }
                None => sink.defect(Defect::UnreadableRecord),
            }
        } else if !pass_on_note(&record, sink) {
            sink.defect(Defect::UnreadableRecord);
        }
    }
}

/// Seeks to the beginning, or returns the error of reading the file of this name.
fn rewind(name: &str, file: &mut impl Seek) -> Result<(), Error> {
    file.seek(SeekFrom::Start(0)).map_err(|source| Error::io(name, source))?;
    Ok(())
}

/// The error of the crate that reads perf.data, at this place.
fn malformed(name: &str, place: &str, error: &linux_perf_data::Error) -> Error {
    Error::malformed(name, place, error.to_string())
}

/// Kernel, CPUs and command from the head of the file, as far as it has them.
fn machine(perf_file: &PerfFile) -> Machine {
    let string =
        |x: Result<Option<&str>, linux_perf_data::Error>| x.ok().flatten().map(str::to_owned);
    Machine {
        kernel: string(perf_file.os_release()),
        arch: string(perf_file.arch()),
        cpus: perf_file.nr_cpus().ok().flatten().map(|n| n.nr_cpus_online),
        cpus_possible: perf_file.nr_cpus().ok().flatten().map(|n| n.nr_cpus_available),
        command: perf_file.cmdline().ok().flatten().map(|words| words.join(" ")),
        about: None,
        ended: None,
    }
}

/// The descriptions of the tracepoints that were recorded, not only counted; an error if the file
/// has none, one is malformed, or thread switches are not among them.
fn formats(name: &str, perf_file: &PerfFile) -> Result<Formats, Error> {
    // In a group (`{...}:S`) only the first event is recorded; the others are counted.
    let is_recorded = |attribute: &&AttributeDescription| {
        !matches!(attribute.attributes().sampling_policy, SamplingPolicy::NoSampling)
    };
    let recorded: Vec<u64> =
        perf_file.event_attributes().iter().filter(is_recorded).filter_map(tracepoint_id).collect();
    let Some(section) = perf_file.feature_section_data(Feature::TRACING_DATA) else {
        return Err(Error::unsupported(name, format!("it holds no tracepoints; {RECORD_WITH}")));
    };
    let mut formats = Formats::new();
    let mut walk = Walk::new(section, perf_file.endian());
    let mut read = || {
        walk.open()?;
        walk.headers()?;
        walk.own_formats()?;
        walk.each_format(|system, text| {
            formats.add(system, text, |id, _| recorded.contains(&u64::from(id)))
        })
    };
    read().map_err(|error| match error {
        WalkError::Io(source) => Error::io(name, source),
        WalkError::Wrong(what) => Error::malformed(name, "descriptions of the tracepoints", what),
    })?;
    formats.has_waking = formats.has(Tracepoint::Waking);
    formats.counts_lost = counts_lost(perf_file);
    if formats.has(Tracepoint::Switch) {
        return Ok(formats);
    }
    Err(Error::no_switches(name))
}

/// Whether read counters include lost events, which perf asks for all events or for none.
fn counts_lost(perf_file: &PerfFile) -> bool {
    const FORMAT_LOST: u64 = 1 << 4;
    /// Offset within the first description, behind the number and size of descriptions.
    const READ_FORMAT_AT: usize = 8 + 32;
    let names = perf_file.feature_section_data(Feature::EVENT_DESC).unwrap_or_default();
    let format = Bytes::new(names, perf_file.endian()).u64(READ_FORMAT_AT);
    format.is_some_and(|format| format & FORMAT_LOST != 0)
}

/// An error if only some thread switches were sampled, as each one is needed.
fn check_periods(name: &str, perf_file: &PerfFile, formats: &Formats) -> Result<(), Error> {
    let sampled = |attribute: &AttributeDescription| {
        let id = tracepoint_id(attribute).and_then(|id| u16::try_from(id).ok());
        let format = formats.of(id?)?;
        let policy = attribute.attributes().sampling_policy;
        let each = matches!(policy, SamplingPolicy::Period(NonZeroU64::MIN));
        (format.tracepoint == Tracepoint::Switch && !each).then_some(())
    };
    if perf_file.event_attributes().iter().find_map(sampled).is_none() {
        return Ok(());
    }
    Err(Error::unsupported(name, SWITCHES_SAMPLED))
}

/// The number of the tracepoint; `None` if the event is of another type.
fn tracepoint_id(attribute: &AttributeDescription) -> Option<u64> {
    match attribute.attributes().type_ {
        PerfEventType::Tracepoint(id) => Some(id),
        _ => None,
    }
}

/// Passes on a record that is not a sample to `sink`; other types are ignored. False: it should be
/// understood and is not.
fn pass_on_note(record: &RawEventRecord<'_>, sink: &mut impl Sink) -> bool {
    let data = record.data.as_slice();
    let bytes = Bytes::new(&data, record.parse_info.endian);
    let note = match record.record_type {
        RecordType::COMM => comm(bytes),
        RecordType::FORK => task(bytes),
        RecordType::CGROUP => cgroup(bytes),
        RecordType::LOST => bytes.u64(8).map(|events| Note::Lost { events, by_the_kernel: false }),
        RecordType::LOST_SAMPLES if record.misc & MISC_LOST_BY_FILTER != 0 => return true,
        RecordType::LOST_SAMPLES => {
            bytes.u64(0).map(|events| Note::Lost { events, by_the_kernel: true })
        }
        _ => return true,
    };
    note.map(|note| sink.note(&note)).is_some()
}

/// The name that a thread takes, from a `COMM` record; `None` if it is too short.
fn comm(bytes: Bytes<'_>) -> Option<Note<'_>> {
    Some(Note::Comm { pid: bytes.i32(0)?, tid: bytes.i32(4)?, comm: bytes.text(8, 16)? })
}

/// A new thread and its parent, from a `FORK` record; `None` if it is too short.
fn task(bytes: Bytes<'_>) -> Option<Note<'_>> {
    Some(Note::Task { pid: bytes.i32(0)?, parent_pid: bytes.i32(4)?, tid: bytes.i32(8)? })
}

/// Number and path of a control group, from a `CGROUP` record; `None` if it is too short.
fn cgroup(bytes: Bytes<'_>) -> Option<Note<'_>> {
    Some(Note::Cgroup { id: bytes.u64(0)?, path: bytes.text(8, bytes.len().checked_sub(8)?)? })
}
