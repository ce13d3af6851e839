//! Reads `[[service]]`, the short form of threads that answer requests and the clients that send
//! these. Each of its pools of threads becomes a channel, a job, a kind of task and a source, all
//! of one name.

use super::Reader;
use super::fields::{Cpus, Fields, Length, Read};
use super::names::Names;
use crate::bounds::{MAX_KINDS, NS_PER_US};
use crate::error::{ByteRange, Error, PartIx, Refusal};
use crate::model::{Arrivals, Class, Distribution, JobSpec, Op, Source, TaskSpec};
use crate::units::{RATE_FORM, parse_rate, quoted};
use std::rc::Rc;

struct Service<'t> {
    fields: Fields<'t>,
    name: String,
    group: &'t str,
    cpus: Cpus,
    work: Length,
    kernel: Option<Length>,
    demand: Demand,
}

enum Demand {
    /// Closed: each client waits for its answer, thinks, and asks again.
    Clients { clients: u32, think: Length },
    /// Open: time between two requests.
    Every(Length),
}

/// Threads that take requests from one channel: all threads of a service, or one of them.
pub(super) struct Pool<'t> {
    service: Rc<Service<'t>>,
    name: String,
    threads: u32,
    /// Index of its channel, and of its job.
    channel: u32,
    job: u32,
    arrivals: Option<Sent>,
}

/// The requests of a pool.
struct Sent {
    between: Length,
    start_ns: u64,
    count: u64,
}

impl<'t> Reader<'t> {
    /// Adds the channels of all services and enters the names of their tasks, jobs and sources.
    pub(super) fn enter_pools(
        &mut self,
        tables: Vec<Fields<'t>>,
        sources: &mut Names,
        kinds: u64,
    ) -> Read<Vec<Pool<'t>>> {
        let mut pools = Vec::new();
        for fields in tables {
            let service = Rc::new(read_service(fields)?);
            let threads = fields.number("threads")?.unwrap_or(1);
            let shared = fields.flag("shared")?.unwrap_or(true);
            let parts = if shared { 1 } else { threads };
            if kinds + pools.len() as u64 + parts > MAX_KINDS {
                let problem =
                    format!("more than {MAX_KINDS} kinds of task, one for each such thread");
                let refusal =
                    Refusal::new(Error::Value, problem, "fewer threads, or shared = true");
                return Err(refusal.at(fields.at("threads")));
            }
            for part in 0..parts {
                let own = format!("{}/{part}", service.name);
                let name = if shared { service.name.clone() } else { own };
                self.add_channel(&name, u64::MAX, false, fields)?;
                self.tasks.enter(&name, fields)?;
                let arrivals = sent(&service.demand, part, parts);
                if arrivals.is_some() {
                    sources.enter(&name, fields)?;
                }
                pools.push(Pool {
                    channel: self.channels.find(&name)?,
                    job: self.jobs.enter(&name, fields)?,
                    service: service.clone(),
                    threads: if shared { threads as u32 } else { 1 },
                    name,
                    arrivals,
                });
            }
        }
        Ok(pools)
    }

    /// Adds the threads of a pool: tasks that take requests and do their job for ever.
    pub(super) fn add_pool_task(&mut self, pool: &Pool<'t>) -> Read<()> {
        let Service { fields, name, group, cpus, .. } = &*pool.service;
        let group = self.groups.find(group).map_err(|refusal| {
            refusal.at(fields.at("group")).part(format!("task {}", quoted(&pool.name)))
        })?;
        let cpus = self.affinity(cpus.clone(), *fields);
        let serve = Op::Serve { channel: pool.channel };
        let program =
            vec![Op::LoopStart { times: u64::MAX, end: 2 }, serve, Op::LoopEnd { start: 0 }];
        self.places.ops.push(vec![ByteRange::default(); program.len()].into());
        self.places.tables.insert(PartIx::Task(self.parts.tasks.len()), *fields);
        self.parts.tasks.push(TaskSpec {
            name: pool.name.clone(),
            label: Some(name.clone()).filter(|label| *label != pool.name),
            count: pool.threads,
            group,
            class: Class::Fair,
            nice: 0,
            cpus,
            start_ns: 0,
            stagger_ns: 0,
            slice_ns: None,
            program: program.into(),
        });
        Ok(())
    }

    /// Adds the job of a request: work, the answer, and, from a client, the next request.
    pub(super) fn add_pool_job(&mut self, pool: &Pool<'t>) {
        let Service { fields, work, kernel, demand, .. } = &*pool.service;
        let Pool { channel, job, .. } = *pool;
        let mut program = vec![(Op::User(self.span(work.clone(), fields.at("work"))), "work")];
        if let Some(kernel) = kernel {
            program.push((Op::Kernel(self.span(kernel.clone(), fields.at("kernel"))), "kernel"));
        }
        program.push((Op::Done, ""));
        if let Demand::Clients { think, .. } = demand {
            let next = match think {
                Length::Fixed(0) => Op::Post { channel, job },
                think => {
                    let delay = self.span(think.clone(), fields.at("think"));
                    Op::After { delay, channel, job, keep: false }
                }
            };
            program.push((next, "think"));
        }
        self.places.job_ops.push(program.iter().map(|(_, field)| fields.at(field)).collect());
        self.places.tables.insert(PartIx::Job(self.parts.jobs.len()), *fields);
        let program = program.into_iter().map(|(op, _)| op).collect::<Vec<_>>().into();
        self.parts.jobs.push(JobSpec { name: pool.name.clone(), program });
    }

    /// Adds the source of all requests of an open loop, or of each closed client's first one.
    pub(super) fn add_pool_source(&mut self, pool: &Pool<'t>) {
        let Some(Sent { between, start_ns, count }) = &pool.arrivals else { return };
        let fields = pool.service.fields;
        let named = ["every", "rate", "think"].into_iter().find(|key| fields.value(key).is_some());
        let between = self.span(between.clone(), fields.at(named.unwrap_or("")));
        self.places.tables.insert(PartIx::Source(self.parts.sources.len()), fields);
        self.parts.sources.push(Source {
            name: pool.name.clone(),
            channel: pool.channel,
            arrivals: Arrivals::Between(between),
            start_ns: *start_ns,
            count: *count,
            jobs: vec![pool.job],
            lossy: false,
        });
    }
}

