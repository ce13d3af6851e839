//! Prints a workload as a scenario file, so that a failing case can be kept, read and edited.
//!
//! Parsing the text gives the same workload, except that distributions and sets of CPUs are
//! numbered in the order of their use, unused and repeated ones vanish, and a constant distribution
//! becomes a fixed length.

use crate::bounds::MAX_FILE_BYTES;
use crate::checked::Workload;
use crate::error::Error;
use crate::model::{
    Action, Affinity, Arrivals, ChannelIx, Class, Distribution, Expectation, Intervention, JobIx,
    LockIx, LockKind, LockMode, MachineSpec, Op, Parts, SoftirqSpec, Span, Target, TaskSpec,
};
use crate::read::language::{CLASSES, LOCK_KINDS, PREEMPTS, SIGNALS};
use crate::read::ranges::as_itself;
use crate::units::{print_cpus, print_duration};
use std::fmt::{Display, Write};

/// Prints `workload` as a scenario file. `file` is its name in the error.
///
/// # Errors
/// The text is larger than a scenario file may be ([`crate::bounds::MAX_FILE_BYTES`]).
pub fn to_file(workload: &Workload, file: &str) -> Result<String, Error> {
    let text = print(workload);
    if text.len() as u64 <= MAX_FILE_BYTES {
        return Ok(text);
    }
    let (mib, most) = (text.len().div_ceil(1 << 20), MAX_FILE_BYTES >> 20);
    let reason = format!(
        "the scenario has {mib} MiB, and at most {most} MiB can be read; use a shorter recording"
    );
    Err(Error::File { file: file.to_owned(), reason })
}

/// Prints `workload` as a scenario file of any size. [`to_file`] refuses one that is too large to
/// be read again.
pub fn print(workload: &Workload) -> String {
    let mut printer = Printer { workload, text: String::new() };
    printer.top();
    printer.machine();
    printer.groups();
    printer.locks_and_channels();
    workload.tasks.iter().for_each(|task| printer.task(task));
    printer.jobs();
    printer.sources();
    workload.interventions.iter().for_each(|intervention| printer.intervention(intervention));
    workload.expectations.iter().for_each(|expectation| printer.expectation(expectation));
    printer.text
}

/// Deepest nesting that is indented.
const MAX_INDENT: usize = 40;

struct Printer<'a> {
    workload: &'a Parts,
    text: String,
}

