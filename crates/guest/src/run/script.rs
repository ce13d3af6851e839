//! Timed actions of the controller during a run: starts, arrivals, interventions, samples, and the
//! wait for the end.

use super::collect;
use crate::cgroup::open_write;
use crate::run::{Error, Run, Start, initial};
use crate::sys;
use crate::world::attributes::{move_task, set_affinity, set_class, set_nice};
use crate::world::{LIVE, Slot, World};
use cpumax_limit::Limit;
use cpumax_workload::{Action, Arrivals, Domain, Signal, Stream};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;

/// Time from a task's death until the controller, which waits for it, has read the clock, ns.
const WAKEUP_NS: u64 = 12_000;

/// All timed actions, ordered by time.
pub(crate) struct Script {
    queue: BinaryHeap<Reverse<(u64, u64, Step)>>,
    numbers: u64,
    arrivals: Vec<Arriving>,
    /// By intervention: open files and the texts to write to them.
    writes: Vec<Vec<(i32, String)>>,
    starts: Vec<Start>,
    has_kills: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A task starts: index in [`Script::starts`].
    Start(usize),
    /// A token of a source arrives: index of the source.
    Arrival(usize),
    /// A change from outside: index of the intervention.
    Intervention(usize),
    /// A period of a limited group ends, and its usage is read: index of the group.
    Sample(usize),
}

struct Arriving {
    stream: Stream,
    arrived: u64,
}

