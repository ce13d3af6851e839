//! The M/M/1 as a workload of the whole model on 7.3: each customer wakes a thread on a CPU.

use cpumax_machine::{Options, kernel, run};

const SCENARIO: &str = r#"
name = "mm1"
shows = "an M/M/1"
[machine]
cpus = 1
[[source]]
name = "customers"
channel = "queue"
every = { exponential = "1250us" }
[[channel]]
name = "queue"
[[task]]
name = "server"
program = [{ forever = [{ recv = "queue" }, { user = { exponential = "1ms" } }, { done = true }] }]
"#;

pub fn mm1(customers: u64) -> f64 {
    let workload = cpumax_workload::parse(SCENARIO, "mm1").expect("is a scenario");
    let workload = workload.with_duration(customers * 1_250_000).expect("is less than a day");
    let kernel = kernel::parse_kernels("7.3").expect("is a kernel")[0];
    let options = Options::new(kernel, 1);
    let outcome = run(&workload, &options, None, None).expect("runs");
    // The share of time in which it serves, because the queue is not visible from outside.
    outcome.tasks["server"].usage_usec as f64 * 1e3 / workload.duration_ns as f64
}
