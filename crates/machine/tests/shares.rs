//! What the pull rules promise about two limited groups that compete on many CPUs: alike threads get alike parts. A group
//! with fewer tasks queued on a CPU than on others, as it got less of that CPU, weighs no less there.

use cpumax_machine::kernel::parse_kernels;
use cpumax_machine::{Options, run};

#[test]
fn groups_that_run_out_together_share_each_cpu() {
    let file = "../../scenarios/profile-small.toml";
    let text = std::fs::read_to_string(file).unwrap();
    let mut workload = cpumax_workload::parse(&text, file).unwrap();
    workload.duration_ns = 5_000_000_000;
    let kernel = parse_kernels("pull").unwrap()[0];
    let outcome = run(&workload, &Options::new(kernel, 1), None, None).unwrap();
    let used = outcome.tasks.values().map(|task| task.usage_usec);
    let mean = used.clone().sum::<u64>() / outcome.tasks.len() as u64;
    let least = used.min().unwrap();
    assert!(least * 100 >= mean * 70, "{least} us of {mean} in the mean");
    // Some rounds of the CPU that has most threads. With shares by what is queued it was 1.8 s, and 64 % of the mean.
    let longest_ns = outcome.tasks.values().map(|task| task.longest_stall_ns).max().unwrap();
    assert!(longest_ns <= 1_200_000_000, "{longest_ns} ns");
}
