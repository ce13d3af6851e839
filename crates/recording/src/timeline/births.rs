//! Threads begin, take names, and are announced by perf.

use super::signs::TWICE_NS;
use super::size::PATHS_MAX_BYTES;
use super::{State, Timeline};
use crate::event::{Event, Note, ThreadRef};
use crate::thread::{Birth, Cause, Step, Thread};
use cpumax_workload::bounds::{MAX_GROUP_DEPTH, MAX_GROUPS};

/// The kernel's own bound on paths.
const PATH_MAX_BYTES: usize = 4096;

/// Most threads, and most processes, that perf may announce.
const ANNOUNCED_MAX: usize = 1 << 18;
/// Clocks of two CPUs differ by less: a thread may run this long before its birth, ns.
const BIRTH_NS: u64 = 10_000_000;
/// Longer names are cut; no kernel has any.
const COMM_MAX_BYTES: usize = 64;

/// A thread that perf announced and that has not done anything yet.
#[derive(Debug, Default)]
pub(super) struct Announced {
    pid: Option<i32>,
    parent_pid: Option<i32>,
    comm: Box<str>,
    is_kthread: bool,
}

impl Announced {
    /// The thread with what was announced of it.
    pub(super) fn into_thread(self, tid: i32) -> Thread {
        let mut thread = Thread::new(tid);
        thread.kthread |= self.is_kthread;
        thread.comm = self.comm.into();
        (thread.pid, thread.parent_pid) = (self.pid, self.parent_pid);
        thread
    }
}

impl Timeline {
    /// Takes over name and priority from an event; a new name acts as [`Timeline::rename`] does. An
    /// empty name leaves the known one, and the idle thread is ignored.
    pub(super) fn set_name_and_prio(&mut self, named: &ThreadRef<'_>, now_ns: u64) {
        if named.tid <= 0 {
            return;
        }
        // A thread that was on a CPU when the recording began has no name yet.
        if !named.comm.is_empty() {
            self.rename(named.tid, named.comm, now_ns);
        }
        self.thread_of(named.tid).prio = named.prio;
    }

    /// Gives a thread a new name, cut to `COMM_MAX_BYTES`. If it has used enough CPU time, a new
    /// part of it begins at `now_ns`. A thread of `perf` that becomes the program it starts forgets
    /// what it did before, and counts as present from `now_ns` on.
    pub(super) fn rename(&mut self, tid: i32, comm: &str, now_ns: u64) {
        let comm = start_of(comm);
        let first_ns = self.first_ns;
        let thread = self.thread_of(tid);
        if thread.comm == comm {
            return;
        }
        let was_perf = thread.is_perf();
        let is_named = !thread.comm.is_empty();
        if is_named && self.is_worth_a_part(tid) {
            self.begin_part(tid, now_ns);
        }
        let thread = self.thread_of(tid);
        comm.clone_into(&mut thread.comm);
        if !was_perf || thread.is_perf() {
            return;
        }
        let waits = thread.forget();
        thread.birth = Birth::Present { at_ns: now_ns.saturating_sub(first_ns) };
        for wait in waits {
            if let Cause::Thread { edge } = wait.cause {
                self.edges[edge as usize].set_used(false);
            }
        }
        if let State::Running(on) = &mut self.live(tid).state {
            on.restart(now_ns);
        }
    }

    /// Clears the mark "used" of wakeups that no thread's steps make, as their waker was forgotten
    /// or left out. The waits that they ended count as ended from outside.
    pub(super) fn drop_forgotten_wakeups(&mut self) {
        let mut is_made = vec![false; self.edges.len()];
        for step in self.threads.iter().flat_map(|thread| thread.steps.iter()) {
            if let Step::Wake(edge) = step {
                is_made[edge as usize] = true;
            }
        }
        for (edge, is_made) in self.edges.iter_mut().zip(is_made) {
            edge.set_used(edge.is_used() && is_made);
        }
    }

    /// A new thread may run: one not seen before becomes ready, and without a recorded fork it
    /// begins here. An older thread with the same id is retired.
    pub(super) fn begin_thread(&mut self, child: &ThreadRef<'_>, cpu: Option<u32>, now_ns: u64) {
        if child.tid <= 0 {
            return;
        }
        self.name_cpu(cpu, true);
        if self.is_used_again(child.tid, now_ns) {
            self.retire(child.tid, now_ns);
        }
        self.set_name_and_prio(child, now_ns);
        let live = self.live(child.tid);
        if matches!(live.state, State::Unknown | State::Dead) {
            live.state = State::Ready { since_ns: now_ns };
            let at_ns = now_ns - self.first_ns;
            self.thread_of(child.tid).birth = Birth::Present { at_ns };
        }
    }

    /// Whether the known thread of this id cannot be the one that begins now: it has died, or ran
    /// more than 10 ms after its birth.
    fn is_used_again(&self, tid: i32, now_ns: u64) -> bool {
        let Some(live) = self.live.get(&tid) else { return false };
        let thread = &self.threads[live.thread as usize];
        let age_ns = now_ns.saturating_sub(thread.birth_ns(self.first_ns));
        match live.state {
            State::Unknown => false,
            State::Dead => true,
            _ => thread.stays > 0 && age_ns > BIRTH_NS,
        }
    }

