//! Small recordings with known answers.

use cpumax_recording::{EventCost, Options, Recording, Selection};
use cpumax_workload::{Arrivals, Class, Op, Span, TaskSpec, Workload};
use std::fmt::Write as _;

/// Writes `perf script` text with times in us.
#[derive(Default)]
struct Script {
    text: String,
}

impl Script {
    fn line(&mut self, us: u64, cpu: u32, thread: &str, event: &str) -> &mut Self {
        let (comm, tid) = thread.rsplit_once('/').unwrap();
        writeln!(
            self.text,
            "{comm:>16} {tid:>5} [{cpu:03}] {}.{:06}: {event}",
            us / 1_000_000,
            us % 1_000_000
        )
        .unwrap();
        self
    }

    /// `state` as in the text: R, S, D …
    fn switch(&mut self, us: u64, cpu: u32, from: &str, state: &str, to: &str) -> &mut Self {
        let (prev, prev_pid) = from.rsplit_once('/').unwrap();
        let (next, next_pid) = to.rsplit_once('/').unwrap();
        self.line(
            us,
            cpu,
            from,
            &format!(
                "sched:sched_switch: prev_comm={prev} prev_pid={prev_pid} prev_prio=120 \
                 prev_state={state} ==> next_comm={next} next_pid={next_pid} next_prio=120"
            ),
        )
    }

    fn wake(&mut self, us: u64, cpu: u32, by: &str, whom: &str) -> &mut Self {
        let (comm, pid) = whom.rsplit_once('/').unwrap();
        let event =
            format!("sched:sched_waking: comm={comm} pid={pid} prio=120 target_cpu={cpu:03}");
        self.line(us, cpu, by, &event)
    }

    fn ran(&mut self, us: u64, cpu: u32, whom: &str, ns: u64) -> &mut Self {
        let (comm, pid) = whom.rsplit_once('/').unwrap();
        let event = format!("sched:sched_stat_runtime: comm={comm} pid={pid} runtime={ns} [ns]");
        self.line(us, cpu, whom, &event)
    }

    fn enter(&mut self, us: u64, cpu: u32, who: &str, call: &str) -> &mut Self {
        self.line(us, cpu, who, &format!("raw_syscalls:sys_enter: NR {call}"))
    }

    fn exit(&mut self, us: u64, cpu: u32, who: &str) -> &mut Self {
        self.line(us, cpu, who, "raw_syscalls:sys_exit: NR 0 = 0")
    }

    fn recording(&self) -> Recording {
        Recording::read_bytes("test", self.text.as_bytes(), Options::default()).unwrap()
    }

    fn workload(&self) -> Workload {
        self.recording().workload(&Selection::default()).unwrap()
    }
}

fn task<'a>(workload: &'a Workload, name: &str) -> &'a TaskSpec {
    workload.tasks.iter().find(|task| task.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn user(us: u64) -> Op {
    Op::User(Span::Fixed(us * 1000))
}

fn kernel(us: u64) -> Op {
    Op::Kernel(Span::Fixed(us * 1000))
}

fn sleep(us: u64) -> Op {
    Op::Sleep(Span::Fixed(us * 1000))
}

const IDLE: &str = "swapper/0";

#[test]
fn a_ping_makes_a_pong() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "ping/1");
    script.wake(30, 0, "ping/1", "pong/12");
    script.switch(50, 0, "ping/1", "S", "pong/12");
    script.wake(60, 0, "pong/12", "ping/1");
    script.switch(90, 0, "pong/12", "S", "ping/1");
    script.switch(100, 0, "ping/1", "X", IDLE);
    let workload = script.workload();
    let (to_ping, to_pong) =
        match (&task(&workload, "ping/1").program[..], &task(&workload, "pong/12").program[..]) {
            (
                [Op::User(_), Op::Send { channel: to_pong, n: 1 }, ..],
                [Op::Recv { .. }, Op::User(_), Op::Send { channel: to_ping, n: 1 }, ..],
            ) => (*to_ping, *to_pong),
            other => panic!("{other:?}"),
        };
    assert_ne!(to_ping, to_pong);
    assert_eq!(
        task(&workload, "ping/1").program,
        [
            user(30),
            Op::Send { channel: to_pong, n: 1 },
            user(20),
            Op::Recv { channel: to_ping, n: 1 },
            user(10),
            Op::Done,
        ]
    );
    assert_eq!(
        task(&workload, "pong/12").program,
        [
            Op::Recv { channel: to_pong, n: 1 },
            user(10),
            Op::Send { channel: to_ping, n: 1 },
            user(30),
            Op::Done,
        ]
    );
    assert_eq!(workload.duration_ns, 100_000);
    assert!(script.recording().defects().is_empty());
}

