//! The report of a run: counters, latencies and conditions, read while the run is over.

use crate::hung;
use crate::kernel;
use crate::plan::RealLock;
use crate::requests::{UnderWay, under_way};
use crate::run::{Error, Run};
use crate::sys;
use crate::world::{Cue, FREE, Fault, KindCounts, LIVE, World};
use cpumax_limit::CpuStat;
use cpumax_outcome::{
    Conditions, GroupOutcome, Histogram, Outcome, Percentiles, ReleaseOutcome, TaskOutcome,
};
use cpumax_protocol::{Job, Report};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// An end seen later than this gets a note, ns.
const NOTE_LATE_NS: u64 = 1_000_000;

/// Counters of all groups at one time: `cpu.stat`, and the local throttled time (ns) where shown.
pub(crate) struct Counters(Vec<(CpuStat, Option<u64>)>);

/// Usage of a group at the ends of its periods.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Usage at the last sample, ns.
    last_ns: u64,
    /// Largest increase between two samples, ns.
    max_ns: u64,
}

/// Reads `cpu.stat` of all groups; the root has zeros. Each group's next sample of usage counts
/// from here.
///
/// # Errors
/// A counter cannot be read.
pub(crate) fn read_counters(run: &mut Run) -> Result<Counters, String> {
    let mut all = vec![(CpuStat::default(), None)];
    for group in run.groups.iter().skip(1) {
        all.push(run.env.hierarchy.read_stat(group)?);
    }
    for ((stat, _), sample) in all.iter().zip(&mut run.samples) {
        sample.last_ns = stat.usage_ns;
    }
    Ok(Counters(all))
}

/// Reads a group's CPU time at the end of one of its periods and keeps the largest usage of a
/// period so far.
///
/// # Errors
/// The counter cannot be read.
pub(crate) fn sample_usage(run: &mut Run, group: usize) -> Result<(), String> {
    let (stat, _) = run.env.hierarchy.read_stat(&run.groups[group])?;
    let sample = &mut run.samples[group];
    sample.max_ns = sample.max_ns.max(stat.usage_ns.saturating_sub(sample.last_ns));
    sample.last_ns = stat.usage_ns;
    Ok(())
}

/// Reaps all children that have exited, without waiting; adds their CPU time and waits to their
/// kinds and frees their slots. Returns whether children remain.
pub(crate) fn reap(world: &World) -> bool {
    loop {
        // SAFETY: all zeroes is a value of it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let pid = sys::wait_child(libc::WNOHANG, &raw mut usage);
        if pid > 0 {
            world.account_reaped(pid as i32, &usage);
        } else if pid != -(libc::EINTR as isize) {
            return pid == 0;
        }
    }
}

/// Sends SIGKILL to all keepers and tasks, those that tasks start meanwhile included, and reaps
/// them; returns when no child is left.
pub(crate) fn kill_all(world: &World) {
    const RETRY_NS: u64 = 1_000_000;
    for &keeper in &world.keepers {
        sys::kill(keeper, libc::SIGKILL);
    }
    loop {
        for slot in &world.slots {
            let pid = slot.pid.load(Relaxed);
            if slot.state.load(Relaxed) != FREE && pid > 0 {
                sys::kill(pid, libc::SIGKILL);
            }
        }
        if !reap(world) {
            return;
        }
        sys::sleep_for(RETRY_NS);
    }
}

