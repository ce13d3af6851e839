//! Copies of a workload with more or less to do: work that takes longer, as on a slower CPU, or
//! more requests.

use crate::checked::Workload;
use crate::error::{Error, Finding};
use crate::model::{Arrivals, DistIx, Distribution, GroupIx, Op, Parts, Span, TaskSpec};
use std::collections::BTreeMap;

/// A choice of kinds of task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks<'a> {
    /// Every kind.
    All,
    /// The kinds that start in this group or below it.
    In(GroupIx),
    /// The kinds that do not start in this group or below it.
    NotIn(GroupIx),
    /// The kinds with this label.
    Labelled(&'a str),
}

impl Tasks<'_> {
    /// Whether the kind of task is one of these.
    fn are(self, task: &TaskSpec, parts: &Parts) -> bool {
        match self {
            Tasks::All => true,
            Tasks::In(group) => parts.is_within(task.group, group),
            Tasks::NotIn(group) => !parts.is_within(task.group, group),
            Tasks::Labelled(label) => task.label() == label,
        }
    }
}

impl Parts {
    /// Whether `group` is `above` or lies below it.
    pub fn is_within(&self, group: GroupIx, above: GroupIx) -> bool {
        let mut at = Some(group);
        // Parents stand before their children in checked parts; the bound ends the loop in others.
        for _ in 0..self.groups.len() {
            match at {
                Some(group) if group == above => return true,
                Some(group) => at = self.groups.get(group as usize).and_then(|g| g.parent),
                None => return false,
            }
        }
        false
    }
}

const FACTORS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

impl Workload {
    /// Scales the work of these tasks (user, kernel, and with interrupts off) by `factor`, to the
    /// nearest ns; work above 0 stays above 0. Jobs that they serve are part of their work.
    ///
    /// ```
    /// use cpumax_workload::{Op, Span, Tasks, parse};
    ///
    /// let text = "[[task]]\nname = \"a\"\nprogram = [{ user = \"2ms\" }, { sleep = \"2ms\" }]";
    /// let slower = parse(text, "a.toml")?.scale_work(Tasks::All, 1.5)?;
    /// assert_eq!(slower.tasks[0].program[0], Op::User(Span::Fixed(3_000_000)));
    /// assert_eq!(slower.tasks[0].program[1], Op::Sleep(Span::Fixed(2_000_000)));
    /// # Ok::<(), cpumax_workload::Error>(())
    /// ```
    ///
    /// # Errors
    /// A factor that is not from 0.001 to 1000, or work of more than a day.
    pub fn scale_work(self, which: Tasks<'_>, factor: f64) -> Result<Workload, Error> {
        check_factor(factor)?;
        let mut parts = self.into_parts();
        let chosen = chosen(&parts, which);
        let served = served(&parts, &fed(&parts, &chosen));
        let Parts { tasks, jobs, distributions, .. } = &mut parts;
        let mut lengths = Lengths { distributions, times: factor, made: BTreeMap::new() };
        let own = tasks.iter_mut().zip(chosen).filter(|(_, chosen)| *chosen);
        let jobs = jobs.iter_mut().zip(served).filter(|(_, served)| *served);
        let programs = own.map(|(task, _)| &mut task.program);
        for op in programs.chain(jobs.map(|(job, _)| &mut job.program)).flatten() {
            if let Op::User(span) | Op::Kernel(span) | Op::IrqOff(span) = op {
                lengths.scale(span);
            }
        }
        parts.try_into()
    }

