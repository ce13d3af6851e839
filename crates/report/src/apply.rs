//! Prints a limit in the form that other systems take. Values are never rounded down; comments name
//! what a system cannot express.

mod change;
mod kubernetes;
mod object;
mod quantity;
mod resources;

pub use change::Chosen;
pub use kubernetes::Patch;
pub use object::Refused;

use crate::advised::advice_sentence;
use crate::escape;
use cpumax_forecast::advise::{Advice, Case};
use cpumax_study::Try;
use std::fmt::Write;

/// A system that sets limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// A strategic-merge patch of an object of Kubernetes.
    Kubernetes,
    /// The `kubectl` line with such a patch.
    Kubectl,
    /// Values for a Helm chart.
    Helm,
    /// A patch in a kustomization.
    Kustomize,
    /// A drop-in of a unit.
    Systemd,
    /// `docker update`.
    Docker,
    /// The files of the control group.
    Cgroup,
}

impl System {
    /// Names of all systems, in the order of the variants.
    pub const NAMES: [&str; 7] =
        ["kubernetes", "kubectl", "helm", "kustomize", "systemd", "docker", "cgroup"];

    /// The system of this name.
    pub fn of(name: &str) -> Option<System> {
        let all = [
            System::Kubernetes,
            System::Kubectl,
            System::Helm,
            System::Kustomize,
            System::Systemd,
            System::Docker,
            System::Cgroup,
        ];
        all.into_iter().find(|system| system.name() == name)
    }

    /// Name of the system.
    pub fn name(self) -> &'static str {
        System::NAMES[self as usize]
    }

    /// Whether the system can set a burst.
    pub fn has_burst(self) -> bool {
        self == System::Cgroup
    }
}

/// The recommended limit in the form of `system`, for the chosen container of an object, else for
/// the recorded group, or for `/GROUP` where the recordings name several.
///
/// # Errors
/// There is no limit, the system cannot express it, or would refuse it.
pub fn advice_in_form(
    answer: &Advice,
    cases: &[Case],
    system: System,
    chosen: Option<&Chosen>,
) -> Result<String, Refused> {
    let limit = answer.recommended().and_then(|found| found.smallest.as_ref());
    let limit = limit.map_or_else(Try::none, |probe| probe.limit.clone());
    let mut paths = cases.iter().map(|case| case.replay.recorded_path());
    let first = paths.next().flatten().filter(|first| paths.all(|path| path == Some(*first)));
    let group = first.unwrap_or("/GROUP");
    limit_in_form(system, &limit, &advice_sentence(answer, cases), group, chosen)
}

/// A limit in the form of `system`; `why` is the sentence that names it, and `group` the recorded
/// path of the service.
///
/// # Errors
/// There is no quota, the system cannot express the limit, or would refuse it.
pub fn limit_in_form(
    system: System,
    limit: &Try,
    why: &str,
    group: &str,
    chosen: Option<&Chosen>,
) -> Result<String, Refused> {
    let (Some(quota_ns), Some(milli), Some(percent)) =
        (limit.limit.quota_ns(), limit.limit.millicpus(), limit.limit.percent())
    else {
        return object::refused("there is no limit to print");
    };
    let quota_us = quota_ns / 1_000;
    let (period_us, burst_us) = (limit.limit.period_ns() / 1_000, limit.limit.burst_ns() / 1_000);
    if burst_us > 0 && !system.has_burst() {
        return object::refused(format!(
            "-o {} cannot set a burst, only -o cgroup can: give --burst 0",
            system.name()
        ));
    }
    let mut out = String::new();
    let mut say = |text: &str| {
        for line in escape::lines(text).lines() {
            let _ = writeln!(out, "# {line}");
        }
    };
    say(why);
    match system {
        System::Kubernetes | System::Kubectl | System::Helm | System::Kustomize => {
            return kubernetes::form(system, chosen, milli, period_us, why);
        }
        System::Systemd => {
            say("A drop-in: SERVICE.service.d/cpu.conf beside the unit, or");
            say("  systemctl edit SERVICE");
            say("Whole per cent of a CPU; parts of one are rounded up. systemd sets no burst.");
            let _ =
                write!(out, "[Service]\nCPUQuota={percent}%\nCPUQuotaPeriodSec={period_us}us\n");
        }
        System::Docker => {
            say("Put the container's name in place of CONTAINER. Nothing is rounded. docker sets");
            say("no burst. A container that was started with --cpus must be started anew with");
            say("these two options instead, as docker refuses to mix them.");
            let _ = writeln!(
                out,
                "docker update --cpu-period {period_us} --cpu-quota {quota_us} CONTAINER"
            );
        }
        System::Cgroup => {
            say("As root. The path is that of the recorded machine. Nothing is rounded. The burst");
            say("goes first to 0: the kernel refuses a quota below it.");
            out.push_str(&files(&quoted(group), [quota_us, period_us, burst_us]));
        }
    }
    Ok(out)
}

