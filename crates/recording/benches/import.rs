//! Times reading a million events from each kind of file, and building a workload of them.
//!
//! The files repeat small recordings of the tests, each time later. With `KEEP=FOLDER` they are
//! written there and nothing is timed, so that the memory of `cpumax inspect` can be measured.

use cpumax_recording::{Options, Recording, Selection};
use divan::Bencher;
use divan::counter::ItemsCount;
use std::fmt::Write as _;
use std::io::Read;

#[path = "../tests/support/perfetto.rs"]
#[allow(dead_code, reason = "the tests need more of it")]
mod encode;

const WEB: &[u8] = include_bytes!("../tests/data/web.perf.data");
const TEXT: &str = include_str!("../tests/data/web.txt");
const PIPE_TEXT: &[u8] = include_bytes!("../tests/data/pipe.txt.gz");
const DAT: &[u8] = include_bytes!("../tests/data/ping.v6.dat.xz");

const EVENTS: u64 = 1_000_000;
/// Events in the small recording.
const EVENTS_ONCE: u64 = 3297;
/// More than its length, ns.
const ONCE_NS: u64 = 200_000_000;

fn main() {
    let Some(folder) = std::env::var_os("KEEP") else { return divan::main() };
    let files = [
        ("perf.data", million_of_data()),
        ("text", million_of_text()),
        ("pftrace", million_of_perfetto(encode::plain)),
        ("trace.dat", million_of_trace_dat()),
    ];
    for (name, file) in files {
        std::fs::write(std::path::Path::new(&folder).join(name), file).unwrap();
    }
}

#[divan::bench(sample_count = 10)]
fn perf_data(bencher: Bencher<'_, '_>) {
    let file = million_of_data();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| read(&file));
}

#[divan::bench(sample_count = 10)]
fn perf_script(bencher: Bencher<'_, '_>) {
    let file = million_of_text();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| read(&file));
}

#[divan::bench(sample_count = 10)]
fn perfetto(bencher: Bencher<'_, '_>) {
    let file = million_of_perfetto(encode::plain);
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| read(&file));
}

#[divan::bench(sample_count = 10)]
fn perfetto_compact(bencher: Bencher<'_, '_>) {
    let file = million_of_perfetto(encode::compact);
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| read(&file));
}

#[divan::bench(sample_count = 10)]
fn trace_dat(bencher: Bencher<'_, '_>) {
    let file = million_of_trace_dat();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| read(&file));
}

#[divan::bench(sample_count = 10)]
fn workload(bencher: Bencher<'_, '_>) {
    let recording = read(&million_of_data());
    bencher
        .counter(ItemsCount::new(EVENTS))
        .bench_local(|| recording.workload(&Selection::default()));
}

fn read(file: &[u8]) -> Recording {
    let recording = Recording::read_bytes("bench", file, Options::default()).unwrap();
    assert!(recording.summary().events >= EVENTS);
    recording
}

fn million_of_text() -> Vec<u8> {
    let mut text = String::new();
    for turn in 0..=EVENTS / EVENTS_ONCE {
        for line in TEXT.lines() {
            match line.split_once("] ") {
                Some((head, rest)) if !rest.contains("PERF_RECORD") => {
                    let (time, event) = rest.trim_start().split_once(':').unwrap();
                    let (seconds, nanos) = time.split_once('.').unwrap();
                    let at_ns = seconds.parse::<u64>().unwrap() * 1_000_000_000
                        + nanos.parse::<u64>().unwrap()
                        + turn * ONCE_NS;
                    let (seconds, nanos) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
                    writeln!(text, "{head}] {seconds}.{nanos:09}:{event}").unwrap();
                }
                _ if turn == 0 => writeln!(text, "{line}").unwrap(),
                _ => {}
            }
        }
    }
    text.into_bytes()
}

fn million_of_perfetto(make: impl Fn(u64, &[&encode::Line]) -> encode::Message) -> Vec<u8> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(PIPE_TEXT).read_to_string(&mut text).unwrap();
    let mut lines = encode::lines(&text);
    let mut file = encode::trace(&encode::about(&text));
    for _ in 0..=EVENTS / lines.len() as u64 {
        file.extend(encode::trace(&encode::bundles(&lines, 500, &make)));
        for line in &mut lines {
            line.time_ns += ONCE_NS;
        }
    }
    file
}

/// Repeats the pages of each CPU; their times stand at their beginning.
fn million_of_trace_dat() -> Vec<u8> {
    const PAGE_BYTES: usize = 4096;
    const EVENTS_IN_DAT: u64 = 444;
    let mut dat = Vec::new();
    liblzma::read::XzDecoder::new(DAT).read_to_end(&mut dat).unwrap();
    let tag = b"flyrecord\0";
    let table = dat.windows(tag.len()).position(|part| part == tag).unwrap() + tag.len();
    let first = number(&dat, table) as usize;
    let mut file = dat[..first].to_vec();
    for cpu in 0..2 {
        let entry = table + 16 * cpu;
        let (begin, len) = (number(&dat, entry) as usize, number(&dat, entry + 8) as usize);
        let at = file.len();
        for turn in 0..=EVENTS / EVENTS_IN_DAT {
            for page in dat[begin..begin + len].chunks(PAGE_BYTES) {
                let later_ns = number(page, 0) + turn * ONCE_NS;
                file.extend(later_ns.to_le_bytes());
                file.extend(&page[8..]);
            }
        }
        let grown = (file.len() - at) as u64;
        file[entry..entry + 8].copy_from_slice(&(at as u64).to_le_bytes());
        file[entry + 8..entry + 16].copy_from_slice(&grown.to_le_bytes());
    }
    file
}

fn number(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
}

/// Keeps head, attributes and sections, and repeats the records.
fn million_of_data() -> Vec<u8> {
    const SAMPLE: u32 = 9;
    const FINISHED_ROUND: [u8; 8] = [68, 0, 0, 0, 0, 0, 8, 0];
    /// Offset of the time in a record: behind its head, identifier, address and thread.
    const TIME_AT: usize = 8 + 24;
    let (begin, size) = (number(WEB, 40) as usize, number(WEB, 48) as usize);
    let (records, rest) = (&WEB[begin..begin + size], &WEB[begin + size..]);
    let mut file = WEB[..begin].to_vec();
    for turn in 0..=EVENTS / EVENTS_ONCE {
        let mut at = 0;
        while at < records.len() {
            let kind = u32::from_le_bytes(records[at..at + 4].try_into().unwrap());
            let len = usize::from(u16::from_le_bytes([records[at + 6], records[at + 7]]));
            if kind == SAMPLE || turn == 0 {
                file.extend(&records[at..at + len]);
            }
            if kind == SAMPLE {
                let time = file.len() - len + TIME_AT;
                let later_ns = number(&file, time) + turn * ONCE_NS;
                file[time..time + 8].copy_from_slice(&later_ns.to_le_bytes());
            }
            at += len;
        }
        file.extend(FINISHED_ROUND);
    }
    let grown = file.len() - begin - size;
    let new_size = (size + grown) as u64;
    file[48..56].copy_from_slice(&new_size.to_le_bytes());
    // The table of sections comes first in the rest; all of them moved.
    let sections = WEB[72..104].iter().map(|byte| byte.count_ones()).sum::<u32>() as usize;
    let table = file.len();
    file.extend(rest);
    for section in 0..sections {
        let offset = table + section * 16;
        let moved = number(&file, offset) + grown as u64;
        file[offset..offset + 8].copy_from_slice(&moved.to_le_bytes());
    }
    file
}
