//! Builder of a service: threads that answer requests, and the clients that send these. A service
//! stands for a channel, a job, a kind of task and a source.

use super::{Arrive, Builder, Channel, Cpus, Job, Length, Positions, Source, Task, to_ns};
use crate::bounds::{MAX_KINDS, NS_PER_US};
use crate::model::Distribution;
use crate::step::{Step, done, forever, kernel, post, post_after, serve, user};
use std::time::Duration;

/// Threads that answer requests, and the clients that send these.
///
/// ```
/// use cpumax_workload::{Distribution, Workload, build::Service};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let work = Distribution::Exponential { mean_ns: 3_000_000 };
/// let workload = Workload::builder("web")
///     .service(Service::closed("web", work, 16, ms(20)).threads(4))
///     .build()?;
/// assert_eq!((workload.jobs.len(), workload.tasks[0].count), (1, 4));
/// # Ok::<(), cpumax_workload::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Service {
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
    /// A service with one thread in the root group. Each client waits for its answer, thinks for
    /// `think`, and asks again; a request needs `work` of user time.
    pub fn closed(
        name: impl Into<String>,
        work: impl Into<Length>,
        clients: u32,
        think: impl Into<Length>,
    ) -> Service {
        Service::new(name, work.into(), Demand::Clients { clients, think: think.into() })
    }

    /// A service with one thread in the root group. Requests that need `work` of user time arrive
    /// with `every` between them, answered or not.
    pub fn open(
        name: impl Into<String>,
        work: impl Into<Length>,
        every: impl Into<Length>,
    ) -> Service {
        Service::new(name, work.into(), Demand::Every(every.into()))
    }

    /// A service of this demand with one thread in the root group on any CPU, whose connections any
    /// thread answers.
    fn new(name: impl Into<String>, work: Length, demand: Demand) -> Service {
        Service {
            name: name.into(),
            group: "/".to_owned(),
            threads: 1,
            cpus: Cpus::All,
            work,
            kernel: None,
            demand,
            shared: true,
            positions: Positions::default(),
        }
    }

    /// Sets the group of its threads.
    #[must_use]
    pub fn group(mut self, path: impl Into<String>) -> Service {
        self.group = path.into();
        self
    }

    /// Sets the number of threads, at least one.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Service {
        self.threads = threads;
        self
    }

    /// Sets the CPUs that its threads may use.
    #[must_use]
    pub fn cpus(mut self, cpus: Cpus) -> Service {
        self.cpus = cpus;
        self
    }

    /// Sets the kernel time that a request needs in addition to its work.
    #[must_use]
    pub fn kernel(mut self, kernel: impl Into<Length>) -> Service {
        self.kernel = Some(kernel.into());
        self
    }

    /// Ties each connection to one thread. Without this, any free thread answers.
    #[must_use]
    pub fn own_connections(mut self) -> Service {
        self.shared = false;
        self
    }

    /// Adds the channels, jobs, tasks and sources of the service to a builder: one of each, or for
    /// own connections one for each thread.
    pub(super) fn add_to(&self, draft: &mut Builder) {
        // The checks refuse this number too; a larger one would only take memory.
        let threads = self.threads.clamp(1, MAX_KINDS as u32 + 1);
        if self.shared {
            return self.add(draft, self.name.clone(), self.threads.max(1), (0, 1));
        }
        for thread in 0..threads {
            self.add(draft, format!("{}/{thread}", self.name), 1, (thread, threads));
        }
    }

    /// Adds a pool of `count` threads called `name` with its channel, its job, and the source of
    /// its requests: the part `part` (from 0) of `parts` equal ones. Without clients there is no
    /// source.
    fn add(&self, draft: &mut Builder, name: String, count: u32, (part, parts): (u32, u32)) {
        let positions = || self.positions_of(&[]);
        let pool = Task {
            label: Some(self.name.clone()).filter(|label| *label != name),
            cpus: self.cpus.clone(),
            positions: positions(),
            ..Task::new(&name)
        };
        let program = [forever([serve(&name)])];
        draft.tasks.push(pool.count(count).group(&self.group).program(program));
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

    /// The program of a request: work, the answer, and, from a client, the next request after its
    /// think time.
    fn job(&self, name: &str) -> Vec<Step> {
        let at = |step: Step, field: &str| Step { at: self.positions.of(field), ..step };
        let mut steps = vec![at(user(self.work.clone()), "work")];
        steps.extend(self.kernel.clone().map(|length| at(kernel(length), "kernel")));
        steps.push(at(done(), ""));
        if let Demand::Clients { think, .. } = &self.demand {
            steps.push(match think {
                Length::Fixed(Duration::ZERO) => at(post(name, name), "think"),
                think => at(post_after(think.clone(), name, name), "think"),
            });
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

/// The fixed length, or the mean of the drawn ones, ns.
fn mean_ns(length: &Length) -> f64 {
    match length {
        Length::Fixed(length) => to_ns(*length) as f64,
        Length::Drawn(distribution) => distribution.mean_ns(),
    }
}

/// A length `times / parts` times as long; each ns value above 0 stays above 0, and sigma stays.
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
