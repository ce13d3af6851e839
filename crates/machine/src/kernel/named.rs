//! Kernels by the names that machines and people give them, and which modelled kernel each is
//! taken for.
//!
//! A vendor's kernel or a stable release may have features of later versions. Known functions of a
//! kernel decide first, then known back-ports, then the version. [`taken`] takes any text for some
//! kernel, and says why where that is not simply the version named.
//!
//! Slices that do not expire came with 5.4, and from there into stable 4.14.154, 4.19.84 and 5.3.9
//! (the announcements of their reviews; flatcar-archive/coreos-overlay#107,
//! awslabs/amazon-eks-ami#372) and into Red Hat's 4.18 of EL 8.2 (kubernetes/kubernetes#67577).
//! Debian's `4.19.0-8` is 4.19.98, its `4.19.0-6` 4.19.67. SLES 16.1 throttles by task on its 6.12
//! (SUSE/release-notes#156).

use crate::kernel::{Kernel, KernelError, RELEASES, UNKNOWN_FROM, Version};
use cpumax_limit::one_line;
use std::collections::BTreeMap;

/// Kernel functions that distinguish generations, and whether a kernel has them. Empty: unknown.
pub type Functions = BTreeMap<String, bool>;

/// Parks a task on its way to user mode (6.18+).
const BY_TASK: &str = "throttle_cfs_rq_work";
/// Unthrottles on the CPU concerned, by an interrupt (6.3+).
const BY_INTERRUPT: &str = "__cfsb_csd_unthrottle";

const BY_HAND: [(&str, Feature); 3] =
    [("task", Feature::ByTask), ("csd", Feature::ByInterrupt), ("noexpire", Feature::NoExpiry)];

/// Kernels of Enterprise Linux by the name of the distribution, as of its last releases.
const DISTRIBUTIONS: [(&str, &str); 4] = [
    ("el7", "3.10.0-1160.el7"),
    ("el8", "4.18.0-553.el8"),
    ("el9", "5.14.0-503.el9"),
    ("el10", "6.12.0-55.el10"),
];

/// A feature that a version may have before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feature {
    NoExpiry,
    ByInterrupt,
    /// Tasks are stopped, not queues.
    ByTask,
}

/// The builder of a kernel, as its name shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    /// kernel.org, and vendors that use its stable releases' numbers.
    Stable,
    /// kernel.org's stable releases, numbered by Debian.
    Debian,
    RedHat,
    Ubuntu,
    Oracle,
    Suse,
    /// Stable releases with patches of Amazon Linux, by their numbers.
    Amazon,
    /// Stable releases with patches of Azure Linux or WSL, by their numbers.
    Microsoft,
}

/// A feature of later versions that a line has from this release on.
struct BackPort {
    vendor: Vendor,
    line: Version,
    /// Third number of a stable release, or build number of a vendor's.
    from: u32,
    feature: Feature,
}

/// The entry of a feature that a vendor's kernels of this line have from the build or patch `from`
/// on.
const fn of(vendor: Vendor, (major, minor): (u16, u16), from: u32, feature: Feature) -> BackPort {
    BackPort { vendor, line: Version { major, minor }, from, feature }
}

const BACK_PORTS: [BackPort; 6] = [
    of(Vendor::Stable, (4, 14), 154, Feature::NoExpiry),
    of(Vendor::Stable, (4, 19), 84, Feature::NoExpiry),
    of(Vendor::Stable, (5, 3), 9, Feature::NoExpiry),
    of(Vendor::Debian, (4, 19), 8, Feature::NoExpiry),
    // EL 8.2 has 4.18.0-193.
    of(Vendor::RedHat, (4, 18), 193, Feature::NoExpiry),
    // SUSE numbers the packages of SLES 16.1 from 160100 on.
    of(Vendor::Suse, (6, 12), 160_100, Feature::ByTask),
];

impl Feature {
    /// First version that has it.
    const fn since(self) -> Version {
        match self {
            Feature::NoExpiry => Version { major: 5, minor: 4 },
            Feature::ByInterrupt => Version { major: 6, minor: 3 },
            Feature::ByTask => Version { major: 6, minor: 18 },
        }
    }

    /// The last version without it, of which the rules then hold.
    const fn before(self) -> Version {
        match self {
            Feature::NoExpiry => Version { major: 5, minor: 3 },
            Feature::ByInterrupt => Version { major: 6, minor: 2 },
            Feature::ByTask => Version { major: 6, minor: 17 },
        }
    }

    /// The feature, or its absence, in words for messages.
    const fn words(self, has: bool) -> &'static str {
        match (self, has) {
            (Feature::NoExpiry, _) => "has slices that do not expire",
            (Feature::ByInterrupt, true) => "releases CPUs by interrupts",
            (Feature::ByInterrupt, false) => "releases CPUs inside the period timer",
            (Feature::ByTask, true) => "throttles by task",
            (Feature::ByTask, false) => "throttles whole queues",
        }
    }
}

