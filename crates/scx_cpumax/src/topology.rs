// SPDX-License-Identifier: GPL-2.0-only
//! The CPUs of the machine, and which of them share a last-level cache, from sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Most CPUs of the BPF program.
pub const CPUS_MAX: usize = 8192;
/// Most queues of the BPF program; further caches share queues.
const LLC_MAX: usize = 64;

/// The machine as the scheduler sees it.
pub struct Topology {
    /// The highest possible CPU number plus 1.
    pub cpu_count: usize,
    /// Queue by CPU.
    pub llc_of_cpu: Vec<u16>,
    /// Number of queues.
    pub llc_count: usize,
}

impl Topology {
    /// Reads sysfs. CPUs whose caches are unknown share one queue.
    pub fn read() -> Self {
        Self::read_from(Path::new("/sys/devices/system/cpu"))
    }

    fn read_from(root: &Path) -> Self {
        let possible = fs::read_to_string(root.join("possible")).unwrap_or_default();
        let cpu_count = highest_cpu(&possible).map_or(1, |cpu| cpu + 1).min(CPUS_MAX);
        let mut queues: BTreeMap<String, u16> = BTreeMap::new();
        let llc_of_cpu = (0..cpu_count)
            .map(|cpu| {
                let key = shared_cpus(&root.join(format!("cpu{cpu}/cache"))).unwrap_or_default();
                let next = (queues.len() % LLC_MAX) as u16;
                *queues.entry(key).or_insert(next)
            })
            .collect();
        Self { cpu_count, llc_of_cpu, llc_count: queues.len().clamp(1, LLC_MAX) }
    }
}

/// The highest number in a list such as `0-3,8`.
fn highest_cpu(list: &str) -> Option<usize> {
    list.trim().split(',').filter_map(|range| range.rsplit('-').next()?.parse().ok()).max()
}

/// The CPUs that share the highest cache level of a CPU, as text of sysfs.
fn shared_cpus(cache: &Path) -> Option<String> {
    let highest = fs::read_dir(cache)
        .ok()?
        .filter_map(|entry| {
            let dir = entry.ok()?.path();
            let level: u32 = fs::read_to_string(dir.join("level")).ok()?.trim().parse().ok()?;
            Some((level, dir))
        })
        .max()?;
    fs::read_to_string(highest.1.join("shared_cpu_list")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_cpu_of_a_list() {
        assert_eq!(highest_cpu("0-3,8\n"), Some(8));
        assert_eq!(highest_cpu("0"), Some(0));
        assert_eq!(highest_cpu(""), None);
    }

    #[test]
    fn caches_become_queues() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("possible"), "0-3").unwrap();
        for (cpu, shared) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            for (index, level, list) in [(0, 1, format!("{cpu}")), (1, 3, shared.to_owned())] {
                let cache = dir.path().join(format!("cpu{cpu}/cache/index{index}"));
                fs::create_dir_all(&cache).unwrap();
                fs::write(cache.join("level"), format!("{level}\n")).unwrap();
                fs::write(cache.join("shared_cpu_list"), list).unwrap();
            }
        }
        let topology = Topology::read_from(dir.path());
        assert_eq!(topology.llc_of_cpu, [0, 0, 1, 1]);
        assert_eq!((topology.cpu_count, topology.llc_count), (4, 2));
    }
}
