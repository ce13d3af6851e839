//! Reads scenario files. The language is described in docs/reference/scenarios.md.
//!
//! The text is parsed into a tree with positions, which fills a [`Draft`]. Names are resolved and
//! everything is checked there, so every message can show its line.

mod fields;
pub(crate) mod language;
mod program;
pub(crate) mod ranges;
mod service;
pub(crate) mod table;

use crate::bounds::MAX_FILE_BYTES;
use crate::checked::Workload;
use crate::draft::{
    Act, Arrive, Change, Channel, Draft, Expect, Group, Job, Lock, Softirq, Source, Task,
};
use crate::error::{ByteRange, Error, Kind, Refusal, SourceText};
use crate::model::{Class, Expectation};
use crate::resolve::{resolve, write_burst, write_max};
use fields::{Fields, Read};
use language::{Hierarchy, SCENARIO};
use program::read_mode;
use service::read_service;
use std::io::Read as _;
use std::path::Path;
use toml::de::DeTable;

/// Reads a workload from the text of a scenario file. `file_name` is for messages; its stem is the
/// workload's name unless the file gives one.
///
/// # Errors
/// The first problem, with its line and what would be accepted.
pub fn parse(text: &str, file_name: &str) -> Result<Workload, Error> {
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large(file_name));
    }
    read_text(text, file_name, Some(SourceText { file: file_name, text }))
}

/// Reads a scenario of any size. `source` lets errors show the line.
pub(crate) fn read_text(
    text: &str,
    file_name: &str,
    source: Option<SourceText<'_>>,
) -> Result<Workload, Error> {
    let draft = read(text, file_name).map_err(|refusal| refusal.into_error(source))?;
    resolve(&draft, source)
}

/// Reads a workload from a scenario file, and never more of it than
/// [`crate::bounds::MAX_FILE_BYTES`].
///
/// # Errors
/// An unreadable file, one that is too large, or one that is not text; else as [`parse`].
pub fn load(path: &Path) -> Result<Workload, Error> {
    let file = cpumax_limit::shown(path);
    let failed = |reason: String| Error::File { file: file.clone(), reason };
    let open = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    if open.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(failed("is a directory; a scenario is a TOML file".to_owned()));
    }
    let mut bytes = Vec::new();
    let read = open.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large(&file));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) if !text.starts_with('\0') => text,
        _ => return Err(failed("is not text; a scenario is a TOML file in UTF-8".to_owned())),
    };
    parse(&text, &file)
}

/// The error for a scenario file with more than `MAX_FILE_BYTES`.
pub(crate) fn too_large(file: &str) -> Error {
    let reason = format!("is larger than {} MiB", MAX_FILE_BYTES >> 20);
    Error::File { file: file.to_owned(), reason }
}

/// Reads the tables of a scenario. References between them are checked only when the workload is
/// built. A refusal has its position in the text.
fn read(text: &str, file_name: &str) -> Read<Draft> {
    let tree = DeTable::parse(text).map_err(|error| {
        let at = error.span().map(ByteRange::from).unwrap_or_default();
        Refusal::new(Kind::Syntax, format!("not TOML: {}", error.message()), "").at(at)
    })?;
    let top = Fields::new(tree.get_ref(), tree.span().into(), &SCENARIO)?;
    let stem = Path::new(file_name).file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    let mut draft = Draft::new(top.text("name")?.unwrap_or(stem));
    top.text("shows")?.unwrap_or("").clone_into(&mut draft.shows);
    if let Some(duration_ns) = top.time("duration")? {
        draft.duration_ns = duration_ns;
    }
    if let Some(machine) = top.table("machine")? {
        read_machine(&machine, &mut draft)?;
    }
    for fields in top.tables("group")? {
        let listed = draft.groups.len();
        draft.groups.extend(ranges::groups(&read_group(&fields)?, listed)?);
    }
    for fields in top.tables("lock")? {
        draft.locks.push(read_lock(&fields)?);
    }
    for fields in top.tables("channel")? {
        draft.channels.push(read_channel(&fields)?);
    }
    for fields in top.tables("task")? {
        let listed = draft.tasks.len();
        draft.tasks.extend(ranges::tasks(&read_task(&fields)?, listed)?);
    }
    for fields in top.tables("job")? {
        let program = fields.steps("program", 0)?.unwrap_or_default();
        let name = fields.name("name")?;
        draft.jobs.push(Job { name, program, positions: fields.positions() });
    }
    for fields in top.tables("source")? {
        draft.sources.push(read_source(&fields)?);
    }
    for fields in top.tables("service")? {
        draft = read_service(&fields, draft)?;
    }
    for fields in top.tables("at")? {
        draft.changes.push(read_change(&fields)?);
    }
    for fields in top.tables("expect")? {
        draft.expectations.push(read_expect(&fields)?);
    }
    draft.positions = top.positions();
    Ok(draft)
}

