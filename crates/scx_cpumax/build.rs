// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF program with clang and generates the skeleton that the loader uses.
//!
//! It needs no kernel's BTF: see `src/bpf/kernel.bpf.h`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The oldest clang with the casts between address spaces that arenas need.
const CLANG_OLDEST: u32 = 19;

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("skeleton.rs");
    let Some(clang) = find_clang() else {
        panic!(
            "scx_cpumax needs clang {CLANG_OLDEST} or newer to compile its BPF program: install \
             clang-19 (Debian, Ubuntu) or clang (Fedora), or name it with BPF_CLANG"
        );
    };
    SkeletonBuilder::new()
        .source("src/bpf/main.bpf.c")
        .clang(clang)
        .clang_args(["-Wall", "-Wno-unused-function", "-Wno-missing-declarations", "-mcpu=v3"])
        .build_and_generate(&out)
        .unwrap_or_else(|error| panic!("{error:?}"));
}

fn find_clang() -> Option<String> {
    let named = env::var("BPF_CLANG").ok();
    let candidates =
        named.into_iter().chain((CLANG_OLDEST..CLANG_OLDEST + 10).map(|v| format!("clang-{v}")));
    candidates
        .chain(["clang".to_owned()])
        .find(|clang| major_version(clang).is_some_and(|v| v >= CLANG_OLDEST))
}

fn major_version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}
