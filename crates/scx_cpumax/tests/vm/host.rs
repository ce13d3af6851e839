// SPDX-License-Identifier: GPL-2.0-only
//! Boots one machine for each group of checks and reads their results from its second serial port.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cpumax_lab::cache::Cache;
use cpumax_lab::initramfs;

use crate::checks::{CHECKS, Check, Set, Time};

const QEMU: &str = "qemu-system-x86_64";
const BOOT_TIME_MAX: Duration = Duration::from_secs(60);
/// Older kernels have no `sched_ext` in Debian's configuration, or no task work for BPF.
const OLDEST: &[u32] = &[6, 18];
const SCX_CPUMAX: &str = env!("CARGO_BIN_EXE_scx_cpumax");

pub fn main(args: &[String]) -> ExitCode {
    let all = env::var("CPUMAX_SCX_SET").is_ok_and(|set| set == "all");
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |check: &&Check| {
        if names.is_empty() {
            all || check.set == Set::Quick
        } else {
            names.iter().any(|name| check.name.contains(name.as_str()))
        }
    };
    let checks: Vec<&Check> = CHECKS.iter().filter(wanted).collect();
    if args.iter().any(|arg| arg == "--list") {
        for check in &checks {
            println!("{}: test", check.name);
        }
        return ExitCode::SUCCESS;
    }
    let kernels = kernels();
    if let Some(reason) = reason_to_skip(&kernels) {
        println!("{} checks of scx_cpumax on real kernels are SKIPPED: {reason}", checks.len());
        println!(
            "\ntest result: ok. 0 passed; 0 failed; {} ignored; 0 measured; 0 filtered out\n",
            checks.len()
        );
        return ExitCode::SUCCESS;
    }
    let mut tally = Tally::default();
    let shown = if all { &kernels[..] } else { &kernels[kernels.len() - 1..] };
    for kernel in shown {
        for machine in machines(&checks) {
            run_machine(kernel, &machine, &mut tally, true);
        }
    }
    tally.finish()
}

/// Checks that can share a machine: those of as many CPUs.
fn machines<'c>(checks: &[&'c Check]) -> Vec<Vec<&'c Check>> {
    let mut machines: Vec<Vec<&Check>> = Vec::new();
    for check in checks {
        let fits = |other: &&Check| {
            (other.cpus, other.time, other.alone) == (check.cpus, check.time, false)
        };
        match machines.iter_mut().find(|machine| !check.alone && machine.iter().all(fits)) {
            Some(machine) => machine.push(check),
            None => machines.push(vec![check]),
        }
    }
    machines
}

fn run_machine(kernel: &Path, checks: &[&Check], tally: &mut Tally, again: bool) {
    let dir = tempfile::tempdir().expect("a directory for the machine");
    let initrd = dir.path().join("initrd");
    fs::write(&initrd, archive()).expect("the initramfs can be written");
    let results = dir.path().join("results");
    let console = dir.path().join("console");
    let first = checks[0];
    let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
    let limit = Duration::from_secs(
        60 + storm_s()
            + first.cpus as u64 * 2
            + checks.iter().map(|check| check.patience_s).sum::<u64>(),
    );
    println!("# {}: {} CPUs: {}", kernel.display(), first.cpus, names.join(", "));
    let started = Instant::now();
    let mut command = Command::new(QEMU);
    match first.time {
        Time::Host => command.args(["-accel", "tcg,thread=multi"]),
        Time::Instructions => command.args([
            "-accel",
            "tcg,thread=single",
            "-icount",
            "shift=1,sleep=off",
            "-rtc",
            "base=2026-01-01,clock=vm",
            "-seed",
            "42",
        ]),
    };
    command.args([
        "-cpu",
        "max,-rdrand,-rdseed",
        "-m",
        if first.cpus > 8 { "3072" } else { "1024" },
    ]);
    command.args([
        "-smp",
        &first.cpus.to_string(),
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-monitor",
        "none",
    ]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(&initrd);
    command.arg("-append").arg(format!(
        "console=ttyS0 panic=-1 nokaslr norandmaps cpumax.checks={} cpumax.storm_s={}",
        names.join(","),
        env::var("CPUMAX_SCX_STORM_S").unwrap_or_default(),
    ));
    for file in [&console, &results] {
        let mut port = OsString::from("file:");
        port.push(file);
        command.arg("-serial").arg(port);
    }
    // The machine goes when this program goes, however that is.
    let mut machine =
        die_with_parent(&mut command).stdin(Stdio::null()).spawn().expect("QEMU starts");
    while started.elapsed() < limit && matches!(machine.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = machine.kill();
    let _ = machine.wait();
    let said = fs::read(&results)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    if said.is_empty() && again && started.elapsed() < BOOT_TIME_MAX {
        // Kernels sometimes crash under emulation before their first process; that says nothing about the scheduler.
        println!("# it did not boot; once more");
        return run_machine(kernel, checks, tally, false);
    }
    let mut missing: BTreeSet<&str> = names.iter().copied().collect();
    for line in said.lines() {
        let line = line.trim_end();
        match line.split_once(' ') {
            Some(("PASS", rest)) => {
                missing.remove(rest.split(' ').next().unwrap_or(""));
                tally.passed += 1;
                println!("test {rest} ... ok");
            }
            Some(("FAIL", rest)) => {
                missing.remove(rest.split([' ', ':']).next().unwrap_or(""));
                tally.failed.push(rest.to_owned());
                println!("test {rest} ... FAILED");
            }
            Some(("SKIP", rest)) => {
                missing.remove(rest.split([' ', ':']).next().unwrap_or(""));
                tally.skipped += 1;
                println!("test {rest} ... SKIPPED");
            }
            _ => println!("  | {line}"),
        }
    }
    if env::var_os("CPUMAX_SCX_CONSOLE").is_some() {
        print!("{}", String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()));
    }
    let crashed = fs::read(&console)
        .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("Oops: int3"));
    if again && crashed && !missing.is_empty() {
        // Emulated CPUs sometimes see a kernel's instruction half patched, which real ones never do.
        println!("# the emulation tripped over patched code; the rest once more");
        let rest: Vec<&Check> =
            checks.iter().copied().filter(|check| missing.contains(check.name)).collect();
        return run_machine(kernel, &rest, tally, false);
    }
    for name in missing {
        tally.failed.push(format!(
            "{name}: the machine said nothing about it in {:.0?}",
            started.elapsed()
        ));
        println!("test {name} ... FAILED (no word of it)");
        let said = fs::read(&console)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(80)..]
            .iter()
            .for_each(|line| println!("  > {}", line.trim_end()));
    }
}

