//! Compares cpumax with SimCore, the engine of DSLab, on event queues and a plain M/M/1. `peers.py`
//! measures SimPy, and `run` runs both.
//!
//! Hold model: the number of pending events is fixed; each event that fires inserts another, a mean
//! of 1 later. M/M/1: arrival rate 0.8, service rate 1, so a customer stays 5 on average, and causes
//! two events. Times are exponential and come from the same generator everywhere. Figures are CPU
//! time, the best of three runs.

/// The queue is private to the model, so its file is included.
#[path = "../../../crates/machine/src/events.rs"]
#[allow(dead_code, reason = "the model needs more of it")]
mod events;
#[path = "../../../crates/machine/src/ids.rs"]
#[allow(dead_code, reason = "the model needs more of it")]
mod ids;
mod model;
mod ours;
mod simcore_peer;

use cpu_time::ProcessTime;
use cpumax_machine::Error;

const PENDING: [u32; 2] = [1_000, 20_000];
const HOLDS: u64 = 3_000_000;
const CUSTOMERS: u64 = 1_000_000;

/// Exponential times with a mean of 1.
pub struct Exponential(u64);

impl Exponential {
    pub fn new() -> Self {
        Exponential(0x9e37_79b9_7f4a_7c15)
    }

    pub fn draw(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        -(((self.0 >> 11) + 1) as f64 / (1u64 << 53) as f64).ln()
    }
}

fn main() {
    println!("{:<10} {:<18} {:>12} {:>10}  {}", "who", "what", "events/s", "ns/event", "mean");
    for pending in PENDING {
        let what = format!("hold, {pending}");
        row("cpumax", &what, HOLDS, || ours::hold(pending, HOLDS));
        row("SimCore", &what, HOLDS, || simcore_peer::hold(pending, HOLDS));
    }
    row("cpumax", "M/M/1, queue", 2 * CUSTOMERS, || ours::mm1(CUSTOMERS));
    row("SimCore", "M/M/1", 2 * CUSTOMERS, || simcore_peer::mm1(CUSTOMERS));
    row("cpumax", "M/M/1, whole model", 2 * CUSTOMERS, || model::mm1(CUSTOMERS));
}

/// Runs three times. `of` returns a value that must be about equal for all programs: the mean time
/// between holds, or in the system.
fn row(who: &str, what: &str, events: u64, mut of: impl FnMut() -> f64) {
    let mut best_ns = u128::MAX;
    let mut mean = 0.0;
    for _ in 0..3 {
        let start = ProcessTime::now();
        mean = of();
        best_ns = best_ns.min(start.elapsed().as_nanos().max(1));
    }
    let rate = u128::from(events) * 1_000_000_000 / best_ns;
    println!("{who:<10} {what:<18} {rate:>12} {:>10}  {mean:.2}", best_ns / u128::from(events));
}
