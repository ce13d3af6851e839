//! Reads programs: lists of instructions, each a table with one verb and its fields.

use super::fields::{Fields, Read, Value, array, number, read_time, wrong_type};
use super::language::{DISTRIBUTION, VERBS, Waited};
use super::table::Form;
use crate::bounds::MAX_LOOP_DEPTH;
use crate::draft::Length;
use crate::error::{Kind, Refusal};
use crate::model::{Distribution, LockMode};
use crate::step::{Step, TargetName, Verb};
use crate::units::{CPUS_FORM, DURATION_FORM, accepted_names, quoted};
use std::time::Duration;
use toml::de::DeValue;

/// The mode in which a lock is taken, if given.
pub(super) fn read_mode(fields: &Fields<'_>) -> Read<Option<LockMode>> {
    fields.choice("mode")
}

/// Reads an array of instructions; `name` is its field, `depth` the number of loops and calls
/// around it.
fn read_steps(value: &Value<'_>, name: &str, depth: u64) -> Read<Vec<Step>> {
    // Only bounds the recursion: resolving refuses deep nesting with the right message.
    if depth > MAX_LOOP_DEPTH + 2 {
        let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
        return Err(Refusal::new(Kind::Program, problem, "").at(value.span().into()));
    }
    array(value, name)?.map(|item| read_step(item, depth)).collect()
}

/// Reads an instruction: a table with the fields of exactly one verb.
///
/// # Errors
/// The value is no table, or has no verb, an unknown one, or several.
fn read_step(value: &Value<'_>, depth: u64) -> Read<Step> {
    let form = "an instruction in braces, such as { user = \"1ms\" }";
    let DeValue::Table(table) = value.get_ref() else {
        return Err(wrong_type(value, "program", form));
    };
    let at = value.span().into();
    let verbs: Vec<_> = VERBS.iter().filter(|(verb, _)| table.contains_key(*verb)).collect();
    let &(verb, of) = match verbs.as_slice() {
        [only] => *only,
        // `loop` and `do` belong together, as do `post` and `after`.
        [one, (_, also)] if std::ptr::eq(one.1.fields, also.fields) => *one,
        [] => {
            let names = VERBS.iter().map(|(verb, _)| *verb).filter(|verb| *verb != "do");
            let first = table.keys().min_by_key(|key| key.span().start);
            let Some(key) = first else {
                return Err(Refusal::new(Kind::Field, "an empty instruction", form).at(at));
            };
            let name = key.get_ref().as_ref();
            let problem = format!("there is no instruction {}", quoted(name));
            let accepted = accepted_names(name, names);
            return Err(Refusal::new(Kind::Field, problem, accepted).at(key.span().into()));
        }
        [(one, _), (other, _), ..] => {
            let problem = format!("two instructions in one: `{one}` and `{other}`");
            let accepted = "each in braces of its own";
            return Err(Refusal::new(Kind::Field, problem, accepted).at(at));
        }
    };
    let fields = Fields::new(table, at, of)?;
    Ok(Step { verb: read_verb(&fields, verb, depth)?, at })
}

