//! Events in an unnamed temporary file, in their order.

use cpumax_outcome::Releaser;
use cpumax_outcome::trace::{TraceEvent, What};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write};

/// Bytes of an event: time, CPU, kind and three numbers; little-endian.
const RECORD: usize = 8 + 2 + 1 + 3 * 8;
/// The idle CPU in a switch.
const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Spool {
    file: BufWriter<File>,
    /// The first write error: a sink cannot return it, so reading does.
    failed: Option<io::Error>,
}

impl Spool {
    pub(super) fn new() -> io::Result<Spool> {
        let file = BufWriter::with_capacity(1 << 16, tempfile::tempfile()?);
        Ok(Spool { file, failed: None })
    }

    pub(super) fn push(&mut self, event: TraceEvent) {
        if self.failed.is_none()
            && let Some(record) = encode(event)
        {
            self.failed = self.file.write_all(&record).err();
        }
    }

    pub(super) fn replay(self, mut to: impl FnMut(TraceEvent) -> io::Result<()>) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut record = [0; RECORD];
        loop {
            match reader.read_exact(&mut record) {
                Ok(()) => to(decode(&record)?)?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Encodes an event; `None` for messages and forks, which the trace does not show.
fn encode(event: TraceEvent) -> Option<[u8; RECORD]> {
    let one = |number: u32| [u64::from(number), 0, 0];
    let two = |number: u32, other: u32| [u64::from(number), u64::from(other), 0];
    let (kind, numbers): (u8, [u64; 3]) = match event.what {
        What::Switch { next } => (0, one(next.unwrap_or(NOBODY))),
        What::Sleep { task } => (1, one(task)),
        What::Wake { task } => (2, one(task)),
        What::Throttle { group } => (3, one(group)),
        What::Unthrottle { group } => (4, one(group)),
        What::Park { task } => (5, one(task)),
        What::Unpark { task } => (6, one(task)),
        What::Period { group } => (7, one(group)),
        What::LockWait { task, lock } => (8, two(task, lock)),
        What::LockTaken { task, lock } => (9, two(task, lock)),
        What::Exit { task } => (10, one(task)),
        What::WokenBy { task, by } => (11, two(task, by)),
        What::Done { task, took_ns } => (12, [u64::from(task), took_ns, 0]),
        What::Runtime { group, left_ns } => (13, [u64::from(group), left_ns, 0]),
        What::Release { by, took_ns, told, rqs, cfs_rqs, tasks } => {
            let kind = if by == Releaser::Distribute { 14 } else { 15 };
            let pair = |low, high| u64::from(low) | u64::from(high) << 32;
            (kind, [took_ns, pair(told, rqs), pair(cfs_rqs, tasks)])
        }
        What::SendBegins(_) | What::Sent(_) | What::Received(_) | What::Forked { .. } => {
            return None;
        }
    };
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&event.time_ns.to_le_bytes());
    record[8..10].copy_from_slice(&event.cpu.to_le_bytes());
    record[10] = kind;
    for (place, number) in record[11..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    Some(record)
}

fn decode(record: &[u8; RECORD]) -> io::Result<TraceEvent> {
    let number = |at: usize| {
        u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    let large = |at: usize| u64::from(number(at)) | u64::from(number(at + 4)) << 32;
    let (first, second) = (number(11), number(19));
    let what = match record[10] {
        0 => What::Switch { next: (first != NOBODY).then_some(first) },
        1 => What::Sleep { task: first },
        2 => What::Wake { task: first },
        3 => What::Throttle { group: first },
        4 => What::Unthrottle { group: first },
        5 => What::Park { task: first },
        6 => What::Unpark { task: first },
        7 => What::Period { group: first },
        8 => What::LockWait { task: first, lock: second },
        9 => What::LockTaken { task: first, lock: second },
        10 => What::Exit { task: first },
        11 => What::WokenBy { task: first, by: second },
        12 => What::Done { task: first, took_ns: large(19) },
        13 => What::Runtime { group: first, left_ns: large(19) },
        kind @ (14 | 15) => What::Release {
            by: if kind == 14 { Releaser::Distribute } else { Releaser::Handler },
            took_ns: large(11),
            told: second,
            rqs: number(23),
            cfs_rqs: number(27),
            tasks: number(31),
        },
        _ => {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the trace's temporary file is damaged",
            ));
        }
    };
    let cpu = u16::from_le_bytes([record[8], record[9]]);
    Ok(TraceEvent { time_ns: large(0), cpu, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(by: Releaser) -> What {
        let took_ns = 3 << 40;
        What::Release { by, took_ns, told: u32::MAX, rqs: 15, cfs_rqs: 16, tasks: 17 }
    }

    #[test]
    fn every_kind_of_event_comes_back_as_it_went() {
        let kinds = [
            What::Switch { next: None },
            What::Switch { next: Some(7) },
            What::Sleep { task: 1 },
            What::Wake { task: 2 },
            What::Throttle { group: 3 },
            What::Unthrottle { group: 4 },
            What::Park { task: 5 },
            What::Unpark { task: 6 },
            What::Period { group: 7 },
            What::LockWait { task: 8, lock: 9 },
            What::LockTaken { task: 10, lock: u32::MAX },
            What::Exit { task: 11 },
            What::WokenBy { task: 12, by: u32::MAX },
            What::Done { task: 13, took_ns: u64::MAX - 1 },
            What::Runtime { group: 14, left_ns: 1 << 40 },
            released(Releaser::Distribute),
            released(Releaser::Handler),
        ];
        let mut spool = Spool::new().unwrap();
        let mut pushed = Vec::new();
        for (index, what) in kinds.into_iter().enumerate() {
            let event = TraceEvent { time_ns: u64::MAX - index as u64, cpu: 4095, what };
            spool.push(event);
            pushed.push(event);
        }
        let mut replayed = Vec::new();
        spool
            .replay(|event| {
                replayed.push(event);
                Ok(())
            })
            .unwrap();
        assert_eq!(replayed, pushed);
    }
}
