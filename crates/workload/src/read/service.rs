//! Reads `[[service]]`, the short form of threads that answer requests and the clients that send
//! these.

use super::fields::{Fields, Read};
use crate::bounds::MAX_KINDS;
use crate::draft::{Demand, Draft, Length, Service};
use crate::error::{Kind, Refusal};
use crate::model::Distribution;
use crate::units::{RATE_FORM, parse_rate, quoted};
use std::time::Duration;

/// Adds the parts that a `[[service]]` stands for.
pub(super) fn read_service(fields: &Fields<'_>, mut draft: Draft) -> Read<Draft> {
    let positions = fields.positions();
    let form = "a length of time, such as \"3ms\" or { exponential = \"3ms\" }";
    let work = fields.required("work", fields.length("work")?, form)?;
    let service = Service {
        name: fields.name("name")?,
        group: fields.text("group")?.unwrap_or("/").to_owned(),
        threads: fields.number("threads")?.unwrap_or(1) as u32,
        cpus: fields.each_or_cpus("cpus")?,
        work,
        kernel: fields.length("kernel")?,
        demand: read_demand(fields)?,
        shared: fields.flag("shared")?.unwrap_or(true),
        positions,
    };
    let at = service.positions.of("threads");
    service.add_to(&mut draft);
    if draft.tasks.len() as u64 > MAX_KINDS {
        let problem = format!("more than {MAX_KINDS} kinds of task, one for each such thread");
        return Err(Refusal::new(Kind::Value, problem, "fewer threads, or shared = true").at(at));
    }
    Ok(draft)
}

/// Reads how clients ask a service: exactly one of `clients` (closed, with `think` between), `rate`
/// (at random times) and `every`.
fn read_demand(fields: &Fields<'_>) -> Read<Demand> {
    let (clients, rate, every) = (
        fields.number("clients")?,
        fields.text("rate")?.map(|text| read_rate(fields, text)).transpose()?,
        fields.length("every")?,
    );
    let positions = fields.positions();
    let think = fields.length("think")?;
    if think.is_some() && clients.is_none() {
        let problem = "`think` needs `clients`, which wait for answers";
        let accepted = "clients = 16, or leave out `think`";
        return Err(Refusal::new(Kind::Field, problem, accepted).at(positions.of("think")));
    }
    match (clients, rate, every) {
        (Some(clients), None, None) => {
            let think = think.unwrap_or(Length::Fixed(Duration::ZERO));
            Ok(Demand::Clients { clients: clients as u32, think })
        }
        (None, Some(every), None) | (None, None, Some(every)) => Ok(Demand::Every(every)),
        _ => {
            let problem = "a service needs `clients`, `rate` or `every`, and only one of them";
            let accepted = "clients = 16 (a closed loop), rate = \"200/s\" (requests at random \
                            times), or every = \"5ms\" (regular requests)";
            Err(Refusal::new(Kind::Field, problem, accepted).at(positions.whole))
        }
    }
}

/// Reads a rate of random requests as exponential times between them.
fn read_rate(fields: &Fields<'_>, text: &str) -> Read<Length> {
    let Some(mean_ns) = parse_rate(text) else {
        let problem = format!("{} is not a rate", quoted(text));
        return Err(Refusal::new(Kind::Value, problem, RATE_FORM).at(fields.positions().of("rate")));
    };
    Ok(Distribution::Exponential { mean_ns }.into())
}
