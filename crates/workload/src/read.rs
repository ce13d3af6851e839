//! Reads scenario files. The language is described in docs/reference/scenarios.md.
//!
//! The text is parsed into a tree with positions. The reader enters the names of all parts, reads
//! each table into the workload's parts, and keeps the table, so that every message of the checks
//! can show its line.

mod fields;
mod groups;
pub(crate) mod language;
mod limit;
mod names;
mod outside;
mod places;
mod program;
pub(crate) mod ranges;
mod service;
pub(crate) mod table;

use crate::bounds::{MAX_FILE_BYTES, MAX_RANGE_OPS, NS_PER_S};
use crate::check::check;
use crate::checked::Workload;
use crate::cpus::CpuSet;
use crate::error::{ByteRange, Error, PartIx, Refusal, SourceText};
use crate::model::Program;
use crate::model::{
    Affinity, Arrivals, ChannelSpec, Class, JobSpec, LockKind, LockMode, LockSpec, MachineSpec,
    Parts, SoftirqSpec, Source, Span, TaskSpec,
};
use crate::units::quoted;
use fields::{Cpus, Fields, Length, Read};
use language::SCENARIO;
use names::{Names, Shared};
use places::Places;
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
///
/// # Errors
/// As [`parse`].
pub(crate) fn read_text(
    text: &str,
    file_name: &str,
    source: Option<SourceText<'_>>,
) -> Result<Workload, Error> {
    let tree = DeTable::parse(text).map_err(|error| {
        let at = error.span().map(ByteRange::from).unwrap_or_default();
        let problem = format!("not TOML: {}", error.message());
        Refusal::new(Error::Syntax, problem, "").at(at).into_error(source)
    })?;
    let stem = Path::new(file_name).file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    let mut reader = Reader::new();
    let read = Fields::new(tree.get_ref(), tree.span().into(), &SCENARIO)
        .and_then(|top| reader.read_all(top, stem))
        .and_then(|()| {
            check(&reader.parts).map_err(|found| {
                let at = reader.places.find(found.part, found.field, &reader.shared);
                found.refusal.at(at).part(found.part.describe(&reader.parts))
            })
        });
    match read {
        Ok(()) => Ok(Workload::checked(reader.parts)),
        Err(refusal) => Err(refusal.into_error(source)),
    }
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

/// The name and the group of each kind of task that a table stands for.
type Kinds = Vec<(String, String)>;

/// A workload while its tables are read. Names are entered before the values that refer to them.
struct Reader<'t> {
    parts: Parts,
    places: Places<'t>,
    shared: Shared,
    groups: Names,
    locks: Names,
    channels: Names,
    tasks: Names,
    jobs: Names,
    /// Instructions in all programs.
    ops: u64,
}