/// Makes the report of a run that is over, while its tasks still exist: reads the counters, sums
/// requests, lists what was not measured. `before`: the groups' counters at its start. Takes the
/// notes out of `run`.
///
/// # Errors
/// A counter cannot be read, a task noted a fault, or there were more requests than the log holds.
pub(crate) fn report(run: &mut Run, job: &Job, before: &Counters) -> Result<Report, Error> {
    let ended_ns = run.world.now_ns();
    let after = read_counters(run)?;
    let read_ns = u64::midpoint(ended_ns, run.world.now_ns());
    run.outside.note_active(run.world.workload.duration_ns, read_ns);
    check_faults(run.world)?;
    let mut tasks = task_counts(run.world, ended_ns);
    let hung = if run.env.in_vm { hung::reported_kinds(run.world) } else { Vec::new() };
    if !hung.is_empty() {
        let times = hung.len();
        run.notes.push(format!("the kernel reported hung tasks {times} times (khungtaskd)"));
    }
    for kind in hung {
        tasks[kind as usize].hung_reports += 1;
    }
    let under_way = under_way(run.world, ended_ns.min(run.world.workload.duration_ns));
    let (groups, tasks) = add_latencies(run, group_counts(run, before, &after), tasks, &under_way)?;
    let late_ns = ended_ns.saturating_sub(run.world.workload.duration_ns);
    if late_ns > NOTE_LATE_NS {
        run.notes.push(format!("counters were read {} us after the end", late_ns / 1000));
    }
    let mut not_measured = vec!["release".to_owned(), "events".to_owned()];
    if !run.env.in_vm {
        not_measured.push("tasks.*.hung_reports".to_owned());
    }
    if !run.sample_periods {
        not_measured.push("groups.*.max_period_usage_usec".to_owned());
    }
    if after.0.iter().skip(1).any(|(_, local)| local.is_none()) {
        not_measured.push("groups.*.local_throttled_usec".to_owned());
    }
    let world = run.world;
    let outcome = Outcome {
        scenario: world.workload.name.clone(),
        world: if run.env.in_vm { "vm" } else { "host" }.to_owned(),
        kernel: kernel::release(),
        generation: String::new(),
        seed: job.seed,
        simulated_ns: world.workload.duration_ns,
        groups,
        tasks,
        release: ReleaseOutcome::default(),
        events: 0,
    };
    Ok(Report {
        outcome,
        conditions: conditions(run),
        locks: real_lock_names(world),
        not_measured,
        notes: std::mem::take(&mut run.notes),
        trace: None,
    })
}

/// Settings of the kernel (HZ, preemption, hrtick, slice) and facts that the run measured: ticks,
/// period edges, pools, lateness of wakeups, first CPUs. Takes the pools out of `run`.
fn conditions(run: &mut Run) -> Conditions {
    Conditions {
        hz: Some(kernel::hz()),
        preempt: kernel::preemption(),
        hrtick: kernel::hrtick(),
        base_slice_ns: kernel::base_slice_ns(),
        first_tick_ns: Some(run.first_tick_ns),
        first_edge_ns: run.edges.clone(),
        pool_ns: std::mem::take(&mut run.pool_ns),
        wake_late_ns: run.world.lateness.tenth_percentile_ns(),
        page_ns: (!run.world.is_exact).then(|| run.world.speed.page_ns()),
        first_cpus: first_cpus(run.world),
        ..Conditions::default()
    }
}

/// The CPU on which each task began, by name of its kind, then by its number; `None` if it never
/// began. A task that a limit has kept from beginning is still on the CPU where it was queued,
/// unless it was moved; that CPU is stored for it.
fn first_cpus(world: &World) -> BTreeMap<String, Vec<Option<u32>>> {
    for slot in world.slots.iter().filter(|slot| slot.cue.load(Relaxed) == Cue::Begin as u32) {
        let firsts = &world.kind_counts[slot.kind.load(Relaxed) as usize].first_cpus;
        let first = firsts.get(slot.instance.load(Relaxed) as usize);
        if let Some(first) = first.filter(|first| first.load(Relaxed) == 0) {
            let cpu = cpu_of(slot.pid.load(Relaxed));
            first.store(cpu.map_or(0, |cpu| cpu + 1), Relaxed);
        }
    }
    let kinds = world.workload.tasks.iter().zip(&world.kind_counts);
    let noted = kinds.filter(|(_, counts)| !counts.first_cpus.is_empty());
    let cpus = |counts: &KindCounts| {
        counts.first_cpus.iter().map(|first| first.load(Relaxed).checked_sub(1)).collect()
    };
    noted.map(|(spec, counts)| (spec.name.clone(), cpus(counts))).collect()
}

/// The CPU of a task, now or when it last ran (`/proc/PID/stat`); `None` if it cannot be read.
fn cpu_of(pid: i32) -> Option<u32> {
    /// Index of the field `processor` among those after the name.
    const PROCESSOR: usize = 36;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(PROCESSOR)?.parse().ok()
}

/// Name of what each lock is made of (`inode`, `futex`, `pipe` ...), by the lock's name.
fn real_lock_names(world: &World) -> BTreeMap<String, String> {
    let name = |made: &RealLock| match made {
        RealLock::Inode => "inode",
        RealLock::MemoryMap => cpumax_workload::MEMORY_MAP,
        RealLock::Pipe { .. } => "pipe",
        RealLock::Futex => "futex",
        RealLock::Owner => "owner",
    };
    let specs = world.workload.locks.iter().zip(&world.plan.locks);
    specs.map(|(spec, made)| (spec.name.clone(), name(made).to_owned())).collect()
}

