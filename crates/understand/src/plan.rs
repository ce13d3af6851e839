//! Draws services: server, clients, load and machine.
//!
//! Each seed is a service. Its remainders choose the kinds of server and client, so that
//! consecutive seeds cover every pair once; everything else comes from one random stream.

use clap::ValueEnum;
use cpumax_workload::{Domain, Stream};
use serde::Serialize;

/// How requests are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// A thread for each connection.
    Threads,
    Loop,
    /// Event loops, each with its own connections.
    Loops,
    /// Threads that take requests from any connection.
    Shared,
    /// An event loop passes all work to a pool, which answers.
    Queue,
    /// An event loop passes all work to a pool, and answers when the pool is done.
    QueueBack,
    /// A process is forked for each connection, which has one request.
    Fork,
    /// A thread for each connection waits for a back end in the group.
    Tier,
    /// A thread for each connection waits for a back end outside of the group.
    TierOutside,
    /// A proxy's event loop, a pool, and a back end for which the pool waits.
    Tiers,
    /// An event loop asks a back end and continues meanwhile.
    AsyncTier,
    /// A thread for each connection, with a lock around a part of the work.
    Locked,
    /// A thread for each connection; another thread collects garbage after fifty requests.
    Collector,
    /// A thread for each connection waits for a disk.
    Disk,
    /// One of several threads waits for requests, the others for their turn to do so.
    Leader,
    /// Each request also wakes a thread that finds no work.
    Spin,
    /// A thread for each connection asks three back ends at once.
    FanOut,
    /// An event loop that passes the work of every third connection to a pool.
    Mixed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// Closed: a thread for each connection.
    ClosedThreads,
    /// Closed: one event loop.
    ClosedLoop,
    /// Closed, without a pause.
    ClosedAtOnce,
    /// Closed: two event loops.
    ClosedLoops,
    /// Closed, on another machine.
    ClosedRemote,
    /// Open: an event loop, at random times.
    OpenRandom,
    /// Open: an event loop, at equal intervals.
    OpenEven,
    /// Open: an event loop, in bursts.
    OpenBursts,
    /// Open: threads; a free one sends the next due request.
    OpenThreads,
    /// Open: threads, each with its own schedule.
    OpenPlans,
    /// Open, on another machine.
    OpenRemote,
}

impl Server {
    /// Whether each connection has its own thread.
    pub fn is_per_connection(self) -> bool {
        use Server::{Collector, Disk, FanOut, Locked, Threads, Tier, TierOutside};
        matches!(self, Threads | Locked | Collector | Disk | Tier | TierOutside | FanOut)
    }

    /// A coarser kind.
    pub fn family(self) -> &'static str {
        use Server::{AsyncTier, FanOut, Mixed, Queue, QueueBack, Tier, TierOutside, Tiers};
        match self {
            Tier | TierOutside | Tiers | AsyncTier | FanOut => "several tiers",
            Queue | QueueBack | Mixed => "hands over",
            _ => "one tier",
        }
    }
}

impl Client {
    pub fn is_open(self) -> bool {
        use Client::{OpenBursts, OpenEven, OpenPlans, OpenRandom, OpenRemote, OpenThreads};
        matches!(self, OpenRandom | OpenEven | OpenBursts | OpenThreads | OpenPlans | OpenRemote)
    }

    pub fn is_remote(self) -> bool {
        matches!(self, Client::ClosedRemote | Client::OpenRemote)
    }

    /// Whether the client sends on its connections in turn, busy or not, which no real client does.
    /// That service is not judged under a limit that the load exceeds.
    pub fn is_unreal_when_overloaded(self) -> bool {
        use Client::{OpenBursts, OpenEven, OpenRandom, OpenRemote};
        matches!(self, OpenRandom | OpenEven | OpenBursts | OpenRemote)
    }

    pub fn family(self) -> &'static str {
        match self {
            Client::ClosedRemote => "closed, unseen",
            Client::OpenRemote => "open, unseen",
            Client::ClosedAtOnce => "closed, at once",
            _ if self.is_open() => "open",
            _ => "closed, thinks",
        }
    }
}

/// Distribution of work or pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    Fixed,
    Uniform,
    Exponential,
    /// Its sigma, hundredths, and its median, thousandths of its mean.
    LogNormal(u32, u64),
    /// One in ten is nearly eight times as long as the others.
    Two,
}

