// SPDX-License-Identifier: GPL-2.0-only
//! Records that the BPF program shares, laid out as in `bpf/intf.h`.
//!
//! The loader compares the sizes of both sides, and refuses to load if they differ.

/// `struct cbw_group` without its per-CPU part. Times are in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Group {
    pub id: u64,
    pub parent: u64,
    pub park_dsq: u64,
    pub level: u32,
    pub pages: u32,
    pub delegated: u64,
    pub nr_delegated: u64,
    pub quota_ns: u64,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub limit_seq: u64,
    pub pool_ns: i64,
    pub debt_ns: i64,
    pub share_ns: i64,
    pub turn_ns: i64,
    pub feed_ns: i64,
    pub pool_after_refill_ns: i64,
    pub refill_at_ns: u64,
    pub timer_active: u32,
    pub taken: u32,
    pub nr_parked: u64,
    pub passed_in_walk: i64,
    pub looked_at_in_walk: i64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_ns: u64,
    pub nr_bursts: u64,
    pub burst_used_ns: u64,
    pub parks: u64,
    pub parked_ns: u64,
    pub kernel_overrun_ns: u64,
    pub released: u64,
    pub release_cost_ns: u64,
    pub edge_ns: u64,
    pub release_took_ns: u64,
    pub watchdog_passes: u64,
    pub pass_ns: u64,
    pub passes_next_ns: u64,
    pub moved_on: u64,
    pub refused: u64,
    pub parks_queued: u64,
    pub refilled_ns: i64,
    pub throttled_cpus: u64,
    pub throttled_since_sum_ns: u64,
    pub parked_seq: u64,
    pub limited: u64,
    pub limited_seq: u64,
    pub weight: u32,
    pub share_epoch: u32,
    pub share: u64,
    pub sum_epoch: u64,
    pub sum_weight: u64,
    pub sum_weight_old: u64,
    pub tag: [u64; 64],
}

/// `struct cbw_cpu`; an array of these, by CPU, follows each group.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cpu {
    pub rem_ns: i64,
    pub limit_seq: u64,
    pub parked_seq: u64,
    pub usage_ns: u64,
    pub mail_ns: i64,
    pub walked: i64,
    pub pad: [u64; 2],
}

/// `struct cbw_task`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Task {
    pub group: u64,
    pub group_id: u64,
    pub parked: u64,
    pub parked_at_ns: u64,
    pub waits_since_ns: u64,
    pub turn_ns: u64,
    pub turn_ends_ns: u64,
    pub exec_ns: u64,
    pub charged_at_ns: u64,
    pub requested: u32,
    pub at_boundary: u32,
    pub hopped: u32,
    pub slot: u32,
    pub no_room: u32,
    pub pad: u32,
    pub boundary_visits: u64,
    pub hops: u64,
    pub parks: u64,
    pub parked_ns: u64,
    pub boundary_ns: u64,
    pub visited_at_ns: u64,
    pub kernel_overrun_ns: u64,
    pub prepaid: u64,
    pub ran_from_ns: u64,
    pub queued_llc: u32,
    pub passing: u32,
}

/// Value of `quota_ns` without a limit.
pub const UNLIMITED: u64 = u64::MAX;
