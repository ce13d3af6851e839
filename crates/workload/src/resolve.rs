//! Resolves names to indices: turns a [`Draft`] into a [`Workload`].
//!
//! Equal sets of CPUs and equal distributions are stored once, numbered in the order of their first
//! use: machine, tasks with their programs, sources, interventions by time. Parents that are not
//! listed are added before their first child.

mod limit;
mod positions;

use crate::bounds::{MAX_GROUPS, MAX_LOOP_DEPTH, MAX_OPS};
use crate::check::{self, check};
use crate::checked::Workload;
use crate::draft::{Act, Arrive, Cpus, Draft, Length, Positions, to_ns};
use crate::error::{ByteRange, Error, Kind, PartIx, Refusal, SourceText};
use crate::model::{
    Action, Affinity, Arrivals, ChannelSpec, CpuSet, CpuSetIx, DistIx, Distribution, GroupIx,
    GroupSpec, Intervention, JobIx, JobSpec, LockKind, LockMode, LockSpec, MachineSpec, Op, Parts,
    SoftirqSpec, Source, Span, Target, TaskSpec,
};
use crate::program::Program;
use crate::step::{Step, TargetName, Verb};
use crate::units::{accepted_names, quoted};
use cpumax_limit::Limit;
use std::collections::BTreeMap;

pub(crate) use limit::{write_burst, write_max};
use positions::PartPositions;

/// Resolves the names of `draft` and checks the result. `source` lets errors show the line.
pub(crate) fn resolve(draft: &Draft, source: Option<SourceText<'_>>) -> Result<Workload, Error> {
    let mut resolver = Resolver::new(draft);
    let resolved = resolver.resolve_all(draft).and_then(|()| {
        check(&resolver.workload).map_err(|found| {
            let at = resolver.positions.find(found.part, found.field);
            found.refusal.at(at).part(found.part.describe(&resolver.workload))
        })
    });
    match resolved {
        Ok(()) => Ok(Workload::checked(resolver.workload)),
        Err(refusal) => Err(refusal.into_error(source)),
    }
}

type Names = BTreeMap<String, u32>;
type Resolved<T> = Result<T, Refusal>;

struct Resolver {
    workload: Parts,
    positions: PartPositions,
    groups: Names,
    locks: Names,
    channels: Names,
    tasks: Names,
    jobs: Names,
    cpu_sets: BTreeMap<Vec<u16>, CpuSetIx>,
    distributions: BTreeMap<(u8, Vec<u64>, Vec<u64>), DistIx>,
    ops: u64,
}

impl Resolver {
    fn new(draft: &Draft) -> Resolver {
        Resolver {
            workload: Parts::empty(&draft.name, &draft.shows, draft.duration_ns),
            positions: PartPositions { top: draft.positions.clone(), ..PartPositions::default() },
            groups: Names::new(),
            locks: Names::new(),
            channels: Names::new(),
            tasks: Names::new(),
            jobs: Names::new(),
            cpu_sets: BTreeMap::new(),
            distributions: BTreeMap::new(),
            ops: 0,
        }
    }

    fn resolve_all(&mut self, draft: &Draft) -> Resolved<()> {
        self.add_groups(draft)?;
        self.enter_names(draft)?;
        self.resolve_machine(draft)?;
        self.resolve_tasks(draft)?;
        self.resolve_jobs(draft)?;
        self.resolve_sources(draft)?;
        self.resolve_interventions(draft)?;
        for expect in &draft.expectations {
            self.workload.expectations.push(expect.expectation.clone());
            self.positions.expectations.push(expect.positions.clone());
        }
        Ok(())
    }

