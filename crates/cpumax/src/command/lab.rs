//! `cpumax lab`: fetches and lists real kernels, and runs programs on them.

use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use clap::{Args, Subcommand, ValueHint};
use cpumax_lab::apt::Source;
use cpumax_lab::cache::Cache;
use cpumax_lab::catalog::{self, Entry};
use cpumax_lab::fetch::{self, Step};
use cpumax_lab::{Command, Lab, Mode, Watch};
use cpumax_study::given::{duration, file_to_put};
use cpumax_study::kernels;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

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

pub fn lab(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Fetch(args) => fetch(args),
        LabCommand::Run(args) => run(args),
        LabCommand::List { json } => list(*json),
    }
}

fn fetch(args: &FetchArgs) -> Result<(), Failure> {
    let entries: Vec<&'static Entry> = match args.kernels.as_slice() {
        [] => catalog::all().iter().collect(),
        names => names.iter().map(|name| catalog::find(name)).collect::<Result<_, _>>()?,
    };
    let source = Source { mirror: args.mirror.clone(), keyring: args.keyring.clone() };
    let mut tell = |step: Step<'_>| match step {
        // A missing reader does not end the fetch.
        Step::Here(..) => drop(writeln!(output::stdout(), "{step}")),
        _ => output::eprint_line(format_args!("{step}")),
    };
    let cache = Cache::of_user()?;
    let _watched = interrupt::Watched::begin();
    match fetch::fetch(&cache, &source, &entries, args.newest, &Keyboard, &mut tell) {
        Err(cpumax_lab::Error::Interrupted) => Err(Failure::Interrupted),
        result => Ok(result?),
    }
}

fn run(args: &LabRunArgs) -> Result<(), Failure> {
    let lab = Lab::open()?;
    let parallel = Mode::Parallel { cpus: args.cpus };
    let mode = if args.exact { Mode::Exact } else { parallel };
    let command = Command {
        kernel: args.kernel.clone(),
        mode,
        words: args.command.clone(),
        files: args.files.clone(),
        kernel_arguments: args.append.clone(),
        memory_mib: args.memory,
        patience: args.timeout,
    };
    let _watched = interrupt::Watched::begin();
    let written = |is_error: bool, bytes: &[u8]| {
        // A missing reader does not end the command.
        let _ = if is_error {
            io::stderr().write_all(bytes)
        } else {
            let mut out = output::raw_stdout();
            out.write_all(bytes).and_then(|()| out.flush())
        };
    };
    match lab.run_command(&command, &Keyboard, written) {
        Ok(0) => Ok(()),
        Ok(status) => Err(Failure::Status(status)),
        Err(cpumax_lab::Error::Interrupted) => Err(Failure::Interrupted),
        Err(error) if error.is_timeout() => {
            output::report(&Failure::from(error));
            Err(Failure::Status(TIMED_OUT))
        }
        Err(error) => Err(error.into()),
    }
}

/// Exit status after a timeout, as that of timeout(1).
const TIMED_OUT: u8 = 124;

/// Ctrl-C stops the machine.
struct Keyboard;

impl Watch for Keyboard {
    fn stopped(&self) -> bool {
        interrupt::requested()
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let kernels = kernels::real().map_err(Failure::of)?;
    if json {
        return output::print_json(&kernels);
    }
    output::print(&cpumax_report::real_kernels(&kernels, output::page()))
}