    /// Scales the load of these tasks by `factor`: their sleeps and periods, and the times between
    /// tokens that sources and `after` send them, become shorter by it. Listed arrival times count
    /// from the start of the run; a limited number of arrivals stays.
    ///
    /// # Errors
    /// A factor that is not from 0.001 to 1000, sleeps of more than a day, or periods and arrivals
    /// of less than a microsecond.
    pub fn scale_load(self, which: Tasks<'_>, factor: f64) -> Result<Workload, Error> {
        check_factor(factor)?;
        let mut parts = self.into_parts();
        let chosen = chosen(&parts, which);
        let fed = fed(&parts, &chosen);
        let Parts { tasks, jobs, distributions, sources, .. } = &mut parts;
        let mut lengths = Lengths { distributions, times: 1.0 / factor, made: BTreeMap::new() };
        for (task, chosen) in tasks.iter_mut().zip(chosen) {
            for op in &mut task.program {
                match op {
                    Op::Sleep(span) if chosen => lengths.scale(span),
                    Op::Every { period_ns } if chosen => *period_ns = lengths.scaled_ns(*period_ns),
                    _ => lengths.scale_after(op, &fed),
                }
            }
        }
        for op in jobs.iter_mut().flat_map(|job| &mut job.program) {
            lengths.scale_after(op, &fed);
        }
        for source in sources.iter_mut().filter(|source| fed[source.channel as usize]) {
            match &mut source.arrivals {
                Arrivals::Between(span) => lengths.scale(span),
                Arrivals::At(times_ns) => {
                    for ns in times_ns {
                        *ns = lengths.scaled_ns(*ns);
                    }
                }
            }
        }
        parts.try_into()
    }
}

/// An error for a factor that is not from 0.001 to 1000.
fn check_factor(factor: f64) -> Result<(), Error> {
    if FACTORS.contains(&factor) {
        return Ok(());
    }
    Err(Error::Value(Box::new(Finding {
        location: None,
        part: String::new(),
        problem: format!("the factor is {factor}"),
        accepted: format!("from {} to {}", FACTORS.start(), FACTORS.end()),
    })))
}

/// For each kind of task whether it is one of these.
fn chosen(parts: &Parts, which: Tasks<'_>) -> Vec<bool> {
    parts.tasks.iter().map(|task| which.are(task, parts)).collect()
}

/// For each channel whether the chosen kinds of task take tokens from it.
fn fed(parts: &Parts, chosen: &[bool]) -> Vec<bool> {
    let mut fed = vec![false; parts.channels.len()];
    let tasks = parts.tasks.iter().zip(chosen).filter(|(_, chosen)| **chosen);
    for op in tasks.flat_map(|(task, _)| &task.program) {
        if let Op::Recv { channel, .. } | Op::Serve { channel } = op {
            fed[*channel as usize] = true;
        }
    }
    fed
}

/// For each job whether tokens in the `fed` channels carry it.
fn served(parts: &Parts, fed: &[bool]) -> Vec<bool> {
    let mut served = vec![false; parts.jobs.len()];
    for op in parts.programs().flatten() {
        if let Op::Post { channel, job } | Op::After { channel, job, .. } = op {
            served[*job as usize] |= fed[*channel as usize];
        }
    }
    for source in parts.sources.iter().filter(|source| fed[source.channel as usize]) {
        source.jobs.iter().for_each(|job| served[*job as usize] = true);
    }
    served
}

/// Scales lengths of time by one factor.
struct Lengths<'a> {
    distributions: &'a mut Vec<Distribution>,
    times: f64,
    /// Scaled copy of each distribution: other tasks may still draw from the original.
    made: BTreeMap<DistIx, DistIx>,
}