    /// Adds groups in the order given, unlisted parents before their first child.
    fn add_groups(&mut self, draft: &Draft) -> Resolved<()> {
        self.add_group("/", None, Positions::default());
        let mut listed = vec![false];
        let mut v1 = vec![None];
        for group in &draft.groups {
            let at = group.positions.of("path");
            let refuse = |problem: String, accepted: &str| {
                Err(Refusal::new(Kind::Name, problem, accepted).at(at))
            };
            if let Some(problem) = check::path_problem(&group.path) {
                return refuse(problem, check::PATH_FORM);
            }
            if group.path == "/" {
                let accepted = "list the groups below it";
                return refuse(
                    "the root group `/` has no limit and no weight".to_owned(),
                    accepted,
                );
            }
            let mut parent = 0;
            for (end, _) in group.path.match_indices('/').skip(1) {
                let path = &group.path[..end];
                parent = match self.groups.get(path) {
                    Some(&ix) => ix,
                    None => self.add_group(path, Some(parent), group.positions.clone()),
                };
            }
            listed.resize(self.workload.groups.len(), false);
            let ix = match self.groups.get(&group.path) {
                Some(&ix) if listed[ix as usize] => {
                    let problem = format!("group {} is listed twice", quoted(&group.path));
                    return refuse(problem, "list each group once");
                }
                Some(&ix) => ix,
                None => self.add_group(&group.path, Some(parent), group.positions.clone()),
            };
            listed.resize(self.workload.groups.len(), false);
            v1.resize(self.workload.groups.len(), None);
            listed[ix as usize] = true;
            v1[ix as usize] = group.v1;
            self.positions.groups[ix as usize] = group.positions.clone();
            let spec = &mut self.workload.groups[ix as usize];
            spec.limit = group.limit;
            spec.weight = group.weight;
            if self.workload.groups.len() as u64 > MAX_GROUPS {
                let problem = format!("more than {MAX_GROUPS} groups, implied parents included");
                return Err(Refusal::new(Kind::Value, problem, "").at(at));
            }
        }
        self.set_hierarchies(&listed, v1);
        Ok(())
    }

    fn add_group(&mut self, path: &str, parent: Option<GroupIx>, positions: Positions) -> GroupIx {
        let ix = self.workload.groups.len() as GroupIx;
        self.workload.groups.push(GroupSpec {
            path: path.to_owned(),
            parent,
            limit: Limit::UNLIMITED,
            weight: 100,
            v1: false,
        });
        self.positions.groups.push(positions);
        self.groups.insert(path.to_owned(), ix);
        ix
    }

    /// Sets the hierarchy of groups that do not give one: that of their parent, or for an unlisted
    /// parent that of its children.
    fn set_hierarchies(&mut self, listed: &[bool], mut v1: Vec<Option<bool>>) {
        let groups = &mut self.workload.groups;
        let parents: Vec<usize> =
            groups.iter().map(|group| group.parent.unwrap_or(0) as usize).collect();
        for (ix, &parent) in parents.iter().enumerate().skip(1).rev() {
            if parent != 0 && !listed[parent] && v1[ix].is_some() {
                v1[parent] = v1[ix];
            }
        }
        for (ix, &parent) in parents.iter().enumerate().skip(1) {
            groups[ix].v1 = v1[ix].unwrap_or(groups[parent].v1);
        }
    }

    /// Adds everything else that has a name, so that programs may refer to later parts.
    fn enter_names(&mut self, draft: &Draft) -> Resolved<()> {
        for lock in &draft.locks {
            enter_name(&mut self.locks, "lock", &lock.name, &lock.positions)?;
            self.workload.locks.push(LockSpec { name: lock.name.clone(), kind: lock.kind });
            self.positions.locks.push(lock.positions.clone());
        }
        for channel in &draft.channels {
            enter_name(&mut self.channels, "channel", &channel.name, &channel.positions)?;
            let (name, capacity) = (channel.name.clone(), channel.capacity);
            let oldest_first = channel.oldest_first;
            self.workload.channels.push(ChannelSpec { name, capacity, oldest_first });
            self.positions.channels.push(channel.positions.clone());
        }
        for task in &draft.tasks {
            enter_name(&mut self.tasks, "task", &task.name, &task.positions)?;
            self.positions.tasks.push(task.positions.clone());
        }
        for job in &draft.jobs {
            enter_name(&mut self.jobs, "job", &job.name, &job.positions)?;
            self.positions.jobs.push(job.positions.clone());
        }
        let mut sources = Names::new();
        for source in &draft.sources {
            enter_name(&mut sources, "source", &source.name, &source.positions)?;
        }
        Ok(())
    }

