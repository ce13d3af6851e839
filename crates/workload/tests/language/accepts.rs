//! The workload holds what the scenario file says.

use cpumax_limit::Limit;
use cpumax_workload::{
    Action, Affinity, Arrivals, Class, Distribution, LockMode, Op, Preempt, Span, Target, Workload,
    parse,
};

fn accept(text: &str) -> Workload {
    parse(text, "some/place/example.toml").unwrap_or_else(|error| panic!("{error}"))
}

pub fn everything() -> Workload {
    accept(EVERYTHING)
}

const EVERYTHING: &str = r#"
shows = "All there is."
duration = "10s"

[machine]
cpus = 16
llc = 8
hz = 1000
preempt = "rt"
hrtick = true
timer_phase = "0ms"
tick_skew = true
slice = "5ms"
base_slice = "3ms"
nohz_full = "1-3"
costs = true
ipi = "2us"
[[machine.softirq]]
cpu = 0
every = "10ms"
lock = "ep"
mode = "write"
hold = "5us"

[[group]]
path = "/a/b"
max = "20000 100000"
burst = 10000
weight = 200
[[group]]
path = "/limited"
max = "max 50000"
[[group]]
path = "/a"
hierarchy = "v1"
shares = 2048

[[lock]]
name = "inode"
kind = "rwsem"
[[lock]]
name = "ep"
kind = "rwlock"
[[lock]]
name = "m"
kind = "mutex"

[[channel]]
name = "requests"
capacity = 16
[[channel]]
name = "done"

[[task]]
name = "writer"
count = 2
group = "/limited"
nice = -5
cpus = "0-3,8"
start = "1ms"
stagger = "2ms"
slice = "3ms"
program = [
  { forever = [
    { user = "1ms" },
    { kernel = { uniform = ["1ms", "2ms"] } },
    { irqoff = "100us" },
    { sleep = { exponential = "5ms" } },
    { every = "20ms" },
    { syscall = [ { lock = "inode", mode = "write" },
      { kernel = { lognormal = { median = "1ms", sigma = 0.5 } } }, { unlock = "inode" } ] },
    { lock = "m" }, { user = { empirical = [["1ms", 3], ["9ms", 1]] } }, { unlock = "m" },
    { send = "requests", n = 2 },
    { recv = "done" },
    { loop = 3, do = [ { fork = "child" } ] },
    { wait = "children" },
    { yield = true },
    { move = "self", to = "/a/b" },
    { nice = 5, of = "child" },
    { affinity = "0-1" },
    { class = "rt", of = "self" },
    { begin = true },
    { done = true },
  ] },
]
[[task]]
name = "child"
count = 0
class = "idle"
cpus = "each"
program = [ { user = { uniform = ["1ms", "2ms"] } }, { exit = true } ]

[[source]]
name = "clients"
channel = "requests"
every = { exponential = "2ms" }
start = "1s"
count = 1000
[[source]]
name = "listed"
channel = "done"
at = ["1ms", "5ms"]

[[at]]
time = "3s"
group = "/limited"
burst = 5000
[[at]]
time = "1s"
repeat = "1ms"
until = "2s"
group = "/limited"
max = "10000"
[[at]]
time = "4s"
offline = 1
[[at]]
time = "5s"
task = "writer"
affinity = "0-1"

[[expect]]
on = "6.18..7.1, G2a, 4.19"
metric = "groups./limited.usage_usec"
per = "simulated_ns"
over = "4.19"
min = 0.5
max = 2
why = "because"
[[expect]]
metric = "tasks.writer.latency_ns.p99"
is = 7
"#;

#[test]
fn machine_groups_and_names() {
    let w = accept(EVERYTHING);
    assert_eq!(w.name, "example");
    assert_eq!(w.duration_ns, 10_000_000_000);
    let machine = &w.machine;
    assert_eq!((machine.cpus, machine.llc_cpus, machine.hz), (16, 8, 1000));
    assert_eq!((machine.preempt, machine.hrtick), (Some(Preempt::Rt), Some(true)));
    let lazy = accept(&EVERYTHING.replace("\"rt\"\nhrtick", "\"rt-lazy\"\nhrtick")).machine.preempt;
    assert_eq!(lazy, Some(Preempt::RtLazy));
    assert_eq!((machine.timer_phase_ns, machine.tick_skew), (Some(0), true));
    assert_eq!((machine.bandwidth_slice_ns, machine.base_slice_ns), (5_000_000, Some(3_000_000)));
    assert_eq!((machine.cost_timing, machine.ipi_ns), (true, 2_000));
    assert_eq!(w.cpu_sets[machine.nohz_full.unwrap() as usize].0, [1, 2, 3]);
    assert_eq!((machine.softirqs[0].lock, machine.softirqs[0].hold_ns), (1, 5_000));

    let paths: Vec<&str> = w.groups.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(paths, ["/", "/a", "/a/b", "/limited"]);
    let parents: Vec<_> = w.groups.iter().map(|group| group.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(0)]);
    assert_eq!(w.groups[1].weight, 200, "2048 shares");
    let v1: Vec<bool> = w.groups.iter().map(|group| group.v1).collect();
    assert_eq!(v1, [false, true, true, false], "a child has its parent's hierarchy");
    assert_eq!(w.groups[2].limit, Limit::new(Some(20_000_000), 100_000_000, 10_000_000).unwrap());
    assert_eq!(w.groups[3].limit, Limit::new(None, 50_000_000, 0).unwrap());
}

