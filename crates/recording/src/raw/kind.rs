//! The event in a raw record, by its tracepoint's description.

use super::bytes::Bytes;
use super::format::Format;
use crate::event::{Context, Irq, Kind, MSG_PEEK, Named, ThreadRef};
use crate::tracepoint::Tracepoint;

/// Flags in `common_flags`: in a hard, in a soft interrupt.
const FLAG_HARDIRQ: u8 = 0x08;
const FLAG_SOFTIRQ: u8 = 0x10;
/// Offsets of `common_type`, `common_flags` and `common_pid`, in every kernel since 2.6.31.
pub(crate) const TYPE_AT: usize = 0;
const FLAGS_AT: usize = 2;
pub(crate) const PID_AT: usize = 4;

/// The interrupt context of a record, by its common flags; `None` if it is too short.
pub(crate) fn context(raw: Bytes<'_>) -> Option<Context> {
    let flags = raw.u8(FLAGS_AT)?;
    Some(Context { hardirq: flags & FLAG_HARDIRQ != 0, softirq: flags & FLAG_SOFTIRQ != 0 })
}

impl Format {
    /// Reads the event; `None` if the record does not fit its description. `has_waking`:
    /// `sched_wakeup` is not needed, because `sched_waking` is there.
    pub fn kind<'a>(&self, raw: Bytes<'a>, has_waking: bool) -> Option<Kind<'a>> {
        let number = |i: usize| self.fields.get(i)?.number(raw);
        let text = |i: usize| self.fields.get(i)?.text(raw);
        let named = |comm: usize, pid: usize, prio: usize| {
            Some(ThreadRef {
                comm: text(comm)?,
                tid: number(pid)? as i32,
                prio: number(prio)? as i32,
            })
        };
        let cpu = |i: usize| number(i).and_then(|cpu| u32::try_from(cpu).ok());
        Some(match self.tracepoint {
            Tracepoint::Switch => Kind::Switch {
                prev: named(0, 1, 2)?,
                left: self.prev_state(number(3)? as u64),
                next: named(4, 5, 6)?,
            },
            Tracepoint::Wakeup if has_waking => Kind::Other,
            Tracepoint::Waking => Kind::Waking(named(0, 1, 2)?, cpu(3).map(Named::Last)),
            Tracepoint::Wakeup => Kind::Waking(named(0, 1, 2)?, cpu(3).map(Named::Next)),
            Tracepoint::WakeupNew => Kind::WakeupNew(named(0, 1, 2)?, cpu(3)),
            Tracepoint::Migrate => Kind::Migrate { to: cpu(0)? },
            Tracepoint::Fork => Kind::Fork { child_comm: text(0)?, child: number(1)? as i32 },
            Tracepoint::Runtime => Kind::Runtime { tid: number(0)? as i32, ns: number(1)? as u64 },
            Tracepoint::SysEnter => {
                let args = self.fields.get(1)?;
                let mut values = [0; 6];
                for (i, value) in values.iter_mut().enumerate() {
                    *value = args.element(raw, i)?;
                }
                Kind::SysEnter { number: number(0)?, args: values }
            }
            Tracepoint::SysExit => Kind::SysExit { result: number(0)? },
            Tracepoint::IrqEnter => Kind::IrqEnter(Irq::Handler),
            Tracepoint::IrqExit => Kind::IrqExit(Irq::Handler),
            Tracepoint::TimerEnter => Kind::IrqEnter(Irq::Timer),
            Tracepoint::TimerExit => Kind::IrqExit(Irq::Timer),
            Tracepoint::SoftirqEnter => Kind::SoftirqEnter { vector: number(0)? as u32 },
            Tracepoint::SoftirqExit => Kind::SoftirqExit,
            Tracepoint::SocketSent => {
                Kind::SocketSent { socket: number(0)? as u64, result: number(1)? }
            }
            Tracepoint::SocketReceived if number(2)? & MSG_PEEK != 0 => Kind::Other,
            Tracepoint::SocketReceived => {
                Kind::SocketReceived { socket: number(0)? as u64, result: number(1)? }
            }
            Tracepoint::DataReady => Kind::DataReady { socket: number(0)? as u64 },
            Tracepoint::SocketState => Kind::SocketState {
                socket: number(0)? as u64,
                from: number(1)? as u32,
                to: number(2)? as u32,
            },
            Tracepoint::Other => Kind::Other,
        })
    }
}
