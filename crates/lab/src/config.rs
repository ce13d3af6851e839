//! The settings of a kernel's `.config` that matter to scheduling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The part of a kernel's `.config` that decides how it schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// Ticks in a second.
    pub hz: u32,
    /// Preemption unless the command line says otherwise: `none`, `voluntary`, `lazy`, `full`, `rt`
    /// or `rt-lazy`.
    pub preempt: String,
    /// Whether preemption can be chosen when it boots (`PREEMPT_DYNAMIC`).
    pub preempt_dynamic: bool,
    /// Whether groups can be limited (`CFS_BANDWIDTH`).
    pub cfs_bandwidth: bool,
    /// Whether there is `sched_ext` (`SCHED_CLASS_EXT`).
    pub sched_ext: bool,
    /// Whether CPUs can do without a tick while busy (`NO_HZ_FULL`).
    pub no_hz_full: bool,
    /// Whether DAMON gathers statistics from boot on, which costs CPU time (`DAMON_STAT`).
    pub damon_stat: bool,
}

/// Parses the text of a `.config`. A setting that it lacks is off.
pub fn parse(text: &str) -> Config {
    let values: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('=')).collect();
    let on = |name: &str| values.get(name) == Some(&"y");
    let models = [
        ("PREEMPT_RT", "rt"),
        ("PREEMPT_LAZY", "lazy"),
        ("PREEMPT", "full"),
        ("PREEMPT_VOLUNTARY", "voluntary"),
    ];
    let both = on("PREEMPT_RT") && on("PREEMPT_LAZY");
    let model = models.iter().find(|(name, _)| on(name)).map_or("none", |(_, model)| model);
    let preempt = if both { "rt-lazy" } else { model };
    Config {
        hz: values.get("HZ").and_then(|hz| hz.parse().ok()).unwrap_or(0),
        preempt: preempt.to_owned(),
        preempt_dynamic: on("PREEMPT_DYNAMIC"),
        cfs_bandwidth: on("CFS_BANDWIDTH"),
        sched_ext: on("SCHED_CLASS_EXT"),
        no_hz_full: on("NO_HZ_FULL"),
        damon_stat: on("DAMON_STAT_ENABLED_DEFAULT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_to_be_on_is_on() {
        let config = parse(
            "CONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_PREEMPT is not set\n\
             CONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_CFS_BANDWIDTH=y\n\
             # CONFIG_SCHED_CLASS_EXT is not set\n",
        );
        assert_eq!((config.hz, config.preempt.as_str()), (250, "voluntary"));
        assert!(config.cfs_bandwidth && !config.sched_ext && !config.no_hz_full);
        assert_eq!(parse("").preempt, "none");
        let both = parse("CONFIG_PREEMPT_LAZY=y\nCONFIG_PREEMPT_RT=y\n");
        assert_eq!(both.preempt, "rt-lazy");
    }
}
