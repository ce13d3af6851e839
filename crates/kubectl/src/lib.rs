//! The plugin `kubectl cpumax`, which is the program `cpumax` under the name `kubectl-cpumax`:
//! records the pods of an object where they run, names a limit, applies it, and verifies it.
//!
//! All of it goes through the user's own kubectl, with the user's rights. Nothing of cpumax stays
//! in the cluster.

mod apply;
mod cluster;
mod record;
mod verify;

use clap::{Args, Parser, Subcommand, ValueHint};
use cluster::Service;
use cpumax_report::escape;
use cpumax_study::given::duration;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Exit status of the commands that were interrupted.
const INTERRUPTED: u8 = 130;

/// A CPU limit for a service in Kubernetes: record it, ask for a limit, apply it, verify it
#[derive(Debug, Parser)]
#[command(name = "kubectl cpumax", bin_name = "kubectl cpumax", version, max_term_width = 100)]
#[command(after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

const HELP: &str = "\
Examples:
  kubectl cpumax record deploy/web -c app -n shop --image REGISTRY/cpumax --for 30s
  kubectl cpumax advise deploy/web -c app -n shop web-*.app.cpumax --p99 50ms
  kubectl cpumax apply deploy/web -c app -n shop
  kubectl cpumax verify deploy/web -c app -n shop

kubectl is that of KUBECTL_PATH, else of PATH. Exit status: that of cpumax advise and verify; 2 \
where something fails, 130 when interrupted.";

#[derive(Debug, Subcommand)]
enum Action {
    /// Record its pods on their nodes, each into a file POD.CONTAINER.cpumax
    Record(record::Recording),
    /// Find the smallest limit that meets a goal, and show the change
    Advise(Advise),
    /// Apply the limit of a study, and wait until it is in force
    Apply(apply::Apply),
    /// Check the prediction of a study against the counters of its pods
    Verify(verify::Verify),
}

/// The object and its container.
#[derive(Debug, Args)]
struct On {
    /// A deployment, stateful set, daemon set, job, cron job or pod, such as deploy/web
    #[arg(value_name = "OBJECT")]
    object: String,
    /// Its container [default: the only one]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Its pods as a whole, by spec.resources
    #[arg(long, conflicts_with = "container")]
    whole_pod: bool,
    /// Its namespace
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Path of the kubeconfig
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,
}

/// The file of a study.
#[derive(Debug, Args)]
struct Study {
    /// The study of `kubectl cpumax advise`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(default_value = "study.json")]
    study: PathBuf,
}

#[derive(Debug, Args)]
struct Advise {
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    study: Study,
    /// Recordings, and options of `cpumax advise`, such as --p99 50ms
    #[arg(value_name = "RECORDING", required = true, num_args = 1..)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    recordings: Vec<OsString>,
}

/// Whether these are words for the plugin: the first is its name.
pub fn is_called(words: &[OsString]) -> bool {
    let name = words.first().and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| name == "kubectl-cpumax")
}

/// Runs the plugin; returns its exit status. Wrong words end the process.
pub fn main(words: &[OsString]) -> u8 {
    let done = match Cli::parse_from(words).command {
        Action::Record(args) => catch().and_then(|()| record::record(&args)).map(|()| 0),
        Action::Advise(args) => catch().and_then(|()| advise(&args)),
        Action::Apply(args) => catch().and_then(|()| apply::apply(&args)).map(|()| 0),
        Action::Verify(args) => catch().and_then(|()| verify::verify(&args)),
    };
    match done {
        _ if is_interrupted() => INTERRUPTED,
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {}", escape::lines(&format!("{error:#}")));
            2
        }
    }
}

fn advise(args: &Advise) -> anyhow::Result<u8> {
    let service = Service::find(&args.on)?;
    let study = args.study.study.as_os_str();
    let json = ["--json".as_ref(), study];
    let words = args.recordings.iter().map(OsString::as_os_str).chain(json);
    let status = cpumax("advise", words)?;
    if status == 0 {
        let limit = apply::limit_of(&args.study.study)?;
        println!();
        apply::show(&service, &apply::patch(&service, &limit)?);
    }
    Ok(status)
}

/// Runs a command of this program; returns its exit status.
fn cpumax<'a>(
    command: &str,
    words: impl Iterator<Item = &'a std::ffi::OsStr>,
) -> anyhow::Result<u8> {
    let program = std::env::current_exe()?;
    let status = Command::new(program).arg0("cpumax").arg(command).args(words).status()?;
    Ok(status.code().map_or(INTERRUPTED, |code| code as u8))
}

static INTERRUPT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Notes SIGINT, SIGTERM and SIGHUP from now on; nothing ends by them.
fn catch() -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = INTERRUPT.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

fn is_interrupted() -> bool {
    INTERRUPT.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Looks every so often until there is an answer; `None` after `most`. An error when interrupted.
fn wait<T>(
    most: Duration,
    every: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let began = Instant::now();
    loop {
        anyhow::ensure!(!is_interrupted(), "interrupted");
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if began.elapsed() >= most {
            return Ok(None);
        }
        std::thread::sleep(every.min(most.saturating_sub(began.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn recordings_are_followed_by_options_of_cpumax() {
        let words = "kubectl-cpumax advise deploy/web -c app -n shop a.cpumax b.cpumax --p99 50ms";
        let words: Vec<OsString> = words.split(' ').map(Into::into).collect();
        assert!(is_called(&words) && !is_called(&["/usr/bin/cpumax".into()]));
        let Action::Advise(args) = Cli::parse_from(words).command else { panic!() };
        assert_eq!(args.recordings, ["a.cpumax", "b.cpumax", "--p99", "50ms"]);
        assert_eq!(args.on.container.as_deref(), Some("app"));
    }
}
