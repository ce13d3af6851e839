//! The steps of one thread as instructions.
//!
//! System calls in which nothing but time passes are one instruction; those in which the thread
//! waits, wakes or forks are entered and left. Each time from a wakeup to the next wait is a
//! request, so that its latency is recorded.

use super::{Places, Recording};
use crate::classify::Plan;
use crate::thread::{Birth, Step, Wait};
use cpumax_workload::{Op, Span, Target};

struct Builder {
    ops: Vec<Op>,
    /// A kernel thread: all it does is in the kernel.
    kernel: bool,
    /// In a system call, as recorded.
    inside: bool,
    /// In a system call, as the instructions have it.
    entered: bool,
    /// Time run since the last instruction, ns.
    run_ns: u64,
    /// A request has begun.
    in_request: bool,
}

impl Recording {
    /// `moved`: the thread is in another group than the one that forks it.
    pub(super) fn program(
        &self,
        ix: usize,
        kernel: bool,
        moved: bool,
        plans: &[Plan],
        places: &Places,
    ) -> Vec<Op> {
        let thread = &self.threads[ix];
        let mut builder = Builder {
            ops: Vec::with_capacity(thread.steps.len() * 3 / 2),
            kernel,
            inside: !kernel && thread.starts_in_kernel.unwrap_or(false),
            entered: false,
            run_ns: 0,
            in_request: false,
        };
        if moved {
            builder.ops.push(Op::Move { who: Target::Myself, group: places.groups[ix] });
        }
        if matches!(thread.birth, Birth::Forked { .. }) {
            builder.ops.push(Op::Begin);
            builder.in_request = true;
        }
        for step in &thread.steps {
            match *step {
                Step::Run(ns) => builder.run_ns = builder.run_ns.saturating_add(ns),
                Step::SysEnter => builder.enter(),
                Step::SysExit => builder.exit(),
                Step::Wake(edge) => {
                    if let Some(channel) = self.is_message(edge, places) {
                        builder.act(Op::Send { channel, n: 1 });
                    }
                }
                Step::Fork(child) => {
                    let starts = places.parents[child as usize] == Some(ix as u32);
                    if let Some(kind) = places.tasks[child as usize].filter(|_| starts) {
                        builder.act(Op::Fork { kind });
                    }
                }
                Step::Wait(wait) => {
                    let wait_op =
                        wait_op(ix, &thread.waits[wait as usize], plans[wait as usize], places);
                    builder.wait(wait_op);
                }
            }
        }
        builder.end(thread.exited);
        builder.ops.shrink_to_fit();
        builder.ops
    }
}

impl Builder {
    /// Writes down the time run so far.
    fn flush(&mut self) {
        let span = Span::Fixed(std::mem::take(&mut self.run_ns));
        match span {
            Span::Fixed(0) => {}
            _ if self.kernel || self.inside => self.ops.push(Op::Kernel(span)),
            _ => self.ops.push(Op::User(span)),
        }
    }

    fn enter(&mut self) {
        if !self.kernel && !self.inside {
            self.flush();
            self.inside = true;
        }
    }

    fn exit(&mut self) {
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
    fn act(&mut self, op: Op) {
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
        self.in_request = true;
    }

    /// The end of the recording cuts a request short; the end of a thread completes it.
    fn end(&mut self, exited: bool) {
        self.flush();
        if exited && self.in_request {
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
