//! Adds the clients of a service.

use super::{Text, post, recv, send, serve, user};
use crate::plan::{Client, Plan, Server, Shape, ns};
use std::fmt::Write;

/// CPU time of a client to send a request and to read an answer.
const SENDS: &str = "\"15us\"";
const TAKES: &str = "\"12us\"";

impl Plan {
    /// The channel for answers of a connection.
    fn asker(&self, at: u64) -> String {
        match self.client {
            _ if self.client_threads => format!("c{at}"),
            client if client.is_remote() => "away".to_owned(),
            Client::ClosedLoops => format!("cl{}", at % 2),
            _ => "cl".to_owned(),
        }
    }

    fn think(&self) -> Option<String> {
        (self.think_ns > 0).then(|| self.pause.length(self.think_ns))
    }

    /// Instructions that send the answer. A closed client on another machine is part of them: it
    /// asks again after its pause.
    pub(super) fn answer(&self, at: u64) -> String {
        let mut answer = post(&format!("ans-{at}"), &self.asker(at));
        if let (Client::ClosedRemote, Some(think)) = (self.client, self.think()) {
            let to = self.inbox(at);
            let _ = write!(answer, ", {{ after = {think}, post = \"req-{at}\", to = \"{to}\" }}");
        }
        answer
    }

    /// Instructions that send a request.
    fn asks(&self, at: u64) -> Vec<String> {
        let request = post(&format!("req-{at}"), &self.inbox(at));
        match self.server {
            // The connection is accepted first; the request waits in it.
            Server::Fork => vec![post(&format!("con-{at}"), "l"), request],
            Server::Leader => vec![request, send("tick")],
            _ => vec![request],
        }
    }

    pub(super) fn add_clients(&self, text: &mut Text) {
        if self.server == Server::Fork {
            for at in 0..self.connections {
                text.add_job(&format!("con-{at}"), &[]);
            }
        }
        if self.client_threads {
            self.add_client_threads(text);
        } else if self.client.is_remote() {
            self.add_remote_clients(text);
        } else {
            self.add_client_loops(text);
        }
    }

    /// Clients with a thread for each connection.
    fn add_client_threads(&self, text: &mut Text) {
        for at in 0..self.connections {
            text.add_channel(self.asker(at));
            text.add_job(&format!("ans-{at}"), &[user(TAKES)]);
            let mut steps = match self.client {
                Client::OpenThreads => vec![recv("plan", 1), user(SENDS)],
                Client::OpenPlans => {
                    let every = ns(self.connections * self.gap_ns);
                    vec![format!("{{ every = {every} }}"), user(SENDS)]
                }
                _ => {
                    let think = self.think().map(|think| format!("{{ sleep = {think} }}"));
                    let begin = "{ begin = true }".to_owned();
                    think.into_iter().chain([user(SENDS), begin]).collect()
                }
            };
            steps.extend(self.asks(at));
            steps.push(serve(&self.asker(at)));
            text.add_endless_task((&format!("client-{at}"), 1), "/", &steps.join(", "));
            let _ = writeln!(text.text, "start = \"{}ms\"", 1 + at * 37 % 50);
        }
        if self.client == Client::OpenThreads {
            text.add_channel("plan");
            add_source(text, "plan", &Shape::Exponential.length(self.gap_ns), &[]);
        }
    }

    /// The first requests of closed clients, spread over a pause or 5 ms.
    fn add_first_requests(&self, text: &mut Text, channel: &str, jobs: &[String]) {
        let span_ns = self.think_ns.max(5_000_000);
        let at = |place: u64| ns(1_000_000 + span_ns * place / jobs.len() as u64);
        let times: Vec<String> = (0..jobs.len() as u64).map(at).collect();
        add_source_of(text, channel, &format!("at = [{}]", times.join(", ")), jobs);
    }

    /// Clients on other machines, which have no tasks.
    fn add_remote_clients(&self, text: &mut Text) {
        text.add_channel("away");
        let mut inboxes: Vec<(String, Vec<String>)> = Vec::new();
        for at in 0..self.connections {
            text.add_job(&format!("ans-{at}"), &[]);
            let (inbox, job) = (self.inbox(at), format!("req-{at}"));
            match inboxes.iter_mut().find(|(other, _)| *other == inbox) {
                Some((_, jobs)) => jobs.push(job),
                None => inboxes.push((inbox, vec![job])),
            }
        }
        for (inbox, jobs) in inboxes {
            if self.client.is_open() {
                let gap_ns = self.gap_ns * self.connections / jobs.len() as u64;
                add_source(text, &inbox, &Shape::Exponential.length(gap_ns), &jobs);
            } else {
                self.add_first_requests(text, &inbox, &jobs);
            }
        }
    }

    fn add_client_loops(&self, text: &mut Text) {
        let is_open = self.client.is_open();
        let begin = || (!is_open).then(|| "{ begin = true }".to_owned());
        let mut loops: Vec<(String, Vec<String>)> = Vec::new();
        for at in 0..self.connections {
            let (to, ask) = (self.asker(at), format!("ask-{at}"));
            let send = |takes: &str| {
                [user(takes)].into_iter().chain(begin()).chain(self.asks(at)).collect::<Vec<_>>()
            };
            text.add_job(&ask, &send(SENDS));
            let answered = match self.think() {
                _ if is_open => vec![user(TAKES)],
                Some(think) => {
                    let again = format!("{{ after = {think}, post = \"{ask}\", to = \"{to}\" }}");
                    vec![user(TAKES), again]
                }
                None => send("\"27us\""),
            };
            text.add_job(&format!("ans-{at}"), &answered);
            match loops.iter_mut().find(|(other, _)| *other == to) {
                Some((_, jobs)) => jobs.push(ask),
                None => loops.push((to, vec![ask])),
            }
        }
        for (number, (channel, jobs)) in loops.into_iter().enumerate() {
            text.add_channel(channel.as_str());
            text.add_endless_task((&format!("client-{number}"), 1), "/", &serve(&channel));
            let gap_ns = self.gap_ns;
            let every = match self.client {
                Client::OpenEven => ns(gap_ns),
                // Seven close together, then a pause.
                Client::OpenBursts => {
                    let (short, long) = (ns(gap_ns / 10), ns(gap_ns * 73 / 10));
                    format!("{{ empirical = [[{short}, 7], [{long}, 1]] }}")
                }
                _ => Shape::Exponential.length(gap_ns),
            };
            if is_open {
                add_source(text, &channel, &every, &jobs);
            } else {
                self.add_first_requests(text, &channel, &jobs);
            }
        }
    }
}

/// Adds tokens from outside.
fn add_source(text: &mut Text, channel: &str, every: &str, jobs: &[String]) {
    add_source_of(text, channel, &format!("every = {every}"), jobs);
}

fn add_source_of(text: &mut Text, channel: &str, when: &str, jobs: &[String]) {
    let _ = writeln!(
        text.text,
        "[[source]]\nname = \"plan of {channel}\"\nchannel = \"{channel}\"\n{when}"
    );
    if !jobs.is_empty() {
        let _ = writeln!(text.text, "jobs = [\"{}\"]", jobs.join("\", \""));
    }
}
