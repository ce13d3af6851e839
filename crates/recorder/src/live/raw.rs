//! Parses records of the BPF program (`bpf/intf.h`).

/// `FLAG_*` of `bpf/intf.h`.
pub(crate) const HARDIRQ: u8 = 1;
pub(crate) const SOFTIRQ: u8 = 2;
pub(crate) const PREV_OTHER: u8 = 8;
pub(crate) const NEXT_OTHER: u8 = 16;
pub(crate) const KTHREAD: u8 = 32;
pub(crate) const CHARGED: u8 = 64;

/// A record: its head, and the part of its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub time_ns: u64,
    /// Lost records of this CPU: as read, all so far; after `drain`, those since the last record.
    pub lost: u32,
    pub cpu: u16,
    pub flags: u8,
    /// The running thread.
    pub tid: i32,
    pub pid: i32,
    pub kind: Kind<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    Switch { charged_ns: u64, sum_ns: u64, next: Thread },
    Waking(Thread),
    New(Thread),
    Fork(Thread),
    Exec(Thread),
    Beat(Thread),
    Group { id: u64, parent: u64, name: &'a [u8] },
    Enter { number: u64, args: [u64; 5] },
    Leave { result: i64 },
    Sent { socket: u64, result: i64 },
    Received { socket: u64, result: i64 },
    Ready { socket: u64 },
    State { socket: u64, from: u32, to: u32 },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Thread {
    pub tid: i32,
    pub pid: i32,
    pub prio: i32,
    /// State in which the other thread left its CPU.
    pub state: u32,
    pub group: u64,
    pub comm: [u8; 16],
}

impl Record<'_> {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

const HEAD: usize = 24;

impl<'a> Record<'a> {
    /// Parses a record; `None` for an unknown kind.
    pub fn read(data: &'a [u8]) -> Option<Record<'a>> {
        let switched = || thread(data, HEAD + 16);
        let called = || Some((u64_at(data, HEAD)?, u64_at(data, HEAD + 8)? as i64));
        let kind = match *data.get(14)? {
            1 => Kind::Switch {
                charged_ns: u64_at(data, HEAD)?,
                sum_ns: u64_at(data, HEAD + 8)?,
                next: switched()?,
            },
            2 => Kind::Waking(switched()?),
            3 => Kind::New(switched()?),
            4 => Kind::Fork(switched()?),
            13 => Kind::Exec(switched()?),
            5 => Kind::Beat(switched()?),
            6 => Kind::Group {
                id: u64_at(data, HEAD)?,
                parent: u64_at(data, HEAD + 8)?,
                name: until_nul(data.get(HEAD + 16..)?),
            },
            7 => {
                let mut args = [0; 5];
                for (ix, arg) in args.iter_mut().enumerate() {
                    *arg = u64_at(data, HEAD + 8 + 8 * ix)?;
                }
                Kind::Enter { number: u64_at(data, HEAD)?, args }
            }
            8 => called().map(|(_, result)| Kind::Leave { result })?,
            9 => called().map(|(socket, result)| Kind::Sent { socket, result })?,
            10 => called().map(|(socket, result)| Kind::Received { socket, result })?,
            11 => called().map(|(socket, _)| Kind::Ready { socket })?,
            12 => called().map(|(socket, both)| Kind::State {
                socket,
                from: (both as u64 >> 32) as u32,
                to: both as u32,
            })?,
            _ => return None,
        };
        Some(Record {
            time_ns: u64_at(data, 0)?,
            lost: u32_at(data, 8)?,
            cpu: u16::from_ne_bytes(data.get(12..14)?.try_into().ok()?),
            flags: *data.get(15)?,
            tid: u32_at(data, 16)? as i32,
            pid: u32_at(data, 20)? as i32,
            kind,
        })
    }
}

fn thread(data: &[u8], at: usize) -> Option<Thread> {
    Some(Thread {
        tid: u32_at(data, at)? as i32,
        pid: u32_at(data, at + 4)? as i32,
        prio: u32_at(data, at + 8)? as i32,
        state: u32_at(data, at + 12)?,
        group: u64_at(data, at + 16)?,
        comm: data.get(at + 24..at + 40)?.try_into().ok()?,
    })
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// The text before its first NUL.
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}
