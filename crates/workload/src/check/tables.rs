//! Checks locks, channels, distributions, sources, interventions and expectations, entry by entry.

use super::{
    Checked, WEIGHTS, check_class_change, check_cpu, check_in_range, check_limit, check_nice,
    check_reference, check_time, check_unique_name, check_v1_hierarchy, refuse,
};
use crate::bounds::{MAX_DURATION_NS, MAX_SIGMA, MAX_VALUE_COUNT, MAX_VALUES, NS_PER_US};
use crate::dist::counts;
use crate::error::{Error, PartIx};
use crate::model::{Action, Arrivals, Distribution, Expectation, Parts, Span, TaskSpec};
use crate::units::{accepted_names, quoted};
use cpumax_limit::Limit;
use std::collections::BTreeSet;

/// Refuses locks or channels with invalid or equal names, and a capacity of 0.
pub(super) fn check_locks_and_channels(workload: &Parts) -> Checked {
    let mut seen = BTreeSet::new();
    for (ix, lock) in workload.locks.iter().enumerate() {
        check_unique_name(PartIx::Lock(ix), &lock.name, &mut seen)?;
    }
    let mut seen = BTreeSet::new();
    for (ix, channel) in workload.channels.iter().enumerate() {
        check_unique_name(PartIx::Channel(ix), &channel.name, &mut seen)?;
        check_countable(PartIx::Channel(ix), "capacity", channel.capacity)?;
    }
    Ok(())
}

/// Checks a number that a file can hold; `u64::MAX` stands for no bound.
pub(super) fn check_countable(part: PartIx, field: &'static str, value: u64) -> Checked {
    match value {
        u64::MAX => Ok(()),
        _ => check_in_range(part, field, value, 1..=i64::MAX as u64),
    }
}

/// Refuses a fixed length of more than a day, and a distribution that does not exist.
pub(super) fn check_span(
    workload: &Parts,
    part: PartIx,
    field: &'static str,
    span: Span,
) -> Checked {
    match span {
        Span::Fixed(ns) => check_time(part, field, ns, 0..=MAX_DURATION_NS),
        Span::Drawn(ix) => check_reference(part, field, ix, workload.distributions.len()),
    }
}

/// Checks the lengths and parameters of all distributions. A distribution of values needs a count
/// for each.
pub(super) fn check_distributions(workload: &Parts) -> Checked {
    for (ix, distribution) in workload.distributions.iter().enumerate() {
        let part = PartIx::Distribution(ix);
        let time = |field, ns| check_time(part, field, ns, 0..=MAX_DURATION_NS);
        match distribution {
            Distribution::Constant { ns } => time("constant", *ns)?,
            Distribution::Uniform { low_ns, high_ns } => {
                time("uniform", *high_ns)?;
                if low_ns > high_ns {
                    let problem = "the first value of uniform is larger than the second";
                    return refuse(part, "", Error::Value, problem, "the smaller value first");
                }
            }
            Distribution::Exponential { mean_ns } => time("exponential", *mean_ns)?,
            Distribution::LogNormal { median_ns, sigma } => {
                time("median", *median_ns)?;
                if !(0.0..=MAX_SIGMA).contains(sigma) {
                    let problem = format!("sigma is {sigma}");
                    let accepted = format!("from 0 to {MAX_SIGMA}");
                    return refuse(part, "", Error::Value, problem, accepted);
                }
            }
            Distribution::Empirical { values_ns, cumulative } => {
                check_in_range(part, "number of values", values_ns.len() as u64, 1..=MAX_VALUES)?;
                for &ns in values_ns {
                    time("empirical", ns)?;
                }
                let counted =
                    counts(cumulative).all(|count| (1..=MAX_VALUE_COUNT).contains(&count));
                if !counted || cumulative.len() != values_ns.len() {
                    let problem = "the values of empirical are not each counted once or more";
                    let accepted = format!("a count from 1 to {MAX_VALUE_COUNT} for each");
                    return refuse(part, "", Error::Value, problem, accepted);
                }
            }
        }
    }
    Ok(())
}

