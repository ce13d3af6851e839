//! Made-up text of `perf script`; a thread in it is `name/id`.

use cpumax_recording::{Options, Recording};
use std::collections::HashMap;

pub const IDLE: &str = "swapper/0";
pub const MS: u64 = 1_000_000;

/// Lines in order of time, with a head.
#[derive(Debug, Clone)]
pub struct Trace {
    head: Vec<String>,
    lines: Vec<(u64, String)>,
    /// Priority of the threads from now on.
    pub prio: i32,
    /// The CPU that each thread (by its id) left last.
    last: HashMap<String, u32>,
}

impl Trace {
    /// Text of perf, on a machine with so many CPUs.
    pub fn perf(cpus: u32) -> Trace {
        let head = [
            format!("# nrcpus online : {cpus}"),
            format!("# nrcpus avail : {cpus}"),
            "# cmdline : /usr/bin/perf sched record -a -- sleep 2".to_owned(),
        ];
        Trace { head: head.to_vec(), lines: Vec::new(), prio: 120, last: HashMap::new() }
    }

    pub fn headless(&self) -> Trace {
        Trace { head: Vec::new(), ..self.clone() }
    }

    pub fn command(&self, command: &str) -> Trace {
        let mut trace = self.clone();
        trace.head.retain(|line| !line.contains("cmdline"));
        trace.head.push(format!("# cmdline : {command}"));
        trace
    }

    pub fn line(&mut self, ns: u64, line: &str) {
        self.lines.push((ns, line.to_owned()));
    }

    pub fn event(&mut self, ns: u64, cpu: u32, thread: &str, what: &str) {
        let (comm, tid) = thread.rsplit_once('/').unwrap();
        let (s, frac) = (ns / 1_000_000_000, ns % 1_000_000_000);
        self.line(ns, &format!("{comm:>16} {tid:>5} [{cpu:03}] {s}.{frac:09}: {what}"));
    }

    pub fn wake(&mut self, ns: u64, cpu: u32, by: &str, thread: &str) {
        let (comm, tid) = thread.rsplit_once('/').unwrap();
        let (prio, last) = (self.prio, self.last.get(tid).copied().unwrap_or(0));
        let what =
            format!("sched:sched_waking: comm={comm} pid={tid} prio={prio} target_cpu={last:03}");
        self.event(ns, cpu, by, &what);
    }

    pub fn switch(&mut self, ns: u64, cpu: u32, from: &str, state: &str, to: &str) {
        let ((prev, prev_pid), (next, next_pid)) =
            (from.rsplit_once('/').unwrap(), to.rsplit_once('/').unwrap());
        self.last.insert(prev_pid.to_owned(), cpu);
        let prio = |tid: &str| if tid == "0" { 120 } else { self.prio };
        let what = format!(
            "sched:sched_switch: prev_comm={prev} prev_pid={prev_pid} prev_prio={} \
             prev_state={state} ==> next_comm={next} next_pid={next_pid} next_prio={}",
            prio(prev_pid),
            prio(next_pid)
        );
        self.event(ns, cpu, from, &what);
    }

    /// A thread is woken on an idle CPU, runs for so long and sleeps.
    pub fn burst(&mut self, ns: u64, cpu: u32, thread: &str, run_ns: u64) {
        self.wake(ns, cpu, IDLE, thread);
        self.stay(ns + 2_000, cpu, thread, run_ns);
    }

    /// A thread runs on an idle CPU for so long and sleeps.
    pub fn stay(&mut self, ns: u64, cpu: u32, thread: &str, run_ns: u64) {
        self.switch(ns, cpu, IDLE, "R", thread);
        self.charge(ns + run_ns, cpu, thread, run_ns);
        self.switch(ns + run_ns, cpu, thread, "S", IDLE);
    }

    /// The kernel charges the running thread so much CPU time.
    pub fn charge(&mut self, ns: u64, cpu: u32, thread: &str, run_ns: u64) {
        let (comm, tid) = thread.rsplit_once('/').unwrap();
        let what = format!("sched:sched_stat_runtime: comm={comm} pid={tid} runtime={run_ns} [ns]");
        self.event(ns, cpu, thread, &what);
    }

    /// Appends another trace, so much later.
    pub fn append(&mut self, other: Trace, later_ns: u64) {
        self.lines.extend(other.at(|ns| ns + later_ns).lines);
    }

    /// Events as given, at other times; the lines tell these themselves.
    pub fn at(mut self, time: impl Fn(u64) -> u64) -> Trace {
        self.lines.sort_by_key(|(ns, _)| *ns);
        for (ns, line) in &mut self.lines {
            *ns = time(*ns);
            let (before, behind) = line.split_once(": ").unwrap();
            let (head, _) = before.rsplit_once(' ').unwrap();
            let (s, frac) = (*ns / 1_000_000_000, *ns % 1_000_000_000);
            *line = format!("{head} {s}.{frac:09}: {behind}");
        }
        self
    }

    pub fn only_cpus(&self, cpus: &[u32]) -> Trace {
        let of = |line: &str| cpus.iter().any(|cpu| line.contains(&format!(" [{cpu:03}] ")));
        self.map(|line| if of(line) { vec![line.to_owned()] } else { Vec::new() })
    }

    pub fn without(&self, is_gone: impl Fn(u64, &str) -> bool) -> Trace {
        let mut trace = self.clone();
        trace.lines.retain(|(ns, line)| !is_gone(*ns, line));
        trace
    }

    pub fn uncharged(&self) -> Trace {
        self.map(|line| vec![line.to_owned(); usize::from(!line.contains("sched_stat_runtime"))])
    }

    pub fn map(&self, mut f: impl FnMut(&str) -> Vec<String>) -> Trace {
        let each = |(ns, line): &(u64, String)| {
            f(line).into_iter().map(|line| (*ns, line)).collect::<Vec<_>>()
        };
        Trace { lines: self.lines.iter().flat_map(each).collect(), ..self.clone() }
    }

    pub fn text(&self) -> String {
        let mut lines = self.lines.clone();
        lines.sort_by_key(|(ns, _)| *ns);
        let lines = lines.into_iter().map(|(_, line)| line);
        let mut text: Vec<String> = self.head.iter().cloned().chain(lines).collect();
        text.push(String::new());
        text.join("\n")
    }

    pub fn read(&self) -> Recording {
        Recording::read_bytes("made up", self.text().as_bytes(), Options::default()).unwrap()
    }
}

pub fn runtime_ns(recording: &Recording, tid: i32) -> u64 {
    let threads = recording.summary().threads;
    threads.iter().filter(|thread| thread.tid == tid).map(|thread| thread.runtime_ns).sum()
}
