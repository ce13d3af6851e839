// SPDX-License-Identifier: GPL-2.0-only
//! Ends this program in several ways while one of its machines runs. Afterwards neither the machine
//! nor a file is left.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::Checked;
use crate::host::QEMU;

pub const NAME: &str = "killed_runner";
/// Directory of the temporary files.
const TEMPORARY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/killed_runner");
/// Timeout that is long enough on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);
/// A check that takes much longer than killing it.
const CHECK: &str = "rates_of_few";

pub fn runner() -> Checked {
    for (what, signal, below_a_shell) in [
        ("SIGINT", libc::SIGINT, false),
        ("SIGTERM", libc::SIGTERM, false),
        ("SIGKILL", libc::SIGKILL, false),
        // As under cargo, which does not end its children when it is killed.
        ("SIGKILL of the one that started it", libc::SIGKILL, true),
    ] {
        let outcome = start(below_a_shell)
            .map_err(|error| format!("it does not start: {error}"))
            .and_then(|child| end(child, signal));
        // A failure here must not leave processes behind for other tests.
        for pid in processes() {
            // SAFETY: plain numbers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let left = left_files();
        let _ = fs::remove_dir_all(TEMPORARY);
        outcome.map_err(|wrong| format!("{what}: {wrong}"))?;
        if !left.is_empty() {
            return Err(format!("{what}: it leaves {left:?}"));
        }
    }
    Ok("ended in four ways".to_owned())
}

fn start(below_a_shell: bool) -> std::io::Result<Child> {
    fs::create_dir_all(TEMPORARY)?;
    let me = env::current_exe()?;
    let mut command = if below_a_shell {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" \"$1\"; true"]).arg(me);
        shell
    } else {
        Command::new(me)
    };
    command.arg(CHECK).env("TMPDIR", TEMPORARY).env("CARGO", "cargo").env_remove("CPUMAX_SCX_SET");
    // Keeps the machine's end from affecting other processes of the terminal.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn()
}

fn end(mut child: Child, signal: i32) -> Result<(), String> {
    let wait = |what: &str, condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() {
            if start.elapsed() > PATIENCE {
                return Err(format!("{what} after {PATIENCE:?}"));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    let started = wait("there is no machine", &|| processes().into_iter().any(is_machine));
    // SAFETY: plain numbers; the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    let _ = child.wait();
    started?;
    wait("it still runs", &|| processes().is_empty())
}

/// Processes whose temporary directory is the given one, so all that this check started.
fn processes() -> Vec<i32> {
    let told = format!("TMPDIR={TEMPORARY}\0");
    let of_check = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&told))
    };
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(of_check).collect()
}

/// Whether the process runs a machine; one that only prints its version does not count.
fn is_machine(pid: i32) -> bool {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
    line.starts_with(QEMU) && line.contains("-initrd")
}

fn left_files() -> Vec<String> {
    let entries = fs::read_dir(TEMPORARY).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