/// Reads `[machine]` into the draft; absent fields keep their defaults.
fn read_machine(fields: &Fields<'_>, draft: &mut Draft) -> Read<()> {
    let machine = &mut draft.machine;
    machine.positions = fields.positions();
    let spec = &mut machine.spec;
    if let Some(cpus) = fields.number("cpus")? {
        spec.cpus = cpus as u16;
    }
    if let Some(llc) = fields.number("llc")? {
        spec.llc_cpus = llc as u16;
    }
    if let Some(hz) = fields.number("hz")? {
        spec.hz = hz as u32;
    }
    spec.preempt = fields.choice("preempt")?;
    spec.hrtick = fields.flag("hrtick")?;
    spec.timer_phase_ns = fields.time("timer_phase")?;
    spec.tick_skew = fields.flag("tick_skew")?.unwrap_or(false);
    spec.bandwidth_slice_ns = fields.time("slice")?.unwrap_or(spec.bandwidth_slice_ns);
    spec.base_slice_ns = fields.time("base_slice")?;
    machine.nohz_full = fields.cpus("nohz_full")?;
    spec.cost_timing = fields.flag("costs")?.unwrap_or(false);
    spec.ipi_ns = fields.time("ipi")?.unwrap_or(spec.ipi_ns);
    for fields in fields.tables("softirq")? {
        let cpu = fields.number("cpu")?.unwrap_or(0) as u16;
        let every_ns = fields.required("every", fields.time("every")?, "a length of time")?;
        let hold_ns = fields.required("hold", fields.time("hold")?, "a length of time")?;
        let (lock, mode) = (fields.name("lock")?, read_mode(&fields)?);
        let positions = fields.positions();
        machine.softirqs.push(Softirq { cpu, every_ns, lock, mode, hold_ns, positions });
    }
    Ok(())
}

/// Reads a `[[group]]`. `shares` of v1 become a weight. Quota, period and burst are refused as the
/// kernel would refuse them.
fn read_group(fields: &Fields<'_>) -> Read<Group> {
    let mut group = Group::new(fields.name("path")?);
    group.positions = fields.positions();
    let at = |field: &'static str| group.positions.of(field);
    if let Some(text) = fields.text("max")? {
        group.limit = write_max(group.limit, text).map_err(|refusal| refusal.at(at("max")))?;
    }
    if let Some(text) = fields.digits("burst")? {
        group.limit = write_burst(group.limit, &text).map_err(|refusal| refusal.at(at("burst")))?;
    }
    let shares = fields.number("shares")?;
    let weight = fields.number("weight")?;
    group.weight = match (weight, shares) {
        (Some(_), Some(_)) => {
            let problem = "both `weight` and `shares`";
            return Err(Refusal::new(Kind::Field, problem, "one of them").at(at("shares")));
        }
        (Some(weight), None) => weight as u32,
        // 1024 shares are a weight of 100; rounded to the nearest.
        (None, Some(shares)) => ((shares * 100 + 512) / 1024).clamp(1, 10_000) as u32,
        (None, None) => group.weight,
    };
    group.v1 = fields.choice("hierarchy")?.map(|hierarchy: Hierarchy| hierarchy == Hierarchy::V1);
    Ok(group)
}

fn read_lock(fields: &Fields<'_>) -> Read<Lock> {
    let (name, kind) = (fields.name("name")?, fields.choice("kind")?);
    let kinds = "\"mutex\", \"rwsem\", \"percpu-rwsem\", \"rwlock\" or \"spin\"";
    let kind = fields.required("kind", kind, kinds)?;
    Ok(Lock { name, kind, positions: fields.positions() })
}

fn read_channel(fields: &Fields<'_>) -> Read<Channel> {
    let capacity = fields.number("capacity")?.unwrap_or(u64::MAX);
    let name = fields.name("name")?;
    let oldest_first = fields.flag("oldest_first")?.unwrap_or(false);
    Ok(Channel { name, capacity, oldest_first, positions: fields.positions() })
}

fn read_task(fields: &Fields<'_>) -> Read<Task> {
    let mut task = Task::new(fields.name("name")?);
    task.positions = fields.positions();
    task.label = fields.text("label")?.map(str::to_owned);
    if let Some(count) = fields.number("count")? {
        task.count = count as u32;
    }
    if let Some(group) = fields.text("group")? {
        group.clone_into(&mut task.group);
    }
    task.nice = fields.nice("nice")?.unwrap_or(0);
    task.class = fields.choice("class")?.unwrap_or(Class::Fair);
    task.cpus = fields.each_or_cpus("cpus")?;
    task.start_ns = fields.time("start")?.unwrap_or(0);
    task.stagger_ns = fields.time("stagger")?.unwrap_or(0);
    task.slice_ns = fields.time("slice")?;
    task.program = fields.steps("program", 0)?.unwrap_or_default();
    Ok(task)
}

