//! `cpumax run`: runs scenarios in the model or on real kernels, prints tables of the results, and
//! checks the expected ones. On real kernels it checks what can be measured there; `cpumax compare`
//! compares them with the model.

use crate::args::Running;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, BAD, DIM};
use crate::runs::Terminal;
use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum, ValueHint};
use cpumax_lab::catalog::{self, Set};
use cpumax_report::{JsonArray, TraceFiles, escape};
use cpumax_study::given::{self, Seeds, run_time};
use cpumax_study::{
    Error, Job, Machines, Model, NamedKernel, ThisHost, World, builtin, kernels, scenario,
    suite::{Ended, Failed, NOISE, Plan, Suite},
    vary::{Vary, grid, number, vary},
};
use cpumax_workload::Expectation;
use std::ops::RangeInclusive;
use std::path::PathBuf;

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
    #[arg(long, value_name = "A..B", value_parser = given::seeds, conflicts_with = "seed")]
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
    pub varied: VaryArgs,
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

/// Settings to vary, and numbers to show.
#[expect(clippy::doc_markdown, reason = "shown as help")]
#[derive(Debug, Args)]
pub struct VaryArgs {
    /// Run once with each of these values; several --vary run all combinations. A setting is a
    /// field of [machine] (docs/reference/scenarios.md), noise, or a file of a group, e.g.
    /// timer_phase=0ms,98ms, noise=1..10 or '/web:cpu.max=20000 100000,50000 100000'
    #[arg(long, value_name = "SETTING=VALUES", value_parser = vary, conflicts_with = "trace")]
    vary: Vec<Vary>,
    /// Show one number of each run instead of tables, by its path in docs/reference/json.md. It may
    /// be a ratio: 'groups./web.nr_throttled per groups./web.nr_periods', '... over 6.12'. For
    /// several seeds or noises it is the mean, with its interval
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    show: Vec<Expectation>,
}

pub fn run(args: &RunArgs) -> Result<(), Failure> {
    check_options(args)?;
    let asked = asked(args)?;
    let built_in = builtin::ALL.iter().map(|built_in| built_in.name).filter(|_| args.all);
    let names = args.scenarios.iter().map(String::as_str).chain(built_in);
    let plans = names.map(|name| plans(name, args)).collect::<Result<Vec<_>, Failure>>()?.concat();
    let world = world(args, &plans)?;
    let several = plans.len() > 1;
    let suite = Suite::new(plans, asked, seeds(args), world).map_err(Failure::of)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let jobs = suite.jobs();
    let is_shown = |job: &Job| suite.is_asked(job);
    let differ = (several, args.seeds.is_some());
    let traces = args.trace.as_deref().map(|path| TraceFiles::new(path, &jobs, is_shown, differ));
    let watch = Terminal::tracing(traces.transpose()?.unwrap_or_default(), is_real(args));
    let ended = suite.run(&jobs, &watch);
    drop(watch);
    finish(&ended.map_err(Failure::of)?, args, json)
}

