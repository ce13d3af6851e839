//! Builds a workload from a recording: groups, one task for each thread, and the channels between
//! them.

use crate::classify::{self, Plan};
use crate::recording::Recording;
use crate::requests::asking::SleepEvidence;
use crate::requests::evidence::{self, Clients, Loop};
use crate::requests::guess::Guess;
use crate::requests::{REQUESTS_MIN, Request, Requests, Service, Traffic, outside};
use crate::selector::{Selector, Subject};
use crate::summary::Waits;
use crate::thread::{Birth, Step, Thread};
use cpumax_workload::{
    Affinity, Arrivals, ChannelIx, ChannelSpec, Class, CpuSet, GroupIx, MachineSpec, Op, Parts,
    Source, TaskIx, TaskSpec, Workload, as_name,
};
use std::collections::{BTreeMap, BTreeSet};

mod affinity;
mod groups;
mod guessed;
mod in_force;
pub(crate) mod jobs;
mod kernel_threads;
mod machine;
mod program;
mod sections;

use affinity::Allowed;
use groups::Groups;
use program::ProgramOptions;
use sections::Section;

/// Bytes kept of a thread's name, so that its id and number fit beside it.
const MOST_COMM_BYTES: usize = 200;

const ANCESTORS_MOST: usize = 256;

/// Whether `path` is the group `group` or below it.
fn is_in(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The placement of threads into groups, and knowledge that overrides the recording.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Threads that match one of these go into `group`. Other threads recorded below its parent
    /// group stay there; the rest goes into the root group. If empty, every thread is in its
    /// recorded control group.
    pub limited: Vec<Selector>,
    /// Path of the group for the chosen threads; an empty one means `/limited`.
    pub group: String,
    /// Threads whose timers are known to follow a clock, or to be lengths of time. The first match
    /// counts.
    pub clocks: Vec<(Selector, Clock)>,
    /// Threads that follow a clock and leave out the work for which they are late.
    pub skip_late: Vec<Selector>,
    /// Whether chosen threads that wake up at multiples of a period also leave out late work.
    pub skip_periodic: bool,
    /// End of the load of the chosen threads, ns since the recording began. They end at a wait that
    /// lasts beyond it. `None`: the end of the recording.
    pub until_ns: Option<u64>,
    /// How clients are known to ask; `None`: as the recording shows.
    pub clients: Option<Clients>,
    /// CPUs that the chosen threads may use; `None`: as the recording shows.
    pub pin: Option<CpuSet>,
    /// Ticks a second of the machine, 100, 250, 300 or 1000; `None`: as recorded.
    pub hz: Option<u32>,
    /// CPUs of the machine; `None`: as recorded.
    pub cpus: Option<u16>,
}

/// How a thread waits for time to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Until points of time, whatever happened before: an open loop.
    Absolute,
    /// For a length of time from the beginning of the wait: a closed loop.
    Relative,
}

/// Parts of the workload, by index of the thread.
struct TaskMap {
    /// `None`: the thread is not in the workload.
    tasks: Vec<Option<TaskIx>>,
    groups: Vec<GroupIx>,
    /// Channel filled by the threads that wake this one.
    messages: Vec<Option<ChannelIx>>,
    /// Channel filled by a clock.
    arrivals: Vec<Option<ChannelIx>>,
    /// The thread (index) that starts this one, if it is in the workload.
    parents: Vec<Option<u32>>,
    /// Channel filled by requests, for threads that serve them.
    inboxes: Vec<Option<ChannelIx>>,
    /// The first of the channels of answers on connections within the group.
    replies: ChannelIx,
    serves_one: Vec<bool>,
    /// Whether the thread accepts connections for others to serve.
    accepts: Vec<bool>,
    /// Threads whose bursts are no requests, because the group's requests are known.
    silent: Vec<bool>,
}

