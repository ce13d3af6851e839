//! What is validated: the loads, and the limits each of them is put under.

use super::run::Events;

/// A load: the program in the group, and the client outside it if it is a server.
#[derive(Debug)]
pub struct Load {
    pub name: &'static str,
    /// One sentence for the reader of the tables.
    pub what: &'static str,
    /// Arguments of `testload` in the group; without the seed and number of requests.
    pub inside: &'static [&'static str],
    /// Arguments of `testload` outside the group; without port, seed and number.
    pub outside: Option<&'static [&'static str]>,
    /// How the number of completions of each thread is given, and how many at scale 100.
    pub amount: (&'static str, u64),
    /// Whether the tables include it when nothing else is asked for.
    pub validated: bool,
}

/// A limit by name.
#[derive(Debug, Clone, Copy)]
pub struct NamedLimit {
    pub name: &'static str,
    pub quota_us: u64,
    pub period_us: u64,
    pub burst_us: u64,
}

/// A recording that is shipped.
#[derive(Debug)]
pub struct Shipped {
    pub name: &'static str,
    /// Name of the load.
    pub load: &'static str,
    /// Name of the limit it was made under.
    pub limit: Option<&'static str>,
    pub events: Events,
    /// How much work, in hundredths of the load's.
    pub scale: u64,
}

pub const SHIPPED: &[Shipped] = &[
    shipped("web-closed", "web-closed", None, Events::Sched, 60),
    shipped("web-closed-limited", "web-closed", Some("50-of-100"), Events::Sched, 30),
    shipped("web-closed-syscalls", "web-closed", None, Events::Syscalls, 15),
    shipped("web-rate", "web-rate", None, Events::Sched, 60),
    shipped("bursts", "bursts", None, Events::Sched, 60),
    shipped("batch", "batch", None, Events::Sched, 60),
    shipped("batch-limited", "batch", Some("80-of-100"), Events::Sched, 30),
    shipped("pipeline", "pipeline", None, Events::Sched, 150),
];

pub const LIMITS: &[NamedLimit] = &[
    limit("20-of-100", 20_000, 100_000, 0),
    limit("50-of-100", 50_000, 100_000, 0),
    limit("80-of-100", 80_000, 100_000, 0),
    limit("20-of-50", 20_000, 50_000, 0),
    limit("5-of-10", 5_000, 10_000, 0),
    limit("50-of-100-burst-50", 50_000, 100_000, 50_000),
];

impl NamedLimit {
    /// For a person: `50 ms in 100 ms, burst 50 ms`.
    pub fn describe(&self) -> String {
        let ms = |us: u64| us as f64 / 1e3;
        let limit = format!("{} ms in {} ms", ms(self.quota_us), ms(self.period_us));
        match self.burst_us {
            0 => limit,
            burst_us => format!("{limit}, burst {} ms", ms(burst_us)),
        }
    }
}

pub const LOADS: &[Load] = &[
    Load {
        name: "web-closed",
        what: "A server with four connections; each client waits for its answer, thinks 10 ms on \
               average, and asks again. A request costs 3 ms on average, exponentially \
               distributed.",
        inside: &["serve", "--connections", "4"],
        outside: Some(&[
            "closed",
            "--connections",
            "4",
            "--work",
            "exp:3ms",
            "--think",
            "exp:10ms",
        ]),
        amount: ("--requests", 250),
        validated: true,
    },
    Load {
        name: "web-rate",
        what: "The same server; requests come at random times, 125 a second, whether or not \
               answers come. A request costs 2.4 ms on average: 0.3 CPUs.",
        inside: &["serve", "--connections", "4"],
        outside: Some(&["rate", "--connections", "4", "--work", "exp:2.4ms", "--every", "exp:8ms"]),
        amount: ("--requests", 120),
        validated: true,
    },
    Load {
        name: "bursts",
        what: "Two threads that each work 8 to 16 ms every 73 ms: 0.33 CPUs.",
        inside: &["burst", "--threads", "2", "--period", "73ms", "--work", "uniform:8ms..16ms"],
        outside: None,
        amount: ("--count", 55),
        validated: true,
    },
    Load {
        name: "batch",
        what: "Twelve threads that share out work in rounds of 1 to 5 ms each.",
        inside: &["batch", "--threads", "12", "--work", "uniform:1ms..5ms"],
        outside: None,
        amount: ("--rounds", 80),
        validated: false,
    },
    Load {
        name: "pipeline",
        what: "Two groups of three senders and three receivers around pipes, as hackbench; a \
               receiver works 0.1 ms on a message.",
        inside: &["pipeline", "--groups", "2", "--fan", "3", "--work", "100us"],
        outside: None,
        amount: ("--loops", 700),
        validated: false,
    },
];

const fn limit(name: &'static str, quota_us: u64, period_us: u64, burst_us: u64) -> NamedLimit {
    NamedLimit { name, quota_us, period_us, burst_us }
}

const fn shipped(
    name: &'static str,
    load: &'static str,
    limit: Option<&'static str>,
    events: Events,
    scale: u64,
) -> Shipped {
    Shipped { name, load, limit, events, scale }
}
