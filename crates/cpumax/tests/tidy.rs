//! Mechanical checks of the tree: sizes, unfinished code, comments without a subject, paths of
//! somebody's machine, links between documents, and which crate imports which.
//!
//! Each test collects everything that is wrong before it fails, so that one run shows all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const MAX_SOURCE_LINES: usize = 600;
/// Of the command: what it knows is a library's.
const MAX_COMMAND_LINES: usize = 2850;

#[test]
fn source_files_are_short() {
    let wrong = sources().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (path.contains("/src/") && lines > MAX_SOURCE_LINES)
            .then(|| format!("{path}: {lines} lines, at most {MAX_SOURCE_LINES}"))
    });
    assert_none(wrong);
}

#[test]
fn the_command_is_thin() {
    let own = sources().filter(|(path, _)| path.starts_with("crates/cpumax/src/"));
    let lines: usize = own.map(|(_, text)| text.lines().count()).sum();
    assert!(lines > 0 && lines < MAX_COMMAND_LINES, "crates/cpumax/src has {lines} lines");
}

const MAX_FIELDS: usize = 20;
/// `Rules` have a field for each difference between kernels.
const MORE_FIELDS: [(&str, usize); 1] = [("Rules", 49)];

#[test]
fn structs_of_the_machine_have_few_fields() {
    let mut large = Vec::new();
    for (_, text) in sources().filter(|(path, _)| path.starts_with("crates/machine/src/")) {
        let counts = text.split("\n}").filter_map(fields);
        large.extend(counts.filter(|(_, count)| *count > MAX_FIELDS));
    }
    assert_eq!(large, MORE_FIELDS.map(|(name, count)| (name.to_owned(), count)));
}

/// Name and number of fields of the struct in a text that ends before its closing brace.
fn fields(text: &str) -> Option<(String, usize)> {
    let item = |line: &str| line.trim_start_matches("pub").trim_start_matches("(crate)").to_owned();
    let mut body = text.lines().skip_while(|line| !item(line).trim_start().starts_with("struct "));
    let name = body.next()?.split("struct ").nth(1)?;
    let name = name.split(|c: char| !c.is_alphanumeric()).next()?;
    let is_field = |line: &&str| {
        let own = line.strip_prefix("    ").filter(|own| own.starts_with(char::is_alphabetic));
        own.is_some_and(|own| own.contains(':'))
    };
    Some((name.to_owned(), body.filter(is_field).count()))
}

#[test]
fn fields_of_a_struct_are_counted() {
    let text = "/// A struct {\npub(crate) struct A<'a> {\n    /// One: two.\n    #[cfg(test)]\n\
                \x20   a: u8,\n    pub b: Vec<(\n        u8,\n    )>,\n";
    assert_eq!(fields(text), Some(("A".to_owned(), 2)));
    assert_eq!(fields("fn f() {\n    let a: u8 = 1;\n"), None);
}

/// As `.editorconfig` has it.
const MAX_SOURCE_WIDTH: usize = 100;
const MAX_DOCUMENT_WIDTH: usize = 120;
/// More than that about one thing stands below the table.
const MAX_CELL_WORDS: usize = 40;

#[test]
fn lines_of_sources_are_not_wide() {
    assert_none(lines_with(sources(), |line| line.chars().count() > MAX_SOURCE_WIDTH));
}

#[test]
fn lines_of_documents_are_not_wide() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let is_wide = |line: &str| line.chars().count() > MAX_DOCUMENT_WIDTH;
        let prose = prose(&text).filter(|(_, line)| !is_row(line) && is_wide(line));
        wrong.extend(prose.map(|(at, _)| format!("{path}:{at}")));
    }
    assert_none(wrong.into_iter());
}

#[test]
fn cells_of_tables_are_short() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (at, row) in prose(&text).filter(|(_, line)| is_row(line)) {
            let words = row.split('|').map(|cell| cell.split_whitespace().count()).max();
            if words > Some(MAX_CELL_WORDS) {
                wrong.push(format!("{path}:{at}: a cell of more than {MAX_CELL_WORDS} words"));
            }
        }
    }
    assert_none(wrong.into_iter());
}

/// Lines of a document that are no code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence && !line.starts_with("    ")).then_some((at + 1, line))
    })
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

