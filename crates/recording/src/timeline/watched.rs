//! Switches and charges of one CPU, which show what is missing from a recording.

use crate::event::PrevState;

/// Least number of switches of a CPU from which a filter by thread is inferred.
const SWITCHES_LEAST: u64 = 20;

/// Switches and charges of one CPU.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub count: u64,
    /// Threads that are part of all of them, and how often each went to sleep.
    always: Vec<(i32, u64)>,
    /// The first few other threads.
    others: Vec<i32>,
    /// Time of the last switch, and its two threads.
    pub last: Option<(u64, i32, i32)>,
    /// Time, thread and length, ns, of the last charge.
    pub charge: Option<(u64, i32, u64)>,
}

impl Watched {
    /// Counts a switch; follows which of its two threads has been part of all switches of the CPU,
    /// how often it went to sleep, and the first eight others.
    pub fn add_switch(&mut self, prev: i32, left: PrevState, next: i32) {
        self.count += 1;
        if self.count == 1 {
            self.always = vec![(prev, 0), (next, 0)];
        }
        self.always.retain(|(tid, _)| *tid == prev || *tid == next);
        for (tid, slept) in &mut self.always {
            *slept += u64::from(*tid == prev && left.is_sleep());
        }
        for tid in [prev, next] {
            let is_always = self.always.iter().any(|(always, _)| *always == tid);
            if tid > 0 && !is_always && self.others.len() < 8 && !self.others.contains(&tid) {
                self.others.push(tid);
            }
        }
    }

    /// The thread by which events seem to be filtered, and the first few others that switch with
    /// it. It is part of all of at least 20 switches of the CPU, and goes to sleep in two fifths;
    /// there are two others. Else `None`.
    pub fn filtered_thread(&self) -> Option<(i32, &[i32])> {
        let &[(tid, slept)] = &self.always[..] else { return None };
        let told = self.count >= SWITCHES_LEAST && slept * 5 >= self.count * 2;
        (tid > 0 && told && self.others.len() >= 2).then_some((tid, &self.others))
    }
}
