//! Why tasks come onto their queues and leave them.

/// Why a task comes onto a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Enqueue {
    Fork,
    /// A sleeping or parked task.
    WakeUp,
    /// A runnable task from another queue.
    Move,
}

impl Enqueue {
    /// A new task.
    pub(crate) fn is_fork(self) -> bool {
        match self {
            Enqueue::Fork => true,
            Enqueue::WakeUp | Enqueue::Move => false,
        }
    }

    /// Its load is part of its queue's.
    pub(crate) fn is_wakeup(self) -> bool {
        match self {
            Enqueue::WakeUp => true,
            Enqueue::Fork | Enqueue::Move => false,
        }
    }
}

/// Why a task leaves its queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dequeue {
    /// To sleep; the task may stay queued (delayed) until its lag is served.
    Sleep,
    /// For good; its groups may stay queued (delayed) until their lag is served.
    Now,
    /// To park, or because its group is throttled; nothing is delayed.
    Throttle,
    /// To another queue, runnable.
    Move,
}

impl Dequeue {
    /// To sleep.
    pub(crate) fn is_sleep(self) -> bool {
        match self {
            Dequeue::Sleep => true,
            Dequeue::Now | Dequeue::Throttle | Dequeue::Move => false,
        }
    }

    /// To park, or with its group.
    pub(crate) fn is_throttle(self) -> bool {
        match self {
            Dequeue::Throttle => true,
            Dequeue::Sleep | Dequeue::Now | Dequeue::Move => false,
        }
    }

    /// To another queue.
    pub(crate) fn is_move(self) -> bool {
        match self {
            Dequeue::Move => true,
            Dequeue::Sleep | Dequeue::Now | Dequeue::Throttle => false,
        }
    }
}
