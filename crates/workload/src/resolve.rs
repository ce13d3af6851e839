//! From names to indices: turns what was read or built into a [`Workload`].
//!
//! Sets of CPUs and distributions are kept once each, numbered in the order of their first use:
//! machine, tasks with their programs, sources, interventions by time. Groups that only occur in
//! the path of another are added before it.

mod limit;

use crate::bounds::{MAX_GROUPS, MAX_LOOP_DEPTH, MAX_OPS};
use crate::build::{Act, Arrive, Builder, Cpus, Length, Marks, to_ns};
use crate::check::{self, check};
use crate::checked::Workload;
use crate::error::{Error, Flaw, Kind, SourceText, Spot, Stretch};
use crate::model::{
    Action, Affinity, Arrivals, ChannelSpec, CpuSet, CpuSetIx, DistIx, Distribution, GroupIx,
    GroupSpec, Intervention, JobIx, JobSpec, LockKind, LockMode, LockSpec, MachineSpec, Op, Parts,
    SoftirqSpec, Source, Span, Target, TaskSpec,
};
use crate::program::Program;
use crate::step::{Step, What, Who};
use crate::units::{accepted_names, quoted};
use cpumax_limit::Limit;
use std::collections::BTreeMap;

pub(crate) use limit::{write_burst, write_max};

/// Resolves the names of `draft` and checks the result.
pub(crate) fn resolve(draft: &Builder, source: Option<SourceText<'_>>) -> Result<Workload, Error> {
    let mut resolver = Resolver::new(draft);
    let resolved = resolver.run(draft).and_then(|()| {
        check(&resolver.workload).map_err(|found| {
            let at = resolver.atlas.find(found.spot, found.field);
            found.flaw.at(at).part(found.spot.describe(&resolver.workload))
        })
    });
    match resolved {
        Ok(()) => Ok(Workload::checked(resolver.workload)),
        Err(flaw) => Err(flaw.into_error(source)),
    }
}

/// Where each part of the workload stands in the file.
#[derive(Default)]
struct Atlas {
    top: Marks,
    machine: Marks,
    softirqs: Vec<Marks>,
    groups: Vec<Marks>,
    locks: Vec<Marks>,
    channels: Vec<Marks>,
    distributions: Vec<Stretch>,
    cpu_sets: Vec<Stretch>,
    tasks: Vec<Marks>,
    ops: Vec<Vec<Stretch>>,
    jobs: Vec<Marks>,
    job_ops: Vec<Vec<Stretch>>,
    sources: Vec<Marks>,
    interventions: Vec<Marks>,
    expectations: Vec<Marks>,
}

impl Atlas {
    fn find(&self, spot: Spot, field: &str) -> Stretch {
        let marks = match spot {
            Spot::Top => Some(&self.top),
            Spot::Machine => Some(&self.machine),
            Spot::Softirq(ix) => self.softirqs.get(ix),
            Spot::Group(ix) => self.groups.get(ix),
            Spot::Lock(ix) => self.locks.get(ix),
            Spot::Channel(ix) => self.channels.get(ix),
            Spot::Distribution(ix) => {
                return self.distributions.get(ix).copied().unwrap_or_default();
            }
            Spot::CpuSet(ix) => return self.cpu_sets.get(ix).copied().unwrap_or_default(),
            Spot::Task(ix) => self.tasks.get(ix),
            Spot::Op(task, op) => {
                let op = self.ops.get(task).and_then(|ops| ops.get(op)).copied();
                return op.unwrap_or_default();
            }
            Spot::Job(ix) => self.jobs.get(ix),
            Spot::JobOp(job, op) => {
                let op = self.job_ops.get(job).and_then(|ops| ops.get(op)).copied();
                return op.unwrap_or_default();
            }
            Spot::Source(ix) => self.sources.get(ix),
            Spot::Intervention(ix) => self.interventions.get(ix),
            Spot::Expectation(ix) => self.expectations.get(ix),
        };
        marks.map_or_else(Stretch::default, |marks| marks.of(field))
    }
}

type Names = BTreeMap<String, u32>;
type Resolved<T> = Result<T, Flaw>;

