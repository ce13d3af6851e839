//! For tests: things that a test needs and not every machine has, such as virtual machines, control
//! groups, `perf`, BPF. Where one is missing the test says so and passes, unless `CPUMAX_REQUIRE`
//! demands it: then the test fails.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use std::fmt::{self, Display};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The environment variable that lists demanded needs, such as `vm,cgroup`.
pub const VARIABLE: &str = "CPUMAX_REQUIRE";

/// Something that a test may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Virtual machines: QEMU, the guest (`make guest`) and kernels (`cpumax lab fetch`).
    Vm,
    /// Making control groups with a CPU limit on this machine.
    Cgroup,
    /// The program `perf`, with the right to record.
    Perf,
    /// Loading BPF programs, and a build that contains them.
    Bpf,
    /// Mounting file systems, and namespaces with mounts of their own.
    Mount,
    /// Chromium, Node.js, and the packages that `make browser` installs.
    Browser,
    /// The program `prometheus`.
    Prometheus,
    /// An API server of Kubernetes, which `make kube` builds.
    Kube,
    /// A node of Kubernetes in a virtual machine, whose parts `make kube` builds.
    Node,
}

impl Need {
    const ALL: [Need; 9] = [
        Need::Vm,
        Need::Cgroup,
        Need::Perf,
        Need::Bpf,
        Need::Mount,
        Need::Browser,
        Need::Prometheus,
        Need::Kube,
        Need::Node,
    ];

    /// Whether [`VARIABLE`] demands it. A test that takes long asks first.
    ///
    /// # Panics
    /// [`VARIABLE`] has an unknown word.
    pub fn is_demanded(self) -> bool {
        let demanded = std::env::var_os(VARIABLE).unwrap_or_default();
        parse(&demanded.to_string_lossy()).unwrap_or_else(|wrong| panic!("{wrong}")).contains(&self)
    }

    /// Its word in [`VARIABLE`].
    fn word(self) -> &'static str {
        match self {
            Need::Vm => "vm",
            Need::Cgroup => "cgroup",
            Need::Perf => "perf",
            Need::Bpf => "bpf",
            Need::Mount => "mount",
            Need::Browser => "browser",
            Need::Prometheus => "prometheus",
            Need::Kube => "kube",
            Need::Node => "node",
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Returns what a test needs if it was found. Otherwise prints to standard error why it is missing
/// (past the test harness, which hides output of tests that pass) and returns `None`.
///
/// # Panics
/// It is missing and demanded, or [`VARIABLE`] has an unknown word.
pub fn found<T, E: Display>(need: Need, found: Result<T, E>) -> Option<T> {
    let demanded = std::env::var_os(VARIABLE).unwrap_or_default();
    match judge(&demanded.to_string_lossy(), need, found) {
        Ok(Ok(found)) => Some(found),
        Ok(Err(told)) => {
            let _ = writeln!(std::io::stderr(), "{told}");
            None
        }
        Err(wrong) => panic!("{wrong}"),
    }
}

/// Makes processes that this one starts end by SIGINT, SIGTERM and SIGHUP, even if this process was
/// started to ignore them: a new program inherits ignored signals, but not handlers.
///
/// # Panics
/// A handler cannot be installed.
pub fn children_end_by_signals() {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let always = Arc::new(AtomicBool::new(true));
        register_conditional_default(signal, always).expect("a handler can be had");
    }
}

/// Prints that a need is missing, and why.
///
/// # Panics
/// It is demanded, or [`VARIABLE`] has an unknown word.
pub fn missing(need: Need, why: impl Display) {
    found::<(), _>(need, Err(why));
}

/// Inner `Ok`: it was found. Inner `Err`: the note of a test that passes without. `Err`: the
/// failure.
fn judge<T, E: Display>(
    demanded: &str,
    need: Need,
    found: Result<T, E>,
) -> Result<Result<T, String>, String> {
    let demanded = parse(demanded)?;
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(why) if demanded.contains(&need) => {
            Err(format!("{VARIABLE} demands {need}, which is missing: {why}"))
        }
        Err(why) => Ok(Err(format!("NOT TESTED, {need} is missing: {why}"))),
    }
}

/// The needs in a text such as `vm,cgroup`; an error for an unknown word.
fn parse(text: &str) -> Result<Vec<Need>, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            Need::ALL.into_iter().find(|need| need.word() == word).ok_or_else(|| {
                let known = Need::ALL.map(Need::word).join(", ");
                format!("{VARIABLE} has the word {word:?}; it takes {known}, with commas between")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(demanded: &str, need: Need) -> Result<Result<(), String>, String> {
        judge(demanded, need, Err("no QEMU"))
    }

    #[test]
    fn what_is_missing_is_told_and_fails_the_test_where_it_is_demanded() {
        let told = "NOT TESTED, vm is missing: no QEMU".to_owned();
        assert_eq!(judged("", Need::Vm), Ok(Err(told.clone())));
        assert_eq!(judged("cgroup,perf", Need::Vm), Ok(Err(told)));
        let fails = "CPUMAX_REQUIRE demands vm, which is missing: no QEMU".to_owned();
        assert_eq!(judged("cgroup, vm", Need::Vm), Err(fails));
        assert_eq!(judge("vm", Need::Vm, Ok::<_, String>(7)), Ok(Ok(7)));
    }

    #[test]
    fn each_need_has_a_word() {
        for need in Need::ALL {
            assert_eq!(parse(need.word()), Ok(vec![need]));
        }
        assert_eq!(
            parse("vm,cgroup,perf,bpf,mount,browser,prometheus,kube,node"),
            Ok(Need::ALL.to_vec())
        );
        assert_eq!(parse(" "), Ok(vec![]));
    }

    #[test]
    fn a_word_that_is_none_is_an_error_even_when_nothing_is_missing() {
        let wrong = "CPUMAX_REQUIRE has the word \"vms\"; it takes vm, cgroup, perf, bpf, mount, \
                     browser, prometheus, kube, node, with commas between";
        assert_eq!(judge("perf,vms", Need::Perf, Ok::<(), String>(())), Err(wrong.to_owned()));
        assert_eq!(judged("VM", Need::Vm).unwrap_err().matches("\"VM\"").count(), 1);
    }

    /// Checks the variable as it is set for these tests.
    #[test]
    fn what_is_demanded_of_these_tests_is_known() {
        assert_eq!(found(Need::Vm, Ok::<_, String>(())), Some(()));
    }
}
