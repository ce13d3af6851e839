//! Reads programs: lists of instructions, each a table with one verb and its fields.

use super::Reader;
use super::fields::{Fields, Length, Read, Value, array, number, read_time, wrong_type};
use super::language::{DISTRIBUTION, VERBS, Waited};
use super::names::Names;
use super::table::{Form, Table};
use crate::bounds::{MAX_LOOP_DEPTH, MAX_OPS};
use crate::cpus::CPUS_FORM;
use crate::error::{ByteRange, Error, Refusal};
use crate::model::Program;
use crate::model::{Distribution, Op, Span, Target};
use crate::units::{DURATION_FORM, accepted_names, quoted};
use std::rc::Rc;
use toml::de::{DeTable, DeValue};

/// A program while it is read, with the position of each instruction.
pub(super) struct Flat {
    /// The task or job, for messages.
    whose: String,
    pub ops: Vec<Op>,
    at: Vec<ByteRange>,
}

impl Flat {
    /// The program and the positions of its instructions.
    pub fn finish(self) -> (Program, Rc<[ByteRange]>) {
        (self.ops.into(), self.at.into())
    }

    /// Names the next instruction, at this position, in a refusal that has no position yet.
    fn told(&self, refusal: Refusal, at: ByteRange) -> Refusal {
        if refusal.at != ByteRange::default() {
            return refusal;
        }
        refusal.at(at).part(format!("{}, instruction {}", self.whose, self.ops.len() + 1))
    }
}

/// Loops, and loops and system calls, around an instruction.
#[derive(Clone, Copy, Default)]
struct Depth {
    loops: u64,
    all: u64,
}

impl<'t> Reader<'t> {
    /// Reads `program`, if it is given. `whose`: the task or job, for messages.
    pub(super) fn read_program(&mut self, fields: Fields<'t>, whose: String) -> Read<Flat> {
        let mut flat = Flat { whose, ops: Vec::new(), at: Vec::new() };
        self.read_body(fields, "program", Depth::default(), &mut flat)?;
        Ok(flat)
    }

    /// Reads the instructions in the field `name`; `None` if it is absent.
    fn read_body(
        &mut self,
        fields: Fields<'t>,
        name: &str,
        depth: Depth,
        flat: &mut Flat,
    ) -> Read<Option<()>> {
        fields.read(name, |form, value| {
            matches!(form, Form::Steps).then(|| {
                // Only bounds the recursion: deep loops are refused with the right message.
                if depth.all > MAX_LOOP_DEPTH + 2 {
                    let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
                    let refusal = Refusal::new(Error::Program, problem, "");
                    return Err(refusal.at(value.span().into()));
                }
                array(value, name)?.try_for_each(|step| self.read_step(step, depth, flat))
            })
        })
    }

    /// Reads an instruction, a table with the fields of exactly one verb, and adds it to `flat`.
    fn read_step(&mut self, value: &'t Value<'t>, depth: Depth, flat: &mut Flat) -> Read<()> {
        let at = value.span().into();
        let DeValue::Table(table) = value.get_ref() else {
            return Err(wrong_type(value, "program", STEP_FORM));
        };
        let (verb, of) = find_verb(table, at)?;
        let fields = Fields::new(table, at, of)?;
        let read = self.read_verb(fields, verb, depth, flat);
        let pushed = read.and_then(|op| self.push(op, at, flat));
        pushed.map_err(|refusal| flat.told(refusal, at))
    }

    /// Adds an instruction to a program.
    ///
    /// # Errors
    /// All programs together are too large.
    fn push(&mut self, op: Op, at: ByteRange, flat: &mut Flat) -> Read<()> {
        self.ops += 1;
        if self.ops > MAX_OPS {
            let problem = format!("more than {MAX_OPS} instructions in all programs");
            return Err(Refusal::new(Error::Value, problem, ""));
        }
        flat.ops.push(op);
        flat.at.push(at);
        Ok(())
    }