/// Reads the fields of an instruction whose verb is known. `depth`: number of loops and calls
/// around it; bodies are one deeper. Names of locks, channels and tasks are not looked up yet.
///
/// # Errors
/// A field that the verb needs is missing, or its value has the wrong type or range.
fn read_verb(fields: &Fields<'_>, verb: &str, depth: u64) -> Read<Verb> {
    let length = || fields.required(verb, fields.length(verb)?, DURATION_FORM);
    let body = |name, form| fields.required(name, fields.steps(name, depth + 1)?, form);
    let tokens = || -> Read<u64> { Ok(fields.number("n")?.unwrap_or(1)) };
    let of = || -> Read<TargetName> {
        Ok(fields.text("of")?.map_or(TargetName::Myself, TargetName::from))
    };
    let bare = |what| fields.required(verb, fields.bare(verb)?, "true").map(|()| what);
    Ok(match verb {
        "user" => Verb::User(length()?),
        "kernel" => Verb::Kernel(length()?),
        "irqoff" => Verb::IrqOff(length()?),
        "sleep" => Verb::Sleep(length()?),
        "every" => {
            Verb::Every { period_ns: fields.required(verb, fields.time(verb)?, DURATION_FORM)? }
        }
        "syscall" => Verb::Syscall(body(verb, "")?),
        "forever" => Verb::Loop { times: u64::MAX, body: body(verb, "")? },
        "loop" | "do" => {
            let times = fields.number("loop")?;
            let times = fields.required("loop", times, "how many times, or use `forever`")?;
            Verb::Loop { times, body: body("do", "a list of instructions")? }
        }
        "lock" => Verb::Lock { lock: fields.name(verb)?, mode: read_mode(fields)? },
        "unlock" => Verb::Unlock { lock: fields.name(verb)? },
        "send" => Verb::Send { channel: fields.name(verb)?, n: tokens()? },
        "recv" => Verb::Recv { channel: fields.name(verb)?, n: tokens()? },
        "serve" => Verb::Serve { channel: fields.name(verb)? },
        "post" | "after" => Verb::Post {
            after: fields.length("after")?,
            job: fields.name("post")?,
            channel: fields.name("to")?,
            keep: fields.flag("keep")?.unwrap_or(false),
        },
        "fork" => Verb::Fork { kind: fields.name(verb)? },
        "wait" => {
            fields.choice::<Waited>(verb)?;
            Verb::WaitChildren
        }
        "move" => {
            Verb::Move { who: TargetName::from(&*fields.name(verb)?), group: fields.name("to")? }
        }
        "affinity" => {
            let cpus = fields.required(verb, fields.cpus(verb)?, CPUS_FORM)?;
            Verb::Affinity { who: of()?, cpus }
        }
        "nice" => {
            let nice = fields.required(verb, fields.nice(verb)?, "")?;
            Verb::Nice { who: of()?, nice }
        }
        "class" => {
            let class = fields.required(verb, fields.choice(verb)?, "")?;
            Verb::Class { who: of()?, class }
        }
        "exit" => bare(Verb::Exit)?,
        "yield" => bare(Verb::Yield)?,
        "begin" => bare(Verb::Begin)?,
        _ => bare(Verb::Done)?,
    })
}

impl Fields<'_> {
    /// The program in this field, at this depth of nesting; `None` if the field is absent.
    pub fn steps(&self, name: &str, depth: u64) -> Read<Option<Vec<Step>>> {
        self.read(name, |form, value| {
            matches!(form, Form::Steps).then(|| read_steps(value, name, depth))
        })
    }

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
        return Ok(Length::Fixed(Duration::from_nanos(read_time(value, name)?)));
    };
    let fields = Fields::new(table, value.span().into(), &DISTRIBUTION)?;
    if table.len() != 1 {
        let problem = "not exactly one distribution";
        let accepted = "one of `uniform`, `exponential`, `lognormal`, `empirical`";
        return Err(Refusal::new(Kind::Field, problem, accepted).at(value.span().into()));
    }
    if let Some(bounds) = fields.bounds("uniform")? {
        return Ok(bounds.into());
    }
    if let Some(mean_ns) = fields.time("exponential")? {
        return Ok(Distribution::Exponential { mean_ns }.into());
    }
    if let Some(counted) = fields.counted("empirical")? {
        return Ok(counted.into());
    }
    let form = "{ median = \"1ms\", sigma = 0.5 }";
    let fields = fields.table("lognormal")?;
    let fields = fields.ok_or_else(|| wrong_type(value, name, form))?;
    let median_ns = fields.required("median", fields.time("median")?, form)?;
    let sigma = fields.required("sigma", fields.float("sigma")?, form)?;
    Ok(Distribution::LogNormal { median_ns, sigma }.into())
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
                return Err(Refusal::new(Kind::Value, problem, accepted).at(value.span().into()));
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
                    return Err(Refusal::new(Kind::Value, problem, form).at(pair.span().into()));
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
