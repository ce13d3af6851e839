//! `cpumax record`: records by BPF while a command runs or for a given time.

use crate::failure::Failure;
use crate::interrupt::{self, Watched};
use crate::output;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args, ValueHint, value_parser};
use cpumax_recorder::{Progress, Request, Target, describe_end, parse_size};
use cpumax_report::escape;
use cpumax_study::given::{duration, share};
use indicatif::ProgressBar;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whose").required(true)))]
pub struct RecordArgs {
    /// Record the threads of this control group and of those below it
    #[arg(long, value_name = "PATH", group = "whose")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub cgroup: Option<String>,
    /// Record the threads of this Kubernetes pod of this node: UID, namespace/name, or a
    /// container's id
    #[arg(long, value_name = "POD", group = "whose")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub pod: Option<String>,
    /// Record the threads of this process and of its descendants
    #[arg(long, value_name = "N", group = "whose", value_parser = value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Record the whole machine
    #[arg(long, group = "whose")]
    pub all: bool,
    /// Record this command and its descendants, until it ends
    #[arg(last = true, value_name = "COMMAND", group = "whose")]
    pub command: Vec<OsString>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(default_value = "recording.cpumax")]
    pub output: PathBuf,
    /// Stop after this time [default: when interrupted, or when the command ends]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// Stop when the file has this size, e.g. 100M
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Stop when recording takes more than this share of the machine's CPU time, e.g. 1%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub budget: Option<f64>,
    /// Record system calls too
    #[arg(long)]
    pub calls: bool,
    /// Buffer for events of all CPUs; events that find it full are lost
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "64M")]
    pub buffer: u64,
}

pub fn record(args: RecordArgs, words: &[OsString]) -> Result<(), Failure> {
    let what = match (args.cgroup, args.pid) {
        (Some(path), _) => Target::Group(path),
        (_, Some(pid)) => Target::Process(pid),
        _ if args.pod.is_some() => Target::Pod(args.pod.unwrap_or_default()),
        _ if args.all => Target::All,
        _ => Target::Command(args.command),
    };
    let words = words.iter().map(|word| word.to_string_lossy());
    let request = Request {
        time: args.time,
        size: args.size,
        budget: args.budget.map(|percent| percent / 100.0),
        calls: args.calls,
        memory: args.buffer as usize,
        command_line: words.collect::<Vec<_>>().join(" "),
        ..Request::new(what, args.output)
    };
    let bar = ProgressBar::new_spinner();
    let _watched = Watched::begin();
    let done = cpumax_recorder::record(&request, &mut |progress: &Progress| {
        bar.set_message(progress.to_string());
        bar.tick();
        !interrupt::requested()
    });
    bar.finish_and_clear();
    let done = done?;
    output::eprint_line(format_args!("{}", escape::lines(&describe_end(&request, &done))));
    match done.status() {
        0 => Ok(()),
        status => Err(Failure::Status(status)),
    }
}
