//! Requests on which several threads of the group work: tiers that ask each other, and processes
//! forked for a connection. Also clients of which one thread asks and another is answered.

use cpumax_recording::{Loop, Options, Recording, Request, Selection, Service};
use cpumax_workload::{ChannelIx, Op, Span, Workload};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const ROUNDS: u64 = 40;

/// Lines of a round, which begins where a timer wakes the client.
pub struct Round<'a> {
    pub text: &'a mut String,
    pub begin_us: u64,
}

impl Round<'_> {
    fn line(&mut self, us: u64, cpu: u32, who: &str, event: &str) {
        let (comm, tid) = who.split_once('/').unwrap();
        let us = self.begin_us + us;
        let (s, us) = (us / 1_000_000, us % 1_000_000);
        writeln!(self.text, "{comm:>16} {tid:>5} [{cpu:03}] {s}.{us:06}: {event}").unwrap();
    }

    pub fn enter(&mut self, us: u64, cpu: u32, who: &str, call: &str) {
        self.line(us, cpu, who, &format!("raw_syscalls:sys_enter: NR {call}"));
    }

    pub fn exit(&mut self, us: u64, cpu: u32, who: &str, result: &str) {
        self.line(us, cpu, who, &format!("raw_syscalls:sys_exit: NR {result}"));
    }

    pub fn wake(&mut self, us: u64, cpu: u32, who: &str, whom: &str) {
        let (comm, pid) = whom.rsplit_once('/').unwrap();
        let event = format!("sched:sched_waking: comm={comm} pid={pid} prio=120 target_cpu=000");
        self.line(us, cpu, who, &event);
    }

    pub fn switch(&mut self, us: u64, cpu: u32, from: &str, state: &str, to: &str) {
        let (prev, prev_pid) = from.rsplit_once('/').unwrap();
        let (next, next_pid) = to.rsplit_once('/').unwrap();
        let event = format!(
            "sched:sched_switch: prev_comm={prev} prev_pid={prev_pid} prev_prio=120 \
             prev_state={state} ==> next_comm={next} next_pid={next_pid} next_prio=120"
        );
        self.line(us, cpu, from, &event);
    }
}

fn rounds(one: impl Fn(&mut Round, u64)) -> String {
    let mut text = String::new();
    for round in 0..ROUNDS {
        // Not in step with anything.
        let begin_us = 1_000_000 + round * 20_000 + round * round % 7 * 300;
        one(&mut Round { text: &mut text, begin_us }, round);
    }
    text
}

fn import(text: &str, limited: &[&str], clients: Option<Loop>) -> (Workload, Service) {
    let recording = Recording::read_pipe("test", text.as_bytes(), Options::default()).unwrap();
    let limited = limited.iter().map(|one| one.parse().unwrap()).collect();
    let group = "/limited".to_owned();
    let selection =
        Selection { limited, group, clients: clients.map(Into::into), ..Selection::default() };
    let (workload, service) = recording.import(&selection).unwrap();
    (workload, service.expect("requests are known"))
}

/// The channel that each task serves, by its name without its id.
fn served(workload: &Workload) -> BTreeMap<&str, ChannelIx> {
    let serve = |op: &Op| match op {
        Op::Serve { channel } => Some(*channel),
        _ => None,
    };
    let tasks = workload.tasks.iter().filter_map(|task| {
        Some((task.name.split('/').next().unwrap(), task.program.iter().find_map(serve)?))
    });
    tasks.collect()
}

/// The channels through which the parts of each request pass, in order.
fn ways(workload: &Workload) -> Vec<Vec<ChannelIx>> {
    let mut all = Vec::new();
    for source in workload.sources.iter().filter(|source| !source.jobs.is_empty()) {
        let is_request = |job: &&u32| !workload.jobs[**job as usize].name.starts_with("other work");
        for first in source.jobs.iter().filter(is_request) {
            let mut way = vec![source.channel];
            let mut job = *first;
            loop {
                let next = workload.jobs[job as usize].program.iter().find_map(|op| match op {
                    Op::Post { channel, job } => Some((*channel, *job)),
                    _ => None,
                });
                let Some((channel, next)) = next else { break };
                way.push(channel);
                job = next;
            }
            let is_done = workload.jobs[job as usize].program.contains(&Op::Done);
            assert!(is_done, "the last part answers: {:?}", workload.jobs[job as usize]);
            all.push(way);
        }
    }
    all
}

