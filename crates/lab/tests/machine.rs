//! Real machines: errors have the last lines of the console, and a user's program runs and writes
//! there. Needs virtual machines, and `cpumax lab fetch 6.12`.

use cpumax_lab::{Command, Error, Job, Lab, Mode, Quiet};
use cpumax_require::{Need, found, missing};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

const KERNEL: &str = "6.12";
/// A program that obeys its first argument.
const PROGRAM: &str = r#"
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "say" => {
            println!("pid {} of {}", std::process::id() > 1, arguments[1]);
            eprintln!("{}", std::fs::read_to_string("/data").unwrap());
            std::process::exit(7);
        }
        "crash" => std::fs::write("/proc/sysrq-trigger", "c").unwrap(),
        _ => {
            std::fs::write("/dev/kmsg", "<0>about to hang\n").unwrap();
            // A sleep would take no host time in a machine whose time is counted.
            loop { std::hint::spin_loop() }
        }
    }
}
"#;

/// The lab, if its kernel is fetched.
fn lab() -> Option<Lab> {
    found(Need::Vm, Lab::open().and_then(|lab| lab.kernel(KERNEL).map(|_| lab)))
}

/// The lab, if its machines are emulated: with KVM no two runs are equal.
fn emulating_lab() -> Option<Lab> {
    let lab = lab()?;
    let is_emulated = lab.host_cpus(Mode::Parallel { cpus: 2 }) == 1;
    if !is_emulated {
        missing(Need::Vm, "emulated machines, which CPUMAX_KVM=off has");
    }
    is_emulated.then_some(lab)
}

/// Builds a static program; `None` where that fails.
fn program(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("program.rs"), folder.join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = process::Command::new(rustc)
        .args(["-O", "-C", "target-feature=+crt-static", "-o"])
        .args([&program, &source])
        .status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        missing(Need::Vm, "a static program to run there, which rustc cannot build");
    }
    is_built.then_some(program)
}

fn command(program: &Path, words: &[&str], data: &Path) -> Command {
    let words = words.iter().map(|&word| word.to_owned());
    Command {
        kernel: KERNEL.to_owned(),
        mode: Mode::Exact,
        words: std::iter::once(program.to_str().unwrap().to_owned()).chain(words).collect(),
        files: vec![(data.to_owned(), "/data".to_owned())],
        kernel_arguments: String::new(),
        memory_mib: None,
        patience: None,
    }
}

/// The error inside [`Error::Kept`], and the console in its file.
fn kept(error: Error) -> (Error, String) {
    let Error::Kept { error, path } = error else { panic!("{error}") };
    (*error, std::fs::read_to_string(path).unwrap())
}

#[test]
fn the_output_and_the_status_of_a_program_are_passed_on() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let data = folder.path().join("data");
    std::fs::write(&data, "the data").unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let command = command(&program, &["say", "two words"], &data);
    let status = lab.run_command(&command, &Quiet, |is_error, bytes| {
        if is_error { err.extend_from_slice(bytes) } else { out.extend_from_slice(bytes) }
    });
    assert_eq!(status.unwrap(), 7);
    assert_eq!(String::from_utf8(out).unwrap(), "pid true of two words\n");
    assert_eq!(String::from_utf8(err).unwrap(), "the data\n");
}

#[test]
fn a_kept_run_is_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(lab) = lab().map(|lab| lab.keeping(folder.path()).unwrap()) else { return };
    let scenario = "duration = \"1ms\"\n[[task]]\nname = \"t\"\nprogram = [{ user = \"1us\" }]\n";
    let job = Job::new(KERNEL, Mode::Exact, scenario.to_owned(), 1, 1_000_000);
    let run = |job: &Job| lab.run(job, &Quiet);
    let first = run(&job).unwrap();
    assert_eq!(run(&job).unwrap(), first);
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    let of_another_seed = text.replacen("\"seed\":1", "\"seed\":2", 2);
    std::fs::write(&file, of_another_seed).unwrap();
    assert_eq!(run(&job).unwrap().outcome.seed, 2, "from the file");
    assert_eq!(run(&Job { seed: 3, ..job.clone() }).unwrap().outcome.seed, 3, "another job");
    std::fs::write(&file, "{}").unwrap();
    let told = run(&job).unwrap_err().to_string();
    assert!(told.contains(file.to_str().unwrap()) && told.contains("removed"), "{told}");
}

