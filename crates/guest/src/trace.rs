//! Records scheduler trace points of a run in an instance of tracefs.
//!
//! Switches and wakeups give the stalls of tasks; for a whole trace, exits and period timers are
//! recorded too. The instance has a buffer of its own and the clock of the run; the kernel prints
//! microseconds. Each event costs the CPU about a microsecond.

use crate::claim::pid_in;
use crate::init;
use crate::kernel;
use crate::line::{TraceLine, lost_events, monotonic_ns};
use crate::outside::Visit;
use crate::phases::Edges;
use crate::stalls::Stalls;
use crate::tracefs::{INSTANCES, Instance};
use crate::world::World;
use cpumax_outcome::trace::{Names, Recorded, TraceEvent, What};
use cpumax_workload::Workload;
use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Name of the instance in a virtual machine.
const INSTANCE_IN_VM: &str = "cpumax";
const EVENTS: [&str; 3] = ["sched/sched_switch", "sched/sched_wakeup", "sched/sched_wakeup_new"];
const TIMERS: &str = "timer/hrtimer_expire_entry";
const EXITS: &str = "sched/sched_process_exit";
/// Buffer of each CPU. Older events are lost first.
const BUFFER_KIB: RangeInclusive<u32> = 1 << 10..=8 << 10;
const NS_PER_US: u64 = 1000;

/// A recording in progress; dropping it removes the instance.
pub(crate) struct Tracing(Instance);

/// Result of a recording.
pub(crate) struct Traced {
    /// Events of the run.
    pub recorded: Recorded,
    /// The longest stall of each kind of task, ns.
    pub stalls_ns: Vec<u64>,
    /// Events lost from the beginning for want of room.
    pub lost: u64,
    /// When the controller left its CPU and came back, ns since the start of the run.
    pub asleep_ns: Vec<(u64, u64)>,
    /// Visits of kernel threads.
    pub others_ns: Vec<Visit>,
}

impl Tracing {
    /// Makes a tracefs instance and begins to record: the `whole` trace, or only switches and
    /// wakeups. On a host the instance has the name of the guest's groups (`own_name`); without
    /// one, tracefs is mounted.
    ///
    /// # Errors
    /// The kernel has no such trace points, or tracefs needs rights that the guest lacks.
    pub fn begin(own_name: Option<&str>, whole: bool) -> Result<Tracing, String> {
        if own_name.is_none() {
            init::mount("tracefs", "/sys/kernel/tracing", "tracefs", "")?;
        }
        let no = |error| format!("no trace: {error}");
        let name = own_name.unwrap_or(INSTANCE_IN_VM);
        let instance = Instance::make(name, "mono", BUFFER_KIB).map_err(no)?;
        instance.write("tracing_on", "0").map_err(no)?;
        // On PREEMPT_RT period timers run in a timer thread: they tell whether the thread works for
        // the workload.
        let timers = (whole || kernel::is_real_time()).then_some(TIMERS);
        for event in EVENTS.into_iter().chain(timers).chain(whole.then_some(EXITS)) {
            instance.write(&format!("events/{event}/enable"), "1").map_err(no)?;
        }
        instance.write("tracing_on", "1").map_err(no)?;
        Ok(Tracing(instance))
    }

    /// Stops recording and reads all events since the start of the run: the trace, stalls, and when
    /// other threads ran.
    ///
    /// # Errors
    /// The trace cannot be read, or more tasks or calls were logged than there is room for.
    pub fn end(self, world: &World, edges: &Edges) -> Result<Traced, String> {
        let no = |error| format!("no trace: {error}");
        self.0.write("tracing_on", "0").map_err(no)?;
        let mut reader = Reader::new(world, edges)?;
        self.0.read(|line| reader.read_line(line)).map_err(no)?;
        Ok(reader.end())
    }
}

