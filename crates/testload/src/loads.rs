//! Loads of known work, and their clients.

pub mod run;

use anyhow::{Context as _, Result};

/// A load: the program in the group, and, if it is a server, the client outside.
#[derive(Debug)]
pub struct Load {
    pub name: &'static str,
    /// Arguments of `testload` in the group, without seed and amount.
    pub inside: &'static [&'static str],
    /// Arguments of `testload` outside the group, without port, seed and amount.
    pub outside: Option<&'static [&'static str]>,
    /// Option for the number of completions of each thread, and that number at scale 100.
    pub amount: (&'static str, u64),
}

impl Load {
    pub fn find(name: &str) -> Result<&'static Load> {
        LOADS.iter().find(|load| load.name == name).context("no such load")
    }
}

const LOADS: &[Load] = &[
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
    },
    Load {
        name: "web-rate",
        inside: &["serve", "--connections", "4"],
        outside: Some(&["rate", "--connections", "4", "--work", "exp:2.4ms", "--every", "exp:8ms"]),
        amount: ("--requests", 120),
    },
    Load {
        name: "bursts",
        inside: &["burst", "--threads", "2", "--period", "73ms", "--work", "uniform:8ms..16ms"],
        outside: None,
        amount: ("--count", 55),
    },
    Load {
        name: "batch",
        inside: &["batch", "--threads", "12", "--work", "uniform:1ms..5ms"],
        outside: None,
        amount: ("--rounds", 80),
    },
    Load {
        name: "pipeline",
        inside: &["pipeline", "--groups", "2", "--fan", "3", "--work", "100us"],
        outside: None,
        amount: ("--loops", 700),
    },
];