/// The modelled kernel that another kernel is taken for.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The modelled kernel.
    pub kernel: Kernel,
    /// Reason, without a full stop, where it is not simply the version named.
    pub why: Option<String>,
}

/// The modelled kernel to use for a kernel with this release text (`uname -r`; `None`: unknown),
/// and the reason where that is not its own version. `functions`: kernel functions known to exist
/// or to be missing. Without a text that can be read, it is the newest.
///
/// ```
/// use cpumax_machine::named::{Functions, taken};
///
/// let none = Functions::new();
/// let red_hat = taken(Some("4.18.0-553.el8_10.x86_64"), &none);
/// assert_eq!(red_hat.kernel.version.to_string(), "5.4");
/// let why = red_hat.why.unwrap();
/// assert!(why.contains("slices that do not expire") && why.ends_with("taken for 5.4"));
/// assert!(taken(Some("6.12.107+deb13-amd64"), &none).why.is_none());
/// ```
pub fn taken(release: Option<&str>, functions: &Functions) -> Taken {
    let newest = Kernel::newest();
    let untold = |what: String| Taken {
        kernel: newest,
        why: Some(format!("{what}: taken for {}, the newest that is modelled", newest.version)),
    };
    let Some(release) = release else {
        return untold("The kernel is unknown".to_owned());
    };
    let Some(named) = Named::read(release) else {
        return untold(format!("'{}' is not the name of a kernel", one_line(release)));
    };
    let oldest = RELEASES[0].from;
    let found = named.found(functions);
    let (version, why) = match found {
        Some((version, words)) => (version, Some(format!("Linux {release} {words}"))),
        None if named.version < oldest => {
            let what = "is older than all kernels that are modelled";
            (oldest, Some(format!("Linux {release} {what}")))
        }
        None if named.version >= UNKNOWN_FROM => {
            let what = "is newer than all kernels that are modelled";
            (newest.version, Some(format!("Linux {release} {what}")))
        }
        None => (named.version, named.vendor.not_modelled(release, functions)),
    };
    // A version between the oldest and the newest is modelled.
    let kernel = Kernel::of(version).unwrap_or(newest);
    let told = |why: String| format!("{}: taken for {}", one_line(&why), kernel.version);
    Taken { kernel, why: why.map(told) }
}

/// Reads a kernel that a user names: `4.19.260`, `el8`, `6.12+task`.
///
/// # Errors
/// The text names no kernel, or one that is not modelled.
pub(crate) fn by_hand(text: &str) -> Result<Kernel, KernelError> {
    let unreadable = || KernelError::Unreadable(text.to_owned());
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('+');
    let name = parts.next().unwrap_or("");
    let known = DISTRIBUTIONS.iter().find(|(distribution, _)| *distribution == name);
    let mut given = Vec::new();
    for part in parts {
        match BY_HAND.iter().find(|(name, _)| *name == part) {
            Some((_, feature)) => given.push(feature.since()),
            // Suffix of a release text: 6.12.117+deb13-cloud-amd64, and 6.12.55+ of COS.
            None if part.is_empty() || part.contains('-') => {}
            None => return Err(unreadable()),
        }
    }
    let release = known.map_or(lower.as_str(), |(_, release)| release);
    let named = Named::read(release).ok_or_else(unreadable)?;
    let since = given.into_iter().max().filter(|since| *since > named.version);
    let found = || named.found(&Functions::new()).map(|(version, _)| version);
    Kernel::of(since.or_else(found).unwrap_or(named.version))
}

/// The parts of a release text.
#[derive(Debug, Clone, Copy)]
struct Named {
    version: Version,
    vendor: Vendor,
    /// The third number, and the first one of the build.
    patch: Option<u32>,
    build: Option<u32>,
}

