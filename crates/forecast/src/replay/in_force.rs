//! Limits and weights that groups had in the recording. They stay in force in a replay, except for
//! the limit of the group on which limits are tried, and that of a Kubernetes pod above it, which
//! kubelet moves with it. Limits of groups above it, recorded or tried, throttle its threads as
//! well; its own periods do not tell that.

use super::Replay;
use cpumax_limit::Limit;
use cpumax_outcome::{GroupOutcome, Outcome};
use cpumax_recording::about::GroupFiles;
use cpumax_study::{Share, Try};
use cpumax_workload::{GroupIx, Workload};

/// The default `cpu.weight`.
const USUAL_WEIGHT: u32 = 100;
/// The default `cpu.shares` (cgroup v1).
const USUAL_SHARES: u32 = 1024;

/// A pod of kubelet above the limited container, with the limit that is the sum of those of its
/// containers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod {
    /// Its group.
    pub group: GroupIx,
    period_ns: u64,
    /// Quota of the other containers together.
    others_ns: u64,
}

impl Pod {
    /// The pod above `group`; `None` where one of the two was recorded without a limit.
    pub fn above(told: &[GroupFiles], workload: &Workload, group: GroupIx) -> Option<Pod> {
        let of = |at: GroupIx| &workload.groups[at as usize];
        let limit = |at: GroupIx| told.iter().find(|files| files.path == of(at).path)?.limit();
        let parent = of(group).parent.filter(|parent| *parent > 0)?;
        let (above, name) = of(parent).path.rsplit_once('/')?;
        let (own, pod) = (limit(group)?, limit(parent)?);
        let others_ns = pod.quota_ns()?.checked_sub(own.quota_ns()?)?;
        let is_pod = above.contains("kubepods") && name.contains("pod");
        let period_ns = pod.period_ns();
        (is_pod && own.period_ns() == period_ns).then_some(Pod {
            group: parent,
            period_ns,
            others_ns,
        })
    }

    /// Its limit beside this one of the container.
    pub fn beside(&self, own: Limit) -> Limit {
        let period_ns = own.period_ns();
        let others = u128::from(self.others_ns) * u128::from(period_ns);
        let others_ns = (others / u128::from(self.period_ns.max(1))) as u64;
        let quota_ns = own.quota_ns().map(|own_ns| own_ns.saturating_add(others_ns));
        Limit::new(quota_ns, period_ns, 0).unwrap_or(Limit::UNLIMITED)
    }
}

/// Limits and weights that groups of the workload had, where they are no defaults; the root and the
/// limits of `group` and of `pod` are left out, and an unreadable limit counts as none.
pub(super) fn in_force(
    told: &[GroupFiles],
    workload: &Workload,
    group: GroupIx,
    pod: Option<Pod>,
) -> Vec<(GroupIx, Share)> {
    let moves = |index| index == group || pod.is_some_and(|pod| pod.group == index);
    let share = |files: &GroupFiles| {
        let index = workload.groups.iter().position(|group| group.path == files.path)? as GroupIx;
        let told = || files.limit().unwrap_or(Limit::UNLIMITED);
        let limit = if moves(index) { Limit::UNLIMITED } else { told() };
        let weight = weight(files).filter(|weight| *weight != USUAL_WEIGHT);
        let is_usual = limit.quota_ns().is_none() && weight.is_none();
        (index > 0 && !is_usual).then_some((index, Share { limit, weight }))
    };
    told.iter().filter_map(share).collect()
}

impl Replay {
    /// The limited group above this one that was throttled most in a run: its path, and its
    /// throttled periods, of a hundred. `None` if none has a limit.
    pub fn throttled_above<'a>(&'a self, outcome: &Outcome) -> Option<(&'a str, f64)> {
        throttled_above(self.workload(), self.group, outcome)
    }

    /// Whether this limit, or one that is in force, is that of another group.
    pub(super) fn is_nested(&self, limit: &Try) -> bool {
        let is_limit = |(_, share): &(GroupIx, Share)| share.limit.quota_ns().is_some();
        self.pod.is_some() || !limit.is_alone() || self.in_force.iter().any(is_limit)
    }
}