    fn resolve_machine(&mut self, draft: &Draft) -> Resolved<()> {
        let machine = &draft.machine;
        self.positions.machine = machine.positions.clone();
        let nohz_full = machine
            .nohz_full
            .as_ref()
            .map(|cpus| self.resolve_cpu_set(cpus, machine.positions.of("nohz_full")));
        self.workload.machine =
            MachineSpec { nohz_full, softirqs: Vec::new(), ..machine.spec.clone() };
        for (ix, softirq) in machine.softirqs.iter().enumerate() {
            self.positions.softirqs.push(softirq.positions.clone());
            let part = || PartIx::Softirq(ix).describe(&self.workload);
            let lock = find_ix(&self.locks, "lock", &softirq.lock)
                .map_err(|refusal| refusal.at(softirq.positions.of("lock")).part(part()))?;
            let mode = self
                .resolve_lock_mode(lock, softirq.mode)
                .map_err(|refusal| refusal.at(softirq.positions.of("mode")).part(part()))?;
            self.workload.machine.softirqs.push(SoftirqSpec {
                cpu: softirq.cpu,
                every_ns: softirq.every_ns,
                lock,
                mode,
                hold_ns: softirq.hold_ns,
            });
        }
        Ok(())
    }

    fn resolve_tasks(&mut self, draft: &Draft) -> Resolved<()> {
        for task in &draft.tasks {
            let group = find_ix(&self.groups, "group", &task.group).map_err(|refusal| {
                refusal.at(task.positions.of("group")).part(format!("task {}", quoted(&task.name)))
            })?;
            let cpus = match &task.cpus {
                Cpus::All => Affinity::All,
                Cpus::Each => Affinity::Each,
                Cpus::Set(cpus) => {
                    Affinity::Set(self.resolve_cpu_set(cpus, task.positions.of("cpus")))
                }
            };
            self.workload.tasks.push(TaskSpec {
                name: task.name.clone(),
                label: task.label.clone(),
                count: task.count,
                group,
                class: task.class,
                nice: task.nice,
                cpus,
                start_ns: task.start_ns,
                stagger_ns: task.stagger_ns,
                slice_ns: task.slice_ns,
                program: Program::default(),
            });
            let mut flat = Flat::default();
            self.flatten(&task.program, 0, &mut flat).map_err(|refusal| {
                let part =
                    format!("task {}, instruction {}", quoted(&task.name), flat.ops.len() + 1);
                refusal.part(part)
            })?;
            if let Some(task) = self.workload.tasks.last_mut() {
                task.program = flat.ops.into();
            }
            self.positions.ops.push(flat.at);
        }
        Ok(())
    }

    fn resolve_jobs(&mut self, draft: &Draft) -> Resolved<()> {
        for job in &draft.jobs {
            let mut flat = Flat::default();
            self.flatten(&job.program, 0, &mut flat).map_err(|refusal| {
                let name = quoted(&job.name);
                refusal.part(format!("job {name}, instruction {}", flat.ops.len() + 1))
            })?;
            self.workload.jobs.push(JobSpec { name: job.name.clone(), program: flat.ops.into() });
            self.positions.job_ops.push(flat.at);
        }
        Ok(())
    }

    fn flatten(&mut self, steps: &[Step], depth: u64, flat: &mut Flat) -> Resolved<()> {
        for step in steps {
            self.flatten_one(step, depth, flat).map_err(|refusal| match refusal.at {
                at if at == ByteRange::default() => refusal.at(step.at),
                _ => refusal,
            })?;
        }
        Ok(())
    }

