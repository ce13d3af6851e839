//! Numbers, choices and tables that a workload, a kernel and the options settle for a whole run.

use crate::Options;
use crate::ids::Mask;
use cpumax_outcome::{Conditions, Preemption};
use cpumax_workload::{Op, Preempt, Workload};

#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub preempt: Preempt,
    pub hrtick: bool,
    pub check: bool,
    pub step_every_tick: bool,
    pub seed: u64,
    pub timers_apart_ns: u64,
    pub tick_ns: u64,
    pub base_slice_ns: u64,
    /// Some kind of task asks for its own slice.
    pub slices_differ: bool,
    /// 1 + log2 of the CPUs, at most 4: scales the fair class's time constants.
    pub scaling: u64,
    /// Entities have [`Turn`](crate::se::Turn)s.
    pub counts_turns: bool,
    /// Programs of all kinds, then those of all jobs.
    pub programs: Vec<&'a [Op]>,
    /// CPU sets as bit masks: all CPUs, the workload's sets, and each CPU alone.
    pub masks: Vec<Mask>,
    /// A fault injected on purpose.
    #[cfg(any(test, feature = "faults"))]
    pub fault: Option<crate::faults::Fault>,
}

impl<'a> Settings<'a> {
    /// The settings of a run: a value seen on a real kernel comes before the workload's, and that
    /// before the kernel's default.
    pub fn new(workload: &'a Workload, options: &Options<'a>) -> Settings<'a> {
        let (spec, rules) = (&workload.machine, &options.kernel.rules);
        let nothing = Conditions::default();
        let seen = options.observed.unwrap_or(&nothing);
        let seen_slice_ns = seen.base_slice_ns.filter(|&ns| ns > 0);
        let hz = seen.hz.unwrap_or(spec.hz);
        let cpus = spec.cpus.max(1);
        let scaling = u64::from(cpus.min(8).ilog2()) + 1;
        let hrtick = chosen(seen.hrtick, spec.hrtick, !rules.hrtick.is_by_slice());
        let mask = |members: &mut dyn Iterator<Item = u16>| Mask::of(cpus.into(), members);
        let sets = workload.cpu_sets.iter().map(|set| mask(&mut set.0.iter().copied()));
        let each = (0..cpus).map(|cpu| mask(&mut std::iter::once(cpu)));
        Settings {
            preempt: chosen(seen.preempt.map(preempt_of), spec.preempt, rules.preempt),
            hrtick,
            check: options.check,
            step_every_tick: options.step_every_tick,
            seed: options.seed,
            timers_apart_ns: options.timers_apart_ns,
            tick_ns: 1_000_000_000 / u64::from(hz.clamp(1, 1_000_000)),
            base_slice_ns: chosen(seen_slice_ns, spec.base_slice_ns, rules.base_slice_ns * scaling),
            slices_differ: workload.tasks.iter().any(|t| t.slice_ns.is_some()),
            scaling,
            counts_turns: rules.queue.is_cfs() || hrtick && rules.hrtick.is_by_slice(),
            programs: workload.programs().collect(),
            masks: std::iter::once(mask(&mut (0..cpus))).chain(sets).chain(each).collect(),
            #[cfg(any(test, feature = "faults"))]
            fault: options.kernel.fault,
        }
    }
}

/// The value seen on a real kernel, else the scenario's, else the kernel's default.
fn chosen<T>(seen: Option<T>, asked: Option<T>, own: T) -> T {
    seen.or(asked).unwrap_or(own)
}

/// The model's value for an observed preemption model.
fn preempt_of(observed: Preemption) -> Preempt {
    match observed {
        Preemption::None => Preempt::None,
        Preemption::Voluntary => Preempt::Voluntary,
        Preemption::Lazy => Preempt::Lazy,
        Preemption::Full => Preempt::Full,
        Preemption::Rt => Preempt::Rt,
        Preemption::RtLazy => Preempt::RtLazy,
    }
}
