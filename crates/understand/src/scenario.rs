//! Writes a drawn service as a scenario.
//!
//! Names identify messages: `req-3` goes to the server on connection 3, `ans-3` back, `db-3` to its
//! back end; `record` maps them to descriptors. A message takes three microseconds, because events
//! at equal times look like no real recording.

use crate::plan::{Plan, Server, ns};
use std::fmt::Write;

mod clients;

pub const GROUP: &str = "/svc";

/// Text of a scenario, and its channels so far.
#[derive(Default)]
struct Text {
    channels: Vec<String>,
    text: String,
}

impl Text {
    fn add_channel(&mut self, name: impl Into<String>) {
        let name = name.into();
        if !self.channels.contains(&name) {
            let _ = writeln!(self.text, "[[channel]]\nname = \"{name}\"");
            self.channels.push(name);
        }
    }

    fn add_lock(&mut self, name: &str) {
        let _ = writeln!(self.text, "[[lock]]\nname = \"{name}\"\nkind = \"mutex\"");
    }

    fn add_job(&mut self, name: &str, steps: &[String]) {
        let steps = steps.join(", ");
        let _ = writeln!(self.text, "[[job]]\nname = \"{name}\"\nprogram = [{steps}]");
    }

    fn add_endless_task(&mut self, (name, count): (&str, u64), group: &str, steps: &str) {
        self.add_task((name, count), group, &format!("{{ forever = [{steps}] }}"));
    }

    fn add_task(&mut self, (name, count): (&str, u64), group: &str, steps: &str) {
        let _ = writeln!(
            self.text,
            "[[task]]\nname = \"{name}\"\ngroup = \"{group}\"\ncount = {count}\nprogram = [{steps}]"
        );
    }
}

fn user(length: impl AsRef<str>) -> String {
    format!("{{ user = {} }}", length.as_ref())
}

fn kernel(us: u64) -> String {
    format!("{{ kernel = \"{us}us\" }}")
}

fn done() -> String {
    "{ done = true }".to_owned()
}

fn serve(channel: &str) -> String {
    format!("{{ serve = \"{channel}\" }}")
}

fn recv(channel: &str, n: u64) -> String {
    format!("{{ recv = \"{channel}\", n = {n} }}")
}

fn send(channel: &str) -> String {
    format!("{{ send = \"{channel}\" }}")
}

fn post(job: &str, to: &str) -> String {
    format!("{}, {{ post = \"{job}\", to = \"{to}\" }}, {}", kernel(1), kernel(2))
}

impl Plan {
    /// The text of the scenario, with a limit (quota and period, us) if given.
    pub fn scenario(&self, limit: Option<(u64, u64)>) -> String {
        let mut text = Text::default();
        let (ms, cpus, hz) = (self.duration_ns / 1_000_000, self.cpus, self.hz);
        let _ = writeln!(
            text.text,
            "name = \"understand-{}\"\nduration = \"{ms}ms\"\n[machine]\ncpus = {cpus}\nhz = {hz}\n\
             [[group]]\npath = \"{GROUP}\"",
            self.seed
        );
        if let Some((quota_us, period_us)) = limit {
            let _ = writeln!(text.text, "max = \"{quota_us} {period_us}\"");
        }
        for at in 0..self.connections {
            text.add_channel(self.inbox(at));
            self.add_jobs(&mut text, at);
        }
        self.add_servers(&mut text);
        if self.ticker {
            text.add_endless_task(
                ("srvtick", 1),
                GROUP,
                "{ every = \"50ms\" }, { user = \"300us\" }",
            );
        }
        self.add_clients(&mut text);
        text.text
    }

    /// The channel for requests of a connection.
    fn inbox(&self, at: u64) -> String {
        match self.server {
            server if server.is_per_connection() => format!("s{at}"),
            Server::Loops => format!("s{}", at % self.workers),
            _ => "s".to_owned(),
        }
    }

    fn part_of_work_ns(&self, thousandths: u64) -> u64 {
        self.work_ns * thousandths / 1000
    }

    /// Work of so many thousandths of the main part.
    fn fixed_work(&self, thousandths: u64) -> String {
        user(ns(self.part_of_work_ns(thousandths)))
    }