/// Shell lines that write the files of a group: those of cgroup v2, or, where it has none, of v1.
/// The v1 period is set while there is no quota that it could contradict.
fn files(group: &str, [quota_us, period_us, burst_us]: [u64; 3]) -> String {
    // Kernels before 5.14 have no file for a burst.
    let no_burst = |file: &str| format!("  [ ! -e \"{file}\" ] || echo 0 > \"{file}\"\n");
    let burst = |file: &str| match burst_us {
        0 => String::new(),
        _ => format!("  echo {burst_us} > \"{file}\"\n"),
    };
    let (burst_v2, burst_v1) = ("$v2/cpu.max.burst", "$v1/cpu.cfs_burst_us");
    format!(
        "group={group}\nv2=\"/sys/fs/cgroup$group\" v1=\"/sys/fs/cgroup/cpu$group\"\n\
         if [ -e \"$v2/cpu.max\" ]; then\n{}  echo '{quota_us} {period_us}' > \"$v2/cpu.max\"\n{}\
         else\n{}  echo -1 > \"$v1/cpu.cfs_quota_us\"\n\
         \x20 echo {period_us} > \"$v1/cpu.cfs_period_us\"\n\
         \x20 echo {quota_us} > \"$v1/cpu.cfs_quota_us\"\n{}fi\n",
        no_burst(burst_v2),
        burst(burst_v2),
        no_burst(burst_v1),
        burst(burst_v1),
    )
}

/// A path quoted for a shell; `/GROUP` for a path with hidden characters.
fn quoted(path: &str) -> String {
    if path.chars().any(escape::is_hidden) {
        return "/GROUP".to_owned();
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [System; 4] = [System::Kubernetes, System::Systemd, System::Docker, System::Cgroup];

    fn text(system: System, limit: &str) -> String {
        let limit = Try::parse(limit).unwrap();
        limit_in_form(system, &limit, "Because.", "/a b'c", None).unwrap()
    }

    /// The lines that are not comments.
    fn orders(system: System, limit: &str) -> String {
        let text = text(system, limit);
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_system_is_found_by_its_name() {
        assert!(System::NAMES.iter().all(|name| System::of(name).unwrap().name() == *name));
        assert_eq!(System::of("podman"), None);
    }

    #[test]
    fn each_system_gets_it_in_its_own_words() {
        assert!(
            orders(System::Kubernetes, "80000 100000").ends_with("limits:\n            cpu: 800m")
        );
        assert_eq!(
            orders(System::Systemd, "80000 100000"),
            "[Service]\nCPUQuota=80%\nCPUQuotaPeriodSec=100000us"
        );
        assert_eq!(
            orders(System::Docker, "8000 10000"),
            "docker update --cpu-period 10000 --cpu-quota 8000 CONTAINER"
        );
        let lines = orders(System::Cgroup, "80000 100000,cpu.max.burst=40000");
        assert!(lines.starts_with("group='/a b'\\''c'\n"), "{lines}");
        for system in ALL {
            assert!(text(system, "80000 100000").starts_with("# Because.\n"));
        }
    }

    #[test]
    fn files_of_either_version_are_written() {
        use std::{fs, process::Command};
        let root = tempfile::tempdir().unwrap();
        let [v1, v2] = ["cpu/a b'c", "a b'c"].map(|path| root.path().join(path));
        let all = text(System::Cgroup, "80000 100000,cpu.max.burst=40000");
        let script = all.replace("/sys/fs/cgroup", root.path().to_str().unwrap());
        let apply = || {
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            output.status.success()
        };
        let file = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert!(!apply(), "there is no such group");
        fs::create_dir_all(&v1).unwrap();
        fs::write(v1.join("cpu.cfs_quota_us"), "-1").unwrap();
        assert!(apply());
        let of = |what: &str| file(&format!("cpu/a b'c/cpu.cfs_{what}_us"));
        let written = ["quota", "period", "burst"].map(of);
        assert_eq!(written, ["80000\n", "100000\n", "40000\n"]);
        fs::create_dir_all(&v2).unwrap();
        fs::write(v2.join("cpu.max"), "max 100000").unwrap();
        assert!(apply());
        let written = ["cpu.max", "cpu.max.burst"].map(|of| file(&format!("a b'c/{of}")));
        assert_eq!(written, ["80000 100000\n", "40000\n"]);
    }

    #[test]
    fn nothing_is_rounded_down() {
        assert!(orders(System::Kubernetes, "80001 100000").ends_with("cpu: 801m"));
        assert!(orders(System::Systemd, "80001 100000").contains("CPUQuota=81%"));
        for (quota_us, period_us) in [(1_000, 3_000), (33_333, 99_999), (1_000_000, 1_000_000)] {
            let set = format!("{quota_us} {period_us}");
            let milli = orders(System::Kubernetes, &set);
            let milli = milli.rsplit(' ').next().unwrap().trim_matches('"').to_owned();
            let percent = orders(System::Systemd, &set);
            let percent = percent.split(['=', '\n']).nth(2).unwrap().to_owned();
            for told in [milli, percent] {
                let back = Try::parse(&format!("{told}/{period_us}us")).unwrap().limit;
                assert!(back.quota_ns() >= Some(quota_us * 1_000), "{told} for {set}");
                assert_eq!(back.period_ns(), period_us * 1_000);
            }
        }
    }

    #[test]
    fn who_has_no_burst_gets_no_limit_that_needs_one() {
        let limit = Try::parse("80000 100000,cpu.max.burst=40000").unwrap();
        for system in ALL {
            let form = limit_in_form(system, &limit, "", "/a", None);
            assert_eq!(form.is_ok(), system.has_burst());
        }
        let none = limit_in_form(System::Docker, &Try::none(), "", "/a", None);
        assert_eq!(none.unwrap_err().to_string(), "there is no limit to print");
    }
}
