//! One event of ftrace, as `traced_probes` writes it: the fields of known events by number, those
//! of other events by name.

use super::wire::{Value, fields};
use crate::event::{Context, Irq, Kind, MSG_PEEK, Named, ThreadRef};
use crate::tracepoint::{Tracepoint, prev_state_by_number};
use std::collections::BTreeMap;

/// Flags in `common_flags`: in a hard, in a soft interrupt.
const FLAG_HARDIRQ: u64 = 0x08;
const FLAG_SOFTIRQ: u64 = 0x10;
/// Events with larger field numbers are described in the trace itself.
const DESCRIBED_FROM: u32 = 1 << 16;
/// Most descriptions that are kept.
const DESCRIBED_MAX: usize = 1 << 10;

/// The interrupt context in `common_flags`.
pub(super) fn context(common_flags: u64) -> Context {
    Context { hardirq: common_flags & FLAG_HARDIRQ != 0, softirq: common_flags & FLAG_SOFTIRQ != 0 }
}

/// Events that `traced_probes` does not know, by their numbers in the trace.
#[derive(Debug, Default)]
pub(super) struct Described(BTreeMap<u32, Description>);

#[derive(Debug)]
struct Description {
    tracepoint: Tracepoint,
    /// Numbers and names of the wanted fields.
    fields: Vec<(u32, &'static str)>,
}

impl Described {
    /// Adds a `GenericEventDescriptor` of a bundle, if its event is of use; at most 1024 are kept.
    pub fn add(&mut self, descriptor: &[u8]) {
        let (mut id, mut message) = (0, &[][..]);
        for (number, value) in fields(descriptor) {
            match number {
                1 => id = value.number(),
                2 => message = value.bytes(),
                _ => {}
            }
        }
        let mut tracepoint = Tracepoint::Other;
        let mut named = Vec::new();
        for (number, value) in fields(message) {
            match number {
                1 => tracepoint = Tracepoint::from_name(value.text()),
                2 if named.len() < WANTED.len() => named.extend(described_field(value.bytes())),
                _ => {}
            }
        }
        let id = u32::try_from(id).unwrap_or(0);
        let is_of_use = id >= DESCRIBED_FROM && tracepoint != Tracepoint::Other;
        if is_of_use && self.0.len() < DESCRIBED_MAX {
            self.0.insert(id, Description { tracepoint, fields: named });
        }
    }
}

/// The fields of described and generic events that are read.
const WANTED: [&str; 8] =
    ["pid", "runtime", "sk", "ret", "flags", "skaddr", "oldstate", "newstate"];

/// The name, if it is of a field that is read.
fn wanted(name: &str) -> Option<&'static str> {
    WANTED.into_iter().find(|wanted| *wanted == name)
}

/// Number and name of a field in a description; `None` if it is not read.
fn described_field(field: &[u8]) -> Option<(u32, &'static str)> {
    let (mut name, mut at) = ("", 0);
    for (number, value) in fields(field) {
        match number {
            1 => name = value.text(),
            3 => at = u32::try_from(value.number()).unwrap_or(0),
            _ => {}
        }
    }
    Some((at, wanted(name)?))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FtraceEvent<'a> {
    pub tid: i32,
    pub context: Option<Context>,
    pub tracepoint: Tracepoint,
    pub kind: Kind<'a>,
    /// The new name of a thread.
    pub renamed: Option<(i32, &'a str)>,
}

/// Time of an `FtraceEvent`, ns; 0 if it has none.
pub(super) fn time_ns(event: &[u8]) -> u64 {
    fields(event).find(|(number, _)| *number == 1).map_or(0, |(_, value)| value.number())
}

/// Reads an `FtraceEvent`: thread, context and content. Unknown events are [`Kind::Other`].
pub(super) fn event<'a>(data: &'a [u8], described: &Described) -> FtraceEvent<'a> {
    let mut event = FtraceEvent {
        tid: -1,
        context: None,
        tracepoint: Tracepoint::Other,
        kind: Kind::Other,
        renamed: None,
    };
    for (number, value) in fields(data) {
        match number {
            1 => {}
            2 => event.tid = value.i32(),
            5 => event.context = Some(context(value.number())),
            RENAME => event.renamed = Some(read_rename(value.bytes())),
            GENERIC => {
                let content = read_generic(value.bytes());
                (event.tracepoint, event.kind) = (content.tracepoint, content.kind());
            }
            DESCRIBED_FROM.. => {
                if let Some(description) = described.0.get(&number) {
                    let content = Content::read_described(description, value.bytes());
                    (event.tracepoint, event.kind) = (content.tracepoint, content.kind());
                }
            }
            _ => {
                if let Some(tracepoint) = tracepoint(number) {
                    event.tracepoint = tracepoint;
                    event.kind = known(tracepoint, value.bytes());
                }
            }
        }
    }
    event
}

const RENAME: u32 = 236;
const GENERIC: u32 = 327;

/// The tracepoint by the number of the field in `FtraceEvent`; `None` if it is not read.
fn tracepoint(number: u32) -> Option<Tracepoint> {
    Some(match number {
        4 => Tracepoint::Switch,
        17 => Tracepoint::Wakeup,
        20 => Tracepoint::Waking,
        24 => Tracepoint::SoftirqEnter,
        25 => Tracepoint::SoftirqExit,
        36 => Tracepoint::IrqEnter,
        37 => Tracepoint::IrqExit,
        114 => Tracepoint::WakeupNew,
        239 => Tracepoint::Fork,
        329 => Tracepoint::SysEnter,
        330 => Tracepoint::SysExit,
        362 => Tracepoint::SocketState,
        553 => Tracepoint::TimerEnter,
        554 => Tracepoint::TimerExit,
        _ => return None,
    })
}