impl Script {
    /// Makes the list of all timed actions of a run: starts, arrivals, interventions, samples of
    /// usage. Opens the files that interventions write. Blocks SIGCHLD if tasks are killed.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn new(run: &Run) -> Result<Script, Error> {
        let workload = &run.world.workload;
        let mut script = Script {
            queue: BinaryHeap::new(),
            numbers: 0,
            arrivals: Vec::new(),
            writes: limit_writes(run)?,
            starts: initial(workload).filter(|start| start.at_ns > 0).collect(),
            has_kills: false,
        };
        for ix in 0..script.starts.len() {
            script.push(script.starts[ix].at_ns, Step::Start(ix));
        }
        for (ix, source) in workload.sources.iter().enumerate() {
            let stream = Stream::new(run.world.seed, Domain::Source, ix as u64);
            script.arrivals.push(Arriving { stream, arrived: 0 });
            script.schedule_arrival(run.world, ix, source.start_ns);
        }
        for (ix, intervention) in workload.interventions.iter().enumerate() {
            script.push(intervention.at_ns, Step::Intervention(ix));
            script.has_kills |=
                matches!(intervention.action, Action::Signal { signal: Signal::Kill, .. });
        }
        if run.sample_periods {
            for (ix, group) in workload.groups.iter().enumerate() {
                if group.limit.quota_ns().is_some() {
                    script.push(group.limit.period_ns(), Step::Sample(ix));
                }
            }
        }
        if script.has_kills {
            block_child_signal();
        }
        Ok(script)
    }

    /// Queues a step for `at_ns` since the start of the run; steps of one time are performed in the
    /// order in which they were added.
    fn push(&mut self, at_ns: u64, step: Step) {
        self.queue.push(Reverse((at_ns, self.numbers, step)));
        self.numbers += 1;
    }

    /// Performs every action at its time (starts, arrivals, interventions, samples), noting when
    /// the controller was active, and waits for the end of the run.
    ///
    /// # Errors
    /// A pipe has no room for an arriving token, the kernel refuses a write, or a counter cannot be
    /// read.
    pub fn perform_all(mut self, run: &mut Run) -> Result<(), Error> {
        let duration_ns = run.world.workload.duration_ns;
        while let Some(&Reverse((at_ns, _, step))) = self.queue.peek() {
            if at_ns >= duration_ns {
                break;
            }
            self.queue.pop();
            self.wait(run, run.start_ns + at_ns);
            self.perform(run, at_ns, step)?;
            let done_ns = run.world.now_ns();
            run.outside.note_active(at_ns, done_ns);
            run.outside.note_action(at_ns, done_ns);
        }
        self.wait(run, run.end_ns);
        Ok(())
    }

    /// Sleeps until `at_ns` (`CLOCK_MONOTONIC`). If the workload kills tasks, reaps those that die
    /// meanwhile, and notes when the controller was active for that.
    fn wait(&self, run: &mut Run, at_ns: u64) {
        if !self.has_kills {
            // Sleeping until a past time would let another task run for a moment.
            if sys::monotonic_ns() >= at_ns {
                return;
            }
            while sys::sleep_until(at_ns) == -(libc::EINTR as isize) {}
            return;
        }
        // Reap a killed task when it dies, not at the end of the run.
        loop {
            let left_ns = at_ns.saturating_sub(sys::monotonic_ns());
            if left_ns == 0 {
                return;
            }
            let died = wait_child_signal(left_ns);
            let from_ns = run.world.now_ns().saturating_sub(WAKEUP_NS);
            collect::reap(run.world);
            if died {
                run.outside.note_active(from_ns, run.world.now_ns());
            }
        }
    }

    /// Performs one step that was due at `at_ns` (since the start of the run), and schedules the
    /// next one of its source, intervention or group.
    ///
    /// # Errors
    /// A pipe has no room for an arriving token, the kernel refuses a write, or a counter cannot be
    /// read.
    fn perform(&mut self, run: &mut Run, at_ns: u64, step: Step) -> Result<(), Error> {
        match step {
            Step::Start(ix) => run.start_task(&self.starts[ix]),
            Step::Arrival(ix) => {
                let source = &run.world.workload.sources[ix];
                let channel = &run.world.channels[source.channel as usize];
                if !channel.has_room() {
                    let name = &source.name;
                    return Err(Error::Failed(format!(
                        "source {name:?}: a pipe cannot hold more waiting tokens"
                    )));
                }
                channel.put(1, at_ns);
                self.arrivals[ix].arrived += 1;
                self.schedule_arrival(run.world, ix, at_ns);
            }
            Step::Intervention(ix) => {
                let intervention = &run.world.workload.interventions[ix];
                self.intervene(run.world, ix, intervention.action)?;
                if let Some(every_ns) = intervention.every_ns {
                    let next_ns = at_ns.saturating_add(every_ns.max(1));
                    if next_ns < intervention.until_ns {
                        self.push(next_ns, step);
                    }
                }
            }
            Step::Sample(ix) => {
                collect::sample_usage(run, ix)?;
                self.push(at_ns + run.world.workload.groups[ix].limit.period_ns(), step);
            }
        }
        Ok(())
    }

    /// Draws when a source's next token arrives, the one before having arrived at `from_ns` (since
    /// the start), and queues that. None follows after the source's count, or its last listed time.
    fn schedule_arrival(&mut self, world: &World, ix: usize, from_ns: u64) {
        let source = &world.workload.sources[ix];
        let arriving = &mut self.arrivals[ix];
        if arriving.arrived >= source.count {
            return;
        }
        let at_ns = match &source.arrivals {
            Arrivals::At(times) => match times.get(arriving.arrived as usize) {
                Some(&time) => time.saturating_add(source.start_ns),
                None => return,
            },
            Arrivals::Between(span) => from_ns
                .saturating_add(span.draw(&world.workload.distributions, &mut arriving.stream)),
        };
        self.push(at_ns, Step::Arrival(ix));
    }

    /// Makes one change from outside at once: writes prepared files; signals, moves or changes the
    /// living tasks of a kind; or switches a CPU on or off. A task that cannot be changed is left
    /// as it is.
    ///
    /// # Errors
    /// The kernel refuses a write to the files of a group or a CPU.
    fn intervene(&self, world: &World, ix: usize, action: Action) -> Result<(), Error> {
        match action {
            Action::WriteLimit { .. } | Action::WriteWeight { .. } => {
                for (fd, text) in &self.writes[ix] {
                    let written = sys::write(*fd, text.as_ptr(), text.len());
                    if written < 0 {
                        let error = std::io::Error::from_raw_os_error(-written as i32);
                        return Err(Error::Failed(format!("writing {text:?}: {error}")));
                    }
                }
            }
            Action::Signal { kind, signal } => {
                let signal = match signal {
                    Signal::Kill => libc::SIGKILL,
                    Signal::Stop => libc::SIGSTOP,
                    Signal::Cont => libc::SIGCONT,
                };
                world.each_living(kind, |slot| {
                    sys::kill(slot.pid.load(Relaxed), signal);
                });
            }
            Action::Move { kind, group } => {
                world.each_living(kind, |slot| move_task(world, slot, group));
            }
            Action::SetAffinity { kind, cpus } => {
                world.each_living(kind, |slot| set_affinity(world, slot, cpus as u16 + 1));
            }
            Action::SetNice { kind, nice } => {
                world.each_living(kind, |slot| set_nice(slot, nice));
            }
            Action::SetClass { kind, class } => {
                world.each_living(kind, |slot| set_class(slot, class));
            }
            Action::CpuOffline { cpu } => set_online(cpu, "0")?,
            Action::CpuOnline { cpu } => set_online(cpu, "1")?,
        }
        Ok(())
    }
}

