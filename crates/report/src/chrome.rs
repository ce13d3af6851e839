//! Events of a run as a file for the Perfetto UI and Chrome (`about:tracing`).
//!
//! The format is the Trace Event Format ("JSON object format"): complete slices (`X`), instants
//! (`i`), counters (`C`) and names (`M`). Memory is proportional to the number of CPUs, tasks and
//! throttled groups. Three processes hold the tracks: CPUs (the running task), tasks (running,
//! ready, parked, waiting for a lock) and limits (the CPUs on which each group is throttled, and
//! its periods). A call that releases tasks is a mark on its CPU.

mod stretch;

pub(crate) use stretch::{state_name, write_stretch};

use crate::escape::{line, to_json};
use cpumax_outcome::Releaser;
use cpumax_outcome::trace::{Change, Names, Numbered, State, States, TraceEvent, TraceSink, What};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

const CPUS: u32 = 1;
const TASKS: u32 = 2;
const LIMITS: u32 = 3;

/// One event of the format; absent fields are left out.
#[derive(Serialize)]
struct Entry<'a> {
    ph: &'static str,
    name: &'a str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant; `t`: its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Args<'a> {
    Name(&'a str),
    SortIndex(u32),
    Cpus(u64),
    Ms(f64),
    Cpu(u16),
    Released(Release),
}

/// Numbers of a call that releases tasks: see [`What::Release`].
#[derive(Serialize)]
struct Release {
    took_ns: u64,
    told: u32,
    rqs: u32,
    cfs_rqs: u32,
    tasks: u32,
}

/// Writes the events of one run as they come.
pub(crate) struct ChromeTrace<W: Write> {
    out: W,
    first: bool,
    /// The first error: a sink cannot return it, so [`ChromeTrace::finish`] does.
    failed: Option<io::Error>,
    names: Names,
    last_ns: u64,
    /// For each CPU: the running task, and its start, ns.
    running: BTreeMap<u16, (u32, u64)>,
    states: States,
    /// For each throttled group and CPU: the start of the throttle, ns.
    throttled: BTreeMap<(u32, u16), u64>,
    /// Number of CPUs on which a group is throttled.
    throttled_cpus: BTreeMap<u32, u64>,
    /// Track of a group on a CPU; without a CPU, of its periods.
    limit_tracks: BTreeMap<(u32, Option<u16>), u32>,
    cpus_named: BTreeSet<u16>,
}

impl<W: Write> TraceSink for ChromeTrace<W> {
    fn event(&mut self, event: TraceEvent) {
        if self.failed.is_none() {
            self.failed = self.write_event(event).err();
        }
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.names.add(of, name);
    }
}

impl<W: Write> ChromeTrace<W> {
    /// A trace without events.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        let mut writer = ChromeTrace {
            out,
            first: true,
            failed: None,
            names: Names::default(),
            last_ns: 0,
            running: BTreeMap::new(),
            states: States::default(),
            throttled: BTreeMap::new(),
            throttled_cpus: BTreeMap::new(),
            limit_tracks: BTreeMap::new(),
            cpus_named: BTreeSet::new(),
        };
        for (pid, name) in [(CPUS, "CPUs"), (TASKS, "Tasks"), (LIMITS, "Limits")] {
            writer.write_name("process_name", pid, 0, Args::Name(name))?;
            writer.write_name("process_sort_index", pid, 0, Args::SortIndex(pid))?;
        }
        Ok(writer)
    }

    fn write_event(&mut self, event: TraceEvent) -> io::Result<()> {
        let TraceEvent { time_ns, cpu, what } = event;
        self.last_ns = self.last_ns.max(time_ns);
        if let What::Switch { next } = what {
            self.switch(cpu, next, time_ns)?;
        }
        for change in self.states.event(&event) {
            self.changed(change, time_ns)?;
        }
        match what {
            What::Throttle { group } => self.throttle(group, cpu, time_ns),
            What::Unthrottle { group } => self.unthrottle(group, cpu, time_ns),
            What::Period { group } => self.write_period(group, time_ns),
            What::Runtime { group, left_ns } => self.write_runtime(group, left_ns, time_ns),
            What::Done { task, .. } => self.write_done(task, time_ns),
            What::Release { by, took_ns, told, rqs, cfs_rqs, tasks } => {
                let name = match by {
                    Releaser::Distribute => "distribute",
                    Releaser::Handler => "unthrottle handler",
                };
                self.write_release(
                    name,
                    cpu,
                    time_ns,
                    Release { took_ns, told, rqs, cfs_rqs, tasks },
                )
            }
            _ => Ok(()),
        }
    }

    fn switch(&mut self, cpu: u16, next: Option<u32>, time_ns: u64) -> io::Result<()> {
        if let Some((previous, since_ns)) = self.running.remove(&cpu) {
            self.write_cpu_slice(cpu, previous, since_ns, time_ns)?;
        }
        if let Some(next) = next {
            self.running.insert(cpu, (next, time_ns));
        }
        Ok(())
    }

    fn write_cpu_slice(
        &mut self,
        cpu: u16,
        task: u32,
        since_ns: u64,
        time_ns: u64,
    ) -> io::Result<()> {
        self.name_cpu(cpu)?;
        let name = self.task_name(task);
        self.write_slice(CPUS, u32::from(cpu), &name, since_ns, time_ns, None)
    }

    fn name_cpu(&mut self, cpu: u16) -> io::Result<()> {
        if !self.cpus_named.insert(cpu) {
            return Ok(());
        }
        let tid = u32::from(cpu);
        self.write_name("thread_name", CPUS, tid, Args::Name(&format!("CPU {cpu}")))?;
        self.write_name("thread_sort_index", CPUS, tid, Args::SortIndex(tid))
    }

    fn changed(&mut self, Change { task, was, .. }: Change, time_ns: u64) -> io::Result<()> {
        match was {
            None => {
                let name = self.task_name(task);
                self.write_name("thread_name", TASKS, task, Args::Name(&name))?;
                self.write_name("thread_sort_index", TASKS, task, Args::SortIndex(task))
            }
            Some((was, since_ns)) => self.write_task_slice(task, was, since_ns, time_ns),
        }
    }

    fn write_task_slice(
        &mut self,
        task: u32,
        was: State,
        since_ns: u64,
        time_ns: u64,
    ) -> io::Result<()> {
        let (name, args) = match was {
            State::Away => return Ok(()),
            State::Running { cpu } => ("running".to_owned(), Some(Args::Cpu(cpu))),
            State::Ready { .. } => ("ready".to_owned(), None),
            State::Parked => ("parked".to_owned(), None),
            State::LockWait { lock } => {
                (format!("waits for {}", name_of(&self.names.locks, lock, "lock")), None)
            }
        };
        self.write_slice(TASKS, task, &name, since_ns, time_ns, args)
    }

    fn throttle(&mut self, group: u32, cpu: u16, time_ns: u64) -> io::Result<()> {
        if self.throttled.insert((group, cpu), time_ns).is_some() {
            return Ok(());
        }
        let cpus = self.throttled_cpus.entry(group).or_default();
        *cpus += 1;
        let cpus = *cpus;
        self.write_counter(group, cpus, time_ns)
    }

    fn unthrottle(&mut self, group: u32, cpu: u16, time_ns: u64) -> io::Result<()> {
        let Some(since_ns) = self.throttled.remove(&(group, cpu)) else { return Ok(()) };
        let cpus = self.throttled_cpus.entry(group).or_default();
        *cpus = cpus.saturating_sub(1);
        let cpus = *cpus;
        self.write_counter(group, cpus, time_ns)?;
        self.write_throttled_slice(group, cpu, since_ns, time_ns)
    }

    fn write_throttled_slice(
        &mut self,
        group: u32,
        cpu: u16,
        since_ns: u64,
        time_ns: u64,
    ) -> io::Result<()> {
        let tid = self.limit_track(group, Some(cpu))?;
        self.write_slice(LIMITS, tid, "throttled", since_ns, time_ns, None)
    }

    fn write_period(&mut self, group: u32, time_ns: u64) -> io::Result<()> {
        let tid = self.limit_track(group, None)?;
        self.write_entry(&Entry { s: Some("t"), ..entry("i", "period", LIMITS, tid, time_ns) })
    }

    fn write_runtime(&mut self, group: u32, left_ns: u64, time_ns: u64) -> io::Result<()> {
        let name = format!("{} runtime left", name_of(&self.names.groups, group, "group"));
        let args = Some(Args::Ms(left_ns as f64 / 1e6));
        self.write_entry(&Entry { args, ..entry("C", &name, LIMITS, 0, time_ns) })
    }

    fn write_done(&mut self, task: u32, time_ns: u64) -> io::Result<()> {
        self.write_entry(&Entry { s: Some("t"), ..entry("i", "done", TASKS, task, time_ns) })
    }

    fn write_release(
        &mut self,
        name: &str,
        cpu: u16,
        time_ns: u64,
        did: Release,
    ) -> io::Result<()> {
        self.name_cpu(cpu)?;
        let args = Some(Args::Released(did));
        let tid = u32::from(cpu);
        self.write_entry(&Entry { s: Some("t"), args, ..entry("i", name, CPUS, tid, time_ns) })
    }

    fn limit_track(&mut self, group: u32, cpu: Option<u16>) -> io::Result<u32> {
        if let Some(&tid) = self.limit_tracks.get(&(group, cpu)) {
            return Ok(tid);
        }
        let tid = self.limit_tracks.len() as u32;
        self.limit_tracks.insert((group, cpu), tid);
        let group = name_of(&self.names.groups, group, "group");
        let name = match cpu {
            Some(cpu) => format!("{group} on CPU {cpu}"),
            None => format!("{group} periods"),
        };
        self.write_name("thread_name", LIMITS, tid, Args::Name(&name))?;
        Ok(tid)
    }

    fn write_counter(&mut self, group: u32, cpus: u64, time_ns: u64) -> io::Result<()> {
        let name = format!("{} throttled CPUs", name_of(&self.names.groups, group, "group"));
        self.write_entry(&Entry {
            args: Some(Args::Cpus(cpus)),
            ..entry("C", &name, LIMITS, 0, time_ns)
        })
    }

    fn write_slice(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        since_ns: u64,
        time_ns: u64,
        args: Option<Args<'_>>,
    ) -> io::Result<()> {
        let lasted_ns = time_ns.saturating_sub(since_ns);
        if lasted_ns == 0 {
            return Ok(());
        }
        let dur = Some(lasted_ns as f64 / 1e3);
        self.write_entry(&Entry { dur, args, ..entry("X", name, pid, tid, since_ns) })
    }

    fn write_name(&mut self, what: &str, pid: u32, tid: u32, args: Args<'_>) -> io::Result<()> {
        self.write_entry(&Entry { args: Some(args), ..entry("M", what, pid, tid, 0) })
    }

    fn write_entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        to_json(&mut self.out, entry).map_err(io::Error::from)
    }

    fn task_name(&self, task: u32) -> String {
        name_of(&self.names.tasks, task, "task")
    }

    /// Ends all open slices at the time of the last event, and returns what has been written to.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let end_ns = self.last_ns;
        for (cpu, (task, since_ns)) in std::mem::take(&mut self.running) {
            self.write_cpu_slice(cpu, task, since_ns, end_ns)?;
        }
        for (task, state, since_ns) in std::mem::take(&mut self.states).all() {
            self.write_task_slice(task, state, since_ns, end_ns)?;
        }
        for ((group, cpu), since_ns) in std::mem::take(&mut self.throttled) {
            self.write_throttled_slice(group, cpu, since_ns, end_ns)?;
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn entry<'a>(ph: &'static str, name: &'a str, pid: u32, tid: u32, time_ns: u64) -> Entry<'a> {
    Entry { ph, name, pid, tid, ts: time_ns as f64 / 1e3, dur: None, s: None, args: None }
}

/// The name of a task, group or lock, or its number: an aborted run delivers no names.
fn name_of(names: &[String], index: u32, kind: &str) -> String {
    let name = names.get(index as usize).map(|name| line(name).into_owned());
    name.unwrap_or_else(|| format!("{kind} {index}"))
}

#[cfg(test)]
mod tests;
