//! `CPUMAX_REQUIRE` decides whether a test with a missing need fails. Each test runs this program
//! again, with one test and the variable set.

use cpumax_require::{Need, VARIABLE, missing};
use std::process::{Command, Output};

/// Set in the inner run, whose test finds something missing.
const INNER: &str = "CPUMAX_REQUIRE_INNER";

#[test]
fn something_is_missing() {
    if std::env::var_os(INNER).is_some() {
        missing(Need::Perf, "perf is not installed");
    }
}

fn demanding(words: &str) -> Output {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "something_is_missing"])
        .env(INNER, "1")
        .env(VARIABLE, words)
        .output()
        .expect("this program runs")
}

#[test]
fn it_passes_where_it_may_be_missing_and_that_is_seen() {
    for words in ["", "vm,cgroup"] {
        let output = demanding(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(told.trim(), "NOT TESTED, perf is missing: perf is not installed");
    }
}

#[test]
fn it_fails_where_it_is_demanded() {
    let output = demanding("vm,perf");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(101));
    let wrong = "CPUMAX_REQUIRE demands perf, which is missing: perf is not installed";
    assert!(told.contains(wrong), "{told}");
}

#[test]
fn it_fails_on_a_word_that_is_none() {
    let output = demanding("pref");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(101));
    assert!(
        told.contains("has the word \"pref\"; it takes vm, cgroup, perf, bpf, mount"),
        "{told}"
    );
}