/// Reads an event that has a message of its own; missing numbers are 0.
fn known(tracepoint: Tracepoint, data: &[u8]) -> Kind<'_> {
    // Numbers and strings by field number; further fields are not used.
    let mut values = [Value::Number(0); 9];
    let (mut args, mut given) = ([0; 6], 0);
    for (number, value) in fields(data) {
        if let Some(at) = values.get_mut(number as usize) {
            *at = value;
        }
        if tracepoint == Tracepoint::SysEnter && number == 2 && given < args.len() {
            args[given] = value.number();
            given += 1;
        }
    }
    let target = u32::try_from(values[5].i32()).ok();
    let named = |comm: usize| ThreadRef {
        comm: values[comm].text(),
        tid: values[comm + 1].i32(),
        prio: values[comm + 2].i32(),
    };
    match tracepoint {
        Tracepoint::Switch => Kind::Switch {
            prev: named(1),
            left: prev_state_by_number(values[4].number()),
            next: named(5),
        },
        Tracepoint::Waking => Kind::Waking(named(1), target.map(Named::Last)),
        Tracepoint::Wakeup => Kind::Waking(named(1), target.map(Named::Next)),
        Tracepoint::WakeupNew => Kind::WakeupNew(named(1), target),
        Tracepoint::Fork => Kind::Fork { child_comm: values[3].text(), child: values[4].i32() },
        Tracepoint::SysEnter => Kind::SysEnter { number: values[1].number() as i64, args },
        Tracepoint::SysExit => Kind::SysExit { result: values[2].number() as i64 },
        Tracepoint::IrqEnter => Kind::IrqEnter(Irq::Handler),
        Tracepoint::IrqExit => Kind::IrqExit(Irq::Handler),
        Tracepoint::TimerEnter => Kind::IrqEnter(Irq::Timer),
        Tracepoint::TimerExit => Kind::IrqExit(Irq::Timer),
        Tracepoint::SoftirqEnter => Kind::SoftirqEnter { vector: values[1].i32() as u32 },
        Tracepoint::SoftirqExit => Kind::SoftirqExit,
        Tracepoint::SocketState => Kind::SocketState {
            socket: values[8].number(),
            from: values[5].i32() as u32,
            to: values[4].i32() as u32,
        },
        _ => Kind::Other,
    }
}

/// The thread that `task_rename` gives a name, and that name.
fn read_rename(data: &[u8]) -> (i32, &str) {
    let mut renamed = (-1, "");
    for (number, value) in fields(data) {
        match number {
            1 => renamed.0 = value.i32(),
            3 => renamed.1 = value.text(),
            _ => {}
        }
    }
    renamed
}

/// The named fields of an event.
struct Content<'a> {
    tracepoint: Tracepoint,
    values: [Value<'a>; WANTED.len()],
}

/// Reads a `GenericFtraceEvent`, whose fields stand with their names; others than those that are
/// read are skipped.
fn read_generic(data: &[u8]) -> Content<'_> {
    let mut content =
        Content { tracepoint: Tracepoint::Other, values: [Value::Number(0); WANTED.len()] };
    for (number, value) in fields(data) {
        match number {
            1 => content.tracepoint = Tracepoint::from_name(value.text()),
            2 => {
                let (mut name, mut inner) = ("", Value::Number(0));
                for (number, value) in fields(value.bytes()) {
                    match number {
                        1 => name = value.text(),
                        3..=5 => inner = value,
                        _ => {}
                    }
                }
                content.set(name, inner);
            }
            _ => {}
        }
    }
    content
}

impl<'a> Content<'a> {
    /// Reads an event whose fields the trace describes.
    fn read_described(description: &Description, data: &'a [u8]) -> Self {
        let values = [Value::Number(0); WANTED.len()];
        let mut content = Content { tracepoint: description.tracepoint, values };
        for (number, value) in fields(data) {
            let named = description.fields.iter().find(|(at, _)| *at == number);
            if let Some((_, name)) = named {
                content.set(name, value);
            }
        }
        content
    }

    /// Keeps the value of a field, if it is one that is read.
    fn set(&mut self, name: &str, value: Value<'a>) {
        if let Some(at) = WANTED.iter().position(|wanted| *wanted == name) {
            self.values[at] = value;
        }
    }

    /// The value of a field; 0 if it is missing.
    fn of(&self, name: &str) -> Value<'a> {
        let at = WANTED.iter().position(|wanted| *wanted == name);
        at.map_or(Value::Number(0), |at| self.values[at])
    }

    /// The event by its tracepoint and fields, for those that only named fields describe; peeks at
    /// a socket and other tracepoints are [`Kind::Other`].
    fn kind(&self) -> Kind<'a> {
        let number = |name: &str| self.of(name).number();
        match self.tracepoint {
            Tracepoint::Runtime => {
                Kind::Runtime { tid: self.of("pid").i32(), ns: number("runtime") }
            }
            Tracepoint::SocketSent => {
                Kind::SocketSent { socket: number("sk"), result: number("ret") as i64 }
            }
            Tracepoint::SocketReceived if number("flags") as i64 & MSG_PEEK != 0 => Kind::Other,
            Tracepoint::SocketReceived => {
                Kind::SocketReceived { socket: number("sk"), result: number("ret") as i64 }
            }
            Tracepoint::DataReady => Kind::DataReady { socket: number("skaddr") },
            Tracepoint::SocketState => Kind::SocketState {
                socket: number("skaddr"),
                from: number("oldstate") as u32,
                to: number("newstate") as u32,
            },
            Tracepoint::TimerEnter => Kind::IrqEnter(Irq::Timer),
            Tracepoint::TimerExit => Kind::IrqExit(Irq::Timer),
            _ => Kind::Other,
        }
    }
}