    fn flatten_one(&mut self, step: &Step, depth: u64, flat: &mut Flat) -> Resolved<()> {
        let at = step.at;
        let op = match &step.verb {
            Verb::User(length) => Op::User(self.resolve_span(length, at)),
            Verb::Kernel(length) => Op::Kernel(self.resolve_span(length, at)),
            Verb::IrqOff(length) => Op::IrqOff(self.resolve_span(length, at)),
            Verb::Sleep(length) => Op::Sleep(self.resolve_span(length, at)),
            Verb::Every { period_ns } => Op::Every { period_ns: *period_ns },
            Verb::Syscall(body) => {
                self.push_op(Op::EnterKernel, at, flat)?;
                self.flatten(body, depth, flat)?;
                Op::ExitKernel
            }
            Verb::Loop { times, body } => {
                let start = self.open_loop(*times, (body, depth), at, flat)?;
                Op::LoopEnd { start }
            }
            Verb::Lock { lock, mode } => {
                let lock = find_ix(&self.locks, "lock", lock)?;
                Op::Lock { lock, mode: self.resolve_lock_mode(lock, *mode)? }
            }
            Verb::Unlock { lock } => Op::Unlock { lock: find_ix(&self.locks, "lock", lock)? },
            Verb::Send { channel, n } => {
                Op::Send { channel: find_ix(&self.channels, "channel", channel)?, n: *n }
            }
            Verb::Recv { channel, n } => {
                Op::Recv { channel: find_ix(&self.channels, "channel", channel)?, n: *n }
            }
            Verb::Serve { channel } => {
                Op::Serve { channel: find_ix(&self.channels, "channel", channel)? }
            }
            Verb::Post { after, job, channel, keep } => {
                let job = find_ix(&self.jobs, "job", job)?;
                let channel = find_ix(&self.channels, "channel", channel)?;
                match after {
                    Some(delay) => {
                        Op::After { delay: self.resolve_span(delay, at), channel, job, keep: *keep }
                    }
                    None => Op::Post { channel, job },
                }
            }
            Verb::Fork { kind } => Op::Fork { kind: find_ix(&self.tasks, "task", kind)? },
            Verb::WaitChildren => Op::WaitChildren,
            Verb::Exit => Op::Exit,
            Verb::Yield => Op::Yield,
            Verb::Move { who, group } => Op::Move {
                who: self.resolve_target(who)?,
                group: find_ix(&self.groups, "group", group)?,
            },
            Verb::Affinity { who, cpus } => Op::SetAffinity {
                who: self.resolve_target(who)?,
                cpus: self.resolve_cpu_set(cpus, at),
            },
            Verb::Nice { who, nice } => Op::SetNice { who: self.resolve_target(who)?, nice: *nice },
            Verb::Class { who, class } => {
                Op::SetClass { who: self.resolve_target(who)?, class: *class }
            }
            Verb::Begin => Op::Begin,
            Verb::Done => Op::Done,
        };
        self.push_op(op, at, flat)
    }

    /// Adds a loop without its end; returns the index of its start.
    fn open_loop(
        &mut self,
        times: u64,
        (body, depth): (&[Step], u64),
        at: ByteRange,
        flat: &mut Flat,
    ) -> Resolved<u32> {
        if depth == MAX_LOOP_DEPTH {
            let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
            return Err(Refusal::new(Kind::Program, problem, ""));
        }
        let start = flat.ops.len();
        self.push_op(Op::LoopStart { times, end: 0 }, at, flat)?;
        self.flatten(body, depth + 1, flat)?;
        flat.ops[start] = Op::LoopStart { times, end: flat.ops.len() as u32 };
        Ok(start as u32)
    }

    fn push_op(&mut self, op: Op, at: ByteRange, flat: &mut Flat) -> Resolved<()> {
        self.ops += 1;
        if self.ops > MAX_OPS {
            let problem = format!("more than {MAX_OPS} instructions in all programs");
            return Err(Refusal::new(Kind::Value, problem, ""));
        }
        flat.ops.push(op);
        flat.at.push(at);
        Ok(())
    }

    fn resolve_target(&self, who: &TargetName) -> Resolved<Target> {
        Ok(match who {
            TargetName::Myself => Target::Myself,
            TargetName::Kind(name) => Target::Kind(find_ix(&self.tasks, "task", name)?),
        })
    }

