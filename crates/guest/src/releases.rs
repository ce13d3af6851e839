//! Times the kernel functions that release throttled tasks, and counts the work of each call
//! (kernel: `distribute_cfs_runtime()`, `__cfsb_csd_unthrottle()`).
//!
//! Kprobes record entries and returns in an instance of tracefs that uses the time-stamp counter. A
//! probe takes some hundred instructions; that cost is measured and subtracted. Only in virtual
//! machines, as kprobes are global.

use crate::line::{TraceLine, lost_events, tsc};
use crate::tracefs::Instance;
use crate::work::read_tsc;
use crate::world::World;
use cpumax_outcome::trace::{TraceEvent, What};
use cpumax_outcome::{Call, ReleaseOutcome, Releaser};
use cpumax_protocol::Report;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::process::parent_id;
use std::sync::atomic::Ordering::Relaxed;

const KPROBE_EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
const INSTANCE: &str = "releases";
/// Probes at the entry (`p`) or the return (`r`) of a function.
const PROBES: [(&str, &str); 7] = [
    ("p", "distribute_cfs_runtime"),
    ("r", "distribute_cfs_runtime"),
    ("p", "__cfsb_csd_unthrottle"),
    ("r", "__cfsb_csd_unthrottle"),
    ("p", "unthrottle_cfs_rq"),
    ("p", "tg_unthrottle_up"),
    ("p", "smp_call_function_single_async"),
];
/// Enqueues a task (from 6.18), or the entity of a group or task (to 6.17).
const ENQUEUE_TASK: &str = "enqueue_task_fair";
const ENQUEUE_ENTITY: &str = "enqueue_entity";
/// A function that does almost nothing, to measure the cost of probes.
const EMPTY_FUNCTION: &str = "__x64_sys_getppid";
/// Buffer of each CPU.
const BUFFER_KIB: RangeInclusive<u32> = 512..=4 << 10;

/// Installed probes; dropping them removes them.
pub(crate) struct Probes {
    instance: Instance,
    _kprobes: Kprobes,
    /// Enqueues are seen. False where the compiler has inlined that function.
    sees_enqueues: bool,
    cost: Cost,
}

/// Cost of probes, in ticks of the time-stamp counter.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Of a probe at an entry.
    entry: u64,
    /// Length that the two probes of an empty function report.
    call: u64,
    /// Cost of these two probes outside of that length.
    around: u64,
}

/// Releases of a run.
pub(crate) struct MeasuredReleases {
    release: ReleaseOutcome,
    /// One event for each call.
    events: Vec<TraceEvent>,
    /// Whether the number of enqueued tasks is known.
    has_tasks: bool,
    /// Probe events lost for want of room.
    lost: u64,
    /// Cost of a probe, ns.
    probe_ns: u64,
}

impl Probes {
    /// Makes a tracefs instance, measures what probes cost, and installs kprobes on the functions
    /// that unthrottle. `by_task`: releases enqueue tasks (from 6.18), not entities.
    ///
    /// # Errors
    /// The kernel has no kprobes, or lacks one of these functions but `__cfsb_csd_unthrottle`.
    pub fn begin(by_task: bool) -> Result<Probes, String> {
        let instance = Instance::make(INSTANCE, "x86-tsc", BUFFER_KIB)?;
        let cost = Cost::default();
        let mut probes = Probes { instance, _kprobes: Kprobes, sees_enqueues: false, cost };
        probes.cost = probes.measure_cost()?;
        for (kind, function) in PROBES {
            // Kernels up to 6.2 have no such function.
            let added = probes.add_probe(kind, function);
            if function != "__cfsb_csd_unthrottle" {
                added?;
            }
        }
        let put = if by_task { ENQUEUE_TASK } else { ENQUEUE_ENTITY };
        probes.sees_enqueues = probes.add_probe("p", put).is_ok();
        Ok(probes)
    }

    /// Installs and enables one kprobe, named after its function. `kind`: `p` at its entry, `r` at
    /// its return.
    ///
    /// # Errors
    /// The kernel lacks kprobes or the function.
    fn add_probe(&self, kind: &str, function: &str) -> Result<(), String> {
        let no = |error| format!("{KPROBE_EVENTS}: {kind} {function}: {error}");
        let mut events = OpenOptions::new().append(true).open(KPROBE_EVENTS).map_err(no)?;
        let line = format!("{kind}:{INSTANCE}/{kind}_{function} {function}\n");
        events.write_all(line.as_bytes()).map_err(no)?;
        self.instance.write(&format!("events/{INSTANCE}/{kind}_{function}/enable"), "1")
    }