/// Removes the tracefs instances of this guest's last run and of guests that are gone: neither
/// their group nor a process with their pid exists. Does nothing without an own name (in a virtual
/// machine).
pub(crate) fn remove_leftover_instances(own_name: Option<&str>, has_group: impl Fn(&str) -> bool) {
    let Some(own_name) = own_name else { return };
    for entry in fs::read_dir(INSTANCES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_gone = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
        if name == own_name || pid_in(&name).is_some_and(is_gone) && !has_group(&name) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Makes events of trace lines.
struct Reader<'a> {
    recorded: Recorded,
    /// Events lost for want of room.
    lost: u64,
    stalls: Stalls,
    /// Pid of the controller, and when it was off its CPU.
    outside_pid: u32,
    left_ns: Option<u64>,
    asleep_ns: Vec<(u64, u64)>,
    /// Other threads that are no tasks of the workload, by pid.
    others: BTreeMap<u32, Other>,
    others_ns: Vec<Visit>,
    /// By pid: kind of task.
    kinds: BTreeMap<u32, u32>,
    /// By pid: index of the task's name in the trace.
    numbers: BTreeMap<u32, u32>,
    start_ns: u64,
    end_ns: u64,
    workload: &'a Workload,
    edges: &'a Edges,
}

/// A thread that is no task of the workload.
#[derive(Default)]
struct Other {
    /// When it was woken.
    woken_ns: Option<u64>,
    /// When it got its CPU.
    came_ns: Option<u64>,
    /// It is a timer thread of `PREEMPT_RT` at work for the workload: it wakes a task or begins a
    /// period. Such time is not taken from the workload.
    works_for_workload: bool,
}

impl<'a> Reader<'a> {
    /// A reader that knows the run's tasks by pid and names them, before the first line.
    ///
    /// # Errors
    /// More tasks or calls were logged than there is room for.
    fn new(world: &'a World, edges: &'a Edges) -> Result<Reader<'a>, String> {
        let workload = &world.workload;
        let start_ns = world.start_ns.load(Relaxed);
        let mut reader = Reader {
            recorded: Recorded::default(),
            lost: 0,
            stalls: Stalls::new(!kernel::stops_anywhere()),
            outside_pid: std::process::id(),
            left_ns: None,
            asleep_ns: Vec::new(),
            others: BTreeMap::new(),
            others_ns: Vec::new(),
            kinds: BTreeMap::new(),
            numbers: BTreeMap::new(),
            start_ns,
            end_ns: start_ns + workload.duration_ns,
            workload,
            edges,
        };
        let births =
            world.births.entries().ok_or("more tasks were started than the trace keeps")?;
        let mut births: Vec<(u32, u32, u64)> = births.collect();
        births.sort_by_key(|(_, _, number)| *number);
        let locking =
            world.locking.entries().ok_or("more calls took locks than the trace keeps")?;
        for (pid, is, at_ns) in locking {
            reader.stalls.note_locking(pid, at_ns, is != 0);
        }
        let mut of_kind = vec![0u32; workload.tasks.len()];
        for (pid, kind, _) in births {
            let spec = &workload.tasks[kind as usize];
            let instance = of_kind[kind as usize];
            of_kind[kind as usize] += 1;
            let alone = spec.count == 1;
            let name = if alone { spec.name.clone() } else { format!("{}/{instance}", spec.name) };
            reader.add_name(pid, name);
            reader.kinds.insert(pid, kind);
        }
        let groups = workload.groups.iter().map(|group| group.path.clone());
        reader.recorded.names.groups = groups.collect();
        reader.recorded.names.locks = workload.locks.iter().map(|l| l.name.clone()).collect();
        Ok(reader)
    }

    /// The result, after the last line: events, longest stall of each kind, lost events.
    fn end(self) -> Traced {
        let mut stalls_ns = vec![0; self.workload.tasks.len()];
        let Reader { stalls, kinds, recorded, lost, asleep_ns, others_ns, .. } = self;
        for (pid, ns) in stalls.longest(self.end_ns - self.start_ns) {
            if let Some(kind) = kinds.get(&pid) {
                let longest_ns = &mut stalls_ns[*kind as usize];
                *longest_ns = ns.max(*longest_ns);
            }
        }
        Traced { recorded, stalls_ns, lost, asleep_ns, others_ns }
    }

    /// Whether a thread is neither idle (pid 0) nor the controller nor a task of the workload.
    fn is_other(&self, pid: u32) -> bool {
        pid != 0 && pid != self.outside_pid && !self.kinds.contains_key(&pid)
    }

    /// Adds a task's name to the trace's names under this pid; returns its index.
    fn add_name(&mut self, pid: u32, name: String) -> u32 {
        let Names { tasks, .. } = &mut self.recorded.names;
        tasks.push(name);
        let number = tasks.len() as u32 - 1;
        self.numbers.insert(pid, number);
        number
    }

    /// Index of the thread in the trace's names; one not seen before gets the name `(comm)`. `None`
    /// for the idle task.
    fn index_of(&mut self, pid: u32, comm: &str) -> Option<u32> {
        match self.numbers.get(&pid) {
            _ if pid == 0 => None,
            Some(number) => Some(*number),
            None => Some(self.add_name(pid, format!("({comm})"))),
        }
    }

    /// Applies one line of the file `trace`, up to the end of the run: a switch, a wakeup, an exit
    /// or the expiry of a bandwidth timer. Counts lost events; other lines are skipped.
    fn read_line(&mut self, text: &str) {
        if let Some(lost) = lost_events(text) {
            self.lost = lost;
        }
        let line = TraceLine::parse(text, monotonic_ns).filter(|line| line.at <= self.end_ns);
        let Some(line) = line else { return };
        // Events before the start are not part of the run, but a task woken before it waits from
        // the start on.
        let early = line.at + NS_PER_US < self.start_ns;
        let time_ns = line.at.saturating_sub(self.start_ns);
        match line.event {
            "sched_switch" => self.apply_switch(&line, time_ns, early),
            "sched_wakeup" | "sched_wakeup_new" => self.apply_wakeup(&line, time_ns, early),
            _ if early => {}
            "sched_process_exit" => {
                if let Some(task) = self.task_of(&line, "") {
                    self.record(&line, time_ns, What::Exit { task });
                }
            }
            _ if line.fields.contains("function=sched_cfs_slack_timer") => {
                self.note_timer_work(&line);
            }
            _ if line.fields.contains("function=sched_cfs_period_timer") => {
                self.note_timer_work(&line);
                let group = self.group_at(time_ns);
                self.record(&line, time_ns, What::Period { group });
            }
            _ => {}
        }
    }

    /// Applies a `sched_switch`: notes which thread left and which got the CPU, for stalls and for
    /// threads outside of the workload, and records the events. `early`: before the start of the
    /// run, so nothing is recorded.
    fn apply_switch(&mut self, line: &TraceLine<'_>, time_ns: u64, early: bool) {
        let state = line.field("prev_state=").unwrap_or("");
        if let Some(pid) = line.pid("prev_") {
            self.note_left(pid, time_ns, state);
        }
        if let Some(pid) = line.pid("next_") {
            self.stalls.note_got_cpu(pid, time_ns);
            if pid == self.outside_pid
                && let Some(left_ns) = self.left_ns.take()
            {
                self.asleep_ns.push((left_ns, time_ns));
            }
            if self.is_other(pid) && !early {
                self.others.entry(pid).or_default().came_ns = Some(time_ns);
            }
        }
        if early {
            return;
        }
        let (prev, next) = (self.task_of(line, "prev_"), self.task_of(line, "next_"));
        if let Some(prev) = prev
            && state.starts_with(['S', 'D'])
        {
            self.record(line, time_ns, What::Sleep { task: prev });
        }
        self.record(line, time_ns, What::Switch { next });
    }

    /// Notes that a thread leaves its CPU in a state of `sched_switch`: for stalls, for the
    /// controller's sleeps, and, unless it worked for the workload, as a visit of a thread outside
    /// of it.
    fn note_left(&mut self, pid: u32, time_ns: u64, state: &str) {
        self.stalls.note_left(pid, time_ns, state);
        if pid == self.outside_pid {
            self.left_ns = Some(time_ns);
        }
        if let Some(other) = self.others.get_mut(&pid)
            && let Some(came_ns) = other.came_ns.take()
        {
            let woken_ns = other.woken_ns.take().unwrap_or(came_ns);
            if !other.works_for_workload {
                self.others_ns.push((woken_ns, came_ns, time_ns));
            }
            // A preempted or blocked thread continues with the same work.
            other.works_for_workload &= !state.starts_with('S');
        }
    }

    /// Applies a wakeup: notes it for stalls and for threads outside of the workload, and records
    /// it unless it is `early` (before the start of the run).
    fn apply_wakeup(&mut self, line: &TraceLine<'_>, time_ns: u64, early: bool) {
        if let Some(pid) = line.pid("") {
            if self.is_other(pid) {
                self.others.entry(pid).or_default().woken_ns = Some(time_ns);
            } else if self.kinds.contains_key(&pid) && !early {
                self.note_timer_work(line);
            }
            self.stalls.note_wakeup(pid, time_ns, line.interrupt_flag() == Some(b'.'));
        }
        if !early && let Some(task) = self.task_of(line, "") {
            self.record(line, time_ns, What::Wake { task });
        }
    }

    /// Records an event at `time_ns` on the CPU of the line.
    fn record(&mut self, line: &TraceLine<'_>, time_ns: u64, what: What) {
        self.recorded.events.push(TraceEvent { time_ns, cpu: line.cpu, what });
    }

    /// Index in the trace's names of the thread in the fields `SIDEpid` and `SIDEcomm`; adds a new
    /// one. `None` without such fields or for the idle task.
    fn task_of(&mut self, line: &TraceLine<'_>, side: &str) -> Option<u32> {
        let pid = line.pid(side)?;
        self.index_of(pid, line.field(&format!("{side}comm="))?)
    }

    /// Notes that the timer thread (`PREEMPT_RT`) that runs in this line works for the workload, if
    /// one does; an interrupt on top of the thread is not its work.
    fn note_timer_work(&mut self, line: &TraceLine<'_>) {
        if matches!(line.interrupt_flag(), Some(b'h' | b'H')) {
            return;
        }
        let Some((comm, pid)) = line.who.trim().rsplit_once('-') else { return };
        if comm.starts_with("ktimers/")
            && let Some(other) = pid.parse().ok().and_then(|pid: u32| self.others.get_mut(&pid))
        {
            other.works_for_workload = true;
        }
    }

    /// Index of the group that has a period edge nearest to `time_ns` since the start; 0 if no
    /// group has edges.
    fn group_at(&self, time_ns: u64) -> u32 {
        let groups = self.workload.groups.iter().enumerate();
        let off = groups.filter_map(|(ix, group)| {
            let edge_ns = *self.edges.get(&group.path)?;
            let period_ns = group.limit.period_ns();
            let past_ns = (time_ns + period_ns - edge_ns % period_ns) % period_ns;
            Some((past_ns.min(period_ns - past_ns), ix as u32))
        });
        off.min().map_or(0, |(_, ix)| ix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events_of_the_run() {
        let text = r#"name = "s"
            duration = "1s"
            [[group]]
            path = "/g"
            max = "10000 100000"
            [[task]]
            name = "hog"
            group = "/g"
            program = [{ user = "1s" }]"#;
        let workload = cpumax_workload::parse(text, "s.toml").unwrap();
        let edges = Edges::from([("/g".to_owned(), 50_000_000)]);
        let mut reader = Reader {
            recorded: Recorded::default(),
            lost: 0,
            stalls: Stalls::default(),
            outside_pid: 1,
            left_ns: None,
            asleep_ns: Vec::new(),
            others: BTreeMap::new(),
            others_ns: Vec::new(),
            kinds: BTreeMap::new(),
            numbers: BTreeMap::new(),
            start_ns: 26_000_000_000,
            end_ns: 27_000_000_000,
            workload: &workload,
            edges: &edges,
        };
        reader.add_name(42, "hog".to_owned());
        reader.kinds.insert(42, 0);
        for line in [
            "# tracer: nop",
            "# entries-in-buffer/entries-written: 5/7   #P:1",
            "",
            "  init-1  [000] d..2.  25.999000: sched_wakeup: comm=early pid=9 prio=120",
            "  init-1  [000] d..2.  25.999100: sched_wakeup_new: comm=init pid=42 prio=120",
            "  init-1  [000] d..2.  26.000020: sched_switch: prev_comm=init prev_pid=1 \
             prev_prio=49 prev_state=S ==> next_comm=a b next_pid=42 next_prio=120",
            "  <...>-42  [000] d.h..  26.050003: hrtimer_expire_entry: hrtimer=0 \
             function=sched_cfs_period_timer now=1",
            "  <...>-42  [000] d.h..  26.052003: hrtimer_expire_entry: hrtimer=0 \
             function=tick_nohz_handler now=1",
            "  <...>-42  [000] d..2.  26.060000: sched_switch: prev_comm=a b prev_pid=42 \
             prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
            "  <idle>-0  [000] d.s2.  26.070000: sched_wakeup: comm=rcu pid=12 prio=98",
            "  <idle>-0  [000] d..2.  26.070005: sched_switch: prev_comm=swapper/0 prev_pid=0 \
             prev_prio=120 prev_state=R ==> next_comm=rcu next_pid=12 next_prio=98",
            "  rcu-12  [000] d..2.  26.070015: sched_switch: prev_comm=rcu prev_pid=12 \
             prev_prio=98 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
            "  <idle>-0  [000] d.h2.  26.080000: sched_wakeup: comm=ktimers/0 pid=13 prio=98",
            "  <idle>-0  [000] d..2.  26.080005: sched_switch: prev_comm=swapper/0 prev_pid=0 \
             prev_prio=120 prev_state=R ==> next_comm=ktimers/0 next_pid=13 next_prio=98",
            "  ktimers/0-13  [000] d.s2.  26.080010: sched_wakeup: comm=a b pid=42 prio=120",
            "  ktimers/0-13  [000] d..2.  26.080015: sched_switch: prev_comm=ktimers/0 prev_pid=13 \
             prev_prio=98 prev_state=R ==> next_comm=a b next_pid=42 next_prio=120",
            "  <...>-42  [000] d..2.  26.090000: sched_switch: prev_comm=a b prev_pid=42 \
             prev_prio=120 prev_state=R ==> next_comm=ktimers/0 next_pid=13 next_prio=98",
            "  ktimers/0-13  [000] d..2.  26.090005: sched_switch: prev_comm=ktimers/0 prev_pid=13 \
             prev_prio=98 prev_state=S ==> next_comm=a b next_pid=42 next_prio=120",
            "  <...>-42  [000] d..2.  26.095000: sched_switch: prev_comm=a b prev_pid=42 \
             prev_prio=120 prev_state=R ==> next_comm=ktimers/0 next_pid=13 next_prio=98",
            "  ktimers/0-13  [000] d.h2.  26.095003: sched_wakeup: comm=a b pid=42 prio=120",
            "  ktimers/0-13  [000] d..2.  26.095005: sched_switch: prev_comm=ktimers/0 prev_pid=13 \
             prev_prio=98 prev_state=S ==> next_comm=a b next_pid=42 next_prio=120",
            "  <...>-42  [000] nonsense: sched_switch",
            "  <...>-42  [000] d..2.  27.060000: sched_process_exit: comm=late pid=42",
        ] {
            reader.read_line(line);
        }
        assert_eq!(reader.lost, 2);
        let told: Vec<_> =
            reader.recorded.events.iter().map(|event| (event.time_ns, event.what)).collect();
        let (init, rcu, timers) = (1, 2, 3);
        assert_eq!(
            told,
            [
                (20_000, What::Sleep { task: init }),
                (20_000, What::Switch { next: Some(0) }),
                (50_003_000, What::Period { group: 1 }),
                (60_000_000, What::Sleep { task: 0 }),
                (60_000_000, What::Switch { next: None }),
                (70_000_000, What::Wake { task: rcu }),
                (70_005_000, What::Switch { next: Some(rcu) }),
                (70_015_000, What::Sleep { task: rcu }),
                (70_015_000, What::Switch { next: None }),
                (80_000_000, What::Wake { task: timers }),
                (80_005_000, What::Switch { next: Some(timers) }),
                (80_010_000, What::Wake { task: 0 }),
                (80_015_000, What::Switch { next: Some(0) }),
                (90_000_000, What::Switch { next: Some(timers) }),
                (90_005_000, What::Sleep { task: timers }),
                (90_005_000, What::Switch { next: Some(0) }),
                (95_000_000, What::Switch { next: Some(timers) }),
                (95_003_000, What::Wake { task: 0 }),
                (95_005_000, What::Sleep { task: timers }),
                (95_005_000, What::Switch { next: Some(0) }),
            ]
        );
        assert_eq!(reader.recorded.names.tasks, ["hog", "(init)", "(rcu)", "(ktimers/0)"]);
        // Work of the timer thread for the workload is left out, also after a preemption; what an
        // interrupt does meanwhile does not count for the thread.
        let alone = [(70_000_000, 70_005_000, 70_015_000), (95_000_000, 95_000_000, 95_005_000)];
        assert_eq!(reader.others_ns, alone);
        // Woken before the start, the task waited for 20 us of the run.
        assert_eq!(reader.end().stalls_ns, [20_000]);
    }
}