impl TaskMap {
    /// A map without tasks, channels and groups; only the parents of threads are known.
    fn of(recording: &Recording) -> TaskMap {
        let threads = recording.threads.len();
        TaskMap {
            tasks: vec![None; threads],
            groups: vec![0; threads],
            messages: vec![None; threads],
            arrivals: vec![None; threads],
            parents: recording.parents(),
            inboxes: vec![None; threads],
            replies: 0,
            serves_one: vec![false; threads],
            accepts: vec![false; threads],
            silent: vec![false; threads],
        }
    }
}

impl Recording {
    /// Builds a workload of the recorded threads that ran, without those of perf. No group has a
    /// limit yet.
    ///
    /// A task exits where the recording ends. A selector that matches nothing leaves its group
    /// empty.
    ///
    /// # Errors
    ///
    /// The recording is larger or longer than a workload may be, or has groups that none may have.
    pub fn workload(&self, selection: &Selection) -> Result<Workload, cpumax_workload::Error> {
        self.build_parts(selection).0.try_into()
    }

    /// Builds the workload, with the requests that the limited group answered, if any are known.
    ///
    /// # Errors
    ///
    /// As [`Recording::workload`].
    pub fn import(
        &self,
        selection: &Selection,
    ) -> Result<(Workload, Option<Service>), cpumax_workload::Error> {
        let (parts, service) = self.build_parts(selection);
        Ok((parts.try_into()?, service))
    }

    /// Builds the groups, tasks, channels, sources and jobs of a workload, unchecked, and finds the
    /// service of the limited group. Chosen threads that begin after the end of the load are left
    /// out.
    fn build_parts(&self, selection: &Selection) -> (Parts, Option<Service>) {
        let names = self.names();
        let inside = self.inside(&names, selection);
        let over = |ix: &usize| inside[*ix] && self.begins_after(*ix, selection.until_ns);
        let included: Vec<usize> = (0..self.threads.len())
            .filter(|ix| self.is_included(*ix))
            .filter(|ix| !over(ix))
            .collect();
        let mut workload = self.empty_workload(selection);
        let allowed = Allowed::of(self, selection, &inside);
        let mut task_map = TaskMap::of(self);
        let mut groups = Groups::new(&mut workload);
        for (task, ix) in included.iter().enumerate() {
            task_map.tasks[*ix] = Some(task as TaskIx);
            task_map.groups[*ix] =
                groups.of(self.group_for(*ix, &names, selection).as_deref().unwrap_or("/"));
        }
        let plans: Vec<(usize, Vec<Plan>)> = included
            .iter()
            .map(|ix| (*ix, self.plans(*ix, &names, selection, &task_map.tasks)))
            .collect();
        let told = selection.clients.or_else(|| self.told_clients(&names, selection, &inside));
        let mut known = self.find_requests(&inside);
        let asking = known.as_ref().map(|_| SleepEvidence::of(self, &inside)).unwrap_or_default();
        if let Some(Requests::Recorded(traffic)) = &mut known {
            traffic.regroup(self, &asking, told);
            traffic.find_workers(self, &inside);
        }
        if let Some(known) = &known {
            known.pools(self, &inside).add_channels(&mut task_map, &mut workload);
            task_map.silent.clone_from(&inside);
        }
        for (ix, plans) in &plans {
            let lossy = self.skips_late_work(*ix, &names, plans, (selection, inside[*ix]));
            self.add_channels(*ix, &names[*ix], (plans, lossy), &mut task_map, &mut workload);
        }
        let served = known.map(|known| self.cut_sections(known, &plans, &task_map, &asking, told));
        if let Some((_, service, served)) = &served
            && service.clients == Loop::Open
            && evidence::shares_plan(served)
        {
            self.share_inboxes(&mut task_map);
        }
        for (ix, plans) in &plans {
            let until_ns = selection.until_ns.filter(|_| inside[*ix]);
            let plans = (&plans[..], until_ns);
            let (cpus, sets) = (workload.machine.cpus, &mut workload.cpu_sets);
            let cpus = self.affinity(&self.threads[*ix], inside[*ix], &allowed, cpus, sets);
            let task = self.build_task(*ix, &names[*ix], plans, &task_map, cpus);
            workload.tasks.push(task);
        }
        let service = served.map(|(sections, service, served)| {
            let open = service.clients == Loop::Open;
            self.add_jobs(&served, open, sections, &task_map, &mut workload);
            service
        });
        (workload, service)
    }

