//! Prints a workload as a scenario file, so that a failing case can be kept, read and edited.
//!
//! Parsing the text gives the same workload, except that distributions and sets of CPUs are
//! numbered in the order of their use, unused and repeated ones vanish, and a constant distribution
//! becomes a fixed length.

use crate::bounds::MAX_FILE_BYTES;
use crate::build::Value;
use crate::checked::Workload;
use crate::error::Error;
use crate::model::{
    Action, Affinity, Arrivals, ChannelIx, Class, Expectation, Intervention, JobIx, LockIx,
    LockKind, LockMode, MachineSpec, Op, Parts, SoftirqSpec, Span, Target, TaskSpec,
};
use crate::read::language::Word;
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
    printer.print_name_and_duration();
    printer.print_machine();
    printer.print_groups();
    printer.print_locks_and_channels();
    workload.tasks.iter().for_each(|task| printer.print_task(task));
    printer.print_jobs();
    printer.print_sources();
    workload.interventions.iter().for_each(|intervention| printer.print_intervention(intervention));
    workload.expectations.iter().for_each(|expectation| printer.print_expectation(expectation));
    printer.text
}

/// Deepest nesting that is indented.
const MAX_INDENT: usize = 40;

struct Printer<'a> {
    workload: &'a Parts,
    text: String,
}