#[test]
fn emulated_cpus_side_by_side_do_the_same_in_every_run() {
    let Some(lab) = emulating_lab() else { return };
    let cpus = 4;
    let scenario = format!(
        "duration = \"200ms\"\n[machine]\ncpus = {cpus}\n[[group]]\npath = \"/g\"\n\
         max = \"20000 100000\"\n\
         [[task]]\nname = \"t\"\ngroup = \"/g\"\ncount = 6\n\
         program = [{{ forever = [{{ user = \"1ms\" }}, {{ sleep = \"1ms\" }}, \
         {{ done = true }}] }}]\n"
    );
    let job = Job::new(KERNEL, Mode::Parallel { cpus }, scenario, 1, 200_000_000);
    let run = || lab.run(&job, &Quiet).unwrap();
    let first = run();
    assert!(first.outcome.tasks["t"].completions > 0, "{first:?}");
    assert_eq!(run(), first);
    // The time-stamp counter has 1 GHz, by the kernel's own measure.
    let calibration = lab.ready(KERNEL, job.mode, &Quiet).unwrap().calibration;
    assert!(calibration.stamp_fs.abs_diff(1_000_000) < 1_000, "{calibration:?}");
}

/// A call was measured at boot, by one CPU alone.
#[test]
fn work_in_the_kernel_is_as_long_as_it_says_where_others_work_too() {
    let Some(lab) = emulating_lab() else { return };
    let cpus = 4;
    let scenario = format!(
        "duration = \"2s\"\n[machine]\ncpus = {cpus}\n[[task]]\nname = \"t\"\ncount = {cpus}\n\
         cpus = \"each\"\n\
         program = [{{ forever = [{{ kernel = \"10ms\" }}, {{ done = true }}] }}]\n"
    );
    let job = Job::new(KERNEL, Mode::Parallel { cpus }, scenario, 1, 2_000_000_000);
    let outcome = lab.run(&job, &Quiet).unwrap().outcome;
    let tasks = &outcome.tasks["t"];
    let each_us = tasks.usage_usec / tasks.completions;
    // The last request of each task is not complete.
    let most_us = 10_300 + 10_000 * u64::from(cpus) / tasks.completions;
    assert!((9_700..most_us).contains(&each_us), "{each_us} us: {tasks:?}");
}

#[test]
fn a_panic_is_an_error_with_the_end_of_the_console() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let crash = command(&program, &["crash"], &program);
    let (error, console) = kept(lab.run_command(&crash, &Quiet, |_, _| {}).unwrap_err());
    let told = error.to_string();
    assert!(matches!(error, Error::Panic { .. }), "{told}");
    assert!(told.contains("panicked") && told.contains("sysrq"), "{told}");
    assert!(console.contains("Kernel panic - not syncing"), "{console}");
}

#[test]
fn a_machine_that_hangs_is_ended_and_its_console_is_shown() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let hang = Command {
        patience: Some(Duration::from_secs(5)),
        ..command(&program, &["hang"], &program)
    };
    let (error, _) = kept(lab.run_command(&hang, &Quiet, |_, _| {}).unwrap_err());
    let told = error.to_string();
    assert!(matches!(error, Error::TimedOut { .. }) && error.is_timeout(), "{told}");
    assert!(told.contains("within 5 s") && told.contains("about to hang"), "{told}");
}

#[test]
fn a_kernel_without_init_is_told_as_a_panic() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    std::fs::write(&nothing, "").unwrap();
    let job = Command {
        kernel_arguments: "rdinit=/nowhere".to_owned(),
        ..command(&nothing, &[], &nothing)
    };
    let (error, _) = kept(lab.run_command(&job, &Quiet, |_, _| {}).unwrap_err());
    assert!(matches!(error, Error::Panic { .. }), "{error}");
    assert!(error.to_string().contains("VFS: Unable to mount root fs"), "{error}");
}

#[test]
fn the_console_of_a_boot_that_fails_is_kept() {
    let Some(lab) = lab() else { return };
    let mut job = Job::new(KERNEL, Mode::Exact, "duration = \"1s\"\n".to_owned(), 1, 1_000_000_000);
    job.kernel_arguments = "rdinit=/nowhere".to_owned();
    let (error, console) = kept(lab.run(&job, &Quiet).unwrap_err());
    assert!(matches!(error, Error::Panic { .. }), "{error}");
    assert!(console.contains("Kernel panic"), "{console}");
}

#[test]
fn a_program_that_is_not_there_is_refused() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    std::fs::write(&nothing, "").unwrap();
    let mut job = command(&nothing, &[], &nothing);
    job.words = vec!["data".to_owned()];
    let told = lab.run_command(&job, &Quiet, |_, _| {}).unwrap_err().to_string();
    assert!(told.contains("data: "), "{told}");
}

#[test]
fn an_unknown_kernel_is_refused_before_anything_boots() {
    let Some(lab) = lab() else { return };
    let job = Job::new("9.9", Mode::Exact, String::new(), 1, 1);
    let told = lab.run(&job, &Quiet).unwrap_err().to_string();
    assert!(told.contains("9.9") && told.contains("6.12"), "{told}");
}