    /// Measures, at a system call that does almost nothing, in counter ticks: what a probe at an
    /// entry costs, what length an entry and a return probe report for an empty function (0 if they
    /// report no call), and what both cost beyond that. Then disables its probes and empties the
    /// trace. After an error the probes may stay enabled until `self` is dropped.
    ///
    /// # Errors
    /// The kernel refuses a probe, or the trace cannot be read.
    fn measure_cost(&self) -> Result<Cost, String> {
        let plain = getppid_stamps();
        self.add_probe("p", EMPTY_FUNCTION)?;
        let entry = getppid_stamps().saturating_sub(plain);
        self.add_probe("r", EMPTY_FUNCTION)?;
        let both = getppid_stamps().saturating_sub(plain);
        let mut calls = Calls::new(Cost::default(), 0, u64::MAX);
        self.instance.read(|line| calls.read_line(line))?;
        for kind in ["p", "r"] {
            self.instance
                .write(&format!("events/{INSTANCE}/{kind}_{EMPTY_FUNCTION}/enable"), "0")?;
        }
        self.instance.write("trace", "")?;
        calls.lengths.sort_unstable();
        let call = calls.lengths.get(calls.lengths.len() / 2).copied().unwrap_or(0);
        Ok(Cost { entry, call, around: both.saturating_sub(call) })
    }

    /// Stops recording and returns every call that released something during the run, with sums.
    /// The probes are removed when this is dropped.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn end(self, world: &World) -> Result<MeasuredReleases, String> {
        self.instance.write("tracing_on", "0")?;
        let start = world.start_stamp.load(Relaxed);
        let end = start + world.speed.stamps(world.workload.duration_ns);
        let mut calls = Calls::new(self.cost, start, end);
        self.instance.read(|line| calls.read_line(line))?;
        let mut found = MeasuredReleases {
            release: ReleaseOutcome::default(),
            events: Vec::new(),
            has_tasks: self.sees_enqueues,
            lost: calls.lost,
            probe_ns: world.speed.ns(self.cost.entry),
        };
        for (by, at, call) in calls.done {
            let [at_ns, ns] = [call.at_ns, call.ns].map(|stamps| world.speed.ns(stamps));
            let call = Call { at_ns, ns, ..call };
            found.release.of(by).add(call);
            let what = What::release(by, call);
            found.events.push(TraceEvent { time_ns: world.speed.ns(at), cpu: call.cpu, what });
        }
        let ReleaseOutcome { distribute, handler, .. } = &found.release;
        let [_, rqs, cfs_rqs, tasks] =
            std::array::from_fn(|ix| distribute.did.numbers()[ix] + handler.did.numbers()[ix]);
        let calls = distribute.calls + handler.calls;
        found.release = ReleaseOutcome { calls, rqs, cfs_rqs, tasks, ..found.release };
        Ok(found)
    }
}

impl MeasuredReleases {
    /// Adds the releases to a report: numbers, notes on their precision, what was not measured, and
    /// events if it has a trace.
    pub fn add_to_report(self, report: &mut Report) {
        report.outcome.release = self.release;
        report.not_measured.retain(|path| path != "release");
        // Only the cost model has these.
        report.not_measured.extend(["release.irqoff_ns", "release.spent_ns"].map(str::to_owned));
        if !self.has_tasks {
            report.not_measured.extend(["release.tasks", "release.*.tasks"].map(str::to_owned));
        }
        let probe_ns = self.probe_ns;
        report.notes.push(format!(
            "each group walked and each task enqueued in a release takes {probe_ns} ns longer, \
             because it is counted; lengths of calls do not include that"
        ));
        if self.lost > 0 {
            report.notes.push(format!("the first {} counts of releases were lost", self.lost));
            report.not_measured.push("release".to_owned());
        }
        if let Some(trace) = &mut report.trace {
            trace.events.extend(self.events);
            trace.events.sort_by_key(|event| event.time_ns);
        }
    }
}

impl Drop for Probes {
    /// Disables the probes; then the instance goes, and last the kprobes.
    fn drop(&mut self) {
        let _ = self.instance.write(&format!("events/{INSTANCE}/enable"), "0");
    }
}

/// All kprobes of the system; dropping it removes them.
struct Kprobes;

