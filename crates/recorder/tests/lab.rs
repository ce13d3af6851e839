//! Recordings on real kernels in virtual machines. `make guest` builds the program that runs there,
//! `make kernels` gets the kernels.

use cpumax_lab::catalog::{self, Set};
use cpumax_lab::{Command, Lab, Mode, Quiet};
use cpumax_recording::{Options, Recording};
use cpumax_require::{Need, found, missing};
use std::path::{Path, PathBuf};

/// Largest relative error of recorded CPU time against the threads' own clocks without recording.
const OFF: f64 = 0.01;
/// Each of the two threads is woken once in a round.
const ROUNDS: u64 = 200;

/// `examples/in_lab.rs`, linked statically.
fn program() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let program = root.join(target).join("guest/release/examples/in_lab");
    if !program.exists() {
        missing(Need::Vm, format!("no {}, which `make guest` builds", program.display()));
        return None;
    }
    Some(program)
}

#[test]
fn recordings_on_each_kernel_are_accurate() {
    let Some(lab) = found(Need::Vm, Lab::open()) else { return };
    let Some(program) = program() else { return };
    let kernels = catalog::list(Set::Test);
    for kernel in kernels.split(',').filter(|name| !name.contains('-')) {
        if found(Need::Vm, lab.kernel(kernel)).is_some() {
            holds(&lab, kernel, &program);
        }
    }
}

/// Records in the virtual machine and reads the file here.
fn holds(lab: &Lab, kernel: &str, program: &Path) {
    let command = Command {
        kernel: kernel.to_owned(),
        mode: Mode::Parallel { cpus: 2 },
        words: vec![program.to_str().unwrap().to_owned()],
        files: Vec::new(),
        kernel_arguments: String::new(),
        memory_mib: Some(512),
        patience: Some(std::time::Duration::from_secs(300)),
    };
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let status = lab.run_command(&command, &Quiet, |is_error, text| {
        if is_error { &mut complained } else { &mut said }.extend_from_slice(text);
    });
    let complained = String::from_utf8_lossy(&complained).into_owned();
    assert_eq!(status.unwrap(), 0, "{kernel}: {complained}");
    let said = String::from_utf8(said).unwrap();
    let word = |name: &str| {
        let line = said.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.split_once(' ')).unwrap_or_else(|| panic!("{kernel}: {said}")).1
    };
    assert_eq!(word("lost"), "0", "{kernel}");
    let hex = word("file").as_bytes();
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let file: Vec<u8> = hex.chunks(2).map(digits).collect();
    let recording = Recording::read_bytes(kernel, &file, Options::default()).unwrap();
    let summary = recording.summary();
    assert!(summary.about.is_some_and(|about| about.release.starts_with(kernel)), "{kernel}");
    for name in ["first", "other"] {
        // The first line with this name is from the run without recording.
        let own_ns: f64 = word(name).parse().unwrap();
        let thread = summary.threads.iter().find(|thread| thread.comm == name).unwrap();
        let off = (thread.runtime_ns as f64 / own_ns - 1.0).abs();
        assert!(off < OFF, "{kernel}, {name}: {} ns of {own_ns}", thread.runtime_ns);
        assert!(thread.waits + 2 >= ROUNDS, "{kernel}, {name}: {} waits", thread.waits);
    }
}
