//! Small random workloads that a real kernel can run, for comparisons with a model: groups up to
//! four deep, up to twelve tasks, on one CPU for about a second, or on two to eight CPUs for some
//! seconds.
//!
//! They avoid results that depend on a race: lengths are odd, so that events do not coincide, and
//! long compared with the work of the kernel that no workload describes. They also avoid everything
//! that a user program cannot cause: interrupts off, kernel threads, other machines.

use super::{Dice, GroupPlan, write_limit};
use crate::build::{Table, Value, table};
use crate::checked::Workload;
use crate::dist::{Domain, Stream};
use crate::model::{Distribution, Signal};
use cpumax_limit::Limit;
use std::time::Duration;

const SHORTEST_NS: u64 = 100_000;
const MAX_GROUPS: u64 = 6;
const MAX_DEPTH: usize = 4;
const MAX_KINDS: u64 = 5;
const MAX_TASKS: u64 = 12;
const MAX_CHANGES: u64 = 3;

const INODE: &str = "inode";
const RWSEM: &str = "rwsem";
const CHANNEL: &str = "channel";

struct Context<'a> {
    cpus: u16,
    paths: &'a [String],
    inode: bool,
    rwsem: bool,
    /// Whether a source or a task sends to the channel.
    fed: bool,
}

/// The small workload of this seed for one CPU of a real machine.
///
/// # Panics
/// If the checks refuse the generated workload, which is a bug in either.
pub fn real(seed: u64) -> Workload {
    // Streams 1 and 2 of the domain; the large workloads use stream 0.
    let mut dice = Dice(Stream::new(seed, Domain::Workload, 1));
    let duration_ns = dice.range(400_000_000, 1_200_000_000);
    draw_small(seed, &mut dice, 1, duration_ns)
}

/// The small workload of this seed for several CPUs of a real machine. It is longer, so that the
/// outcomes of races even out.
///
/// # Panics
/// See [`real`].
pub fn real_on_several(seed: u64) -> Workload {
    let mut dice = Dice(Stream::new(seed, Domain::Workload, 2));
    let cpus = dice.choose([2, 2, 3, 4, 8]);
    let duration_ns = dice.range(2_000_000_000, 5_000_000_000);
    draw_small(seed, &mut dice, cpus, duration_ns)
}

/// Draws a small workload of this length for so many CPUs, and checks it; panics if the checks
/// refuse it.
fn draw_small(seed: u64, dice: &mut Dice, cpus: u16, duration_ns: u64) -> Workload {
    let name = if cpus == 1 { format!("case-{seed}") } else { format!("case-{seed}-of-{cpus}") };
    let mut draft = Workload::builder(&name)
        .with("shows", "A small random workload.")
        .with("duration", Duration::from_nanos(duration_ns))
        .with("machine", table("cpus", cpus));
    let groups = draw_groups(dice, cpus);
    for group in &groups {
        draft = draft.part("group", group.table());
    }
    let mut paths: Vec<String> = groups.iter().map(|group| group.path.clone()).collect();
    if dice.one_in(3) {
        paths.push("/".to_owned());
    }
    let context = Context {
        cpus,
        paths: &paths,
        inode: dice.one_in(3),
        rwsem: dice.one_in(4),
        fed: dice.one_in(3),
    };
    if context.inode {
        draft = draft.part("lock", table("name", INODE).with("kind", "mutex"));
    }
    if context.rwsem {
        draft = draft.part("lock", table("name", RWSEM).with("kind", "rwsem"));
    }
    if context.fed {
        draft = draft.part("channel", table("name", CHANNEL));
        if dice.one_in(2) {
            let every = Duration::from_nanos(odd(dice.range(3_000_000, 30_000_000)));
            let source = table("name", "source").with("channel", CHANNEL);
            draft = draft.part("source", source.with("every", every));
        } else {
            draft = draft.part("task", draw_feeder(dice, &context));
        }
    }
    let kinds = dice.range(1, MAX_KINDS);
    let mut spare = MAX_TASKS - 1 - kinds;
    let mut names = Vec::new();
    for ix in 0..kinds {
        let more = dice.range(0, spare.min(3));
        spare -= more;
        let name = format!("task{ix}");
        draft = draft.part("task", draw_task(dice, &context, &name, 1 + more));
        names.push(name);
    }
    for _ in 0..dice.range(0, MAX_CHANGES) {
        let at_ns = odd(dice.range(duration_ns / 10, duration_ns * 9 / 10));
        let change = draw_act(dice, &context, &groups, &names);
        draft = draft.part("at", change.with("time", Duration::from_nanos(at_ns)));
    }
    draft.build().unwrap_or_else(|error| panic!("small random workload of seed {seed}: {error}"))
}

