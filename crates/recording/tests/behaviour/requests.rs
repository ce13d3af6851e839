//! A server with one event loop, and a client with two connections: its requests, with and without
//! recorded system calls.

use super::tiers::{Round, without_calls};
use cpumax_recording::{Clock, Loop, Options, Recording, Selection, Service};
use cpumax_workload::{Arrivals, Op, Span, Workload};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const ROUNDS: u64 = 40;
const ROUND_US: u64 = 20_000;

/// Every third round has two requests.
const REQUESTS: u64 = ROUNDS + ROUNDS.div_ceil(3);

fn switch(from: &str, state: &str, to: &str) -> String {
    let (prev, prev_pid) = from.split_once('/').unwrap();
    let (next, next_pid) = to.split_once('/').unwrap();
    format!(
        "sched:sched_switch: prev_comm={prev} prev_pid={prev_pid} prev_prio=120 \
         prev_state={state} ==> next_comm={next} next_pid={next_pid} next_prio=120"
    )
}

fn wake(whom: &str) -> String {
    let (comm, pid) = whom.split_once('/').unwrap();
    format!("sched:sched_waking: comm={comm} pid={pid} prio=120 target_cpu=000")
}

/// A timer begins each round. The client writes to descriptor 4, which is 7 at the server, and in
/// every third round a millisecond later to 5, which is 8 there. The server works 2 ms for the
/// first request and 3 ms for the second, which it finds when the first is done.
pub fn recording() -> String {
    let mut text = String::new();
    for round in 0..ROUNDS {
        // Not in step with anything.
        let at = 1_000_000 + round * ROUND_US + round * round % 7 * 300;
        let mut line = |us: u64, cpu: u32, who: &str, event: &str| {
            let (comm, tid) = who.split_once('/').unwrap();
            let us = at + us;
            let (s, us) = (us / 1_000_000, us % 1_000_000);
            writeln!(text, "{comm:>16} {tid:>5} [{cpu:03}] {s}.{us:06}: {event}").unwrap();
        };
        let enter = |call: &str| format!("raw_syscalls:sys_enter: NR {call}");
        let exit = |result: &str| format!("raw_syscalls:sys_exit: NR {result}");
        let (idle, server, client) = ("swapper/0", "srv/10", "cli/20");
        let epoll = "232 (3, 0, 10, ffffffff, 0, 0)";
        line(0, 1, idle, &wake(client));
        line(1, 1, idle, &switch(idle, "R", client));
        line(2, 1, client, &exit("232 = 0"));
        line(10, 1, client, &enter("1 (4, 0, 48, 0, 0, 0)"));
        line(12, 1, client, &wake(server));
        line(13, 0, idle, &switch(idle, "R", server));
        line(14, 1, client, &exit("1 = 72"));
        line(20, 0, server, &exit("232 = 1"));
        line(21, 0, server, &enter("0 (7, 0, 400, 0, 0, 0)"));
        line(23, 0, server, &exit("0 = 72"));
        let both = round % 3 == 0;
        if both {
            line(1000, 1, client, &enter("1 (5, 0, 48, 0, 0, 0)"));
            line(1004, 1, client, &exit("1 = 72"));
        }
        line(1010, 1, client, &enter(epoll));
        line(1012, 1, client, &switch(client, "S", idle));
        let answers = [(2013, 7, 4), (5033, 8, 5)];
        for &(us, server_fd, client_fd) in &answers[..=usize::from(both)] {
            line(us, 0, server, &enter(&format!("1 ({server_fd}, 0, c8, 0, 0, 0)")));
            line(us + 2, 0, server, &wake(client));
            line(us + 3, 1, idle, &switch(idle, "R", client));
            line(us + 4, 1, client, &exit("232 = 1"));
            line(us + 5, 1, client, &enter(&format!("0 ({client_fd}, 0, 400, 0, 0, 0)")));
            line(us + 6, 1, client, &exit("0 = 200"));
            line(us + 7, 0, server, &exit("1 = 200"));
            line(us + 8, 1, client, &enter(epoll));
            line(us + 9, 1, client, &switch(client, "S", idle));
            line(us + 10, 0, server, &enter(epoll));
            if both && server_fd == 7 {
                line(us + 12, 0, server, &exit("232 = 1"));
                line(us + 13, 0, server, &enter("0 (8, 0, 400, 0, 0, 0)"));
                line(us + 15, 0, server, &exit("0 = 72"));
            }
        }
        line(if both { 5050 } else { 2030 }, 0, server, &switch(server, "S", idle));
    }
    text
}