impl Drop for Kprobes {
    fn drop(&mut self) {
        let _ = fs::write(KPROBE_EVENTS, "");
    }
}

/// Mean length of a system call that does almost nothing, in counter ticks, over 256 calls after as
/// many to warm up.
fn getppid_stamps() -> u64 {
    const ROUNDS: u64 = 256;
    // The first round is for the emulator, which translates the code.
    for _ in 0..ROUNDS {
        std::hint::black_box(parent_id());
    }
    let before = read_tsc();
    for _ in 0..ROUNDS {
        std::hint::black_box(parent_id());
    }
    (read_tsc() - before) / ROUNDS
}

/// Builds calls from trace lines.
struct Calls {
    cost: Cost,
    /// Start and end of the run, in counter ticks.
    start: u64,
    end: u64,
    /// By CPU: calls in progress, an interrupt on top of the one it interrupted.
    open: BTreeMap<u16, Vec<Open>>,
    /// Completed calls that did something: function, end, and the call; times in counter ticks
    /// since the start.
    done: Vec<(Releaser, u64, Call)>,
    /// Lengths of the calls that measure the cost of probes.
    lengths: Vec<u64>,
    lost: u64,
}

/// A call in progress.
struct Open {
    /// The call; its `at_ns` is in counter ticks.
    call: Call,
    /// Time of probes and of nested calls, to be subtracted.
    excluded: u64,
    /// A nested call released something. From 7.2 on a distribution ends with the work of its own
    /// CPU's handler.
    acted: bool,
    /// The next walk is the first one of its `cfs_rq`.
    fresh_walk: bool,
    /// The next enqueue is the first one of its `cfs_rq`.
    fresh_enqueue: bool,
}

impl Calls {
    /// No calls yet; `start` and `end` of the run are values of the time-stamp counter.
    fn new(cost: Cost, start: u64, end: u64) -> Calls {
        Calls {
            cost,
            start,
            end,
            open: BTreeMap::new(),
            done: Vec::new(),
            lengths: Vec::new(),
            lost: 0,
        }
    }

    /// Applies a line of the trace, if it is within the run: an entry opens a call on that CPU, a
    /// return ends it, and any other probe counts as work of the innermost call. Notes how many
    /// events were lost.
    fn read_line(&mut self, text: &str) {
        if let Some(lost) = lost_events(text) {
            self.lost = lost;
        }
        let line =
            TraceLine::parse(text, tsc).filter(|line| (self.start..=self.end).contains(&line.at));
        let Some(line) = line else { return };
        match line.event {
            "p_distribute_cfs_runtime" | "p___cfsb_csd_unthrottle" | "p___x64_sys_getppid" => {
                let call = Call { at_ns: line.at, cpu: line.cpu, ..Call::default() };
                let open = Open {
                    call,
                    excluded: self.cost.call,
                    acted: false,
                    fresh_walk: false,
                    fresh_enqueue: false,
                };
                self.open.entry(line.cpu).or_default().push(open);
            }
            "r_distribute_cfs_runtime" => self.end_call(&line, Some(Releaser::Distribute)),
            "r___cfsb_csd_unthrottle" => self.end_call(&line, Some(Releaser::Handler)),
            "r___x64_sys_getppid" => self.end_call(&line, None),
            _ => self.count_work(&line),
        }
    }

    /// Counts a probe inside of the innermost call on its CPU: a release, a walk, an enqueue or an
    /// interrupt to another CPU. Adds the probe's cost to the ticks that the call leaves out.
    /// Ignored outside of calls.
    fn count_work(&mut self, line: &TraceLine<'_>) {
        let Some(open) = self.open.get_mut(&line.cpu).and_then(|open| open.last_mut()) else {
            return;
        };
        open.excluded += self.cost.entry;
        let did = &mut open.call.did;
        match line.event {
            // The call may find nothing to release.
            "p_unthrottle_cfs_rq" => (open.fresh_walk, open.fresh_enqueue) = (true, true),
            "p_tg_unthrottle_up" => {
                did.rqs += u64::from(std::mem::take(&mut open.fresh_walk));
                did.cfs_rqs += 1;
            }
            "p_smp_call_function_single_async" => did.told += 1,
            "p_enqueue_task_fair" => did.tasks += 1,
            // Enqueuing a cfs_rq's entity also enqueues its ancestors; only the first counts.
            "p_enqueue_entity" => did.tasks += u64::from(std::mem::take(&mut open.fresh_enqueue)),
            _ => {}
        }
    }

