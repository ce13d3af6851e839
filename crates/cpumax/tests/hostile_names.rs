//! Names of threads, groups and files are shown, whatever they are, and have no effect.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Clears a screen, sets a title, reverses text, and has a line break and markup.
const NAME: &str = "x\u{1b}[2J\u{1b}]0;t\u{7}\u{202e}\u{9b}6n|y`z<b>&";

/// The name in TOML, without control characters, which scenarios must not have.
fn quoted() -> String {
    let escape = |c: char| match c {
        c if c.is_ascii_graphic() => c.to_string(),
        c => format!("\\u{:04x}", u32::from(c)),
    };
    NAME.chars().filter(|c| !c.is_control()).map(escape).collect()
}

fn scenario() -> String {
    let name = quoted();
    format!(
        r#"
name = "{name}"
duration = "200ms"
[[group]]
path = "/{name}"
max = "1000 10000"
[[lock]]
name = "{name}"
kind = "mutex"
[[task]]
name = "{name}"
group = "/{name}"
program = [{{ loop = 9, do = [{{ syscall = [
    {{ lock = "{name}" }},
    {{ kernel = "1ms" }},
    {{ unlock = "{name}" }},
    {{ done = true }},
] }}] }}]
[[expect]]
metric = "tasks.{name}.usage_usec"
max = 1
"#
    )
}

fn recording() -> String {
    let name = NAME.replace(['\u{7}', '|'], "");
    format!(
        "a 1/1 [000] 1.000000000: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 \
         prev_state=S ==> next_comm={name} next_pid=20 next_prio=120\n\
         {name} 20/20 [000] 1.500000000: sched:sched_switch: prev_comm={name} prev_pid=20 \
         prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n"
    )
}

fn cpumax(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    command.args(arguments).current_dir(folder).env("CLICOLOR_FORCE", "1").output().unwrap()
}

/// Checks that a text has only letters and line ends, apart from our own colours.
fn assert_harmless(what: &str, text: &[u8]) {
    let text = String::from_utf8(text.to_owned()).unwrap();
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| {
        let (style, rest) = part.split_once('m').unwrap_or(("?", part));
        let digits = style.strip_prefix('[').unwrap_or("?");
        assert!(
            digits.chars().all(|c| c.is_ascii_digit() || c == ';'),
            "{what}: an escape sequence {part:?} in\n{text:?}"
        );
        rest.to_owned()
    });
    let plain: String = std::iter::once(first).chain(rest).collect();
    let hidden = |c: char| c != '\n' && cpumax_report::escape::is_hidden(c);
    assert!(!plain.contains(hidden), "{what}: {plain:?}");
}

#[test]
fn names_are_shown_and_do_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let hostile_file = "f\u{1b}[2J\u{202e}.toml";
    fs::write(at("s.toml"), scenario()).unwrap();
    fs::write(at("bad.toml"), scenario().replace("kind = \"mutex\"", "kind = \"\\u202e\""))
        .unwrap();
    fs::write(at("raw.toml"), format!("name = \"{NAME}\"")).unwrap();
    fs::write(at(hostile_file), scenario()).unwrap();
    fs::write(at("r.txt"), recording()).unwrap();
    let commands: [(&[&str], i32); 12] = [
        (&["run", "s.toml", "-k", "6.18", "--for", "100ms"], 0),
        (&["run", "s.toml", "-k", "6.18"], -1),
        (&["run", "s.toml", "-k", "6.18", "--for", "100ms", "--json", "-"], 0),
        (&["run", "s.toml", "-k", "6.18", "--for", "100ms", "--trace", "t.json"], 0),
        (&["run", "s.toml", "-k", "6.18", "--for", "100ms", "--json", "j.json"], 0),
        (&["run", "bad.toml"], 2),
        (&["run", "raw.toml"], 2),
        (&["run", hostile_file, "-k", "6.18", "--for", "100ms"], 0),
        (
            &[
                "compare",
                "s.toml",
                "--on",
                "model",
                "-k",
                "6.18",
                "--against",
                "6.1",
                "--markdown",
                "m.md",
                "--svg",
                "a.svg",
            ],
            -1,
        ),
        (&["weigh", "s.toml", "-k", "6.18,7.3", "--seeds", "1..1"], -1),
        (&["inspect", "r.txt"], -1),
        (&["replay", "r.txt", "--group", "comm:x*", "--set", "10000 100000", "-k", "6.18"], -1),
    ];
    for (arguments, status) in commands {
        let output = cpumax(arguments, folder.path());
        assert!(status < 0 || output.status.code() == Some(status), "{arguments:?} {output:?}");
        assert_ne!(output.status.code(), Some(101), "{arguments:?} {output:?}");
        assert_harmless(&format!("{arguments:?}"), &output.stdout);
        assert_harmless(&format!("{arguments:?} beside"), &output.stderr);
    }
    for file in ["t.json", "j.json", "m.md", "a.svg"] {
        assert_harmless(file, &fs::read(at(file)).unwrap());
    }
    let markdown = fs::read_to_string(at("m.md")).unwrap();
    let rows: Vec<&str> = markdown.lines().filter(|line| line.starts_with("| x")).collect();
    assert!(rows.len() == 1 && rows[0].matches('|').count() == 3, "{markdown}");
    let shown = String::from_utf8(cpumax(&["inspect", "r.txt"], folder.path()).stdout).unwrap();
    assert!(shown.contains("x\\u{1b}[2J"), "{shown}");
}

/// Arguments and file names do not begin new lines in an error.
#[test]
fn what_was_given_is_told_on_one_line() {
    const GIVEN: &str = "a\nerror: b\u{1b}[2J";
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(GIVEN)).unwrap();
    fs::write(folder.path().join("s.toml"), scenario()).unwrap();
    fs::write(folder.path().join("r.txt"), recording()).unwrap();
    let slashed = format!("/{GIVEN}:500m");
    let commands: [&[&str]; 14] = [
        &["run", GIVEN],
        &["run", "s.toml", "--json", GIVEN],
        &["run", "s.toml", "--kernel", "6.18", "--trace", GIVEN],
        &["run", "s.toml", "--set", GIVEN],
        &["run", "s.toml", "--set", &slashed],
        &["run", "s.toml", "--kernel", GIVEN],
        &["run", "s.toml", "--seeds", GIVEN],
        &["inspect", GIVEN],
        &["replay", GIVEN],
        &["replay", "r.txt", "--group", GIVEN],
        &["replay", "r.txt", "--group", "comm:x*", "--write-scenario", GIVEN],
        &["stat", "--socket", GIVEN],
        &["scenarios", GIVEN],
        &[GIVEN],
    ];
    for arguments in commands {
        let output = cpumax(arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert_harmless(&format!("{arguments:?}"), &output.stderr);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("\nerror: b"), "{arguments:?}: {said}");
        assert!(said.contains("a\\nerror: b\\u{1b}[2J"), "{arguments:?}: {said}");
    }
}