/// Refuses a run in which a task noted a fault; changes nothing.
///
/// # Errors
/// The first such fault.
fn check_faults(world: &World) -> Result<(), Error> {
    let [fault, error] = [0, 1].map(|ix| world.failure[ix].load(Relaxed));
    let error = std::io::Error::from_raw_os_error(error as i32);
    let what = match fault {
        0 => return Ok(()),
        f if f == Fault::TooManyTasks as u64 => "more than 200 forked tasks at once".into(),
        f if f == Fault::Call as u64 => format!("a system call of a task failed: {error}"),
        f if f == Fault::List as u64 => format!("a list of requests of a task failed: {error}"),
        _ => format!("a task could not be started: {error}"),
    };
    Err(Error::Failed(what))
}

/// By path of the group: the differences between its counters before and after the run, without
/// latencies.
fn group_counts(run: &Run, before: &Counters, after: &Counters) -> BTreeMap<String, GroupOutcome> {
    let mut groups = BTreeMap::new();
    for (ix, spec) in run.world.workload.groups.iter().enumerate().skip(1) {
        let ((old, old_local), (new, new_local)) = (&before.0[ix], &after.0[ix]);
        let us = |new: u64, old: u64| new.saturating_sub(old) / 1000;
        let outcome = GroupOutcome {
            usage_usec: us(new.usage_ns, old.usage_ns),
            nr_periods: u64::from(new.nr_periods.wrapping_sub(old.nr_periods)),
            nr_throttled: u64::from(new.nr_throttled.wrapping_sub(old.nr_throttled)),
            throttled_usec: us(new.throttled_ns, old.throttled_ns),
            nr_bursts: u64::from(new.nr_bursts.wrapping_sub(old.nr_bursts)),
            burst_usec: us(new.burst_ns, old.burst_ns),
            local_throttled_usec: us(new_local.unwrap_or(0), old_local.unwrap_or(0)),
            max_period_usage_usec: run.samples[ix].max_ns / 1000,
            ..GroupOutcome::default()
        };
        groups.insert(spec.path.clone(), outcome);
    }
    groups
}

/// Counts of tasks by index of their kind, without latencies. Adds CPU time and waits of tasks that
/// still exist to their kinds, which must happen once only. `ended_ns`: end of the run since its
/// start.
fn task_counts(world: &World, ended_ns: u64) -> Vec<TaskOutcome> {
    for slot in world.slots.iter().filter(|slot| slot.state.load(Relaxed) != FREE) {
        let counts = &world.kind_counts[slot.kind.load(Relaxed) as usize];
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", slot.pid.load(Relaxed)));
        let used_ns = stat.ok().and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        counts.usage_us.fetch_add(slot.used_us(used_ns.unwrap_or(0) / 1000), Relaxed);
        let has_begun = slot.cue.load(Relaxed) == Cue::Begin as u32;
        if slot.state.load(Relaxed) == LIVE && has_begun {
            world.add_unfinished(slot, ended_ns);
        }
        slot.add_waits_to(counts);
    }
    let kinds = world.kind_counts.iter().zip(&world.workload.tasks);
    kinds
        .map(|(counts, spec)| {
            let of = |number: &AtomicU64| number.load(Relaxed);
            let KindCounts { count, usage_us, wait_ns, stall_ns, exited, last_exit_ns, .. } =
                counts;
            let all =
                of(exited) > 0 && of(exited) == of(count) && of(count) >= u64::from(spec.count);
            TaskOutcome {
                count: of(count),
                usage_usec: of(usage_us),
                wait_ns: of(wait_ns),
                longest_stall_ns: of(stall_ns),
                exited: of(exited),
                finished_ns: if all { of(last_exit_ns) } else { 0 },
                ..TaskOutcome::default()
            }
        })
        .collect()
}

type Groups = BTreeMap<String, GroupOutcome>;
type Tasks = BTreeMap<String, TaskOutcome>;

