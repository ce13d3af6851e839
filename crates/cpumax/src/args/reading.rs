//! How a recording is read and understood.

use clap::{Args, ValueHint};
use cpumax_forecast::predict::WorkRange;
use cpumax_recording::{Clients, EventCost, Options, Selector};
use cpumax_study::given::{event_cost, factor, hz, selector, time};
use cpumax_workload::CpuSet;
use std::path::PathBuf;
use std::str::FromStr;

/// Heading of the options that say how a recording is read.
const READING: &str = "Options for reading the recording";

/// A recording and how it is read.
#[derive(Debug, Args)]
pub struct Reading {
    /// perf.data, trace.dat, a Perfetto trace, or text of `perf script`, `trace-cmd report` or
    /// ftrace (- for standard input)
    #[arg(value_name = "RECORDING", value_hint = ValueHint::FilePath)]
    pub recording: PathBuf,
    #[command(flatten)]
    pub costs: Costs,
}

/// Cost of the recording itself.
#[derive(Debug, Args)]
pub struct Costs {
    /// CPU time that recording an event cost the thread, e.g. 400ns; it is subtracted [default:
    /// estimated from times between events]
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = event_cost)]
    pub event_cost: Option<u32>,
    /// CPU time that recording the entry or exit of a system call cost, e.g. 400ns
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = event_cost)]
    pub syscall_cost: Option<u32>,
}

impl Costs {
    /// The costs in the form of the importer; `None` inside: to be estimated.
    pub fn options(&self) -> Options {
        let told = self.syscall_cost.is_some() || self.event_cost.is_some();
        let event_cost = told.then(|| EventCost {
            syscall_ns: self.syscall_cost.unwrap_or(0),
            other_ns: self.event_cost.unwrap_or(0),
        });
        Options { event_cost }
    }
}

/// Threads to limit, and how a recording is understood.
#[derive(Debug, Args)]
pub struct Choosing {
    /// The threads to limit: thread name, control group, pid:N, comm:NAME or cgroup:PATH, with *
    /// and ? [default: the control group that used most CPU time]
    #[arg(short, long, value_name = "PATTERN", value_parser = selector)]
    pub group: Vec<Selector>,
    /// How clients send requests: closed (each waits for its answer first), open (at given times),
    /// or the number of closed clients, if they reconnect each time or their connections are not
    /// recorded [default: as the recording shows]
    #[arg(long, help_heading = READING, value_name = "closed|open|N")]
    #[arg(value_parser = Clients::from_str)]
    pub clients: Option<Clients>,
    /// Threads that act at given times and do not wait for the service
    #[arg(long, help_heading = READING, value_name = "PATTERN", value_parser = selector)]
    pub open_loop: Vec<Selector>,
    /// Threads that pause for a given time after each answer, and so slow down with the service
    #[arg(long, help_heading = READING, value_name = "PATTERN", value_parser = selector)]
    pub closed_loop: Vec<Selector>,
    /// Threads with a clock that skip activations for which they are late; others catch up
    #[arg(long, help_heading = READING, value_name = "PATTERN", value_parser = selector)]
    pub skip_late: Vec<Selector>,
    /// The CPUs that the limited threads may use, e.g. 0-3,8 [default: as the recording shows]
    #[arg(long, help_heading = READING, value_name = "CPUS", value_parser = CpuSet::from_str)]
    pub pin: Option<CpuSet>,
    /// Kernel ticks per second: 100, 250, 300 or 1000 [default: as the recording shows, or 250]
    #[arg(long, help_heading = READING, value_name = "N", value_parser = hz)]
    pub hz: Option<u32>,
    /// CPUs of the machine [default: those of the recorded one]
    #[arg(long, help_heading = READING, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub cpus: Option<u16>,
    /// Begin of the load, from the start of the recording [default: as the threads' activity shows]
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = time)]
    pub from: Option<u64>,
    /// End of the load, from the start of the recording
    #[arg(long, help_heading = READING, value_name = "TIME", value_parser = time)]
    pub to: Option<u64>,
    /// CPU time of the limited threads' work as a multiple of the recorded, cost of the recording
    /// included
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub scale_work: Option<f64>,
    /// Range of that factor on other days; it widens the ranges of the results
    #[arg(
        long,
        value_name = "LOW..HIGH",
        value_parser = WorkRange::parse,
        default_value = "0.9..1.2"
    )]
    pub work_range: WorkRange,
}
