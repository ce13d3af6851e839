// SPDX-License-Identifier: GPL-2.0-only
//! `scx_cpumax`: a `sched_ext` scheduler that enforces `cpu.max` where tasks return to user mode.
//!
//! It runs until it is interrupted. Then, or if it dies, the kernel returns to the fair class.

mod answer;
mod escape;
mod refusal;
mod scheduler;
mod shared;
mod socket;
mod stats;
mod topology;

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;

use answer::{GroupStat, Request};
use escape::{lines, one_line};
use scheduler::{Ending, Options, Scheduler};
use socket::Server;

/// Default path of the socket.
const SOCKET: &str = "/run/scx_cpumax.sock";

const HELP_STATS: &str = "\
parked    tasks that wait at the boundary to user mode for runtime
thr/per   periods in which the group was throttled, of all periods
thr_ms    time throttled, summed over CPUs, as in cpu.stat
debt_us   runtime used beyond the quota and not yet paid back
over_us   run in kernel mode while throttled: locks held, system calls finished
parks     times a task was parked
passes    times a parked task was let through for the kernel's watchdog
`cpumax stat` shows all of them, in the form of cpu.stat, as JSON and as OpenMetrics.";

/// Schedules the machine and enforces cpu.max where tasks return to user mode.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Args {
    /// Longest turn of a task, in microseconds.
    #[arg(
        long,
        value_name = "US",
        default_value_t = 5000,
        value_parser = clap::value_parser!(u64).range(100..=100_000)
    )]
    slice_us: u64,
    /// Most cgroups; mkdir of a further one fails.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 65536,
        value_parser = clap::value_parser!(u32).range(16..=1_000_000)
    )]
    max_groups: u32,
    /// Most tasks in groups with limits; further ones are parked wherever they are queued. Twice
    /// /proc/sys/kernel/threads-max if not given.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=4_194_304)
    )]
    max_tasks: Option<u32>,
    /// Park throttled tasks wherever they are queued, even with locks held; for comparison only.
    #[arg(long)]
    park_at_enqueue: bool,
    /// Socket for statistics.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Print statistics every so many seconds while scheduling.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stats: Option<u64>,
    /// Print the statistics of a running scheduler every so many seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        conflicts_with = "stats",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    monitor: Option<u64>,
    /// Explain the statistics.
    #[arg(long)]
    help_stats: bool,
    /// Leave out cures, as a bit mask; tests show with it what each cures.
    #[arg(long, hide = true, default_value_t = 0)]
    without: u32,
    /// Hold the windows of races open, as a bit mask; for tests.
    #[arg(long, hide = true, default_value_t = 0)]
    stretched: u32,
    /// Print libbpf's messages.
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scx_cpumax: {}", lines(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if args.help_stats {
        println!("{HELP_STATS}");
        return Ok(());
    }
    if let Some(seconds) = args.monitor {
        loop {
            print_stats(&answer::ask(&args.socket, &Request::default())?);
            thread::sleep(Duration::from_secs(seconds));
        }
    }
    let options = Options {
        slice_ns: args.slice_us * 1000,
        groups_max: args.max_groups,
        tasks_max: args.max_tasks,
        park_at_enqueue: args.park_at_enqueue,
        without: args.without,
        stretched: args.stretched,
        verbose: args.verbose,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
        .context("signals cannot be handled")?;
    let mut server = None;
    loop {
        let mut storage = MaybeUninit::uninit();
        let mut scheduler = Scheduler::load(&options, &mut storage)?;
        let server = match &mut server {
            Some(server) => server,
            none => none.insert(Server::listen(&args.socket)?),
        };
        if scheduler.ending() == Ending::StillRunning {
            eprintln!("scx_cpumax: in charge");
        }
        let ending = watch(&scheduler, &stop, server, args.stats.map(Duration::from_secs));
        scheduler.detach();
        match ending {
            Ending::StillRunning | Ending::Detached => return Ok(()),
            Ending::Restart(reason) => {
                eprintln!("scx_cpumax: {}; loading again", one_line(&reason));
            }
            Ending::Ejected(reason) => {
                eprintln!("{}", lines(&scheduler.dump()));
                anyhow::bail!("the kernel ended the scheduler: {}", one_line(&reason))
            }
        }
    }
}

/// Sets a flag when it is dropped, also in a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Watches the scheduler until it ends, while a thread serves the socket.
fn watch(
    scheduler: &Scheduler<'_>,
    stop: &AtomicBool,
    server: &mut Server,
    every: Option<Duration>,
) -> Ending {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            server.serve(&over, |uid, request| stats::answer(scheduler, &over, uid, request));
        });
        let mut printed = Instant::now();
        let mut told = BTreeSet::new();
        loop {
            let ending = scheduler.ending();
            if ending != Ending::StillRunning || stop.load(Ordering::Relaxed) {
                return ending;
            }
            if let Some((_, why)) = scheduler.refusal().filter(|(kind, _)| told.insert(*kind)) {
                eprintln!("scx_cpumax: {why}; further refusals are not reported");
            }
            if every.is_some_and(|every| printed.elapsed() >= every) {
                printed = Instant::now();
                print_stats(&stats::all(scheduler, stop));
            }
            thread::sleep(Duration::from_millis(50));
        }
    })
}

fn print_stats(groups: &[GroupStat]) {
    println!("parked    thr/per      thr_ms  debt_us  over_us    parks passes  group");
    for g in groups {
        println!(
            "{:6} {:>10} {:>11} {:8} {:8} {:8} {:6}  {}",
            g.parked,
            format!("{}/{}", g.nr_throttled, g.nr_periods),
            g.throttled_usec / 1000,
            g.debt_usec,
            g.kernel_overrun_usec,
            g.parks,
            g.watchdog_passes,
            one_line(&g.group)
        );
    }
}