/// Checks names, references, times and counts of the sources. A list of times is ascending and
/// excludes start and count.
pub(super) fn check_sources(workload: &Parts) -> Checked {
    let mut seen = BTreeSet::new();
    for (ix, source) in workload.sources.iter().enumerate() {
        let part = PartIx::Source(ix);
        check_unique_name(part, &source.name, &mut seen)?;
        check_reference(part, "channel", source.channel, workload.channels.len())?;
        check_time(part, "start", source.start_ns, 0..=MAX_DURATION_NS)?;
        if source.count > 0 {
            check_countable(part, "count", source.count)?;
        }
        check_in_range(part, "number of jobs", source.jobs.len() as u64, 0..=MAX_VALUES)?;
        for &job in &source.jobs {
            check_reference(part, "jobs", job, workload.jobs.len())?;
        }
        match &source.arrivals {
            Arrivals::Between(span) => {
                check_span(workload, part, "every", *span)?;
                check_mean_of_arrivals(workload, part, *span)?;
            }
            Arrivals::At(times_ns) => {
                check_in_range(part, "number of times", times_ns.len() as u64, 1..=MAX_VALUES)?;
                if !times_ns.is_sorted() {
                    let problem = "the times are not in ascending order";
                    return refuse(part, "at", Error::Value, problem, "earlier times first");
                }
                let last_ns = times_ns.last().copied().unwrap_or(0);
                check_time(part, "at", last_ns, 0..=MAX_DURATION_NS)?;
                if source.start_ns != 0 || source.count != u64::MAX {
                    let problem = "a source with a list of times has no start and no count";
                    return refuse(part, "at", Error::Field, problem, "leave them out");
                }
            }
        }
    }
    Ok(())
}

/// Refuses more than one arrival in a microsecond, a load beyond every machine.
fn check_mean_of_arrivals(workload: &Parts, part: PartIx, span: Span) -> Checked {
    let mean_ns = match span {
        Span::Fixed(ns) => ns as f64,
        Span::Drawn(ix) => {
            workload.distributions.get(ix as usize).map_or(0.0, Distribution::mean_ns)
        }
    };
    if mean_ns >= NS_PER_US as f64 {
        return Ok(());
    }
    let problem = match span {
        Span::Fixed(0) => "no time passes between arrivals".to_owned(),
        _ => format!("the mean time between arrivals is {mean_ns} ns"),
    };
    refuse(part, "every", Error::Value, problem, "a mean of 1us or more")
}

/// Whether at least one in a thousand lengths is above 0.
pub(super) fn takes_time(workload: &Parts, span: Span) -> bool {
    let ix = match span {
        Span::Fixed(ns) => return ns > 0,
        Span::Drawn(ix) => ix,
    };
    match workload.distributions.get(ix as usize) {
        Some(Distribution::Constant { ns }) => *ns > 0,
        Some(Distribution::Uniform { high_ns, .. }) => *high_ns > 0,
        Some(Distribution::Exponential { mean_ns }) => *mean_ns > 0,
        Some(Distribution::LogNormal { median_ns, .. }) => *median_ns > 0,
        Some(Distribution::Empirical { values_ns, cumulative }) => {
            let all = cumulative.last().copied().unwrap_or(0);
            let counted = values_ns.iter().zip(counts(cumulative));
            let longer: u64 = counted.filter(|(ns, _)| **ns > 0).map(|(_, count)| count).sum();
            longer > 0 && longer >= all / 1000
        }
        None => false,
    }
}

