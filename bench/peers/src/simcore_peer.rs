//! The measurements with SimCore.

use crate::Exponential;
use serde::Serialize;
use simcore::{Event, EventHandler, Simulation, SimulationContext, cast};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

#[derive(Clone, Serialize)]
struct Hold {}

struct Holder {
    context: SimulationContext,
    random: Exponential,
}

impl EventHandler for Holder {
    fn on(&mut self, event: Event) {
        cast!(match event.data {
            Hold {} => {
                self.context.emit_self(Hold {}, self.random.draw());
            }
        })
    }
}

pub fn hold(pending: u32, holds: u64) -> f64 {
    let mut simulation = Simulation::new(1);
    let mut random = Exponential::new();
    let context = simulation.create_context("holder");
    for _ in 0..pending {
        context.emit_self(Hold {}, random.draw());
    }
    simulation.add_handler("holder", Rc::new(RefCell::new(Holder { context, random })));
    simulation.steps(holds);
    simulation.time() / holds as f64 * f64::from(pending)
}

#[derive(Clone, Serialize)]
struct Arrival {}
#[derive(Clone, Serialize)]
struct Departure {}

struct Server {
    context: SimulationContext,
    random: Exponential,
    waiting: VecDeque<f64>,
    customers: u64,
    arrived: u64,
    stayed: f64,
}

impl EventHandler for Server {
    fn on(&mut self, event: Event) {
        cast!(match event.data {
            Arrival {} => {
                self.arrived += 1;
                if self.arrived < self.customers {
                    self.context.emit_self(Arrival {}, self.random.draw() / 0.8);
                }
                self.waiting.push_back(self.context.time());
                if self.waiting.len() == 1 {
                    self.context.emit_self(Departure {}, self.random.draw());
                }
            }
            Departure {} => {
                let now = self.context.time();
                self.stayed += now - self.waiting.pop_front().unwrap_or(now);
                if !self.waiting.is_empty() {
                    self.context.emit_self(Departure {}, self.random.draw());
                }
            }
        })
    }
}

pub fn mm1(customers: u64) -> f64 {
    let mut simulation = Simulation::new(1);
    let context = simulation.create_context("server");
    context.emit_self_now(Arrival {});
    let server = Rc::new(RefCell::new(Server {
        context,
        random: Exponential::new(),
        waiting: VecDeque::new(),
        customers,
        arrived: 0,
        stayed: 0.0,
    }));
    simulation.add_handler("server", server.clone());
    simulation.step_until_no_events();
    let stayed = server.borrow().stayed;
    stayed / customers as f64
}
