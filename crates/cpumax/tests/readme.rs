//! Commands in the documents for newcomers run as they are written, and print what the documents
//! show below them.

use std::path::Path;
use std::process::Command;

#[test]
fn commands_in_the_readme_succeed() {
    commands_succeed("README.md", 3);
}

#[test]
fn commands_that_advise_succeed() {
    commands_succeed("docs/guide/advise.md", 1);
}

#[test]
fn commands_of_the_tutorial_succeed() {
    commands_succeed("docs/guide/tutorial.md", 3);
}

fn commands_succeed(document: &str, least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let readme = std::fs::read_to_string(root.join(document)).unwrap();
    // The first part comes before all commands. Files of the reader do not exist here.
    let parts = readme.split("\n    cpumax ").skip(1);
    let commands = parts.filter_map(|part| part.split_once('\n'));
    let of_the_reader = [
        " perf.data",
        " web.cpumax",
        " study.json",
        " before.txt",
        "/web.service",
        "| sh",
        "--cgroup",
    ];
    let is_ours = |command: &str| !of_the_reader.iter().any(|file| command.contains(file));
    let commands: Vec<_> = commands.filter(|(command, _)| is_ours(command)).collect();
    assert!(commands.len() >= least, "{document} has lost its examples");
    assert!(commands.iter().any(|(_, rest)| shown(rest).is_some()), "{document} shows nothing");
    for (command, rest) in commands {
        // Only words in quotes contain spaces.
        let words = command.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        let output = Command::new(env!("CARGO_BIN_EXE_cpumax"))
            .args(words)
            .current_dir(root)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cpumax {command}\n{}\n{message}", output.status);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(!printed.is_empty(), "cpumax {command} says nothing");
        if let Some(shown) = shown(rest) {
            assert!(printed.contains(shown), "cpumax {command} prints something else:\n{printed}");
        }
    }
}

/// The output that the document shows below a command.
fn shown(rest: &str) -> Option<&str> {
    let (shown, _) = rest.strip_prefix("\n```text\n")?.split_once("```")?;
    Some(shown)
}