const IDLE: &str = "swapper/0";
const POLL: &str = "232 (3, 0, 10, ffffffff, 0, 0)";

/// The client asks the front, which asks the next one of `backs`, which works for 3 ms. The front
/// waits for that in a poll, or in the read of the answer.
fn tiers(backs: &[&str], polls: bool) -> String {
    tiers_woken(backs, polls, false)
}

/// The back end is woken where it is asked, or `early`, for another request: then it still waits
/// for a CPU.
fn tiers_woken(backs: &[&str], polls: bool, early: bool) -> String {
    let (client, front) = ("cli/20", "front/10");
    rounds(|round, n| {
        let back = backs[n as usize % backs.len()];
        if early {
            round.wake(0, 1, IDLE, back);
        }
        round.wake(0, 1, IDLE, client);
        round.switch(1, 1, IDLE, "R", client);
        round.exit(2, 1, client, "232 = 0");
        round.enter(10, 1, client, "1 (4, 0, 48, 0, 0, 0)");
        round.wake(12, 1, client, front);
        round.switch(13, 0, IDLE, "R", front);
        round.exit(14, 1, client, "1 = 72");
        round.enter(15, 1, client, POLL);
        round.switch(16, 1, client, "S", IDLE);
        round.exit(20, 0, front, "232 = 1");
        round.enter(21, 0, front, "0 (7, 0, 400, 0, 0, 0)");
        round.exit(23, 0, front, "0 = 72");
        round.enter(1020, 0, front, "1 (9, 0, 48, 0, 0, 0)");
        if !early {
            round.wake(1022, 0, front, back);
        }
        round.exit(1024, 0, front, "1 = 72");
        let answer = "0 (9, 0, 400, 0, 0, 0)";
        round.enter(1025, 0, front, if polls { POLL } else { answer });
        round.switch(1026, 0, front, "S", back);
        round.exit(1028, 0, back, "232 = 1");
        round.enter(1029, 0, back, "0 (5, 0, 400, 0, 0, 0)");
        round.exit(1031, 0, back, "0 = 72");
        round.enter(4031, 0, back, "1 (5, 0, 48, 0, 0, 0)");
        round.wake(4033, 0, back, front);
        round.exit(4035, 0, back, "1 = 200");
        round.enter(4036, 0, back, POLL);
        round.switch(4037, 0, back, "S", front);
        if polls {
            round.exit(4039, 0, front, "232 = 1");
            round.enter(4040, 0, front, answer);
        }
        round.exit(4042, 0, front, "0 = 200");
        round.enter(4540, 0, front, "1 (7, 0, 48, 0, 0, 0)");
        round.wake(4542, 0, front, client);
        round.switch(4543, 1, IDLE, "R", client);
        round.exit(4544, 0, front, "1 = 200");
        round.enter(4545, 0, front, POLL);
        round.switch(4546, 0, front, "S", IDLE);
        round.exit(4547, 1, client, "232 = 1");
        round.enter(4548, 1, client, "0 (4, 0, 400, 0, 0, 0)");
        round.exit(4549, 1, client, "0 = 200");
        round.enter(4550, 1, client, POLL);
        round.switch(4551, 1, client, "S", IDLE);
    })
}

#[test]
fn a_thread_asked_within_the_group_works_for_the_request() {
    let (workload, service) =
        import(&tiers(&["back/30"], true), &["comm:front", "comm:back"], Some(Loop::Open));
    assert_eq!((service.connections, service.requests.len() as u64), (1, ROUNDS));
    // From the client's write to the end of the front's answer.
    assert!(service.requests.iter().all(|request| request.took_ns() == 4_534_000));
    let served = served(&workload);
    let (front, back) = (served["front"], served["back"]);
    assert_ne!(front, back);
    let ways = ways(&workload);
    assert_eq!(ways.len() as u64, ROUNDS);
    assert!(ways.iter().all(|way| *way == [front, back, front]), "{ways:?}");
}