#[test]
fn tasks_and_programs() {
    let w = accept(EVERYTHING);
    let writer = &w.tasks[0];
    assert_eq!((writer.count, writer.group, writer.nice), (2, 3, -5));
    assert_eq!((writer.start_ns, writer.stagger_ns), (1_000_000, 2_000_000));
    assert_eq!(writer.slice_ns, Some(3_000_000));
    let Affinity::Set(cpus) = writer.cpus else { panic!("{:?}", writer.cpus) };
    assert_eq!(w.cpu_sets[cpus as usize].0, [0, 1, 2, 3, 8]);
    assert_eq!((w.tasks[1].class, w.tasks[1].cpus), (Class::Idle, Affinity::Each));
    let last = writer.program.len() as u32 - 1;
    let head = [
        Op::LoopStart { times: u64::MAX, end: last },
        Op::User(Span::Fixed(1_000_000)),
        Op::Kernel(Span::Drawn(0)),
        Op::IrqOff(Span::Fixed(100_000)),
        Op::Sleep(Span::Drawn(1)),
        Op::Every { period_ns: 20_000_000 },
        Op::EnterKernel,
        Op::Lock { lock: 0, mode: LockMode::Write },
        Op::Kernel(Span::Drawn(2)),
        Op::Unlock { lock: 0 },
        Op::ExitKernel,
        Op::Lock { lock: 2, mode: LockMode::Write },
        Op::User(Span::Drawn(3)),
        Op::Unlock { lock: 2 },
        Op::Send { channel: 0, n: 2 },
        Op::Recv { channel: 1, n: 1 },
        Op::LoopStart { times: 3, end: 18 },
        Op::Fork { kind: 1 },
        Op::LoopEnd { start: 16 },
        Op::WaitChildren,
        Op::Yield,
        Op::Move { who: Target::Myself, group: 2 },
        Op::SetNice { who: Target::Kind(1), nice: 5 },
    ];
    assert_eq!(writer.program[..head.len()], head);
    let tail = [
        Op::SetClass { who: Target::Myself, class: Class::Rt },
        Op::Begin,
        Op::Done,
        Op::LoopEnd { start: 0 },
    ];
    assert!(writer.program.ends_with(&tail));
    assert_eq!(w.tasks[1].program, [Op::User(Span::Drawn(0)), Op::Exit], "shared distribution");
    assert_eq!(w.distributions.len(), 4 + 1, "the source has one of its own");
    let empirical =
        Distribution::Empirical { values_ns: vec![1_000_000, 9_000_000], cumulative: vec![3, 4] };
    assert_eq!(w.distributions[3], empirical);
}

#[test]
fn sources_interventions_and_expectations() {
    let w = accept(EVERYTHING);
    let clients = &w.sources[0];
    assert_eq!((clients.channel, clients.start_ns, clients.count), (0, 1_000_000_000, 1000));
    assert_eq!(clients.arrivals, Arrivals::Between(Span::Drawn(4)));
    assert_eq!(w.sources[1].arrivals, Arrivals::At(vec![1_000_000, 5_000_000]));

    let first = &w.interventions[0];
    let second = u64::pow(10, 9);
    assert_eq!(
        (first.at_ns, first.every_ns, first.until_ns),
        (second, Some(1_000_000), 2 * second)
    );
    let ten = Limit::new(Some(10_000_000), 50_000_000, 0).unwrap();
    assert_eq!(first.action, Action::WriteLimit { group: 3, limit: ten }, "the period stays");
    let burst = ten.with_burst_ns(5_000_000).unwrap();
    assert_eq!(
        w.interventions[1].action,
        Action::WriteLimit { group: 3, limit: burst },
        "the quota is the one written before"
    );
    assert_eq!(w.interventions[2].action, Action::CpuOffline { cpu: 1 });

    let expectation = &w.expectations[0];
    assert_eq!((expectation.min, expectation.max), (Some(0.5), Some(2.0)));
    assert_eq!(expectation.per.as_deref(), Some("simulated_ns"));
    assert_eq!((w.expectations[1].min, w.expectations[1].max), (Some(7.0), Some(7.0)));
}

