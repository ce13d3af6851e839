//! The build script with and without clang, by its output.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The build script as a program.
fn build_script(folder: &Path) -> PathBuf {
    let program = folder.join("build");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-o"])
        .args([&program, Path::new("build.rs")])
        .status();
    assert!(built.unwrap().success());
    program
}

/// Output of the build script if PATH has only this folder.
fn printed(script: &Path, folder: &Path, with_bpf: bool) -> Vec<String> {
    let mut command = Command::new(script);
    command.env_clear().env("PATH", folder).env("OUT_DIR", folder);
    command.env("CARGO_CFG_TARGET_ARCH", "x86_64").env("CARGO_CFG_TARGET_ENDIAN", "little");
    if with_bpf {
        command.env("CARGO_FEATURE_BPF", "1");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn errors(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("cargo::error=")).collect()
}

#[test]
fn without_clang_the_build_ends_with_a_line_that_names_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let script = build_script(folder.path());
    let lines = printed(&script, folder.path(), true);
    let [error] = errors(&lines)[..] else { panic!("{lines:?}") };
    assert!(error.contains("clang 12 or newer") && error.contains("--no-default-features"));
    assert!(errors(&printed(&script, folder.path(), false)).is_empty());

    let clang = folder.path().join("clang");
    for (text, expected) in [
        ("#!/bin/sh\necho 11.0.1\n", Some("clang 12 or newer")),
        ("#!/bin/sh\n[ $1 = -dumpversion ] && echo 19.1.7\n", Some("clang cannot")),
        ("#!/bin/sh\necho 19.1.7\n", None),
    ] {
        fs::write(&clang, text).unwrap();
        fs::set_permissions(&clang, Permissions::from_mode(0o755)).unwrap();
        let lines = printed(&script, folder.path(), true);
        let said = errors(&lines).first().copied();
        assert_eq!(said.is_some(), expected.is_some(), "{text}: {lines:?}");
        assert!(said.is_none_or(|said| said.contains(expected.unwrap_or_default())), "{said:?}");
    }
}