#[test]
fn a_call_that_holds_the_front_is_a_wait_for_its_answer() {
    let holds = |polls: bool| {
        let limited = ["comm:front", "comm:back"];
        let (workload, _) = import(&tiers(&["back/30"], polls), &limited, Some(Loop::Open));
        let back = served(&workload)["back"];
        let asks = |op: &Op| matches!(op, Op::Post { channel, .. } if *channel == back);
        let takes = |op: &Op| matches!(op, Op::Recv { .. });
        let held = |program: &[Op]| {
            let (asks, takes) = (program.iter().position(asks), program.iter().position(takes));
            asks.zip(takes).is_some_and(|(asks, takes)| asks < takes)
        };
        workload.jobs.iter().filter(|job| held(&job.program)).count() as u64
    };
    assert_eq!((holds(false), holds(true)), (ROUNDS, 0));
}

#[test]
fn a_back_end_that_is_woken_early_begins_no_request() {
    let limited = ["comm:front", "comm:back"];
    let text = tiers_woken(&["back/30"], false, true);
    let (workload, _) = import(&text, &limited, Some(Loop::Open));
    let front = served(&workload)["front"];
    let begun = workload.sources.iter().filter(|source| source.channel == front);
    assert_eq!(begun.map(|source| source.jobs.len() as u64).sum::<u64>(), ROUNDS);
}

#[test]
fn a_tier_that_is_not_limited_asks_from_outside() {
    let (workload, service) = import(&tiers(&["back/30"], true), &["comm:back"], Some(Loop::Open));
    assert_eq!(service.requests.len() as u64, ROUNDS);
    let back = served(&workload)["back"];
    assert!(ways(&workload).iter().all(|way| *way == [back]));
}

/// On CPU 0 one thread writes to another, wakes it and waits; the other reads.
fn hop(round: &mut Round, us: u64, (from, writes): (&str, u32), (to, reads): (&str, u32)) {
    round.enter(us, 0, from, &format!("1 ({writes:x}, 0, 48, 0, 0, 0)"));
    round.wake(us + 2, 0, from, to);
    round.exit(us + 4, 0, from, "1 = 72");
    round.enter(us + 5, 0, from, POLL);
    round.switch(us + 6, 0, from, "S", to);
    round.exit(us + 8, 0, to, "232 = 1");
    round.enter(us + 9, 0, to, &format!("0 ({reads:x}, 0, 400, 0, 0, 0)"));
    round.exit(us + 11, 0, to, "0 = 72");
}

#[test]
fn a_tier_may_ask_another_for_the_same_request() {
    let (client, front, middle, back) = ("cli/20", "front/10", "mid/30", "back/40");
    let text = rounds(|round, _| {
        round.wake(0, 0, IDLE, client);
        round.switch(1, 0, IDLE, "R", client);
        round.exit(2, 0, client, "232 = 0");
        hop(round, 10, (client, 4), (front, 7));
        hop(round, 1020, (front, 9), (middle, 5));
        hop(round, 2020, (middle, 6), (back, 5));
        hop(round, 3020, (back, 5), (middle, 6));
        hop(round, 4020, (middle, 5), (front, 9));
        hop(round, 5020, (front, 7), (client, 4));
        round.enter(5040, 0, client, POLL);
        round.switch(5041, 0, client, "S", IDLE);
    });
    let limited = ["comm:front", "comm:mid", "comm:back"];
    let (workload, service) = import(&text, &limited, Some(Loop::Open));
    assert_eq!(service.requests.len() as u64, ROUNDS);
    let served = served(&workload);
    let way = ["front", "mid", "back", "mid", "front"].map(|name| served[name]);
    let ways = ways(&workload);
    assert!(ways.len() as u64 == ROUNDS && ways.iter().all(|one| *one == way), "{ways:?}");
}

