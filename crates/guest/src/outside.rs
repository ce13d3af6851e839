//! When the controller (and real-time kernel threads) took CPU time from the workload, and which
//! actions of the controller came late.
//!
//! The controller is real-time, so it is mostly on time. It is late where a kernel is preempted
//! only at certain points, and where a fork or a move waits for a task that is moving itself
//! (kernel: `cgroup_threadgroup_rwsem`). The trace of switches tells when.

/// Two visits with less time between them count as one, ns.
const MERGE_NS: u64 = 3_000;
/// Time from a timer until the controller runs undisturbed, ns.
const ARRIVAL_NS: u64 = 10_000;
/// A delay beyond that is late, ns.
const LATE_NS: u64 = 15_000;
/// Time from the end of an action until the controller has left its CPU, ns.
const DEPARTURE_NS: u64 = 8_750;

/// A list of pairs of times; the user of the type says which.
pub(crate) type Pairs = Vec<(u64, u64)>;
/// A kernel thread's time on a CPU: woken, came, left; ns since the start of the run.
pub(crate) type Visit = (u64, u64, u64);

/// Log of the controller's activity; times in ns since the start of the run.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// Begin and length of each activity, including sleep in it.
    visits: Pairs,
    /// When each action was due, and when it was done.
    steps: Pairs,
}

impl Outside {
    /// Notes that the controller was active from `from_ns` to `to_ns` since the start; a visit that
    /// follows the last one almost at once extends it.
    pub fn note_active(&mut self, from_ns: u64, to_ns: u64) {
        match self.visits.last_mut() {
            Some((start_ns, took_ns)) if from_ns <= *start_ns + *took_ns + MERGE_NS => {
                *took_ns = to_ns.saturating_sub(*start_ns).max(*took_ns);
            }
            _ => self.visits.push((from_ns, to_ns.saturating_sub(from_ns))),
        }
    }

    /// Notes an action of the controller that was due at `at_ns` and done at `done_ns` since the
    /// start.
    pub fn note_action(&mut self, at_ns: u64, done_ns: u64) {
        self.steps.push((at_ns, done_ns));
    }

    /// Computes two lists. The first has begin and length of each visit, without the times at which
    /// the controller was off its CPU (`off_ns`, in order). The second has late actions: when they
    /// were due, and when the controller continued; one for each due time.
    ///
    /// Real-time kernel threads (`others`) are visits as well. The trace times their arrival and
    /// departure at the CPU; the costs of coming and going are subtracted, as the controller's own
    /// log lacks them too.
    pub fn visits_and_late_actions(
        self,
        off_ns: &[(u64, u64)],
        others: &[Visit],
    ) -> (Pairs, Pairs) {
        let within = |from_ns: u64, to_ns: u64| {
            let waited = move |out_ns: u64, back_ns: u64| {
                out_ns <= from_ns && from_ns + ARRIVAL_NS + LATE_NS < back_ns
            };
            off_ns.iter().copied().filter_map(move |(out_ns, back_ns)| {
                if from_ns < out_ns && back_ns < to_ns {
                    Some((out_ns, back_ns))
                } else if waited(out_ns, back_ns) && back_ns < to_ns {
                    Some((from_ns, back_ns - ARRIVAL_NS))
                } else {
                    None
                }
            })
        };
        let mut visits = Vec::new();
        for (from_ns, took_ns) in self.visits {
            let mut begin_ns = from_ns;
            for (out_ns, back_ns) in within(from_ns, from_ns + took_ns) {
                if begin_ns < out_ns {
                    visits.push((begin_ns, out_ns - begin_ns));
                }
                begin_ns = back_ns;
            }
            visits.push((begin_ns, from_ns + took_ns - begin_ns));
        }
        let late = self.steps.into_iter().filter_map(|(at_ns, done_ns)| {
            within(at_ns, done_ns).next_back().map(|(_, back_ns)| (at_ns, back_ns))
        });
        let mut late: Vec<_> = late.collect();
        late.dedup_by_key(|(at_ns, _)| *at_ns);
        let own = visits.iter().map(|&(from_ns, took_ns)| (from_ns, from_ns, from_ns + took_ns));
        let is_late = |woken_ns: u64, came_ns: u64| came_ns - woken_ns > LATE_NS;
        let kernel_threads = others.iter().map(|&(woken_ns, came_ns, left_ns)| {
            let arrival_ns = if is_late(woken_ns, came_ns) { 0 } else { ARRIVAL_NS };
            (
                woken_ns,
                came_ns.saturating_sub(arrival_ns),
                left_ns.saturating_sub(DEPARTURE_NS).max(came_ns),
            )
        });
        let visits = merged(own.chain(kernel_threads).collect());
        let waited = others.iter().filter(|&&(woken_ns, came_ns, _)| {
            let begins = visits.binary_search_by_key(&came_ns, |&(from_ns, _)| from_ns).is_ok();
            is_late(woken_ns, came_ns) && begins
        });
        late.extend(waited.map(|&(woken_ns, came_ns, _)| (woken_ns, came_ns)));
        (visits, late)
    }
}