fn import(text: &str, clients: Option<Loop>) -> (Workload, Service) {
    let recording = Recording::read_pipe("test", text.as_bytes(), Options::default()).unwrap();
    let limited = vec!["comm:srv".parse().unwrap()];
    let group = "/limited".to_owned();
    let selection =
        Selection { limited, group, clients: clients.map(Into::into), ..Selection::default() };
    let (workload, service) = recording.import(&selection).unwrap();
    (workload, service.expect("requests are known"))
}

/// Times of requests that come by themselves.
fn arrivals(workload: &Workload) -> &[u64] {
    let source = workload.sources.iter().find(|source| !source.jobs.is_empty()).unwrap();
    match &source.arrivals {
        Arrivals::At(times) => times,
        Arrivals::Between(_) => panic!("requests come at recorded times"),
    }
}

#[test]
fn requests_are_what_is_read_until_it_is_answered() {
    let (_, service) = import(&recording(), None);
    assert_eq!((service.connections, service.recorded), (2, true));
    assert_eq!(service.requests.len() as u64, REQUESTS);
    for request in &service.requests {
        // From the beginning of the client's write, though it was read later, to the end of the
        // write of the answer.
        let want_ns = if request.connection == 0 { 2_010_000 } else { 4_040_000 };
        assert_eq!(request.took_ns(), want_ns, "{request:?}");
    }
}

#[test]
fn a_closed_client_asks_again_after_the_answer() {
    let (workload, _) = import(&recording(), Some(Loop::Closed));
    let after = workload.jobs.iter().flat_map(|job| &job.program);
    let thinks: Vec<Span> = after
        .filter_map(|op| match op {
            Op::After { delay, keep: false, .. } => Some(*delay),
            _ => None,
        })
        .collect();
    assert_eq!(thinks.len() as u64, REQUESTS - 2);
    // Only the first of each connection comes by itself.
    assert_eq!(arrivals(&workload).len(), 2);
    let done = workload.jobs.iter().flat_map(|job| &job.program);
    assert_eq!(done.filter(|op| **op == Op::Done).count() as u64, REQUESTS);
}

#[test]
fn an_open_client_asks_at_its_times() {
    let (workload, service) = import(&recording(), Some(Loop::Open));
    assert_eq!((service.clients, service.sure), (Loop::Open, true));
    let times = arrivals(&workload);
    assert_eq!(times.len() as u64, REQUESTS);
    assert_eq!(times[1] - times[0], 990_000);
}

#[test]
fn a_clock_given_for_threads_tells_how_they_ask() {
    let recording =
        Recording::read_pipe("test", recording().as_bytes(), Options::default()).unwrap();
    for (clock, clients) in [(Clock::Absolute, Loop::Open), (Clock::Relative, Loop::Closed)] {
        let selection = Selection {
            limited: vec!["comm:srv".parse().unwrap()],
            clocks: vec![("comm:cli".parse().unwrap(), clock)],
            ..Selection::default()
        };
        let (_, service) = recording.import(&selection).unwrap();
        let service = service.unwrap();
        assert_eq!((service.clients, service.sure), (clients, true));
    }
}

#[test]
fn the_work_of_all_jobs_is_that_of_the_server() {
    let text = recording();
    for text in [text.clone(), without_calls(&text)] {
        let (workload, _) = import(&text, None);
        let work = workload.jobs.iter().flat_map(|job| &job.program).map(|op| match op {
            Op::User(Span::Fixed(ns)) | Op::Kernel(Span::Fixed(ns)) => *ns,
            _ => 0,
        });
        assert_eq!(work.sum::<u64>(), ROUNDS * 2_017_000 + (REQUESTS - ROUNDS) * 3_020_000);
    }
}

#[test]
fn without_system_calls_wakeups_tell_requests() {
    let (_, service) = import(&without_calls(&recording()), None);
    assert!(!service.recorded);
    // The recording begins before the server is first seen to be woken.
    assert_eq!(service.requests.len() as u64, REQUESTS);
    let of = |first: bool| {
        service.requests.iter().filter(move |request| (request.took_ns() < 2_100_000) == first)
    };
    assert_eq!((of(true).count() as u64, of(false).count() as u64), (ROUNDS, REQUESTS - ROUNDS));
}