#[test]
fn a_worker_that_finishes_by_a_byte_works_for_the_request() {
    let (client, front, work) = ("cli/20", "loop/10", "work/11");
    let text = rounds(|round, _| {
        round.wake(0, 0, IDLE, client);
        round.switch(1, 0, IDLE, "R", client);
        round.exit(2, 0, client, "232 = 0");
        hop(round, 10, (client, 4), (front, 7));
        round.enter(1020, 0, front, "202 (7000, 81, 1, 0, 0, 0)");
        round.wake(1022, 0, front, work);
        round.exit(1024, 0, front, "202 = 1");
        round.enter(1025, 0, front, POLL);
        round.switch(1026, 0, front, "S", work);
        round.exit(1028, 0, work, "202 = 0");
        round.enter(4031, 0, work, "1 (3, 0, 8, 0, 0, 0)");
        round.wake(4033, 0, work, front);
        round.exit(4035, 0, work, "1 = 8");
        round.enter(4036, 0, work, "202 (7000, 80, 0, 0, 0, 0)");
        round.switch(4037, 0, work, "S", front);
        round.exit(4039, 0, front, "232 = 1");
        round.enter(4040, 0, front, "0 (3, 0, 400, 0, 0, 0)");
        round.exit(4042, 0, front, "0 = 8");
        hop(round, 5020, (front, 7), (client, 4));
        round.enter(5040, 0, client, POLL);
        round.switch(5041, 0, client, "S", IDLE);
    });
    let (workload, service) = import(&text, &["comm:loop", "comm:work"], Some(Loop::Open));
    assert_eq!(service.requests.len() as u64, ROUNDS);
    let served = served(&workload);
    let way = ["loop", "work", "loop"].map(|name| served[name]);
    let ways = ways(&workload);
    assert!(ways.len() as u64 == ROUNDS && ways.iter().all(|one| *one == way), "{ways:?}");
    // The 3 ms of work are the worker's, once for each request.
    let is_work = |op: &Op| matches!(op, Op::User(Span::Fixed(3_003_000)));
    let works = workload.jobs.iter().filter(|job| job.program.iter().any(is_work));
    assert_eq!(works.count() as u64, ROUNDS, "{:?}", workload.jobs);
}

/// The front asks two backs at a time, which work for 3 and 4 ms on CPUs of their own.
fn two_at_once(round: &mut Round) {
    let (client, front) = ("cli/20", "front/10");
    let (begun, rest) = (round.text.len(), &mut *round);
    rest.wake(0, 0, IDLE, client);
    rest.switch(1, 0, IDLE, "R", client);
    rest.exit(2, 0, client, "232 = 0");
    hop(rest, 10, (client, 4), (front, 7));
    for (at, back, socket, end) in [(1020, "a/30", 9, 4031), (1030, "b/31", 11, 5031)] {
        let cpu = socket / 2 - 3;
        rest.enter(at, 0, front, &format!("1 ({socket:x}, 0, 48, 0, 0, 0)"));
        rest.wake(at + 2, 0, front, back);
        rest.switch(at + 3, cpu, IDLE, "R", back);
        rest.exit(at + 4, 0, front, "1 = 72");
        rest.exit(1050, cpu, back, "232 = 1");
        rest.enter(1051, cpu, back, "0 (5, 0, 400, 0, 0, 0)");
        rest.exit(1053, cpu, back, "0 = 72");
        rest.enter(end, cpu, back, "1 (5, 0, 48, 0, 0, 0)");
        rest.wake(end + 2, cpu, back, front);
        rest.switch(end + 3, 0, IDLE, "R", front);
        rest.exit(end + 4, cpu, back, "1 = 200");
        rest.enter(end + 5, cpu, back, POLL);
        rest.switch(end + 6, cpu, back, "S", IDLE);
        rest.exit(end + 7, 0, front, "232 = 1");
        rest.enter(end + 8, 0, front, &format!("0 ({socket:x}, 0, 400, 0, 0, 0)"));
        rest.exit(end + 9, 0, front, "0 = 200");
    }
    for us in [1040, 4045] {
        rest.enter(us, 0, front, POLL);
        rest.switch(us + 1, 0, front, "S", IDLE);
    }
    hop(rest, 5540, (front, 7), (client, 4));
    rest.enter(5560, 0, client, POLL);
    rest.switch(5561, 0, client, "S", IDLE);
    let mut lines: Vec<String> = round.text.split_off(begun).lines().map(str::to_owned).collect();
    let time = |line: &String| line.split_whitespace().nth(3).map(str::to_owned);
    lines.sort_by_key(time);
    for line in &lines {
        *round.text += line;
        *round.text += "\n";
    }
}

