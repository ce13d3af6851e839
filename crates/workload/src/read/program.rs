//! Programs: lists of instructions, each a table with one verb and what belongs to it.

use super::CLASSES;
use super::fields::{
    Fields, Read, Value, array, choice, cpus, float, nice, number, read_time, text, wrong_type,
};
use crate::bounds::{MAX_LOOP_DEPTH, MAX_TOKENS, MAX_VALUE_COUNT};
use crate::build::Length;
use crate::error::{Flaw, Kind};
use crate::model::{Distribution, LockMode};
use crate::step::{Step, What, Who};
use crate::units::{accepted_names, quoted};
use std::time::Duration;
use toml::de::DeValue;

/// Each verb with the fields that may stand beside it.
const VERBS: [(&str, &[&str]); 26] = [
    ("user", &["user"]),
    ("kernel", &["kernel"]),
    ("irqoff", &["irqoff"]),
    ("sleep", &["sleep"]),
    ("every", &["every"]),
    ("syscall", &["syscall"]),
    ("forever", &["forever"]),
    ("loop", &["loop", "do"]),
    ("lock", &["lock", "mode"]),
    ("unlock", &["unlock"]),
    ("send", &["send", "n"]),
    ("recv", &["recv", "n"]),
    ("serve", &["serve"]),
    ("post", &["post", "to", "after", "keep"]),
    ("after", &["post", "to", "after", "keep"]),
    ("fork", &["fork"]),
    ("wait", &["wait"]),
    ("exit", &["exit"]),
    ("yield", &["yield"]),
    ("move", &["move", "to"]),
    ("affinity", &["affinity", "of"]),
    ("nice", &["nice", "of"]),
    ("class", &["class", "of"]),
    ("begin", &["begin"]),
    ("done", &["done"]),
    // Only for the message that it stands in a loop.
    ("do", &["loop", "do"]),
];

const MODES: [(&str, LockMode); 2] = [("read", LockMode::Read), ("write", LockMode::Write)];

pub(super) fn read_mode(fields: &Fields<'_>) -> Read<Option<LockMode>> {
    fields.choice("mode", &MODES)
}

pub(super) fn read_steps(value: &Value<'_>, name: &str, depth: u64) -> Read<Vec<Step>> {
    // Deeper ones are refused with the right message later; this only bounds the recursion.
    if depth > MAX_LOOP_DEPTH + 2 {
        let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
        return Err(Flaw::new(Kind::Program, problem, "").at(value.span().into()));
    }
    array(value, name)?.map(|item| read_step(item, depth)).collect()
}

fn read_step(value: &Value<'_>, depth: u64) -> Read<Step> {
    let form = "an instruction in braces, such as { user = \"1ms\" }";
    let DeValue::Table(table) = value.get_ref() else {
        return Err(wrong_type(value, "program", form));
    };
    let at = value.span().into();
    let verbs: Vec<_> = VERBS.iter().filter(|(verb, _)| table.contains_key(*verb)).collect();
    let &(verb, known) = match verbs.as_slice() {
        [only] => *only,
        // `loop` and `do` belong together, and so do `post` and `after`.
        [one, (_, also)] if one.1 == *also => *one,
        [] => {
            let names = VERBS.iter().map(|(verb, _)| *verb).filter(|verb| *verb != "do");
            let first = table.keys().min_by_key(|key| key.span().start);
            let Some(key) = first else {
                return Err(Flaw::new(Kind::Field, "an empty instruction", form).at(at));
            };
            let name = key.get_ref().as_ref();
            let problem = format!("there is no instruction {}", quoted(name));
            let accepted = accepted_names(name, names);
            return Err(Flaw::new(Kind::Field, problem, accepted).at(key.span().into()));
        }
        [(one, _), (other, _), ..] => {
            let problem = format!("two instructions in one: `{one}` and `{other}`");
            let accepted = "each in braces of its own";
            return Err(Flaw::new(Kind::Field, problem, accepted).at(at));
        }
    };
    let what = match verb {
        "user" => "{ user = … }",
        "lock" => "{ lock = …, mode = … }",
        "loop" | "do" => "{ loop = N, do = […] }",
        "post" => "{ post = …, to = … }",
        "after" => "{ after = …, post = …, to = … }",
        "move" => "{ move = …, to = … }",
        _ => "the instruction",
    };
    let fields = Fields::new(table, at, what, known)?;
    Ok(Step { what: read_verb(&fields, verb, depth)?, at })
}