/// How long the storm is to be, where that is said.
fn storm_s() -> u64 {
    env::var("CPUMAX_SCX_STORM_S").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

fn die_with_parent(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl is safe to call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

#[derive(Default)]
struct Tally {
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
}

impl Tally {
    fn finish(self) -> ExitCode {
        self.failed.iter().for_each(|failure| println!("failed: {failure}"));
        let verdict = if self.failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {verdict}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out\n",
            self.passed,
            self.failed.len(),
            self.skipped
        );
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn reason_to_skip(kernels: &[PathBuf]) -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("they boot x86-64 kernels".to_owned());
    }
    if Command::new(QEMU).arg("--version").stdout(Stdio::null()).status().is_err() {
        return Some(format!("{QEMU} is not installed"));
    }
    kernels.is_empty().then(|| {
        "no kernel from 6.18 on is in the cache: fetch one with `cpumax lab fetch`, or name one with CPUMAX_SCX_KERNELS".to_owned()
    })
}

/// The kernels to test on, oldest first.
fn kernels() -> Vec<PathBuf> {
    if let Some(named) = env::var_os("CPUMAX_SCX_KERNELS") {
        return env::split_paths(&named).filter(|path| path.is_file()).collect();
    }
    let mut found: Vec<(Vec<u32>, PathBuf)> = fs::read_dir(cache().join("kernels"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((version(&entry.file_name().to_string_lossy())?, entry.path().join("vmlinuz")))
        })
        .filter(|(version, path)| version.as_slice() >= OLDEST && path.is_file())
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Where `cpumax lab fetch` and `make scx-sources` put what they fetch.
fn cache() -> PathBuf {
    Cache::of_user()
        .map_or_else(|_| PathBuf::from("/var/empty"), |cache| cache.folder().to_path_buf())
}

/// The numbers of `7.3`; nothing for other names, such as those of kernels with other options.
fn version(name: &str) -> Option<Vec<u32>> {
    name.split('.').map(|number| number.parse().ok()).collect()
}

/// This program, the scheduler, and the libraries of both.
fn archive() -> Vec<u8> {
    let me = env::current_exe().expect("this program has a path");
    let mut files: Vec<(String, PathBuf)> = vec![
        ("/init".to_owned(), me.clone()),
        ("/scx_cpumax".to_owned(), PathBuf::from(SCX_CPUMAX)),
    ];
    // What was built from the kernel's own sources, see `make scx-sources`.
    for path in fs::read_dir(cache().join("sources")).into_iter().flatten().flatten() {
        if path.path().is_file() {
            files.push((format!("/{}", path.file_name().to_string_lossy()), path.path()));
        }
    }
    for program in [me.as_path(), Path::new(SCX_CPUMAX)] {
        for library in libraries(program) {
            if !files.iter().any(|(name, _)| *name == library) {
                files.push((library.clone(), PathBuf::from(library)));
            }
        }
    }
    let files: Vec<(String, Vec<u8>)> = files
        .into_iter()
        .map(|(name, path)| {
            let content =
                fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (name, content)
        })
        .collect();
    initramfs::build(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())))
}

/// The libraries that the dynamic linker says a program needs.
fn libraries(program: &Path) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output().expect("ldd is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}