    /// Cuts the work of the group's threads into sections, each of a known request or of other
    /// work. Returns these, the service, and its requests by connection. `told`: how clients ask,
    /// as the caller says.
    fn cut_sections(
        &self,
        mut known: Requests,
        plans: &[(usize, Vec<Plan>)],
        task_map: &TaskMap,
        asking: &SleepEvidence,
        told: Option<Clients>,
    ) -> (Vec<Section>, Service, Vec<Vec<Request>>) {
        let closed = match told {
            Some(Clients { ask: Loop::Open, .. }) => None,
            Some(Clients { number: Some(number), .. }) => Some((number, true)),
            _ => asking.closed_clients().map(|number| (number, false)),
        };
        let (sections, served) = match &mut known {
            Requests::Recorded(traffic) => {
                (self.recorded_sections(traffic, plans, task_map), traffic.served(self))
            }
            Requests::Guessed(guess) => self.guessed_sections(guess, task_map, closed),
        };
        let costs_ns = sections::costs_ns(&sections, &served);
        let service = Service::of(&known, &served, asking, told);
        // Clients are a guess if they are on other machines, or if the recording does not tell
        // interrupts from threads.
        let is_guess =
            matches!(&known, Requests::Guessed(one) if !self.has_context || one.is_remote());
        let sure = service.sure && (!is_guess || told.is_some());
        let is_asleep = closed == Some((served.len(), false)) && service.clients == Loop::Closed;
        let or_as_many = asking.most_closed_clients().filter(|_| is_asleep);
        (sections, Service { sure, or_as_many, costs_ns, ..service }, served)
    }

    /// How clients ask by the first clock of the selection that matches a thread of the group, or
    /// one that wakes such a thread; `None` without one.
    fn told_clients(
        &self,
        names: &[String],
        selection: &Selection,
        inside: &[bool],
    ) -> Option<Clients> {
        if selection.clocks.is_empty() {
            return None;
        }
        let asks = self.edges.iter().filter(|edge| inside[edge.wakee() as usize]);
        let threads: BTreeSet<u32> = asks.flat_map(|edge| [edge.waker, edge.wakee()]).collect();
        let clocks = || selection.clocks.iter().map(|(selector, _)| selector);
        let of = |ix: u32| self.first_match(ix as usize, names, clocks());
        threads.into_iter().find_map(of).map(|at| match selection.clocks[at].1 {
            Clock::Absolute => Loop::Open.into(),
            Clock::Relative => Loop::Closed.into(),
        })
    }

    /// The requests of the threads `inside`, recorded or guessed; `None` if there are none. Fewer
    /// recorded than `REQUESTS_MIN` count only where none can be guessed.
    fn find_requests(&self, inside: &[bool]) -> Option<Requests> {
        let traffic = Traffic::of(self, inside);
        // A few recorded requests may be health checks, beside clients whose transfers are unknown.
        let guess = || Guess::of(self, inside).map(Requests::Guessed);
        match traffic.requests_known() {
            0 => guess(),
            few if few < REQUESTS_MIN => guess().or(Some(Requests::Recorded(traffic))),
            _ => Some(Requests::Recorded(traffic)),
        }
    }

    /// Tells for each thread whether it is in the group to be limited, or below; none is without a
    /// selection.
    pub(crate) fn inside(&self, names: &[String], selection: &Selection) -> Vec<bool> {
        let group = match (&selection.group[..], selection.limited.is_empty()) {
            ("", true) => return vec![false; self.threads.len()],
            ("", false) => "/limited",
            (group, _) => group.trim_end_matches('/'),
        };
        let inside = |ix| {
            self.is_included(ix)
                && self.group_for(ix, names, selection).is_some_and(|path| is_in(&path, group))
        };
        (0..self.threads.len()).map(inside).collect()
    }

