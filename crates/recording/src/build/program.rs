//! The steps of one thread as instructions.
//!
//! System calls in which nothing but time passes are one instruction; those in which the thread
//! waits, wakes or forks are entered and left. Each time from a wakeup to the next wait is a
//! request, so that its latency is recorded.

use super::{Places, Recording};
use crate::classify::Plan;
use crate::thread::{Birth, Step, Wait};
use cpumax_workload::{Op, Span, Target};

/// Turns what a thread did into instructions.
pub(super) struct Builder {
    ops: Vec<Op>,
    /// A kernel thread: all it does is in the kernel.
    kernel: bool,
    /// In a system call, as recorded.
    inside: bool,
    /// In a system call, as the instructions have it.
    entered: bool,
    /// Time run since the last instruction, ns.
    run_ns: u64,
    /// Time run in all, ns.
    work_ns: u64,
    /// Requests are marked.
    marks: bool,
    /// A request has begun.
    in_request: bool,
}

/// How a thread is to be understood.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// All it does is in the kernel.
    pub kernel: bool,
    /// It is in another group than the one that forks it.
    pub moved: bool,
    /// Each time from a wakeup to the next wait is a request.
    pub marks: bool,
    /// Where it waits for what comes later than that, ns since the recording began, it ends.
    pub until_ns: Option<u64>,
}

impl Recording {
    /// What a thread does.
    pub(super) fn program(&self, ix: usize, how: How, plans: &[Plan], places: &Places) -> Vec<Op> {
        let How { kernel, moved, marks, until_ns } = how;
        let thread = &self.threads[ix];
        let is_over = |wait: &Wait| {
            until_ns.is_some_and(|until_ns| wait.end_ns.saturating_sub(self.first_ns) > until_ns)
        };
        let mut is_done = thread.exited || thread.asleep;
        let inside = !kernel && thread.starts_in_kernel.unwrap_or(false);
        let mut builder = Builder::new(kernel, inside, marks);
        if moved {
            builder.ops.push(Op::Move { who: Target::Myself, group: places.groups[ix] });
        }
        if matches!(thread.birth, Birth::Forked { .. }) {
            builder.begin();
        }
        for step in thread.steps.iter() {
            match step {
                Step::Run(ns) => builder.run(ns),
                Step::SysEnter => builder.enter(),
                Step::SysExit => builder.exit(),
                Step::Wake(edge) => {
                    if let Some(channel) = self.is_message(edge, places) {
                        builder.act(Op::Send { channel, n: 1 });
                    }
                }
                Step::Fork(child) => {
                    let starts = places.parents[child as usize] == Some(ix as u32)
                        && places.inboxes[child as usize].is_none();
                    if let Some(kind) = places.tasks[child as usize].filter(|_| starts) {
                        builder.act(Op::Fork { kind });
                    }
                }
                Step::Io(_) => {}
                Step::Wait(wait) if is_over(&thread.waits[wait as usize]) => {
                    is_done = true;
                    break;
                }
                Step::Wait(wait) => {
                    let wait_op =
                        wait_op(ix, &thread.waits[wait as usize], plans[wait as usize], places);
                    builder.wait(wait_op);
                }
            }
        }
        builder.end(is_done);
        builder.ops.shrink_to_fit();
        builder.ops
    }
}

impl Builder {
    /// `inside`: it is in a system call.
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

    pub fn run(&mut self, ns: u64) {
        self.run_ns = self.run_ns.saturating_add(ns);
        self.work_ns = self.work_ns.saturating_add(ns);
    }

    fn begin(&mut self) {
        if self.marks {
            self.ops.push(Op::Begin);
            self.in_request = true;
        }
    }

    /// How many instructions there are so far.
    pub fn here(&mut self) -> usize {
        self.flush();
        self.ops.len()
    }

    /// The instructions so far, whole for themselves, and how long they run, ns.
    pub fn cut(&mut self) -> (Vec<Op>, u64) {
        self.flush();
        if std::mem::take(&mut self.entered) {
            self.ops.push(Op::ExitKernel);
        }
        (std::mem::take(&mut self.ops), std::mem::take(&mut self.work_ns))
    }

    /// Writes down the time run so far.
    fn flush(&mut self) {
        let span = Span::Fixed(std::mem::take(&mut self.run_ns));
        match span {
            Span::Fixed(0) => {}
            _ if self.kernel || self.inside => self.ops.push(Op::Kernel(span)),
            _ => self.ops.push(Op::User(span)),
        }
    }

    pub fn enter(&mut self) {
        if !self.kernel && !self.inside {
            self.flush();
            self.inside = true;
        }
    }

    pub fn exit(&mut self) {
        if self.kernel || !self.inside {
            return;
        }
        self.flush();
        self.inside = false;
        if std::mem::take(&mut self.entered) {
            self.ops.push(Op::ExitKernel);
        }
    }

    /// Does something that is not just passing time.
    pub fn act(&mut self, op: Op) {
        if self.inside && !self.entered {
            self.ops.push(Op::EnterKernel);
            self.entered = true;
        }
        self.flush();
        self.ops.push(op);
    }

    fn wait(&mut self, op: Op) {
        if self.in_request {
            self.act(Op::Done);
        }
        self.act(op);
        self.in_request = self.marks;
    }

    /// The end of the recording cuts a request short; that of a thread completes it, and so does a
    /// sleep until then.
    fn end(&mut self, is_done: bool) {
        self.flush();
        if is_done && self.in_request {
            self.ops.push(Op::Done);
        }
        if self.entered {
            self.ops.push(Op::ExitKernel);
        }
    }
}

/// The instruction that waits so.
fn wait_op(ix: usize, wait: &Wait, plan: Plan, places: &Places) -> Op {
    let channel = match plan {
        Plan::Sleep => None,
        Plan::Message => places.messages[ix],
        Plan::Arrival => places.arrivals[ix],
    };
    match channel {
        Some(channel) => Op::Recv { channel, n: 1 },
        None => Op::Sleep(Span::Fixed(wait.end_ns - wait.start_ns)),
    }
}
