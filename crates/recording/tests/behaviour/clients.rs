//! Clients that asked before the recording began, that ask on behalf of others, and that connect
//! anew and ask at once.

use super::tiers::{Round, without_calls};
use cpumax_recording::{Loop, Options, Recording, Selection, Service};
use cpumax_workload::{Op, Workload};

const REQUESTS: u64 = 60;
const IDLE: &str = "swapper/0";
const POLL: &str = "232 (3, 0, 10, ffffffff, 0, 0)";
const CLIENT: &str = "cli/20";
const SERVER: &str = "srv/10";

fn import(text: &str, clients: Option<Loop>) -> (Workload, Service) {
    let recording = Recording::read_pipe("test", text.as_bytes(), Options::default()).unwrap();
    let limited = vec!["comm:srv".parse().unwrap()];
    let selection = Selection { limited, clients: clients.map(Into::into), ..Selection::default() };
    let (workload, service) = recording.import(&selection).unwrap();
    (workload, service.expect("requests are known"))
}

/// A client, woken by a timer or by its own client, asks a server on one of its connections in
/// turn. The server works for 3 ms.
fn requests(connections: u64, asked_by: Option<&str>) -> String {
    let mut text = String::new();
    for n in 0..REQUESTS {
        // Not in step with anything.
        let begin_us = 1_000_000 + n * 7_000 + n * n % 7 * 300;
        let (client_fd, server_fd) = (4 + n % connections, 4 + connections + n % connections);
        let mut round = Round { text: &mut text, begin_us };
        if let Some(asks) = asked_by {
            round.wake(0, 1, IDLE, asks);
            round.switch(1, 1, IDLE, "R", asks);
            round.wake(2, 1, asks, CLIENT);
            round.switch(3, 1, asks, "S", CLIENT);
        } else {
            round.wake(0, 1, IDLE, CLIENT);
            round.switch(3, 1, IDLE, "R", CLIENT);
        }
        round.exit(4, 1, CLIENT, "232 = 0");
        round.enter(10, 1, CLIENT, &format!("1 ({client_fd:x}, 0, 48, 0, 0, 0)"));
        round.wake(12, 1, CLIENT, SERVER);
        round.switch(13, 0, IDLE, "R", SERVER);
        round.exit(14, 1, CLIENT, "1 = 72");
        round.enter(15, 1, CLIENT, POLL);
        round.switch(16, 1, CLIENT, "S", IDLE);
        round.exit(20, 0, SERVER, "232 = 1");
        round.enter(21, 0, SERVER, &format!("0 ({server_fd:x}, 0, 400, 0, 0, 0)"));
        round.exit(23, 0, SERVER, "0 = 72");
        round.enter(3023, 0, SERVER, &format!("1 ({server_fd:x}, 0, c8, 0, 0, 0)"));
        round.wake(3025, 0, SERVER, CLIENT);
        round.switch(3026, 1, IDLE, "R", CLIENT);
        round.exit(3027, 1, CLIENT, "232 = 1");
        round.enter(3028, 1, CLIENT, &format!("0 ({client_fd:x}, 0, 400, 0, 0, 0)"));
        round.exit(3029, 1, CLIENT, "0 = 200");
        round.exit(3030, 0, SERVER, "1 = 200");
        if let Some(asks) = asked_by {
            round.wake(3031, 1, CLIENT, asks);
        }
        round.enter(3032, 1, CLIENT, POLL);
        round.switch(3033, 1, CLIENT, "S", asked_by.unwrap_or(IDLE));
        if let Some(asks) = asked_by {
            round.switch(3034, 1, asks, "S", IDLE);
        }
        round.enter(3040, 0, SERVER, POLL);
        round.switch(3041, 0, SERVER, "S", IDLE);
    }
    text
}

#[test]
fn a_request_that_is_being_answered_when_the_recording_begins_hides_no_connection() {
    let text = requests(3, None);
    let (_, whole) = import(&text, None);
    assert_eq!((whole.connections, whole.requests.len() as u64), (3, REQUESTS));
    // From the time at which the server works for the first request.
    let begins = text.match_indices("sys_exit: NR 0 = 72").next().unwrap().0;
    let rest = &text[begins + text[begins..].find('\n').unwrap() + 1..];
    let (_, cut) = import(rest, None);
    assert_eq!((cut.connections, cut.requests.len() as u64), (3, REQUESTS - 1));
}

#[test]
fn a_client_that_others_ask_does_not_ask_at_once() {
    let says = |text: &str| import(&without_calls(text), None).1.evidence;
    // Hardly any timer wakes a proxy, but its own clients do.
    let proxy = says(&requests(3, Some("user/40")));
    let alone = says(&requests(3, None));
    assert!((proxy.asleep - alone.asleep).abs() < 1.0, "{proxy:?} {alone:?}");
}

