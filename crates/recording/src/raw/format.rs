//! The kernel's descriptions of tracepoints (`format` files of tracefs): offsets of fields, and
//! letters of thread states. Both differ between kernels.

use super::bytes::Bytes;
use crate::event::PrevState;
use crate::tracepoint::{self, Tracepoint};

/// The descriptions in use, by the number of the tracepoint.
#[derive(Debug)]
pub(crate) struct Formats {
    by_id: Vec<Option<Format>>,
    /// Whether there is `sched_waking`; only then `sched_wakeup` is not needed.
    pub has_waking: bool,
    /// Whether counts of groups of events include lost events.
    pub counts_lost: bool,
}

/// The fields of one kind of event, in the order of [`wanted`].
#[derive(Debug, Clone)]
pub(crate) struct Format {
    pub tracepoint: Tracepoint,
    pub fields: Vec<Field>,
    /// Bits of `prev_state` with their meanings.
    pub states: Vec<(u64, PrevState)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    size: usize,
    signed: bool,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    /// The field holds offset and length of a string at the end of the record.
    Elsewhere,
    /// Likewise, with an offset that counts from the end of the field.
    After,
}

impl Formats {
    /// No descriptions.
    pub fn new() -> Self {
        Formats { by_id: Vec::new(), has_waking: false, counts_lost: false }
    }

    /// Whether there is a description of this tracepoint.
    pub fn has(&self, tracepoint: Tracepoint) -> bool {
        self.by_id.iter().flatten().any(|f| f.tracepoint == tracepoint)
    }

    /// The description of the tracepoint with this number; `None` if none was added.
    pub fn of(&self, id: u16) -> Option<&Format> {
        self.by_id.get(usize::from(id))?.as_ref()
    }

    /// Adds a description from its text if its event is `wanted`; an error if that lacks number,
    /// name or a needed field.
    pub fn add(
        &mut self,
        system: &str,
        text: &str,
        wanted: impl Fn(u16, Tracepoint) -> bool,
    ) -> Result<(), String> {
        let Some((id, name)) = id_and_name(text) else {
            return Err("a description without name or ID".to_owned());
        };
        let tracepoint = Tracepoint::from_system(system, name);
        if wanted(id, tracepoint) {
            let ix = usize::from(id);
            self.by_id.resize(self.by_id.len().max(ix + 1), None);
            self.by_id[ix] = Some(Format::parse(tracepoint, name, text)?);
        }
        Ok(())
    }
}

impl Format {
    /// Finds the needed fields of a tracepoint in its description, and the letters of states; the
    /// error names a missing field.
    fn parse(tracepoint: Tracepoint, name: &str, text: &str) -> Result<Self, String> {
        let mut fields = wanted(tracepoint)
            .iter()
            .map(|wanted| {
                wanted
                    .iter()
                    .find_map(|field| Field::find(text, field))
                    .ok_or_else(|| format!("{name} has no field {}", wanted[0]))
            })
            .collect::<Result<Vec<_>, _>>()?;
        // A wakeup can be understood without the CPU that it names.
        fields.extend(Field::find(text, "target_cpu"));
        Ok(Format {
            tracepoint,
            fields,
            states: if tracepoint == Tracepoint::Switch { states(text) } else { Vec::new() },
        })
    }

    /// Why a thread left the CPU, by the value of `prev_state`: the first bit with a letter, but
    /// dead before all. Without such a bit it can run on.
    pub fn prev_state(&self, prev_state: u64) -> PrevState {
        let mut bits = self.states.iter().filter(|(bit, _)| prev_state & bit != 0);
        let first = bits.next().map_or(PrevState::Runnable, |(_, left)| *left);
        bits.fold(first, |a, (_, b)| if *b == PrevState::Dead { PrevState::Dead } else { a })
    }
}

/// The fields that are needed of a tracepoint, each with its names in other kernel versions.
fn wanted(tracepoint: Tracepoint) -> &'static [&'static [&'static str]] {
    match tracepoint {
        Tracepoint::Switch => &[
            &["prev_comm"],
            &["prev_pid"],
            &["prev_prio"],
            &["prev_state"],
            &["next_comm"],
            &["next_pid"],
            &["next_prio"],
        ],
        Tracepoint::Waking | Tracepoint::Wakeup | Tracepoint::WakeupNew => {
            &[&["comm"], &["pid"], &["prio"]]
        }
        Tracepoint::Migrate => &[&["dest_cpu"]],
        Tracepoint::Fork => &[&["child_comm"], &["child_pid"]],
        Tracepoint::Runtime => &[&["pid"], &["runtime"]],
        Tracepoint::SysEnter => &[&["id"], &["args"]],
        Tracepoint::SysExit => &[&["ret"]],
        Tracepoint::SoftirqEnter => &[&["vec"]],
        Tracepoint::SocketSent | Tracepoint::SocketReceived => &[&["sk"], &["ret"], &["flags"]],
        Tracepoint::DataReady => &[&["skaddr"]],
        Tracepoint::SocketState => &[&["skaddr"], &["oldstate"], &["newstate"]],
        _ => &[],
    }
}