    /// Whether the thread began later than `ns` since the recording began; false without `ns`.
    fn begins_after(&self, ix: usize, ns: Option<u64>) -> bool {
        ns.is_some_and(|ns| self.threads[ix].birth.at_ns() > ns)
    }

    /// Whether the thread leaves out work for which its clock finds it late: a selector says so, or
    /// it is chosen and wakes up at multiples of a period, where the selection lets those skip.
    fn skips_late_work(
        &self,
        ix: usize,
        names: &[String],
        plans: &[Plan],
        (selection, chosen): (&Selection, bool),
    ) -> bool {
        let periodic = || classify::is_periodic(&self.threads[ix], plans);
        self.first_match(ix, names, selection.skip_late.iter()).is_some()
            || selection.skip_periodic && chosen && periodic()
    }

    /// Number of waits of the chosen threads, and of those whose waker is known.
    pub fn waits(&self, selection: &Selection) -> Waits {
        let inside = self.inside(&self.names(), selection);
        let chosen = self.threads.iter().zip(inside).filter(|(_, inside)| *inside);
        chosen.fold(Waits::default(), |sum, (thread, _)| sum.with(thread))
    }

    /// Whether other programs talk with the chosen threads, as clients do.
    pub fn has_clients(&self, selection: &Selection) -> bool {
        outside::clients(self, &self.inside(&self.names(), selection)).contains(&true)
    }

    /// Whether some of the chosen threads wake up at multiples of a period.
    pub fn has_periodic(&self, selection: &Selection) -> bool {
        let names = self.names();
        let inside = self.inside(&names, selection);
        let tasks: Vec<Option<TaskIx>> =
            (0..self.threads.len()).map(|ix| self.is_included(ix).then_some(0)).collect();
        (0..self.threads.len()).filter(|ix| inside[*ix]).any(|ix| {
            let plans = self.plans(ix, &names, selection, &tasks);
            classify::is_periodic(&self.threads[ix], &plans)
        })
    }

    /// The index of the thread that forked each one, where parent and child agree and the parent is
    /// in the workload. A damaged file, or a `perf` that became another program, leaves forks
    /// without a child and children without a fork.
    fn parents(&self) -> Vec<Option<u32>> {
        let mut parents = vec![None; self.threads.len()];
        for ix in (0..self.threads.len()).filter(|ix| self.is_included(*ix)) {
            for step in self.threads[ix].steps.iter() {
                if let Step::Fork(child) = step
                    && let Birth::Forked { parent, .. } = self.threads[child as usize].birth
                    && parent as usize == ix
                {
                    parents[child as usize] = Some(parent);
                }
            }
        }
        parents
    }

    /// Whether the thread is part of the workload: it used CPU time, and is not of the recording
    /// tool.
    pub(crate) fn is_included(&self, ix: usize) -> bool {
        let thread = &self.threads[ix];
        thread.runtime_ns > 0 && !thread.is_perf()
    }