impl<'t> Reader<'t> {
    fn new() -> Reader<'t> {
        Reader {
            parts: Parts::empty("", "", 10 * NS_PER_S),
            places: Places::default(),
            shared: Shared::default(),
            groups: Names::new("group"),
            locks: Names::new("lock"),
            channels: Names::new("channel"),
            tasks: Names::new("task"),
            jobs: Names::new("job"),
            ops: 0,
        }
    }

    /// Reads the whole file. `stem` is the workload's name unless the file gives one.
    fn read_all(&mut self, top: Fields<'t>, stem: &str) -> Read<()> {
        self.places.tables.insert(PartIx::Top, top);
        top.text("name")?.unwrap_or(stem).clone_into(&mut self.parts.name);
        top.text("shows")?.unwrap_or("").clone_into(&mut self.parts.shows);
        self.parts.duration_ns = top.time("duration")?.unwrap_or(self.parts.duration_ns);
        let machine = top.table("machine")?;
        let groups = top.tables("group")?;
        let (locks, channels) = (top.tables("lock")?, top.tables("channel")?);
        let (tasks, jobs) = (top.tables("task")?, top.tables("job")?);
        let (sources, services) = (top.tables("source")?, top.tables("service")?);
        let (changes, expectations) = (top.tables("at")?, top.tables("expect")?);

        self.read_groups(&groups)?;
        locks.into_iter().try_for_each(|fields| self.read_lock(fields))?;
        channels.into_iter().try_for_each(|fields| self.read_channel(fields))?;
        let tasks = self.enter_tasks(tasks)?;
        for fields in &jobs {
            self.jobs.enter(fields.name("name")?, *fields)?;
        }
        let mut source_names = Names::new("source");
        for fields in &sources {
            source_names.enter(fields.name("name")?, *fields)?;
        }
        let kinds = tasks.iter().map(|(_, kinds)| kinds.len() as u64).sum();
        let pools = self.enter_pools(services, &mut source_names, kinds)?;

        machine.map_or(Ok(()), |fields| self.read_machine(fields))?;
        tasks.into_iter().try_for_each(|(fields, kinds)| self.read_task(fields, kinds))?;
        pools.iter().try_for_each(|pool| self.add_pool_task(pool))?;
        jobs.into_iter().try_for_each(|fields| self.read_job(fields))?;
        for pool in &pools {
            self.add_pool_job(pool);
        }
        sources.into_iter().try_for_each(|fields| self.read_source(fields))?;
        for pool in &pools {
            self.add_pool_source(pool);
        }
        self.read_changes(changes)?;
        expectations.into_iter().try_for_each(|fields| self.read_expectation(fields))
    }

    fn read_lock(&mut self, fields: Fields<'t>) -> Read<()> {
        let (name, kind) = (fields.name("name")?, fields.choice("kind")?);
        let kinds = "\"mutex\", \"rwsem\", \"percpu-rwsem\", \"rwlock\" or \"spin\"";
        let kind = fields.required("kind", kind, kinds)?;
        self.locks.enter(name, fields)?;
        self.parts.locks.push(LockSpec { name: name.to_owned(), kind });
        self.places.tables.insert(PartIx::Lock(self.parts.locks.len() - 1), fields);
        Ok(())
    }

    fn read_channel(&mut self, fields: Fields<'t>) -> Read<()> {
        let capacity = fields.number("capacity")?.unwrap_or(u64::MAX);
        let oldest_first = fields.flag("oldest_first")?.unwrap_or(false);
        self.add_channel(fields.name("name")?, capacity, oldest_first, fields)
    }

    fn add_channel(
        &mut self,
        name: &str,
        capacity: u64,
        oldest_first: bool,
        fields: Fields<'t>,
    ) -> Read<()> {
        self.channels.enter(name, fields)?;
        self.parts.channels.push(ChannelSpec { name: name.to_owned(), capacity, oldest_first });
        self.places.tables.insert(PartIx::Channel(self.parts.channels.len() - 1), fields);
        Ok(())
    }

    /// Reads `[machine]`; absent fields keep their defaults.
    fn read_machine(&mut self, fields: Fields<'t>) -> Read<()> {
        self.places.tables.insert(PartIx::Machine, fields);
        let usual = MachineSpec::default();
        self.parts.machine = MachineSpec {
            cpus: fields.number("cpus")?.map_or(usual.cpus, |cpus| cpus as u16),
            llc_cpus: fields.number("llc")?.map_or(usual.llc_cpus, |cpus| cpus as u16),
            hz: fields.number("hz")?.map_or(usual.hz, |hz| hz as u32),
            preempt: fields.choice("preempt")?,
            hrtick: fields.flag("hrtick")?,
            timer_phase_ns: fields.time("timer_phase")?,
            tick_skew: fields.flag("tick_skew")?.unwrap_or(usual.tick_skew),
            bandwidth_slice_ns: fields.time("slice")?.unwrap_or(usual.bandwidth_slice_ns),
            base_slice_ns: fields.time("base_slice")?,
            nohz_full: fields
                .cpus("nohz_full")?
                .map(|cpus| self.cpu_set(cpus, fields, "nohz_full")),
            cost_timing: fields.flag("costs")?.unwrap_or(usual.cost_timing),
            ipi_ns: fields.time("ipi")?.unwrap_or(usual.ipi_ns),
            softirqs: Vec::new(),
        };
        for (ix, fields) in fields.tables("softirq")?.into_iter().enumerate() {
            let told = |refusal: Refusal, field| {
                let part = PartIx::Softirq(ix).describe(&self.parts);
                refusal.at(fields.at(field)).part(part)
            };
            let every_ns = fields.required("every", fields.time("every")?, "a length of time")?;
            let hold_ns = fields.required("hold", fields.time("hold")?, "a length of time")?;
            let lock = self.locks.find(fields.name("lock")?);
            let lock = lock.map_err(|refusal| told(refusal, "lock"))?;
            let mode = self.lock_mode(lock, fields.choice("mode")?);
            let mode = mode.map_err(|refusal| told(refusal, "mode"))?;
            let cpu = fields.number("cpu")?.unwrap_or(0) as u16;
            self.parts.machine.softirqs.push(SoftirqSpec { cpu, every_ns, lock, mode, hold_ns });
            self.places.tables.insert(PartIx::Softirq(ix), fields);
        }
        Ok(())
    }

    /// The mode in which a lock is taken. A mutex and a spin lock need none to be given.
    fn lock_mode(&self, lock: u32, mode: Option<LockMode>) -> Read<LockMode> {
        let lock = &self.parts.locks[lock as usize];
        match (lock.kind, mode) {
            (_, Some(mode)) => Ok(mode),
            (LockKind::Mutex | LockKind::Spin, None) => Ok(LockMode::Write),
            (LockKind::Rwsem | LockKind::PercpuRwsem | LockKind::Rwlock, None) => {
                let name = quoted(&lock.name);
                let problem = format!("lock {name} has readers and writers, and no mode is given");
                Err(Refusal::new(Error::Field, problem, "mode = \"read\" or mode = \"write\""))
            }
        }
    }

    /// Enters the names of all kinds of task. Returns the name and group of each kind that a table
    /// stands for.
    fn enter_tasks(&mut self, tables: Vec<Fields<'t>>) -> Read<Vec<(Fields<'t>, Kinds)>> {
        let mut count = 0;
        let enter = |fields: Fields<'t>| {
            let kinds = ranges::tasks(&fields, count)?;
            count += kinds.len();
            for (name, _) in &kinds {
                self.tasks.enter(name, fields)?;
            }
            Ok((fields, kinds))
        };
        tables.into_iter().map(enter).collect()
    }

    /// Reads a `[[task]]` and adds it to the workload once for each of these kinds (at least one),
    /// with the kind's name and group. Refuses unknown groups, wrong fields, and for several kinds
    /// more than `MAX_RANGE_OPS` instructions in all.
    fn read_task(&mut self, fields: Fields<'t>, kinds: Kinds) -> Read<()> {
        let of = |name: &str| format!("task {}", quoted(name));
        let mut groups = Vec::new();
        for (name, group) in &kinds {
            let group = self.groups.find(group);
            groups.push(group.map_err(|refusal| refusal.at(fields.at("group")).part(of(name)))?);
        }
        let task = TaskSpec {
            name: String::new(),
            label: fields.text("label")?.map(str::to_owned),
            count: fields.number("count")?.unwrap_or(1) as u32,
            group: 0,
            class: fields.choice("class")?.unwrap_or(Class::Fair),
            nice: fields.nice("nice")?.unwrap_or(0),
            cpus: self.affinity(fields.each_or_cpus("cpus")?, fields),
            start_ns: fields.time("start")?.unwrap_or(0),
            stagger_ns: fields.time("stagger")?.unwrap_or(0),
            slice_ns: fields.time("slice")?,
            program: Program::default(),
        };
        let flat = self.read_program(fields, of(&kinds[0].0))?;
        let ops = flat.ops.len() as u64 * kinds.len() as u64;
        if kinds.len() > 1 && ops > MAX_RANGE_OPS {
            let problem =
                format!("more than {MAX_RANGE_OPS} instructions in the programs of these kinds");
            return Err(Refusal::new(Error::Value, problem, "").at(fields.at("name")));
        }
        let (program, at) = flat.finish();
        for ((name, _), group) in kinds.into_iter().zip(groups) {
            let program = program.clone();
            self.parts.tasks.push(TaskSpec { name, group, program, ..task.clone() });
            self.places.tables.insert(PartIx::Task(self.parts.tasks.len() - 1), fields);
            self.places.ops.push(at.clone());
        }
        Ok(())
    }

    fn read_job(&mut self, fields: Fields<'t>) -> Read<()> {
        let name = fields.name("name")?.to_owned();
        let flat = self.read_program(fields, format!("job {}", quoted(&name)))?;
        let (program, at) = flat.finish();
        self.parts.jobs.push(JobSpec { name, program });
        self.places.tables.insert(PartIx::Job(self.parts.jobs.len() - 1), fields);
        self.places.job_ops.push(at);
        Ok(())
    }

    /// Reads a `[[source]]`, which needs exactly one of `every` and `at`. Without `count` it sends
    /// for ever.
    fn read_source(&mut self, fields: Fields<'t>) -> Read<()> {
        let arrivals = match (fields.length("every")?, fields.times("at")?) {
            (Some(every), None) => Arrivals::Between(self.span(every, fields.at("every"))),
            (None, Some(times_ns)) => Arrivals::At(times_ns),
            _ => {
                let problem = "a source needs `every` or `at`, and not both";
                let accepted = "every = \"2ms\", or at = [\"1ms\", \"5ms\"]";
                return Err(Refusal::new(Error::Field, problem, accepted).at(fields.at("")));
            }
        };
        let name = fields.name("name")?.to_owned();
        let told = |refusal: Refusal, field| {
            refusal.at(fields.at(field)).part(format!("source {}", quoted(&name)))
        };
        let channel = self.channels.find(fields.name("channel")?);
        let channel = channel.map_err(|refusal| told(refusal, "channel"))?;
        let jobs = fields.names("jobs")?.unwrap_or_default();
        let jobs = jobs.into_iter().map(|job| self.jobs.find(job)).collect::<Read<_>>();
        let jobs = jobs.map_err(|refusal| told(refusal, "jobs"))?;
        self.parts.sources.push(Source {
            name,
            channel,
            arrivals,
            start_ns: fields.time("start")?.unwrap_or(0),
            count: fields.number("count")?.unwrap_or(u64::MAX),
            jobs,
            lossy: fields.flag("lossy")?.unwrap_or(false),
        });
        self.places.tables.insert(PartIx::Source(self.parts.sources.len() - 1), fields);
        Ok(())
    }

    /// The index of the set of CPUs that `field` gives.
    fn cpu_set(&mut self, cpus: CpuSet, fields: Fields<'t>, field: &str) -> u32 {
        self.shared.cpu_set(&mut self.parts, cpus, fields.at(field))
    }

    /// The CPUs of tasks that `cpus` gives.
    fn affinity(&mut self, cpus: Cpus, fields: Fields<'t>) -> Affinity {
        match cpus {
            Cpus::All => Affinity::All,
            Cpus::Each => Affinity::Each,
            Cpus::Set(cpus) => Affinity::Set(self.cpu_set(cpus, fields, "cpus")),
        }
    }

    fn span(&mut self, length: Length, at: ByteRange) -> Span {
        self.shared.span(&mut self.parts, length, at)
    }
}