impl Named {
    /// Reads a release text: `4.18.0-553.el8_10.x86_64` is 4.18, patch 0, build 553, of Red Hat.
    /// `None` if it has no version.
    fn read(release: &str) -> Option<Named> {
        let version: Version = release.parse().ok()?;
        let rest = release.splitn(3, '.').nth(2).unwrap_or("");
        let number = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse::<u32>().ok()
        };
        let build = rest.split_once('-').and_then(|(_, build)| number(build));
        let patch = number(rest);
        Some(Named { version, vendor: Vendor::of(release, patch, build), patch, build })
    }

    /// The version whose rules a kernel follows, if that is another one than its own, and the
    /// reason in words: by functions that it is known to have or to lack, or by its vendor's
    /// back-ports.
    fn found(&self, functions: &Functions) -> Option<(Version, &'static str)> {
        let has = |name: &str| functions.get(name).copied();
        for (feature, function) in
            [(Feature::ByTask, BY_TASK), (Feature::ByInterrupt, BY_INTERRUPT)]
        {
            match has(function) {
                Some(true) if self.version < feature.since() => {
                    return Some((feature.since(), feature.words(true)));
                }
                Some(false) if self.version >= feature.since() => {
                    // The older of the two features decides.
                    let is_older = has(BY_INTERRUPT) == Some(false);
                    let feature = if is_older { Feature::ByInterrupt } else { feature };
                    return Some((feature.before(), feature.words(false)));
                }
                _ => {}
            }
        }
        let (vendor, number) = match self.vendor {
            Vendor::Stable | Vendor::Amazon | Vendor::Microsoft => (Vendor::Stable, self.patch),
            vendor => (vendor, self.build),
        };
        let back_port = BACK_PORTS.iter().find(|back_port| {
            back_port.vendor == vendor
                && back_port.line == self.version
                && number.is_some_and(|number| number >= back_port.from)
        });
        let feature = back_port?.feature;
        let is_known = feature == Feature::ByTask && functions.contains_key(BY_TASK);
        (!is_known).then(|| (feature.since(), feature.words(true)))
    }
}

