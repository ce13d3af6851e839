//! The steps of one thread as instructions.
//!
//! A system call in which only time passes is one instruction. One in which the thread waits, wakes
//! or forks is entered and left. Each time from a wakeup to the next wait is a request, so that its
//! latency is recorded.

use super::{Recording, TaskMap};
use crate::classify::Plan;
use crate::thread::{Birth, Step, Wait};
use cpumax_workload::{Op, Span, Target};

/// Turns the steps of a thread into instructions.
pub(super) struct Builder {
    ops: Vec<Op>,
    /// Whether it is a kernel thread, always in the kernel.
    kernel: bool,
    /// Whether it is in a system call, as recorded.
    inside: bool,
    /// Whether it is in a system call, as the instructions have it.
    entered: bool,
    /// Time run since the last instruction, ns.
    run_ns: u64,
    work_ns: u64,
    marks: bool,
    in_request: bool,
}

/// Properties of a thread that its program depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramOptions {
    pub kernel: bool,
    /// Whether it is in another group than the thread that forks it.
    pub moved: bool,
    /// Whether each time from a wakeup to the next wait is a request.
    pub marks: bool,
    /// The thread ends at a wait that lasts beyond this time, ns since the recording began.
    pub until_ns: Option<u64>,
}

impl Recording {
    /// The program of a thread: its recorded steps as instructions, with waits as `plans` says, by
    /// index of the wait. It begins with a move into its group if `moved`, and ends before a wait
    /// beyond `until_ns`.
    pub(super) fn program(
        &self,
        ix: usize,
        options: ProgramOptions,
        plans: &[Plan],
        task_map: &TaskMap,
    ) -> Vec<Op> {
        let ProgramOptions { kernel, moved, marks, until_ns } = options;
        let thread = &self.threads[ix];
        let is_over = |wait: &Wait| {
            until_ns.is_some_and(|until_ns| wait.end_ns.saturating_sub(self.first_ns) > until_ns)
        };
        let mut is_done = thread.exited || thread.asleep;
        let inside = !kernel && thread.starts_in_kernel.unwrap_or(false);
        let mut builder = Builder::new(kernel, inside, marks);
        if moved {
            builder.ops.push(Op::Move { who: Target::Myself, group: task_map.groups[ix] });
        }
        if matches!(thread.birth, Birth::Forked { .. }) {
            builder.begin_request();
        }
        for step in thread.steps.iter() {
            match step {
                Step::Run(ns) => builder.add_run(ns),
                Step::SysEnter => builder.enter_kernel(),
                Step::SysExit => builder.exit_kernel(),
                Step::Wake(edge) => {
                    if let Some(channel) = self.message_channel(edge, task_map) {
                        builder.push_op(Op::Send { channel, n: 1 });
                    }
                }
                Step::Fork(child) => {
                    let starts = task_map.parents[child as usize] == Some(ix as u32)
                        && task_map.inboxes[child as usize].is_none();
                    if let Some(kind) = task_map.tasks[child as usize].filter(|_| starts) {
                        builder.push_op(Op::Fork { kind });
                    }
                }
                Step::Io(_) => {}
                Step::Wait(wait) if is_over(&thread.waits[wait as usize]) => {
                    is_done = true;
                    break;
                }
                Step::Wait(wait) => {
                    let wait_op =
                        wait_op(ix, &thread.waits[wait as usize], plans[wait as usize], task_map);
                    builder.add_wait(wait_op);
                }
            }
        }
        builder.finish(is_done);
        builder.ops.shrink_to_fit();
        builder.ops
    }
}

impl Builder {
    /// `kernel`: a kernel thread. `inside`: it begins in a system call. `marks`: bursts become
    /// requests, of which the first begins with the first wait.
    pub fn new(kernel: bool, inside: bool, marks: bool) -> Builder {
        Builder {
            ops: Vec::new(),
            kernel,
            inside,
            entered: false,
            run_ns: 0,
            work_ns: 0,
            marks,
            in_request: false,
        }
    }

    /// Adds CPU time, ns, in the present mode: to the run that is put before the next instruction,
    /// and to the time that `take_ops()` returns.
    pub fn add_run(&mut self, ns: u64) {
        self.run_ns = self.run_ns.saturating_add(ns);
        self.work_ns = self.work_ns.saturating_add(ns);
    }

    /// Begins a request now, if bursts are marked.
    fn begin_request(&mut self) {
        if self.marks {
            self.ops.push(Op::Begin);
            self.in_request = true;
        }
    }

    /// Flushes the time run, and returns the number of instructions so far.
    pub fn flushed_len(&mut self) -> usize {
        self.flush();
        self.ops.len()
    }

    /// Takes the instructions so far, with their system call left, and the CPU time since the last
    /// such call, ns.
    pub fn take_ops(&mut self) -> (Vec<Op>, u64) {
        self.flush();
        if std::mem::take(&mut self.entered) {
            self.ops.push(Op::ExitKernel);
        }
        (std::mem::take(&mut self.ops), std::mem::take(&mut self.work_ns))
    }

    /// Adds the CPU time run so far as an instruction of user or kernel mode; nothing if there is
    /// none.
    fn flush(&mut self) {
        let span = Span::Fixed(std::mem::take(&mut self.run_ns));
        match span {
            Span::Fixed(0) => {}
            _ if self.kernel || self.inside => self.ops.push(Op::Kernel(span)),
            _ => self.ops.push(Op::User(span)),
        }
    }

    /// Begins a system call; ignored in a kernel thread or a system call.
    pub fn enter_kernel(&mut self) {
        if !self.kernel && !self.inside {
            self.flush();
            self.inside = true;
        }
    }

    /// Ends the system call; adds an instruction for that only if it was entered with one.
    pub fn exit_kernel(&mut self) {
        if self.kernel || !self.inside {
            return;
        }
        self.flush();
        self.inside = false;
        if std::mem::take(&mut self.entered) {
            self.ops.push(Op::ExitKernel);
        }
    }

    /// Adds an instruction other than running, after the time run so far; in a system call that is
    /// entered first.
    pub fn push_op(&mut self, op: Op) {
        if self.inside && !self.entered {
            self.ops.push(Op::EnterKernel);
            self.entered = true;
        }
        self.flush();
        self.ops.push(op);
    }

    /// Adds a wait, which ends a marked request; the next one begins at its end.
    fn add_wait(&mut self, op: Op) {
        if self.in_request {
            self.push_op(Op::Done);
        }
        self.push_op(op);
        self.in_request = self.marks;
    }

    /// Adds the time run so far, and leaves the system call. The end of a thread that ended or
    /// slept (`is_done`) completes its marked request; the end of the recording leaves it open.
    fn finish(&mut self, is_done: bool) {
        self.flush();
        if is_done && self.in_request {
            self.ops.push(Op::Done);
        }
        if self.entered {
            self.ops.push(Op::ExitKernel);
        }
    }
}

/// The instruction of a wait: one message from the channel of its plan, else a sleep as long as
/// recorded.
fn wait_op(ix: usize, wait: &Wait, plan: Plan, task_map: &TaskMap) -> Op {
    let channel = match plan {
        Plan::Sleep => None,
        Plan::Message => task_map.messages[ix],
        Plan::Arrival => task_map.arrivals[ix],
    };
    match channel {
        Some(channel) => Op::Recv { channel, n: 1 },
        None => Op::Sleep(Span::Fixed(wait.end_ns - wait.start_ns)),
    }
}
