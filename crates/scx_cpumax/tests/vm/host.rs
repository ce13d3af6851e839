// SPDX-License-Identifier: GPL-2.0-only
//! Boots one machine for each group of checks and reads their results from its second serial port.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cpumax_lab::cache::Cache;
use cpumax_lab::{Guest, Turns, initramfs};
use cpumax_require::{Need, found, missing};

use crate::checks::{CHECKS, CPUMAX, Check, GUEST, Set, Time};
use crate::guest::Checked;
use crate::killed;

pub const QEMU: &str = "qemu-system-x86_64";
/// Starts of a machine at most, if the emulation makes it fail.
const TRIES: u32 = 3;
/// Older kernels have no `sched_ext` in Debian's configuration, or no task work for BPF.
const OLDEST: &[u32] = &[6, 18];
const SCX_CPUMAX: &str = env!("CARGO_BIN_EXE_scx_cpumax");

pub fn main(args: &[String]) -> ExitCode {
    // The first call records the parent process.
    started_by_nobody();
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
    let killed = names.is_empty() || names.iter().any(|name| killed::NAME.contains(name.as_str()));
    if args.iter().any(|arg| arg == "--list") {
        for check in &checks {
            println!("{}: test", check.name);
        }
        if killed {
            println!("{}: test", killed::NAME);
        }
        return ExitCode::SUCCESS;
    }
    let kernels = kernels();
    if let Some(reason) = reason_to_skip(&kernels) {
        let what = format!("{} checks of scx_cpumax on real kernels: {reason}", checks.len());
        missing(Need::Vm, what);
        println!(
            "\ntest result: ok. 0 passed; 0 failed; {} ignored; 0 measured; 0 filtered out\n",
            checks.len()
        );
        return ExitCode::SUCCESS;
    }
    let mut tally = Tally::default();
    if killed {
        tally.note(killed::NAME, killed::runner());
    }
    let shown = if all { &kernels[..] } else { &kernels[kernels.len() - 1..] };
    for kernel in shown {
        for machine in machines(&checks) {
            run_machine(kernel, &machine, &mut tally, TRIES);
        }
    }
    tally.finish()
}

/// Checks that can share a machine, because they need equally many CPUs.
fn machines<'c>(checks: &[&'c Check]) -> Vec<Vec<&'c Check>> {
    let mut machines: Vec<Vec<&Check>> = Vec::new();
    for check in checks {
        let fits = |other: &&Check| {
            (other.cpus, other.sockets, other.time, other.alone)
                == (check.cpus, check.sockets, check.time, false)
        };
        match machines.iter_mut().find(|machine| !check.alone && machine.iter().all(fits)) {
            Some(machine) => machine.push(check),
            None => machines.push(vec![check]),
        }
    }
    machines
}

fn run_machine(kernel: &Path, checks: &[&Check], tally: &mut Tally, tries: u32) {
    // The files have no names, so none is left however this program ends.
    let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
    let mut files = Vec::from([&archive(&names)[..], &[], &[]].map(unnamed_file));
    let first = checks[0];
    let turns = (first.time == Time::Turns).then(|| Turns::new().expect("room in memory"));
    let limit = Duration::from_secs(
        60 + storm_s()
            + first.cpus as u64 * 2
            + checks.iter().map(|check| check.patience_s).sum::<u64>(),
    );
    println!("# {}: {} CPUs: {}", kernel.display(), first.cpus, names.join(", "));
    let started = Instant::now();
    let mut command = machine_command(kernel, first, &names, &files);
    if let Some(turns) = turns {
        command.args(turns.arguments).env(turns.environment.0, turns.environment.1);
        files.push(File::from(turns.library));
    }
    let (results, console) = (&files[1], &files[2]);
    let mut heard = Heard { missing: names.iter().copied().collect(), ..Heard::default() };
    run_until_end(&mut command, &files, started + limit, || heard.more(results, tally));
    heard.more(results, tally);
    let mut missing = heard.missing;
    if heard.bytes == 0 && tries > 1 && started.elapsed() < limit {
        // Emulated kernels sometimes crash before their first process starts. The scheduler has no
        // part in that.
        println!("# it did not boot; once more");
        return run_machine(kernel, checks, tally, tries - 1);
    }
    if env::var_os("CPUMAX_SCX_CONSOLE").is_some() {
        print!("{}", text_of(console));
    }
    let crashed = text_of(console).contains("Oops: int3");
    if tries > 1 && crashed && !missing.is_empty() {
        // An emulated CPU sometimes fetches an instruction that the kernel has half patched, which
        // a real CPU never does.
        println!("# the emulation tripped over patched code; the rest once more");
        let rest: Vec<&Check> =
            checks.iter().copied().filter(|check| missing.contains(check.name)).collect();
        return run_machine(kernel, &rest, tally, tries - 1);
    }
    for name in std::mem::take(&mut missing) {
        tally.failed.push(format!(
            "{name}: the machine said nothing about it in {:.0?}",
            started.elapsed()
        ));
        println!("test {name} ... FAILED (no word of it)");
        let said = text_of(console);
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(80)..]
            .iter()
            .for_each(|line| println!("  > {}", line.trim_end()));
    }
}