impl Printer<'_> {
    fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name} = {value}"));
    }

    fn text(&mut self, name: &str, value: &str) {
        self.field(name, quote(value));
    }

    fn time(&mut self, name: &str, ns: u64) {
        self.text(name, &print_duration(ns));
    }

    fn header(&mut self, name: &str) {
        self.line(format_args!("\n[[{name}]]"));
    }

    fn top(&mut self) {
        self.text("name", &self.workload.name);
        if !self.workload.shows.is_empty() {
            self.text("shows", &self.workload.shows);
        }
        self.time("duration", self.workload.duration_ns);
    }

    /// Prints the fields that differ from their defaults.
    fn machine(&mut self) {
        let MachineSpec {
            cpus,
            llc_cpus,
            hz,
            preempt,
            hrtick,
            timer_phase_ns,
            tick_skew,
            bandwidth_slice_ns,
            base_slice_ns,
            nohz_full,
            cost_timing,
            ipi_ns,
            softirqs,
        } = &self.workload.machine;
        let usual = MachineSpec::default();
        self.line("\n[machine]");
        self.field("cpus", cpus);
        if *llc_cpus != usual.llc_cpus {
            self.field("llc", llc_cpus);
        }
        if *hz != usual.hz {
            self.field("hz", hz);
        }
        if let Some(preempt) = preempt {
            self.text("preempt", word(&PREEMPTS, preempt));
        }
        if let Some(hrtick) = hrtick {
            self.field("hrtick", hrtick);
        }
        if let Some(phase_ns) = timer_phase_ns {
            self.time("timer_phase", *phase_ns);
        }
        if *tick_skew {
            self.field("tick_skew", true);
        }
        if *bandwidth_slice_ns != usual.bandwidth_slice_ns {
            self.time("slice", *bandwidth_slice_ns);
        }
        if let Some(base_slice_ns) = base_slice_ns {
            self.time("base_slice", *base_slice_ns);
        }
        if let Some(cpus) = nohz_full {
            self.text("nohz_full", &self.cpu_set(*cpus));
        }
        if *cost_timing {
            self.field("costs", true);
        }
        if *ipi_ns != usual.ipi_ns {
            self.time("ipi", *ipi_ns);
        }
        self.softirqs(softirqs);
    }

    fn softirqs(&mut self, softirqs: &[SoftirqSpec]) {
        for softirq in softirqs {
            self.header("machine.softirq");
            self.field("cpu", softirq.cpu);
            self.time("every", softirq.every_ns);
            self.text("lock", self.lock_name(softirq.lock));
            if let Some(mode) = self.mode_word(softirq.lock, softirq.mode) {
                self.text("mode", mode);
            }
            self.time("hold", softirq.hold_ns);
        }
    }

    fn groups(&mut self) {
        for group in self.workload.groups.iter().skip(1) {
            self.header("group");
            self.text("path", &as_itself(&group.path));
            let limit = group.limit.to_string();
            if limit != "max 100000" {
                self.text("max", &limit);
            }
            if group.limit.burst_ns() != 0 {
                self.field("burst", group.limit.burst_ns() / 1000);
            }
            if group.weight != 100 {
                self.field("weight", group.weight);
            }
            if group.v1 {
                self.text("hierarchy", "v1");
            }
        }
    }

    fn locks_and_channels(&mut self) {
        for lock in &self.workload.locks {
            self.header("lock");
            self.text("name", &lock.name);
            self.text("kind", word(&LOCK_KINDS, &lock.kind));
        }
        for channel in &self.workload.channels {
            self.header("channel");
            self.text("name", &channel.name);
            if channel.capacity != u64::MAX {
                self.field("capacity", channel.capacity);
            }
            if channel.oldest_first {
                self.field("oldest_first", true);
            }
        }
    }

    fn task(&mut self, task: &TaskSpec) {
        self.header("task");
        self.text("name", &as_itself(&task.name));
        if let Some(label) = &task.label {
            self.text("label", label);
        }
        if task.count != 1 {
            self.field("count", task.count);
        }
        if task.group != 0 {
            self.text("group", &as_itself(self.group_path(task.group)));
        }
        if task.nice != 0 {
            self.field("nice", task.nice);
        }
        if task.class != Class::Fair {
            self.text("class", word(&CLASSES, &task.class));
        }
        match task.cpus {
            Affinity::All => {}
            Affinity::Each => self.text("cpus", "each"),
            Affinity::Set(cpus) => self.text("cpus", &self.cpu_set(cpus)),
        }
        if task.start_ns != 0 {
            self.time("start", task.start_ns);
        }
        if task.stagger_ns != 0 {
            self.time("stagger", task.stagger_ns);
        }
        if let Some(slice_ns) = task.slice_ns {
            self.time("slice", slice_ns);
        }
        if !task.program.is_empty() {
            self.program(&task.program);
        }
    }

    fn program(&mut self, program: &[Op]) {
        self.line("program = [");
        let mut depth: usize = 1;
        for op in program {
            if matches!(op, Op::ExitKernel | Op::LoopEnd { .. }) {
                depth = depth.saturating_sub(1);
            }
            let instruction = self.instruction(op);
            // Programs that the checks refuse may be nested without bound.
            let width = 2 * depth.min(MAX_INDENT);
            self.line(format_args!("{:width$}{instruction}", ""));
            if matches!(op, Op::EnterKernel | Op::LoopStart { .. }) {
                depth += 1;
            }
        }
        self.line("]");
    }

    fn instruction(&self, op: &Op) -> String {
        let timed = |verb: &str, span: Span| format!("{{ {verb} = {} }},", self.span(span));
        let tokens = |verb: &str, channel: u32, n: u64| {
            let name = self.workload.channels.get(channel as usize).map_or("", |c| &c.name);
            match n {
                1 => format!("{{ {verb} = {} }},", quote(name)),
                _ => format!("{{ {verb} = {}, n = {n} }},", quote(name)),
            }
        };
        let of = |who: Target| match who {
            Target::Myself => String::new(),
            Target::Kind(kind) => format!(", of = {}", quote(self.task_name(kind))),
        };
        match *op {
            Op::User(span) => timed("user", span),
            Op::Kernel(span) => timed("kernel", span),
            Op::IrqOff(span) => timed("irqoff", span),
            Op::Sleep(span) => timed("sleep", span),
            Op::Every { period_ns } => timed("every", Span::Fixed(period_ns)),
            Op::EnterKernel => "{ syscall = [".to_owned(),
            Op::ExitKernel | Op::LoopEnd { .. } => "] },".to_owned(),
            Op::LoopStart { times: u64::MAX, .. } => "{ forever = [".to_owned(),
            Op::LoopStart { times, .. } => format!("{{ loop = {times}, do = ["),
            Op::Lock { lock, mode } => {
                let mode = self.mode_word(lock, mode);
                let mode = mode.map_or(String::new(), |mode| format!(", mode = \"{mode}\""));
                format!("{{ lock = {}{mode} }},", quote(self.lock_name(lock)))
            }
            Op::Unlock { lock } => format!("{{ unlock = {} }},", quote(self.lock_name(lock))),
            Op::Send { channel, n } => tokens("send", channel, n),
            Op::Recv { channel, n } => tokens("recv", channel, n),
            Op::Serve { channel } => tokens("serve", channel, 1),
            Op::Post { channel, job } => format!("{{ {} }},", self.posted(channel, job)),
            Op::After { delay, channel, job, keep } => {
                let posted = self.posted(channel, job);
                let keep = if keep { ", keep = true" } else { "" };
                format!("{{ after = {}, {posted}{keep} }},", self.span(delay))
            }
            Op::Fork { kind } => format!("{{ fork = {} }},", quote(self.task_name(kind))),
            Op::WaitChildren => "{ wait = \"children\" },".to_owned(),
            Op::Exit => "{ exit = true },".to_owned(),
            Op::Yield => "{ yield = true },".to_owned(),
            Op::Begin => "{ begin = true },".to_owned(),
            Op::Done => "{ done = true },".to_owned(),
            Op::Move { who, group } => {
                let who = match who {
                    Target::Myself => quote("self"),
                    Target::Kind(kind) => quote(self.task_name(kind)),
                };
                format!("{{ move = {who}, to = {} }},", quote(self.group_path(group)))
            }
            Op::SetAffinity { who, cpus } => {
                format!("{{ affinity = {}{} }},", quote(&self.cpu_set(cpus)), of(who))
            }
            Op::SetNice { who, nice } => format!("{{ nice = {nice}{} }},", of(who)),
            Op::SetClass { who, class } => {
                format!("{{ class = \"{}\"{} }},", word(&CLASSES, &class), of(who))
            }
        }
    }

    fn posted(&self, channel: ChannelIx, job: JobIx) -> String {
        let channel = self.workload.channels.get(channel as usize).map_or("", |c| &c.name);
        format!("post = {}, to = {}", quote(self.job_name(job)), quote(channel))
    }

    fn jobs(&mut self) {
        for job in &self.workload.jobs {
            self.header("job");
            self.text("name", &job.name);
            if !job.program.is_empty() {
                self.program(&job.program);
            }
        }
    }

    fn sources(&mut self) {
        for source in &self.workload.sources {
            self.header("source");
            self.text("name", &source.name);
            let channel = self.workload.channels.get(source.channel as usize);
            self.text("channel", channel.map_or("", |channel| &channel.name));
            match &source.arrivals {
                Arrivals::Between(span) => self.field("every", self.span(*span)),
                Arrivals::At(times_ns) => {
                    let times: Vec<String> =
                        times_ns.iter().map(|&ns| quote(&print_duration(ns))).collect();
                    self.field("at", format_args!("[{}]", times.join(", ")));
                }
            }
            if source.start_ns != 0 {
                self.time("start", source.start_ns);
            }
            if source.count != u64::MAX {
                self.field("count", source.count);
            }
            if !source.jobs.is_empty() {
                let jobs: Vec<String> =
                    source.jobs.iter().map(|&job| quote(self.job_name(job))).collect();
                self.field("jobs", format_args!("[{}]", jobs.join(", ")));
            }
            if source.lossy {
                self.field("lossy", true);
            }
        }
    }

    fn intervention(&mut self, intervention: &Intervention) {
        self.header("at");
        self.time("time", intervention.at_ns);
        if let Some(every_ns) = intervention.every_ns {
            self.time("repeat", every_ns);
        }
        if intervention.until_ns != u64::MAX {
            self.time("until", intervention.until_ns);
        }
        match intervention.action {
            Action::WriteLimit { group, limit } => {
                self.text("group", self.group_path(group));
                self.text("max", &limit.to_string());
                self.field("burst", limit.burst_ns() / 1000);
            }
            Action::WriteWeight { group, weight } => {
                self.text("group", self.group_path(group));
                self.field("weight", weight);
            }
            Action::Signal { kind, signal } => {
                self.text("task", self.task_name(kind));
                self.text("signal", word(&SIGNALS, &signal));
            }
            Action::Move { kind, group } => {
                self.text("task", self.task_name(kind));
                self.text("move", self.group_path(group));
            }
            Action::SetAffinity { kind, cpus } => {
                self.text("task", self.task_name(kind));
                self.text("affinity", &self.cpu_set(cpus));
            }
            Action::SetNice { kind, nice } => {
                self.text("task", self.task_name(kind));
                self.field("nice", nice);
            }
            Action::SetClass { kind, class } => {
                self.text("task", self.task_name(kind));
                self.text("class", word(&CLASSES, &class));
            }
            Action::CpuOffline { cpu } => self.field("offline", cpu),
            Action::CpuOnline { cpu } => self.field("online", cpu),
        }
    }

    fn expectation(&mut self, expectation: &Expectation) {
        self.header("expect");
        if !expectation.kernels.is_empty() {
            self.text("on", &expectation.kernels);
        }
        self.text("metric", &expectation.metric);
        if let Some(per) = &expectation.per {
            self.text("per", per);
        }
        if let Some(over) = &expectation.over {
            self.text("over", over);
        }
        match (expectation.min, expectation.max) {
            // By bits, because 0.0 and -0.0 are equal but printed differently.
            (Some(min), Some(max)) if min.to_bits() == max.to_bits() => {
                self.field("is", format_args!("{min:?}"));
            }
            (min, max) => {
                for (name, bound) in [("min", min), ("max", max)] {
                    if let Some(bound) = bound {
                        self.field(name, format_args!("{bound:?}"));
                    }
                }
            }
        }
        if !expectation.why.is_empty() {
            self.text("why", &expectation.why);
        }
    }

    fn span(&self, span: Span) -> String {
        let time = |ns: u64| quote(&print_duration(ns));
        let ix = match span {
            Span::Fixed(ns) => return time(ns),
            Span::Drawn(ix) => ix,
        };
        match self.workload.distributions.get(ix as usize) {
            None => time(0),
            Some(Distribution::Constant { ns }) => time(*ns),
            Some(Distribution::Uniform { low_ns, high_ns }) => {
                format!("{{ uniform = [{}, {}] }}", time(*low_ns), time(*high_ns))
            }
            Some(Distribution::Exponential { mean_ns }) => {
                format!("{{ exponential = {} }}", time(*mean_ns))
            }
            Some(Distribution::LogNormal { median_ns, sigma }) => {
                let median = time(*median_ns);
                format!("{{ lognormal = {{ median = {median}, sigma = {sigma:?} }} }}")
            }
            Some(Distribution::Empirical { values_ns, cumulative }) => {
                let mut before = 0;
                let mut pairs = Vec::with_capacity(values_ns.len());
                for (&ns, &upto) in values_ns.iter().zip(cumulative) {
                    pairs.push(format!("[{}, {}]", time(ns), upto.saturating_sub(before)));
                    before = upto;
                }
                format!("{{ empirical = [{}] }}", pairs.join(", "))
            }
        }
    }

    fn cpu_set(&self, ix: u32) -> String {
        self.workload.cpu_sets.get(ix as usize).map_or_else(String::new, print_cpus)
    }
}