/// A length near `ns` that is away from round numbers and from similar lengths; it may be even.
fn odd(ns: u64) -> u64 {
    ns / 10_000 * 10_000 + 1_237 + ns % 7_919
}

/// A length up to `most_ns`, at least 0.1 ms, of any magnitude, that hardly ever occurs twice: the
/// order of two events at the same time would depend on nanoseconds.
fn length(dice: &mut Dice, most_ns: u64) -> Duration {
    let shortest = u64::from(SHORTEST_NS.ilog2()) + 1;
    let magnitude = dice.range(shortest, u64::from(most_ns.max(2 * SHORTEST_NS).ilog2()));
    let ns = dice.range(1 << magnitude, (2 << magnitude) - 1);
    Duration::from_nanos(ns.clamp(SHORTEST_NS, most_ns.max(SHORTEST_NS)) | 1)
}

/// At least one group with a limit; mostly a chain, sometimes with branches.
fn draw_groups(dice: &mut Dice, cpus: u16) -> Vec<GroupPlan> {
    let mut groups: Vec<GroupPlan> = Vec::new();
    for ix in 0..dice.range(1, MAX_GROUPS) {
        let below = dice.pick(&groups).filter(|_| !dice.one_in(3)).map(|group| group.path.clone());
        let below = below.filter(|path| path.matches('/').count() < MAX_DEPTH).unwrap_or_default();
        let mut group = GroupPlan::new(format!("{below}/g{ix}"));
        if ix == 0 || dice.one_in(2) {
            group.limit = draw_limit(dice, cpus);
        }
        if dice.one_in(4) {
            group.weight = dice.choose([20, 50, 200, 500]);
        }
        groups.push(group);
    }
    groups
}

/// A limit from 5 % of a CPU to nine tenths of all, and one time in eight a burst of half the
/// quota.
fn draw_limit(dice: &mut Dice, cpus: u16) -> Limit {
    let period_us = dice.choose([20_000, 50_000, 100_000, 100_000, 100_000]);
    // A quota that is no multiple of a tick, and not used up by a whole number of periods.
    let quota_us = period_us * dice.range(5, 90 * u64::from(cpus)) / 100 + dice.range(37, 973);
    let burst_us = if dice.one_in(8) { quota_us / 2 } else { 0 };
    super::limit(quota_us, period_us, burst_us)
}

/// A task that puts tokens in the channel now and then.
fn draw_feeder(dice: &mut Dice, context: &Context<'_>) -> Table {
    let group = dice.pick(context.paths).map_or("/", |path| path);
    let period = Duration::from_nanos(odd(dice.range(3_000_000, 30_000_000)));
    let work = length(dice, 1_000_000);
    let fed = [table("every", period), table("user", work), table("send", CHANNEL)];
    let program = [table("forever", fed)];
    table("name", "feeder").with("group", group).with("program", program)
}