impl Vendor {
    /// The vendor that a release text points to, by its suffixes and numbers.
    fn of(release: &str, patch: Option<u32>, build: Option<u32>) -> Vendor {
        const DEBIAN: [&str; 4] = ["-amd64", "-arm64", "-686", "-686-pae"];
        // Flavours, perhaps with a variant behind them: `6.8.0-1021-aws-64k`.
        const UBUNTU: [&str; 12] = [
            "generic",
            "lowlatency",
            "aws",
            "azure",
            "gcp",
            "gke",
            "gkeop",
            "oracle",
            "ibm",
            "nvidia",
            "oem",
            "raspi",
        ];
        let is_numbered = |part: &str, name: &str| {
            part.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let is_of = |names: &[&str]| {
            let mut parts = release.split(['.', '-', '_']);
            parts.any(|part| names.iter().any(|name| is_numbered(part, name)))
        };
        // From SLES 12 on package numbers have six digits, service pack included.
        let is_suse = build.is_some_and(|build| (100_000..1_000_000).contains(&build));
        let ends = |ends: &[&str]| ends.iter().any(|end| release.ends_with(end));
        match release {
            _ if ends(&DEBIAN) && patch == Some(0) => Vendor::Debian,
            _ if release.split('-').skip(1).any(|part| UBUNTU.contains(&part)) => Vendor::Ubuntu,
            _ if release.contains("uek") => Vendor::Oracle,
            _ if is_of(&["el"]) => Vendor::RedHat,
            _ if is_of(&["amzn"]) => Vendor::Amazon,
            _ if is_of(&["azl", "cm"]) || release.contains("-microsoft-") => Vendor::Microsoft,
            _ if is_suse || release.ends_with("-default") => Vendor::Suse,
            _ => Vendor::Stable,
        }
    }

    /// A warning in words for vendors that back-port features; `None` where the kernel's functions
    /// are known, or the vendor adds none.
    fn not_modelled(self, release: &str, functions: &Functions) -> Option<String> {
        let who = match self {
            Vendor::Stable | Vendor::Debian => return None,
            _ if !functions.is_empty() => return None,
            Vendor::RedHat => "Red Hat",
            Vendor::Oracle => "Oracle",
            Vendor::Ubuntu => "Ubuntu",
            Vendor::Suse => "SUSE",
            Vendor::Amazon => "Amazon",
            Vendor::Microsoft => "Microsoft",
        };
        Some(format!("Linux {release} may have features of later versions that {who} added"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(by_task: bool, by_interrupt: bool) -> Functions {
        [(BY_TASK.to_owned(), by_task), (BY_INTERRUPT.to_owned(), by_interrupt)].into()
    }

    fn is(release: &str, functions: &Functions) -> (String, bool) {
        let taken = taken(Some(release), functions);
        (taken.kernel.version.to_string(), taken.why.is_some())
    }

    #[test]
    fn back_ports_are_known_by_release_and_vendor() {
        let none = Functions::new();
        for (release, version, is_told) in [
            ("4.19.83", "4.19", false),
            ("4.19.84", "5.4", true),
            ("4.19.260", "5.4", true),
            ("4.19.0-27-cloud-amd64", "5.4", true),
            ("4.19.0-6-amd64", "4.19", false),
            ("5.3.9", "5.4", true),
            ("5.3.8", "5.3", false),
            ("4.14.154-128.181.amzn2.x86_64", "5.4", true),
            ("4.18.0-553.el8_10.x86_64", "5.4", true),
            ("4.18.0-193.el8.x86_64", "5.4", true),
            ("4.18.0-80.el8.x86_64", "4.18", true),
            ("4.18.0-25-generic", "4.18", true),
            ("5.14.0-427.13.1.el9_4.x86_64", "5.14", true),
            ("5.15.0-207.156.6.el8uek.x86_64", "5.15", true),
            ("6.12.0-160000.5-default", "6.12", true),
            ("6.12.0-160100.3-default", "6.18", true),
            ("6.12.107+deb13-cloud-amd64", "6.12", false),
            ("4.14.153-1.amzn2.x86_64", "4.14", true),
            ("6.11.4-301.fc41.x86_64", "6.11", false),
            ("6.18.1", "6.18", false),
            ("7.9.1", "7.3", true),
        ] {
            assert_eq!(is(release, &none), (version.to_owned(), is_told), "{release}");
        }
    }

    #[test]
    fn kernels_of_vendors_may_have_what_the_vendor_put_into_them() {
        for (release, vendor) in [
            ("6.1.119-129.201.amzn2023.x86_64", "Amazon"),
            ("5.10.228-219.884.amzn2.x86_64", "Amazon"),
            ("5.15.0-302.167.6.el9uek.x86_64", "Oracle"),
            ("5.4.17-2136.338.4.2.uek.x86_64", "Oracle"),
            ("6.8.0-1021-aws", "Ubuntu"),
            ("6.8.0-1021-aws-64k", "Ubuntu"),
            ("6.8.0-1020-azure", "Ubuntu"),
            ("5.15.0-1075-gcp-fips", "Ubuntu"),
            ("6.6.51.1-5.azl3", "Microsoft"),
            ("5.15.167.1-2.cm2", "Microsoft"),
            ("5.15.167.4-microsoft-standard-WSL2", "Microsoft"),
        ] {
            let why = taken(Some(release), &Functions::new()).why.unwrap_or_default();
            assert!(why.contains(&format!("that {vendor} added")), "{release}: {why}");
            let known = taken(Some(release), &functions(false, true)).why.unwrap_or_default();
            assert!(!known.contains("added"), "{release}: {known}");
        }
    }

    #[test]
    fn any_text_is_taken_for_some_kernel_and_that_is_told() {
        let none = Functions::new();
        let oldest = RELEASES[0].from.to_string();
        for old in ["3.10.0-1160.el7.x86_64", "2.6.32"] {
            let taken = taken(Some(old), &none);
            assert_eq!(taken.kernel.version.to_string(), oldest);
            assert!(taken.why.unwrap().contains("older than all"), "{old}");
        }
        for text in [None, Some(""), Some("six"), Some("\u{1b}[2J"), Some("99999.1")] {
            let taken = taken(text, &none);
            assert_eq!(taken.kernel.version, Kernel::newest().version);
            assert!(!taken.why.unwrap().contains('\u{1b}'), "{text:?}");
        }
    }

    #[test]
    fn functions_come_before_the_version() {
        for (release, by_task, by_interrupt, version) in [
            ("6.12.0-160000.5-default", true, true, "6.18"),
            ("6.12.0-160100.5-default", false, true, "6.12"),
            ("6.18.4", true, true, "6.18"),
            ("6.18.4", false, true, "6.17"),
            ("6.18.4", false, false, "6.2"),
            ("5.14.0-503.el9", false, true, "6.3"),
            ("5.14.0-503.el9", false, false, "5.14"),
            ("7.3.1", true, true, "7.3"),
        ] {
            let (found, _) = is(release, &functions(by_task, by_interrupt));
            assert_eq!(found, version, "{release} {by_task} {by_interrupt}");
        }
        assert!(taken(Some("5.14.0-503.el9"), &functions(false, false)).why.is_none());
    }

    #[test]
    fn names_by_hand_say_what_a_kernel_has() {
        for (text, version) in [
            ("el8", "5.4"),
            ("EL9", "5.14"),
            ("el10", "6.12"),
            ("6.12+task", "6.18"),
            ("el9+csd", "6.3"),
            ("4.18+noexpire", "5.4"),
            ("7.2+task", "7.2"),
            ("4.19", "4.19"),
            ("4.19.260", "5.4"),
            ("6.12.107+deb13-amd64", "6.12"),
            ("6.12.55+", "6.12"),
        ] {
            assert_eq!(by_hand(text).unwrap().version.to_string(), version, "{text}");
        }
        assert!(matches!(by_hand("el7"), Err(KernelError::TooOld(_))));
        for text in ["el", "el11", "+task", "six+task", "6.12+tsk"] {
            assert!(matches!(by_hand(text), Err(KernelError::Unreadable(_))), "{text}");
        }
    }
}
