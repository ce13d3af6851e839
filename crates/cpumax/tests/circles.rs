//! Modules side by side must not import each other in a circle, each taken with all below it. A
//! module and its own children may. The list of circles that are left can only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crate, module, and the modules in it that form a circle.
const LEFT: &[(&str, &str, &str)] = &[
    ("recording", "", "build classify gaps requests summary"),
    ("recording", "requests", "busy guess relay remote unseen"),
];

type Module = Vec<String>;

#[test]
fn no_circle_of_modules_is_new() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in a folder");
    let mut found = BTreeSet::new();
    for folder in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let sources = modules(&folder.join("src"));
        assert!(!sources.is_empty(), "{name} has no modules");
        for (parent, circle) in circles(&imports(&sources)) {
            found.insert((name.clone(), parent.join("::"), circle.join(" ")));
        }
    }
    let left = LEFT
        .iter()
        .map(|(of, parent, circle)| ((*of).to_owned(), (*parent).to_owned(), (*circle).to_owned()));
    let left: BTreeSet<_> = left.collect();
    let new: Vec<_> = found.difference(&left).collect();
    let gone: Vec<_> = left.difference(&found).collect();
    assert!(new.is_empty(), "new circles: {new:#?}");
    assert!(gone.is_empty(), "no longer circles, so not of the list: {gone:#?}");
}

#[test]
fn a_circle_is_found_and_a_child_is_none() {
    let of = |name: &str, text: &str| (vec![name.to_owned()], text.to_owned());
    let tree = [
        of("a", "use crate::{b::B, c};"),
        of("b", "fn f() { crate::a::g() }"),
        of("c", "mod d; // crate::a"),
        (vec!["c".to_owned(), "d".to_owned()], "use super::X;".to_owned()),
    ];
    let found = circles(&imports(&tree.into_iter().collect()));
    assert_eq!(found, [(vec![], vec!["a".to_owned(), "b".to_owned()])]);
}

/// The text of each module below `folder`, without comments and unit tests.
fn modules(folder: &Path) -> BTreeMap<Module, String> {
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    let mut all = BTreeMap::<Module, String>::new();
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(folder).unwrap().with_extension("");
                let mut module: Module =
                    below.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                    module.pop();
                }
                if module.last().is_none_or(|last| last != "tests") {
                    let text = fs::read_to_string(&path).unwrap();
                    let own = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                    all.entry(module).or_default().push_str(own);
                }
            }
        }
    }
    all
}

/// The other modules that each module names by a path that begins with `crate` or `super`.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut all = BTreeMap::new();
    for (module, text) in modules {
        let code: String = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        let mut named = Vec::new();
        for root in ["crate::", "super::"] {
            for (at, _) in code.match_indices(root) {
                if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let mut base = if root == "super::" { module.clone() } else { Module::new() };
                let mut rest = &code[at + root.len()..];
                if root == "super::" {
                    base.pop();
                    while let Some(above) = rest.strip_prefix(root) {
                        base.pop();
                        rest = above;
                    }
                }
                tree(rest, &base, &mut named);
            }
        }
        let real = named.into_iter().map(|mut path| {
            while !modules.contains_key(&path) && path.pop().is_some() {}
            path
        });
        all.insert(module.clone(), real.filter(|other| other != module).collect());
    }
    all
}

/// Reads a path, or a group of them in braces; returns the text behind it.
fn tree<'a>(text: &'a str, base: &Module, named: &mut Vec<Module>) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
            if rest.is_empty() || rest.starts_with('}') {
                return rest.get(1..).unwrap_or_default();
            }
            let after = tree(rest, base, named);
            // A character that no path has.
            rest = if after.len() == rest.len() { &rest[1..] } else { after };
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut path = base.clone();
    path.push(text[..end].to_owned());
    match text[end..].strip_prefix("::") {
        Some(rest) if end > 0 => tree(rest, &path, named),
        _ => {
            named.push(path);
            &text[end..]
        }
    }
}

/// Sets of modules side by side that reach each other, with the module that they are in.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<(Module, Vec<String>)> {
    let parents: BTreeSet<&[String]> =
        imports.keys().flat_map(|module| (0..module.len()).map(|end| &module[..end])).collect();
    let mut found = Vec::new();
    for parent in parents {
        let side = |module: &Module| module.strip_prefix(parent)?.first().cloned();
        let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in imports {
            let Some(from) = side(from) else { continue };
            let to = to.iter().filter_map(side).filter(|to| *to != from);
            reached.entry(from.clone()).or_default().extend(to);
        }
        for _ in 0..reached.len() {
            let before = reached.clone();
            for to in reached.values_mut() {
                let further: Vec<String> =
                    to.iter().filter_map(|one| before.get(one)).flatten().cloned().collect();
                to.extend(further);
            }
        }
        let together = |one: &String| -> Vec<String> {
            let mut all: Vec<String> =
                reached[one].iter().filter(|to| reached[*to].contains(one)).cloned().collect();
            all.sort();
            all
        };
        let sets: BTreeSet<Vec<String>> =
            reached.keys().map(together).filter(|set| set.len() > 1).collect();
        found.extend(sets.into_iter().map(|set| (parent.to_vec(), set)));
    }
    found
}