#[test]
fn two_calls_at_once_both_begin() {
    let text = rounds(|round, _| two_at_once(round));
    let limited = ["comm:front", "comm:a", "comm:b"];
    let (workload, service) = import(&text, &limited, Some(Loop::Open));
    assert_eq!(service.requests.len() as u64, ROUNDS);
    let served = served(&workload);
    let calls = |program: &[Op]| -> Vec<ChannelIx> {
        let to = |op: &Op| match op {
            Op::Post { channel, .. } => Some(*channel),
            _ => None,
        };
        program.iter().filter_map(to).collect()
    };
    let both = workload.jobs.iter().map(|job| calls(&job.program));
    let both = both.filter(|calls| *calls == [served["a"], served["b"]]);
    assert_eq!(both.count() as u64, ROUNDS, "{:?}", workload.jobs);
}

/// The client connects for each request, and a process is forked for each connection. Everything is
/// held up for `late_us` between connecting and asking.
fn forks(late_us: u64) -> String {
    let (client, parent) = ("cli/20", "srv/10");
    rounds(|round, number| {
        let child = format!("srv/{}", 100 + number);
        let child = child.as_str();
        let late = |us: u64| us + late_us;
        round.wake(0, 1, IDLE, client);
        round.switch(1, 1, IDLE, "R", client);
        round.exit(2, 1, client, "232 = 0");
        round.enter(3, 1, client, "42 (4, 0, 10, 0, 0, 0)");
        round.wake(5, 1, client, parent);
        round.switch(6, 0, IDLE, "R", parent);
        round.exit(7, 1, client, "42 = 0");
        round.exit(8, 0, parent, "288 = 7");
        round.enter(late(8), 1, client, "1 (4, 0, 48, 0, 0, 0)");
        round.exit(late(9), 1, client, "1 = 72");
        round.enter(late(10), 1, client, POLL);
        round.switch(late(11), 1, client, "S", IDLE);
        round.enter(late(500), 0, parent, "56 (0, 0, 0, 0, 0, 0)");
        let pid = child.split_once('/').unwrap().1;
        round.line(
            late(510),
            0,
            parent,
            &format!("sched:sched_process_fork: comm=srv pid=10 child_comm=srv child_pid={pid}"),
        );
        let new = format!("sched:sched_wakeup_new: comm=srv pid={pid} prio=120 target_cpu=000");
        round.line(late(512), 0, parent, &new);
        round.exit(late(520), 0, parent, &format!("56 = {pid}"));
        round.enter(late(530), 0, parent, "3 (7, 0, 0, 0, 0, 0)");
        round.exit(late(531), 0, parent, "3 = 0");
        round.enter(late(540), 0, parent, "288 (3, 0, 0, 0, 0, 0)");
        round.switch(late(541), 0, parent, "S", child);
        round.exit(late(545), 0, child, "56 = 0");
        round.enter(late(550), 0, child, "0 (7, 0, 400, 0, 0, 0)");
        round.exit(late(552), 0, child, "0 = 72");
        round.enter(late(2550), 0, child, "1 (7, 0, 48, 0, 0, 0)");
        round.wake(late(2552), 0, child, client);
        round.switch(late(2553), 1, IDLE, "R", client);
        round.exit(late(2554), 0, child, "1 = 200");
        round.enter(late(2560), 0, child, "231 (0, 0, 0, 0, 0, 0)");
        round.line(
            late(2570),
            0,
            child,
            &format!("sched:sched_process_exit: comm=srv pid={pid} prio=120"),
        );
        round.switch(late(2580), 0, child, "X", IDLE);
        round.exit(late(2581), 1, client, "232 = 1");
        round.enter(late(2582), 1, client, "0 (4, 0, 400, 0, 0, 0)");
        round.exit(late(2583), 1, client, "0 = 200");
        round.enter(late(2584), 1, client, "3 (4, 0, 0, 0, 0, 0)");
        round.exit(late(2585), 1, client, "3 = 0");
        round.enter(late(2586), 1, client, POLL);
        round.switch(late(2587), 1, client, "S", IDLE);
    })
}