fn read_verb(fields: &Fields<'_>, verb: &str, depth: u64) -> Read<What> {
    let argument = fields.required(verb, fields.value(verb), "")?;
    let named = || -> Read<String> { Ok(text(argument, verb)?.to_owned()) };
    let length = || read_length(argument, verb);
    let body = |value, name| read_steps(value, name, depth + 1);
    let tokens = || -> Read<u64> { Ok(fields.number("n", 1..=MAX_TOKENS)?.unwrap_or(1)) };
    let of = || -> Read<Who> { Ok(fields.text("of")?.map_or(Who::Myself, Who::from)) };
    Ok(match verb {
        "user" => What::User(length()?),
        "kernel" => What::Kernel(length()?),
        "irqoff" => What::IrqOff(length()?),
        "sleep" => What::Sleep(length()?),
        "every" => What::Every { period_ns: read_time(argument, verb)? },
        "syscall" => What::Syscall(body(argument, "syscall")?),
        "forever" => What::Loop { times: u64::MAX, body: body(argument, "forever")? },
        "loop" | "do" => {
            let times = fields.value("loop");
            let times = fields.required("loop", times, "how many times, or use `forever`")?;
            let steps = fields.required("do", fields.value("do"), "a list of instructions")?;
            let times = number(times, "loop", 1..=i64::MAX as u64)?;
            What::Loop { times, body: body(steps, "do")? }
        }
        "lock" => What::Lock { lock: named()?, mode: read_mode(fields)? },
        "unlock" => What::Unlock { lock: named()? },
        "send" => What::Send { channel: named()?, n: tokens()? },
        "recv" => What::Recv { channel: named()?, n: tokens()? },
        "serve" => What::Serve { channel: named()? },
        "post" | "after" => What::Post {
            after: fields.value("after").map(|delay| read_length(delay, "after")).transpose()?,
            job: fields.name("post")?,
            channel: fields.name("to")?,
            keep: fields.flag("keep")?.unwrap_or(false),
        },
        "fork" => What::Fork { kind: named()? },
        "wait" => {
            choice(argument, verb, &[("children", ())])?;
            What::WaitChildren
        }
        "move" => What::Move { who: Who::from(text(argument, verb)?), group: fields.name("to")? },
        "affinity" => What::Affinity { who: of()?, cpus: cpus(argument, verb)? },
        "nice" => What::Nice { who: of()?, nice: nice(argument, verb)? },
        "class" => What::Class { who: of()?, class: choice(argument, verb, &CLASSES)? },
        "exit" => bare(argument, verb, What::Exit)?,
        "yield" => bare(argument, verb, What::Yield)?,
        "begin" => bare(argument, verb, What::Begin)?,
        _ => bare(argument, verb, What::Done)?,
    })
}

/// An instruction that takes nothing: `{ yield = true }`.
fn bare(argument: &Value<'_>, verb: &str, what: What) -> Read<What> {
    match argument.get_ref() {
        DeValue::Boolean(true) => Ok(what),
        _ => Err(wrong_type(argument, verb, "true")),
    }
}

/// A length of time: a text, or a table that names a distribution.
pub(super) fn read_length(value: &Value<'_>, name: &str) -> Read<Length> {
    let DeValue::Table(table) = value.get_ref() else {
        return Ok(Length::Fixed(Duration::from_nanos(read_time(value, name)?)));
    };
    let fields = Fields::new(
        table,
        value.span().into(),
        "a length of time",
        &["uniform", "exponential", "lognormal", "empirical"],
    )?;
    if table.len() != 1 {
        let problem = "not exactly one distribution";
        let accepted = "one of `uniform`, `exponential`, `lognormal`, `empirical`";
        return Err(Flaw::new(Kind::Field, problem, accepted).at(value.span().into()));
    }
    if let Some(bounds) = fields.value("uniform") {
        let bounds_ns: Vec<u64> =
            array(bounds, "uniform")?.map(|v| read_time(v, "uniform")).collect::<Read<_>>()?;
        let &[low_ns, high_ns] = bounds_ns.as_slice() else {
            let problem = format!("uniform has {} values", bounds_ns.len());
            let accepted = "the smallest and the largest, such as [\"1ms\", \"2ms\"]";
            return Err(Flaw::new(Kind::Value, problem, accepted).at(bounds.span().into()));
        };
        return Ok(Distribution::Uniform { low_ns, high_ns }.into());
    }
    if let Some(mean_ns) = fields.time("exponential")? {
        return Ok(Distribution::Exponential { mean_ns }.into());
    }
    if let Some(values) = fields.value("empirical") {
        return read_empirical(values);
    }
    let form = "{ median = \"1ms\", sigma = 0.5 }";
    let fields = fields.table("lognormal", "lognormal", &["median", "sigma"])?;
    let fields = fields.ok_or_else(|| wrong_type(value, name, form))?;
    let median_ns = fields.required("median", fields.time("median")?, form)?;
    let sigma = fields.required("sigma", fields.value("sigma"), form)?;
    let sigma = float(sigma, "sigma")?;
    Ok(Distribution::LogNormal { median_ns, sigma }.into())
}

/// `[["1ms", 3], ["9ms", 1]]`: each value and how often it occurs.
fn read_empirical(values: &Value<'_>) -> Read<Length> {
    let form = "pairs of value and count, such as [[\"1ms\", 3], [\"9ms\", 1]]";
    let mut values_ns = Vec::new();
    let mut cumulative: Vec<u64> = Vec::new();
    for pair in array(values, "empirical")? {
        let mut parts =
            array(pair, "empirical").map_err(|_| wrong_type(pair, "empirical", form))?;
        let (Some(value), Some(count), None) = (parts.next(), parts.next(), parts.next()) else {
            let problem = "not a pair of value and count";
            return Err(Flaw::new(Kind::Value, problem, form).at(pair.span().into()));
        };
        values_ns.push(read_time(value, "empirical")?);
        let count = number(count, "the count", 1..=MAX_VALUE_COUNT)?;
        let before = cumulative.last().copied().unwrap_or(0);
        cumulative.push(before.saturating_add(count));
    }
    Ok(Distribution::Empirical { values_ns, cumulative }.into())
}
