//! One sample of a tracepoint: its head by the sample format, its content by the tracepoint's own.

use crate::event::{Event, Kind};
use crate::raw::{Bytes, Format, Formats, TYPE_AT, context};
use linux_perf_event_reader::{RawEventRecord, ReadFormat, SampleFormat};
use std::borrow::Cow;

/// A sample whose head has been read.
pub(super) struct Sample<'a> {
    data: Cow<'a, [u8]>,
    raw_at: usize,
    raw_len: usize,
    little: linux_perf_event_reader::Endianness,
    format: Option<&'a Format>,
    has_waking: bool,
    head: Head,
}

#[derive(Debug, Clone, Copy, Default)]
struct Head {
    pid: Option<i32>,
    tid: i32,
    time_ns: u64,
    cpu: u32,
    cgroup: Option<u64>,
}

/// Reads the head of a sample, and finds the description of its tracepoint; `None` if the sample
/// does not fit its own layout.
pub(super) fn read<'a>(record: &RawEventRecord<'a>, formats: &'a Formats) -> Option<Sample<'a>> {
    let data = record.data.as_slice();
    let bytes = Bytes::new(&data, record.parse_info.endian);
    let (head, raw_at, raw_len) = read_head(bytes, record.parse_info.sample_format, |at| {
        counts_len(bytes, at, record.parse_info.read_format, formats.counts_lost)
    })?;
    let raw = bytes.part(raw_at, raw_len)?;
    let format = if raw_len == 0 { None } else { formats.of(raw.u16(TYPE_AT)?) };
    Some(Sample {
        raw_at,
        raw_len,
        little: record.parse_info.endian,
        format,
        has_waking: formats.has_waking,
        head,
        data,
    })
}

/// Reads the fields before the raw data. Also returns offset and length of the raw data, which is 0
/// if there is none. `counts_len` tells the size of counts at an offset.
fn read_head(
    bytes: Bytes<'_>,
    layout: SampleFormat,
    counts_len: impl Fn(usize) -> Option<usize>,
) -> Option<(Head, usize, usize)> {
    let mut head = Head::default();
    let mut at = 0;
    let has = |flag| layout.contains(flag);
    for flag in [SampleFormat::IDENTIFIER, SampleFormat::IP] {
        at += if has(flag) { 8 } else { 0 };
    }
    if has(SampleFormat::TID) {
        head.pid = Some(bytes.i32(at)?);
        head.tid = bytes.i32(at + 4)?;
        at += 8;
    }
    if has(SampleFormat::TIME) {
        head.time_ns = bytes.u64(at)?;
        at += 8;
    }
    for flag in [SampleFormat::ADDR, SampleFormat::ID, SampleFormat::STREAM_ID] {
        at += if has(flag) { 8 } else { 0 };
    }
    if has(SampleFormat::CPU) {
        head.cpu = bytes.u32(at)?;
        at += 8;
    }
    at += if has(SampleFormat::PERIOD) { 8 } else { 0 };
    if has(SampleFormat::READ) {
        at = at.checked_add(counts_len(at)?)?;
    }
    if has(SampleFormat::CALLCHAIN) {
        let frames = usize::try_from(bytes.u64(at)?).ok()?;
        at = frames.checked_mul(8)?.checked_add(at + 8)?;
    }
    if has(SampleFormat::CGROUP) && !has(SampleFormat::AUX) {
        let behind = 8 * usize::from(has(SampleFormat::DATA_PAGE_SIZE))
            + 8 * usize::from(has(SampleFormat::CODE_PAGE_SIZE));
        head.cgroup = bytes.u64(bytes.len().checked_sub(8 + behind)?);
    }
    if !has(SampleFormat::RAW) {
        return Some((head, at, 0));
    }
    let raw_len = bytes.u32(at)? as usize;
    Some((head, at + 4, raw_len))
}

/// Size in bytes of the counts at `at`, of one event or a group; `lost`: with counts of lost
/// events. `None` if the number of the group's events lies beyond the record.
fn counts_len(bytes: Bytes<'_>, at: usize, layout: ReadFormat, lost: bool) -> Option<usize> {
    let count = |flags: &[ReadFormat]| flags.iter().filter(|f| layout.contains(**f)).count();
    let times = count(&[ReadFormat::TOTAL_TIME_ENABLED, ReadFormat::TOTAL_TIME_RUNNING]);
    let each = 1 + count(&[ReadFormat::ID]) + usize::from(lost);
    let events = if layout.contains(ReadFormat::GROUP) {
        1 + usize::try_from(bytes.u64(at)?).ok()?.checked_mul(each)?
    } else {
        each
    };
    events.checked_add(times)?.checked_mul(8)
}

impl Sample<'_> {
    /// Calls `f` with the sample's event; content that does not fit its description makes it
    /// [`Kind::Other`].
    pub fn with_event<T>(&self, f: impl FnOnce(&Event<'_>) -> T) -> T {
        let bytes = Bytes::new(&self.data, self.little);
        let raw = bytes.part(self.raw_at, self.raw_len).unwrap_or(bytes);
        let kind = match self.format {
            None => Kind::Other,
            Some(format) => format.kind(raw, self.has_waking).unwrap_or(Kind::Other),
        };
        f(&Event {
            time_ns: self.head.time_ns,
            cpu: self.head.cpu,
            tid: self.head.tid,
            pid: self.head.pid.filter(|pid| *pid > 0),
            comm: None,
            cgroup: self.head.cgroup,
            context: context(raw).filter(|_| self.raw_len > 0),
            kind,
        })
    }
}
