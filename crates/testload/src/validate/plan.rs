//! What is validated: the loads, and the limits each of them is put under.

use super::run::Events;

/// A load: the program in the group, and the client outside it if it is a server.
#[derive(Debug)]
pub struct Load {
    pub name: &'static str,
    /// Arguments of `testload` in the group; without the seed, speed and number of requests.
    pub inside: &'static [&'static str],
    /// Arguments of `testload` outside the group; without port, seed, speed and number.
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
    shipped(
        "web-closed-limited",
        "web-closed",
        Some("50-of-100"),
        Events::Sched,
        30,
    ),
    shipped(
        "web-closed-syscalls",
        "web-closed",
        None,
        Events::Syscalls,
        20,
    ),
    shipped("web-rate", "web-rate", None, Events::Sched, 60),
    shipped("bursts", "bursts", None, Events::Sched, 60),
    shipped("batch", "batch", None, Events::Sched, 60),
    shipped(
        "batch-limited",
        "batch",
        Some("80-of-100"),
        Events::Sched,
        30,
    ),
    shipped("pipeline", "pipeline", None, Events::Sched, 150),
];

pub const LIMITS: &[NamedLimit] = &[
    limit("30-of-100", 30_000, 100_000, 0),
    limit("50-of-100", 50_000, 100_000, 0),
    limit("80-of-100", 80_000, 100_000, 0),
    limit("20-of-50", 20_000, 50_000, 0),
    limit("5-of-10", 5_000, 10_000, 0),
    limit("50-of-100-burst-50", 50_000, 100_000, 50_000),
];

pub const LOADS: &[Load] = &[
    Load {
        name: "web-closed",
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
        inside: &["serve", "--connections", "4"],
        outside: Some(&[
            "rate",
            "--connections",
            "4",
            "--work",
            "exp:2.4ms",
            "--every",
            "exp:8ms",
        ]),
        amount: ("--requests", 120),
        validated: true,
    },
    Load {
        name: "bursts",
        inside: &[
            "burst",
            "--threads",
            "2",
            "--period",
            "70ms",
            "--work",
            "uniform:8ms..16ms",
        ],
        outside: None,
        amount: ("--count", 55),
        validated: true,
    },
    Load {
        name: "batch",
        inside: &["batch", "--threads", "12", "--work", "uniform:1ms..5ms"],
        outside: None,
        amount: ("--rounds", 80),
        validated: false,
    },
    Load {
        name: "pipeline",
        inside: &["pipeline", "--groups", "2", "--fan", "3", "--work", "100us"],
        outside: None,
        amount: ("--loops", 700),
        validated: false,
    },
];

const fn limit(name: &'static str, quota_us: u64, period_us: u64, burst_us: u64) -> NamedLimit {
    NamedLimit {
        name,
        quota_us,
        period_us,
        burst_us,
    }
}

const fn shipped(
    name: &'static str,
    load: &'static str,
    limit: Option<&'static str>,
    events: Events,
    scale: u64,
) -> Shipped {
    Shipped {
        name,
        load,
        limit,
        events,
        scale,
    }
}