fn throttled_above<'a>(
    workload: &'a Workload,
    group: GroupIx,
    outcome: &Outcome,
) -> Option<(&'a str, f64)> {
    let parent = |at: &GroupIx| workload.groups[*at as usize].parent;
    let above = std::iter::successors(parent(&group), parent).filter_map(|at| {
        let path = workload.groups[at as usize].path.as_str();
        let counted = outcome.groups.get(path).filter(|counted| counted.nr_periods > 0)?;
        Some((path, share(counted)))
    });
    above.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Throttled periods of a group, of a hundred.
fn share(counted: &GroupOutcome) -> f64 {
    100.0 * counted.nr_throttled as f64 / counted.nr_periods as f64
}

/// `cpu.weight` of a group, or its `cpu.shares` in that unit; `None` where neither file has a
/// number that gives 1 to 10000.
fn weight(files: &GroupFiles) -> Option<u32> {
    let number = |name: &str| files.files.get(name)?.trim().parse::<u32>().ok();
    let of_shares = |shares: u32| {
        let weight =
            shares.checked_mul(USUAL_WEIGHT)?.checked_add(USUAL_SHARES / 2)? / USUAL_SHARES;
        Some(weight.max(1))
    };
    let weight = number("cpu.weight").or_else(|| number("cpu.shares").and_then(of_shares));
    weight.filter(|weight| (1..=10_000).contains(weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::*;
    use cpumax_study::{Job, Model, Ranged, WhatIf, with_shares, world};
    use cpumax_workload::build::table;
    use std::sync::Arc;
    use std::time::Duration;

    fn files(path: &str, files: &[(&str, &str)]) -> GroupFiles {
        let files: Vec<[&str; 2]> = files.iter().map(|(name, text)| [*name, *text]).collect();
        let files: std::collections::BTreeMap<_, _> =
            files.into_iter().map(|[a, b]| (a, b)).collect();
        serde_json::from_value(serde_json::json!({ "path": path, "files": files })).unwrap()
    }

    #[test]
    fn limits_above_stay_and_that_of_the_limited_group_does_not() {
        let nested = cpumax_study::scenario::load("nested").unwrap();
        let path = |group: usize| nested.groups[group].path.clone();
        let group = (1..nested.groups.len())
            .find(|group| nested.groups[*group].parent.is_some_and(|parent| parent > 0))
            .unwrap();
        let above = nested.groups[group].parent.unwrap();
        let told = [
            files(&path(group), &[("cpu.max", "5000 100000"), ("cpu.weight", "50")]),
            files(&path(above as usize), &[("cpu.max", "30000 100000"), ("cpu.max.burst", "1000")]),
            files("/", &[("cpu.weight", "7")]),
            files("/elsewhere", &[("cpu.max", "1000 100000")]),
        ];
        let found = in_force(&told, &nested, group as GroupIx, None);
        let limit = Limit::new(Some(30_000_000), 100_000_000, 1_000_000).unwrap();
        assert_eq!(
            found,
            [
                (group as GroupIx, Share { limit: Limit::UNLIMITED, weight: Some(50) }),
                (above, Share { limit, weight: None })
            ]
        );
        let workload = with_shares(nested, &found).unwrap();
        assert_eq!(workload.groups[above as usize].limit, limit);
        assert_eq!(workload.groups[group].limit.quota_ns(), None);
    }

    /// A task in a group below the one of this path, and both groups.
    fn container_in(path: &str) -> (Workload, GroupIx, GroupIx) {
        let child = format!("{path}/4f1c");
        let program = vec![table("user", Duration::from_millis(1))];
        let task = table("name", "task").with("group", child.as_str()).with("program", program);
        let workload = Workload::builder("in a pod")
            .with("duration", Duration::from_secs(1))
            .part("group", table("path", path))
            .part("group", table("path", child.as_str()))
            .part("task", task)
            .build()
            .unwrap();
        let at = |path: &str| workload.groups.iter().position(|group| group.path == path).unwrap();
        let (pod, own) = (at(path) as GroupIx, at(&child) as GroupIx);
        (workload, pod, own)
    }

    #[test]
    fn a_pod_moves_with_its_container() {
        let told = |own: &str, pod: &str, path: &str| {
            let child = format!("{path}/4f1c");
            [files(&child, &[("cpu.max", own)]), files(path, &[("cpu.max", pod)])]
        };
        let path = "/kubepods/burstable/pod6b1f";
        let (nested, pod, own) = container_in(path);
        let above = |own_limit: &str, pod_limit: &str| {
            Pod::above(&told(own_limit, pod_limit, path), &nested, own)
        };
        let found = above("50000 100000", "70000 100000").unwrap();
        assert_eq!(found.group, pod);
        let limit = Limit::new(Some(8_000_000), 10_000_000, 0).unwrap();
        assert_eq!(found.beside(limit).quota_ns(), Some(10_000_000));
        assert_eq!(found.beside(Limit::UNLIMITED).quota_ns(), None);
        assert!(above("max 100000", "70000 100000").is_none());
        assert!(above("80000 100000", "70000 100000").is_none());
        let both = told("50000 100000", "70000 100000", path);
        assert!(in_force(&both, &nested, own, Some(found)).is_empty());
        let (nested, _, own) = container_in("/system.slice/web");
        let told = told("50000 100000", "70000 100000", "/system.slice/web");
        assert!(Pod::above(&told, &nested, own).is_none(), "systemd moves nothing");
    }

    #[test]
    fn a_limit_above_tells_its_own_throttling() {
        let nested = Arc::new(cpumax_study::scenario::load("nested").unwrap());
        let kernel = cpumax_study::kernel::parse_kernels("6.18").unwrap()[0];
        let job = Job::new(Arc::clone(&nested), kernel.into(), 1);
        let reports = world::all(&Model::default(), &[job], &()).unwrap();
        let at = |path: &str| nested.groups.iter().position(|group| group.path == path).unwrap();
        let (parent, child) = (at("/parent") as GroupIx, at("/parent/child") as GroupIx);
        let told = throttled_above(&nested, child, &reports[0].outcome);
        assert!(matches!(told, Some(("/parent", percent)) if percent > 95.0), "{told:?}");
        assert_eq!(throttled_above(&nested, parent, &reports[0].outcome), None);
    }

    /// Runs of bursts of 30 ms in every second period, under 23 ms of a container and of its pod.
    fn in_a_pod_on(version: &str) -> Vec<(Sample, bool)> {
        let bursts = r#"
duration = "4s"
machine = { cpus = 1 }
group = [{ path = "/pod", max = "23000 100000" }, { path = "/pod/app", max = "23000 100000" }]
[[task]]
name = "burst"
group = "/pod/app"
program = [{ forever = [{ every = "200ms" }, { user = "30ms" }] }]
"#;
        let workload = Arc::new(cpumax_workload::parse(bursts, "bursts.toml").unwrap());
        let kernel = cpumax_study::kernel::parse_kernels(version).unwrap()[0];
        let work = WorkRange { low: 1.0, high: 1.0 };
        let unknowns = Unknowns { seed: 1, scale: None, work };
        let seen = FirstRun { throttled_percent: 49.5, relative_cost: 1.0 };
        let period_ns = Some(100_000_000);
        let mut draws = unknowns.others(period_ns, seen, true);
        draws.push(unknowns.first(period_ns));
        let job = |draw: &Draw| {
            let (duration_ns, phase_ns) = (workload.duration_ns, Some(draw.phase_ns));
            let what_if =
                WhatIf { shares: Vec::new(), duration_ns, phase_ns, apart_ns: draw.apart_ns };
            let job = Job::new(Arc::clone(&workload), kernel.into(), draw.seed);
            Job { what_if: Some(what_if), ..job }
        };
        let jobs: Vec<Job> = draws.iter().map(job).collect();
        let reports = world::all(&Model::default(), &jobs, &()).unwrap();
        let sample = |outcome: &Outcome| Sample {
            throttled_percent: Some(share(&outcome.groups["/pod/app"])),
            above_percent: throttled_above(&workload, 2, outcome).unwrap().1,
            ..Sample::default()
        };
        let runs = reports.iter().zip(&draws);
        runs.map(|(report, draw)| (sample(&report.outcome), draw.likely)).collect()
    }

    #[test]
    fn one_of_two_equal_limits_may_throttle_alone_where_timers_are_apart() {
        let apart = in_a_pod_on("6.18");
        let levels = |run: &Sample| [run.throttled_percent.unwrap(), run.above_percent];
        for [one, other] in [[0, 1], [1, 0]] {
            let is_alone = |run: &[f64; 2]| run[one] > 45.0 && run[other] < 3.0;
            let alone = apart.iter().filter(|(run, _)| is_alone(&levels(run))).count();
            assert!(alone > 0, "{apart:?}");
        }
        let runs: Vec<_> = apart.iter().map(|(run, likely)| (run, *likely)).collect();
        let told = predict(&runs, Unit::Bursts);
        for throttled in [told.throttled_percent, told.above_percent] {
            let Ranged { low, high, .. } = throttled.unwrap();
            assert!(low < 3.0 && high > 45.0, "{throttled:?}");
        }
        for (run, _) in in_a_pod_on("6.1") {
            let [own, pod] = levels(&run);
            assert!((own - pod).abs() < f64::EPSILON, "timers fire together: {run:?}");
        }
    }

    #[test]
    fn both_hierarchies_say_the_same() {
        let old = files(
            "/a",
            &[("cpu.cfs_quota_us", "20000"), ("cpu.cfs_period_us", "50000"), ("cpu.shares", "512")],
        );
        let new = files("/a", &[("cpu.max", "20000 50000"), ("cpu.weight", "50")]);
        assert_eq!((old.limit(), weight(&old)), (new.limit(), weight(&new)));
        assert!(new.limit().is_some());
        let none = files("/a", &[("cpu.max", "nonsense"), ("cpu.shares", "4294967295")]);
        assert_eq!((none.limit(), weight(&none)), (None, None));
        let usual = files(
            "/a",
            &[("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "100000"), ("cpu.shares", "1024")],
        );
        assert_eq!((usual.limit(), weight(&usual)), (Some(Limit::UNLIMITED), Some(USUAL_WEIGHT)));
    }
}