impl World {
    /// Calls `act` for every living task of a kind, in order of slots.
    pub fn each_living(&self, kind: u32, act: impl Fn(&Slot)) {
        let is_it = |slot: &&Slot| {
            slot.state.load(Relaxed) == LIVE
                && slot.kind.load(Relaxed) == kind
                && slot.pid.load(Relaxed) != 0
        };
        self.slots.iter().filter(is_it).for_each(act);
    }
}

/// The files that each intervention on a limit or weight writes, opened for writing, and the texts,
/// in order of interventions. Limits are followed through the run, as the order of writes depends
/// on the old limit.
///
/// # Errors
/// A file cannot be opened.
fn limit_writes(run: &Run) -> Result<Vec<Vec<(i32, String)>>, String> {
    let workload = &run.world.workload;
    let hierarchy = &run.env.hierarchy;
    let mut limits: Vec<Limit> = workload.groups.iter().map(|group| group.limit).collect();
    let mut all = Vec::new();
    for intervention in &workload.interventions {
        let writes = match intervention.action {
            Action::WriteLimit { group, limit } => {
                let old = std::mem::replace(&mut limits[group as usize], limit);
                hierarchy.limit_writes(&run.groups[group as usize], old, limit)
            }
            Action::WriteWeight { group, weight } => {
                vec![hierarchy.weight_write(&run.groups[group as usize], weight)]
            }
            _ => Vec::new(),
        };
        let open =
            |(path, text): (std::path::PathBuf, String)| open_write(&path).map(|fd| (fd, text));
        all.push(writes.into_iter().map(open).collect::<Result<_, _>>()?);
    }
    Ok(all)
}

/// Switches a CPU on (`1`) or off (`0`) by sysfs.
///
/// # Errors
/// The kernel refuses.
fn set_online(cpu: u16, text: &str) -> Result<(), Error> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    crate::cgroup::write(std::path::Path::new(&path), text).map_err(Error::Failed)
}

/// The set of signals that holds SIGCHLD alone.
fn child_signal() -> libc::sigset_t {
    // SAFETY: all zeroes is a value of it, and both calls have room to write to.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    }
}

/// Blocks SIGCHLD for this process, so that `wait_child_signal` can take it.
fn block_child_signal() {
    let set = child_signal();
    // SAFETY: the set is one; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Waits at most `max_ns` for SIGCHLD; returns whether it came.
fn wait_child_signal(max_ns: u64) -> bool {
    let set = child_signal();
    let time = libc::timespec {
        tv_sec: (max_ns / 1_000_000_000) as i64,
        tv_nsec: (max_ns % 1_000_000_000) as i64,
    };
    // SAFETY: set and time are values of their types; what came is not asked for.
    unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time) > 0 }
}