#[test]
fn waiting_for_a_cpu_vanishes() {
    // Preempted twice, moved to another CPU once: 10 + 20 + 5 us of work are left.
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "job/1");
    script.switch(10, 0, "job/1", "R+", "other/8");
    script.switch(500, 0, "other/8", "R", "job/1");
    script.switch(520, 0, "job/1", "R", "other/8");
    script.switch(900, 1, "swapper/0", "R", "job/1");
    script.switch(905, 1, "job/1", "X", "swapper/0");
    let workload = script.workload();
    assert_eq!(task(&workload, "job/1").program, [user(35)]);
}

#[test]
fn cpu_time_is_what_was_charged() {
    // 100 us on the CPU, 60 us charged: the rest was an interrupt or stolen. The wakeup in the
    // middle of the first 80 us lies in the middle of their charge.
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "job/1");
    script.switch(0, 1, "other/8", "R", "you/12");
    script.switch(1, 1, "you/12", "S", "swapper/0");
    script.wake(40, 0, "job/1", "you/12");
    script.ran(80, 0, "job/1", 50_000);
    script.ran(98, 0, "job/1", 10_000);
    script.switch(100, 0, "job/1", "S", IDLE);
    script.switch(101, 1, "swapper/0", "R", "you/12");
    let workload = script.workload();
    let program = &task(&workload, "job/1").program;
    assert!(
        matches!(program[..], [a, Op::Send { .. }, b] if a == user(25) && b == user(35)),
        "{program:?}"
    );
    assert_eq!(script.recording().summary().uncharged_ns, 40_000);
}

#[test]
fn system_calls_divide_user_from_kernel_time() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "job/1");
    script.switch(1, 1, "you/12", "S", "swapper/0");
    script.enter(10, 0, "job/1", "39 (0, 0, 0, 0, 0, 0)").exit(13, 0, "job/1");
    script.enter(20, 0, "job/1", "1 (3, 0, 0, 0, 0, 0)");
    script.wake(24, 0, "job/1", "you/12").exit(30, 0, "job/1");
    script.enter(35, 0, "job/1", "230 (1, 0, 7ffd, 0, 0, 0)");
    script.switch(37, 0, "job/1", "S", IDLE);
    script.wake(1037, 0, IDLE, "job/1").switch(1040, 0, IDLE, "R", "job/1");
    script.exit(1041, 0, "job/1").switch(1050, 0, "job/1", "X", IDLE);
    script.switch(1060, 1, "swapper/0", "R", "you/12").switch(1070, 1, "you/12", "S", "swapper/0");
    let workload = script.workload();
    let Op::Send { channel, .. } = task(&workload, "job/1").program[5] else {
        panic!("{:?}", task(&workload, "job/1").program)
    };
    assert_eq!(
        task(&workload, "job/1").program,
        [
            user(10),
            kernel(3),
            user(7),
            Op::EnterKernel,
            kernel(4),
            Op::Send { channel, n: 1 },
            kernel(6),
            Op::ExitKernel,
            user(5),
            Op::EnterKernel,
            kernel(2),
            sleep(1000),
            kernel(1),
            Op::ExitKernel,
            user(9),
            Op::Done,
        ]
    );
}

