//! `/init` of a virtual machine, or a subprocess on the host: runs the jobs it is given.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(cpumax_guest::guest() as u8)
}
