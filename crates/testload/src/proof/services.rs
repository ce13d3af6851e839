//! Services: real servers, each with a closed and an open client. Their work is typical (sorting,
//! compressing, JSON), not a measured length of CPU time.

use super::client::Client;
use super::server::{self, Running, ServerDir, as_postgres, prepare};
use crate::draw::{Span, Stream};
use crate::stop::Stop;
use anyhow::{Context as _, Result};
use std::process::Command;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub struct Service {
    pub name: &'static str,
    /// One sentence for the tables.
    pub what: &'static str,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A server that keeps running over many runs.
    Real { server: Server, client: Client },
    /// A load of this program, by its name among the loads.
    Own(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Postgres,
    Nginx,
    Redis,
    PythonThreads,
    PythonLoop,
    PythonForking,
    Node,
    Go,
    Java,
    Tiers,
}

impl Server {
    fn programs(self) -> &'static [&'static str] {
        match self {
            Server::Postgres => &["postgres", "initdb", "pgbench", "psql", "setpriv"],
            Server::Nginx => &["nginx"],
            Server::Redis => &["redis-server", "redis-cli"],
            Server::PythonThreads | Server::PythonLoop | Server::PythonForking => &["python3"],
            Server::Node => &["node"],
            Server::Go => &["go"],
            Server::Java => &["java", "javac"],
            Server::Tiers => &["nginx", "python3"],
        }
    }

    /// Seconds of load until its speed is stable: a just-in-time compiler needs some.
    pub fn warm_up_s(self) -> u32 {
        match self {
            Server::Java => 6,
            Server::Node => 3,
            _ => 1,
        }
    }

    /// Name of the limited group for `cpumax replay`.
    pub fn group(self, running: &Running) -> String {
        match self {
            Server::Postgres => "comm:postgres*".to_owned(),
            Server::Nginx => "comm:nginx*".to_owned(),
            _ => format!("pid:{}", running.id()),
        }
    }

    /// Starts the server with its data, and waits until it listens.
    pub fn start(self, place: &ServerDir, stop: &Stop) -> Result<Running> {
        let port = place.port.to_string();
        let with = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(&place.dir);
            command
        };
        let start =
            |name: &'static str, command: Command| Running::start(name, command, place, stop);
        match self {
            Server::PythonThreads => start("threads.py", with("python3", &["threads.py", &port])),
            Server::PythonLoop => start("loop.py", with("python3", &["loop.py", &port])),
            Server::PythonForking => start("forking.py", with("python3", &["forking.py", &port])),
            Server::Node => start("node", with("node", &["server.js", &port])),
            Server::Go => {
                prepare("go build", with("go", &["build", "-o", "goserver", "server.go"]), stop)?;
                start("goserver", with("./goserver", &[&port]))
            }
            Server::Java => {
                prepare("javac", with("javac", &["Server.java"]), stop)?;
                let no_delay = "-Dsun.net.httpserver.nodelay=true";
                start("java", with("java", &["-Xmx512m", no_delay, "Server", &port]))
            }
            Server::Nginx => {
                place.write("text.txt", &words(130_000))?;
                start("nginx", with("nginx", &["-c", &place.file("nginx.conf").to_string_lossy()]))
            }
            Server::Tiers => {
                let both = format!(
                    "python3 loop.py {} & exec nginx -c {}",
                    place.behind(),
                    place.file("tiers.conf").display()
                );
                let running = start("nginx", with("sh", &["-c", &both]))?;
                // The start of the second server cannot be observed.
                thread::sleep(Duration::from_secs(1));
                Ok(running)
            }
            Server::Redis => {
                let arguments = ["--port", &port, "--save", "", "--appendonly", "no"];
                let running = start("redis-server", with("redis-server", &arguments))?;
                let fill = "for i=1,10000 do redis.call('rpush','l',(i*7919)%10007) end";
                prepare("redis-cli", with("redis-cli", &["-p", &port, "eval", fill, "0"]), stop)?;
                Ok(running)
            }
            Server::Postgres => start_postgres(place, stop),
        }
    }
}