#[test]
fn an_empty_file_is_an_idle_machine() {
    let w = accept("");
    assert_eq!((w.machine.cpus, w.groups.len(), w.tasks.len()), (1, 1, 0));
}

#[test]
fn ranges_in_names_stand_for_many() {
    let text = r#"
[[group]]
path = "/a{0..1}/b{0..2}"
[[task]]
name = "hog{0..1}.{0..2}"
count = 7
group = "/a{0..1}/b{0..2}"
"#;
    let workload = accept(text);
    let paths: Vec<&str> = workload.groups.iter().map(|group| &*group.path).collect();
    let below_a0 = ["/a0", "/a0/b0", "/a0/b1", "/a0/b2"];
    assert_eq!(paths, [&["/"], &below_a0[..], &["/a1", "/a1/b0", "/a1/b1", "/a1/b2"]].concat());
    assert_eq!(workload.tasks.len(), 6);
    let last = &workload.tasks[5];
    assert_eq!((&*last.name, last.count, paths[last.group as usize]), ("hog1.2", 7, "/a1/b2"));

    let uneven = text.replace("hog{0..1}", "hog");
    let error = parse(&uneven, "uneven.toml").unwrap_err().to_string();
    assert!(error.contains("uneven.toml:7"), "{error}");
}

/// Programs that almost break a rule are accepted.
#[test]
fn what_is_near_the_line_is_accepted() {
    let locks = "[[lock]]\nname = \"a\"\nkind = \"mutex\"\n[[lock]]\nname = \"b\"\n\
         kind = \"rwsem\"\n\
         [[lock]]\nname = \"s\"\nkind = \"spin\"\n[[lock]]\nname = \"t\"\nkind = \"spin\"\n\
         [[channel]]\nname = \"c\"\n[[task]]\nname = \"child\"\ncount = 0\n\
         program = [{ user = \"1ms\" }]\n";
    let programs = [
        // Released in another order than taken; taken in one order everywhere.
        "{ lock = \"a\" }, { lock = \"b\", mode = \"read\" }, { unlock = \"a\" }, \
         { unlock = \"b\" }, { lock = \"a\" }, { lock = \"b\", mode = \"write\" }, \
         { unlock = \"b\" }, { unlock = \"a\" }",
        // A lock taken again after it was released.
        "{ lock = \"a\" }, { unlock = \"a\" }, { lock = \"a\" }, { unlock = \"a\" }",
        // One spin lock inside another, interrupts off inside both.
        "{ syscall = [{ lock = \"s\" }, { lock = \"t\" }, { irqoff = \"1us\" }, { send = \"c\" }, \
         { unlock = \"t\" }, { unlock = \"s\" }] }",
        // A system call while a lock of user space is held, sleeping while a mutex is held.
        "{ lock = \"a\" }, { syscall = [{ kernel = \"1ms\" }, { sleep = \"1ms\" }] }, \
         { unlock = \"a\" }",
        // Time passes, even if seldom.
        "{ forever = [{ user = { uniform = [\"0ms\", \"1ns\"] } }] }",
        // The sender takes time.
        "{ forever = [{ recv = \"c\" }, { done = true }] }",
        // The children take time.
        "{ forever = [{ fork = \"child\" }, { wait = \"children\" }] }",
        // The loop ends.
        "{ forever = [{ exit = true }] }",
        "{ loop = 1000000, do = [{ loop = 1000000, do = [{ yield = true }, \
         { user = \"1ns\" }] }] }",
        "{ loop = 400000, do = [{ yield = true }] }",
        // An endless chain of tasks.
        "{ user = \"1ms\" }, { fork = \"x\" }",
        "",
    ];
    for program in programs {
        accept(&format!("{locks}[[task]]\nname = \"x\"\nprogram = [{program}]\n"));
    }
}

#[test]
fn a_limit_written_as_a_whole_or_in_part() {
    let text = r#"
[[group]]
path = "/a"
max = "100000 100000"
burst = 50000
[[at]]
time = "1s"
group = "/a"
max = "20000"
burst = 0
[[at]]
time = "2s"
group = "/a"
max = "max"
"#;
    let workload = accept(text);
    let limits: Vec<Action> = workload.interventions.iter().map(|i| i.action).collect();
    let limit = |quota_ns| Limit::new(quota_ns, 100_000_000, 0).unwrap();
    let write = |limit| Action::WriteLimit { group: 1, limit };
    assert_eq!(limits, [write(limit(Some(20_000_000))), write(limit(None))]);
    // The new quota alone is refused because of the old burst, as in the kernel.
    let refused = parse(&text.replace("burst = 0\n", ""), "part.toml").unwrap_err().to_string();
    assert!(refused.contains("a burst of 50000 us is above the quota of 20000 us"), "{refused}");
}
