//! Compiles the BPF program. Without a suitable clang the build fails, and names the feature that
//! leaves the recorder out.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The oldest clang whose output the loader accepts.
const CLANG_OLDEST: u32 = 12;
const CLANG_NEWEST: u32 = 40;

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    // Cargo repeats a failed build script, so a clang installed later is found.
    if let Err(why) = compile() {
        println!(
            "cargo::error={why}: install it (Debian, Ubuntu: apt-get install clang), name one \
             with BPF_CLANG, or build with --no-default-features, which leaves `cpumax record` out"
        );
    }
}

/// Compiles the program; the error says in one line what is missing.
fn compile() -> Result<(), String> {
    let of_cargo = |name: &str| env::var(name).map_err(|_| format!("cargo gives no {name}"));
    let clang = find_clang().ok_or_else(|| {
        format!("`cpumax record` needs clang {CLANG_OLDEST} or newer, and there is none")
    })?;
    let object = PathBuf::from(of_cargo("OUT_DIR")?).join("record.bpf.o");
    let arch = match of_cargo("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        _ => "other",
    };
    let target = if of_cargo("CARGO_CFG_TARGET_ENDIAN")? == "big" { "bpfeb" } else { "bpfel" };
    let output = Command::new(&clang)
        .args(["-target", target, "-g", "-O2", "-mcpu=v3", "-Wall", "-Wno-unused-function"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .args(["-c", "src/bpf/record.bpf.c", "-o"])
        .arg(&object)
        .output()
        .map_err(|error| format!("{clang}: {error}"))?;
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        println!("cargo:warning={line}");
    }
    let is_compiled = output.status.success();
    is_compiled.then_some(()).ok_or_else(|| {
        format!("`cpumax record` needs a clang that can compile for BPF, and {clang} cannot")
    })
}

/// `$BPF_CLANG`, or else `clang` or the newest `clang-N`; `None` if it is too old.
fn find_clang() -> Option<String> {
    let named = env::var("BPF_CLANG").ok();
    let any = || {
        let numbered = (CLANG_OLDEST..CLANG_NEWEST).rev().map(|number| format!("clang-{number}"));
        std::iter::once("clang".to_owned()).chain(numbered)
    };
    let candidates = named.map_or_else(|| any().collect(), |named| vec![named]);
    candidates
        .into_iter()
        .find(|clang| version(clang).is_some_and(|version| version >= CLANG_OLDEST))
}

fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}
