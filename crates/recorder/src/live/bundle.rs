//! Events of one CPU over some time, as Perfetto's `FtraceEventBundle`. Switches and wakeups are
//! compact, with each field as an array; other events are single messages. Fields that Perfetto
//! lacks are in a message of our own, which other programs skip (docs/guide/record.md).

use super::raw::until_nul;
use super::wire::{bytes, number, packed, varint};
use std::collections::HashMap;

/// Number of our own field in `FtraceEventBundle` and in `TracePacket`.
pub(crate) const OURS: u32 = 5210;

/// Events of one CPU that have not been written yet.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    pub events: u64,
    names: HashMap<[u8; 16], u64>,
    table: Vec<u8>,
    plain: Vec<u8>,
    /// Time, state, thread, priority, name; CPU time charged to the leaving thread, ns, plus 1 (0:
    /// unknown); number of the next thread's group (0: unknown).
    switches: Columns<7>,
    /// Time, thread, CPU, priority, name, flags.
    wakings: Columns<6>,
    /// Time, running thread.
    beats: Columns<2>,
    /// Time, thread, kind, number of the socket, value.
    sockets: Columns<5>,
    lost: u64,
    scratch: Vec<u8>,
    inner: Vec<u8>,
}

/// Events of one kind, each field as a column. The first column is the time since the event before,
/// for the first event the absolute time.
#[derive(Debug)]
struct Columns<const N: usize> {
    last_ns: u64,
    columns: [Vec<u8>; N],
}

impl<const N: usize> Default for Columns<N> {
    fn default() -> Self {
        Columns { last_ns: 0, columns: [const { Vec::new() }; N] }
    }
}

impl<const N: usize> Columns<N> {
    fn push(&mut self, mut values: [u64; N]) {
        let time_ns = values[0];
        values[0] = time_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(time_ns);
        for (column, value) in self.columns.iter_mut().zip(values) {
            varint(column, value);
        }
    }

    /// Appends the columns from `from` on as packed fields with these numbers.
    fn write(&self, to: &mut Vec<u8>, from: usize, fields: &[u32]) {
        for (column, field) in self.columns[from..].iter().zip(fields) {
            packed(to, *field, column);
        }
    }

    fn forget(&mut self) {
        self.last_ns = 0;
        self.columns.iter_mut().for_each(Vec::clear);
    }

    fn size(&self) -> usize {
        N * self.columns[0].len()
    }
}

/// A thread that gets a CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next {
    pub tid: i32,
    pub prio: i32,
    pub comm: [u8; 16],
    pub group: u32,
}

/// Kinds of socket events, as in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AtSocket {
    Sent = 1,
    Received,
    Ready,
    State,
}

fn signed(value: i32) -> u64 {
    i64::from(value) as u64
}

impl Bundle {
    pub fn switch(&mut self, time_ns: u64, state: u32, charged_ns: Option<u64>, next: &Next) {
        let name = self.name(&next.comm);
        let charged = charged_ns.map_or(0, |ns| ns.saturating_add(1));
        let (tid, prio) = (signed(next.tid), signed(next.prio));
        let group = u64::from(next.group);
        self.switches.push([time_ns, u64::from(state), tid, prio, name, charged, group]);
        self.events += 1;
    }

    pub fn waking(&mut self, time_ns: u64, tid: i32, prio: i32, comm: &[u8; 16], flags: u64) {
        let name = self.name(comm);
        self.wakings.push([time_ns, signed(tid), 0, signed(prio), name, flags]);
        self.events += 1;
    }

    /// Notes the running thread, whose start was missed.
    pub fn beat(&mut self, time_ns: u64, tid: i32) {
        self.beats.push([time_ns, signed(tid)]);
        self.events += 1;
    }

    pub fn socket(&mut self, time_ns: u64, tid: i32, kind: AtSocket, socket: u32, value: i64) {
        // Zigzag encoding: small for both signs.
        let value = ((value << 1) ^ (value >> 63)) as u64;
        self.sockets.push([time_ns, signed(tid), kind as u64, u64::from(socket), value]);
        self.events += 1;
    }

    /// Adds a `FtraceEvent` of thread `tid`; `content` writes the message in `field`.
    pub fn plain(
        &mut self,
        time_ns: u64,
        tid: i32,
        field: u32,
        content: impl FnOnce(&mut Vec<u8>),
    ) {
        self.inner.clear();
        content(&mut self.inner);
        self.scratch.clear();
        number(&mut self.scratch, 1, time_ns);
        number(&mut self.scratch, 2, i64::from(tid) as u64);
        bytes(&mut self.scratch, field, &self.inner);
        bytes(&mut self.plain, 2, &self.scratch);
        self.events += 1;
    }

    /// Notes lost events before the following ones. The bundle must be empty.
    pub fn lost(&mut self, events: u64) {
        self.lost += events;
    }

    pub fn is_empty(&self) -> bool {
        self.events == 0 && self.lost == 0
    }

    /// Estimated size of the bundle, bytes.
    pub fn size(&self) -> usize {
        let compact = self.switches.size() + self.wakings.size();
        self.plain.len() + compact + self.beats.size() + self.sockets.size()
    }

    /// Appends the bundle to a file's packets and empties it.
    pub fn write(&mut self, cpu: u16, to: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let mut bundle = Vec::with_capacity(self.size() + 64);
        number(&mut bundle, 1, u64::from(cpu));
        bundle.extend_from_slice(&self.plain);
        if self.lost > 0 {
            number(&mut bundle, 3, 1);
        }
        let compact = self.compact();
        packed(&mut bundle, 4, &compact);
        let ours = self.ours();
        packed(&mut bundle, OURS, &ours);
        let mut packet = Vec::with_capacity(bundle.len() + 16);
        bytes(&mut packet, 1, &bundle);
        bytes(to, 1, &packet);
        self.forget();
    }

    /// The message `CompactSched`.
    fn compact(&self) -> Vec<u8> {
        let mut to = self.table.clone();
        self.switches.write(&mut to, 0, &[1, 2, 3, 4, 6]);
        self.wakings.write(&mut to, 0, &[7, 8, 9, 10, 11, 12]);
        to
    }

    fn ours(&self) -> Vec<u8> {
        let mut to = Vec::new();
        if self.lost > 0 {
            number(&mut to, 1, self.lost);
        }
        self.switches.write(&mut to, 5, &[2, 3]);
        self.beats.write(&mut to, 0, &[4, 5]);
        self.sockets.write(&mut to, 0, &[6, 7, 8, 9, 10]);
        to
    }

    fn forget(&mut self) {
        (self.events, self.lost) = (0, 0);
        self.names.clear();
        self.table.clear();
        self.plain.clear();
        self.switches.forget();
        self.wakings.forget();
        self.beats.forget();
        self.sockets.forget();
    }

    /// Index of a name in the table of names; adds a new one.
    fn name(&mut self, comm: &[u8; 16]) -> u64 {
        if let Some(number) = self.names.get(comm) {
            return *number;
        }
        let number = self.names.len() as u64;
        self.names.insert(*comm, number);
        bytes(&mut self.table, 5, String::from_utf8_lossy(until_nul(comm)).as_bytes());
        number
    }
}
