//! `cpumax lab`: fetches and lists real kernels, and runs programs on them.

use crate::args::{FetchArgs, LabCommand, LabRunArgs};
use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use cpumax_lab::apt::Source;
use cpumax_lab::cache::{Cache, Kernel};
use cpumax_lab::catalog::{self, Entry};
use cpumax_lab::fetch::{self, Step};
use cpumax_lab::{Command, Lab, Mode, Watch};
use cpumax_study::kernels;
use std::io::{self, Write};

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
        Step::Lists(suites) => {
            output::eprint_line(format_args!("reading the lists of {}", suites.join(", ")));
        }
        Step::Fetch(entry, release, bytes) => {
            let mib = bytes.div_ceil(1 << 20);
            output::eprint_line(format_args!(
                "fetching {} linux-image-{release} ({mib} MiB)",
                entry.name
            ));
        }
        Step::Here(kernel, before) => {
            let Kernel { name, origin, .. } = kernel;
            let before = if before { ", was here" } else { "" };
            // A missing reader does not end the fetch.
            let _ = writeln!(
                output::stdout(),
                "{name} {} {}{before}",
                origin.release,
                origin.package_version
            );
        }
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