/// Checks the changes from outside: in order of time, each valid, and each limit of a v1 group one
/// that the kernel accepts after those before it. Groups, tasks and sets of CPUs have been checked.
pub(super) fn check_interventions(workload: &Parts) -> Checked {
    /// Bound on the work of checking v1 limits after each write: groups visited in all.
    const MAX_V1_VISITS: u64 = 200_000_000;
    let mut limits: Vec<Limit> = workload.groups.iter().map(|group| group.limit).collect();
    let mut v1_visits = 0;
    let mut before_ns = 0;
    for (ix, intervention) in workload.interventions.iter().enumerate() {
        let part = PartIx::Intervention(ix);
        check_time(part, "time", intervention.at_ns, 0..=MAX_DURATION_NS)?;
        if intervention.at_ns < before_ns {
            return refuse(
                part,
                "time",
                Error::Value,
                "not in order of time",
                "earlier ones first",
            );
        }
        before_ns = intervention.at_ns;
        if let Some(every_ns) = intervention.every_ns {
            check_time(part, "repeat", every_ns, NS_PER_US..=MAX_DURATION_NS)?;
        } else if intervention.until_ns != u64::MAX {
            let problem = "`until` without `repeat`";
            return refuse(
                part,
                "until",
                Error::Field,
                problem,
                "add `repeat`, or leave out `until`",
            );
        }
        if intervention.until_ns <= intervention.at_ns {
            let problem = "`until` is not after `time`";
            return refuse(part, "until", Error::Value, problem, "a later time");
        }
        check_action(workload, part, &intervention.action)?;
        if let Action::WriteLimit { group, limit } = intervention.action {
            limits[group as usize] = limit;
            if !workload.groups[group as usize].v1 {
                continue;
            }
            v1_visits += workload.groups.len() as u64;
            if v1_visits > MAX_V1_VISITS {
                let problem = "too many writes of v1 limits for so many groups";
                return refuse(part, "", Error::Value, problem, "fewer writes or fewer groups");
            }
            if let Err((_, problem)) = check_v1_hierarchy(workload, &limits) {
                let accepted = "a write that the kernel accepts at that time";
                return refuse(part, "max", Error::Limit, problem, accepted);
            }
        }
    }
    Ok(())
}

/// Checks the references and ranges of one change. The root has no limit or weight, and CPU 0 stays
/// online.
fn check_action(workload: &Parts, part: PartIx, action: &Action) -> Checked {
    let kind = |kind| check_reference(part, "task", kind, workload.tasks.len());
    let group = |field, group| check_reference(part, field, group, workload.groups.len());
    match *action {
        Action::WriteLimit { group: of, limit: to } => {
            group("group", of)?;
            if of == 0 {
                let problem = "the root group has no limit";
                return refuse(part, "group", Error::Limit, problem, "a group below it");
            }
            check_limit(part, to)
        }
        Action::WriteWeight { group: of, weight } => {
            group("group", of)?;
            if of == 0 {
                let problem = "the root group has no weight";
                return refuse(part, "group", Error::Limit, problem, "a group below it");
            }
            check_in_range(part, "weight", weight.into(), WEIGHTS)
        }
        Action::Signal { kind: of, .. } => kind(of),
        Action::Move { kind: of, group: to } => {
            kind(of)?;
            group("move", to)
        }
        Action::SetAffinity { kind: of, cpus } => {
            kind(of)?;
            check_reference(part, "affinity", cpus, workload.cpu_sets.len())
        }
        Action::SetNice { kind: of, nice: to } => {
            kind(of)?;
            check_nice(part, to)
        }
        Action::SetClass { kind: of, class } => {
            kind(of)?;
            check_class_change(workload, part, Some(of), class)
        }
        Action::CpuOffline { cpu: of } => {
            check_cpu(workload, part, "offline", of)?;
            if of == 0 {
                let problem = "CPU 0 cannot be taken offline";
                return refuse(part, "offline", Error::Value, problem, "a CPU from 1 on");
            }
            Ok(())
        }
        Action::CpuOnline { cpu: of } => check_cpu(workload, part, "online", of),
    }
}

