//! Candidate services with threads, work and clients drawn from wide priors, and one run of each on
//! the model.

use super::measured::Measured;
use super::seen::Seen;
use cpumax_limit::Limit;
use cpumax_machine::kernel::Kernel;
use cpumax_machine::{Options, Simulation};
use cpumax_outcome::Outcome;
use cpumax_recording::Loop;
use cpumax_study::world::guarded;
use cpumax_workload::build::{Value, table};
use cpumax_workload::{Distribution, Stream, Workload};
use std::time::Duration;

const POD: &str = "/pod";
const GROUP: &str = "/pod/service";
/// Mean work of a request, ns.
const WORK_NS: [f64; 2] = [50e3, 100e6];
const THREADS_MAX: f64 = 64.0;
const CLIENTS_MAX: f64 = 256.0;
/// Spread of lognormal work, and of lognormal times between requests.
const WORK_SIGMA_MAX: f64 = 1.5;
const GAP_SIGMA_MAX: f64 = 2.0;
/// CPUs of the machine where they are unknown, and the most that are simulated.
const CPUS: [u16; 4] = [2, 4, 8, 16];
const CPUS_MAX: u16 = 32;
/// A service that uses up its limit may ask for up to this factor more.
const ASKS_MORE: f64 = 2.0;
const GAP_MIN_NS: f64 = 1e3;

/// The distribution of times around their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Fixed,
    Exponential,
    LogNormal { sigma: f64 },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Service {
    cpus: u16,
    threads: u32,
    work: Shape,
    pub work_ns: f64,
    /// Number of closed clients; `None` for open ones.
    clients: Option<u32>,
    gap: Shape,
    /// Mean time between requests (open), or between an answer and the next request of a client
    /// (closed), ns.
    gap_ns: f64,
    /// Demand of the service, as a multiple of the CPU time that it gets.
    asks: f64,
}

/// Kernel, limit, seed and length of a run of the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub kernel: Kernel,
    pub limit: Limit,
    /// Limit of the pod.
    pub above: Option<Limit>,
    pub seed: u64,
    /// Requests to simulate.
    pub requests: f64,
    /// Least time to simulate, ns.
    pub least_ns: f64,
    /// Length of the windows for [`Seen::windows`], ns.
    pub window_ns: Option<u64>,
}

/// Draws a number whose logarithm is uniform between the bounds.
fn log_uniform(stream: &mut Stream, low: f64, high: f64) -> f64 {
    low * (high / low).powf(stream.unit())
}

impl Shape {
    /// Draws a shape: fixed and exponential a quarter each, else lognormal with sigma from 0.1 to
    /// `sigma_max`.
    fn draw(stream: &mut Stream, sigma_max: f64) -> Shape {
        match stream.below(4) {
            0 => Shape::Fixed,
            1 => Shape::Exponential,
            _ => Shape::LogNormal { sigma: 0.1 + (sigma_max - 0.1) * stream.unit() },
        }
    }

    /// A length of this shape with this mean, at least 1 ns.
    fn of_mean(self, mean_ns: f64) -> Value {
        let ns = mean_ns.max(1.0) as u64;
        match self {
            Shape::Fixed => Duration::from_nanos(ns).into(),
            Shape::Exponential => Distribution::Exponential { mean_ns: ns }.into(),
            Shape::LogNormal { sigma } => {
                let median_ns = (mean_ns / (sigma * sigma / 2.0).exp()).max(1.0) as u64;
                Distribution::LogNormal { median_ns, sigma }.into()
            }
        }
    }
}

impl Service {
    /// Draws a service whose usage is about the measured one; where the limit is used up it may ask
    /// for up to twice that. Known CPUs, threads, clients and requests are taken over.
    pub fn draw(stream: &mut Stream, measured: &Measured) -> Service {
        let used = measured.drawn_cpus();
        let told = measured.allowed.map(|cpus| cpus.clamp(1, CPUS_MAX));
        let drawn = CPUS[stream.below(CPUS.len() as u64) as usize];
        let least = measured.limit_cpus().ceil().clamp(1.0, f64::from(CPUS_MAX)) as u16;
        let cpus = told.unwrap_or(drawn.max(least));
        let threads = log_uniform(stream, 1.0, THREADS_MAX + 1.0) as u32;
        let threads = measured.known.threads.unwrap_or(threads).max(1);
        let any_ns = log_uniform(stream, WORK_NS[0], WORK_NS[1]);
        let off = 0.95 + 0.1 * stream.unit();
        let told_ns = measured.requests_per_s.map(|rate| used * 1e9 / rate * off);
        let work_ns = told_ns.unwrap_or(any_ns);
        let work = Shape::draw(stream, WORK_SIGMA_MAX);
        let gap = Shape::draw(stream, GAP_SIGMA_MAX);
        let any = if stream.below(2) == 0 { Loop::Closed } else { Loop::Open };
        let least = used.ceil().max(1.0);
        let clients = log_uniform(stream, least, least * CLIENTS_MAX) as u32;
        let is_closed = measured.known.clients.unwrap_or(any) == Loop::Closed;
        let more = ASKS_MORE.powf(stream.unit());
        let asks = if measured.is_used_up() && stream.below(3) > 0 { more } else { 1.0 };
        let clients = is_closed.then_some(clients);
        let mut service = Service { cpus, threads, work, work_ns, clients, gap, gap_ns: 0.0, asks };
        service.set_rate(used * 1e9 / work_ns, work_ns * 1.2);
        service
    }

