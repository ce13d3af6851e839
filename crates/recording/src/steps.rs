//! The steps of a thread, eight bytes for each: a recording has millions.

#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    packed: Vec<Packed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Executes for so many ns.
    Run(u64),
    SysEnter,
    SysExit,
    /// Wakes another thread (index into the edges).
    Wake(u32),
    /// Starts another thread (index).
    Fork(u32),
    /// Waits (index into its waits).
    Wait(u32),
    /// Uses a descriptor (index into the transfers): begins to write, or has read, accepted,
    /// connected, closed or polled.
    Io(u32),
}

/// A step: its kind in the lowest bits, its number above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed(u64);

const KIND_BITS: u32 = 3;
const KIND: u64 = (1 << KIND_BITS) - 1;
/// Longer runs are cut to this, which is 73 years.
const RUN_MAX_NS: u64 = u64::MAX >> KIND_BITS;

const RUN: u64 = 0;
const SYS_ENTER: u64 = 1;
const SYS_EXIT: u64 = 2;
const WAKE: u64 = 3;
const FORK: u64 = 4;
const WAIT: u64 = 5;
const IO: u64 = 6;

impl From<Step> for Packed {
    fn from(step: Step) -> Packed {
        let (kind, number) = match step {
            Step::Run(ns) => (RUN, ns.min(RUN_MAX_NS)),
            Step::SysEnter => (SYS_ENTER, 0),
            Step::SysExit => (SYS_EXIT, 0),
            Step::Wake(edge) => (WAKE, edge.into()),
            Step::Fork(child) => (FORK, child.into()),
            Step::Wait(wait) => (WAIT, wait.into()),
            Step::Io(io) => (IO, io.into()),
        };
        Packed(number << KIND_BITS | kind)
    }
}

impl From<Packed> for Step {
    fn from(Packed(packed): Packed) -> Step {
        let number = packed >> KIND_BITS;
        match packed & KIND {
            SYS_ENTER => Step::SysEnter,
            SYS_EXIT => Step::SysExit,
            WAKE => Step::Wake(number as u32),
            FORK => Step::Fork(number as u32),
            WAIT => Step::Wait(number as u32),
            IO => Step::Io(number as u32),
            _ => Step::Run(number),
        }
    }
}

impl Steps {
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// The steps in order, unpacked.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Step> + ExactSizeIterator + '_ {
        self.packed.iter().map(|packed| Step::from(*packed))
    }

    /// Appends a step as it is; runs are not joined.
    pub fn push(&mut self, step: Step) {
        push_one(&mut self.packed, step.into());
    }

    /// Adds `ns` of execution: to the last step if that is a run, else as a step.
    pub fn push_run(&mut self, ns: u64) {
        let last = self.packed.last_mut();
        match last.map(|last| (Step::from(*last), last)) {
            Some((Step::Run(before_ns), last)) => {
                *last = Step::Run(before_ns.saturating_add(ns)).into();
            }
            _ => self.push(Step::Run(ns)),
        }
    }

    /// Bytes of memory reserved for them.
    pub fn bytes(&self) -> usize {
        self.packed.capacity() * size_of::<Packed>()
    }

    pub fn shrink_to_fit(&mut self) {
        self.packed.shrink_to_fit();
    }
}

/// Pushes onto a list that may become very long: from 4096 elements on it grows by a quarter
/// instead of doubling.
pub(crate) fn push_one<T>(list: &mut Vec<T>, one: T) {
    const LONG: usize = 1 << 12;
    if list.len() == list.capacity() && list.len() >= LONG {
        list.reserve_exact(list.len() / 4);
    }
    list.push(one);
}

#[cfg(test)]
mod tests {
    use super::{Packed, Step, Steps, push_one};

    #[test]
    fn steps_come_out_as_they_went_in() {
        let most = u32::MAX;
        let steps = [
            Step::Run(0),
            Step::Run(86_400_000_000_000),
            Step::SysEnter,
            Step::SysExit,
            Step::Wake(most),
            Step::Fork(most),
            Step::Wait(most),
            Step::Io(most),
        ];
        assert_eq!(steps.map(|step| Step::from(Packed::from(step))), steps);
        let longest = Step::from(Packed::from(Step::Run(u64::MAX)));
        assert_eq!(longest, Step::Run(u64::MAX / 8));
    }

    #[test]
    fn runs_that_follow_each_other_are_one() {
        let mut steps = Steps::default();
        steps.push_run(5);
        steps.push_run(7);
        steps.push(Step::SysEnter);
        steps.push_run(1);
        let found: Vec<Step> = steps.iter().collect();
        assert_eq!(found, [Step::Run(12), Step::SysEnter, Step::Run(1)]);
    }

    #[test]
    fn long_lists_have_little_room_to_spare() {
        let mut list = Vec::new();
        (0..100_000).for_each(|n| push_one(&mut list, n));
        assert!(list.capacity() <= 125_000, "{}", list.capacity());
    }
}
