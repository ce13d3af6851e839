//! `docs/lab/sources.md` has the model's present results for `docs/lab/sources.toml`.
//! `SNAPSHOTS=overwrite` (`make sources`) writes it anew.

use cpumax_study::{
    Model, given, kernels, scenario,
    suite::{Ended, Plan, Suite},
    vary::{grid, number, vary},
};
use serde::Deserialize;
use snapbox::{Data, assert_data_eq};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Has tables of the kernels on which scenarios agree with the model.
const HELD: &str = "conformance.md";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    topic: Vec<Topic>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Topic {
    title: String,
    claim: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    number: u32,
    source: String,
    says: String,
    run: String,
    r#for: Option<String>,
    #[serde(default)]
    vary: Vec<String>,
    kernel: String,
    show: Vec<(String, String)>,
    note: Option<String>,
    held: Option<String>,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(docs().join(name)).expect("is part of the repository")
}

fn sources() -> Sources {
    toml::from_str(&read("sources.toml")).expect("is a list of claims")
}

#[test]
fn the_page_says_what_the_model_prints() {
    let sources = sources();
    let page = read("sources.md");
    let (head, _) = page.split_once("\n## ").expect("has a head");
    let mut written = format!("{head}\n");
    for topic in &sources.topic {
        let header = "| | source | says | here | printed by | held against real kernels |";
        let _ = writeln!(written, "## {}\n\n{header}\n|---|---|---|---|---|---|", topic.title);
        written.extend(topic.claim.iter().map(row));
        written.push('\n');
    }
    let kept = Data::read_from(&docs().join("sources.md"), None).raw();
    assert_data_eq!(written.trim_end().to_owned() + "\n", kept);
}

#[test]
fn every_claim_is_there_once() {
    let mut numbers: Vec<u32> =
        sources().topic.iter().flat_map(|topic| &topic.claim).map(|claim| claim.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=38).collect::<Vec<_>>());
}

#[test]
fn the_command_prints_what_stands_on_the_page() {
    let sources = sources();
    let claim = &sources.topic[0].claim[2];
    let mut words = vec!["run", &claim.run, "--kernel", &claim.kernel];
    words.extend(claim.show.iter().flat_map(|(_, path)| ["--show", path]));
    let output = Command::new(env!("CARGO_BIN_EXE_cpumax")).args(words).output();
    let printed = String::from_utf8(output.expect("the command can be started").stdout).unwrap();
    let shown = here(claim);
    let values = shown.split_whitespace().filter(|word| word.ends_with("ms"));
    let values: Vec<&str> = values.collect();
    assert!(!values.is_empty() && values.iter().all(|value| printed.contains(value)), "{printed}");
}

fn row(claim: &Claim) -> String {
    let Claim { number, source, says, note, .. } = claim;
    let note = note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    let (here, command, held) = (here(claim), command(claim), held(claim));
    format!("| {number} | {source} | {says} | {here}{note} | `{command}` | {held} |\n")
}

/// The command that prints the numbers.
fn command(claim: &Claim) -> String {
    let mut words = vec!["cpumax run".to_owned(), claim.run.clone()];
    words.extend(claim.r#for.as_ref().map(|time| format!("--for {time}")));
    words.push(format!("--kernel {}", claim.kernel));
    words.extend(claim.vary.iter().map(|vary| format!("--vary {vary}")));
    let quoted =
        |path: &str| if path.contains(' ') { format!("'{path}'") } else { path.to_owned() };
    words.extend(claim.show.iter().map(|(_, path)| format!("--show {}", quoted(path))));
    words.join(" ")
}

/// The numbers, by name, kernel and setting.
fn here(claim: &Claim) -> String {
    let numbers: Vec<_> = claim.show.iter().map(|(_, path)| number(path).unwrap()).collect();
    let varied: Vec<_> = claim.vary.iter().map(|text| vary(text).unwrap()).collect();
    let mut plan = Plan::new(scenario::load(&claim.run).unwrap());
    if let Some(time) = &claim.r#for {
        plan = plan.with_duration(given::run_time(time).unwrap()).unwrap();
    }
    let plans = grid(plan.showing(&numbers).unwrap(), &varied).unwrap();
    let kernels = kernels::modelled(&claim.kernel).unwrap();
    let suite = Suite::new(plans, kernels, 1..=1, Box::new(Model::default())).unwrap();
    let ended = suite.run(&suite.jobs(), &()).unwrap();
    let of_each = claim.show.iter().zip(&numbers).map(|((name, _), number)| {
        let points = ended.chunk_by(|a, b| settings(a) == settings(b));
        let points: Vec<String> = points
            .map(|point| {
                let point: Vec<&Ended<'_>> = point.iter().collect();
                let values = point[0].kernels.iter().map(|kernel| {
                    let value = cpumax_report::number_on_kernel(&point, number, kernel.version);
                    format!("{value} on {}", kernel.version)
                });
                settings(point[0]) + &values.collect::<Vec<_>>().join(", ")
            })
            .collect();
        format!("{name}: {}", points.join("; "))
    });
    of_each.collect::<Vec<_>>().join("; ")
}

/// Varied settings of a run, without noise, over which the mean is taken.
fn settings(ended: &Ended<'_>) -> String {
    let varied = ended.plan.settings().filter(|(name, _)| *name != "noise");
    varied.fold(String::new(), |told, (_, value)| told + value + ": ")
}

/// On how many kernels the scenario agrees with the model, by the row of [`HELD`] that names it,
/// such as `| 8 of 9 | ..., `nohz-full` (not 6.1) |`.
fn held(claim: &Claim) -> String {
    let name = format!("`{}`", claim.run);
    let page = read(HELD);
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let mut counts =
        rows.filter(|(count, scenarios)| count.contains(" of ") && scenarios.contains(&name));
    let counted = counts.next().map(|(count, _)| count.replace(" of ", "/"));
    assert!(counts.next().is_none(), "{HELD} has {name} in two rows");
    match (counted, &claim.held) {
        (Some(counted), Some(held)) => format!("{counted}; {held}"),
        (Some(counted), None) => counted,
        (None, Some(held)) => held.clone(),
        (None, None) => "no kernel".to_owned(),
    }
}