#[test]
fn the_cost_of_recording_is_taken_off() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "job/1");
    script.enter(10, 0, "job/1", "39 (0, 0, 0, 0, 0, 0)").exit(13, 0, "job/1");
    script.switch(20, 0, "job/1", "X", IDLE);
    let event_cost = EventCost { syscall_ns: 500, other_ns: 2_000 };
    let options = Options { event_cost: Some(event_cost) };
    let recording = Recording::read_bytes("test", script.text.as_bytes(), options).unwrap();
    let workload = recording.workload(&Selection::default()).unwrap();
    let ns = |op: Op| match op {
        Op::User(Span::Fixed(ns)) | Op::Kernel(Span::Fixed(ns)) => ns,
        other => panic!("{other:?}"),
    };
    let spans: Vec<u64> = task(&workload, "job/1").program.iter().map(|op| ns(*op)).collect();
    // The switch before costs 2 us, the entry itself 0.5 us; then the exit. The switch at the end
    // is another thread's.
    assert_eq!(spans, [7_500, 2_500, 5_000]);
}

#[test]
fn clocks_arrive_and_sleeps_last() {
    // The first thread wakes every 10 ms whatever it did. The second sleeps 10 ms after it worked 1
    // to 5 ms.
    let mut script = Script::default();
    let mut lines: Vec<(u64, u32, String, bool)> = Vec::new();
    let mut begins = 10_000;
    for i in 0..20_u64 {
        let work = 1000 + i * 7 % 5 * 1000;
        lines.push(((i + 1) * 10_000, 0, "clock/1".to_owned(), true));
        lines.push(((i + 1) * 10_000 + work, 0, "clock/1".to_owned(), false));
        lines.push((begins, 1, "sleeper/12".to_owned(), true));
        lines.push((begins + work, 1, "sleeper/12".to_owned(), false));
        begins += work + 10_000;
    }
    lines.sort();
    for (us, cpu, who, on) in lines {
        if on {
            script.wake(us, cpu, IDLE, &who).switch(us, cpu, IDLE, "R", &who);
        } else {
            script.switch(us, cpu, &who, "S", IDLE);
        }
    }
    let workload = script.workload();
    let Arrivals::At(times) = &workload.sources[0].arrivals else { panic!() };
    let want: Vec<u64> = (0..20).map(|i| i * 10_000_000).collect();
    assert_eq!(*times, want, "counted from the first event");
    let is_sleep = |op: &&Op| **op == sleep(10_000);
    let sleeps = |name| task(&workload, name).program.iter().filter(is_sleep).count();
    assert_eq!((sleeps("clock/1"), sleeps("sleeper/12")), (0, 19));
}

#[test]
fn an_answer_over_loopback_is_the_senders_and_a_timer_is_nobodys() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "send/1");
    script.switch(1, 1, "wait/12", "S", "swapper/0").switch(1, 2, "tick/3", "S", "swapper/0");
    script.enter(10, 0, "send/1", "44 (3, 0, 0, 0, 0, 0)");
    script.line(11, 0, "send/1", "irq:softirq_entry: vec=3 [action=NET_RX]");
    script.wake(12, 0, "send/1", "wait/12");
    script.line(13, 0, "send/1", "irq:softirq_exit: vec=3 [action=NET_RX]");
    script.exit(20, 0, "send/1");
    script.line(30, 0, "send/1", "timer:hrtimer_expire_entry: hrtimer=0x1 function=x now=1");
    script.wake(31, 0, "send/1", "tick/3");
    script.line(32, 0, "send/1", "timer:hrtimer_expire_exit: hrtimer=0x1");
    script.switch(40, 0, "send/1", "S", IDLE);
    script.switch(41, 1, "swapper/0", "R", "wait/12").switch(50, 1, "wait/12", "S", "swapper/0");
    script.switch(41, 2, "swapper/0", "R", "tick/3").switch(50, 2, "tick/3", "S", "swapper/0");
    let workload = script.workload();
    let sends = task(&workload, "send/1").program.iter().filter(|op| matches!(op, Op::Send { .. }));
    assert_eq!(sends.count(), 1);
    assert_eq!(workload.sources.len(), 1);
    assert_eq!(workload.sources[0].name, "clock of tick/3");
}