#[test]
fn a_forking_parent_does_the_first_part_of_a_request() {
    forked(0);
}

/// A connection with a single request is accepted for that request.
#[test]
fn an_accept_belongs_to_a_late_single_request() {
    forked(1500);
}

fn forked(late_us: u64) {
    let (workload, service) = import(&forks(late_us), &["comm:srv"], Some(Loop::Closed));
    // One request is under way at a time: there is one client, which waits for each answer.
    assert_eq!((service.connections, service.requests.len() as u64), (1, ROUNDS));
    let parents = workload.tasks.iter().find(|task| task.name == "srv/10").unwrap();
    let Some(Op::Serve { channel }) = parents.program.get(1) else {
        panic!("the parent serves: {:?}", parents.program)
    };
    let posts = workload.jobs.iter().flat_map(|job| &job.program);
    let from_parent =
        posts.filter(|op| matches!(op, Op::Post { channel: to, .. } if to != channel));
    // The first accept began before the recording.
    assert_eq!(from_parent.count() as u64, ROUNDS - 1, "each child is told by the parent");
    let again = workload.jobs.iter().flat_map(|job| &job.program);
    let to_parent = again
        .filter(|op| matches!(op, Op::After { channel: to, keep: false, .. } if to == channel));
    assert_eq!(to_parent.count() as u64, ROUNDS - 1, "the client asks the parent");
}