/// Reads a `[[source]]`, which needs exactly one of `every` and `at`. Without `count` it sends for
/// ever.
fn read_source(fields: &Fields<'_>) -> Read<Source> {
    let positions = fields.positions();
    let arrivals = match (fields.length("every")?, fields.times("at")?) {
        (Some(every), None) => Arrive::Between(every),
        (None, Some(times_ns)) => Arrive::At(times_ns),
        _ => {
            let problem = "a source needs `every` or `at`, and not both";
            let accepted = "every = \"2ms\", or at = [\"1ms\", \"5ms\"]";
            return Err(Refusal::new(Kind::Field, problem, accepted).at(positions.whole));
        }
    };
    Ok(Source {
        name: fields.name("name")?,
        channel: fields.name("channel")?,
        arrivals,
        start_ns: fields.time("start")?.unwrap_or(0),
        count: fields.number("count")?.unwrap_or(u64::MAX),
        jobs: fields.names("jobs")?.unwrap_or_default(),
        lossy: fields.flag("lossy")?.unwrap_or(false),
        positions,
    })
}

/// Reads an `[[at]]`: a change from outside with its time. Without `until`, a repeated one ends
/// with the run.
fn read_change(fields: &Fields<'_>) -> Read<Change> {
    let positions = fields.positions();
    let at_ns =
        fields.required("time", fields.time("time")?, "a length of time since the start")?;
    Ok(Change {
        at_ns,
        every_ns: fields.time("repeat")?,
        until_ns: fields.time("until")?.unwrap_or(u64::MAX),
        act: read_act(fields)?,
        positions,
    })
}

/// Reads what an `[[at]]` changes: the limit or weight of a group, one property of the tasks of a
/// kind, or whether a CPU is online. Names are not looked up yet.
///
/// # Errors
/// The fields are those of no change, or of more than one.
fn read_act(fields: &Fields<'_>) -> Read<Act> {
    const ON_GROUP: [&str; 3] = ["max", "burst", "weight"];
    const ON_TASK: [&str; 5] = ["signal", "move", "affinity", "nice", "class"];
    const ALONE: [&str; 2] = ["offline", "online"];
    let given = |names: &[&'static str]| -> Vec<&'static str> {
        names.iter().copied().filter(|name| fields.value(name).is_some()).collect()
    };
    let (group, task) = (fields.text("group")?, fields.text("task")?);
    let (on_group, on_task, alone) = (given(&ON_GROUP), given(&ON_TASK), given(&ALONE));
    let cpu = |name| -> Read<u16> { Ok(fields.number(name)?.unwrap_or(0) as u16) };
    match (group, task, on_group.as_slice(), on_task.as_slice(), alone.as_slice()) {
        (Some(group), None, ["weight"], [], []) => {
            let weight = fields.number("weight")?.unwrap_or(100);
            Ok(Act::Weight(group.to_owned(), weight as u32))
        }
        (Some(group), None, ["max" | "burst"] | ["max", "burst"], [], []) => Ok(Act::LimitFiles {
            group: group.to_owned(),
            max: fields.text("max")?.map(str::to_owned),
            burst: fields.digits("burst")?,
        }),
        (None, Some(task), [], [verb], []) => read_act_on_task(fields, task.to_owned(), verb),
        (None, None, [], [], ["offline"]) => Ok(Act::Offline(cpu("offline")?)),
        (None, None, [], [], ["online"]) => Ok(Act::Online(cpu("online")?)),
        _ => {
            let problem = "none of the possible changes, or more than one";
            let accepted = "`group` with `max`, `burst` or `weight`; `task` with one of `signal`, \
                 `move`, `affinity`, `nice`, `class`; or `offline` or `online`";
            Err(Refusal::new(Kind::Field, problem, accepted).at(fields.positions().whole))
        }
    }
}

/// Reads the change `verb` of a kind of task: `signal`, `move`, `affinity`, `nice` or `class`.
fn read_act_on_task(fields: &Fields<'_>, task: String, verb: &str) -> Read<Act> {
    let positions = fields.positions();
    let missing =
        || Refusal::new(Kind::Field, format!("`{verb}` has no value"), "").at(positions.whole);
    Ok(match verb {
        "signal" => Act::Signal(task, fields.choice("signal")?.ok_or_else(missing)?),
        "move" => Act::Move(task, fields.text("move")?.ok_or_else(missing)?.to_owned()),
        "affinity" => Act::Affinity(task, fields.cpus("affinity")?.ok_or_else(missing)?),
        "nice" => Act::Nice(task, fields.nice("nice")?.ok_or_else(missing)?),
        _ => Act::Class(task, fields.choice("class")?.ok_or_else(missing)?),
    })
}

/// Reads an `[[expect]]`. `is` sets both bounds, and excludes `min` and `max`.
fn read_expect(fields: &Fields<'_>) -> Read<Expect> {
    let positions = fields.positions();
    let exactly = fields.float("is")?;
    let (min, max) = (fields.float("min")?, fields.float("max")?);
    if exactly.is_some() && (min.is_some() || max.is_some()) {
        let problem = "`is` together with `min` or `max`";
        return Err(Refusal::new(Kind::Field, problem, "one or the other").at(positions.of("is")));
    }
    let text = |name| -> Read<Option<String>> { Ok(fields.text(name)?.map(str::to_owned)) };
    let expectation = Expectation {
        kernels: text("on")?.unwrap_or_default(),
        metric: fields.name("metric")?,
        over: text("over")?,
        per: text("per")?,
        min: exactly.or(min),
        max: exactly.or(max),
        why: text("why")?.unwrap_or_default(),
    };
    Ok(Expect { expectation, positions })
}