    /// Sets the mean time between requests for a rate of requests that take `takes_ns` each. Closed
    /// clients spend that time of each cycle waiting.
    fn set_rate(&mut self, per_s: f64, takes_ns: f64) {
        let between_ns = 1e9 / (per_s * self.asks);
        self.gap_ns = match self.clients {
            None => between_ns.max(GAP_MIN_NS),
            Some(clients) => (f64::from(clients) * between_ns - takes_ns).max(0.0),
        };
    }

    /// Whether its load is found by a run first; `is_told` marks long runs. Closed clients always
    /// need it, as their rate depends on how long requests take. The rate of open clients only
    /// varies by chance, which matters in long runs.
    pub fn is_corrected(&self, is_told: bool) -> bool {
        self.clients.is_some() || is_told && self.asks <= 1.0
    }

    /// Corrects the time between requests, so that a run like `seen` would use `cpus`; does nothing
    /// where that run answered no request.
    pub fn correct(&mut self, seen: &Seen, cpus: f64) {
        if seen.cpus <= 0.0 || seen.requests_per_s <= 0.0 {
            return;
        }
        let off = cpus / seen.cpus;
        match self.clients {
            None => self.gap_ns = (self.gap_ns / off.clamp(0.2, 5.0)).max(GAP_MIN_NS),
            Some(clients) => {
                // Little's law gives the time that a request takes.
                let cycle_ns = f64::from(clients) * 1e9 / seen.requests_per_s;
                let takes_ns = (cycle_ns - self.gap_ns).max(self.work_ns);
                self.set_rate(seen.requests_per_s * off, takes_ns);
            }
        }
    }

    /// The workload of the service in a limited group, in a pod that may have a limit too, for
    /// `length_ns`; `None` if it cannot be built.
    fn workload(&self, of: &Setting, length_ns: u64) -> Option<Workload> {
        let (work, gap) = (self.work.of_mean(self.work_ns), self.gap.of_mean(self.gap_ns));
        let think = if self.gap_ns < GAP_MIN_NS { Duration::ZERO.into() } else { gap.clone() };
        let service = table("name", "service").with("group", GROUP).with("work", work);
        let service = match self.clients {
            Some(clients) => service.with("clients", clients).with("think", think),
            None => service.with("every", gap),
        };
        let group = |path, limit: Limit| {
            let burst_us = limit.burst_ns() / 1000;
            table("path", path).with("max", limit.to_string()).with("burst", burst_us)
        };
        let mut workload = Workload::builder("fit")
            .with("duration", Duration::from_nanos(length_ns))
            .with("machine", table("cpus", self.cpus));
        if let Some(above) = of.above {
            workload = workload.part("group", group(POD, above));
        }
        workload
            .part("group", group(GROUP, of.limit))
            .part("service", service.with("threads", self.threads))
            .build()
            .ok()
    }

    /// Simulates it for the time that the asked requests take at its rate: from `least_ns` or eight
    /// periods up to 60 s. `None` where the model fails.
    pub fn run(&self, of: &Setting) -> Option<Seen> {
        const LONGEST_NS: f64 = 60e9;
        let per_s = match self.clients {
            None => 1e9 / self.gap_ns,
            Some(clients) => {
                let capacity = f64::from(self.cpus.min(self.threads.min(1 << 12) as u16));
                let wanted = f64::from(clients) * 1e9 / (self.gap_ns + self.work_ns);
                wanted.min(capacity * 1e9 / self.work_ns)
            }
        };
        let least_ns = of.least_ns.max(8.0 * of.limit.period_ns() as f64);
        let length_ns = (of.requests / per_s * 1e9).clamp(least_ns, LONGEST_NS.max(least_ns));
        let workload = self.workload(of, length_ns as u64)?;
        let options = Options::new(of.kernel, of.seed);
        let run = || {
            let mut simulation = Simulation::new(&workload, &options, None);
            let mut windows = Vec::new();
            if let Some(window_ns) = of.window_ns {
                let mut before_ns = 0;
                for at in 1..=(length_ns as u64 / window_ns.max(1)) {
                    simulation.step_until(at * window_ns).ok()?;
                    let usage_ns = simulation.group(GROUP)?.usage_ns;
                    windows.push((usage_ns - before_ns) as f64 / window_ns as f64);
                    before_ns = usage_ns;
                }
            }
            simulation.run(None).ok()?;
            Some((simulation.outcome(), windows))
        };
        let (outcome, windows) = guarded(run).ok().flatten()?;
        Seen::of(&outcome, windows)
    }
}

impl Seen {
    /// Numbers of the service's group in a run, rates per second; `None` if the run has no such
    /// group. `windows` is passed on.
    fn of(outcome: &Outcome, windows: Vec<f64>) -> Option<Seen> {
        let group = outcome.groups.get(GROUP)?;
        let seconds = outcome.simulated_ns as f64 / 1e9;
        let above = outcome.groups.get(POD);
        let above = above.map_or((0, 0), |pod| (pod.nr_throttled, pod.nr_periods));
        let in_second = |usec: u64| usec as f64 / 1e6 / seconds;
        Some(Seen {
            seconds,
            cpus: in_second(group.usage_usec),
            nr_periods: group.nr_periods as f64,
            nr_throttled: group.nr_throttled as f64,
            above: (above.0 as f64, above.1 as f64),
            throttled_s: in_second(group.throttled_usec),
            requests_per_s: group.completions as f64 / seconds,
            p50_ns: group.latency_ns.p50 as f64,
            p99_ns: group.latency_ns.p99 as f64,
            windows,
        })
    }
}