#[test]
fn nothing_is_left_unfinished() {
    // Taken apart, so that this file does not contain them.
    let needles = [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"]].map(|n| n.concat());
    assert_none(lines_with(sources(), |line| needles.iter().any(|n| line.contains(n.as_str()))));
}

/// The documents have the same rule (docs/style/rules/openings.js).
#[test]
fn comments_name_their_subject() {
    const OPENINGS: &str =
        "Who ,Whoever ,Whose ,Whatever ,What ,The same ,See there,Such ,So does ,So is ";
    let is_riddle = |line: &str| {
        let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        !comment.contains('?') && OPENINGS.split(',').any(|opening| comment.starts_with(opening))
    };
    assert_none(lines_with(sources(), is_riddle));
}

#[test]
fn no_paths_of_somebodys_machine() {
    let needles = ["work", "root", "home", "Users"].map(|top| format!("/{top}/"));
    let absolute = |line: &str| {
        needles.iter().any(|needle| {
            line.match_indices(needle.as_str())
                .any(|(at, _)| line[..at].chars().next_back().is_none_or(begins_a_path))
        })
    };
    assert_none(lines_with(texts(), absolute));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let documents = documents();
    let mut wrong = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { beside(path, file) };
            if !root().join(&target).exists() {
                wrong.push(format!("{path}: {link}: there is no {target}"));
            } else if !anchor.is_empty()
                && !documents.get(&target).is_some_and(|text| anchors(text).contains(anchor))
            {
                wrong.push(format!("{path}: {link}: no such heading"));
            }
        }
    }
    assert_none(wrong.into_iter());
}

#[test]
fn every_document_can_be_found_from_the_readme() {
    let documents = documents();
    let mut found = BTreeSet::new();
    let mut next = vec!["README.md".to_string()];
    while let Some(path) = next.pop() {
        let Some(text) = documents.get(&path).filter(|_| !found.contains(&path)) else { continue };
        let files = links(text).into_iter().map(|link| link.split('#').next().unwrap().to_string());
        next.extend(files.map(|file| beside(&path, &file)));
        found.insert(path);
    }
    let lost = documents.keys().filter(|path| !found.contains(*path));
    assert_none(lost.map(|path| format!("{path}: no chain of links leads here from README.md")));
}

#[test]
fn crates_import_only_what_the_architecture_allows() {
    let rooms = rooms(&read("ARCHITECTURE.md"));
    let mut wrong = Vec::new();
    for (path, text) in texts().filter(|(path, _)| is_manifest(path)) {
        let folder = path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml");
        let Some(allowed) = rooms.get(folder) else {
            wrong.push(format!("{path}: ARCHITECTURE.md has no room crates/{folder}"));
            continue;
        };
        for import in imports(&text) {
            if !allowed.contains(&import) {
                wrong.push(format!("{path}: may not import {import}, by ARCHITECTURE.md"));
            }
        }
        // The scheduler runs inside a GPL kernel; it is a program of its own, which nothing here
        // links.
        let license = if folder == "scx_cpumax" {
            "license = \"GPL-2.0-only\""
        } else {
            "license.workspace = true"
        };
        for inherited in [license, "[lints]\nworkspace = true"] {
            if !text.contains(inherited) {
                wrong.push(format!("{path}: lacks {inherited:?}"));
            }
        }
    }
    let missing = rooms.keys().filter(|room| !root().join("crates").join(room).is_dir());
    wrong.extend(missing.map(|room| format!("ARCHITECTURE.md: there is no crates/{room}")));
    assert_none(wrong.into_iter());
}

#[test]
fn each_workspace_of_its_own_is_compiled_by_make_test() {
    let makefile = read("Makefile");
    let listed = makefile.lines().find_map(|line| line.strip_prefix("APART = ")).unwrap();
    let is_own = |(path, text): &(String, String)| {
        path.ends_with("/Cargo.toml") && text.lines().any(|line| line == "[workspace]")
    };
    let own = texts().filter(is_own);
    let folders: Vec<String> =
        own.map(|(path, _)| path.trim_end_matches("/Cargo.toml").to_string()).collect();
    assert_eq!(folders, listed.split(' ').collect::<Vec<_>>());
    let test = makefile.lines().find(|line| line.starts_with("test:")).unwrap();
    assert!(test.contains(" apart"), "{test}");
}