    fn resolve_lock_mode(&self, lock: u32, mode: Option<LockMode>) -> Resolved<LockMode> {
        let kind = self.workload.locks[lock as usize].kind;
        match (kind, mode) {
            (_, Some(mode)) => Ok(mode),
            (LockKind::Mutex | LockKind::Spin, None) => Ok(LockMode::Write),
            (LockKind::Rwsem | LockKind::PercpuRwsem | LockKind::Rwlock, None) => {
                let name = quoted(&self.workload.locks[lock as usize].name);
                let problem = format!("lock {name} has readers and writers, and no mode is given");
                Err(Refusal::new(Kind::Field, problem, "mode = \"read\" or mode = \"write\""))
            }
        }
    }

    fn resolve_sources(&mut self, draft: &Draft) -> Resolved<()> {
        for source in &draft.sources {
            let channel =
                find_ix(&self.channels, "channel", &source.channel).map_err(|refusal| {
                    let part = format!("source {}", quoted(&source.name));
                    refusal.at(source.positions.of("channel")).part(part)
                })?;
            let arrivals = match &source.arrivals {
                Arrive::Between(length) => {
                    Arrivals::Between(self.resolve_span(length, source.positions.of("every")))
                }
                Arrive::At(times_ns) => Arrivals::At(times_ns.clone()),
            };
            let jobs: Resolved<Vec<JobIx>> =
                source.jobs.iter().map(|job| find_ix(&self.jobs, "job", job)).collect();
            let jobs = jobs.map_err(|refusal| {
                let part = format!("source {}", quoted(&source.name));
                refusal.at(source.positions.of("jobs")).part(part)
            })?;
            self.workload.sources.push(Source {
                name: source.name.clone(),
                channel,
                arrivals,
                start_ns: source.start_ns,
                count: source.count,
                jobs,
                lossy: source.lossy,
            });
            self.positions.sources.push(source.positions.clone());
        }
        Ok(())
    }

    /// Resolves the changes from outside, in order of time; changes of one time keep their order.
    fn resolve_interventions(&mut self, draft: &Draft) -> Resolved<()> {
        let mut changes: Vec<_> = draft.changes.iter().collect();
        changes.sort_by_key(|change| change.at_ns);
        let mut limits: Vec<Limit> = self.workload.groups.iter().map(|group| group.limit).collect();
        for (ix, change) in changes.into_iter().enumerate() {
            let positions = &change.positions;
            let action =
                self.resolve_action(&change.act, positions, &mut limits).map_err(|refusal| {
                    refusal.part(PartIx::Intervention(ix).describe(&self.workload))
                })?;
            let (at_ns, every_ns, until_ns) = (change.at_ns, change.every_ns, change.until_ns);
            self.workload.interventions.push(Intervention { at_ns, every_ns, until_ns, action });
            self.positions.interventions.push(positions.clone());
        }
        Ok(())
    }

    /// Resolves the names in a change. `limits`: by group, the limit in force before it; written
    /// files change a part of that, and it is updated.
    fn resolve_action(
        &mut self,
        act: &Act,
        positions: &Positions,
        limits: &mut [Limit],
    ) -> Resolved<Action> {
        let group = |path: &str, field: &str| {
            find_ix(&self.groups, "group", path).map_err(|refusal| refusal.at(positions.of(field)))
        };
        let kind = |name: &str| {
            find_ix(&self.tasks, "task", name).map_err(|refusal| refusal.at(positions.of("task")))
        };
        Ok(match act {
            Act::LimitFiles { group: path, max, burst } => {
                let group = group(path, "group")?;
                let limit = &mut limits[group as usize];
                if max.is_some() && burst.is_some() {
                    // With both given, the old burst must not hinder the new quota.
                    *limit = limit.with_burst_ns(0).unwrap_or(*limit);
                }
                if let Some(text) = max {
                    *limit = write_max(*limit, text)
                        .map_err(|refusal| refusal.at(positions.of("max")))?;
                }
                if let Some(text) = burst {
                    *limit = write_burst(*limit, text)
                        .map_err(|refusal| refusal.at(positions.of("burst")))?;
                }
                Action::WriteLimit { group, limit: *limit }
            }
            Act::Weight(path, weight) => {
                Action::WriteWeight { group: group(path, "group")?, weight: *weight }
            }
            Act::Signal(name, signal) => Action::Signal { kind: kind(name)?, signal: *signal },
            Act::Move(name, path) => {
                Action::Move { kind: kind(name)?, group: group(path, "move")? }
            }
            Act::Affinity(name, cpus) => {
                let kind = kind(name)?;
                Action::SetAffinity {
                    kind,
                    cpus: self.resolve_cpu_set(cpus, positions.of("affinity")),
                }
            }
            Act::Nice(name, nice) => Action::SetNice { kind: kind(name)?, nice: *nice },
            Act::Class(name, class) => Action::SetClass { kind: kind(name)?, class: *class },
            Act::Offline(cpu) => Action::CpuOffline { cpu: *cpu },
            Act::Online(cpu) => Action::CpuOnline { cpu: *cpu },
        })
    }

