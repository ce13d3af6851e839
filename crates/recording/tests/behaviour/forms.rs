//! One load, recorded in different forms, makes the same workload, as far as each form carries it.
//!
//! In all files two threads, `ping` and `pong`, pass a byte to and fro. `perf record -o -` wrote
//! `pipe.perf.data.xz`, `perf record --threads` wrote `threads`; in `group.perf.data.xz` events are
//! a group (`{...}:S`). `perf script --header --ns --show-task-events -F
//! comm,pid,tid,cpu,time,event,trace` printed the texts of the first two. `trace-cmd record
//! --file-version 6` wrote `ping.v6.dat.xz`, and `trace-cmd convert` made the files of version 7
//! from it; `ping.report` and `ping.report-R` are its `trace-cmd report -t` and `-R -t`. Names of
//! other threads are replaced by as many `x`, symbols of the kernel by empty lines.

use cpumax_recording::{Form, Options, Recording, Selection, Summary, ThreadSummary};
use cpumax_workload::Workload;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

pub(super) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(name: &str) -> Recording {
    Recording::read(&path(name), Options::default()).unwrap()
}

pub(super) fn workload(recording: &Recording) -> Workload {
    let selection = Selection { limited: vec!["p?ng".parse().unwrap()], ..Selection::default() };
    recording.workload(&selection).unwrap().with_name("same", "").unwrap()
}

/// The threads of the load.
pub(super) fn ping_and_pong(summary: &Summary) -> Vec<&ThreadSummary> {
    let mut threads: Vec<_> =
        summary.threads.iter().filter(|t| t.comm == "ping" || t.comm == "pong").collect();
    threads.sort_by_key(|thread| thread.tid);
    threads
}

#[test]
fn pipe_and_its_text() {
    let (pipe, text) = (read("pipe.perf.data.xz"), read("pipe.txt.gz"));
    assert_eq!(ping_and_pong(&pipe.summary()), ping_and_pong(&text.summary()));
    assert_eq!(workload(&pipe), workload(&text));
    assert!(pipe.summary().kernel.is_some() && pipe.summary().has_syscalls);
}

#[test]
fn a_directory_of_threads_and_its_text() {
    let (threads, text) = (read("threads"), read("threads.txt.gz"));
    let (threads, text) = (threads.summary(), text.summary());
    assert_eq!(ping_and_pong(&threads).len(), 2);
    assert_eq!(ping_and_pong(&threads), ping_and_pong(&text));
    assert_eq!((threads.events, threads.span_ns), (text.events, text.span_ns));
    assert!(threads.has_context && !text.has_context, "flags are in perf.data only");
}

/// Records as `perf record -z` packs them: in records of their own, in one frame that never ends.
fn packed(records: &[u8], piece: usize) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let (mut packed, mut from) = (Vec::new(), 0);
    for piece in records.chunks(piece) {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
        let body = &encoder.get_ref()[from..];
        packed.extend(81_u32.to_le_bytes());
        packed.extend([0; 2]);
        packed.extend((8 + body.len() as u16).to_le_bytes());
        packed.extend(body);
        from = encoder.get_ref().len();
    }
    packed
}

#[test]
fn threads_that_compress_are_read_each_by_itself() {
    let want = read("threads").summary();
    for piece in [100, 5000, 60_000] {
        let folder = tempfile::tempdir().unwrap();
        for file in ["data", "data.0", "data.1"] {
            let mut data = std::fs::read(path("threads").join(file)).unwrap();
            if file != "data" {
                data = packed(&data, piece);
            }
            std::fs::write(folder.path().join(file), data).unwrap();
        }
        let read = Recording::read(folder.path(), Options::default()).unwrap();
        assert_eq!(read.summary(), want, "pieces of {piece}");
    }
}

#[test]
fn only_the_first_event_of_a_group_is_recorded() {
    let summary = read("group.perf.data.xz").summary();
    assert_eq!(ping_and_pong(&summary).len(), 2);
    assert_eq!(summary.defects.unreadable_records, 0);
}

