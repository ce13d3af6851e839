//! `[[service]]`: the short way to say who answers requests and where these come from.

use super::fields::{Fields, Read, read_cpus};
use super::program::read_length;
use crate::bounds::{MAX_KINDS, MAX_TASKS};
use crate::build::{Builder, Cpus, Demand, Length, Service};
use crate::error::{Flaw, Kind};
use crate::model::Distribution;
use crate::units::{RATE_FORM, parse_rate, quoted};
use std::time::Duration;

pub(super) const SERVICE: [&str; 11] = [
    "name", "group", "threads", "cpus", "work", "kernel", "clients", "think", "rate", "every",
    "shared",
];

/// Adds what a `[[service]]` stands for.
pub(super) fn read_service(fields: &Fields<'_>, draft: Builder) -> Read<Builder> {
    let marks = fields.marks();
    let form = "a length of time, such as \"3ms\" or { exponential = \"3ms\" }";
    let work = fields.required("work", fields.value("work"), form)?;
    let kernel = fields.value("kernel").map(|kernel| read_length(kernel, "kernel")).transpose()?;
    let cpus = match fields.text("cpus")? {
        None | Some("all") => Cpus::All,
        Some("each") => Cpus::Each,
        Some(text) => Cpus::Set(
            read_cpus(text, "\"each\", \"all\", or ").map_err(|flaw| flaw.at(marks.of("cpus")))?,
        ),
    };
    let service = Service {
        name: fields.name("name")?,
        group: fields.text("group")?.unwrap_or("/").to_owned(),
        threads: fields.number("threads", 1..=MAX_TASKS)?.unwrap_or(1) as u32,
        cpus,
        work: read_length(work, "work")?,
        kernel,
        demand: read_demand(fields)?,
        shared: fields.flag("shared")?.unwrap_or(true),
        marks,
    };
    let at = service.marks.of("threads");
    let draft = draft.service(service);
    if draft.tasks.len() as u64 > MAX_KINDS {
        let problem = format!("more than {MAX_KINDS} kinds of task, one for each such thread");
        return Err(Flaw::new(Kind::Value, problem, "fewer threads, or shared = true").at(at));
    }
    Ok(draft)
}

fn read_demand(fields: &Fields<'_>) -> Read<Demand> {
    let (clients, rate, every) = (
        fields.number("clients", 1..=MAX_TASKS)?,
        fields.value("rate").map(|_| read_rate(fields)).transpose()?,
        fields.value("every").map(|every| read_length(every, "every")).transpose()?,
    );
    let marks = fields.marks();
    let think = fields.value("think").map(|think| read_length(think, "think")).transpose()?;
    if think.is_some() && clients.is_none() {
        let problem = "`think` without `clients`: nobody waits for an answer";
        let accepted = "clients = 16, or leave out `think`";
        return Err(Flaw::new(Kind::Field, problem, accepted).at(marks.of("think")));
    }
    match (clients, rate, every) {
        (Some(clients), None, None) => {
            let think = think.unwrap_or(Length::Fixed(Duration::ZERO));
            Ok(Demand::Clients { clients: clients as u32, think })
        }
        (None, Some(every), None) | (None, None, Some(every)) => Ok(Demand::Every(every)),
        _ => {
            let problem = "a service needs `clients`, `rate` or `every`, and only one of them";
            let accepted = "clients = 16 for so many that wait for their answers, \
                 rate = \"200/s\" for requests at random, every = \"5ms\" for regular ones";
            Err(Flaw::new(Kind::Field, problem, accepted).at(marks.whole))
        }
    }
}

/// So many a second at random: exponential times between them.
fn read_rate(fields: &Fields<'_>) -> Read<Length> {
    let text = fields.text("rate")?.unwrap_or_default();
    let Some(mean_ns) = parse_rate(text) else {
        let problem = format!("{} is not a rate", quoted(text));
        return Err(Flaw::new(Kind::Value, problem, RATE_FORM).at(fields.marks().of("rate")));
    };
    Ok(Distribution::Exponential { mean_ns }.into())
}
