//! Recognizes the form of a file by its first bytes, and explains why a file of another kind is not
//! read.

use crate::error::Error;
use crate::perf_data::is_perf_data;
use crate::perfetto::is_perfetto;
use crate::trace_dat::is_trace_dat;
use crate::wprof::is_wprof;
use schemars::JsonSchema;
use serde::Serialize;

/// A form of recording that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Form {
    /// Text of `perf script`, `trace-cmd report`, ftrace or atrace.
    Text,
    /// From `perf record`, be it a file, a directory or what went through a pipe.
    PerfData,
    /// A trace of Perfetto.
    Perfetto,
    /// From trace-cmd.
    TraceDat,
    /// JSON of wprof.
    Wprof,
}

impl Form {
    /// Whether the reader of the form seeks, so that the file must not be compressed as a whole.
    pub(crate) fn needs_seeking(self) -> bool {
        match self {
            Form::Text | Form::Perfetto | Form::Wprof => false,
            Form::PerfData | Form::TraceDat => true,
        }
    }

    /// The form, by the start of an unpacked file. A known kind that is not read is refused by
    /// name, as is unknown binary data; everything else counts as text.
    pub(crate) fn of(name: &str, start: &[u8]) -> Result<Form, Error> {
        if is_perf_data(start) {
            return Ok(Form::PerfData);
        }
        if is_trace_dat(start) {
            return Ok(Form::TraceDat);
        }
        if is_wprof(start) {
            return Ok(Form::Wprof);
        }
        if let Some(what) = unread_kind(start) {
            return Err(Error::not_a_recording(name, what));
        }
        if is_perfetto(start) {
            return Ok(Form::Perfetto);
        }
        if start.contains(&0) {
            return Err(Error::not_a_recording(name, "it is of no form that is known"));
        }
        Ok(Form::Text)
    }
}

/// The kind of a file that is not read, and how to get one that is; `None` if its start is of no
/// such kind.
fn unread_kind(start: &[u8]) -> Option<&'static str> {
    Some(match start {
        [] => "it is empty",
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..]
        | [b'E', b'L', b'I', b'F', b'F', b'R', b'E', b'P', ..] => {
            "it is a perf.data file of version 1 (Linux before 2.6.33); feed the output of `perf \
             script -i FILE` of that perf"
        }
        [0x75, 0xd1, 0x1d, 0x57, ..]
        | [0x57, 0x1d, 0xd1, 0x75, ..]
        | [0xc1, 0x1f, 0xfc, 0xc1, ..]
        | [0xc1, 0xfc, 0x1f, 0xc1, ..] => CTF,
        _ if start.starts_with(b"/* CTF ") => CTF,
        [0x7f, b'E', b'L', b'F', ..] => "it is a program (ELF), not a recording of one",
        [0xd4, 0xc3, 0xb2, 0xa1, ..]
        | [0xa1, 0xb2, 0xc3, 0xd4, ..]
        | [0x4d, 0x3c, 0xb2, 0xa1, ..]
        | [0x0a, 0x0d, 0x0d, 0x0a, ..] => "it holds packets of a network (pcap), not a scheduler's",
        _ if start.starts_with(b"SQLite format 3") => {
            "it is a database (SQLite); feed the trace that it was made of"
        }
        [b'P', b'K', 3, 4, ..] => "it is a zip archive; unpack it first",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "it is compressed by bzip2; unpack it first",
        [0x04, 0x22, 0x4d, 0x18, ..] => "it is compressed by lz4; unpack it first",
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            "it is compressed twice; unpack it first"
        }
        _ if looks_like_json(start) => {
            "it is JSON; feed the perf.data or trace that it was made of (Perfetto traces are read \
             in their own form)"
        }
        // Lines of the idle task begin with `<idle>-0`.
        _ if looks_like_html(start) => {
            "it is a web page (HTML); feed the trace in it, or that it was made of"
        }
        _ => return None,
    })
}

pub(crate) const CTF: &str = "it is a CTF trace (LTTng), which is not read; record with `perf \
    sched record -a --all-cgroups -- sleep 10` instead";

/// Whether a text begins as JSON does, after blanks: with `{` before a `"` or `}`, or with `[`
/// before a `{` or `]`.
pub(crate) fn looks_like_json(start: &[u8]) -> bool {
    let text = start.trim_ascii_start();
    let behind = text.get(1..).unwrap_or_default().trim_ascii_start().first();
    match text.first() {
        Some(b'{') => matches!(behind, Some(b'"' | b'}')),
        Some(b'[') => matches!(behind, Some(b'{' | b']')),
        _ => false,
    }
}

/// Whether a text begins as HTML or XML does.
fn looks_like_html(start: &[u8]) -> bool {
    let text = start.trim_ascii_start().get(..5).unwrap_or_default().to_ascii_lowercase();
    text.starts_with(b"<!") || text == b"<html" || text == b"<?xml"
}
