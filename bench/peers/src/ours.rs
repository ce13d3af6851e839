//! The measurements on cpumax's event queue alone.

use crate::Exponential;
use crate::events::Heap;
use std::collections::VecDeque;

/// Ticks of the clock per unit of time.
const UNIT: f64 = 1e6;

pub fn hold(pending: u32, holds: u64) -> f64 {
    let mut random = Exponential::new();
    let mut queue = Heap::new();
    for event in 0..pending {
        queue.push((random.draw() * UNIT) as u64, event);
    }
    let mut now = 0;
    for _ in 0..holds {
        let Some((time, event)) = queue.pop() else { break };
        now = time;
        queue.push(now + (random.draw() * UNIT) as u64, event);
    }
    now as f64 / UNIT / holds as f64 * f64::from(pending)
}

#[derive(Clone, Copy)]
enum Event {
    Arrival,
    Departure,
}

pub fn mm1(customers: u64) -> f64 {
    let mut random = Exponential::new();
    let mut queue = Heap::new();
    let mut waiting: VecDeque<u64> = VecDeque::new();
    let (mut arrived, mut stayed) = (0, 0);
    queue.push(0, Event::Arrival);
    while let Some((now, event)) = queue.pop() {
        match event {
            Event::Arrival => {
                arrived += 1;
                if arrived < customers {
                    queue.push(now + (random.draw() / 0.8 * UNIT) as u64, Event::Arrival);
                }
                waiting.push_back(now);
                if waiting.len() == 1 {
                    queue.push(now + (random.draw() * UNIT) as u64, Event::Departure);
                }
            }
            Event::Departure => {
                stayed += now - waiting.pop_front().unwrap_or(now);
                if !waiting.is_empty() {
                    queue.push(now + (random.draw() * UNIT) as u64, Event::Departure);
                }
            }
        }
    }
    stayed as f64 / UNIT / customers as f64
}
