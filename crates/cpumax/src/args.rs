//! What the command line takes. Help, man pages and completions all come from here.

mod reading;

pub use reading::{Choosing, Costs, Reading};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use cpumax_compare::matrix::Noisy;
use cpumax_engine::given::{Seeds, duration, factor, file_to_put, ratio, run_time, seeds, time};
use std::path::PathBuf;
use std::time::Duration;

/// What stands below the options in the help of a command.
macro_rules! help {
    ($command:literal) => {
        include_str!(concat!("../help/", $command, ".txt")).trim_ascii_end()
    };
}

/// One kernel of each generation and the first of some that differ inside one.
pub const DEFAULT_KERNELS: &str = "4.19,5.4,6.1,6.12,6.18,7.2,7.3";

/// The kernels that the model is held against.
pub const COMPARED_KERNELS: &str = "6.1,6.12,6.17,6.18,6.19,7.0,7.1,7.2,7.3";

/// What will a CPU limit do to my service, on this kernel?
///
/// A deterministic model of the Linux fair class and its CPU bandwidth control (cgroup cpu.max), in
/// every generation from 3.16 to 7.3. It runs scenarios, and recordings of real services, and tells
/// what each kernel would have done: CPU used, periods throttled, latencies, who stalled and for
/// how long.
#[derive(Debug, Parser)]
#[command(name = "cpumax", version, after_help = help!("cpumax"), max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios and check what they must show
    #[command(after_help = help!("run"))]
    Run(RunArgs),
    /// Record a service, or the machine, as replay needs it: by BPF, cheap and safe
    #[command(after_help = help!("record"))]
    Record(crate::command::record::RecordArgs),
    /// Replay a recording of a real service under limits: the what-if table
    #[command(after_help = help!("replay"))]
    Replay(ReplayArgs),
    /// Find the smallest limit that keeps what is asked, and how sure that is
    #[command(after_help = help!("advise"))]
    Advise(Box<crate::command::advise::AdviseArgs>),
    /// Write studies as one HTML file: the answer, plots, the table, what is doubtful
    #[command(after_help = help!("report"))]
    Report(crate::command::report::ReportArgs),
    /// Tell whether what was predicted of a limit came true once it is in force
    #[command(after_help = help!("verify"))]
    Verify(crate::command::verify::VerifyArgs),
    /// Tell what is in a recording: threads, groups, CPU use, what was lost
    Inspect(InspectArgs),
    /// Hold the model against real kernels, or one kernel against another
    #[command(after_help = help!("compare"))]
    Compare(CompareArgs),
    /// Try random scenarios until two worlds differ, and make those small
    #[command(after_help = help!("search"))]
    Search(SearchArgs),
    /// Weigh kernels against each other: use, stalls, latencies, the price of releases
    #[command(after_help = help!("weigh"))]
    Weigh(WeighArgs),
    /// List the built-in scenarios, or print one
    Scenarios {
        /// Print this scenario's file, a start for one of your own, or that of a random case, e.g.
        /// `case-1000340`
        name: Option<String>,
        /// Print a JSON array instead of a table
        #[arg(long, conflicts_with = "name")]
        json: bool,
    },
    /// List the kernels that are modelled and what changed between them
    Kernels {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Real kernels in virtual machines: fetch them, list them, run programs on them
    #[command(subcommand, after_help = help!("lab"))]
    Lab(LabCommand),
    /// Start the scheduler that enforces limits at the return to user mode (root)
    Sched(crate::command::sched::SchedArgs),
    /// Tell what that scheduler did to groups: who is throttled, for how long, what is owed
    Stat(crate::command::stat::StatArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a folder
    #[command(hide = true)]
    Man { folder: PathBuf },
}

/// How to run, whatever is run.
#[derive(Debug, Args)]
pub struct Running {
    /// Kernels to run on: versions, ranges and generations, e.g. 6.1,6.12..7.3,G2a, or all
    /// [default: all; of a recording the one that was recorded, and in replay the newest]
    #[arg(short, long, value_name = "LIST")]
    pub kernel: Option<String>,
    /// Seed of every random choice; the same seed gives the same result to the byte
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON, documented in docs/reference/json.md; - for standard output, without tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Verify every invariant of the model after every event (slow)
    #[arg(long)]
    pub check: bool,
    /// Let interrupts, switches, sleeps and work take microseconds more or fewer, drawn by this
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
    /// As the engine takes it.
    pub fn how(&self) -> cpumax_engine::Running {
        cpumax_engine::Running {
            check: self.check,
            every_tick: self.every_tick,
            noise: self.noise,
            threads: self.jobs.map(usize::from),
        }
    }

    /// The kernels asked for, or those that are run when none are.
    pub fn kernels(&self) -> &str {
        self.kernels_asked().unwrap_or(DEFAULT_KERNELS)
    }

    /// The kernels asked for; `None`: none were.
    pub fn kernels_asked(&self) -> Option<&str> {
        self.kernel.as_deref().map(|list| if list == "all" { DEFAULT_KERNELS } else { list })
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
    /// Where to run: in the model, on real kernels in virtual machines, or on this machine (root).
    /// For virtual machines --kernel is of versions and ranges of those that `cpumax lab list`
    /// shows [default there: 6.1,6.12,6.18,7.2,7.3]
    #[arg(long, value_enum, default_value_t = RunOn::Model)]
    pub on: RunOn,
    /// How time passes in virtual machines [default: exact for one CPU, parallel for more]
    #[arg(long, value_enum)]
    pub mode: Option<VmMode>,
    /// Run with each seed from A to B instead of one
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<Seeds>,
    /// Change a group, e.g. '/limited:50000 100000', /limited:500m or /limited:cpu.weight=50
    #[arg(long, value_name = "GROUP:LIMIT", allow_hyphen_values = true)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub varied: crate::command::run::VaryArgs,
    /// Simulate this long instead, e.g. 10s
    #[arg(long = "for", value_name = "TIME", value_parser = run_time)]
    pub duration: Option<u64>,
    /// Write the events for the Perfetto UI; several runs write one file each, named by kernel
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Draw how long calls took that put throttled tasks back, and what one of them did
    #[arg(long)]
    pub histogram: bool,
}

impl RunArgs {
    /// An option that was given and means nothing but to virtual machines.
    pub fn about_machines(&self) -> Option<&'static str> {
        self.mode.map(|_| "--mode")
    }
}

#[derive(Debug, Args)]
pub struct WeighArgs {
    /// Names of built-in scenarios, scenario files, or recordings [default: all built-in scenarios
    /// but those of 384 CPUs]
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenarios: Vec<String>,
    /// The limit that recordings get, e.g. '50000 100000' or 500m
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    pub set: Option<String>,
    /// Kernels to weigh; the last one is held against another
    #[arg(short, long, value_name = "LIST", default_value = "6.12,6.18,7.2,7.3,pull")]
    pub kernel: String,
    /// The kernel of these that the last one is held against [default: the one before it]
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Seeds to take the mean over [default: 1..3]
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Option<Seeds>,
    /// Simulate this long instead, e.g. 10s
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
    /// On a real kernel in a virtual machine; `cpumax lab list` shows which there are
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
    /// A limit to try: as the kernel takes it ('50000 100000'), or CPUs as Kubernetes (500m, 2),
    /// systemd (50%) or docker (1.5cpus) has them, with a period if need be (500m/10ms), and files
    /// (cpu.max.burst=20000,cpu.weight=50); pod: for the group above; /web:500m,/sidecar:200m
    /// limits both. See docs/reference/limits.md
    #[arg(long, value_name = "[GROUP:]LIMIT", allow_hyphen_values = true)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub running: Running,
    /// Tell how many of a hundred requests take longer than this, e.g. 200ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub over: Option<u64>,
    /// Show each kind of limited thread
    #[arg(long)]
    pub threads: bool,
    /// So many times the traffic: requests come, clients pause and clocks tick so much faster
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub scale_load: Option<f64>,
    /// Put threads against time into the JSON, and who waited for whom: what reports show of runs
    #[arg(long)]
    pub stretches: bool,
    /// Write the table as CSV, a line for each limit on each kernel; - for standard output, without
    /// the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write the recording, with the first limit, as a scenario; runs nothing unless --set is given
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write_scenario: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub reading: Reading,
    /// Threads and groups to list at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print all of it as a JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Get real kernels through apt and keep them in the user's cache
    Fetch(FetchArgs),
    /// Run a program of your own on a real kernel, in a virtual machine
    #[command(after_help = help!("lab-run"))]
    Run(LabRunArgs),
    /// List the real kernels there are, and which of them are here
    List {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Kernels to get, e.g. 6.12 7.3-rt [default: all]
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// Take the newest package of each version, also where one is here already
    #[arg(long)]
    pub newest: bool,
    /// Debian mirror to use instead of the one that this machine's apt uses
    #[arg(long, value_name = "URI", value_hint = ValueHint::Url)]
    pub mirror: Option<String>,
    /// Keys that may sign, instead of those that this machine's apt trusts with Debian
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keyring: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// The kernel, e.g. 6.12-rt; `cpumax lab list` shows which there are
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
    /// One CPU, and time by instructions executed: what it does does not depend on this machine
    #[arg(long, conflicts_with = "cpus")]
    pub exact: bool,
    /// Put a file of this machine into the virtual one; all files can be executed there
    #[arg(long = "file", value_name = "HOST:GUEST", value_parser = file_to_put)]
    pub files: Vec<(PathBuf, String)>,
    /// More for the kernel's command line, e.g. 'preempt=full'
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
    /// Give up when the command takes longer, by the host's time, e.g. 90s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Where a kernel is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorldName {
    /// The model of it
    Model,
    /// The kernel itself, in a virtual machine
    Vm,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Names of built-in scenarios, or scenario files
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenarios: Vec<String>,
    /// Every built-in scenario
    #[arg(long, conflicts_with = "scenarios")]
    pub all: bool,
    /// Also the random cases from A to B, as `cpumax search` numbers them; with --parallel, those
    /// for 2 to 8 CPUs
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub cases: Option<Seeds>,
    /// Kernels, the columns of the matrix: versions and ranges, of real ones those that have been
    /// fetched, e.g. 6.1,6.12..7.3
    #[arg(short, long, value_name = "LIST", default_value = COMPARED_KERNELS)]
    pub kernel: String,
    /// Where these kernels are run
    #[arg(long, value_enum, default_value_t = WorldName::Vm)]
    pub on: WorldName,
    /// Hold each of them against this kernel in the same world, instead of against its own model
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Compare with each seed from A to B instead of one
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<Seeds>,
    /// Several CPUs side by side, and wider tolerances
    #[arg(long)]
    pub parallel: bool,
    /// With --parallel: run each real kernel so many times, some microseconds apart, and compare
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
    /// Compare also the calls that put throttled tasks back, and what all of them did
    #[arg(long)]
    pub releases: bool,
    /// Virtual machines side by side [default: as many as there are CPUs for]
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
    /// How often at most the model is run under microsecond noise, to see how far each number
    /// moves; 0 to 10000
    #[arg(
        long,
        value_name = "N",
        default_value_t = Noisy::MOST,
        value_parser = clap::value_parser!(u32).range(0..=10_000)
    )]
    pub noisy: u32,
    /// Write who ran when in both, as text, and, where they part, both side by side around that
    /// place: two or three files for each comparison. Where the two differ, the model is led along
    /// the kernel's run, microsecond by microsecond
    #[arg(long, value_name = "FOLDER")]
    pub trace: Option<PathBuf>,
    /// Keep each real kernel's run in this folder, and take from it what was run before: a
    /// comparison that was stopped goes on, and a changed model is held against the same runs in a
    /// fraction of the time. What the host's CPUs ran (KVM) is what they did that day: no other run
    /// is like it
    #[arg(long, value_name = "FOLDER")]
    pub runs: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The kernel
    #[arg(short, long)]
    pub kernel: String,
    /// The kernel it is held against; without it, its own model
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Where these kernels are run
    #[arg(long, value_enum, default_value_t = WorldName::Vm)]
    pub on: WorldName,
    /// How many cases
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..1_000_000)
    )]
    pub cases: u64,
    /// Which cases: each seed has its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..1_000_000_000)
    )]
    pub seed: u64,
    /// Only what is off by more than so many times its tolerance
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub beyond: f64,
    /// How many of each kind of disagreement to make small and keep
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub shrink: u64,
    /// Make small and keep only what goes away when all limits are taken off
    #[arg(long)]
    pub limits_only: bool,
    /// Comparisons that may be made to shrink one
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub attempts: u64,
    /// Virtual machines side by side [default: as many as there are CPUs for]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Folder for what is found
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "scenarios/found",
        value_hint = ValueHint::DirPath
    )]
    pub keep: PathBuf,
    /// Note every case here; the same search with the same log goes on where it was. A file with
    /// anything else in it is refused
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