impl Printer<'_> {
    fn print_line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    /// Prints `name = value`; the value is TOML already.
    fn print_field(&mut self, name: &str, value: impl Display) {
        self.print_line(format_args!("{name} = {value}"));
    }

    /// Prints a field whose value is a text, quoted.
    fn print_text(&mut self, name: &str, value: &str) {
        self.print_field(name, quote(value));
    }

    fn print_time(&mut self, name: &str, ns: u64) {
        self.print_text(name, &print_duration(ns));
    }

    /// Begins an entry of an array of tables: `[[name]]`.
    fn print_header(&mut self, name: &str) {
        self.print_line(format_args!("\n[[{name}]]"));
    }

    fn print_name_and_duration(&mut self) {
        self.print_text("name", &self.workload.name);
        if !self.workload.shows.is_empty() {
            self.print_text("shows", &self.workload.shows);
        }
        self.print_time("duration", self.workload.duration_ns);
    }

    /// Prints the fields that differ from their defaults.
    fn print_machine(&mut self) {
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
        self.print_line("\n[machine]");
        self.print_field("cpus", cpus);
        if *llc_cpus != usual.llc_cpus {
            self.print_field("llc", llc_cpus);
        }
        if *hz != usual.hz {
            self.print_field("hz", hz);
        }
        if let Some(preempt) = preempt {
            self.print_text("preempt", preempt.word());
        }
        if let Some(hrtick) = hrtick {
            self.print_field("hrtick", hrtick);
        }
        if let Some(phase_ns) = timer_phase_ns {
            self.print_time("timer_phase", *phase_ns);
        }
        if *tick_skew {
            self.print_field("tick_skew", true);
        }
        if *bandwidth_slice_ns != usual.bandwidth_slice_ns {
            self.print_time("slice", *bandwidth_slice_ns);
        }
        if let Some(base_slice_ns) = base_slice_ns {
            self.print_time("base_slice", *base_slice_ns);
        }
        if let Some(cpus) = nohz_full {
            self.print_text("nohz_full", &self.cpu_set_text(*cpus));
        }
        if *cost_timing {
            self.print_field("costs", true);
        }
        if *ipi_ns != usual.ipi_ns {
            self.print_time("ipi", *ipi_ns);
        }
        self.print_softirqs(softirqs);
    }

    fn print_softirqs(&mut self, softirqs: &[SoftirqSpec]) {
        for softirq in softirqs {
            self.print_header("machine.softirq");
            self.print_field("cpu", softirq.cpu);
            self.print_time("every", softirq.every_ns);
            self.print_text("lock", self.lock_name(softirq.lock));
            if let Some(mode) = self.mode_word(softirq.lock, softirq.mode) {
                self.print_text("mode", mode);
            }
            self.print_time("hold", softirq.hold_ns);
        }
    }

    fn print_groups(&mut self) {
        for group in self.workload.groups.iter().skip(1) {
            self.print_header("group");
            self.print_text("path", &as_itself(&group.path));
            let limit = group.limit.to_string();
            if limit != "max 100000" {
                self.print_text("max", &limit);
            }
            if group.limit.burst_ns() != 0 {
                self.print_field("burst", group.limit.burst_ns() / 1000);
            }
            if group.weight != 100 {
                self.print_field("weight", group.weight);
            }
            if group.v1 {
                self.print_text("hierarchy", "v1");
            }
        }
    }

    fn print_locks_and_channels(&mut self) {
        for lock in &self.workload.locks {
            self.print_header("lock");
            self.print_text("name", &lock.name);
            self.print_text("kind", lock.kind.word());
        }
        for channel in &self.workload.channels {
            self.print_header("channel");
            self.print_text("name", &channel.name);
            if channel.capacity != u64::MAX {
                self.print_field("capacity", channel.capacity);
            }
            if channel.oldest_first {
                self.print_field("oldest_first", true);
            }
        }
    }

    fn print_task(&mut self, task: &TaskSpec) {
        self.print_header("task");
        self.print_text("name", &as_itself(&task.name));
        if let Some(label) = &task.label {
            self.print_text("label", label);
        }
        if task.count != 1 {
            self.print_field("count", task.count);
        }
        if task.group != 0 {
            self.print_text("group", &as_itself(self.group_path(task.group)));
        }
        if task.nice != 0 {
            self.print_field("nice", task.nice);
        }
        if task.class != Class::Fair {
            self.print_text("class", task.class.word());
        }
        match task.cpus {
            Affinity::All => {}
            Affinity::Each => self.print_text("cpus", "each"),
            Affinity::Set(cpus) => self.print_text("cpus", &self.cpu_set_text(cpus)),
        }
        if task.start_ns != 0 {
            self.print_time("start", task.start_ns);
        }
        if task.stagger_ns != 0 {
            self.print_time("stagger", task.stagger_ns);
        }
        if let Some(slice_ns) = task.slice_ns {
            self.print_time("slice", slice_ns);
        }
        if !task.program.is_empty() {
            self.print_program(&task.program);
        }
    }

    /// Prints a program with an instruction on each line, indented by nesting. It need not be
    /// valid.
    fn print_program(&mut self, program: &[Op]) {
        self.print_line("program = [");
        let mut depth: usize = 1;
        for op in program {
            if matches!(op, Op::ExitKernel | Op::LoopEnd { .. }) {
                depth = depth.saturating_sub(1);
            }
            let instruction = self.instruction_text(op);
            // Programs that the checks refuse may be nested without bound.
            let width = 2 * depth.min(MAX_INDENT);
            self.print_line(format_args!("{:width$}{instruction}", ""));
            if matches!(op, Op::EnterKernel | Op::LoopStart { .. }) {
                depth += 1;
            }
        }
        self.print_line("]");
    }

    /// An instruction as an inline table with its comma. Those that begin a loop or call leave its
    /// list open; those that end it close it.
    fn instruction_text(&self, op: &Op) -> String {
        let timed = |verb: &str, span: Span| format!("{{ {verb} = {} }},", self.span_text(span));
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
            Op::Post { channel, job } => format!("{{ {} }},", self.post_text(channel, job)),
            Op::After { delay, channel, job, keep } => {
                let posted = self.post_text(channel, job);
                let keep = if keep { ", keep = true" } else { "" };
                format!("{{ after = {}, {posted}{keep} }},", self.span_text(delay))
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
                format!("{{ affinity = {}{} }},", quote(&self.cpu_set_text(cpus)), of(who))
            }
            Op::SetNice { who, nice } => format!("{{ nice = {nice}{} }},", of(who)),
            Op::SetClass { who, class } => {
                format!("{{ class = \"{}\"{} }},", class.word(), of(who))
            }
        }
    }

    fn post_text(&self, channel: ChannelIx, job: JobIx) -> String {
        let channel = self.workload.channels.get(channel as usize).map_or("", |c| &c.name);
        format!("post = {}, to = {}", quote(self.job_name(job)), quote(channel))
    }

    fn print_jobs(&mut self) {
        for job in &self.workload.jobs {
            self.print_header("job");
            self.print_text("name", &job.name);
            if !job.program.is_empty() {
                self.print_program(&job.program);
            }
        }
    }

    fn print_sources(&mut self) {
        for source in &self.workload.sources {
            self.print_header("source");
            self.print_text("name", &source.name);
            let channel = self.workload.channels.get(source.channel as usize);
            self.print_text("channel", channel.map_or("", |channel| &channel.name));
            match &source.arrivals {
                Arrivals::Between(span) => self.print_field("every", self.span_text(*span)),
                Arrivals::At(times_ns) => {
                    let times: Vec<String> =
                        times_ns.iter().map(|&ns| quote(&print_duration(ns))).collect();
                    self.print_field("at", format_args!("[{}]", times.join(", ")));
                }
            }
            if source.start_ns != 0 {
                self.print_time("start", source.start_ns);
            }
            if source.count != u64::MAX {
                self.print_field("count", source.count);
            }
            if !source.jobs.is_empty() {
                let jobs: Vec<String> =
                    source.jobs.iter().map(|&job| quote(self.job_name(job))).collect();
                self.print_field("jobs", format_args!("[{}]", jobs.join(", ")));
            }
            if source.lossy {
                self.print_field("lossy", true);
            }
        }
    }

    fn print_intervention(&mut self, intervention: &Intervention) {
        self.print_header("at");
        self.print_time("time", intervention.at_ns);
        if let Some(every_ns) = intervention.every_ns {
            self.print_time("repeat", every_ns);
        }
        if intervention.until_ns != u64::MAX {
            self.print_time("until", intervention.until_ns);
        }
        match intervention.action {
            Action::WriteLimit { group, limit } => {
                self.print_text("group", self.group_path(group));
                self.print_text("max", &limit.to_string());
                self.print_field("burst", limit.burst_ns() / 1000);
            }
            Action::WriteWeight { group, weight } => {
                self.print_text("group", self.group_path(group));
                self.print_field("weight", weight);
            }
            Action::Signal { kind, signal } => {
                self.print_text("task", self.task_name(kind));
                self.print_text("signal", signal.word());
            }
            Action::Move { kind, group } => {
                self.print_text("task", self.task_name(kind));
                self.print_text("move", self.group_path(group));
            }
            Action::SetAffinity { kind, cpus } => {
                self.print_text("task", self.task_name(kind));
                self.print_text("affinity", &self.cpu_set_text(cpus));
            }
            Action::SetNice { kind, nice } => {
                self.print_text("task", self.task_name(kind));
                self.print_field("nice", nice);
            }
            Action::SetClass { kind, class } => {
                self.print_text("task", self.task_name(kind));
                self.print_text("class", class.word());
            }
            Action::CpuOffline { cpu } => self.print_field("offline", cpu),
            Action::CpuOnline { cpu } => self.print_field("online", cpu),
        }
    }

    /// Prints an `[[expect]]`; equal bounds become `is`.
    fn print_expectation(&mut self, expectation: &Expectation) {
        self.print_header("expect");
        if !expectation.kernels.is_empty() {
            self.print_text("on", &expectation.kernels);
        }
        self.print_text("metric", &expectation.metric);
        if let Some(per) = &expectation.per {
            self.print_text("per", per);
        }
        if let Some(over) = &expectation.over {
            self.print_text("over", over);
        }
        match (expectation.min, expectation.max) {
            // By bits, because 0.0 and -0.0 are equal but printed differently.
            (Some(min), Some(max)) if min.to_bits() == max.to_bits() => {
                self.print_field("is", format_args!("{min:?}"));
            }
            (min, max) => {
                for (name, bound) in [("min", min), ("max", max)] {
                    if let Some(bound) = bound {
                        self.print_field(name, format_args!("{bound:?}"));
                    }
                }
            }
        }
        if !expectation.why.is_empty() {
            self.print_text("why", &expectation.why);
        }
    }

    /// A length of time, or a table that names its distribution.
    fn span_text(&self, span: Span) -> String {
        let ns = match span {
            Span::Fixed(ns) => ns,
            Span::Drawn(ix) => match self.workload.distributions.get(ix as usize) {
                Some(distribution) => return Value::from(distribution).to_string(),
                None => 0,
            },
        };
        quote(&print_duration(ns))
    }

    /// The set of CPUs with this index; empty if there is none.
    fn cpu_set_text(&self, ix: u32) -> String {
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