    /// Ends the innermost call on the CPU of a return probe. Its length, in counter ticks, leaves
    /// out the cost of probes and nested calls. It is kept if it or a nested call released
    /// something. `by` is `None` for the calls that measure the cost of probes.
    fn end_call(&mut self, line: &TraceLine<'_>, by: Option<Releaser>) {
        let Some(stack) = self.open.get_mut(&line.cpu) else { return };
        let Some(Open { mut call, excluded, acted, .. }) = stack.pop() else { return };
        let took = line.at.saturating_sub(call.at_ns);
        let acted = acted || call.did.told + call.did.rqs + call.did.tasks > 0;
        if let Some(outer) = stack.last_mut() {
            outer.excluded += took + self.cost.around;
            outer.acted |= acted;
        }
        call.ns = took.saturating_sub(excluded);
        call.at_ns -= self.start;
        match by {
            None => self.lengths.push(took),
            Some(by) if acted => self.done.push((by, line.at - self.start, call)),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_outcome::Did;

    #[test]
    fn lines_become_calls_without_the_cost_of_probes() {
        let mut calls = Calls::new(Cost { entry: 10, call: 30, around: 5 }, 1000, 9000);
        let mut hit = |cpu: u16, at: u64, event: &str| {
            calls.read_line(&format!("  <idle>-0  [{cpu:03}] d.h2.  {at}: {event}: (f+0x4/0x10)"));
        };
        hit(0, 900, "p_distribute_cfs_runtime");
        hit(0, 1100, "r_distribute_cfs_runtime");
        hit(0, 2000, "p_distribute_cfs_runtime");
        hit(0, 2010, "p_smp_call_function_single_async");
        hit(0, 2020, "p_unthrottle_cfs_rq");
        hit(0, 2030, "p_tg_unthrottle_up");
        hit(1, 2035, "p___cfsb_csd_unthrottle");
        hit(0, 2040, "p_enqueue_task_fair");
        hit(0, 2050, "p_enqueue_task_fair");
        hit(0, 2060, "p_tg_unthrottle_up");
        hit(1, 2065, "p_unthrottle_cfs_rq");
        hit(1, 2066, "p_tg_unthrottle_up");
        hit(1, 2067, "p_enqueue_entity");
        hit(1, 2068, "p_enqueue_entity");
        hit(0, 2200, "r_distribute_cfs_runtime");
        hit(1, 2300, "r___cfsb_csd_unthrottle");
        // Nothing to release.
        hit(1, 3000, "p___cfsb_csd_unthrottle");
        hit(1, 3010, "p_unthrottle_cfs_rq");
        hit(1, 3050, "r___cfsb_csd_unthrottle");
        // From 7.2 on the handler's work is nested in the distribution.
        hit(2, 4000, "p_distribute_cfs_runtime");
        hit(2, 4100, "p___cfsb_csd_unthrottle");
        hit(2, 4110, "p_unthrottle_cfs_rq");
        hit(2, 4120, "p_tg_unthrottle_up");
        hit(2, 4200, "r___cfsb_csd_unthrottle");
        hit(2, 4300, "r_distribute_cfs_runtime");
        // Outside of a call, and after the end of the run.
        hit(1, 3060, "p_enqueue_task_fair");
        hit(2, 9001, "p_distribute_cfs_runtime");
        calls.read_line("# entries-in-buffer/entries-written: 20/23   #P:3");
        assert_eq!(calls.lost, 3);
        let call = |at_ns, cpu, ns, [told, rqs, cfs_rqs, tasks]: [u64; 4]| Call {
            at_ns,
            cpu,
            ns,
            did: Did { told, rqs, cfs_rqs, tasks },
        };
        let distribute = call(1000, 0, 200 - 30 - 60, [1, 1, 2, 2]);
        let handler = call(1035, 1, 265 - 30 - 40, [0, 1, 1, 1]);
        assert_eq!(
            calls.done,
            [
                (Releaser::Distribute, 1200, distribute),
                (Releaser::Handler, 1300, handler),
                (Releaser::Handler, 3200, call(3100, 2, 100 - 30 - 20, [0, 1, 1, 0])),
                (Releaser::Distribute, 3300, call(3000, 2, 300 - 30 - 105, [0; 4])),
            ]
        );
    }
}