    /// Reads an instruction whose verb is known, without adding it; instructions inside of it are
    /// added.
    ///
    /// # Errors
    /// A field that the verb needs is missing, its value has the wrong type or range, or a name is
    /// unknown.
    fn read_verb(
        &mut self,
        fields: Fields<'t>,
        verb: &str,
        depth: Depth,
        flat: &mut Flat,
    ) -> Read<Op> {
        let at = fields.at("");
        let find = |names: &Names, field| names.find(fields.name(field)?);
        let tokens = || Ok(fields.number("n")?.unwrap_or(1));
        Ok(match verb {
            "user" => Op::User(self.required_span(fields, verb)?),
            "kernel" => Op::Kernel(self.required_span(fields, verb)?),
            "irqoff" => Op::IrqOff(self.required_span(fields, verb)?),
            "sleep" => Op::Sleep(self.required_span(fields, verb)?),
            "every" => {
                Op::Every { period_ns: fields.required(verb, fields.time(verb)?, DURATION_FORM)? }
            }
            "syscall" => {
                self.push(Op::EnterKernel, at, flat)?;
                let inside = Depth { all: depth.all + 1, ..depth };
                self.read_body(fields, verb, inside, flat)?;
                Op::ExitKernel
            }
            "forever" => self.read_loop(fields, u64::MAX, verb, depth, flat)?,
            "loop" | "do" => {
                let times = fields.number("loop")?;
                let times = fields.required("loop", times, "how many times, or use `forever`")?;
                self.read_loop(fields, times, "do", depth, flat)?
            }
            "lock" => {
                let lock = find(&self.locks, verb)?;
                Op::Lock { lock, mode: self.lock_mode(lock, fields.choice("mode")?)? }
            }
            "unlock" => Op::Unlock { lock: find(&self.locks, verb)? },
            "send" => Op::Send { channel: find(&self.channels, verb)?, n: tokens()? },
            "recv" => Op::Recv { channel: find(&self.channels, verb)?, n: tokens()? },
            "serve" => Op::Serve { channel: find(&self.channels, verb)? },
            "fork" => Op::Fork { kind: find(&self.tasks, verb)? },
            "wait" => {
                fields.choice::<Waited>(verb)?;
                Op::WaitChildren
            }
            "post" | "after" => self.read_post(fields)?,
            "move" | "affinity" | "nice" | "class" => self.read_task_change(fields, verb)?,
            _ => {
                fields.required(verb, fields.bare(verb)?, "true")?;
                match verb {
                    "exit" => Op::Exit,
                    "yield" => Op::Yield,
                    "begin" => Op::Begin,
                    _ => Op::Done,
                }
            }
        })
    }

    /// Reads an instruction that sends a token with a job, at once or after a time.
    fn read_post(&mut self, fields: Fields<'t>) -> Read<Op> {
        let after = fields.length("after")?;
        let job = self.jobs.find(fields.name("post")?)?;
        let channel = self.channels.find(fields.name("to")?)?;
        let keep = fields.flag("keep")?.unwrap_or(false);
        Ok(match after {
            Some(delay) => Op::After { delay: self.span(delay, fields.at("")), channel, job, keep },
            None => Op::Post { channel, job },
        })
    }

    /// Reads an instruction that changes tasks: their group, CPUs, nice value or class.
    fn read_task_change(&mut self, fields: Fields<'t>, verb: &str) -> Read<Op> {
        let who = match fields.text(if verb == "move" { verb } else { "of" })? {
            None | Some("self") => Target::Myself,
            Some(name) => Target::Kind(self.tasks.find(name)?),
        };
        Ok(match verb {
            "move" => Op::Move { who, group: self.groups.find(fields.name("to")?)? },
            "affinity" => {
                let cpus = fields.required(verb, fields.cpus(verb)?, CPUS_FORM)?;
                Op::SetAffinity { who, cpus: self.cpu_set(cpus, fields, "") }
            }
            "nice" => Op::SetNice { who, nice: fields.required(verb, fields.nice(verb)?, "")? },
            _ => Op::SetClass { who, class: fields.required(verb, fields.choice(verb)?, "")? },
        })
    }

    /// The length of time that the verb gives.
    fn required_span(&mut self, fields: Fields<'t>, verb: &str) -> Read<Span> {
        let length = fields.required(verb, fields.length(verb)?, DURATION_FORM)?;
        Ok(self.span(length, fields.at("")))
    }

    /// Adds the start and the body of a loop; returns its end.
    fn read_loop(
        &mut self,
        fields: Fields<'t>,
        times: u64,
        body: &str,
        depth: Depth,
        flat: &mut Flat,
    ) -> Read<Op> {
        let at = fields.at("");
        if depth.loops == MAX_LOOP_DEPTH {
            let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
            return Err(Refusal::new(Error::Program, problem, ""));
        }
        let start = flat.ops.len();
        self.push(Op::LoopStart { times, end: 0 }, at, flat)?;
        let inside = Depth { loops: depth.loops + 1, all: depth.all + 1 };
        let read = self.read_body(fields, body, inside, flat)?;
        fields.required(body, read, "a list of instructions")?;
        flat.ops[start] = Op::LoopStart { times, end: flat.ops.len() as u32 };
        Ok(Op::LoopEnd { start: start as u32 })
    }
}

const STEP_FORM: &str = "an instruction in braces, such as { user = \"1ms\" }";

/// The verb of an instruction, with the table of its fields. `at`: its position.
///
/// # Errors
/// There is none, an unknown one, or several.
fn find_verb(table: &DeTable<'_>, at: ByteRange) -> Read<(&'static str, &'static Table)> {
    let verbs: Vec<_> = VERBS.iter().filter(|(verb, _)| table.contains_key(*verb)).collect();
    match verbs.as_slice() {
        [(verb, of)] => Ok((verb, of)),
        // `loop` and `do` belong together, as do `post` and `after`.
        [(verb, of), (_, also)] if std::ptr::eq(of.fields, also.fields) => Ok((verb, of)),
        [] => {
            let names = VERBS.iter().map(|(verb, _)| *verb).filter(|verb| *verb != "do");
            let first = table.keys().min_by_key(|key| key.span().start);
            let Some(key) = first else {
                return Err(Refusal::new(Error::Field, "an empty instruction", STEP_FORM).at(at));
            };
            let name = key.get_ref().as_ref();
            let problem = format!("there is no instruction {}", quoted(name));
            let accepted = accepted_names(name, names);
            Err(Refusal::new(Error::Field, problem, accepted).at(key.span().into()))
        }
        [(one, _), (other, _), ..] => {
            let problem = format!("two instructions in one: `{one}` and `{other}`");
            let accepted = "each in braces of its own";
            Err(Refusal::new(Error::Field, problem, accepted).at(at))
        }
    }
}