impl<'a> Printer<'a> {
    fn group_path(&self, ix: u32) -> &'a str {
        self.workload.groups.get(ix as usize).map_or("", |group| &group.path)
    }

    fn task_name(&self, ix: u32) -> &'a str {
        self.workload.tasks.get(ix as usize).map_or("", |task| &task.name)
    }

    fn job_name(&self, ix: JobIx) -> &'a str {
        self.workload.jobs.get(ix as usize).map_or("", |job| &job.name)
    }

    fn lock_name(&self, ix: LockIx) -> &'a str {
        self.workload.locks.get(ix as usize).map_or("", |lock| &lock.name)
    }

    /// `None` for kinds of lock that have only one mode.
    fn mode_word(&self, lock: LockIx, mode: LockMode) -> Option<&'static str> {
        let kind = self.workload.locks.get(lock as usize).map(|lock| lock.kind);
        match (kind, mode) {
            (Some(LockKind::Mutex | LockKind::Spin), LockMode::Write) => None,
            (_, LockMode::Read) => Some("read"),
            (_, LockMode::Write) => Some("write"),
        }
    }
}

/// A TOML string with this text.
pub(crate) fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The word that stands for a value in files.
fn word<T: PartialEq>(choices: &[(&'static str, T)], value: &T) -> &'static str {
    choices.iter().find(|(_, choice)| choice == value).map_or("", |(word, _)| word)
}