#[test]
fn children_are_forked_where_they_were() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "sh/1");
    script.line(
        10,
        0,
        "sh/1",
        "sched:sched_process_fork: comm=sh pid=1 child_comm=sh child_pid=12",
    );
    script.line(11, 0, "sh/1", "sched:sched_wakeup_new: comm=sh pid=12 prio=120 target_cpu=001");
    script.switch(30, 0, "sh/1", "S", IDLE);
    script.switch(15, 1, "swapper/0", "R", "sh/12");
    script.wake(45, 1, "make/12", "sh/1").switch(50, 1, "make/12", "Z", "swapper/0");
    script.switch(60, 0, IDLE, "R", "sh/1").switch(70, 0, "sh/1", "X", IDLE);
    let recording = script.recording();
    let workload = recording.workload(&Selection::default()).unwrap();
    let child = workload.tasks.iter().position(|task| task.name == "make/12").unwrap();
    assert_eq!((workload.tasks[child].count, workload.tasks[child].start_ns), (0, 0));
    let program = &task(&workload, "sh/1").program;
    assert_eq!(program[..2], [user(10), Op::Fork { kind: child as u32 }]);
    assert!(matches!(
        workload.tasks[child].program[..],
        [Op::Begin, Op::User(_), Op::Send { .. }, ..]
    ));
    assert_eq!(recording.defects().backwards_events, 1, "the line that is out of order");
}

#[test]
fn classes_and_places() {
    let mut script = Script::default();
    script.line(
        0,
        0,
        "a/1",
        "sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=130 prev_state=S ==> next_comm=rt \
         next_pid=12 next_prio=49",
    );
    script.line(
        5,
        0,
        "rt/12",
        "sched:sched_switch: prev_comm=rt prev_pid=12 prev_prio=49 prev_state=S ==> \
         next_comm=kworker/0:1 next_pid=3 next_prio=120",
    );
    script.line(
        9,
        0,
        "kworker/0:1/3",
        "sched:sched_switch: prev_comm=kworker/0:1 prev_pid=3 prev_prio=120 prev_state=I ==> \
         next_comm=a next_pid=1 next_prio=130",
    );
    script.switch(20, 0, "a/1", "S", IDLE);
    let recording = script.recording();
    let selection = Selection {
        limited: vec!["comm:a".parse().unwrap()],
        group: "/web/one".to_owned(),
        ..Selection::default()
    };
    let workload = recording.workload(&selection).unwrap();
    let paths: Vec<&str> = workload.groups.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(paths, ["/", "/web", "/web/one"]);
    assert_eq!(task(&workload, "rt/12").class, Class::Rt);
    assert_eq!(task(&workload, "kworker/0:1/3").class, Class::Kthread);
    let a = workload.tasks.iter().find(|task| task.name.starts_with("a/")).unwrap();
    assert_eq!((a.class, a.group), (Class::Fair, 2));
}

#[test]
fn the_recorder_is_left_out_and_counted() {
    let mut script = Script::default();
    script.switch(0, 0, IDLE, "R", "perf/5");
    script.wake(5, 0, "perf/5", "perf-exec/6");
    script.switch(10, 0, "perf/5", "S", "perf-exec/6");
    script.line(20, 0, "perf-exec/6", "PERF_RECORD_COMM exec: job:6/6");
    script.switch(45, 0, "job/6", "X", IDLE);
    let recording = script.recording();
    let workload = recording.workload(&Selection::default()).unwrap();
    assert_eq!(workload.tasks.len(), 1);
    assert_eq!(recording.summary().recorder_ns, 10_000);
    assert_eq!(
        task(&workload, "job/6").start_ns,
        10_000,
        "from the last event before it became itself"
    );
}

