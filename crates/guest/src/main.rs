//! The program `cpumax-guest`: `/init` of a virtual machine, or a subprocess on a host.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(cpumax_guest::guest() as u8)
}