/// Adds completed requests and requests under way to the outcomes: to each group with its ancestors
/// and, by label, to kinds of tasks. Returns both, by path and by label.
///
/// # Errors
/// More requests were completed than the log holds.
fn add_latencies(
    run: &Run,
    mut groups: Groups,
    mut kinds: Vec<TaskOutcome>,
    under_way: &[UnderWay],
) -> Result<(Groups, Tasks), Error> {
    let workload = &run.world.workload;
    let mut by_group = vec![Vec::new(); workload.groups.len()];
    let mut by_kind = vec![Vec::new(); kinds.len()];
    let entries = run.world.log.entries().ok_or_else(|| {
        Error::Failed("more than four million requests were completed".to_owned())
    })?;
    for (kind, group, latency_ns) in entries {
        by_kind[kind as usize].push(latency_ns);
        let mut group = group;
        while group != 0 {
            by_group[group as usize].push(latency_ns);
            group = workload.groups[group as usize].parent.unwrap_or(0);
        }
    }
    let duration_ns = workload.duration_ns;
    for request in under_way {
        let for_ns = duration_ns.saturating_sub(request.since_ns);
        let kind = &mut kinds[request.kind as usize];
        kind.under_way += request.n;
        kind.longest_under_way_ns = kind.longest_under_way_ns.max(for_ns);
        let mut group = request.group;
        while group != 0 {
            let spec = &workload.groups[group as usize];
            if let Some(outcome) = groups.get_mut(&spec.path) {
                outcome.under_way += request.n;
                outcome.longest_under_way_ns = outcome.longest_under_way_ns.max(for_ns);
            }
            group = spec.parent.unwrap_or(0);
        }
    }
    for (spec, latencies) in workload.groups.iter().zip(&mut by_group) {
        if let Some(outcome) = groups.get_mut(&spec.path) {
            outcome.completions = latencies.len() as u64;
            outcome.latency_ns = percentiles(latencies, outcome.longest_under_way_ns);
            outcome.latency_histogram_ns = Histogram::of(latencies.iter().map(|&ns| (ns, 1)));
        }
    }
    let mut labels: BTreeMap<&str, (TaskOutcome, Vec<u64>)> = BTreeMap::new();
    for ((spec, outcome), latencies) in workload.tasks.iter().zip(kinds).zip(by_kind) {
        let (sum, all) = labels.entry(spec.label()).or_default();
        *sum = added_up(sum, &outcome);
        all.extend(latencies);
    }
    let tasks = labels.into_iter().map(|(label, (mut outcome, mut latencies))| {
        outcome.completions = latencies.len() as u64;
        outcome.latency_ns = percentiles(&mut latencies, outcome.longest_under_way_ns);
        outcome.latency_histogram_ns = Histogram::of(latencies.iter().map(|&ns| (ns, 1)));
        (label.to_owned(), outcome)
    });
    Ok((groups, tasks.collect()))
}

/// Sums the counts of two kinds that have one label, without completed requests. The label has
/// finished when all its tasks have exited; one of the kinds may have no tasks.
fn added_up(one: &TaskOutcome, other: &TaskOutcome) -> TaskOutcome {
    let (count, exited) = (one.count + other.count, one.exited + other.exited);
    let last_ns = one.finished_ns.max(other.finished_ns);
    TaskOutcome {
        count,
        usage_usec: one.usage_usec + other.usage_usec,
        wait_ns: one.wait_ns + other.wait_ns,
        longest_stall_ns: one.longest_stall_ns.max(other.longest_stall_ns),
        under_way: one.under_way + other.under_way,
        longest_under_way_ns: one.longest_under_way_ns.max(other.longest_under_way_ns),
        hung_reports: one.hung_reports + other.hung_reports,
        exited,
        finished_ns: if exited == count { last_ns } else { 0 },
        ..TaskOutcome::default()
    }
}

/// Median, 99th percentile and maximum of latencies, ns; ranks rounded up, 0 without any. A request
/// under way takes at least as long as so far, so it may be the maximum. Sorts `latencies`.
fn percentiles(latencies: &mut [u64], longest_under_way_ns: u64) -> Percentiles {
    latencies.sort_unstable();
    let at = |percent: usize| {
        let rank = (latencies.len() * percent).div_ceil(100).max(1);
        latencies.get(rank - 1).copied().unwrap_or(0)
    };
    Percentiles { p50: at(50), p99: at(99), max: at(100).max(longest_under_way_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_task_is_read_from_its_stat() {
        let _here = crate::timers::PinnedCpu::pin();
        // SAFETY: the call takes nothing.
        let me = unsafe { libc::gettid() };
        assert_eq!(cpu_of(me), Some(sys::cpu()));
        assert_eq!(cpu_of(0), None);
    }

    #[test]
    fn ranks_of_percentiles_are_rounded_up() {
        assert_eq!(percentiles(&mut [], 0), Percentiles::default());
        assert_eq!(percentiles(&mut [2, 1], 1), Percentiles { p50: 1, p99: 2, max: 2 });
        assert_eq!(percentiles(&mut [2, 1], 9), Percentiles { p50: 1, p99: 2, max: 9 });
        let mut many: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(percentiles(&mut many, 0), Percentiles { p50: 100, p99: 198, max: 200 });
    }
}