    /// A thread forks `child`, which is ready from now on, and a kernel thread if its parent is
    /// one. An event that comes twice is counted as a defect; an older thread with the id of the
    /// child is retired.
    pub(super) fn apply_fork(&mut self, event: &Event<'_>, child: i32, child_comm: &str) {
        if child <= 0 {
            return;
        }
        let age_ns = self.live.get(&child).map(|live| {
            let thread = &self.threads[live.thread as usize];
            let is_forked = matches!(thread.birth, Birth::Forked { .. }) && thread.stays == 0;
            (is_forked, event.time_ns.saturating_sub(thread.birth_ns(self.first_ns)))
        });
        if age_ns.is_some_and(|(is_forked, age_ns)| is_forked && age_ns <= TWICE_NS) {
            self.defects.doubled_events += 1;
            return;
        }
        if self.live.get(&child).is_some_and(|live| !matches!(live.state, State::Unknown)) {
            self.retire(child, event.time_ns);
        }
        let parent = (event.tid > 0).then_some(event.tid);
        let parent_kthread =
            parent.is_some_and(|tid| self.thread_of(tid).kthread) || event.tid == 2;
        let parent_ix = parent.map(|tid| self.live(tid).thread);
        let live = self.live(child);
        live.state = State::Ready { since_ns: event.time_ns };
        let ix = live.thread;
        let at_ns = event.time_ns - self.first_ns;
        let thread = self.thread_of(child);
        start_of(child_comm).clone_into(&mut thread.comm);
        thread.kthread = parent_kthread;
        thread.birth = match parent_ix {
            Some(parent) => Birth::Forked { parent, at_ns },
            None => Birth::Present { at_ns },
        };
        if let Some(parent) = parent {
            self.add_step(parent, event.time_ns, Step::Fork(ix));
        }
    }

    /// Applies what perf says beside events: names, processes and parents of threads, paths of
    /// groups, lost and overwritten events. Threads without events yet are only announced.
    pub(super) fn apply_note(&mut self, note: &Note<'_>) {
        match *note {
            Note::Comm { pid, tid, comm } if tid > 0 => {
                if let Some(announced) = self.announced(tid) {
                    announced.comm = start_of(comm).into();
                    announced.pid = Some(pid);
                } else if self.live.contains_key(&tid) {
                    let now_ns = self.last_ns;
                    self.rename(tid, comm, now_ns);
                    self.thread_of(tid).pid = Some(pid);
                }
            }
            Note::Task { pid, tid, parent_pid } if tid > 0 => {
                if let Some(live) = self.live.get(&tid)
                    && matches!(live.state, State::Dead)
                {
                    self.live.remove(&tid);
                }
                let parent = Some(parent_pid).filter(|parent| *parent != pid);
                let is_kthread = parent_pid == 2 || pid == 2;
                if let Some(announced) = self.announced(tid) {
                    (announced.pid, announced.parent_pid) = (Some(pid), parent);
                    announced.is_kthread |= is_kthread;
                } else if self.live.contains_key(&tid) {
                    let thread = self.thread_of(tid);
                    (thread.pid, thread.parent_pid) = (Some(pid), parent);
                    thread.kthread |= is_kthread;
                }
                if let Some(parent) = parent
                    && self.parent_pids.len() < ANNOUNCED_MAX
                {
                    self.parent_pids.insert(pid, parent);
                }
            }
            Note::Comm { .. } | Note::Task { .. } => {}
            Note::Cgroup { id, path } => self.add_group_path(id, path),
            Note::LostOn { cpu, events } => self.note_lost_on(cpu, events),
            Note::Overwritten { events } => self.note_overwritten(events),
            Note::Lost { events, by_the_kernel } => self.defects.add_lost(events, by_the_kernel),
        }
    }

    /// The announcement of a thread that has not done anything; `None` if it has, or beyond the
    /// bound, which refuses the recording.
    fn announced(&mut self, tid: i32) -> Option<&mut Announced> {
        if self.live.contains_key(&tid) {
            return None;
        }
        if self.announced.len() >= ANNOUNCED_MAX && !self.announced.contains_key(&tid) {
            self.refused = Some(format!(
                "it tells of more than {ANNOUNCED_MAX} threads, the most that are read"
            ));
            return None;
        }
        Some(self.announced.entry(tid).or_default())
    }

    /// Notes the path of a group in place of an earlier one; beyond the bounds the recording will
    /// be refused.
    fn add_group_path(&mut self, id: u64, path: &str) {
        let depth = levels(path);
        if depth > MAX_GROUP_DEPTH || path.len() > PATH_MAX_BYTES {
            self.refused = Some(format!(
                "a control group's path has {} bytes and is {depth} groups deep; at most \
                 {PATH_MAX_BYTES} bytes and {MAX_GROUP_DEPTH} groups are possible",
                path.len()
            ));
            return;
        }
        if let Some(before) = self.groups.insert(id, path.to_owned()) {
            self.path_bytes -= before.len();
            self.group_levels -= levels(&before);
        }
        self.path_bytes += path.len();
        self.group_levels += depth;
        if self.groups.len() as u64 > MAX_GROUPS || self.path_bytes > PATHS_MAX_BYTES {
            self.refused = Some(format!(
                "it tells of more than {MAX_GROUPS} control groups, or of more than {} MiB of \
                 their paths",
                PATHS_MAX_BYTES >> 20
            ));
            self.groups.remove(&id);
            self.path_bytes -= path.len();
            self.group_levels -= depth;
        }
    }
}

/// Depth of a group by its path; 0 for the root.
fn levels(path: &str) -> u64 {
    path.split('/').filter(|part| !part.is_empty()).count() as u64
}

/// The first 64 bytes of a name, at a character boundary.
fn start_of(comm: &str) -> &str {
    let most = comm.len().min(COMM_MAX_BYTES);
    let end = (0..=most).rev().find(|at| comm.is_char_boundary(*at));
    &comm[..end.unwrap_or(0)]
}