fn start_postgres(place: &ServerDir, stop: &Stop) -> Result<Running> {
    let data = place.file("postgres");
    server::make_folder_of_postgres(&data)?;
    if !data.join("PG_VERSION").exists() {
        let mut initdb = as_postgres("initdb")?;
        initdb.arg("-D").arg(&data).args(["-A", "trust"]);
        prepare("initdb", initdb, stop)?;
    }
    let mut postgres = as_postgres("postgres")?;
    postgres.arg("-D").arg(&data).arg("-k").arg(&data);
    postgres.args(["-p", &place.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    // Otherwise it works without requests.
    postgres.args(["-c", "autovacuum=off"]);
    let running = Running::start("postgres", postgres, place, stop)?;
    // It listens shortly before it answers.
    thread::sleep(Duration::from_secs(1));
    let client = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(place.postgres()).args(arguments);
        command
    };
    prepare("pgbench", client("pgbench", &["-i", "-s", "2", "postgres"]), stop)?;
    prepare("psql", client("psql", &["-c", "VACUUM ANALYZE", "-c", "CHECKPOINT"]), stop)?;
    Ok(running)
}

/// A deterministic text of about so many bytes that compresses like natural text.
fn words(bytes: usize) -> String {
    let mut stream = Stream::new(1, 0);
    let mut draw = |below: u64| {
        Span::Uniform { low_ns: 0, high_ns: below - 1 }.draw_ns(&mut stream).min(below - 1) as usize
    };
    let letters = b"etaoinshrdlucmfw";
    let vocabulary: Vec<String> = (0..3000)
        .map(|_| {
            let length = 2 + draw(8);
            (0..length).map(|_| char::from(letters[draw(letters.len() as u64)])).collect()
        })
        .collect();
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(&vocabulary[draw(vocabulary.len() as u64)]);
        text.push(' ');
    }
    text
}

impl Service {
    pub fn find(name: &str) -> Result<&'static Service> {
        SERVICES.iter().find(|service| service.name == name).with_context(|| {
            let names: Vec<_> = SERVICES.iter().map(|service| service.name).collect();
            format!("no service `{name}`; there are {}", names.join(", "))
        })
    }

    pub fn missing(&self) -> Vec<&'static str> {
        let Kind::Real { server, client } = self.kind else { return Vec::new() };
        let programs = server.programs().iter().copied().chain(client.program());
        programs.filter(|program| server::find(program).is_none()).collect()
    }
}

const SORT: &str = "SORT l DESC STORE d";

