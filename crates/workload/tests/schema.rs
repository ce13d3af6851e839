//! The JSON Schema of scenario files in `docs/schema/` equals the reader's; `SNAPSHOTS=overwrite`
//! writes it. It accepts what the reader accepts, and refuses the same misspelt fields.

use cpumax_workload::{parse, print, random, schema};
use jsonschema::Validator;
use serde_json::Value;
use snapbox::{Data, assert_data_eq};
use std::path::{Path, PathBuf};

fn validator() -> Validator {
    jsonschema::validator_for(&schema()).expect("the schema is one")
}

/// The scenario as an editor passes it to a schema.
fn json(text: &str) -> Value {
    let table: toml::Table = toml::from_str(text).expect("is TOML");
    serde_json::to_value(table).expect("is JSON")
}

fn scenarios(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("is there");
    let paths = entries.map(|entry| entry.expect("can be read").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

#[test]
fn the_schema_that_is_kept_is_that_of_the_reader() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/scenario.json");
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    assert_data_eq!(text, Data::read_from(&kept, None).raw());
}

#[test]
fn every_shipped_scenario_is_valid() {
    let validator = validator();
    let mut paths = scenarios("../../scenarios");
    paths.extend(scenarios("../../scenarios/found"));
    assert!(paths.len() > 50, "{}", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(error) = validator.validate(&json(&text)) {
            panic!("{}: {error} at {}", path.display(), error.instance_path());
        }
    }
}

/// Random workloads use every field.
#[test]
fn what_the_reader_accepts_is_valid() {
    let validator = validator();
    let workloads = (0..40).flat_map(|seed| [random::workload(seed), random::with_jobs(seed)]);
    let made = (0..200).filter_map(|seed| {
        let mut stream = cpumax_workload::Stream::new(seed, cpumax_workload::Domain::Workload, 3);
        let choices: Vec<u64> = (0..300).map(|_| stream.next_u64()).collect();
        cpumax_workload::Workload::try_from(random::anything(&choices)).ok()
    });
    for workload in workloads.chain(made) {
        let text = print(&workload);
        if let Err(error) = validator.validate(&json(&text)) {
            panic!("{error} at {}:\n{text}", error.instance_path());
        }
    }
}

/// Paths of all tables in it.
fn tables(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(table) => {
            found.push(path.to_owned());
            table.iter().for_each(|(name, inner)| tables(inner, &format!("{path}/{name}"), found));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, inner)| tables(inner, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

fn is_read(value: &Value) -> bool {
    let text = toml::to_string(value).expect("came from TOML");
    parse(&text, "changed.toml").is_ok()
}

#[test]
fn a_field_too_many_or_too_few_is_judged_as_by_the_reader() {
    let validator = validator();
    let (mut misspelt, mut removed) = (0, 0);
    for path in scenarios("../../scenarios") {
        let whole = json(&std::fs::read_to_string(&path).unwrap());
        let mut all = Vec::new();
        tables(&whole, "", &mut all);
        for at in all.into_iter().step_by(3) {
            let fields = whole.pointer(&at).and_then(Value::as_object).unwrap();
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                let mut other = whole.clone();
                let fields = other.pointer_mut(&at).and_then(Value::as_object_mut).unwrap();
                let value = fields.remove(&name).unwrap();
                let is_valid = validator.is_valid(&other);
                assert!(is_valid || !is_read(&other), "{} without {at}/{name}", path.display());
                removed += usize::from(!is_valid);
                let fields = other.pointer_mut(&at).and_then(Value::as_object_mut).unwrap();
                fields.insert(format!("{name}_"), value);
                assert!(!validator.is_valid(&other) && !is_read(&other), "{at}/{name}_");
                misspelt += 1;
            }
        }
    }
    assert!(misspelt > 500 && removed > 100, "{misspelt} misspelt, {removed} refused without");
}
