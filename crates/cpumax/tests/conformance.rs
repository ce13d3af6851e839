//! The model agrees with real kernels on a dozen scenarios, to the tolerances of
//! docs/lab/compare.md, and real-time kernels do what `rt-deadlock` says. Needs virtual machines
//! with those kernels (`cpumax lab fetch`).

use cpumax_lab::catalog::{self, Set};
use cpumax_require::{Need, missing};
use std::process::{Command, Output};

const SCENARIOS: [&str; 12] = [
    "ancestor-leak",
    "blocked-while-throttled",
    "burst",
    "exhausted-at-sleep",
    "full-quota",
    "nested",
    "small-quota",
    "tick-quantum",
    "tick-quantum-1000",
    "two-children",
    "unlimited",
    "waking-task",
];

#[test]
fn the_model_agrees_with_real_kernels() {
    let mut args = vec!["compare"];
    args.extend(SCENARIOS);
    let kernels = catalog::list(Set::Parallel);
    args.extend(["--kernel", &kernels, "--noisy", "200", "--json", "-"]);
    let Some(output) = on_real_kernels(&args) else { return };
    let cells: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let cells = cells.as_array().expect("is an array");
    assert_eq!(cells.len(), SCENARIOS.len() * 3);
    let wrong: Vec<String> = cells.iter().filter_map(unexpected).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Checks that the scenario's expectations hold on real kernels before and from 6.18. To 6.17 the
/// throttle must meet the lock, which is chance: such a kernel has three seeds to show it in, a
/// newer one must do right with each.
fn holds_on(scenario: &str, kernels: &str) {
    for seed in ["1", "2", "3"] {
        let args = ["run", scenario, "--on", "vm", "--kernel", kernels, "--seed", seed];
        let Some(output) = on_real_kernels(&args) else { return };
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.matches("\npass ").count() + told.matches("\nFAIL ").count() >= 5, "{told}");
        let failed: Vec<&str> = told.lines().filter(|line| line.starts_with("FAIL ")).collect();
        if failed.is_empty() {
            assert_eq!(output.status.code(), Some(0), "{told}");
            return;
        }
        assert!(failed.iter().all(|line| line.ends_with("on ..6.17")), "{told}");
        eprintln!("{told}");
    }
    panic!("{scenario}: on no seed");
}

#[test]
fn a_real_time_kernel_is_stopped_by_a_limit_to_6_17() {
    holds_on("rt-deadlock", "6.12-rt,7.3-rt");
}

#[test]
fn a_fork_stopped_by_a_limit_stops_moves_and_forks_to_6_17() {
    holds_on("threadgroup-rwsem", "6.12,6.18");
}

/// The kernel reports a hung task after two checks, 120 s apart by the guest's clock.
#[test]
fn a_task_that_waits_for_a_throttled_one_is_reported_as_hung_to_6_17() {
    holds_on("hung-task", "6.12,6.18");
}

#[test]
fn where_nothing_can_be_compared_that_is_told() {
    let args = ["compare", "lock-holder", "--kernel", "6.12"];
    let Some(output) = on_real_kernels(&args) else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("lock-holder cannot be run: needs 2 CPUs: add --parallel"), "{told}");
    assert!(!told.contains("agree"), "{told}");
}

/// Output of the command; `None`, with a note, where no kernels can be run.
fn on_real_kernels(args: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    let output = command.args(args).output().expect("the command can be started");
    let erred = String::from_utf8_lossy(&output.stderr);
    let wanting = ["is not here yet", "make guest", "qemu-system-x86_64 is not installed"]
        .iter()
        .any(|s| erred.contains(s));
    if output.status.code() == Some(2) && wanting {
        missing(Need::Vm, erred);
        return None;
    }
    let nothing = erred.contains("nothing could be compared");
    assert!(matches!(output.status.code(), Some(0 | 1)) || nothing, "{}: {erred}", output.status);
    Some(output)
}

/// A number beyond its tolerance, in words.
fn unexpected(cell: &serde_json::Value) -> Option<String> {
    let scenario = cell["scenario"].as_str().expect("a name");
    let kernel = cell["outcomes"][0]["kernel"].as_str().unwrap_or("?");
    if let Some(ratio) = cell["verdict"]["agrees"].as_f64() {
        assert!(ratio <= 1.0);
        return None;
    }
    Some(format!("{scenario} on {kernel}: {} {}", cell["verdict"], cell["deviations"][0]))
}
