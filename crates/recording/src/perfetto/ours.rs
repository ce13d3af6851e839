//! Additions of `cpumax record` to a Perfetto trace, in fields that other readers skip. Bundles
//! have CPU time and groups beside the columns of switches, threads that were running already, and
//! events of sockets. Packets have the paths of groups and the description of the recording.
//! `crates/recorder/src/live/bundle.rs` writes the columns.

use super::wire::{Broken, Part, field, fields};
use crate::event::{Kind, Machine, Note, Sink};

/// Number of the field, in bundles and in packets.
pub(super) const FIELD: u32 = 5210;

const CHARGED: usize = 2;
const GROUP: usize = 3;
const RUNNING: [usize; 2] = [4, 5];
const SOCKET: [usize; 5] = [6, 7, 8, 9, 10];

/// The columns, and how far they have been read.
#[derive(Debug, Default)]
pub(super) struct Ours {
    /// Number of events of this CPU missing before the first one.
    pub lost: u64,
    columns: [Part; 11],
    running_ns: u64,
    socket_ns: u64,
}

/// The thread is running, since an unknown time.
#[derive(Debug, Clone, Copy)]
pub(super) struct StillRunning {
    pub time_ns: u64,
    pub tid: i32,
}

/// An event of a socket while this thread runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct AtSocket {
    pub time_ns: u64,
    pub tid: i32,
    pub kind: Kind<'static>,
}

impl Ours {
    /// Finds the columns between two offsets of the bundle; an error if they are no message.
    pub fn new(bundle: &[u8], begin: usize, end: usize) -> Result<Ours, Broken> {
        let within = bundle.get(..end).ok_or(Broken)?;
        let (mut ours, mut at) = (Ours::default(), begin);
        while let Some((number, value)) = field(within, &mut at)? {
            let part = Part { begin: at - value.bytes().len(), end: at };
            match (number, ours.columns.get_mut(number as usize)) {
                (1, _) => ours.lost = value.number(),
                (_, Some(column)) => *column = part,
                _ => {}
            }
        }
        Ok(ours)
    }

    /// Takes the CPU time charged to the thread that leaves at the next switch, ns, and the group
    /// of the next thread, as far as they are known.
    pub fn next_of_switch(&mut self, bundle: &[u8]) -> (Option<u64>, Option<u64>) {
        let charged = self.next_number(bundle, CHARGED).and_then(|ns| ns.checked_sub(1));
        (charged, self.next_number(bundle, GROUP).filter(|group| *group > 0))
    }

    /// Takes the next thread that was running already; `None` at the end.
    pub fn next_running(&mut self, bundle: &[u8]) -> Option<StillRunning> {
        let [later, tid] = RUNNING.map(|column| self.next_number(bundle, column));
        self.running_ns = self.running_ns.wrapping_add(later?);
        Some(StillRunning { time_ns: self.running_ns, tid: tid? as i32 })
    }

    /// Takes the next event of a socket; unknown kinds become [`Kind::Other`]. `None` at the end.
    pub fn next_at_socket(&mut self, bundle: &[u8]) -> Option<AtSocket> {
        let [later, tid, kind, socket, value] =
            SOCKET.map(|column| self.next_number(bundle, column));
        self.socket_ns = self.socket_ns.wrapping_add(later?);
        let (socket, value) = (socket?, value?);
        let result = (value >> 1) as i64 ^ -((value & 1) as i64);
        let kind = match kind? {
            1 => Kind::SocketSent { socket, result },
            2 => Kind::SocketReceived { socket, result },
            3 => Kind::DataReady { socket },
            4 => Kind::SocketState {
                socket,
                from: (result as u64 >> 8) as u32 & 0xff,
                to: result as u32 & 0xff,
            },
            _ => Kind::Other,
        };
        Some(AtSocket { time_ns: self.socket_ns, tid: tid? as i32, kind })
    }

    /// Takes the next number of a column; `None` at its end.
    fn next_number(&mut self, bundle: &[u8], column: usize) -> Option<u64> {
        self.columns[column].next_number(bundle)
    }
}

/// Bound on the description, whose bytes may take many more in memory.
const JSON_MAX_BYTES: usize = 1 << 20;

/// Reads a packet of `cpumax record`: the descriptions at begin and end into `machine`, paths of
/// groups to `sink`. Descriptions above 1 MiB are skipped, malformed ones count as missing.
pub(super) fn packet(packet: &[u8], machine: &mut Machine, sink: &mut impl Sink) {
    for (number, value) in fields(packet) {
        match number {
            1 | 3 if value.bytes().len() > JSON_MAX_BYTES => {}
            1 => {
                machine.about = serde_json::from_slice(value.bytes()).ok().map(Box::new);
                if let Some(about) = &machine.about {
                    machine.command = Some(about.command.clone());
                }
            }
            2 => {
                let (mut id, mut path) = (0, "");
                for (number, value) in fields(value.bytes()) {
                    match number {
                        1 => id = value.number(),
                        2 => path = value.text(),
                        _ => {}
                    }
                }
                sink.note(&Note::Cgroup { id, path });
            }
            3 => machine.ended = serde_json::from_slice(value.bytes()).ok().map(Box::new),
            _ => {}
        }
    }
}