/// Wakeups by perf are not those of the program that it becomes, but they did wake their threads.
#[test]
fn threads_woken_by_perf_before_its_exec_wait_for_no_task() {
    let mut script = Script::default();
    script.switch(0, 0, "job/1", "S", "perf/5");
    script.wake(5, 0, "perf/5", "job/1");
    script.line(20, 0, "perf/5", "PERF_RECORD_COMM exec: load:5/5");
    script.switch(30, 0, "load/5", "S", "job/1");
    script.switch(40, 0, "job/1", "S", IDLE);
    let workload = script.recording().workload(&Selection::default()).unwrap();
    assert_eq!(workload.tasks.len(), 2);
    let sends = workload.tasks.iter().flat_map(|task| &task.program);
    assert!(!sends.clone().any(|op| matches!(op, Op::Send { .. })));
    let waits: u64 = sends.map(|op| if let Op::Recv { n, .. } = op { *n } else { 0 }).sum();
    let arrivals = workload.sources.iter().map(|source| match &source.arrivals {
        Arrivals::At(times) => times.len() as u64,
        Arrivals::Between(_) => 0,
    });
    assert_eq!(waits, arrivals.sum::<u64>());
}

#[test]
fn lost_events_are_counted_and_bridged() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "job/1").wake(5, 0, "job/1", "other/7");
    script.switch(10, 0, "job/1", "S", "other/8");
    script.line(15, 0, "other/8", "PERF_RECORD_LOST lost 7");
    // Its wakeup and the switch to it are among the lost events.
    script.switch(90, 0, "job/1", "S", IDLE);
    let recording = script.recording();
    let defects = recording.defects();
    assert_eq!(
        (defects.lost_events, defects.mismatched_switches, defects.unseen_wakeups),
        (7, 1, 1)
    );
    assert!(defects.to_string().starts_with("7 events lost"), "{defects}");
}

#[test]
fn a_line_cut_at_the_end_is_left_out() {
    let mut script = Script::default();
    script.switch(0, 0, "other/9", "S", "job/1").switch(10, 0, "job/1", "S", "other/8");
    script.switch(20, 0, "other/8", "S", "job/1");
    script.text.truncate(script.text.len() - 2);
    let recording = script.recording();
    assert_eq!(recording.defects().cut_at_the_end, 1);
    assert_eq!(recording.span_ns(), 10_000);
}

/// A thread may have any name; its name in the workload can be written and read.
#[test]
fn any_name_can_be_written_and_read() {
    for (comm, expected) in [
        ("w{0..3}", "w{0..3}/20"),
        ("b\u{1b}[31mc", "b\\u{1b}[31mc/20"),
        ("x\u{7f}\u{85}", "x\\u{7f}\\u{85}/20"),
    ] {
        let text = format!(
            "a 1/1 [000] 1.000000000: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 \
             prev_state=S ==> next_comm={comm} next_pid=20 next_prio=120\n\
             {comm} 20/20 [000] 1.500000000: sched:sched_switch: prev_comm={comm} prev_pid=20 \
             prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n"
        );
        let recording = Recording::read_bytes("test", text.as_bytes(), Options::default()).unwrap();
        let workload = recording.workload(&Selection::default()).unwrap();
        assert_eq!(workload.tasks[0].name, expected);
        let written = cpumax_workload::to_file(&workload, "x.toml").unwrap();
        let read = cpumax_workload::parse(&written, "x.toml").unwrap();
        assert_eq!(read, workload, "{written}");
    }
}