impl Lengths<'_> {
    /// Scales a length, fixed or drawn.
    fn scale(&mut self, span: &mut Span) {
        *span = match *span {
            Span::Fixed(ns) => Span::Fixed(self.scaled_ns(ns)),
            Span::Drawn(ix) => Span::Drawn(self.scaled(ix)),
        }
    }

    /// Scales the delay of an `after` whose token goes to one of these channels.
    fn scale_after(&mut self, op: &mut Op, fed: &[bool]) {
        if let Op::After { delay, channel, .. } = op
            && fed[*channel as usize]
        {
            self.scale(delay);
        }
    }

    /// The scaled length to the nearest ns; a length above 0 stays above 0.
    fn scaled_ns(&self, ns: u64) -> u64 {
        ((ns as f64 * self.times).round() as u64).max(u64::from(ns > 0))
    }

    /// Index of the scaled copy of a distribution, which is added on first use.
    fn scaled(&mut self, ix: DistIx) -> DistIx {
        if let Some(&made) = self.made.get(&ix) {
            return made;
        }
        let scaled = self.distributions[ix as usize].map(|ns| self.scaled_ns(ns));
        let made = self.distributions.len() as DistIx;
        self.distributions.push(scaled);
        self.made.insert(ix, made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, print};

    const TEXT: &str = r#"
        [[group]]
        path = "/a/b"
        [[channel]]
        name = "requests"
        [[channel]]
        name = "others"
        [[source]]
        name = "s"
        channel = "requests"
        every = { exponential = "3ms" }
        [[source]]
        name = "o"
        channel = "others"
        at = ["1ms", "4ms"]
        [[task]]
        name = "in"
        group = "/a/b"
        program = [
            { recv = "requests" }, { user = { exponential = "3ms" } }, { sleep = "4ms" },
            { every = "10ms" }, { user = "0ms" }, { kernel = "1ns" },
        ]
        [[task]]
        name = "out"
        program = [{ recv = "others" }, { user = { exponential = "3ms" } }, { sleep = "4ms" }]
    "#;

    fn changed(scale: impl Fn(Workload, Tasks<'_>) -> Workload, which: Tasks<'_>) -> String {
        let before = parse(TEXT, "scaled.toml").unwrap();
        let after = print(&scale(before.clone(), which));
        let lines = print(&before);
        let pairs = lines.lines().zip(after.lines()).filter(|(before, after)| before != after);
        pairs.map(|(_, after)| after.trim()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn work_is_scaled_where_it_is_chosen_and_nowhere_else() {
        let slower = |w: Workload, which: Tasks<'_>| w.scale_work(which, 0.25).unwrap();
        let once = r#"{ user = { exponential = "750us" } },"#;
        assert_eq!(changed(slower, Tasks::In(1)), once);
        assert_eq!(changed(slower, Tasks::Labelled("out")), once);
        assert_eq!(changed(slower, Tasks::All), [once, once].join("\n"));
        assert_eq!(changed(slower, Tasks::NotIn(1)), once);
    }

    #[test]
    fn twice_the_load_comes_and_thinks_in_half_the_time() {
        let load = |w: Workload, which: Tasks<'_>| w.scale_load(which, 2.0).unwrap();
        let sleeps = r#"{ sleep = "2ms" },"#;
        let every = r#"{ every = "5ms" },"#;
        let sent = r#"every = { exponential = "1500us" }"#;
        assert_eq!(changed(load, Tasks::In(1)), [sleeps, every, sent].join("\n"));
        let sent = r#"at = ["500us", "2ms"]"#;
        assert_eq!(changed(load, Tasks::NotIn(1)), [sleeps, sent].join("\n"));
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let workload = parse(TEXT, "scaled.toml").unwrap();
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(workload.clone().scale_work(Tasks::All, factor).is_err(), "{factor}");
        }
        let text = "[[task]]\nname = \"h\"\nprogram = [{ user = \"1h\" }]";
        let hourly = parse(text, "h.toml").unwrap();
        assert!(hourly.scale_work(Tasks::All, 25.0).is_err());
    }

    #[test]
    fn jobs_are_the_work_of_who_serves_them() {
        let text = r#"
            [[channel]]
            name = "c"
            [[job]]
            name = "request"
            program = [
                { user = "2ms" }, { sleep = "4ms" }, { post = "request", to = "c", after = "8ms" },
            ]
            [[task]]
            name = "server"
            program = [{ forever = [{ serve = "c" }] }]
            [[task]]
            name = "client"
            program = [{ post = "request", to = "c" }, { user = "2ms" }]
        "#;
        let workload = parse(text, "jobs.toml").unwrap();
        let lines = |workload: Workload| {
            let text = print(&workload);
            let lines = text.lines().map(str::trim).filter(|line| line.contains("ms"));
            lines.skip(1).map(str::to_owned).collect::<Vec<_>>().join("\n")
        };
        let before = lines(workload.clone());
        let server = Tasks::Labelled("server");
        let slower = lines(workload.clone().scale_work(server, 2.0).unwrap());
        assert_eq!(slower, before.replacen("user = \"2ms\"", "user = \"4ms\"", 1));
        let more = lines(workload.clone().scale_load(server, 4.0).unwrap());
        assert_eq!(more, before.replace("\"8ms\"", "\"2ms\""));
        let client = Tasks::Labelled("client");
        assert_eq!(lines(workload.scale_load(client, 4.0).unwrap()), before);
    }
}
