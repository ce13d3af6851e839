//! Files that are no recordings, or only half of one: one clear error, and soon.

use cpumax_recording::{Error, Options, Recording};
use std::fmt::Write as _;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

const WEB: &[u8] = include_bytes!("../data/web.perf.data");

fn refuse(name: &str, data: &[u8]) -> (Error, String) {
    let error = Recording::read_bytes(name, data, Options::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(name), "names the file: {text}");
    assert!(!text.contains('\n') && text.len() < 500, "one clear line: {text}");
    (error, text)
}

#[test]
fn a_directory_and_a_missing_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let error = Recording::read(folder, Options::default()).unwrap_err();
    assert!(error.to_string().contains("it is a directory"), "{error}");
    let error = Recording::read(&folder.join("no-such-file"), Options::default()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

const TIMEHIST: &str = concat!(
    "           time    cpu  task name                       wait time  sch delay   run time\n",
    "   26591.194802 [0000]  perf[19573]                         0.000      0.000      0.000\n",
);

#[test]
fn other_files_are_named() {
    for (data, says) in [
        (&b""[..], "empty"),
        (&[0; 4096][..], "of no form that is known"),
        (&b"PERFFILE\x68\0\0\0"[..], "version 1"),
        (&b"\xc1\x1f\xfc\xc1\0\0\0\0"[..], "CTF"),
        (&b"/* CTF 1.8 */\n"[..], "CTF"),
        (&b"\x7fELF\x02\x01"[..], "ELF"),
        (&b"\xd4\xc3\xb2\xa1\x02\0"[..], "pcap"),
        (&b"SQLite format 3\0"[..], "SQLite"),
        (&b"PK\x03\x04"[..], "zip"),
        (&b"BZh91AY"[..], "bzip2"),
        (&b"\x04\x22\x4d\x18"[..], "lz4"),
        (&b"{\"linux-perf-json-version\": 1}"[..], "JSON"),
        (&b"[\n  {\"ph\": \"X\"}]"[..], "JSON"),
        (&b"<!DOCTYPE html>"[..], "HTML"),
        (TIMEHIST.as_bytes(), "perf sched timehist"),
        (&b"Attaching 3 probes...\n"[..], "bpftrace"),
        (&b"GET / HTTP/1.1\nHost: x\n"[..], "line 1 is no event: `GET / HTTP/1.1`"),
        (&b"\n\n# nothing\n"[..], "no events"),
    ] {
        let (error, text) = refuse("x", data);
        assert!(matches!(error, Error::NotARecording { .. }), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

/// Claims to be endless, and counts the bytes that are read.
struct Zeros {
    read: u64,
}

impl Read for Zeros {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer.fill(0);
        self.read += buffer.len() as u64;
        assert!(self.read < 1 << 20, "looks at the start only");
        Ok(buffer.len())
    }
}

impl Seek for Zeros {
    fn seek(&mut self, _: SeekFrom) -> std::io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn ten_gigabytes_of_zeros() {
    let error =
        Recording::read_seekable("zeros", Zeros { read: 0 }, Options::default()).unwrap_err();
    assert!(matches!(error, Error::NotARecording { .. }), "{error}");
}

#[test]
fn text_without_a_single_event_is_given_up_soon() {
    let line = b"the quick brown fox\n".repeat(12_000);
    let endless = Cursor::new(&line[..]).chain(std::io::repeat(b'x'));
    let endless = std::io::BufReader::new(endless);
    let error = Recording::read_pipe("book", endless, Options::default()).unwrap_err();
    assert!(error.to_string().contains("line 1 is no event: `the quick brown fox`"), "{error}");
}

#[test]
fn events_but_no_switches() {
    let text = b"  a 7 [001] 8.5: 1 cycles:  ffffffff81 schedule\n";
    let (error, text) = refuse("cycles.txt", text);
    assert!(matches!(error, Error::Unsupported { .. }), "{text}");
    assert!(text.contains("perf sched record"), "says what would do: {text}");
}

#[test]
fn a_cut_file_anywhere() {
    for len in (0..WEB.len()).step_by(997).chain([7, 8, 16, 103, 104, WEB.len() - 1]) {
        let result = Recording::read_bytes("cut", &WEB[..len], Options::default());
        let error = result.expect_err("a cut file is refused");
        if len >= 16 {
            assert!(matches!(error, Error::Cut { .. }), "{len}: {error}");
        }
    }
}

#[test]
fn a_directory_of_something_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metadata"), "/* CTF 1.8 */").unwrap();
    let error = Recording::read(folder.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("CTF"), "{error}");
}

#[test]
fn a_packed_file_that_is_no_recording() {
    let (_, text) = refuse("x", &zstd::encode_all(&b"GET / HTTP/1.1\n"[..], 1).unwrap());
    assert!(text.contains("line 1 is no event"), "{text}");
    let twice = zstd::encode_all(&zstd::encode_all(WEB, 1).unwrap()[..], 1).unwrap();
    let (_, text) = refuse("x", &twice);
    assert!(text.contains("compressed twice"), "{text}");
    for start in [&b"\x1f\x8b\x08\x00"[..], b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0\0\0"] {
        let (error, text) = refuse("x", start);
        assert!(matches!(error, Error::Io { .. }), "{text}");
    }
}

/// A few kilobytes that would be 300 MiB in memory.
#[test]
fn a_packed_file_that_grows_too_large() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut WEB.chain(std::io::repeat(0).take(300 << 20)), &mut encoder).unwrap();
    let (error, text) = refuse("bomb", &encoder.finish().unwrap());
    assert!(matches!(error, Error::Unsupported { .. }), "{text}");
    assert!(text.contains("more than 256 MiB"), "{text}");
}

#[test]
fn a_clock_that_runs_backwards() {
    let mut text = String::new();
    for i in 0..1000 {
        let time = 5000 - i;
        writeln!(
            text,
            "  a 7 [000] {time}.000000: sched:sched_switch: prev_comm=a prev_pid=7 prev_prio=120 \
             prev_state=R ==> next_comm=a next_pid=7 next_prio=120"
        )
        .unwrap();
    }
    let (error, text) = refuse("clock", text.as_bytes());
    assert!(matches!(error, Error::Misordered { backwards: 101, .. }), "{text}");
}

#[test]
fn sizes_that_promise_too_much() {
    // Size of the head, size of an attribute, and sizes and offsets of sections.
    for at in [8, 16, 24, 32, 40, 48] {
        for value in [0, 1, u64::MAX, u64::MAX / 2, 1 << 40] {
            let mut data = WEB.to_vec();
            data[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let _ = Recording::read_bytes("sizes", &data, Options::default());
        }
    }
}

/// The number at this offset, eight bytes.
fn number(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}

/// A record of this kind.
fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), body].concat()
}

