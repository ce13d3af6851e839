//! How a recording is read and understood.

use clap::{Args, ValueHint};
use cpumax_engine::given::{event_cost, factor, hz, selector, time, work_range};
use cpumax_engine::predict::WorkRange;
use cpumax_recording::{Clients, EventCost, Options, Selector};
use cpumax_workload::CpuSet;
use std::path::PathBuf;
use std::str::FromStr;

/// Over the options that say how a recording is read.
const READING: &str = "Options for reading the recording";

/// How a recording is read.
#[derive(Debug, Args)]
pub struct Reading {
    /// perf.data, trace.dat, a Perfetto trace, or text of `perf script`, `trace-cmd report` or
    /// ftrace (- for standard input)
    #[arg(value_name = "RECORDING", value_hint = ValueHint::FilePath)]
    pub recording: PathBuf,
    #[command(flatten)]
    pub costs: Costs,
}

/// What the recording itself cost.
#[derive(Debug, Args)]
pub struct Costs {
    /// What recording one event cost the recorded thread, e.g. 400ns; taken off its CPU time
    /// [default: as the times between events tell]
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = event_cost)]
    pub event_cost: Option<u32>,
    /// What recording each entry into and exit from a system call cost, e.g. 400ns
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = event_cost)]
    pub syscall_cost: Option<u32>,
}

impl Costs {
    /// As the importer takes it.
    pub fn options(&self) -> Options {
        let told = self.syscall_cost.is_some() || self.event_cost.is_some();
        let event_cost = told.then(|| EventCost {
            syscall_ns: self.syscall_cost.unwrap_or(0),
            other_ns: self.event_cost.unwrap_or(0),
        });
        Options { event_cost }
    }
}

/// Which threads of a recording are limited, and how it is understood.
#[derive(Debug, Args)]
pub struct Choosing {
    /// The threads to limit: name, control group, pid:N, comm:NAME or cgroup:PATH, with * and ?
    /// [default: the control group that used most CPU time]
    #[arg(short, long, value_name = "PATTERN", value_parser = selector)]
    pub group: Vec<Selector>,
    /// How clients ask: closed (each waits for an answer before it asks again), open (by a plan),
    /// or how many closed ones there are, where they connect anew each time or their connections
    /// are not recorded [default: as the recording tells]
    #[arg(long, help_heading = READING, value_name = "closed|open|N")]
    #[arg(value_parser = Clients::from_str)]
    pub clients: Option<Clients>,
    /// Threads that act on a clock, whatever happened before: they do not wait for the service
    #[arg(long, help_heading = READING, value_name = "PATTERN", value_parser = selector)]
    pub open_loop: Vec<Selector>,
    /// Threads that pause for a length of time: they slow down with the service
    #[arg(long, help_heading = READING, value_name = "PATTERN", value_parser = selector)]
    pub closed_loop: Vec<Selector>,
    /// Threads that leave out what they are late for, where they follow a clock; others do it late
    #[arg(long, help_heading = READING, value_name = "PATTERN", value_parser = selector)]
    pub skip_late: Vec<Selector>,
    /// The CPUs that the limited threads may use, e.g. 0-3,8 [default: as the recording shows]
    #[arg(long, help_heading = READING, value_name = "CPUS", value_parser = CpuSet::from_str)]
    pub pin: Option<CpuSet>,
    /// Ticks in a second of the kernel: 100, 250, 300 or 1000 [default: as the recording tells, or
    /// 250]
    #[arg(long, help_heading = READING, value_name = "N", value_parser = hz)]
    pub hz: Option<u32>,
    /// CPUs of the machine [default: those of the recorded one]
    #[arg(long, help_heading = READING, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub cpus: Option<u16>,
    /// When the load began, since the start of the recording [default: as its threads' activity
    /// tells]
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = time)]
    pub from: Option<u64>,
    /// When it ended
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = time)]
    pub to: Option<u64>,
    /// The limited threads' work costs so many times the CPU time that was recorded, what the
    /// recording itself took included
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub scale_work: Option<f64>,
    /// How much less or more it may cost on another day
    #[arg(long, value_name = "LOW..HIGH", value_parser = work_range, default_value = "0.9..1.2")]
    pub work_range: WorkRange,
}