/// The machine that carries out these checks.
fn machine_command(kernel: &Path, first: &Check, names: &[&str], files: &[File]) -> Command {
    let (initrd, results, console) = (&files[0], &files[1], &files[2]);
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
        Time::Turns => command.args([
            "-accel",
            "tcg,thread=single",
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
        if first.cpus >= 8 { "3072" } else { "1024" },
    ]);
    command.args([
        "-smp",
        &format!("{},sockets={}", first.cpus, first.sockets),
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-monitor",
        "none",
    ]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(path_of(initrd));
    command.arg("-append").arg(format!(
        "console=ttyS0 panic=-1 nokaslr norandmaps{} cpumax.checks={} cpumax.storm_s={}",
        // All clocks of the machine are one.
        if first.time == Time::Turns { " tsc=reliable" } else { "" },
        names.join(","),
        env::var("CPUMAX_SCX_STORM_S").unwrap_or_default(),
    ));
    for file in [console, results] {
        command.arg("-serial").arg(format!("file:{}", path_of(file)));
    }
    command
}

/// Output of a machine, one line for each check, and the checks without a result yet.
#[derive(Default)]
struct Heard<'c> {
    bytes: usize,
    missing: BTreeSet<&'c str>,
}

impl Heard<'_> {
    /// Reads the whole lines that have arrived since the last call.
    fn more(&mut self, results: &File, tally: &mut Tally) {
        let said = text_of(results);
        let new = said.get(self.bytes..).unwrap_or_default();
        let Some(end) = new.rfind('\n') else { return };
        self.bytes += end + 1;
        new[..end].lines().for_each(|line| self.line(line.trim_end(), tally));
    }

    fn line(&mut self, line: &str, tally: &mut Tally) {
        let (verdict, rest) = line.split_once(' ').unwrap_or_default();
        let outcome = match verdict {
            "PASS" => {
                tally.passed += 1;
                "ok"
            }
            "FAIL" => {
                tally.failed.push(rest.to_owned());
                "FAILED"
            }
            "SKIP" => {
                tally.skipped += 1;
                "SKIPPED"
            }
            _ => return println!("  | {line}"),
        };
        self.missing.remove(rest.split([' ', ':']).next().unwrap_or(""));
        println!("test {rest} ... {outcome}");
    }
}

/// Length of the storm, if the environment sets it.
fn storm_s() -> u64 {
    env::var("CPUMAX_SCX_STORM_S").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

/// Whether cargo has been killed, which does not end its children.
fn started_by_nobody() -> bool {
    static PARENT: OnceLock<u32> = OnceLock::new();
    *PARENT.get_or_init(parent_id) != parent_id() && env::var_os("CARGO").is_some()
}

fn unnamed_file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("room for temporary files");
    file.write_all(content).expect("room for temporary files");
    file
}

