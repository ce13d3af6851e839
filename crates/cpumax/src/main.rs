//! The program `cpumax`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    ExitCode::from(cpumax::main(&words))
}