#[test]
fn no_recipe_and_no_script_passes_over_a_failure() {
    let is_script = |(path, text): &(String, String)| {
        path == "Makefile" || has_extension(path, "sh") || text.starts_with("#!")
    };
    let passes_over = |line: &str| ["|| true", "|| :"].iter().any(|end| line.ends_with(end));
    assert_none(lines_with(texts().filter(is_script), passes_over));
}

/// Folder of a crate and the crates it may import, from the table of rooms.
fn rooms(architecture: &str) -> BTreeMap<String, BTreeSet<String>> {
    let row = |line: &str| {
        let room = line.strip_prefix("| `crates/")?;
        let (folder, _) = room.split_once('`')?;
        let imports = line.trim_end_matches([' ', '|']).rsplit('|').next()?;
        let names = imports.split(',').map(|name| name.trim().to_string());
        Some((folder.to_string(), names.collect()))
    };
    let rooms: BTreeMap<_, _> = architecture.lines().filter_map(row).collect();
    assert!(rooms.len() > 3, "ARCHITECTURE.md has lost its table of rooms");
    rooms
}

/// The crates of this workspace that a manifest makes the crate's own code depend on.
fn imports(manifest: &str) -> BTreeSet<String> {
    let tables = manifest.split("\n[").filter(|table| table.starts_with("dependencies]"));
    let names = tables.flat_map(str::lines).filter_map(|line| line.strip_prefix("cpumax-"));
    names.map(|name| name.split(['.', ' ', '=']).next().unwrap().to_string()).collect()
}

fn is_manifest(path: &str) -> bool {
    path.starts_with("crates/") && path.ends_with("/Cargo.toml") && path.matches('/').count() == 2
}

/// Targets of the links in a document, those in code blocks left out.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|part| part.split("](").skip(1));
    links.filter_map(|rest| Some(rest.split_once(')')?.0.to_string())).collect()
}

/// Anchors of a document: texts that the `#` of a link to it may precede.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let title = line.starts_with('#').then(|| line.trim_start_matches('#').trim())?;
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        Some(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
    };
    text.lines().filter_map(heading).collect()
}

/// `file` as seen from the folder of `path`.
fn beside(path: &str, file: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether an absolute path can follow this character.
fn begins_a_path(before: char) -> bool {
    before.is_whitespace() || "\"'`(=:<[,|".contains(before)
}

/// `path:line: text` of every line that is wrong.
fn lines_with(
    files: impl Iterator<Item = (String, String)>,
    wrong: impl Fn(&str) -> bool,
) -> impl Iterator<Item = String> {
    let in_file = move |(path, text): (String, String)| {
        let lines = text.lines().enumerate().filter(|(_, line)| wrong(line));
        let shown = lines.map(|(index, line)| format!("{path}:{}: {}", index + 1, line.trim()));
        shown.collect::<Vec<_>>()
    };
    files.flat_map(in_file)
}

fn assert_none(wrong: impl Iterator<Item = String>) {
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "\n  {}\n", wrong.join("\n  "));
}

fn documents() -> BTreeMap<String, String> {
    texts().filter(|(path, _)| has_extension(path, "md")).collect()
}

fn sources() -> impl Iterator<Item = (String, String)> {
    texts().filter(|(path, _)| path.starts_with("crates/") && has_extension(path, "rs"))
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Every file of the tree that is text, by its path from the root of the tree.
fn texts() -> impl Iterator<Item = (String, String)> {
    let mut paths = Vec::new();
    walk(&root(), &mut paths);
    paths.sort();
    assert!(paths.contains(&root().join("README.md")), "the walk does not see the tree");
    paths.into_iter().filter_map(|path| {
        let shown = path.strip_prefix(root()).ok()?.to_str()?.to_string();
        Some((shown, String::from_utf8(fs::read(&path).ok()?).ok()?))
    })
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !["target", ".git", ".cache"].iter().any(|skipped| name == *skipped) {
            walk(&entry.path(), paths);
        } else if kind.is_file() && name != ".git" {
            paths.push(entry.path());
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate is two folders deep").to_path_buf()
}