impl Field {
    /// The number in this field, with its sign. `None` if it reaches beyond the record, or has not
    /// 1, 2, 4 or 8 bytes.
    pub fn number(self, raw: Bytes<'_>) -> Option<i64> {
        raw.number(self.offset, self.size, self.signed)
    }

    /// Reads the `i`-th number of an array with 8 bytes each; `None` beyond the record.
    pub fn element(self, raw: Bytes<'_>, i: usize) -> Option<u64> {
        raw.u64(self.offset.checked_add(i * 8)?)
    }

    /// The text in this field, up to its first zero byte. It may stand elsewhere in the record
    /// (`__data_loc`, `__rel_loc`). `None` if it begins beyond the record.
    pub fn text(self, raw: Bytes<'_>) -> Option<&str> {
        let (offset, len) = match self.place {
            Place::Here => (self.offset, self.size),
            Place::Elsewhere | Place::After => {
                let at = raw.u32(self.offset)?;
                let base = match self.place {
                    Place::After => self.offset + 4,
                    _ => 0,
                };
                (base + (at & 0xffff) as usize, (at >> 16) as usize)
            }
        };
        raw.text(offset, len)
    }

    /// Finds a field by its name in a format description of tracefs, whose lines read `\tfield:TYPE
    /// NAME[N];\toffset:N;\tsize:N;\tsigned:N;`. `None`: there is no such field, or its line lacks
    /// offset or size.
    fn find(text: &str, name: &str) -> Option<Field> {
        text.lines().find_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';');
            let declaration = parts.next()?;
            let declared = declaration.split_whitespace().last()?;
            if declared.split('[').next()? != name {
                return None;
            }
            let mut value = |key: &str| {
                let part = parts.next()?.trim();
                part.strip_prefix(key)?.strip_prefix(':')?.parse::<usize>().ok()
            };
            Some(Field {
                offset: value("offset")?,
                size: value("size")?,
                signed: value("signed").is_some_and(|n| n != 0),
                place: if declaration.starts_with("__rel_loc")
                    || declaration.starts_with("__rel_data_loc")
                {
                    Place::After
                } else if declaration.starts_with("__data_loc") {
                    Place::Elsewhere
                } else {
                    Place::Here
                },
            })
        })
    }
}

/// Number and name of the tracepoint, from the lines `ID:` and `name:` of a description; `None`
/// without them.
fn id_and_name(text: &str) -> Option<(u16, &str)> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    Some((value("ID:")?.trim().parse().ok()?, value("name:")?.trim()))
}

/// Reads bits and letters of `prev_state` from the print format: `{ 0x00000001, "S" }`. Bits that
/// mean runnable are left out.
fn states(text: &str) -> Vec<(u64, PrevState)> {
    let pairs = text.split('{').skip(1).filter_map(|pair| {
        let (number, rest) = pair.split_once(',')?;
        let letter = rest.split('"').nth(1)?;
        let number = number.trim();
        let bit = match number.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        Some((bit, tracepoint::prev_state(letter)))
    });
    pairs.filter(|(_, left)| *left != PrevState::Runnable).collect()
}

#[cfg(test)]
mod tests {
    use super::{Field, Format, Place, id_and_name};
    use crate::event::PrevState;
    use crate::tracepoint::Tracepoint;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
        \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"x\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 16, \"X\" }, { 0x80, \
        \"I\" }) : \"R\"";

    #[test]
    fn finds_fields_and_states() {
        assert_eq!(id_and_name(SWITCH), Some((372, "sched_switch")));
        let format = Format::parse(Tracepoint::Switch, "sched_switch", SWITCH).unwrap();
        let (prev_pid, prev_state) = (format.fields[1], format.fields[3]);
        assert_eq!((prev_pid.offset, prev_pid.size, prev_pid.signed), (24, 4, true));
        assert_eq!(prev_state.offset, 32);
        assert_eq!(format.prev_state(0), PrevState::Runnable);
        assert_eq!(format.prev_state(1), PrevState::Sleeping);
        assert_eq!(format.prev_state(2), PrevState::Blocked);
        assert_eq!(format.prev_state(16), PrevState::Dead);
        assert_eq!(format.prev_state(0x80), PrevState::Idle);
        assert_eq!(format.prev_state(0x100), PrevState::Runnable, "preempted");
    }

    #[test]
    fn says_which_field_is_missing() {
        let cut = SWITCH.replace("next_pid", "later_pid");
        let error = Format::parse(Tracepoint::Switch, "sched_switch", &cut).unwrap_err();
        assert!(error.contains("next_pid"), "{error}");
    }

    #[test]
    fn knows_strings_stored_elsewhere() {
        let line = "\tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;";
        assert_eq!(Field::find(line, "comm").map(|f| f.place), Some(Place::Elsewhere));
    }
}