const KERNELS: [&str; 5] = ["5.15", "6.1", "6.6", "6.12", "6.18"];

#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub seed: u64,
    pub server: Server,
    pub client: Client,
    pub kernel: &'static str,
    pub cpus: u64,
    pub hz: u64,
    pub connections: u64,
    /// Threads that serve, unless each connection has one.
    pub workers: u64,
    /// Threads of the last tier.
    pub backs: u64,
    /// Mean CPU time of a request in its main part, ns.
    pub work_ns: u64,
    pub shape: Shape,
    /// Work of a back end, under a lock or for a disk, thousandths of `work_ns`.
    pub part: u64,
    /// Mean pause of a closed client, ns; 0: none.
    pub think_ns: u64,
    pub pause: Shape,
    /// Mean time between requests, ns.
    pub gap_ns: u64,
    pub duration_ns: u64,
    /// Whether clients have a thread for each connection.
    pub client_threads: bool,
    /// Whether servers are processes of their own.
    pub processes: bool,
    /// Whether a thread of the group runs every 50 ms.
    pub ticker: bool,
    /// Period of the limits, us.
    pub period_us: u64,
}

const WHOLE: u64 = 1000;
/// Smallest time between requests at full load, ns.
const LEAST_GAP_NS: u64 = 400_000;
const SECOND_NS: u64 = 1_000_000_000;

fn one_of<T: Copy>(stream: &mut Stream, all: &[T]) -> T {
    all[stream.below(all.len() as u64) as usize]
}

/// A uniform number from `low` to `high`, both included.
fn between(stream: &mut Stream, low: u64, high: u64) -> u64 {
    low + stream.below(high - low + 1)
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let (servers, clients) = (Server::value_variants(), Client::value_variants());
        let pick = |count: usize, at: u64| (at % count as u64) as usize;
        let client = clients[pick(clients.len(), seed / servers.len() as u64)];
        let mut server = servers[pick(servers.len(), seed)];
        if client.is_remote() && matches!(server, Server::Fork | Server::Leader) {
            // Both need clients with threads.
            server = Server::Shared;
        }
        let mut stream = Stream::new(seed, Domain::Workload, 54);
        let draw = &mut stream;
        let mut plan = Plan {
            seed,
            server,
            client,
            kernel: one_of(draw, &KERNELS),
            cpus: one_of(draw, &[1, 2, 2, 4, 4, 8, 16]),
            hz: one_of(draw, &[100, 250, 250, 1000]),
            connections: one_of(draw, &[1, 2, 4, 8, 16, 32]),
            workers: between(draw, 1, 4),
            backs: one_of(draw, &[1, 2, 4]),
            // From 0.2 to 6.4 ms, each octave equally likely.
            work_ns: (200_000 << draw.below(5)) * between(draw, WHOLE, 2 * WHOLE) / WHOLE,
            shape: Shape::draw(draw),
            part: between(draw, 200, 600),
            think_ns: 0,
            pause: one_of(draw, &[Shape::Exponential, Shape::Uniform, Shape::Fixed]),
            gap_ns: 0,
            duration_ns: 0,
            client_threads: false,
            processes: draw.below(2) == 0,
            ticker: draw.below(4) == 0,
            period_us: one_of(draw, &[100_000, 100_000, 20_000]),
        };
        plan.choose_numbers(draw);
        plan.choose_load(draw);
        plan
    }

    fn choose_numbers(&mut self, draw: &mut Stream) {
        use Client::{ClosedAtOnce, ClosedThreads, OpenPlans, OpenThreads};
        let threads = matches!(self.client, ClosedThreads | OpenThreads | OpenPlans);
        self.client_threads = threads || self.client == ClosedAtOnce && draw.below(2) == 0;
        if self.client == ClosedAtOnce {
            self.connections = self.connections.min(8);
        } else if self.client.is_open() {
            // Without a limit, a connection is nearly always free.
            let many: &[u64] = if self.client_threads { &[8, 16, 32] } else { &[32, 64] };
            self.connections = one_of(draw, many);
        }
        if self.server == Server::Loop {
            self.workers = 1;
        }
        if self.server == Server::Loops {
            self.workers = self.workers.max(2);
            self.connections = self.connections.max(self.workers);
        }
        if self.server.is_per_connection() || self.server == Server::Fork {
            self.workers = self.connections;
        }
        self.processes &= matches!(self.server, Server::Threads | Server::Loops);
    }

    /// Draws the load: 15 to 60 % of the service's capacity.
    fn choose_load(&mut self, draw: &mut Stream) {
        let most = self.requests_at_once().max(1);
        let load = between(draw, 150, 600);
        // Time between requests at full load, ns. Some thousand requests are enough, so large
        // machines have longer requests.
        let least_ns = (self.work_ns * WHOLE / most).max(LEAST_GAP_NS);
        self.work_ns = self.work_ns.max(least_ns * most / WHOLE);
        let alone_ns = self.work_ns * (1300 + self.part) / WHOLE;
        if self.client == Client::ClosedAtOnce {
            self.gap_ns = least_ns * 10 / 8;
        } else {
            self.gap_ns = least_ns * WHOLE / load;
            if !self.client.is_open() {
                let round_ns = self.gap_ns * self.connections;
                self.think_ns = round_ns.saturating_sub(alone_ns).max(self.work_ns / 5);
                self.gap_ns = (self.think_ns + self.work_ns * 13 / 10) / self.connections;
            }
        }
        let long = (2500 * self.gap_ns).clamp(4 * SECOND_NS, 20 * SECOND_NS);
        self.duration_ns = long.min((6000 * self.gap_ns).max(5 * SECOND_NS / 2));
        if self.server == Server::Fork {
            self.duration_ns = self.duration_ns.min(15_000 * self.gap_ns);
        }
        self.duration_ns -= self.duration_ns % 1_000_000;
    }

    /// Capacity in requests at once, thousandths; the main part of the work counts as one.
    fn requests_at_once(&self) -> u64 {
        use Server::{AsyncTier, Collector, Disk, FanOut, Locked, Mixed, Tier, TierOutside, Tiers};
        let (part, workers) = (self.part, self.workers * WHOLE);
        let per = |most: u64, takes: u64| most * WHOLE / takes;
        let beside = match self.server {
            Tier | TierOutside => part + 50,
            Tiers => part + 150,
            AsyncTier => 500,
            FanOut => 300,
            Locked => part / 2,
            Collector => 100,
            _ => 0,
        };
        let cpus = per(self.cpus * WHOLE, WHOLE + beside + 30);
        let backs = self.backs * WHOLE;
        cpus.min(match self.server {
            Tier | TierOutside | Tiers => per(backs, part).min(per(workers, 1100 + part)),
            AsyncTier => 2000.min(backs),
            Locked => per(1400, part).min(workers),
            FanOut => per(800, 300).min(workers),
            Mixed => per(WHOLE, 450).min(3 * workers),
            Disk => per(workers, WHOLE + part),
            _ => workers,
        })
    }
}