/// Checks metrics, selections of kernels, and bounds.
pub(crate) fn check_expectations(workload: &Parts) -> Checked {
    let names = Names {
        groups: workload.groups.iter().skip(1).map(|group| group.path.as_str()).collect(),
        tasks: workload.tasks.iter().map(TaskSpec::label).collect(),
    };
    for (ix, expectation) in workload.expectations.iter().enumerate() {
        let part = PartIx::Expectation(ix);
        check_metric(&names, part, "metric", &expectation.metric)?;
        if let Some(per) = &expectation.per {
            check_metric(&names, part, "per", per)?;
        }
        check_kernels(part, "on", &expectation.kernels, true)?;
        if let Some(over) = &expectation.over {
            check_kernels(part, "over", over, false)?;
        }
        check_bounds(part, expectation)?;
    }
    Ok(())
}

/// Groups and labels of which a result has numbers.
struct Names<'a> {
    groups: BTreeSet<&'a str>,
    tasks: BTreeSet<&'a str>,
}

/// Refuses an expectation without bounds, with infinite ones, or with `min` above `max`.
fn check_bounds(part: PartIx, expectation: &Expectation) -> Checked {
    let (min, max) = (expectation.min, expectation.max);
    if min.is_none() && max.is_none() {
        let problem = "nothing is expected";
        return refuse(part, "metric", Error::Field, problem, "give `min`, `max`, both, or `is`");
    }
    let finite = |bound: Option<f64>| bound.is_none_or(f64::is_finite);
    if !finite(min) || !finite(max) {
        return refuse(part, "min", Error::Value, "a bound is not a number", "a finite number");
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let problem = format!("min is {min} and max is {max}");
        return refuse(part, "min", Error::Value, problem, "min at most max");
    }
    Ok(())
}

/// Checks the beginning of a number's path; the form of results decides about the rest.
fn check_metric(names: &Names<'_>, part: PartIx, field: &'static str, path: &str) -> Checked {
    const FIRST: [&str; 5] = ["groups", "tasks", "release", "events", "simulated_ns"];
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let (names, what, form) = match first {
        "groups" => (&names.groups, "group", "groups.PATH.FIELD; PATH"),
        "tasks" => (&names.tasks, "task", "tasks.NAME.FIELD; NAME"),
        _ if FIRST.contains(&first) => return Ok(()),
        _ => {
            let problem = format!("a result has no {}", quoted(first));
            return refuse(part, field, Error::Name, problem, accepted_names(first, FIRST));
        }
    };
    // Names may contain dots.
    if rest.match_indices('.').any(|(dot, _)| names.contains(&rest[..dot])) {
        return Ok(());
    }
    let asked = rest.split_once('.').map_or(rest, |(asked, _)| asked);
    let accepted = format!("{form}: {}", accepted_names(asked, names.iter().copied()));
    let problem = format!("there is no {what} {} with a number", quoted(rest));
    refuse(part, field, Error::Name, problem, accepted)
}

/// Checks the form of a selection of kernels; the runner of the workload knows which kernels exist.
fn check_kernels(part: PartIx, field: &'static str, text: &str, many: bool) -> Checked {
    let version = |text: &str| {
        let parts: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
        let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        (2..=3).contains(&parts.len()) && parts.iter().all(digits)
    };
    let generation = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let one = |text: &str| version(text) || generation(text);
    let end = |text: &str| text.is_empty() || one(text);
    let item = |text: &str| match text.split_once("..") {
        Some((from, to)) => many && end(from) && end(to.strip_prefix('=').unwrap_or(to)),
        None => one(text),
    };
    let fits = if many {
        text.is_empty() || text.split(',').all(|text| item(text.trim()))
    } else {
        item(text.trim())
    };
    if fits {
        return Ok(());
    }
    let accepted = if many {
        "versions (6.12), generations (G2a) and ranges of them (6.12..7.1, G3..), comma-separated"
    } else {
        "one version (6.12) or generation (G2a)"
    };
    refuse(part, field, Error::Value, format!("{} selects no kernel", quoted(text)), accepted)
}