/// A recording with these records before its first one.
fn with_records(records: &[u8]) -> Vec<u8> {
    let (start, size) = (number(WEB, 40) as usize, number(WEB, 48) as usize);
    let mut file = [&WEB[..start], records, &WEB[start..]].concat();
    let longer = |file: &mut [u8], at: usize| {
        let longer = number(file, at) + records.len() as u64;
        file[at..at + 8].copy_from_slice(&longer.to_le_bytes());
    };
    longer(&mut file, 48);
    // The table of the sections behind the data.
    let sections: u32 = WEB[72..104].iter().map(|byte| byte.count_ones()).sum();
    for section in 0..sections as usize {
        longer(&mut file, start + size + records.len() + 16 * section);
    }
    file
}

/// A recording that begins with a control group of that path.
fn with_group(path: &str) -> Vec<u8> {
    const COMM: u32 = 3;
    const CGROUP: u32 = 19;
    // Thread, time, id, stream, CPU and identifier, eight bytes each, end a record.
    const AT_THE_END: u64 = 0x2 | 0x4 | 0x40 | 0x200 | 0x80 | 0x1_0000;
    let sample_type = number(WEB, number(WEB, 24) as usize + 24);
    let end_bytes = 8 * (sample_type & AT_THE_END).count_ones() as usize;
    let mut records = &WEB[number(WEB, 40) as usize..];
    let comm = loop {
        let (first, rest) =
            records.split_at(usize::from(records[6]) | usize::from(records[7]) << 8);
        if first[..4] == COMM.to_le_bytes() {
            break first;
        }
        records = rest;
    };
    let mut body = [&41_u64.to_le_bytes()[..], path.as_bytes()].concat();
    body.resize((body.len() + 1).next_multiple_of(8), 0);
    body.extend(&comm[comm.len() - end_bytes..]);
    with_records(&record(CGROUP, &body))
}

#[test]
fn a_group_thousands_deep() {
    let read = |path: &str| Recording::read_bytes("deep", &with_group(path), Options::default());
    assert!(read(&"/a".repeat(64)).is_ok());
    for parts in [65, 3000, 32_000] {
        let (error, text) = refuse("deep", &with_group(&"/a".repeat(parts)));
        assert!(matches!(error, Error::Implausible { .. }), "{text}");
        assert!(text.contains(&format!("{parts} groups deep")), "{text}");
        assert!(text.contains("at most 4096 bytes and 64 groups are possible"), "{text}");
    }
}

/// A few kilobytes that unpack to a million records each: the sum is bounded.
#[test]
fn many_small_records_in_a_few_compressed_ones() {
    const MMAP: u32 = 1;
    const COMPRESSED: u32 = 81;
    let unpacked = record(MMAP, &[]).repeat(1 << 20);
    let mut packed = vec![0; 1 << 15];
    let size = zstd_safe::compress(&mut packed[..], &unpacked, 1).unwrap();
    let file = with_records(&record(COMPRESSED, &packed[..size]).repeat(3));
    assert!(file.len() < WEB.len() + (1 << 15));
    let (error, text) = refuse("packed", &file);
    assert!(matches!(error, Error::Malformed { .. }), "{text}");
    assert!(text.contains("it unpacks to more than 400 MiB without a mark"), "{text}");
    assert!(text.contains("perf script -i FILE"), "{text}");
}

#[test]
fn counts_in_the_head_are_held_against_their_section() {
    const CMDLINE: u32 = 11;
    const EVENT_DESC: u32 = 12;
    let number = |data: &[u8], at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    let section = |data: &[u8], feature: u32| {
        let before = (number(data, 72) & ((1 << feature) - 1)).count_ones();
        let table = number(data, 40) + number(data, 48);
        number(data, table as usize + 16 * before as usize) as usize
    };
    // Any section before the names of events is taken for the command line.
    let features = number(WEB, 72);
    let other = (2..=CMDLINE).rev().find(|bit| features & (1 << bit) != 0).unwrap();
    let mut command = WEB.to_vec();
    let features = features & !(1 << other) | 1 << CMDLINE;
    command[72..80].copy_from_slice(&features.to_le_bytes());
    for (data, feature, says) in
        [(&command[..], CMDLINE, "a command line of"), (WEB, EVENT_DESC, "the names of the events")]
    {
        for count in [0x7f7f_7f7f_u32, u32::MAX] {
            let mut data = data.to_vec();
            let at = section(&data, feature);
            data[at..at + 4].copy_from_slice(&count.to_le_bytes());
            let (_, text) = refuse("x", &data);
            assert!(text.contains(says), "{text}");
        }
    }
}
