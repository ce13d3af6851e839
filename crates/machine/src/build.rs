//! The machine at time 0: of a workload, a kernel and what was observed.

use crate::Options;
use crate::cfs_rq::{CfsRq, Extras};
use crate::channel::Channels;
use crate::cost::UnthrottleCost;
use crate::cpu::Cpu;
use crate::events::{Event, Events};
use crate::group::{Group, Pool};
use crate::ids::{Arena, CfsRqId, CpuId, GroupId, Id, SeId};
use crate::interval::Balancing;
use crate::lab::Lab;
use crate::lock::Locks;
use crate::machine::Machine;
use crate::pelt::Averages;
use crate::settings::Settings;
use crate::task::{Births, KindStat};
use crate::watch::Probes;
use crate::windows::Windows;
use cpumax_outcome::trace::TraceSink;
use cpumax_workload::{Domain, Stream, Workload};

impl<'a> Machine<'a> {
    /// The machine at time 0, built for a workload and a kernel, with the first events scheduled.
    pub fn new(
        workload: &'a Workload,
        options: &Options<'a>,
        trace: Option<&'a mut dyn TraceSink>,
    ) -> Self {
        let cpus = usize::from(workload.machine.cpus.max(1));
        let settings = Settings::new(workload, options);
        let locks = Locks::new(workload, settings.preempt, options.delays.is_some());
        let kinds = workload.tasks.iter().map(|_| KindStat::default()).collect();
        let mut machine = Machine {
            workload,
            rules: options.kernel.rules,
            settings,
            lab: Lab::new(options),
            now: 0,
            events: Events::new(workload.groups.len(), cpus),
            cpus: Arena::new(),
            groups: Arena::new(),
            cfs_rqs: Arena::new(),
            extras: Extras::new(cpus),
            parked: Vec::new(),
            ses: Arena::new(),
            averages: Averages::default(),
            tasks: Arena::new(),
            births: Births { kinds, ..Births::default() },
            locks,
            channels: Channels::new(workload, options.seed),
            unthrottle_cost: UnthrottleCost::default(),
            probes: Probes::new(trace),
            balancing: Balancing::new(cpus),
        };
        machine.populate(cpus);
        machine
    }

    /// Creates groups, CPUs and special tasks, writes limits, schedules events.
    fn populate(&mut self, cpus: usize) {
        let workload = self.workload;
        self.name_groups_and_locks();
        self.build_groups(cpus);
        for cpu in 0..cpus {
            let skew = workload.machine.tick_skew;
            let skewed_ns = if skew { self.settings.tick_ns * cpu as u64 / cpus as u64 } else { 0 };
            let first_ns = self.lab.observed.and_then(|o| o.first_tick_ns).unwrap_or(0);
            let phase_ns = (first_ns % self.settings.tick_ns + skewed_ns) % self.settings.tick_ns;
            let random = Stream::new(self.settings.seed, Domain::Cpu, cpu as u64);
            let cpu = self.cpus.push(Cpu::new(phase_ns, self.settings.tick_ns, random));
            let root = self.cfs_rqs.push(CfsRq::new(GroupId(0), cpu, CfsRqId::NONE, SeId::NONE));
            self.groups[GroupId(0)].cfs_rqs[cpu.ix()] = root;
            self.grow_parked();
            self.grow_buddies();
            self.set_initial_min_vruntime(root);
        }
        self.draw_balancing();
        self.draw_remote_ticks();
        self.write_initial_limits();
        self.build_realtime();
        self.build_outside();
        for (index, source) in workload.sources.iter().enumerate() {
            self.schedule_arrival(index as u32, source.start_ns);
        }
        for (kind, spec) in workload.tasks.iter().enumerate() {
            if spec.count > 0 {
                self.schedule_start(kind as u32, 0);
            }
        }
        for (index, intervention) in workload.interventions.iter().enumerate() {
            let at_ns = self.action_time_ns(intervention.at_ns);
            self.events.heap.push(at_ns, Event::Intervention(index as u32));
        }
    }

    /// Adds the workload's groups to the machine, without limits; run queues are made when first
    /// needed.
    pub(crate) fn build_groups(&mut self, cpus: usize) {
        let workload = self.workload;
        for (index, spec) in workload.groups.iter().enumerate() {
            let parent = spec.parent.map_or(GroupId::NONE, GroupId);
            let is_root = parent.is_none();
            let cfs_rqs = if is_root { vec![CfsRqId::NONE; cpus] } else { Vec::new() };
            let group = self.groups.push(Group {
                parent: if is_root { GroupId(0) } else { parent },
                cfs_rqs,
                weight: crate::fair::weight::of_group(spec.weight),
                pool: Pool::new(),
                windows: Windows::new(spec.limit.period_ns()),
                ..Group::default()
            });
            debug_assert_eq!(group.ix(), index);
            let mut ancestor = group;
            loop {
                self.groups[ancestor].subtree += 1;
                if ancestor.ix() == 0 {
                    break;
                }
                ancestor = self.groups[ancestor].parent;
            }
        }
    }

    /// Sets the limits of all groups, in the workload's order, before anything runs; fills pools
    /// and arms period timers.
    pub(crate) fn write_initial_limits(&mut self) {
        let workload = self.workload;
        let mut written = 0;
        for (index, spec) in workload.groups.iter().enumerate().skip(1) {
            let group = GroupId(index as u32);
            let phase_ns = self.initial_phase_ns(group, spec.limit.period_ns());
            self.groups[group].pool.timer.expiry_ns = phase_ns;
            // Each is written on the next CPU, so that their timers need not wait for each other's
            // work.
            let next = CpuId(written % self.cpus.len() as u32);
            let cpu = if workload.machine.cost_timing { next } else { CpuId::NONE };
            written += u32::from(spec.limit.quota_ns().is_some());
            self.on(cpu, |m| m.set_initial_limit(group, spec));
        }
    }
}
