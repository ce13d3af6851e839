//! Definition of the command line: help, man pages and completions come from here.

mod reading;

pub use reading::{Choosing, Costs, Reading};

use crate::worlds::WorldName;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use cpumax_compare::Noisy;
use cpumax_lab::catalog::{self, Set};
use cpumax_study::given::{Seeds, duration, factor, file_to_put, ratio, run_time, seeds, time};
use std::path::PathBuf;
use std::time::Duration;

/// Text below the options in the help of a command, from `help/`.
macro_rules! help {
    ($command:literal) => {
        include_str!(concat!("../help/", $command, ".txt")).trim_ascii_end()
    };
}

/// What will a CPU limit do to my service, on this kernel?
///
/// A deterministic model of the Linux fair class and its CPU bandwidth control (cgroup cpu.max), in
/// every generation from 3.16 to 7.3. It runs scenarios and recordings of real services, and shows
/// what each kernel does with them: CPU used, periods throttled, latencies, and which threads
/// stalled for how long.
#[derive(Debug, Parser)]
#[command(name = "cpumax", version, after_help = help!("cpumax"), max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios on kernels, and check the results they expect
    #[command(after_help = help!("run"))]
    Run(RunArgs),
    /// Record a service or the machine for replay, by BPF (root)
    #[command(after_help = help!("record"))]
    Record(crate::command::record::RecordArgs),
    /// Show what CPU limits would do to a recorded service
    #[command(after_help = help!("replay"))]
    Replay(ReplayArgs),
    /// Find the smallest limit that meets a goal, such as p99 below 50 ms
    #[command(after_help = help!("advise"))]
    Advise(Box<crate::command::advise::AdviseArgs>),
    /// Write a recording or saved results as one HTML page: answer, plots, tables, doubts
    #[command(after_help = help!("report"))]
    Report(crate::command::report::ReportArgs),
    /// Check a prediction against the counters of a group whose limit is in force
    #[command(after_help = help!("verify"))]
    Verify(crate::command::verify::VerifyArgs),
    /// Show what a recording contains: threads, groups, CPU use, lost events
    Inspect(InspectArgs),
    /// Compare the model with real kernels, or one kernel with another
    #[command(after_help = help!("compare"))]
    Compare(CompareArgs),
    /// Search for random scenarios on which kernel and model differ, and shrink them
    #[command(after_help = help!("search"))]
    Search(SearchArgs),
    /// Compare what kernels give and cost: CPU use, stalls, latencies, cost of releases
    #[command(after_help = help!("weigh"))]
    Weigh(WeighArgs),
    /// List the built-in scenarios, or print one
    Scenarios {
        /// Print the file of this scenario, to start your own from, or of a random case, e.g.
        /// `case-1000340`
        name: Option<String>,
        /// Print a JSON array instead of a table
        #[arg(long, conflicts_with = "name")]
        json: bool,
    },
    /// List the kernels that are modelled and what changed between them
    Kernels(crate::command::kernels::KernelsArgs),
    /// Real kernels in virtual machines: fetch them, list them, run programs on them
    #[command(subcommand, after_help = help!("lab"))]
    Lab(LabCommand),
    /// Start the scheduler that enforces limits at the return to user mode (root)
    Sched(crate::command::sched::SchedArgs),
    /// Show the groups of that scheduler: throttled or not, for how long, their debt
    Stat(crate::command::stat::StatArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a folder
    #[command(hide = true)]
    Man { folder: PathBuf },
}

/// Options that all commands with runs share.
#[derive(Debug, Args)]
pub struct Running {
    /// Kernels to run on: versions, ranges, generations or all, e.g. 6.1,6.12..7.3,G2a [default:
    /// all; for a recording its own kernel, and in replay the newest too]
    #[arg(short, long, value_name = "LIST")]
    pub kernel: Option<String>,
    /// Seed of all random numbers; the same seed gives the same result to the byte
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON, documented in docs/reference/json.md; - for standard output,
    /// without tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Check the model's invariants after every event (slow)
    #[arg(long)]
    pub check: bool,
    /// Vary the cost of interrupts, switches, sleeps and work by microseconds, at random by this
    /// seed
    #[arg(long, value_name = "N")]
    pub noise: Option<u64>,
    /// Threads to use; results do not depend on it [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Step through ticks that change nothing (slow, same results)
    #[arg(long, hide = true)]
    pub every_tick: bool,
}

impl Running {
    /// The options in the form of the library.
    pub fn how(&self) -> cpumax_study::Running {
        cpumax_study::Running {
            check: self.check,
            every_tick: self.every_tick,
            noise: self.noise,
            threads: self.jobs.map(usize::from),
        }
    }