/// Clients that connect for each request, the next one as soon as they are answered, to servers
/// that accept in turn.
fn anew(servers: &[&str]) -> String {
    let mut text = String::new();
    for n in 0..REQUESTS {
        let at = n as usize;
        let server = servers[at % servers.len()];
        let begin_us = 1_000_000 + n * 3_100 + n * n % 7 * 10;
        let mut round = Round { text: &mut text, begin_us };
        // No descriptor is used again, which would tell the client.
        let fd = 4 + n;
        if n == 0 {
            round.switch(0, 1, IDLE, "R", CLIENT);
        }
        round.enter(9, 1, CLIENT, &format!("42 ({fd:x}, 0, 10, 0, 0, 0)"));
        round.wake(10, 1, CLIENT, server);
        round.switch(11, 0, IDLE, "R", server);
        round.exit(12, 1, CLIENT, "42 = 0");
        round.enter(13, 1, CLIENT, &format!("1 ({fd:x}, 0, 48, 0, 0, 0)"));
        round.exit(14, 1, CLIENT, "1 = 72");
        round.enter(15, 1, CLIENT, &format!("0 ({fd:x}, 0, 400, 0, 0, 0)"));
        round.switch(16, 1, CLIENT, "S", IDLE);
        if at >= servers.len() {
            round.exit(20, 0, server, "288 = 7");
        }
        round.enter(21, 0, server, "0 (7, 0, 400, 0, 0, 0)");
        round.exit(23, 0, server, "0 = 72");
        round.enter(3023, 0, server, "1 (7, 0, c8, 0, 0, 0)");
        round.wake(3025, 0, server, CLIENT);
        round.switch(3026, 1, IDLE, "R", CLIENT);
        round.exit(3030, 1, CLIENT, "0 = 200");
        round.exit(3031, 0, server, "1 = 200");
        round.enter(3032, 0, server, "3 (7, 0, 0, 0, 0, 0)");
        round.exit(3033, 0, server, "3 = 0");
        round.enter(3034, 1, CLIENT, &format!("3 ({fd:x}, 0, 0, 0, 0, 0)"));
        round.exit(3035, 1, CLIENT, "3 = 0");
        round.enter(3040, 0, server, "288 (3, 0, 0, 0, 0, 0)");
        round.switch(3041, 0, server, "S", IDLE);
    }
    text
}

#[test]
fn a_client_that_connects_anew_at_once_is_closed() {
    let (workload, service) = import(&anew(&[SERVER]), None);
    assert!(service.evidence.anew, "{:?}", service.evidence);
    // One client, as far as that can be estimated.
    assert!(service.clients == Loop::Closed && service.connections <= 2, "{service:?}");
    let after = workload.jobs.iter().flat_map(|job| &job.program);
    let after = after.filter(|op| matches!(op, Op::After { keep: false, .. })).count() as u64;
    assert_eq!(after, service.requests.len() as u64 - u64::from(service.connections));
}

/// Two threads wait for the next connection. A client wakes both, or the one that will serve it.
fn two_servers(both: bool) -> String {
    let servers = [SERVER, "srv/11"];
    let mut text = String::new();
    for n in 0..REQUESTS {
        let begin_us = 1_000_000 + n * 7_000 + n * n % 7 * 300;
        let mut round = Round { text: &mut text, begin_us };
        let (serves, other) = if n % 3 == 0 { (0, 1) } else { (1, 0) };
        round.wake(0, 2, IDLE, CLIENT);
        round.switch(1, 2, IDLE, "R", CLIENT);
        round.wake(10, 2, CLIENT, servers[serves]);
        round.switch(12, 0, IDLE, "R", servers[serves]);
        if both {
            round.wake(13, 2, CLIENT, servers[other]);
            round.switch(14, 1, IDLE, "R", servers[other]);
            round.switch(34, 1, servers[other], "S", IDLE);
        }
        round.switch(40, 2, CLIENT, "S", IDLE);
        round.wake(3025, 0, servers[serves], CLIENT);
        round.switch(3026, 2, IDLE, "R", CLIENT);
        round.switch(3033, 2, CLIENT, "S", IDLE);
        round.switch(3041, 0, servers[serves], "S", IDLE);
    }
    text
}

fn served(workload: &Workload) -> Vec<&Op> {
    let ops = workload.tasks.iter().flat_map(|task| task.program.iter());
    ops.filter(|op| matches!(op, Op::Serve { .. })).collect()
}

#[test]
fn threads_that_accept_for_themselves_share_a_queue() {
    let (workload, _) = import(&anew(&[SERVER, "srv/11"]), Some(Loop::Closed));
    let served = served(&workload);
    assert!(served.len() == 2 && served[0] == served[1], "{served:?}");
}

#[test]
fn threads_woken_in_vain_share_connections() {
    for both in [true, false] {
        // Open clients with one plan send a late request to any idle thread, whatever the threads
        // are.
        let (workload, _) = import(&two_servers(both), Some(Loop::Closed));
        let served = served(&workload);
        assert_eq!(served.len(), 2);
        assert_eq!(served[0] == served[1], both, "{served:?}");
    }
}
