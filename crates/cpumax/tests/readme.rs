//! The commands in the documents a newcomer reads first are accepted as they stand there.

use std::path::Path;
use std::process::Command;

#[test]
fn commands_in_the_readme_succeed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let commands = readme.lines().filter_map(|line| line.strip_prefix("    cpumax "));
    // A file of the reader's own is not there.
    let commands: Vec<_> = commands.filter(|command| !command.contains(" perf.data")).collect();
    assert!(commands.len() >= 3, "README.md has lost its examples");
    for command in commands {
        // No word of them has a space in it but those in quotes.
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
        assert!(!output.stdout.is_empty(), "cpumax {command} says nothing");
    }
}
