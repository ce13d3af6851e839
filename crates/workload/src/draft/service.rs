//! Draft of a service: threads that answer requests, and the clients that send these. A service
//! stands for a channel, a job, a kind of task and a source.

use super::{Arrive, Channel, Cpus, Draft, Job, Length, Positions, Source, Task, to_ns};
use crate::bounds::{MAX_KINDS, NS_PER_US};
use crate::error::ByteRange;
use crate::model::Distribution;
use crate::step::{Step, Verb};
use std::time::Duration;

/// Threads that answer requests, and the clients that send these.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) threads: u32,
    pub(crate) cpus: Cpus,
    pub(crate) work: Length,
    pub(crate) kernel: Option<Length>,
    pub(crate) demand: Demand,
    pub(crate) shared: bool,
    pub(crate) positions: Positions,
}

#[derive(Debug, Clone)]
pub(crate) enum Demand {
    /// Closed: each client waits for its answer, thinks, and asks again.
    Clients { clients: u32, think: Length },
    /// Open: time between two requests.
    Every(Length),
}

impl Service {
    /// Adds the channels, jobs, tasks and sources of the service to a builder.
    pub fn add_to(&self, draft: &mut Draft) {
        // The checks refuse this number too; a larger one would only take memory.
        let threads = self.threads.clamp(1, MAX_KINDS as u32 + 1);
        if self.shared {
            return self.add(draft, self.name.clone(), self.threads.max(1), (0, 1));
        }
        for thread in 0..threads {
            self.add(draft, format!("{}/{thread}", self.name), 1, (thread, threads));
        }
    }

    /// Adds a pool of `count` threads, with part `part` of `parts` of all requests.
    fn add(&self, draft: &mut Draft, name: String, count: u32, (part, parts): (u32, u32)) {
        let positions = || self.positions_of(&[]);
        let pool = Task {
            label: Some(self.name.clone()).filter(|label| *label != name),
            cpus: self.cpus.clone(),
            positions: positions(),
            count,
            group: self.group.clone(),
            program: vec![step(Verb::Loop {
                times: u64::MAX,
                body: vec![step(Verb::Serve { channel: name.clone() })],
            })],
            ..Task::new(&name)
        };
        draft.tasks.push(pool);
        draft.channels.push(Channel {
            name: name.clone(),
            capacity: u64::MAX,
            oldest_first: false,
            positions: positions(),
        });
        draft.jobs.push(Job {
            name: name.clone(),
            program: self.job(&name),
            positions: positions(),
        });
        let (arrivals, start_ns, arrive) = match &self.demand {
            Demand::Clients { clients, think } => {
                let clients = u64::from(clients / parts + u32::from(part < clients % parts));
                if clients == 0 {
                    return;
                }
                // Clients begin in the middle of their think time, at different moments.
                let every = scaled(think, 1, clients);
                let is_short = mean_ns(&every) < NS_PER_US as f64;
                let at_once = Length::Fixed(Duration::from_nanos(NS_PER_US));
                let every = if is_short { at_once } else { every };
                (every, 0, clients)
            }
            Demand::Every(every) => {
                let start_ns = match every {
                    Length::Fixed(every) => to_ns(*every).saturating_mul(part.into()),
                    Length::Drawn(_) => 0,
                };
                (scaled(every, parts.into(), 1), start_ns, u64::MAX)
            }
        };
        draft.sources.push(Source {
            name: name.clone(),
            channel: name.clone(),
            arrivals: Arrive::Between(arrivals),
            start_ns,
            count: arrive,
            jobs: vec![name],
            lossy: false,
            positions: self.positions_of(&[
                ("every", "every"),
                ("every", "rate"),
                ("every", "think"),
                ("count", "clients"),
            ]),
        });
    }

    /// The program of a request: work, the answer, and, from a client, the next request.
    fn job(&self, name: &str) -> Vec<Step> {
        let at = |verb: Verb, field: &str| Step { verb, at: self.positions.of(field) };
        let mut steps = vec![at(Verb::User(self.work.clone()), "work")];
        steps.extend(self.kernel.clone().map(|length| at(Verb::Kernel(length), "kernel")));
        steps.push(at(Verb::Done, ""));
        if let Demand::Clients { think, .. } = &self.demand {
            let after = Some(think.clone()).filter(|think| *think != Length::Fixed(Duration::ZERO));
            let (job, channel) = (name.to_owned(), name.to_owned());
            steps.push(at(Verb::Post { after, job, channel, keep: false }, "think"));
        }
        steps
    }

    /// Positions of the service's fields, also under the names that they have in a part.
    fn positions_of(&self, names: &[(&'static str, &str)]) -> Positions {
        let found = |(name, own): &(&'static str, &str)| {
            self.positions.fields.iter().find(|(field, _)| field == own).map(|(_, at)| (*name, *at))
        };
        let mut fields: Vec<_> = names.iter().filter_map(found).collect();
        fields.extend(self.positions.fields.iter().copied());
        Positions { whole: self.positions.whole, fields }
    }
}

fn step(verb: Verb) -> Step {
    Step { verb, at: ByteRange::default() }
}

fn mean_ns(length: &Length) -> f64 {
    match length {
        Length::Fixed(length) => to_ns(*length) as f64,
        Length::Drawn(distribution) => distribution.mean_ns(),
    }
}

/// `times / parts` times as long; a length above 0 stays above 0.
fn scaled(length: &Length, times: u64, parts: u64) -> Length {
    let scale = |ns: u64| {
        let scaled = u128::from(ns) * u128::from(times) / u128::from(parts);
        u64::try_from(scaled).unwrap_or(u64::MAX).max(ns.min(1))
    };
    match length {
        Length::Fixed(length) => Duration::from_nanos(scale(to_ns(*length))).into(),
        Length::Drawn(distribution) => match distribution {
            Distribution::Constant { ns } => Distribution::Constant { ns: scale(*ns) },
            Distribution::Uniform { low_ns, high_ns } => {
                Distribution::Uniform { low_ns: scale(*low_ns), high_ns: scale(*high_ns) }
            }
            Distribution::Exponential { mean_ns } => {
                Distribution::Exponential { mean_ns: scale(*mean_ns) }
            }
            Distribution::LogNormal { median_ns, sigma } => {
                Distribution::LogNormal { median_ns: scale(*median_ns), sigma: *sigma }
            }
            Distribution::Empirical { values_ns, cumulative } => Distribution::Empirical {
                values_ns: values_ns.iter().map(|&ns| scale(ns)).collect(),
                cumulative: cumulative.clone(),
            },
        }
        .into(),
    }
}