/// Leaves only the scheduler's events.
pub fn without_calls(text: &str) -> String {
    text.lines().filter(|line| !line.contains("raw_sys")).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn wakeups_tell_the_threads_behind_a_front() {
    let text = without_calls(&tiers(&["back/30"], true));
    let (workload, service) = import(&text, &["comm:front", "comm:back"], Some(Loop::Open));
    assert_eq!((service.recorded, service.requests.len() as u64), (false, ROUNDS));
    // From the wakeup of the front to that of the client.
    assert!(service.requests.iter().all(|request| request.took_ns() == 4_530_000));
    let served = served(&workload);
    let (front, back) = (served["front"], served["back"]);
    assert_ne!(front, back);
    let ways = ways(&workload);
    assert!(ways.iter().all(|way| *way == [front, back, front]), "{ways:?}");
    assert_eq!(ways.len() as u64, ROUNDS);
}

#[test]
fn processes_of_a_name_behind_a_front_share_its_requests() {
    let text = without_calls(&tiers(&["back/30", "back/31"], true));
    let (workload, _) = import(&text, &["comm:front", "comm:back"], Some(Loop::Closed));
    let backs = workload.tasks.iter().filter(|task| task.name.starts_with("back/"));
    let served: Vec<_> = backs.map(|task| task.program.get(1)).collect();
    assert!(matches!(served[..], [Some(Op::Serve { .. }), _]) && served[0] == served[1]);
}

/// The client asks the front a second time while the thread behind it works and is not woken.
fn busy_tiers() -> String {
    let (client, front, back) = ("cli/20", "front/10", "back/30");
    rounds(|round, _| {
        for us in [0, 1500] {
            round.wake(us, 1, IDLE, client);
            round.switch(us + 1, 1, IDLE, "R", client);
            round.wake(us + 10, 1, client, front);
            round.switch(us + 20, 1, client, "S", front);
            if us == 0 {
                round.wake(us + 100, 1, front, back);
                round.switch(us + 101, 0, IDLE, "R", back);
            }
            round.switch(us + 120, 1, front, "S", IDLE);
        }
        for us in [3100, 6100] {
            round.wake(us, 0, back, front);
            round.switch(us + 1, 1, IDLE, "R", front);
            round.wake(us + 200, 1, front, client);
            round.switch(us + 201, 1, front, "S", client);
            round.switch(us + 220, 1, client, "S", IDLE);
        }
        round.switch(6110, 0, back, "S", IDLE);
    })
}

#[test]
fn a_thread_behind_a_front_takes_the_oldest_waiting_request() {
    let (workload, service) = import(&busy_tiers(), &["comm:front", "comm:back"], Some(Loop::Open));
    let mut requests = service.requests.clone();
    requests.sort_by_key(|request| request.arrived_ns);
    let took: Vec<u64> = requests.iter().map(Request::took_ns).collect();
    assert_eq!(took, [3_290_000, 4_790_000].repeat(ROUNDS as usize));
    let served = served(&workload);
    let (front, back) = (served["front"], served["back"]);
    let ways = ways(&workload);
    assert!(ways.iter().all(|way| *way == [front, back, front]), "{ways:?}");
    assert_eq!(ways.len() as u64, 2 * ROUNDS);
}

#[test]
fn wakeups_tell_the_process_forked_for_a_request() {
    for clients in [Loop::Open, Loop::Closed] {
        let (workload, service) = import(&without_calls(&forks(0)), &["comm:srv"], Some(clients));
        assert!(!service.recorded && service.evidence.anew);
        assert_eq!((service.connections, service.requests.len() as u64), (1, ROUNDS));
        // From the wakeup of the parent to that of the client.
        assert!(service.requests.iter().all(|request| request.took_ns() == 2_547_000));
        let parents = workload.tasks.iter().find(|task| task.name == "srv/10").unwrap();
        let Some(Op::Serve { channel }) = parents.program.get(1) else {
            panic!("the parent serves: {:?}", parents.program)
        };
        let jobs = || workload.jobs.iter().map(|job| &job.program);
        let posts = jobs().flatten().filter(|op| matches!(op, Op::Post { .. }));
        assert_eq!(posts.count() as u64, ROUNDS, "each child is told by the parent");
        // Work of a child after its answer is not waited for.
        let answers =
            jobs().filter_map(|ops| Some(&ops[ops.iter().position(|op| *op == Op::Done)?..]));
        let rests = answers.filter(|rest| matches!(rest.last(), Some(Op::User(_))));
        assert_eq!(rests.count() as u64, ROUNDS);
        let again = jobs().flatten();
        let again = again
            .filter(|op| matches!(op, Op::After { channel: to, keep: false, .. } if to == channel));
        let want = if clients == Loop::Closed { ROUNDS - 1 } else { 0 };
        assert_eq!(again.count() as u64, want, "the client asks the parent");
    }
}

/// One thread of the client asks, and another one is answered; only the scheduler's events.
fn two_threads(pids: [u32; 2]) -> String {
    let (asks, told, server) = ("ask/21", "told/22", "srv/10");
    let text = rounds(|round, _| {
        round.wake(0, 1, IDLE, asks);
        round.switch(1, 1, IDLE, "R", asks);
        round.wake(12, 1, asks, server);
        round.switch(13, 0, IDLE, "R", server);
        round.switch(16, 1, asks, "S", IDLE);
        round.wake(2010, 0, server, told);
        round.switch(2012, 1, IDLE, "R", told);
        round.switch(2020, 0, server, "S", IDLE);
        round.switch(2030, 1, told, "S", IDLE);
    });
    let with_pid = |line: &str| {
        let (head, rest) = line.split_once(" [").unwrap();
        let (comm, tid) = head.trim().split_once(' ').unwrap();
        let tid: u32 = tid.trim().parse().unwrap();
        let pid = match tid {
            21 => pids[0],
            22 => pids[1],
            tid => tid,
        };
        format!("{comm:>16} {pid}/{tid} [{rest}\n")
    };
    text.lines().map(with_pid).collect()
}

#[test]
fn a_client_is_a_process() {
    let (_, service) = import(&two_threads([20, 20]), &["comm:srv"], None);
    assert_eq!((service.recorded, service.requests.len() as u64), (false, ROUNDS));
    let text = two_threads([21, 22]);
    let recording = Recording::read_pipe("test", text.as_bytes(), Options::default()).unwrap();
    let limited = vec!["comm:srv".parse().unwrap()];
    let selection = Selection { limited, ..Selection::default() };
    assert!(recording.import(&selection).unwrap().1.is_none(), "nobody both asks and is answered");
}