    /// Adds the jobs of a connection.
    fn add_jobs(&self, text: &mut Text, at: u64) {
        let work = user(self.shape.length(self.work_ns));
        let overhead = kernel(8);
        let mut answer = vec![done(), self.answer(at)];
        let request = format!("req-{at}");
        let mut steps = vec![overhead.clone()];
        match self.server {
            Server::Fork => {
                answer.push(kernel(20));
                steps = vec![work];
            }
            Server::Disk => {
                let waits = format!("{{ sleep = {{ exponential = {} }} }}", {
                    ns(self.part_of_work_ns(self.part))
                });
                steps.extend([work, waits, kernel(10)]);
            }
            Server::Locked => {
                let held = self.fixed_work(self.part / 2);
                let (lock, unlock) = ("{ lock = \"m\" }", "{ unlock = \"m\" }");
                steps.extend([work, lock.to_owned(), held, unlock.to_owned()]);
            }
            Server::Collector | Server::Spin => steps.extend([work, send("gc")]),
            Server::Threads | Server::Loop | Server::Loops | Server::Shared | Server::Leader => {
                steps.push(work);
            }
            Server::Queue | Server::QueueBack | Server::Mixed => {
                return self.add_pool_jobs(text, at, &answer);
            }
            Server::Tier
            | Server::TierOutside
            | Server::Tiers
            | Server::AsyncTier
            | Server::FanOut => return self.add_tier_jobs(text, at, &answer),
        }
        steps.extend(answer);
        text.add_job(&request, &steps);
    }

    /// Adds the jobs of an event loop that passes work to a pool.
    fn add_pool_jobs(&self, text: &mut Text, at: u64, answer: &[String]) {
        let work = user(self.shape.length(self.work_ns));
        let (request, overhead) = (format!("req-{at}"), kernel(8));
        let (pooled, back) = (format!("work-{at}"), format!("back-{at}"));
        let to_pool = post(&pooled, "q");
        let with_answer =
            |steps: &[&String]| steps.iter().copied().chain(answer).cloned().collect::<Vec<_>>();
        match self.server {
            Server::Queue => {
                text.add_job(&request, &[overhead, to_pool]);
                text.add_job(&pooled, &with_answer(&[&work]));
            }
            Server::QueueBack => {
                text.add_job(&request, &[overhead.clone(), to_pool]);
                text.add_job(&pooled, &[work, post(&back, "s")]);
                text.add_job(&back, &with_answer(&[&overhead]));
            }
            _ if at.is_multiple_of(3) => {
                text.add_job(&request, &[overhead, self.fixed_work(200), to_pool]);
                text.add_job(&pooled, &[work, post(&back, "s")]);
                text.add_job(&back, &with_answer(&[&self.fixed_work(100)]));
            }
            _ => text.add_job(&request, &with_answer(&[&overhead, &self.fixed_work(500)])),
        }
    }

    /// Adds the jobs of servers with back ends.
    fn add_tier_jobs(&self, text: &mut Text, at: u64, answer: &[String]) {
        let work = user(self.shape.length(self.work_ns));
        let part_ns = self.part_of_work_ns(self.part);
        let (request, overhead) = (format!("req-{at}"), kernel(8));
        let (ask, answered) = (format!("db-{at}"), format!("dbans-{at}"));
        let reply = format!("r{at}");
        let ask_db = format!("{}, {}", post(&ask, "d"), recv(&reply, 1));
        let back = |to: &str| [overhead.clone(), user(ns(part_ns)), post(&answered, to)];
        let with_answer = |steps: &[String]| [steps, answer].concat();
        match self.server {
            Server::Tiers => {
                let (app, app_answers) = (format!("app-{at}"), format!("appans-{at}"));
                text.add_job(&request, &[overhead.clone(), self.fixed_work(80), post(&app, "a")]);
                let after = [self.fixed_work(50), post(&app_answers, "s")];
                text.add_job(&app, &[&[overhead.clone(), work, ask_db], &after[..]].concat());
                text.add_job(&ask, &back(&reply));
                text.add_job(&app_answers, &with_answer(&[overhead]));
            }
            Server::AsyncTier => {
                text.add_job(&request, &[overhead.clone(), self.fixed_work(300), post(&ask, "d")]);
                text.add_job(&ask, &[overhead.clone(), work, post(&answered, "s")]);
                text.add_job(&answered, &with_answer(&[overhead, self.fixed_work(200)]));
                return;
            }
            Server::FanOut => {
                let (each, mut steps) = (self.shape.smooth(), vec![overhead, self.fixed_work(300)]);
                let reply = |shard: u64| format!("r{at}-{shard}");
                for shard in 0..3 {
                    let (ask, answered) = (format!("db{shard}-{at}"), format!("dbans{shard}-{at}"));
                    steps.push(post(&ask, &format!("d{shard}")));
                    let work = user(each.length(self.part_of_work_ns(300)));
                    text.add_job(&ask, &[kernel(8), work, post(&answered, &reply(shard))]);
                    text.add_job(&answered, &[]);
                    text.add_channel(reply(shard));
                }
                steps.extend((0..3).map(|shard| recv(&reply(shard), 1)));
                steps.push(self.fixed_work(100));
                text.add_job(&request, &with_answer(&steps));
                return;
            }
            _ => {
                text.add_job(
                    &request,
                    &with_answer(&[overhead.clone(), work, ask_db, self.fixed_work(50)]),
                );
                text.add_job(&ask, &back(&reply));
            }
        }
        text.add_channel(reply);
        text.add_job(&answered, &[]);
    }