impl Shape {
    fn draw(draw: &mut Stream) -> Shape {
        let all = [Shape::Fixed, Shape::Uniform, Shape::Exponential, Shape::Two];
        match draw.below(5) {
            4 => one_of(draw, &[Shape::LogNormal(40, 923), Shape::LogNormal(80, 726)]),
            at => all[at as usize],
        }
    }

    /// A distribution with this mean, as scenarios write it.
    pub fn length(self, mean_ns: u64) -> String {
        let part = |thousandths: u64| ns(mean_ns * thousandths / WHOLE);
        match self {
            Shape::Fixed => ns(mean_ns),
            Shape::Uniform => format!("{{ uniform = [{}, {}] }}", part(500), part(1500)),
            Shape::Exponential => format!("{{ exponential = {} }}", ns(mean_ns)),
            Shape::LogNormal(sigma, median) => {
                let sigma = format!("{}.{:02}", sigma / 100, sigma % 100);
                format!("{{ lognormal = {{ median = {}, sigma = {sigma} }} }}", part(median))
            }
            Shape::Two => format!("{{ empirical = [[{}, 9], [{}, 1]] }}", part(600), part(4600)),
        }
    }

    /// Exponential for smooth distributions, otherwise fixed; for parts of the work beside the main
    /// one.
    pub fn smooth(self) -> Shape {
        if matches!(self, Shape::Fixed | Shape::Two) { Shape::Fixed } else { Shape::Exponential }
    }
}

/// A length of time as scenarios write it.
pub fn ns(ns: u64) -> String {
    format!("\"{}ns\"", ns.max(1))
}
