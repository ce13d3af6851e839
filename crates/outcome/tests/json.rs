//! docs/reference/json.md lists the fields of the JSON form.

use cpumax_outcome::{GroupOutcome, Outcome, ReleaseOutcome, TaskOutcome};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../docs/reference/json.md");

fn outcome() -> Outcome {
    Outcome {
        scenario: "fibtest".to_owned(),
        world: "model".to_owned(),
        kernel: "6.18".to_owned(),
        generation: "G3".to_owned(),
        seed: u64::MAX,
        simulated_ns: 10,
        groups: BTreeMap::from([("PATH".to_owned(), GroupOutcome::default())]),
        tasks: BTreeMap::from([("NAME".to_owned(), TaskOutcome::default())]),
        release: ReleaseOutcome::default(),
        events: 3,
    }
}

fn leaves(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
    let Value::Object(members) = value else {
        into.insert(prefix.to_owned());
        return;
    };
    for (name, member) in members {
        let dot = if prefix.is_empty() { "" } else { "." };
        leaves(&format!("{prefix}{dot}{name}"), member, into);
    }
}

#[test]
fn the_document_lists_exactly_the_fields() {
    let mut serialised = BTreeSet::new();
    leaves("", &serde_json::to_value(outcome()).unwrap(), &mut serialised);
    // Fields that `cpumax replay` adds are checked in `forecast`.
    let own = DOCUMENT.split("\n## Replays").next().unwrap_or_default();
    let rows = own.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(str::to_owned).collect();
    // An object with a row of its own stands for its numbers that have none.
    let row = |leaf: &String| {
        let mut name = leaf.as_str();
        while !documented.contains(name) {
            name = name.rsplit_once('.')?.0;
        }
        Some(name.to_owned())
    };
    let told: BTreeSet<String> =
        serialised.iter().map(|leaf| row(leaf).unwrap_or_else(|| leaf.clone())).collect();
    assert_eq!(documented, told);
}

#[test]
fn a_written_outcome_reads_back_equal() {
    let outcome = outcome();
    let text = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    assert!(text.contains("18446744073709551615"), "a seed keeps all its 64 bits: {text}");
}