fn draw_task(dice: &mut Dice, context: &Context<'_>, name: &str, count: u64) -> Table {
    let mut task = table("name", name).with("count", count);
    if let Some(path) = dice.pick(context.paths) {
        task = task.with("group", path);
    }
    task = task.with_some("nice", dice.one_in(5).then(|| dice.choose([-10, -5, 5, 10])));
    if dice.one_in(10) {
        task = task.with("class", "idle");
    }
    task = task.with_some("start", dice.one_in(4).then(|| length(dice, 50_000_000)));
    if count > 1 && dice.one_in(3) {
        // Starting a task takes its starter about 0.1 ms.
        let stagger = length(dice, 5_000_000).max(Duration::from_nanos(1_000_037));
        task = task.with("stagger", stagger);
    }
    if context.cpus > 1 && dice.one_in(3) {
        task = task.with("cpus", dice.cpu_set(context.cpus));
    }
    let body = match dice.0.below(4) {
        // A disagreement in a simple program says most about its cause.
        0 => vec![table("user", Duration::from_secs(10))],
        1 => vec![table("kernel", lengths(dice, 90_000_000)), table("done", true)],
        _ => draw_body(dice, context),
    };
    task.with("program", [table("forever", body)])
}

/// A fixed length as of [`length`], or a distribution from half of that to it.
fn lengths(dice: &mut Dice, most_ns: u64) -> Value {
    let high = length(dice, most_ns);
    if dice.one_in(3) {
        let high_ns = high.as_nanos() as u64;
        let low_ns = odd((high_ns / 2).max(SHORTEST_NS)).min(high_ns);
        return Distribution::Uniform { low_ns, high_ns }.into();
    }
    high.into()
}

/// The body of a task's loop: a request that begins with a wait or at once, some work, and its end.
fn draw_body(dice: &mut Dice, context: &Context<'_>) -> Vec<Table> {
    let mut steps = Vec::new();
    match dice.0.below(4) {
        0 => {
            let period_ns = odd(dice.range(2_000_000, 60_000_000));
            steps.push(table("every", Duration::from_nanos(period_ns)));
        }
        1 => steps.extend([table("sleep", lengths(dice, 30_000_000)), table("begin", true)]),
        2 if context.fed => steps.push(table("recv", CHANNEL)),
        _ => steps.push(table("begin", true)),
    }
    for _ in 0..dice.range(1, 4) {
        add_work(dice, context, &mut steps);
    }
    // Time must pass in every pass of the loop.
    steps.push(table("user", length(dice, 5_000_000)));
    steps.push(table("done", true));
    steps
}

/// Adds one piece of work that a real kernel can do: CPU time, a lock in a system call, a sleep or
/// a small change of the task itself.
fn add_work(dice: &mut Dice, context: &Context<'_>, steps: &mut Vec<Table>) {
    match dice.0.below(12) {
        0..3 => steps.push(table("user", lengths(dice, 20_000_000))),
        3..6 => steps.push(table("kernel", lengths(dice, 20_000_000))),
        6 => {
            let (first, second) = (length(dice, 4_000_000), length(dice, 4_000_000));
            let body = [table("user", first), table("kernel", second)];
            steps.push(table("loop", dice.range(2, 5)).with("do", body));
        }
        7 if context.inode => {
            let held = length(dice, 8_000_000);
            steps.push(table(
                "syscall",
                [table("lock", INODE), table("kernel", held), table("unlock", INODE)],
            ));
        }
        8 if context.rwsem => {
            let mode = if dice.one_in(2) { "read" } else { "write" };
            let take = table("lock", RWSEM).with("mode", mode);
            let held = length(dice, 8_000_000);
            steps.push(table("syscall", [take, table("kernel", held), table("unlock", RWSEM)]));
        }
        9 if dice.one_in(4) => steps.push(table("yield", true)),
        10 if dice.one_in(3) => {
            if let Some(path) = dice.pick(context.paths) {
                steps.push(table("move", "self").with("to", path));
            }
        }
        11 if dice.one_in(3) => steps.push(table("nice", dice.choose([-5, 0, 5]))),
        _ => steps.push(table("sleep", lengths(dice, 10_000_000))),
    }
}