/// Prints the results of all runs by scenario, and fails if one was not as expected.
fn finish(ended: &[Ended<'_>], args: &RunArgs, json: Option<JsonArray>) -> Result<(), Failure> {
    let tables = json.as_ref().is_none_or(|json| !json.is_stdout());
    if let Some(json) = json {
        json.write(ended.iter().flat_map(Ended::documents))?;
    }
    let page = output::page();
    let shows = !args.varied.show.is_empty();
    if tables {
        let told = if shows { cpumax_report::numbers_table } else { cpumax_report::runs_text };
        output::print(&told(ended, page, args.histogram))?;
    } else {
        // With JSON on standard output, failures go to standard error.
        output::eprint(&cpumax_report::failed_expectations(ended, page))?;
    }
    if is_real(args) {
        failures(ended)?;
    }
    if shows || ended.iter().all(Ended::passed) { Ok(()) } else { Err(Failure::Unexpected) }
}

fn is_real(args: &RunArgs) -> bool {
    args.on != RunOn::Model
}

/// Refuses options that the chosen world would ignore.
fn check_options(args: &RunArgs) -> anyhow::Result<()> {
    let running = &args.running;
    if is_real(args) {
        let on_host = args.histogram && args.on == RunOn::Host;
        let only_model = [("--histogram", on_host), ("--check", running.check)];
        if let Some((option, _)) = only_model.iter().find(|(_, given)| *given) {
            let on = if args.on == RunOn::Host { "host" } else { "vm" };
            bail!("{option} does not work with --on {on}: use --on model");
        }
        let varied = |start| args.varied.vary.iter().any(|vary| vary.setting.starts_with(start));
        if !args.rule.is_empty() || varied("rule.") {
            bail!("--rule works with --on model only: a real kernel has its own rules");
        }
        if running.noise.is_some() || varied(NOISE) {
            bail!("--noise works with --on model only: real kernels have noise of their own");
        }
    }
    match args.about_machines() {
        Some(option) if args.on != RunOn::Vm => {
            bail!("{option} works with --on vm only")
        }
        _ => Ok(()),
    }
}

/// The kernels that are shown.
fn asked(args: &RunArgs) -> Result<Vec<NamedKernel>, Failure> {
    let list = args.running.kernels_asked();
    match args.on {
        RunOn::Model => {
            kernels::modelled(&list.unwrap_or_else(catalog::modelled)).map_err(Failure::of)
        }
        RunOn::Vm => crate::worlds::fetched(&list.unwrap_or_else(|| catalog::list(Set::Run))),
        RunOn::Host if list.is_some() => {
            Err(anyhow!("--on host runs on this machine's kernel: leave out --kernel").into())
        }
        RunOn::Host => Ok(vec![ThisHost::kernel().map_err(Failure::of)?]),
    }
}

fn seeds(args: &RunArgs) -> RangeInclusive<u64> {
    args.seeds.map_or(args.running.seed..=args.running.seed, |seeds| seeds.first..=seeds.last)
}

fn world(args: &RunArgs, plans: &[Plan]) -> Result<Box<dyn World>, Failure> {
    let exact = args.mode.map(|mode| mode == VmMode::Exact);
    Ok(match args.on {
        RunOn::Model => Box::new(Model { running: args.running.how() }),
        RunOn::Host => Box::new(ThisHost::open().map_err(Failure::of)?),
        RunOn::Vm => {
            let several = plans.iter().find(|plan| plan.workload().machine.cpus > 1);
            if let (Some(true), Some(plan)) = (exact, several) {
                let (workload, cpus) = (plan.workload().name.clone(), plan.workload().machine.cpus);
                return Err(Failure::of(Error::NotExact { workload, cpus }));
            }
            let side_by_side = args.running.jobs.map(usize::from);
            let machines = Machines::open(exact, side_by_side).map_err(Failure::of)?;
            Box::new(machines.timing_releases(args.histogram))
        }
    })
}

/// Loads a scenario and applies the options to it: one plan for each combination of settings.
fn plans(name: &str, args: &RunArgs) -> Result<Vec<Plan>, Failure> {
    let VaryArgs { vary, show } = &args.varied;
    let mut plan = Plan::new(scenario::load(name)?);
    for set in &args.set {
        let name = plan.workload().name.clone();
        let changed =
            plan.with_limit(set).with_context(|| format!("--set '{}'", escape::line(set)));
        plan = changed.context(name)?;
    }
    for rule in &args.rule {
        let (name, value) = rule.split_once('=').unwrap_or((rule, ""));
        plan = plan.with_setting(&format!("rule.{name}"), value)?;
    }
    if let Some(duration_ns) = args.duration {
        plan = plan.with_duration(duration_ns)?;
    }
    if !show.is_empty() {
        plan = plan.showing(show)?;
    }
    Ok(grid(plan, vary)?)
}

/// Prints the runs that failed. Refused runs are a failure only if no run was possible.
fn failures(ended: &[Ended<'_>]) -> Result<(), Failure> {
    let mut failed = 0;
    let not_done = || ended.iter().flat_map(|one| &one.failed);
    for Failed { run, error } in not_done() {
        let is_refusal = matches!(error, Error::Refused(_));
        failed += usize::from(!is_refusal);
        let (style, label) = if is_refusal { (DIM, "refused:") } else { (BAD, "error:") };
        let label = output::styled(style, label);
        output::eprint_line(format_args!("{label} {run}: {error}"));
    }
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    let done: usize = ended.iter().map(|one| one.done).sum();
    match (failed, done) {
        (0, 1..) => Ok(()),
        (0, 0) => Err(anyhow!("none of the runs is possible on these kernels").into()),
        (failed, done) => {
            Err(anyhow!("{failed} of {} runs failed", done + not_done().count()).into())
        }
    }
}
