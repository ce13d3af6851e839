// SPDX-License-Identifier: GPL-2.0-only
//! Whose turn it is among groups without limits.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{Checked, Group, Load, beside_fair};

/// How long the one who was first had the CPU to itself.
const ALONE: Duration = Duration::from_secs(5);

/// CPUs used by either of two tasks of two groups in the second after the second one goes on.
fn share_of_both() -> [f64; 2] {
    let (first, second) = (Group::new("first", "max"), Group::new("second", "max"));
    let (old, new) = (first.load(&["hog"]), second.load(&["hog"]));
    sleep(Duration::from_millis(500));
    new.signal(libc::SIGSTOP);
    sleep(ALONE);
    let (start, before) = (Instant::now(), cpu_us(&old, &new));
    new.signal(libc::SIGCONT);
    sleep(Duration::from_secs(1));
    let (time, after) = (start.elapsed().as_micros() as f64, cpu_us(&old, &new));
    [0, 1].map(|n| (after[n] - before[n]) as f64 / time)
}

fn cpu_us(old: &Load, new: &Load) -> [u64; 2] {
    [old.cpu_us(), new.cpu_us()]
}

/// Who ran while nobody else wanted to owes nobody anything for it.
pub fn newcomer() -> Checked {
    let (fair, ours) = beside_fair(|_| Ok(share_of_both()))?;
    let said = format!(
        "{ours:.3?} CPUs used by one who ran alone before and one who came back; under the fair class {fair:.3?}"
    );
    if ours.iter().all(|share| (0.4..=0.6).contains(share)) { Ok(said) } else { Err(said) }
}
