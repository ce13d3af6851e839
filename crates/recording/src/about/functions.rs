//! Kernel functions whose presence tells generations of bandwidth control apart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Only kernels that throttle by task have the first (6.18+); only kernels that release CPUs by
/// interrupts have the second (6.3+).
const TOLD: [&str; 2] = ["throttle_cfs_rq_work", "__cfsb_csd_unthrottle"];
/// Every kernel with limits has this function.
const PERIOD_TIMER: &str = "sched_cfs_period_timer";
const SYMBOLS_MAX_BYTES: u64 = 1 << 26;

/// Reads from `/proc/kallsyms` which of [`TOLD`] the running kernel has, by name. Empty if that
/// file cannot be read or lists no period timer of groups.
pub fn here() -> BTreeMap<String, bool> {
    let Ok(file) = File::open("/proc/kallsyms") else { return BTreeMap::new() };
    read_functions(BufReader::new(file.take(SYMBOLS_MAX_BYTES)))
}

/// Reads which of [`TOLD`] a list of symbols has, in the form of `/proc/kallsyms`; empty if it
/// lists no period timer of groups.
fn read_functions(symbols: impl BufRead) -> BTreeMap<String, bool> {
    let mut found: BTreeMap<String, bool> =
        TOLD.iter().map(|name| ((*name).to_owned(), false)).collect();
    let mut is_told = false;
    for line in symbols.lines().map_while(Result::ok) {
        let Some(symbol) = line.split_ascii_whitespace().nth(2) else { continue };
        // The compiler names its copies of a function with a dot and a suffix (`.cold`).
        let name = symbol.split('.').next().unwrap_or(symbol);
        is_told |= name == PERIOD_TIMER;
        if let Some(has) = found.get_mut(name) {
            *has = true;
        }
    }
    if is_told { found } else { BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_that_the_kernel_names() {
        let told = |text: &str| read_functions(text.as_bytes());
        let has =
            |task, csd| BTreeMap::from([(TOLD[0].to_owned(), task), (TOLD[1].to_owned(), csd)]);
        let timer = "0000000000000000 t sched_cfs_period_timer\n";
        let csd = "0000000000000000 t __cfsb_csd_unthrottle.cold\n";
        assert_eq!(told(&(timer.to_owned() + csd)), has(false, true));
        let task = "ffffffff81000000 t throttle_cfs_rq_work\tvmlinux\n\nx\n";
        assert_eq!(told(&(timer.to_owned() + csd + task)), has(true, true));
        assert!(told(csd).is_empty(), "a kernel that does not name its functions");
    }
}