/// Replaces system calls by messages of sockets, recorded once they are sent or received; with
/// `ready` also data that comes in at the other end.
pub fn by_sockets(text: &str, ready: bool) -> String {
    let peer = |fd: &str| match fd {
        "4" => "7",
        "5" => "8",
        "7" => "4",
        _ => "5",
    };
    let mut fds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut out = String::new();
    for line in text.lines() {
        let Some((head, call)) = line.split_once("raw_syscalls:") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let who = line.split_whitespace().next().unwrap();
        let (kind, call) = call.split_once(": NR ").unwrap();
        let (number, rest) = call.split_once(' ').unwrap();
        match (kind, number) {
            ("sys_enter", "0" | "1") => {
                let fd = &rest[1..2];
                fds.insert(who, fd);
                if ready && number == "1" {
                    let peer = peer(fd);
                    let event = format!("sock:sk_data_ready: skaddr=0xff0{peer} family=2");
                    writeln!(out, "{head}{event}").unwrap();
                }
            }
            ("sys_exit", "0" | "1") => {
                let (what, fd) = (if number == "1" { "send" } else { "recv" }, fds[who]);
                let length = rest.trim_start_matches("= ");
                writeln!(
                    out,
                    "{head}sock:sock_{what}_length: sk address = 000000000000ff0{fd}, family = \
                     AF_INET protocol = IPPROTO_TCP, length = {length}, error = 0, flags = 0x0"
                )
                .unwrap();
            }
            _ => {}
        }
    }
    out
}

#[test]
fn messages_of_sockets_tell_requests_as_system_calls_do() {
    let text = recording();
    let (_, calls) = import(&text, None);
    for (ready, earlier_ns) in [(true, 0), (false, 4_000)] {
        let (workload, service) = import(&by_sockets(&text, ready), None);
        assert_eq!((service.connections, service.recorded), (2, true));
        assert_eq!(service.requests.len() as u64, REQUESTS);
        for (one, other) in service.requests.iter().zip(&calls.requests) {
            assert_eq!(one.connection, other.connection);
            // Without them a request counts from when all of it was sent.
            assert_eq!(one.took_ns(), other.took_ns() - earlier_ns, "{one:?} {other:?}");
        }
        let done = workload.jobs.iter().flat_map(|job| &job.program);
        assert_eq!(done.filter(|op| **op == Op::Done).count() as u64, REQUESTS);
    }
}

#[test]
fn unknown_waits_and_clients_are_gaps() {
    let text = without_calls(&recording());
    let selection =
        Selection { limited: vec!["comm:srv".parse().unwrap()], ..Selection::default() };
    let read =
        |text: &str| Recording::read_pipe("test", text.as_bytes(), Options::default()).unwrap();
    let whole = read(&text);
    assert!(whole.waits(&selection).are_known() && whole.has_clients(&selection));
    let blind: String = text
        .lines()
        .filter(|line| !line.contains("sched_waking"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let blind = read(&blind);
    let waits = blind.waits(&selection);
    assert!(waits.all >= ROUNDS - 1 && !waits.are_known(), "{waits:?}");
    assert!(!blind.has_clients(&selection));
}

/// A server that always has work, on a CPU of its own. It sends each answer in two parts; the
/// client, woken by each, asks again at once.
fn without_a_pause() -> String {
    let mut text = String::new();
    let (idle, server, client) = ("swapper/0", "srv/10", "cli/20");
    let mut from = Round { text: &mut text, begin_us: 900_000 };
    let ask = |round: &mut Round<'_>| {
        round.switch(0, 1, idle, "R", client);
        round.wake(2, 1, client, server);
        round.switch(4, 0, idle, "R", server);
        round.switch(12, 1, client, "S", idle);
    };
    for _ in 0..3 {
        ask(&mut from);
        from.switch(50, 0, server, "S", idle);
        from.begin_us += 100;
    }
    from.begin_us = 1_000_000;
    ask(&mut from);
    for n in 0..200 {
        from.begin_us = 1_000_004 + n * 1300;
        for us in [1230 + n % 7, 1300] {
            from.wake(us, 0, server, client);
            from.switch(us + 3, 1, idle, "R", client);
            from.switch(us + 15, 1, client, "S", idle);
        }
    }
    text
}

#[test]
fn a_server_that_never_waits_serves_as_many_as_its_work_tells() {
    let (_, service) = import(&without_a_pause(), None);
    // In text without interrupts the wakers are a guess.
    assert_eq!((service.clients, service.sure, service.recorded), (Loop::Closed, false, false));
    // On at least two connections, or it would wait for the next request.
    assert_eq!((service.connections, service.or_more), (2, true));
    assert!((198..=201).contains(&service.requests.len()), "{}", service.requests.len());
    let mut took: Vec<u64> = service.requests.iter().map(|one| one.took_ns() / 10_000).collect();
    took.sort_unstable();
    assert_eq!(took[100], 260);
}
