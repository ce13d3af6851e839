//! Threads come, are named, and are told of by perf itself.

use super::{State, Timeline};
use crate::event::{Event, Named, Note};
use crate::thread::{Birth, Cause, Step};
use cpumax_workload::bounds::MAX_GROUP_DEPTH;

/// The kernel's own bound on paths.
const PATH_MAX_BYTES: usize = 4096;

impl Timeline {
    pub(super) fn named(&mut self, named: &Named<'_>, now_ns: u64) {
        if named.tid <= 0 {
            return;
        }
        self.rename(named.tid, named.comm, now_ns);
        self.thread_of(named.tid).prio = named.prio;
    }

    /// Takes a new name. What `perf` did before it became the program it was told to start is
    /// forgotten.
    pub(super) fn rename(&mut self, tid: i32, comm: &str, now_ns: u64) {
        let first_ns = self.first_ns;
        let thread = self.thread_of(tid);
        if thread.comm == comm {
            return;
        }
        let was_perf = thread.is_perf();
        comm.clone_into(&mut thread.comm);
        if !was_perf || thread.is_perf() {
            return;
        }
        let waits = thread.forget();
        thread.birth = Birth::Present { at_ns: now_ns.saturating_sub(first_ns) };
        for wait in waits {
            if let Cause::Thread { edge } = wait.cause {
                self.edges[edge as usize].used = false;
            }
        }
        if let State::Running(on) = &mut self.live(tid).state {
            on.restart(now_ns);
        }
    }

    /// A new thread may run. Where its fork was not seen, it begins here.
    pub(super) fn started(&mut self, child: &Named<'_>, now_ns: u64) {
        if child.tid <= 0 {
            return;
        }
        self.named(child, now_ns);
        let live = self.live(child.tid);
        if matches!(live.state, State::Unknown | State::Dead) {
            live.state = State::Ready;
            let at_ns = now_ns - self.first_ns;
            self.thread_of(child.tid).birth = Birth::Present { at_ns };
        }
    }

    pub(super) fn fork(&mut self, event: &Event<'_>, child: i32, child_comm: &str) {
        if child <= 0 {
            return;
        }
        let fresh = match self.live.get(&child) {
            None => true,
            Some(live) => !matches!(live.state, State::Unknown),
        };
        if fresh {
            self.live.remove(&child);
        }
        let parent = (event.tid > 0).then_some(event.tid);
        let parent_kthread =
            parent.is_some_and(|tid| self.thread_of(tid).kthread) || event.tid == 2;
        let parent_ix = parent.map(|tid| self.live(tid).thread);
        let live = self.live(child);
        live.state = State::Ready;
        let ix = live.thread;
        let at_ns = event.time_ns - self.first_ns;
        let thread = self.thread_of(child);
        child_comm.clone_into(&mut thread.comm);
        thread.kthread = parent_kthread;
        thread.birth = match parent_ix {
            Some(parent) => Birth::Forked { parent, at_ns },
            None => Birth::Present { at_ns },
        };
        if let Some(parent) = parent {
            self.point(parent, event.time_ns, Step::Fork(ix));
        }
    }

    pub(super) fn take_note(&mut self, note: &Note<'_>) {
        match *note {
            Note::Comm { pid, tid, comm } if tid > 0 => {
                let now_ns = self.last_ns;
                self.rename(tid, comm, now_ns);
                self.thread_of(tid).pid = Some(pid);
            }
            Note::Task { pid, tid, parent_pid } if tid > 0 => {
                if let Some(live) = self.live.get(&tid)
                    && matches!(live.state, State::Dead)
                {
                    self.live.remove(&tid);
                }
                let thread = self.thread_of(tid);
                thread.pid = Some(pid);
                thread.parent_pid = Some(parent_pid).filter(|parent| *parent != pid);
                thread.kthread |= parent_pid == 2 || pid == 2;
            }
            Note::Comm { .. } | Note::Task { .. } => {}
            Note::Cgroup { id, path } => self.group(id, path),
            Note::LostOn { cpu, events } => self.lost_on(cpu, events),
            Note::Overwritten { events } => self.overwritten(events),
            Note::Lost { events, by_the_kernel } => self.defects.lost(events, by_the_kernel),
        }
    }

    fn group(&mut self, id: u64, path: &str) {
        let depth = path.split('/').filter(|part| !part.is_empty()).count();
        if depth as u64 > MAX_GROUP_DEPTH || path.len() > PATH_MAX_BYTES {
            self.refused = Some(format!(
                "a control group's path has {} bytes and is {depth} groups deep; at most \
                 {PATH_MAX_BYTES} bytes and {MAX_GROUP_DEPTH} groups are possible",
                path.len()
            ));
            return;
        }
        self.groups.insert(id, path.to_owned());
    }
}