    /// Index of this set of CPUs, which is added unless an equal one exists. `at`: its position in
    /// the file.
    fn resolve_cpu_set(&mut self, cpus: &CpuSet, at: ByteRange) -> CpuSetIx {
        let next = self.workload.cpu_sets.len() as CpuSetIx;
        let ix = *self.cpu_sets.entry(cpus.0.clone()).or_insert(next);
        if ix == next {
            self.workload.cpu_sets.push(cpus.clone());
            self.positions.cpu_sets.push(at);
        }
        ix
    }

    /// A fixed length, or the index of its distribution, which is added unless an equal one exists.
    /// `at`: its position in the file.
    fn resolve_span(&mut self, length: &Length, at: ByteRange) -> Span {
        let distribution = match length {
            Length::Fixed(length) => return Span::Fixed(to_ns(*length)),
            // A constant draws nothing, so it becomes a fixed length.
            Length::Drawn(Distribution::Constant { ns }) => return Span::Fixed(*ns),
            Length::Drawn(distribution) => distribution,
        };
        let next = self.workload.distributions.len() as DistIx;
        let ix = *self.distributions.entry(identity(distribution)).or_insert(next);
        if ix == next {
            self.workload.distributions.push(distribution.clone());
            self.positions.distributions.push(at);
        }
        Span::Drawn(ix)
    }
}

/// A flattened program, and the position of each instruction.
#[derive(Default)]
struct Flat {
    ops: Vec<Op>,
    at: Vec<ByteRange>,
}

/// A key that differs between different distributions.
fn identity(distribution: &Distribution) -> (u8, Vec<u64>, Vec<u64>) {
    match distribution {
        Distribution::Constant { ns } => (0, vec![*ns], vec![]),
        Distribution::Uniform { low_ns, high_ns } => (1, vec![*low_ns, *high_ns], vec![]),
        Distribution::Exponential { mean_ns } => (2, vec![*mean_ns], vec![]),
        Distribution::LogNormal { median_ns, sigma } => {
            (3, vec![*median_ns, sigma.to_bits()], vec![])
        }
        Distribution::Empirical { values_ns, cumulative } => {
            (4, values_ns.clone(), cumulative.clone())
        }
    }
}

fn enter_name(names: &mut Names, what: &str, name: &str, positions: &Positions) -> Resolved<()> {
    let ix = names.len() as u32;
    if names.insert(name.to_owned(), ix).is_some() {
        let problem = format!("two {what}s are named {}", quoted(name));
        return Err(
            Refusal::new(Kind::Name, problem, "give each its own name").at(positions.of("name"))
        );
    }
    Ok(())
}

fn find_ix(names: &Names, what: &str, name: &str) -> Resolved<u32> {
    names.get(name).copied().ok_or_else(|| {
        let problem = format!("there is no {what} named {}", quoted(name));
        Refusal::new(Kind::Name, problem, accepted_names(name, names.keys().map(String::as_str)))
    })
}