impl Fields<'_> {
    /// The length of time in this field, fixed or drawn; `None` if the field is absent.
    pub fn length(&self, name: &str) -> Read<Option<Length>> {
        self.read(name, |form, value| {
            matches!(form, Form::Length).then(|| read_length(value, name))
        })
    }

    /// A verb without an argument: `{ yield = true }`. `None` if it is absent; any value but `true`
    /// is refused.
    fn bare(&self, name: &str) -> Read<Option<()>> {
        self.read(name, |form, value| match (form, value.get_ref()) {
            (Form::True, DeValue::Boolean(true)) => Some(Ok(())),
            (Form::True, _) => Some(Err(wrong_type(value, name, "true"))),
            _ => None,
        })
    }
}

/// Reads a length of time: a text such as `"1ms"`, or a table that names one distribution, such as
/// `{ exponential = "1ms" }`.
///
/// # Errors
/// The table does not hold exactly one distribution, or its values are malformed.
fn read_length(value: &Value<'_>, name: &str) -> Read<Length> {
    let DeValue::Table(table) = value.get_ref() else {
        return read_time(value, name).map(Length::Fixed);
    };
    let fields = Fields::new(table, value.span().into(), &DISTRIBUTION)?;
    if table.len() != 1 {
        let problem = "not exactly one distribution";
        let accepted = "one of `uniform`, `exponential`, `lognormal`, `empirical`";
        return Err(Refusal::new(Error::Field, problem, accepted).at(value.span().into()));
    }
    if let Some(bounds) = fields.bounds("uniform")? {
        return Ok(Length::Drawn(bounds));
    }
    if let Some(mean_ns) = fields.time("exponential")? {
        return Ok(Length::Drawn(Distribution::Exponential { mean_ns }));
    }
    if let Some(counted) = fields.counted("empirical")? {
        return Ok(Length::Drawn(counted));
    }
    let form = "{ median = \"1ms\", sigma = 0.5 }";
    let fields = fields.table("lognormal")?;
    let fields = fields.ok_or_else(|| wrong_type(value, name, form))?;
    let median_ns = fields.required("median", fields.time("median")?, form)?;
    let sigma = fields.required("sigma", fields.float("sigma")?, form)?;
    Ok(Length::Drawn(Distribution::LogNormal { median_ns, sigma }))
}

impl Fields<'_> {
    /// Reads `["1ms", "2ms"]`: the shortest and the longest length.
    fn bounds(&self, name: &str) -> Read<Option<Distribution>> {
        let read = |value| -> Read<Distribution> {
            let bounds_ns: Vec<u64> =
                array(value, name)?.map(|v| read_time(v, name)).collect::<Read<_>>()?;
            let &[low_ns, high_ns] = bounds_ns.as_slice() else {
                let problem = format!("{name} has {} values", bounds_ns.len());
                let accepted = "the smallest and the largest, such as [\"1ms\", \"2ms\"]";
                return Err(Refusal::new(Error::Value, problem, accepted).at(value.span().into()));
            };
            Ok(Distribution::Uniform { low_ns, high_ns })
        };
        self.read(name, |form, value| matches!(form, Form::Bounds).then(|| read(value)))
    }

    /// Reads `[["1ms", 3], ["9ms", 1]]`: values and their counts.
    fn counted(&self, name: &str) -> Read<Option<Distribution>> {
        let form = "pairs of value and count, such as [[\"1ms\", 3], [\"9ms\", 1]]";
        let read = |values, most| -> Read<Distribution> {
            let mut values_ns = Vec::new();
            let mut cumulative: Vec<u64> = Vec::new();
            for pair in array(values, name)? {
                let mut parts = array(pair, name).map_err(|_| wrong_type(pair, name, form))?;
                let (Some(value), Some(count), None) = (parts.next(), parts.next(), parts.next())
                else {
                    let problem = "not a pair of value and count";
                    return Err(Refusal::new(Error::Value, problem, form).at(pair.span().into()));
                };
                values_ns.push(read_time(value, name)?);
                let count = number(count, "the count", 1..=most)?;
                let before = cumulative.last().copied().unwrap_or(0);
                cumulative.push(before.saturating_add(count));
            }
            Ok(Distribution::Empirical { values_ns, cumulative })
        };
        self.read(name, |form, values| match form {
            Form::Counted(most) => Some(read(values, most)),
            _ => None,
        })
    }
}