pub const SERVICES: &[Service] = &[
    real(
        "nginx.closed",
        "nginx with two event loops that compresses a text of 130 kB; wrk with 16 connections that \
         wait 12 to 34 ms before each.",
        Server::Nginx,
        Client::Wrk { connections: 16, think_ms: Some((12, 34)) },
    ),
    real(
        "nginx.nothink",
        "The same; wrk with 4 connections that ask as soon as they are answered.",
        Server::Nginx,
        Client::Wrk { connections: 4, think_ms: None },
    ),
    real(
        "nginx.open",
        "The same; 500 requests a second at random times, on 32 connections.",
        Server::Nginx,
        Client::Ask(&[
            "--connections",
            "32",
            "--every",
            "exp:2ms",
            "--request",
            "/text.txt",
            "--header",
            "Accept-Encoding: gzip",
        ]),
    ),
    real(
        "pgbench.closed",
        "PostgreSQL that sums over a range of a table; pgbench with 4 clients that ask as soon as \
         they are answered.",
        Server::Postgres,
        Client::Pgbench { clients: 4, rate: None, think_ms: 0 },
    ),
    real(
        "pgbench.think",
        "The same; 8 clients that wait 15 ms before each query.",
        Server::Postgres,
        Client::Pgbench { clients: 8, rate: None, think_ms: 15 },
    ),
    real(
        "pgbench.rate",
        "The same; 500 queries a second at random times (-R), by 8 clients.",
        Server::Postgres,
        Client::Pgbench { clients: 8, rate: Some(500), think_ms: 0 },
    ),
    real(
        "http.redis-closed",
        "Redis that sorts a list of 10000; 8 connections that wait 5 to 15 ms.",
        Server::Redis,
        Client::Ask(&[
            "--connections",
            "8",
            "--think",
            "uniform:5ms..15ms",
            "--protocol",
            "redis",
            "--request",
            SORT,
        ]),
    ),
    real(
        "http.redis-open",
        "The same; 625 commands a second at random times, on 16 connections.",
        Server::Redis,
        Client::Ask(&[
            "--connections",
            "16",
            "--every",
            "exp:1.6ms",
            "--protocol",
            "redis",
            "--request",
            SORT,
        ]),
    ),
    real(
        "http.redis-bench",
        "The same; redis-benchmark with 4 connections that ask as soon as they are answered.",
        Server::Redis,
        Client::RedisBenchmark { connections: 4, rate: 1000 },
    ),
    real(
        "http.threads-closed",
        "Python, a thread for each connection; 12 connections that wait 10 to 30 ms.",
        Server::PythonThreads,
        Client::Ask(&["--connections", "12", "--think", "uniform:10ms..30ms"]),
    ),
    real(
        "http.threads-open",
        "The same; 500 requests a second at random times, on 32 connections.",
        Server::PythonThreads,
        Client::Ask(&["--connections", "32", "--every", "exp:2ms"]),
    ),
    real(
        "http.loop-closed",
        "Python, one event loop (asyncio); 10 connections that wait 12 ms on average.",
        Server::PythonLoop,
        Client::Ask(&["--connections", "10", "--think", "exp:12ms"]),
    ),
    real(
        "http.loop-open",
        "The same; a request each 2 ms, on 32 connections.",
        Server::PythonLoop,
        Client::Ask(&["--connections", "32", "--every", "2ms"]),
    ),
    real(
        "http.fork-closed",
        "Python, a process for each connection, a connection for each request; 8 clients that wait \
         20 ms on average.",
        Server::PythonForking,
        Client::Ask(&["--connections", "8", "--think", "exp:20ms", "--reconnect"]),
    ),
    real(
        "http.fork-open",
        "The same; 303 requests a second at random times, at most 64 at once.",
        Server::PythonForking,
        Client::Ask(&["--connections", "64", "--every", "exp:3.3ms", "--reconnect"]),
    ),
    real(
        "http.node-closed",
        "Node, one event loop; 16 connections that wait 20 ms on average.",
        Server::Node,
        Client::Ask(&["--connections", "16", "--think", "exp:20ms"]),
    ),
    real(
        "http.node-open",
        "The same; 588 requests a second at random times, on 32 connections.",
        Server::Node,
        Client::Ask(&["--connections", "32", "--every", "exp:1.7ms"]),
    ),
    real(
        "http.go-closed",
        "Go, a goroutine for each connection; 8 connections that wait 5 to 15 ms.",
        Server::Go,
        Client::Ask(&["--connections", "8", "--think", "uniform:5ms..15ms"]),
    ),
    real(
        "http.go-open",
        "The same; 357 requests a second at random times, on 32 connections.",
        Server::Go,
        Client::Ask(&["--connections", "32", "--every", "exp:2.8ms"]),
    ),
    real(
        "http.java-closed",
        "The JVM, a dispatcher and a pool of four threads; 12 connections that wait 12 ms on \
         average.",
        Server::Java,
        Client::Ask(&["--connections", "12", "--think", "exp:12ms"]),
    ),
    real(
        "http.java-open",
        "The same; 667 requests a second at random times, on 32 connections.",
        Server::Java,
        Client::Ask(&["--connections", "32", "--every", "exp:1.5ms"]),
    ),
    real(
        "http.tiers-closed",
        "nginx in front of Python's event loop, both in the group; 8 connections that wait 12 ms \
         on average.",
        Server::Tiers,
        Client::Ask(&["--connections", "8", "--think", "exp:12ms"]),
    ),
    own(
        "http.web-closed",
        "testload: four threads for four connections; a request costs 3 ms on average; each client \
         waits 10 ms on average.",
        "web-closed",
    ),
    own(
        "http.web-rate",
        "testload: the same server; 125 requests a second at random times of 2.4 ms on average.",
        "web-rate",
    ),
    own("bursts.queue", "testload: two threads that each work 8 to 16 ms every 73 ms.", "bursts"),
];

const fn real(name: &'static str, what: &'static str, server: Server, client: Client) -> Service {
    Service { name, what, kind: Kind::Real { server, client } }
}

const fn own(name: &'static str, what: &'static str, load: &'static str) -> Service {
    Service { name, what, kind: Kind::Own(load) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_each_and_tell_what_they_count() {
        for (index, service) in SERVICES.iter().enumerate() {
            let unit = service.name.split('.').next().unwrap();
            assert!(["nginx", "pgbench", "http", "bursts"].contains(&unit), "{}", service.name);
            assert!(SERVICES[..index].iter().all(|other| other.name != service.name));
        }
        assert!(Service::find("http.node-open").is_ok());
        assert!(Service::find("node").unwrap_err().to_string().contains("http.node-open"));
    }

    #[test]
    fn a_text_is_always_the_same() {
        let text = words(1000);
        assert_eq!(text, words(1000));
        assert!((1000..1011).contains(&text.len()));
    }
}