    /// The list of kernels, if one was given.
    pub fn kernels_asked(&self) -> Option<String> {
        self.kernel.clone().map(|list| if list == "all" { catalog::modelled() } else { list })
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Names of built-in scenarios, or scenario files
    #[arg(
        required_unless_present = "all",
        value_name = "SCENARIO",
        value_hint = ValueHint::FilePath
    )]
    pub scenarios: Vec<String>,
    /// Run every built-in scenario
    #[arg(long, conflicts_with = "scenarios")]
    pub all: bool,
    #[command(flatten)]
    pub running: Running,
    #[arg(long, value_enum, default_value_t = RunOn::Model, help = format!(
        "Where to run: in the model, on real kernels in virtual machines, or on this machine \
         (root). In virtual machines --kernel takes kernels that `cpumax lab list` shows [default \
         there: {}]",
        catalog::list(Set::Run)
    ))]
    pub on: RunOn,
    /// How time passes in virtual machines [default: exact for one CPU, parallel for more]
    #[arg(long, value_enum)]
    pub mode: Option<VmMode>,
    /// Run with each seed from A to B instead of one
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<Seeds>,
    /// Change a group's limit or weight, e.g. '/limited:50000 100000', /limited:500m or
    /// /limited:cpu.weight=50
    #[arg(long, value_name = "GROUP:LIMIT", allow_hyphen_values = true)]
    pub set: Vec<String>,
    /// Give a rule of the model another value on all kernels, e.g. release=Sync, to see what it
    /// does; `cpumax kernels --diff 6.1 6.18` shows rules and values
    #[arg(long, value_name = "NAME=VALUE")]
    pub rule: Vec<String>,
    #[command(flatten)]
    pub varied: crate::command::run::VaryArgs,
    /// Length of the run instead of the scenario's own, e.g. 10s
    #[arg(long = "for", value_name = "TIME", value_parser = run_time)]
    pub duration: Option<u64>,
    /// Write the events as a trace for the Perfetto UI; several runs write one file each, named by
    /// kernel
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Show a histogram of the kernel calls that release throttled tasks: lengths, and work of one
    /// call
    #[arg(long)]
    pub histogram: bool,
}

impl RunArgs {
    /// An option that only virtual machines have, if it was given.
    pub fn about_machines(&self) -> Option<&'static str> {
        self.mode.map(|_| "--mode")
    }
}

#[derive(Debug, Args)]
pub struct WeighArgs {
    /// Names of built-in scenarios, scenario files, or recordings [default: all built-in scenarios
    /// except those with 384 CPUs]
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenarios: Vec<String>,
    /// The limit that recordings get, e.g. '50000 100000' or 500m
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    pub set: Option<String>,
    /// Kernels to show; the last one is compared with another
    #[arg(short, long, value_name = "LIST", default_value_t = catalog::list(Set::Weigh) + ",pull")]
    pub kernel: String,
    /// The kernel in this list to compare the last one with [default: the one before it]
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Seeds to take the mean over [default: 1..3]
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Option<Seeds>,
    /// Length of the run instead of the scenario's own, e.g. 10s
    #[arg(long = "for", value_name = "TIME", value_parser = run_time)]
    pub duration: Option<u64>,
    /// Threads to use; results do not depend on it [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Write the weights as JSON; - for standard output, without the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Where scenarios are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunOn {
    /// In the model
    Model,
    /// On a real kernel in a virtual machine; `cpumax lab list` shows the kernels
    Vm,
    /// On this machine, with real processes in groups of their own
    Host,
}

