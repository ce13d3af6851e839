//! Use of the whole machine, from the first line of `/proc/stat`.

use anyhow::{Context as _, Result};
use std::fs;

/// Since boot, or an increase.
#[derive(Debug, Clone, Copy)]
pub struct MachineUse {
    pub busy_us: u64,
    /// Time in which the hypervisor ran other guests.
    pub steal_us: u64,
}

impl MachineUse {
    pub fn now() -> Result<MachineUse> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Ok(Self::parse(&text))
    }

    /// Fields of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, in hundredths
    /// of a second.
    fn parse(text: &str) -> MachineUse {
        let fields: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        let us = |index: usize| fields.get(index).copied().unwrap_or(0) * 10_000;
        MachineUse { busy_us: us(0) + us(1) + us(2) + us(5) + us(6), steal_us: us(7) }
    }

    pub fn since(&self, before: &MachineUse) -> MachineUse {
        MachineUse {
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            steal_us: self.steal_us.saturating_sub(before.steal_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_neither_idle_nor_stolen() {
        let machine = MachineUse::parse("cpu  1 2 3 400 500 6 7 8 9 10\ncpu0 1 1 1\n");
        assert_eq!((machine.busy_us, machine.steal_us), (190_000, 80_000));
    }
}
