//! Makes the same writes to this crate and to the cgroup files of the running kernel, and compares.
//!
//! Needs control groups: root and a cpu controller. The test works in a group of its own below the
//! root of the hierarchy and removes it.

use cpumax_limit::{File, Hierarchy, Limit, LimitError, Place, Rules};
use cpumax_require::{Need, found};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Group (0 the root of the hierarchy, 1 below it, 2 below 1), file, text.
type Step = (usize, File, &'static str);

const V1: &[Step] = {
    use File::{CfsBurstUs as BURST, CfsPeriodUs as PERIOD, CfsQuotaUs as QUOTA};
    &[
        (0, QUOTA, "-1"),
        (0, PERIOD, "100000"),
        (0, BURST, "0"),
        (1, QUOTA, "50000"),
        (1, QUOTA, " 50000"),
        (1, QUOTA, "50000 "),
        (1, QUOTA, "50000\n"),
        (1, QUOTA, "50000\n\n"),
        (1, QUOTA, "+60000"),
        (1, QUOTA, "0xC350"),
        (1, QUOTA, "0X2710"),
        (1, QUOTA, "0o10"),
        (1, QUOTA, "0303240"),
        (1, QUOTA, "09000"),
        (1, QUOTA, "0x"),
        (1, QUOTA, "\n"),
        (1, QUOTA, "-5"),
        (1, QUOTA, "--1"),
        (1, QUOTA, "-0"),
        (1, QUOTA, "-0x1"),
        (1, QUOTA, "1000"),
        (1, QUOTA, "999"),
        (1, QUOTA, "2000\0junk"),
        (1, QUOTA, "50000abc"),
        (1, QUOTA, "max"),
        (1, QUOTA, "5e4"),
        (1, QUOTA, "17592186044415"),
        (1, QUOTA, "17592186044416"),
        (1, QUOTA, "9223372036854775807"),
        (1, QUOTA, "9223372036854775808"),
        (1, QUOTA, "-9223372036854775808"),
        (1, QUOTA, "-9223372036854775809"),
        (1, QUOTA, "18446744073709551"),
        (1, QUOTA, "18446744073709552"),
        (1, QUOTA, "99999999999999999999999x"),
        (1, QUOTA, "+-1"),
        (1, QUOTA, "000000000000000000000000001750"),
        (1, QUOTA, "50000\r\n"),
        (1, PERIOD, "1000"),
        (1, PERIOD, "999"),
        (1, PERIOD, "1000000"),
        (1, PERIOD, "1000001"),
        (1, PERIOD, "-1"),
        (1, PERIOD, "0"),
        (1, PERIOD, "18446744073709551615"),
        (1, PERIOD, "18446744073709551616"),
        (1, PERIOD, "100000 50000"),
        (1, PERIOD, "100000"),
        (1, QUOTA, "50000"),
        (1, BURST, "50000"),
        (1, BURST, "50001"),
        (1, BURST, "-1"),
        (1, BURST, "+1"),
        (1, BURST, "18446744073709552"),
        (1, QUOTA, "-1"),
        (1, BURST, "80000"),
        (1, QUOTA, "50000"),
        (1, BURST, "18446744073709551"),
        (1, BURST, "1"),
        (1, QUOTA, "17592186044415"),
        (1, QUOTA, "17592186044414"),
        (1, BURST, "2"),
        (1, BURST, "0"),
        // Below a limit of half a CPU.
        (1, QUOTA, "50000"),
        (2, QUOTA, "50001"),
        (2, QUOTA, "50000"),
        (2, PERIOD, "99999"),
        (2, PERIOD, "200000"),
        (2, QUOTA, "100000"),
        (2, QUOTA, "100001"),
        (1, QUOTA, "49999"),
        (1, PERIOD, "100001"),
        (2, QUOTA, "-1"),
        (1, QUOTA, "49999"),
        (2, QUOTA, "100000"),
        (1, QUOTA, "-1"),
        (2, QUOTA, "900000"),
        (1, QUOTA, "-1"),
        (1, PERIOD, "1000"),
    ]
};

const V2: &[Step] = {
    use File::{CpuMax as MAX, CpuMaxBurst as BURST};
    &[
        (1, MAX, "50000"),
        (1, MAX, "50000 20000"),
        (1, MAX, "  60000\t30000\n"),
        (1, MAX, "max"),
        (1, MAX, "max 50000"),
        (1, MAX, "Max"),
        (1, MAX, "maxx"),
        (1, MAX, "-1"),
        (1, MAX, "+50000"),
        (1, MAX, "50000,20000"),
        (1, MAX, "70000us"),
        (1, MAX, "50000 20000 30000"),
        (1, MAX, "50000 -20000"),
        (1, MAX, "0x20000"),
        (1, MAX, "0000000000000005000020000"),
        (1, MAX, "\n"),
        (1, MAX, "999 100000"),
        (1, MAX, "1000 100000"),
        (1, MAX, "1000 999"),
        (1, MAX, "1000 1000001"),
        (1, MAX, "17592186044415 100000"),
        (1, MAX, "17592186044416 100000"),
        (1, MAX, "18446744073759552 100000"),
        (1, MAX, "18446744073709551615 100000"),
        (1, MAX, "50000 100000"),
        (1, BURST, "20000"),
        (1, MAX, "40000"),
        (1, BURST, "0x10"),
        (1, BURST, "40001"),
        (1, BURST, "18446744073709552"),
        (1, BURST, "18446744073709551616"),
        (1, MAX, "max"),
        (1, BURST, "80000"),
        (1, MAX, "50000"),
        (1, BURST, "max"),
        (1, BURST, "0"),
        (1, MAX, "50000"),
        (2, MAX, "60000"),
        (2, MAX, "max"),
    ]
};

#[test]
fn the_kernel_agrees_with_every_write() {
    let root = controller().ok_or("a writable cpu controller (root and a cgroup hierarchy)");
    let Some((hierarchy, root)) = found(Need::Cgroup, root) else { return };
    let rules = running_kernel();
    let outer = root.join(format!("cpumax-limit-test-{}", std::process::id()));
    let groups = Groups::create([root, outer.clone(), outer.join("inner")], hierarchy);
    let steps = if hierarchy == Hierarchy::V1 { V1 } else { V2 };
    let mut limits = [Limit::UNLIMITED; 3];
    for step in steps {
        let expected = write(&limits, *step, hierarchy, rules);
        let got = groups.write(*step);
        let errno = expected.as_ref().err().map(|error| error.errno() as i32);
        assert_eq!(errno, got, "{step:?}: {expected:?}, the kernel gives errno {got:?}");
        if let Ok(limit) = expected {
            limits[step.0] = limit;
        }
        groups.compare(&limits, *step, hierarchy);
    }
}

/// The limit of the group written to after the write, or why the kernel refuses it.
fn write(
    limits: &[Limit; 3],
    (group, file, text): Step,
    hierarchy: Hierarchy,
    rules: Rules,
) -> Result<Limit, LimitError> {
    let limit = limits[group].write(file, text, &rules)?;
    if group == 0 {
        return Err(LimitError::Root);
    }
    let mut places =
        [0, 1, 2].map(|group: usize| Place { parent: group.checked_sub(1), limit: limits[group] });
    places[group].limit = limit;
    hierarchy.effective_ratios(&places, &rules).map(|_| limit)
}

/// Three nested groups; the lower two are removed at the end.
struct Groups([PathBuf; 3]);

impl Groups {
    fn create(paths: [PathBuf; 3], hierarchy: Hierarchy) -> Groups {
        fs::create_dir(&paths[1]).expect("a writable hierarchy");
        let groups = Groups(paths);
        if hierarchy == Hierarchy::V2 {
            fs::write(groups.0[1].join("cgroup.subtree_control"), "+cpu").unwrap();
        }
        fs::create_dir(&groups.0[2]).unwrap();
        groups
    }

    /// The error number, if the kernel refuses.
    fn write(&self, (group, file, text): Step) -> Option<i32> {
        let path = self.0[group].join(file.name());
        match fs::OpenOptions::new().write(true).open(path) {
            Ok(mut file) => file.write_all(text.as_bytes()).err()?.raw_os_error(),
            Err(error) => error.raw_os_error(),
        }
    }

    fn compare(&self, limits: &[Limit; 3], step: Step, hierarchy: Hierarchy) {
        let files: &[File] = match hierarchy {
            Hierarchy::V1 => &[File::CfsQuotaUs, File::CfsPeriodUs, File::CfsBurstUs],
            Hierarchy::V2 => &[File::CpuMax, File::CpuMaxBurst],
        };
        for group in [1, 2] {
            for file in files {
                let Ok(reads) = fs::read_to_string(self.0[group].join(file.name())) else {
                    continue;
                };
                let ours = limits[group].read(*file);
                assert_eq!(ours, reads.trim_end(), "{} of {group} after {step:?}", file.name());
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0[2]);
        let _ = fs::remove_dir(&self.0[1]);
    }
}

fn controller() -> Option<(Hierarchy, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let path = Path::new(fields.get(1)?).to_path_buf();
        match *fields.get(2)? {
            "cgroup" if fields.get(3)?.split(',').any(|option| option == "cpu") => {
                Some((Hierarchy::V1, path))
            }
            "cgroup2" => {
                let controllers = fs::read_to_string(path.join("cgroup.subtree_control")).ok()?;
                let has_cpu = controllers.split_whitespace().any(|name| name == "cpu");
                has_cpu.then_some((Hierarchy::V2, path))
            }
            _ => None,
        }
    };
    let found = mounts.lines().find_map(mount)?;
    // Only making a group shows whether that is allowed.
    let probe = found.1.join(format!("cpumax-limit-probe-{}", std::process::id()));
    fs::create_dir(&probe).ok()?;
    fs::remove_dir(&probe).ok()?;
    Some(found)
}

fn running_kernel() -> Rules {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Rules::of(major, minor),
        _ => panic!("cannot tell the version of kernel {release:?}"),
    }
}