    fn add_servers(&self, text: &mut Text) {
        let workers = self.workers;
        match self.server {
            server if server.is_per_connection() || server == Server::Loops => {
                for at in 0..workers {
                    text.add_endless_task(
                        (&format!("srv-{at}"), 1),
                        GROUP,
                        &serve(&format!("s{at}")),
                    );
                }
            }
            Server::Queue | Server::QueueBack | Server::Mixed => {
                text.add_channel("q");
                text.add_endless_task(("srvio", 1), GROUP, &serve("s"));
                text.add_endless_task(("srvwork", workers), GROUP, &serve("q"));
            }
            Server::Fork => {
                text.add_channel("l");
                let accept = format!("{}, {}, {{ fork = \"srvkid\" }}", recv("l", 1), kernel(30));
                text.add_endless_task(("srv", 1), GROUP, &accept);
                text.add_task(("srvkid", 0), GROUP, &format!("{}, {{ exit = true }}", serve("s")));
            }
            Server::Tiers => {
                text.add_channel("a");
                text.add_endless_task(("srvproxy", 1), GROUP, &serve("s"));
                text.add_endless_task(("srvapp", workers), GROUP, &serve("a"));
            }
            Server::Leader => {
                text.add_channel("tick");
                text.add_lock("turn");
                let steps = ["{ lock = \"turn\" }", &recv("tick", 1), "{ unlock = \"turn\" }"];
                let steps = format!("{}, {}", steps.join(", "), serve("s"));
                text.add_endless_task(("srv", workers + 1), GROUP, &steps);
            }
            Server::AsyncTier => text.add_endless_task(("srv", 1), GROUP, &serve("s")),
            _ => text.add_endless_task(("srv", workers), GROUP, &serve("s")),
        }
        self.add_helpers(text);
    }

    /// Adds back ends and helper threads.
    fn add_helpers(&self, text: &mut Text) {
        match self.server {
            Server::Tier | Server::Tiers | Server::AsyncTier => {
                text.add_channel("d");
                text.add_endless_task(("srvdb", self.backs), GROUP, &serve("d"));
            }
            Server::TierOutside => {
                text.add_channel("d");
                text.add_endless_task(("db", self.backs), "/", &serve("d"));
            }
            Server::FanOut => {
                for shard in 0..3 {
                    let inbox = format!("d{shard}");
                    text.add_endless_task((&format!("srvdb-{shard}"), 1), GROUP, &serve(&inbox));
                    text.add_channel(inbox);
                }
            }
            Server::Spin => {
                text.add_channel("gc");
                let looks = user("{ uniform = [\"5us\", \"60us\"] }");
                text.add_endless_task(
                    ("srvspin", 2),
                    GROUP,
                    &format!("{}, {looks}", recv("gc", 1)),
                );
            }
            Server::Collector => {
                text.add_channel("gc");
                let collects = self.fixed_work(5000);
                text.add_endless_task(
                    ("srvgc", 1),
                    GROUP,
                    &format!("{}, {collects}", recv("gc", 50)),
                );
            }
            Server::Locked => text.add_lock("m"),
            _ => {}
        }
    }
}