fn read_service(fields: Fields<'_>) -> Read<Service<'_>> {
    let form = "a length of time, such as \"3ms\" or { exponential = \"3ms\" }";
    let work = fields.required("work", fields.length("work")?, form)?;
    Ok(Service {
        fields,
        name: fields.name("name")?.to_owned(),
        group: fields.text("group")?.unwrap_or("/"),
        cpus: fields.each_or_cpus("cpus")?,
        work,
        kernel: fields.length("kernel")?,
        demand: read_demand(&fields)?,
    })
}

/// The `part`-th of `parts` equal shares of all requests, of closed clients the first of each;
/// `None` for a pool without clients.
fn sent(demand: &Demand, part: u64, parts: u64) -> Option<Sent> {
    match demand {
        Demand::Clients { clients, think } => {
            let clients = u64::from(*clients);
            let count = clients / parts + u64::from(part < clients % parts);
            if count == 0 {
                return None;
            }
            // Clients begin in the middle of their think time, at different moments.
            let between = scaled(think, 1, count);
            let is_short = mean_ns(&between) < NS_PER_US as f64;
            let between = if is_short { Length::Fixed(NS_PER_US) } else { between };
            Some(Sent { between, start_ns: 0, count })
        }
        Demand::Every(every) => {
            let start_ns = match every {
                Length::Fixed(every_ns) => every_ns.saturating_mul(part),
                Length::Drawn(_) => 0,
            };
            Some(Sent { between: scaled(every, parts, 1), start_ns, count: u64::MAX })
        }
    }
}

/// Reads how clients ask a service: exactly one of `clients` (closed, with `think` between), `rate`
/// (at random times) and `every`.
fn read_demand(fields: &Fields<'_>) -> Read<Demand> {
    let (clients, rate, every) = (
        fields.number("clients")?,
        fields.text("rate")?.map(|text| read_rate(fields, text)).transpose()?,
        fields.length("every")?,
    );
    let think = fields.length("think")?;
    if think.is_some() && clients.is_none() {
        let problem = "`think` needs `clients`, which wait for answers";
        let accepted = "clients = 16, or leave out `think`";
        return Err(Refusal::new(Error::Field, problem, accepted).at(fields.at("think")));
    }
    match (clients, rate, every) {
        (Some(clients), None, None) => {
            let think = think.unwrap_or(Length::Fixed(0));
            Ok(Demand::Clients { clients: clients as u32, think })
        }
        (None, Some(every), None) | (None, None, Some(every)) => Ok(Demand::Every(every)),
        _ => {
            let problem = "a service needs `clients`, `rate` or `every`, and only one of them";
            let accepted = "clients = 16 (a closed loop), rate = \"200/s\" (requests at random \
                            times), or every = \"5ms\" (regular requests)";
            Err(Refusal::new(Error::Field, problem, accepted).at(fields.at("")))
        }
    }
}

/// Reads a rate of random requests as exponential times between them.
fn read_rate(fields: &Fields<'_>, text: &str) -> Read<Length> {
    let Some(mean_ns) = parse_rate(text) else {
        let problem = format!("{} is not a rate", quoted(text));
        return Err(Refusal::new(Error::Value, problem, RATE_FORM).at(fields.at("rate")));
    };
    Ok(Length::Drawn(Distribution::Exponential { mean_ns }))
}

fn mean_ns(length: &Length) -> f64 {
    match length {
        Length::Fixed(ns) => *ns as f64,
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
        Length::Fixed(ns) => Length::Fixed(scale(*ns)),
        Length::Drawn(distribution) => Length::Drawn(distribution.map(scale)),
    }
}