/// Begin and length of visits, in order of time; ones that overlap or follow at once are merged. A
/// visitor woken before another one has left follows it at once.
fn merged(mut visits: Vec<Visit>) -> Pairs {
    visits.sort_unstable_by_key(|&(_, came_ns, _)| came_ns);
    let mut merged: Pairs = Vec::new();
    for (woken_ns, came_ns, left_ns) in visits {
        match merged.last_mut() {
            Some((from_ns, took_ns)) if woken_ns <= *from_ns + *took_ns + MERGE_NS => {
                *took_ns = (*took_ns).max(left_ns - *from_ns);
            }
            _ => merged.push((came_ns, left_ns - came_ns)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_ends_where_it_sleeps() {
        let mut outside = Outside::default();
        outside.note_active(1_000_000, 1_050_000);
        outside.note_action(1_000_000, 1_050_000);
        outside.note_action(2_000_000, 9_100_000);
        outside.note_action(2_000_000, 9_150_000);
        outside.note_active(2_000_000, 9_200_000);
        outside.note_active(9_202_000, 9_300_000);
        let asleep = [(1_050_000, 2_005_000), (2_080_000, 9_000_000), (9_300_000, 20_000_000)];
        let (visits, late) = outside.visits_and_late_actions(&asleep, &[]);
        assert_eq!(visits, [(1_000_000, 50_000), (2_000_000, 80_000), (9_000_000, 300_000)]);
        assert_eq!(late, [(2_000_000, 9_000_000)]);
    }

    #[test]
    fn threads_of_the_kernel_are_visitors_too() {
        let mut outside = Outside::default();
        outside.note_active(1_000_000, 1_050_000);
        outside.note_action(1_000_000, 1_050_000);
        let others = [
            (1_045_000, 1_056_000, 1_068_750),
            (3_000_000, 3_100_000, 3_118_750),
            (4_000_000, 4_010_000, 4_038_750),
        ];
        let (visits, late) = outside.visits_and_late_actions(&[], &others);
        assert_eq!(visits, [(1_000_000, 60_000), (3_100_000, 10_000), (4_000_000, 30_000)]);
        assert_eq!(late, [(3_000_000, 3_100_000)], "it waited for a point of preemption");
    }

    #[test]
    fn a_visit_begins_when_it_comes_to_run() {
        let mut outside = Outside::default();
        outside.note_active(1_000_000, 1_200_000);
        outside.note_action(1_000_000, 1_200_000);
        outside.note_active(2_000_000, 2_050_000);
        outside.note_action(2_000_000, 2_050_000);
        let off = [(500_000, 1_110_000), (1_205_000, 2_012_000), (2_060_000, 3_000_000)];
        let (visits, late) = outside.visits_and_late_actions(&off, &[]);
        assert_eq!(visits, [(1_100_000, 100_000), (2_000_000, 50_000)]);
        assert_eq!(late, [(1_000_000, 1_100_000)]);
    }
}