#[test]
fn trace_dat_of_either_version_and_its_texts() {
    let first = read("ping.v6.dat.xz");
    let summary = first.summary();
    assert_eq!(ping_and_pong(&summary).len(), 2);
    assert!(summary.has_syscalls && summary.has_runtime && summary.has_context);
    assert_eq!((summary.cpus, summary.kernel.is_some()), (2, true));
    for name in ["ping.v7.dat.xz", "ping.v7-zstd.dat"] {
        let other = read(name);
        assert_eq!(other.summary(), summary, "{name}");
        assert_eq!((summary.form, summary.has_processes), (Form::TraceDat, false), "{name}");
        assert_eq!(workload(&other), workload(&first), "{name}");
    }
    for name in ["ping.report.txt.gz", "ping.report-R.txt.gz"] {
        let text = read(name).summary();
        assert_eq!(text.threads, summary.threads, "{name}");
        assert_eq!((text.events, text.span_ns), (summary.events, summary.span_ns), "{name}");
    }
    assert_eq!(workload(&read("ping.report.txt.gz")), workload(&first));
}

#[test]
fn trace_dat_may_end_anywhere() {
    let whole = std::fs::read(path("ping.v7-zstd.dat")).unwrap();
    for len in (0..whole.len()).step_by(61) {
        match Recording::read_bytes("cut", &whole[..len], Options::default()) {
            Err(error) => assert!(error.to_string().starts_with("cut: "), "{len}: {error}"),
            // Only descriptions of sections are missing.
            Ok(recording) => assert_eq!(recording.summary(), read("ping.v6.dat.xz").summary()),
        }
    }
}

#[test]
fn a_directory_of_kcore_is_the_recording_in_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("kcore_dir")).unwrap();
    std::fs::copy(path("web.perf.data"), folder.path().join("data")).unwrap();
    let recording = Recording::read(folder.path(), Options::default()).unwrap();
    assert_eq!(recording.summary(), read("web.perf.data").summary());
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn xz(data: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    liblzma::read::XzEncoder::new(data, 0).read_to_end(&mut packed).unwrap();
    packed
}

#[test]
fn compressed_as_a_whole_is_the_same() {
    for name in ["web.perf.data", "web.txt"] {
        let plain = std::fs::read(path(name)).unwrap();
        let want = Recording::read_bytes("plain", &plain, Options::default()).unwrap().summary();
        for packed in [gzip(&plain), xz(&plain), zstd::encode_all(&plain[..], 1).unwrap()] {
            assert!(packed.len() < plain.len());
            let recording = Recording::read_bytes("packed", &packed, Options::default()).unwrap();
            assert_eq!(recording.summary(), want, "{name}");
            let cut = &packed[..packed.len() / 2];
            let error = Recording::read_bytes("cut", cut, Options::default());
            assert!(error.is_err(), "half of {name}");
        }
    }
}

#[test]
fn a_pipe_may_carry_any_form() {
    let options = Options { event_cost: Some(read("web.perf.data").summary().event_cost) };
    let want = read("web.perf.data").summary();
    let data = std::fs::read(path("web.perf.data")).unwrap();
    for data in [gzip(&data), data] {
        let pipe = std::io::BufReader::new(&data[..]);
        assert_eq!(Recording::read_pipe("-", pipe, options).unwrap().summary(), want);
    }
}

#[test]
fn a_file_from_a_pipe_may_end_anywhere() {
    let mut pipe = Vec::new();
    let packed = std::fs::File::open(path("pipe.perf.data.xz")).unwrap();
    liblzma::read::XzDecoder::new(packed).read_to_end(&mut pipe).unwrap();
    let whole = Recording::read_bytes("pipe", &pipe, Options::default()).unwrap().summary();
    for len in (0..pipe.len()).step_by(4999) {
        let cut = Cursor::new(&pipe[..len]);
        if let Ok(cut) = Recording::read_seekable("cut", cut, Options::default()) {
            let summary = cut.summary();
            assert!(summary.events < whole.events && summary.defects.cut_at_the_end <= 1, "{len}");
        }
    }
    let cut = &pipe[..pipe.len() - 5];
    let cut = Recording::read_bytes("cut", cut, Options::default()).unwrap().summary();
    // The last record only marks the end of a round.
    assert_eq!((cut.events, cut.defects.cut_at_the_end), (whole.events, 1));
}