/// A change that a real kernel can make, of a group or the tasks of a kind.
fn draw_act(
    dice: &mut Dice,
    context: &Context<'_>,
    groups: &[GroupPlan],
    names: &[String],
) -> Table {
    let group = table("group", dice.pick(groups).map_or("/g0", |group| &group.path));
    let task = table("task", dice.pick(names).map_or("task0", |name| name));
    match dice.0.below(8) {
        0..3 => write_limit(group, draw_limit(dice, context.cpus)),
        3 => write_limit(group, Limit::UNLIMITED),
        4 => group.with("weight", dice.choose([20, 100, 500])),
        5 => task.with("move", dice.pick(context.paths).map_or("/", |path| path)),
        6 => task.with("nice", dice.choose([-10, 0, 10])),
        _ => task.with("signal", Signal::Kill),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Action, Op};
    use crate::{parse, print};

    #[test]
    fn they_are_small_valid_and_can_be_printed() {
        let (mut deepest, mut most) = (0, 0);
        for seed in 0..2000 {
            let workload = real(seed);
            assert_eq!(workload, real(seed), "the seed decides all");
            let tasks: u32 = workload.tasks.iter().map(|task| task.count).sum();
            let depth = |path: &str| if path == "/" { 0 } else { path.matches('/').count() };
            deepest = workload.groups.iter().map(|g| depth(&g.path)).fold(deepest, usize::max);
            most = most.max(tasks);
            assert!(u64::from(tasks) <= MAX_TASKS && deepest <= MAX_DEPTH, "{seed}");
            assert_eq!(workload.machine.cpus, 1);
            let text = print(&workload);
            let read = parse(&text, "case.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read.tasks, workload.tasks);
        }
        assert_eq!(deepest, MAX_DEPTH);
        assert!(most > 10, "{most}");
    }

    #[test]
    fn those_for_several_cpus_use_them() {
        let all: Vec<Workload> = (0..300).map(real_on_several).collect();
        for workload in &all {
            let text = print(workload);
            let read = parse(&text, "case.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read.tasks, workload.tasks);
            assert!((2..=8).contains(&workload.machine.cpus));
        }
        let wide = |w: &&Workload| {
            let period = |limit: Limit| limit.quota_ns().filter(|&quota| quota > limit.period_ns());
            w.groups.iter().any(|group| period(group.limit).is_some())
        };
        assert!(all.iter().filter(wide).count() > 100);
        let pinned = |w: &&Workload| w.tasks.iter().any(|t| t.cpus != crate::Affinity::All);
        assert!(all.iter().filter(pinned).count() > 100);
    }

    #[test]
    fn every_part_of_the_language_that_is_meant_occurs() {
        let mut seen = [false; 8];
        for workload in (0..300).map(real) {
            for op in workload.tasks.iter().flat_map(|task| &task.program) {
                match op {
                    Op::Lock { .. } => seen[0] = true,
                    Op::Move { .. } => seen[1] = true,
                    Op::Recv { .. } => seen[2] = true,
                    Op::Every { .. } => seen[3] = true,
                    Op::SetNice { .. } => seen[4] = true,
                    Op::Yield => seen[5] = true,
                    _ => {}
                }
            }
            for intervention in &workload.interventions {
                match intervention.action {
                    Action::WriteLimit { .. } => seen[6] = true,
                    Action::Signal { .. } => seen[7] = true,
                    _ => {}
                }
            }
        }
        assert_eq!(seen, [true; 8]);
    }

    #[test]
    fn nothing_is_round() {
        for op in
            (0..300).map(real).flat_map(|w| w.into_parts().tasks).flat_map(|task| task.program)
        {
            if let Op::User(crate::Span::Fixed(ns)) | Op::Kernel(crate::Span::Fixed(ns)) = op {
                assert!(ns == 10_000_000_000 || !ns.is_multiple_of(1_000_000), "{ns}");
            }
        }
    }
}
