//! The reference of the language (docs/reference/scenarios.md) is true: its examples are accepted,
//! its example of a message is real, and it names every field and instruction.

use cpumax_workload::{parse, print, random};

const REFERENCE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/scenarios.md"));

fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    REFERENCE.split(begin.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn examples_are_accepted() {
    let examples = blocks("toml");
    assert!(examples.len() >= 3);
    for example in examples {
        parse(example, "example.toml").unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn the_example_of_a_message_is_real() {
    let wrong = blocks("toml")[0].replacen("lock = \"inode\"", "lock = \"inod\"", 1);
    let error = parse(&wrong, "example.toml").unwrap_err();
    assert_eq!(blocks("text")[0], format!("{error}\n"));
}

#[test]
fn everything_that_is_printed_is_documented() {
    let mut names: Vec<String> = Vec::new();
    for seed in 0..300 {
        for line in print(&random::with_jobs(seed)).lines() {
            let line = line.trim_start_matches(['{', ' ']);
            let Some((name, _)) = line.split_once(" = ") else { continue };
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        // Either a field in a table, or as the verb of an instruction.
        let documented = [format!("`{name}`"), format!("{{ {name} = ")]
            .iter()
            .any(|text| REFERENCE.contains(text));
        assert!(documented, "`{name}` is not documented");
    }
}
