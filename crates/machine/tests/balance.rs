//! Where tasks go that have several CPUs to choose from.

use cpumax_machine::kernel::parse_kernels;
use cpumax_machine::{Options, run};
use std::collections::BTreeMap;

/// CPU time of each kind of task, ms.
fn used_ms(kernel: &str, text: &str) -> BTreeMap<String, u64> {
    let workload = cpumax_workload::parse(text, "s.toml").expect("is a workload");
    let kernel = parse_kernels(kernel).expect("is a kernel")[0];
    let options = Options { check: true, ..Options::new(kernel, 1) };
    let outcome = run(&workload, &options, None, None).expect("runs");
    outcome.tasks.into_iter().map(|(name, task)| (name, task.usage_usec / 1000)).collect()
}

const KERNELS: [&str; 7] = ["4.18", "5.4", "6.1", "6.12", "6.18", "7.2", "7.3"];

#[test]
fn three_busy_tasks_share_two_cpus() {
    let hog = |name| format!("[[task]]\nname = \"{name}\"\nprogram = [{{ user = \"1min\" }}]\n");
    let text = ["duration = \"10s\"\n[machine]\ncpus = 2\n", &hog("a"), &hog("b"), &hog("c")];
    for kernel in KERNELS {
        for (name, ms) in used_ms(kernel, &text.concat()) {
            assert!((5_900..7_500).contains(&ms), "{name}: {ms} ms of 6667 on {kernel}");
        }
    }
}

#[test]
fn a_light_group_and_a_heavy_one_have_a_cpu_each() {
    // Two tasks of a group of weight 300 on one CPU and two of weight 100 on the other are unequal loads: one of the heavy group
    // goes to the other CPU, where it gets three quarters or less.
    let text = "duration = \"10s\"\n[machine]\ncpus = 2\n[[group]]\npath = \"/heavy\"\nweight = 300\n\
                [[group]]\npath = \"/light\"\n[[task]]\nname = \"heavy\"\ngroup = \"/heavy\"\ncount = 2\n\
                program = [{ user = \"1min\" }]\n[[task]]\nname = \"light\"\ngroup = \"/light\"\ncount = 2\n\
                program = [{ user = \"1min\" }]\n";
    for kernel in ["5.4", "6.1", "6.12", "6.18", "7.2"] {
        let used_ms = used_ms(kernel, text);
        assert!((12_500..16_500).contains(&used_ms["heavy"]), "{used_ms:?} on {kernel}");
    }
}

#[test]
fn who_wakes_up_goes_where_only_class_idle_runs() {
    let text = "duration = \"3s\"\n[machine]\ncpus = 2\n\
                [[task]]\nname = \"idler\"\nclass = \"idle\"\ncpus = \"0\"\nprogram = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"hog\"\ncpus = \"1\"\nprogram = [{ user = \"1min\" }]\n\
                [[task]]\nname = \"worker\"\ncpus = \"1\"\n\
                program = [{ affinity = \"0-1\" }, { forever = [{ sleep = \"5ms\" }, { user = \"5ms\" }] }]\n";
    for kernel in KERNELS {
        let used_ms = used_ms(kernel, text);
        let undisturbed = used_ms["hog"] >= 2_970;
        assert_eq!(undisturbed, kernel != "4.18", "{used_ms:?} on {kernel}");
    }
}