/// The path by which a started machine opens a file that was passed to it.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Content of a file that another process has written.
fn text_of(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |metadata| metadata.len() as usize)];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Runs a machine that gets the files under their own descriptor numbers, and ends with this
/// program, however this program ends.
fn run_until_end(
    command: &mut Command,
    files: &[File],
    deadline: Instant,
    mut meanwhile: impl FnMut(),
) {
    let (me, passed) = (std::process::id(), files.iter().map(File::as_raw_fd).collect::<Vec<_>>());
    let prepare = move || {
        // SAFETY: system calls that take only numbers.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            for &file in &passed {
                libc::fcntl(file, libc::F_SETFD, 0);
            }
            if libc::getppid() as u32 == me { Ok(()) } else { Err(io::Error::other("too late")) }
        }
    };
    // SAFETY: between fork and exec the closure makes only system calls.
    let command = unsafe { command.pre_exec(prepare) };
    let mut machine = command.stdin(Stdio::null()).spawn().expect("QEMU starts");
    while Instant::now() < deadline && matches!(machine.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(200));
        meanwhile();
        // If a CPU does not answer, the kernel waits for ever after that.
        if text_of(&files[2]).contains("Kernel panic - not syncing") {
            std::thread::sleep(Duration::from_secs(1));
            break;
        }
        if started_by_nobody() {
            let _ = machine.kill();
            std::process::exit(1);
        }
    }
    let _ = machine.kill();
    let _ = machine.wait();
}

#[derive(Default)]
struct Tally {
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
}

impl Tally {
    fn note(&mut self, name: &str, outcome: Checked) {
        match outcome {
            Ok(said) => {
                self.passed += 1;
                println!("test {name} ({said}) ... ok");
            }
            Err(wrong) => {
                println!("test {name}: {wrong} ... FAILED");
                self.failed.push(format!("{name}: {wrong}"));
            }
        }
    }

    fn finish(self) -> ExitCode {
        self.failed.iter().for_each(|failure| println!("failed: {failure}"));
        let verdict = if self.failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {verdict}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered \
             out\n",
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
        "no kernel from 6.18 on is in the cache: fetch one with `cpumax lab fetch`, or name one \
         with CPUMAX_SCX_KERNELS"
            .to_owned()
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

/// The directory into which `cpumax lab fetch` and `make scx-sources` write.
fn cache() -> PathBuf {
    Cache::of_user()
        .map_or_else(|_| PathBuf::from("/var/empty"), |cache| cache.folder().to_path_buf())
}

/// The numbers of `7.3`; nothing for other names, such as those of kernels with other options.
fn version(name: &str) -> Option<Vec<u32>> {
    name.split('.').map(|number| number.parse().ok()).collect()
}

/// This program, the scheduler, what these checks need besides, and the libraries of all.
fn archive(names: &[&str]) -> Vec<u8> {
    let me = env::current_exe().expect("this program has a path");
    let mut files: Vec<(String, PathBuf)> = vec![
        ("/init".to_owned(), me.clone()),
        ("/scx_cpumax".to_owned(), PathBuf::from(SCX_CPUMAX)),
    ];
    // Programs built from the kernel's own sources by `make scx-sources`.
    for path in fs::read_dir(cache().join("sources")).into_iter().flatten().flatten() {
        if path.path().is_file() {
            files.push((format!("/{}", path.file_name().to_string_lossy()), path.path()));
        }
    }
    if let Some(guest) = found(Need::Vm, Guest::find()) {
        files.push((GUEST.to_owned(), guest.path));
    }
    let mut programs = vec![me, PathBuf::from(SCX_CPUMAX)];
    // It is large, so others are spared it.
    let cpumax = Path::new(SCX_CPUMAX).with_file_name("cpumax");
    if names.contains(&"seen") && !cpumax.is_file() {
        missing(Need::Vm, "cpumax, which `cargo build -p cpumax` builds");
    } else if names.contains(&"seen") {
        files.push((CPUMAX.to_owned(), cpumax.clone()));
        programs.push(cpumax);
    }
    for program in programs {
        for library in libraries(&program) {
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