    /// `name/id` of each thread; the second and later threads of a name and id get `#2` and so on.
    /// The kernel's names have at most 15 bytes; names in a text may be longer, and are cut.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut seen = BTreeMap::<String, u32>::new();
        let name = |thread: &Thread| {
            let name = format!("{}/{}", as_name(&thread.comm, MOST_COMM_BYTES), thread.tid);
            let times = seen.entry(name.clone()).or_default();
            *times += 1;
            if *times == 1 { name } else { format!("{name}#{times}") }
        };
        self.threads.iter().map(name).collect()
    }

    /// Whether it is a kernel thread: marked as such, or without system calls and named like one.
    pub(crate) fn is_kernel(&self, thread: &Thread) -> bool {
        let called = self.has_syscalls && thread.starts_in_kernel.is_some();
        thread.kthread || (!called && kernel_threads::is_kernel_name(&thread.comm))
    }

    /// The path of the thread's group; `None` if it was not recorded.
    pub(crate) fn group_path(&self, thread: &Thread) -> Option<&str> {
        self.groups.get(&thread.group()?).map(String::as_str)
    }

    /// A workload without threads: the machine as recorded or as the selection says, and the length
    /// of the recording.
    fn empty_workload(&self, selection: &Selection) -> Parts {
        let cpus = selection.cpus.unwrap_or(self.cpus());
        let machine = machine::machine(cpus, self.machine.about.as_deref());
        Parts {
            machine: MachineSpec { hz: selection.hz.unwrap_or(machine.hz), ..machine },
            ..Parts::empty(
                &as_name(&self.name, usize::MAX),
                &format!("Threads recorded in {}.", self.name),
                self.span_ns().max(1),
            )
        }
    }

    /// Path of the group into which the thread goes; `None`: the root. Without patterns that is its
    /// recorded group. A thread that no pattern chooses keeps its recorded group only below the
    /// parent of the chosen ones.
    fn group_for(&self, ix: usize, names: &[String], selection: &Selection) -> Option<String> {
        let thread = &self.threads[ix];
        if selection.limited.is_empty() {
            return self.group_path(thread).filter(|path| path.starts_with('/')).map(str::to_owned);
        }
        let group = if selection.group.is_empty() { "/limited" } else { &selection.group };
        if self.first_match(ix, names, selection.limited.iter()).is_some() {
            return Some(group.to_owned());
        }
        // These threads share the limit of the parent group.
        let (above, _) = group.rsplit_once('/')?;
        let own = self.group_path(thread)?;
        (!above.is_empty() && is_in(own, above)).then(|| own.to_owned())
    }

    /// Index of the first selector that matches the thread's name, its name with id, its group, or
    /// a process among it and its ancestors; `None` if none does.
    fn first_match<'s>(
        &self,
        ix: usize,
        names: &[String],
        mut selectors: impl Iterator<Item = &'s Selector>,
    ) -> Option<usize> {
        let thread = &self.threads[ix];
        let subject = Subject {
            comm: &thread.comm,
            name: &names[ix],
            group: self.group_path(thread),
            pids: &[],
        };
        let mut pids = Vec::new();
        selectors.position(|selector| {
            if matches!(selector, Selector::Pid(_)) && pids.is_empty() {
                pids = self.pids(ix);
            }
            selector.matches(&Subject { pids: &pids, ..subject })
        })
    }

    /// Ids of the thread and its process, then of its ancestors, the nearest first; the search ends
    /// at `ANCESTORS_MOST` ids.
    fn pids(&self, ix: usize) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut next = Some(ix);
        while let Some(ix) = next.filter(|_| pids.len() < ANCESTORS_MOST) {
            let thread = &self.threads[ix];
            pids.push(thread.tid);
            pids.extend(thread.pid);
            next = match thread.birth {
                // Parents have lower indices than their children, so this ends.
                _ if thread.was.is_some_and(|was| (was as usize) < ix) => {
                    thread.was.map(|was| was as usize)
                }
                Birth::Forked { parent, .. } if (parent as usize) < ix => Some(parent as usize),
                _ => {
                    self.add_known_ancestors(thread, &mut pids);
                    None
                }
            };
        }
        pids
    }

    /// Appends to `pids` the ancestors of a process that existed before the recording, as perf
    /// recorded them, the nearest first; ends at an id that `pids` has already, or when it has
    /// `ANCESTORS_MOST`.
    fn add_known_ancestors(&self, thread: &Thread, pids: &mut Vec<i32>) {
        let told = |pid: i32| self.parent_pids.get(&pid).copied();
        // perf records the parent only of the first thread of a process.
        let mut next = thread.parent_pid.or_else(|| told(thread.pid?));
        let further = |pid: &i32, pids: &[i32]| pids.len() < ANCESTORS_MOST && !pids.contains(pid);
        while let Some(pid) = next.filter(|pid| further(pid, pids)) {
            pids.push(pid);
            next = told(pid);
        }
    }

    /// The plan of each wait of a thread, in order: for a message, an arrival, or a length of time.
    /// `tasks` tells which wakers are in the workload.
    fn plans(
        &self,
        ix: usize,
        names: &[String],
        selection: &Selection,
        tasks: &[Option<TaskIx>],
    ) -> Vec<Plan> {
        let thread = &self.threads[ix];
        let clocks = selection.clocks.iter().map(|(selector, _)| selector);
        let clock = self.first_match(ix, names, clocks).map(|at| selection.clocks[at].1);
        classify::plans(thread, self.is_kernel(thread), clock, |edge| {
            let edge = &self.edges[edge as usize];
            edge.is_used() && tasks[edge.waker as usize].is_some()
        })
    }

    /// Adds the channels on which a thread waits for messages and for its clock, and the source
    /// with the times of that clock; `lossy`: it skips late work. A thread that serves requests
    /// gets none.
    fn add_channels(
        &self,
        ix: usize,
        name: &str,
        (plans, lossy): (&[Plan], bool),
        task_map: &mut TaskMap,
        workload: &mut Parts,
    ) {
        let mut channel = |what: &str| {
            workload.channels.push(ChannelSpec {
                name: format!("{what} {name}"),
                capacity: u64::MAX,
                oldest_first: false,
            });
            workload.channels.len() as ChannelIx - 1
        };
        // A serving thread is driven by requests only.
        if task_map.inboxes[ix].is_some() {
            return;
        }
        if plans.contains(&Plan::Message) {
            task_map.messages[ix] = Some(channel("to"));
        }
        let waits = self.threads[ix].waits.iter().zip(plans);
        let times: Vec<u64> = waits
            .filter(|(_, plan)| **plan == Plan::Arrival)
            .map(|(wait, _)| wait.end_ns - self.first_ns)
            .collect();
        if times.is_empty() {
            return;
        }
        let arrivals = channel("arrivals at");
        task_map.arrivals[ix] = Some(arrivals);
        workload.sources.push(Source {
            name: format!("clock of {name}"),
            channel: arrivals,
            count: u64::MAX,
            arrivals: Arrivals::At(times),
            start_ns: 0,
            jobs: Vec::new(),
            lossy,
        });
    }

    /// The task of a thread, which serves its inbox or repeats its recorded steps. A forked task
    /// starts when its parent forks it. `until_ns`: as [`ProgramOptions::until_ns`].
    fn build_task(
        &self,
        ix: usize,
        name: &str,
        (plans, until_ns): (&[Plan], Option<u64>),
        task_map: &TaskMap,
        cpus: Affinity,
    ) -> TaskSpec {
        let thread = &self.threads[ix];
        let kernel = self.is_kernel(thread);
        let inbox = task_map.inboxes[ix];
        let parent = task_map.parents[ix].map(|parent| parent as usize).filter(|_| inbox.is_none());
        let starts_later = parent.is_none() && inbox.is_none();
        let start_ns = if starts_later { thread.birth.at_ns() } else { 0 };
        let moved = parent.is_some_and(|parent| task_map.groups[parent] != task_map.groups[ix]);
        let prio = thread.main_prio();
        let class = match prio {
            ..100 => Class::Rt,
            _ if kernel => Class::Kthread,
            _ => Class::Fair,
        };
        let options = ProgramOptions { kernel, moved, marks: !task_map.silent[ix], until_ns };
        TaskSpec {
            name: name.to_owned(),
            label: None,
            count: u32::from(parent.is_none()),
            group: task_map.groups[ix],
            class,
            nice: prio.saturating_sub(120).clamp(-20, 19) as i8,
            cpus,
            start_ns,
            stagger_ns: 0,
            slice_ns: None,
            program: match inbox {
                Some(channel) => vec![
                    Op::LoopStart { times: u64::MAX, end: 2 },
                    Op::Serve { channel },
                    Op::LoopEnd { start: 0 },
                ]
                .into(),
                None => self.program(ix, options, plans, task_map).into(),
            },
        }
    }

    /// The channel to which a wakeup must send in the workload; `None` if it ends no wait, or the
    /// woken thread waits for no messages.
    fn message_channel(&self, edge: u32, plans_to: &TaskMap) -> Option<ChannelIx> {
        let edge = &self.edges[edge as usize];
        edge.is_used().then(|| plans_to.messages[edge.wakee() as usize]).flatten()
    }
}