/// How time passes in a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VmMode {
    /// By instructions executed, on one CPU: the same result to the byte in every run
    Exact,
    /// With as many CPUs as the scenario has: by the host's clock where its own CPUs can run them
    /// (KVM), else emulated, by instructions executed, in turns of 2 us: the same result to the
    /// byte in every run
    Parallel,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub choosing: Choosing,
    /// A limit to try, one --set for each: quota and period in us ('50000 100000'), or CPUs as in
    /// Kubernetes (500m, 2), systemd (50%) or docker (1.5cpus), optionally with a period
    /// (500m/10ms), or files (cpu.max.burst=20000,cpu.weight=50). pod: limits the group above;
    /// /web:500m,/sidecar:200m limits both. See docs/reference/limits.md
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub running: Running,
    /// Show the percentage of requests that take longer than this, e.g. 200ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub over: Option<u64>,
    /// Show a row for each kind of limited thread
    #[arg(long)]
    pub threads: bool,
    /// Traffic as a multiple of the recorded: requests come that much faster, pauses and clocks are
    /// shorter
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub scale_load: Option<f64>,
    /// Add to the JSON which thread ran when and waited for which, as reports show it
    #[arg(long)]
    pub stretches: bool,
    /// Write the table as CSV, one line per limit and kernel; - for standard output, without the
    /// table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write the recording, with the first --set, as a scenario file; runs nothing without --set
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write_scenario: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub reading: Reading,
    /// Most threads and groups to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print everything as a JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Fetch real kernels through apt into the user's cache
    Fetch(FetchArgs),
    /// Run a program of your own on a real kernel, in a virtual machine
    #[command(after_help = help!("lab-run"))]
    Run(LabRunArgs),
    /// List the real kernels, and which of them have been fetched
    List {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Kernels to fetch, e.g. 6.12 7.3-rt [default: all]
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// Fetch the newest package of each version, even if one is there already
    #[arg(long)]
    pub newest: bool,
    /// Debian mirror to use instead of the one that this machine's apt uses
    #[arg(long, value_name = "URI", value_hint = ValueHint::Url)]
    pub mirror: Option<String>,
    /// Keyring to verify Debian's signatures with, instead of that of this machine's apt
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keyring: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// The kernel, e.g. 6.12-rt; `cpumax lab list` shows all
    #[arg(value_name = "KERNEL")]
    pub kernel: String,
    /// CPUs of the machine
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=255)
    )]
    pub cpus: u16,
    /// One CPU whose time is the number of executed instructions: the run does not depend on this
    /// machine
    #[arg(long, conflicts_with = "cpus")]
    pub exact: bool,
    /// Copy a file of this machine into the virtual one; all files are executable there
    #[arg(long = "file", value_name = "HOST:GUEST", value_parser = file_to_put)]
    pub files: Vec<(PathBuf, String)>,
    /// More arguments for the kernel command line, e.g. 'preempt=full'
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub append: String,
    /// Memory, MiB [default: 256, and more for many CPUs or large files]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    pub memory: Option<u32>,
    /// Time limit of the command, by the host's clock, e.g. 90s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Names of built-in scenarios, or scenario files
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenarios: Vec<String>,
    /// Every built-in scenario
    #[arg(long, conflicts_with = "scenarios")]
    pub all: bool,
    /// Compare also the random cases with the numbers A to B of `cpumax search`; with --parallel,
    /// those for 2 to 8 CPUs
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub cases: Option<Seeds>,
    /// Kernels, the columns of the matrix: versions and ranges, e.g. 6.1,6.12..7.3; real ones must
    /// have been fetched
    #[arg(short, long, value_name = "LIST", default_value_t = catalog::list(Set::Compare))]
    pub kernel: String,
    /// Where these kernels run
    #[arg(long, value_enum, default_value_t = WorldName::Vm)]
    pub on: WorldName,
    /// Compare each of them with this kernel in the same world, instead of with its own model
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Compare with each seed from A to B instead of one
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<Seeds>,
    /// Use several CPUs, with wider tolerances
    #[arg(long)]
    pub parallel: bool,
    /// With --parallel: run each real kernel N times, starts some microseconds apart, and compare
    /// the median of each number; 1 to 99
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "parallel",
        conflicts_with = "trace",
        value_parser = clap::value_parser!(u16).range(1..=99)
    )]
    pub median: u16,
    /// Compare also the kernel calls that release throttled tasks, and their work
    #[arg(long)]
    pub releases: bool,
    /// Virtual machines at a time [default: as many as there are CPUs for]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Write every comparison as JSON; - for standard output, without the matrix
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the matrix as a picture, without random cases that agree everywhere
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Write the matrix as a document in Markdown, with the kernels and the date
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub markdown: Option<PathBuf>,
    /// Most runs of the model with microsecond noise, which show how far each number moves; 0 to
    /// 10000
    #[arg(
        long,
        value_name = "N",
        default_value_t = Noisy::MOST,
        value_parser = clap::value_parser!(u32).range(0..=10_000)
    )]
    pub noisy: u32,
    /// Write which task ran when in both, as text, and both side by side around the point where
    /// they part: two or three files for each comparison. There the model follows the kernel's run
    /// to the microsecond as far as it can
    #[arg(long, value_name = "FOLDER")]
    pub trace: Option<PathBuf>,
    /// Keep each run of a real kernel in this folder, and take runs from there: an interrupted
    /// comparison continues, and a changed model is compared with the same runs in a fraction of
    /// the time. Runs with KVM differ each time; the kept one is the first
    #[arg(long, value_name = "FOLDER")]
    pub runs: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The kernel
    #[arg(short, long)]
    pub kernel: String,
    /// The kernel to compare with [default: its own model]
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Where these kernels run
    #[arg(long, value_enum, default_value_t = WorldName::Vm)]
    pub on: WorldName,
    /// Number of cases
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..1_000_000)
    )]
    pub cases: u64,
    /// Selects the cases: each seed has its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..1_000_000_000)
    )]
    pub seed: u64,
    /// Report only numbers that are off by more than this multiple of their tolerance
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub beyond: f64,
    /// Cases to shrink and keep, of each kind of disagreement
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub shrink: u64,
    /// Shrink and keep only cases that agree when all limits are removed
    #[arg(long)]
    pub limits_only: bool,
    /// Most comparisons to shrink one case
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub attempts: u64,
    /// Virtual machines at a time [default: as many as there are CPUs for]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Folder for the found scenarios
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "scenarios/found",
        value_hint = ValueHint::DirPath
    )]
    pub keep: PathBuf,
    /// Log every case to this file; the same search with the same log continues where it stopped. A
    /// file with other content is refused
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