struct Resolver {
    workload: Parts,
    atlas: Atlas,
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
    fn new(draft: &Builder) -> Resolver {
        Resolver {
            workload: Parts::empty(&draft.name, &draft.shows, draft.duration_ns),
            atlas: Atlas { top: draft.marks.clone(), ..Atlas::default() },
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

    fn run(&mut self, draft: &Builder) -> Resolved<()> {
        self.groups(draft)?;
        self.names(draft)?;
        self.machine(draft)?;
        self.tasks(draft)?;
        self.jobs(draft)?;
        self.sources(draft)?;
        self.interventions(draft)?;
        for expect in &draft.expectations {
            self.workload.expectations.push(expect.expectation.clone());
            self.atlas.expectations.push(expect.marks.clone());
        }
        Ok(())
    }

    /// Groups in the order given, parents that nobody listed before their first child.
    fn groups(&mut self, draft: &Builder) -> Resolved<()> {
        self.add_group("/", None, Marks::default());
        let mut listed = vec![false];
        let mut v1 = vec![None];
        for group in &draft.groups {
            let at = group.marks.of("path");
            let refuse = |problem: String, accepted: &str| {
                Err(Flaw::new(Kind::Name, problem, accepted).at(at))
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
                    None => self.add_group(path, Some(parent), group.marks.clone()),
                };
            }
            listed.resize(self.workload.groups.len(), false);
            let ix = match self.groups.get(&group.path) {
                Some(&ix) if listed[ix as usize] => {
                    let problem = format!("group {} is listed twice", quoted(&group.path));
                    return refuse(problem, "list each group once");
                }
                Some(&ix) => ix,
                None => self.add_group(&group.path, Some(parent), group.marks.clone()),
            };
            listed.resize(self.workload.groups.len(), false);
            v1.resize(self.workload.groups.len(), None);
            listed[ix as usize] = true;
            v1[ix as usize] = group.v1;
            self.atlas.groups[ix as usize] = group.marks.clone();
            let spec = &mut self.workload.groups[ix as usize];
            spec.limit = group.limit;
            spec.weight = group.weight;
            if self.workload.groups.len() as u64 > MAX_GROUPS {
                let problem = format!("more than {MAX_GROUPS} groups, implied parents included");
                return Err(Flaw::new(Kind::Value, problem, "").at(at));
            }
        }
        self.hierarchies(&listed, v1);
        Ok(())
    }

    fn add_group(&mut self, path: &str, parent: Option<GroupIx>, marks: Marks) -> GroupIx {
        let ix = self.workload.groups.len() as GroupIx;
        self.workload.groups.push(GroupSpec {
            path: path.to_owned(),
            parent,
            limit: Limit::UNLIMITED,
            weight: 100,
            v1: false,
        });
        self.atlas.groups.push(marks);
        self.groups.insert(path.to_owned(), ix);
        ix
    }

    /// A group whose hierarchy is not given has its parent's; an implied parent has its children's.
    fn hierarchies(&mut self, listed: &[bool], mut v1: Vec<Option<bool>>) {
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

    /// Everything else that has a name, so that programs may refer to what comes later.
    fn names(&mut self, draft: &Builder) -> Resolved<()> {
        for lock in &draft.locks {
            enter(&mut self.locks, "lock", &lock.name, &lock.marks)?;
            self.workload.locks.push(LockSpec { name: lock.name.clone(), kind: lock.kind });
            self.atlas.locks.push(lock.marks.clone());
        }
        for channel in &draft.channels {
            enter(&mut self.channels, "channel", &channel.name, &channel.marks)?;
            let (name, capacity) = (channel.name.clone(), channel.capacity);
            let oldest_first = channel.oldest_first;
            self.workload.channels.push(ChannelSpec { name, capacity, oldest_first });
            self.atlas.channels.push(channel.marks.clone());
        }
        for task in &draft.tasks {
            enter(&mut self.tasks, "task", &task.name, &task.marks)?;
            self.atlas.tasks.push(task.marks.clone());
        }
        for job in &draft.jobs {
            enter(&mut self.jobs, "job", &job.name, &job.marks)?;
            self.atlas.jobs.push(job.marks.clone());
        }
        let mut sources = Names::new();
        for source in &draft.sources {
            enter(&mut sources, "source", &source.name, &source.marks)?;
        }
        Ok(())
    }

    fn machine(&mut self, draft: &Builder) -> Resolved<()> {
        let machine = &draft.machine;
        self.atlas.machine = machine.marks.clone();
        let nohz_full = machine
            .nohz_full
            .as_ref()
            .map(|cpus| self.cpu_set(cpus, machine.marks.of("nohz_full")));
        self.workload.machine =
            MachineSpec { nohz_full, softirqs: Vec::new(), ..machine.spec.clone() };
        for (ix, softirq) in machine.softirqs.iter().enumerate() {
            self.atlas.softirqs.push(softirq.marks.clone());
            let part = || Spot::Softirq(ix).describe(&self.workload);
            let lock = find(&self.locks, "lock", &softirq.lock)
                .map_err(|flaw| flaw.at(softirq.marks.of("lock")).part(part()))?;
            let mode = self
                .lock_mode(lock, softirq.mode)
                .map_err(|flaw| flaw.at(softirq.marks.of("mode")).part(part()))?;
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

    fn tasks(&mut self, draft: &Builder) -> Resolved<()> {
        for task in &draft.tasks {
            let group = find(&self.groups, "group", &task.group).map_err(|flaw| {
                flaw.at(task.marks.of("group")).part(format!("task {}", quoted(&task.name)))
            })?;
            let cpus = match &task.cpus {
                Cpus::All => Affinity::All,
                Cpus::Each => Affinity::Each,
                Cpus::Set(cpus) => Affinity::Set(self.cpu_set(cpus, task.marks.of("cpus"))),
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
            self.flatten(&task.program, 0, &mut flat).map_err(|flaw| {
                let part =
                    format!("task {}, instruction {}", quoted(&task.name), flat.ops.len() + 1);
                flaw.part(part)
            })?;
            if let Some(task) = self.workload.tasks.last_mut() {
                task.program = flat.ops.into();
            }
            self.atlas.ops.push(flat.at);
        }
        Ok(())
    }

    fn jobs(&mut self, draft: &Builder) -> Resolved<()> {
        for job in &draft.jobs {
            let mut flat = Flat::default();
            self.flatten(&job.program, 0, &mut flat).map_err(|flaw| {
                let name = quoted(&job.name);
                flaw.part(format!("job {name}, instruction {}", flat.ops.len() + 1))
            })?;
            self.workload.jobs.push(JobSpec { name: job.name.clone(), program: flat.ops.into() });
            self.atlas.job_ops.push(flat.at);
        }
        Ok(())
    }

    fn flatten(&mut self, steps: &[Step], depth: u64, flat: &mut Flat) -> Resolved<()> {
        for step in steps {
            self.flatten_one(step, depth, flat).map_err(|flaw| match flaw.at {
                at if at == Stretch::default() => flaw.at(step.at),
                _ => flaw,
            })?;
        }
        Ok(())
    }

    fn flatten_one(&mut self, step: &Step, depth: u64, flat: &mut Flat) -> Resolved<()> {
        let at = step.at;
        let op = match &step.what {
            What::User(length) => Op::User(self.span(length, at)),
            What::Kernel(length) => Op::Kernel(self.span(length, at)),
            What::IrqOff(length) => Op::IrqOff(self.span(length, at)),
            What::Sleep(length) => Op::Sleep(self.span(length, at)),
            What::Every { period_ns } => Op::Every { period_ns: *period_ns },
            What::Syscall(body) => {
                self.push(Op::EnterKernel, at, flat)?;
                self.flatten(body, depth, flat)?;
                Op::ExitKernel
            }
            What::Loop { times, body } => {
                if depth == MAX_LOOP_DEPTH {
                    let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
                    return Err(Flaw::new(Kind::Program, problem, ""));
                }
                let start = flat.ops.len();
                self.push(Op::LoopStart { times: *times, end: 0 }, at, flat)?;
                self.flatten(body, depth + 1, flat)?;
                let end = flat.ops.len() as u32;
                flat.ops[start] = Op::LoopStart { times: *times, end };
                Op::LoopEnd { start: start as u32 }
            }
            What::Lock { lock, mode } => {
                let lock = find(&self.locks, "lock", lock)?;
                Op::Lock { lock, mode: self.lock_mode(lock, *mode)? }
            }
            What::Unlock { lock } => Op::Unlock { lock: find(&self.locks, "lock", lock)? },
            What::Send { channel, n } => {
                Op::Send { channel: find(&self.channels, "channel", channel)?, n: *n }
            }
            What::Recv { channel, n } => {
                Op::Recv { channel: find(&self.channels, "channel", channel)?, n: *n }
            }
            What::Serve { channel } => {
                Op::Serve { channel: find(&self.channels, "channel", channel)? }
            }
            What::Post { after, job, channel, keep } => {
                let job = find(&self.jobs, "job", job)?;
                let channel = find(&self.channels, "channel", channel)?;
                match after {
                    Some(delay) => {
                        Op::After { delay: self.span(delay, at), channel, job, keep: *keep }
                    }
                    None => Op::Post { channel, job },
                }
            }
            What::Fork { kind } => Op::Fork { kind: find(&self.tasks, "task", kind)? },
            What::WaitChildren => Op::WaitChildren,
            What::Exit => Op::Exit,
            What::Yield => Op::Yield,
            What::Move { who, group } => {
                Op::Move { who: self.target(who)?, group: find(&self.groups, "group", group)? }
            }
            What::Affinity { who, cpus } => {
                Op::SetAffinity { who: self.target(who)?, cpus: self.cpu_set(cpus, at) }
            }
            What::Nice { who, nice } => Op::SetNice { who: self.target(who)?, nice: *nice },
            What::Class { who, class } => Op::SetClass { who: self.target(who)?, class: *class },
            What::Begin => Op::Begin,
            What::Done => Op::Done,
        };
        self.push(op, at, flat)
    }

    fn push(&mut self, op: Op, at: Stretch, flat: &mut Flat) -> Resolved<()> {
        self.ops += 1;
        if self.ops > MAX_OPS {
            let problem = format!("more than {MAX_OPS} instructions in all programs");
            return Err(Flaw::new(Kind::Value, problem, ""));
        }
        flat.ops.push(op);
        flat.at.push(at);
        Ok(())
    }

    fn target(&self, who: &Who) -> Resolved<Target> {
        Ok(match who {
            Who::Myself => Target::Myself,
            Who::Kind(name) => Target::Kind(find(&self.tasks, "task", name)?),
        })
    }

    fn lock_mode(&self, lock: u32, mode: Option<LockMode>) -> Resolved<LockMode> {
        let kind = self.workload.locks[lock as usize].kind;
        match (kind, mode) {
            (_, Some(mode)) => Ok(mode),
            (LockKind::Mutex | LockKind::Spin, None) => Ok(LockMode::Write),
            (LockKind::Rwsem | LockKind::PercpuRwsem | LockKind::Rwlock, None) => {
                let name = quoted(&self.workload.locks[lock as usize].name);
                let problem = format!("lock {name} has readers and writers, and no mode is given");
                Err(Flaw::new(Kind::Field, problem, "mode = \"read\" or mode = \"write\""))
            }
        }
    }

    fn sources(&mut self, draft: &Builder) -> Resolved<()> {
        for source in &draft.sources {
            let channel = find(&self.channels, "channel", &source.channel).map_err(|flaw| {
                let part = format!("source {}", quoted(&source.name));
                flaw.at(source.marks.of("channel")).part(part)
            })?;
            let arrivals = match &source.arrivals {
                Arrive::Between(length) => {
                    Arrivals::Between(self.span(length, source.marks.of("every")))
                }
                Arrive::At(times_ns) => Arrivals::At(times_ns.clone()),
            };
            let jobs: Resolved<Vec<JobIx>> =
                source.jobs.iter().map(|job| find(&self.jobs, "job", job)).collect();
            let jobs = jobs.map_err(|flaw| {
                let part = format!("source {}", quoted(&source.name));
                flaw.at(source.marks.of("jobs")).part(part)
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
            self.atlas.sources.push(source.marks.clone());
        }
        Ok(())
    }

    fn interventions(&mut self, draft: &Builder) -> Resolved<()> {
        let mut changes: Vec<_> = draft.changes.iter().collect();
        changes.sort_by_key(|change| change.at_ns);
        let mut limits: Vec<Limit> = self.workload.groups.iter().map(|group| group.limit).collect();
        for (ix, change) in changes.into_iter().enumerate() {
            let marks = &change.marks;
            let action = self
                .action(&change.act, marks, &mut limits)
                .map_err(|flaw| flaw.part(Spot::Intervention(ix).describe(&self.workload)))?;
            let (at_ns, every_ns, until_ns) = (change.at_ns, change.every_ns, change.until_ns);
            self.workload.interventions.push(Intervention { at_ns, every_ns, until_ns, action });
            self.atlas.interventions.push(marks.clone());
        }
        Ok(())
    }

    fn action(&mut self, act: &Act, marks: &Marks, limits: &mut [Limit]) -> Resolved<Action> {
        let group = |path: &str, field: &str| {
            find(&self.groups, "group", path).map_err(|flaw| flaw.at(marks.of(field)))
        };
        let kind =
            |name: &str| find(&self.tasks, "task", name).map_err(|flaw| flaw.at(marks.of("task")));
        Ok(match act {
            Act::Limit(path, limit) => {
                let group = group(path, "group")?;
                limits[group as usize] = *limit;
                Action::WriteLimit { group, limit: *limit }
            }
            Act::LimitFiles { group: path, max, burst } => {
                let group = group(path, "group")?;
                let limit = &mut limits[group as usize];
                if max.is_some() && burst.is_some() {
                    // Both at once: the burst there was does not stand in the way of the quota.
                    *limit = limit.with_burst_ns(0).unwrap_or(*limit);
                }
                if let Some(text) = max {
                    *limit = write_max(*limit, text).map_err(|flaw| flaw.at(marks.of("max")))?;
                }
                if let Some(text) = burst {
                    *limit =
                        write_burst(*limit, text).map_err(|flaw| flaw.at(marks.of("burst")))?;
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
                Action::SetAffinity { kind, cpus: self.cpu_set(cpus, marks.of("affinity")) }
            }
            Act::Nice(name, nice) => Action::SetNice { kind: kind(name)?, nice: *nice },
            Act::Class(name, class) => Action::SetClass { kind: kind(name)?, class: *class },
            Act::Offline(cpu) => Action::CpuOffline { cpu: *cpu },
            Act::Online(cpu) => Action::CpuOnline { cpu: *cpu },
        })
    }

    fn cpu_set(&mut self, cpus: &CpuSet, at: Stretch) -> CpuSetIx {
        let next = self.workload.cpu_sets.len() as CpuSetIx;
        let ix = *self.cpu_sets.entry(cpus.0.clone()).or_insert(next);
        if ix == next {
            self.workload.cpu_sets.push(cpus.clone());
            self.atlas.cpu_sets.push(at);
        }
        ix
    }

    fn span(&mut self, length: &Length, at: Stretch) -> Span {
        let distribution = match length {
            Length::Fixed(length) => return Span::Fixed(to_ns(*length)),
            // A constant draws nothing, so it is a fixed length by another name.
            Length::Drawn(Distribution::Constant { ns }) => return Span::Fixed(*ns),
            Length::Drawn(distribution) => distribution,
        };
        let next = self.workload.distributions.len() as DistIx;
        let ix = *self.distributions.entry(identity(distribution)).or_insert(next);
        if ix == next {
            self.workload.distributions.push(distribution.clone());
            self.atlas.distributions.push(at);
        }
        Span::Drawn(ix)
    }
}

/// A program being flattened, and where each instruction stands.
#[derive(Default)]
struct Flat {
    ops: Vec<Op>,
    at: Vec<Stretch>,
}

/// What tells a distribution from another.
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

fn enter(names: &mut Names, what: &str, name: &str, marks: &Marks) -> Resolved<()> {
    let ix = names.len() as u32;
    if names.insert(name.to_owned(), ix).is_some() {
        let problem = format!("two {what}s are named {}", quoted(name));
        return Err(Flaw::new(Kind::Name, problem, "give each its own name").at(marks.of("name")));
    }
    Ok(())
}

fn find(names: &Names, what: &str, name: &str) -> Resolved<u32> {
    names.get(name).copied().ok_or_else(|| {
        let problem = format!("there is no {what} named {}", quoted(name));
        Flaw::new(Kind::Name, problem, accepted_names(name, names.keys().map(String::as_str)))
    })
}
