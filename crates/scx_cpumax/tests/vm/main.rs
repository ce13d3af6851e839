// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler on real kernels, each in a virtual machine of its own (QEMU, no acceleration
//! needed).
//!
//! This program is both sides. Cargo starts it, and it boots the machines and collects their
//! results. As the first process of a machine it carries out the checks, and it plays every load.
//! `CPUMAX_SCX_SET=all` runs all checks (`make scx-test`), otherwise only the quick ones run; a
//! name on the command line picks checks. The kernels are those that `cpumax lab fetch` put into
//! the user's cache, or the files that `CPUMAX_SCX_KERNELS` names, separated by colons. Output
//! names checks that cannot run.

mod checks;
mod guest;
mod host;
mod killed;
mod loads;
mod ring;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if std::process::id() == 1 {
        guest::main();
    }
    if args.first().is_some_and(|name| name == "sh") {
        checks::shell();
    }
    if args.get(1).is_some_and(|arg| arg == "load") {
        loads::main(&args[2..]);
    }
    host::main(&args[1..])
}
