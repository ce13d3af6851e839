//! Compiles the BPF program, where there is a clang that can. Where there is none, `cpumax record`
//! says what to do instead.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The oldest clang whose output the loader understands.
const CLANG_OLDEST: u32 = 12;
const CLANG_NEWEST: u32 = 40;

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    println!("cargo:rustc-check-cfg=cfg(has_bpf)");
    if compile().is_some() {
        println!("cargo:rustc-cfg=has_bpf");
    }
}

fn compile() -> Option<()> {
    let object = PathBuf::from(env::var_os("OUT_DIR")?).join("record.bpf.o");
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").ok()?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        _ => "other",
    };
    let endian = env::var("CARGO_CFG_TARGET_ENDIAN").ok()?;
    let target = if endian == "big" { "bpfeb" } else { "bpfel" };
    let output = Command::new(find_clang()?)
        .args(["-target", target, "-g", "-O2", "-mcpu=v3", "-Wall", "-Wno-unused-function"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .args(["-c", "src/bpf/record.bpf.c", "-o"])
        .arg(&object)
        .output()
        .ok()?;
    if !output.status.success() {
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            println!("cargo:warning={line}");
        }
        return None;
    }
    Some(())
}

fn find_clang() -> Option<String> {
    let named = env::var("BPF_CLANG").ok();
    let numbered = (CLANG_OLDEST..CLANG_NEWEST).rev().map(|version| format!("clang-{version}"));
    named
        .into_iter()
        .chain(["clang".to_owned()])
        .chain(numbered)
        .find(|clang| version(clang).is_some_and(|version| version >= CLANG_OLDEST))
}

fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}
