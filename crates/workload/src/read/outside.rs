//! Reads changes from outside and expectations.

use super::Reader;
use super::fields::{Fields, Read};
use super::limit::{write_burst, write_max};
use super::names::Names;
use crate::error::{Error, PartIx, Refusal};
use crate::model::{Action, Expectation, Intervention};
use cpumax_limit::Limit;

impl<'t> Reader<'t> {
    /// Reads the changes from outside, in order of time; those of one time keep their order.
    /// Without `until`, a repeated one ends with the run.
    pub(super) fn read_changes(&mut self, tables: Vec<Fields<'t>>) -> Read<()> {
        let form = "a length of time since the start";
        let timed =
            |fields: Fields<'t>| Ok((fields.required("time", fields.time("time")?, form)?, fields));
        let mut changes = tables.into_iter().map(timed).collect::<Read<Vec<_>>>()?;
        changes.sort_by_key(|(at_ns, _)| *at_ns);
        let mut limits: Vec<Limit> = self.parts.groups.iter().map(|group| group.limit).collect();
        for (ix, (at_ns, fields)) in changes.into_iter().enumerate() {
            let every_ns = fields.time("repeat")?;
            let until_ns = fields.time("until")?.unwrap_or(u64::MAX);
            let action = self.read_action(fields, ix, &mut limits)?;
            self.parts.interventions.push(Intervention { at_ns, every_ns, until_ns, action });
            self.places.tables.insert(PartIx::Intervention(ix), fields);
        }
        Ok(())
    }

    /// Reads what the `ix`-th change does: to the limit or weight of a group, to one property of
    /// the tasks of a kind, or to a CPU. `limits`: by group, the limit in force before it; written
    /// files change a part of that, and it is updated.
    ///
    /// # Errors
    /// The fields are those of no change, or of more than one.
    fn read_action(&mut self, fields: Fields<'t>, ix: usize, limits: &mut [Limit]) -> Read<Action> {
        const ON_GROUP: [&str; 3] = ["max", "burst", "weight"];
        const ON_TASK: [&str; 5] = ["signal", "move", "affinity", "nice", "class"];
        const ALONE: [&str; 2] = ["offline", "online"];
        let given = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|name| fields.value(name).is_some()).collect()
        };
        let told = |refusal: Refusal, field| {
            let part = PartIx::Intervention(ix).describe(&self.parts);
            refusal.at(fields.at(field)).part(part)
        };
        let find = |names: &Names, field| {
            let name = fields.present(field, fields.text(field)?)?;
            names.find(name).map_err(|refusal| told(refusal, field))
        };
        let group = |field| find(&self.groups, field);
        let kind = || find(&self.tasks, "task");
        let cpu = |name| Ok(fields.number(name)?.unwrap_or(0) as u16);
        let subject = (fields.text("group")?.is_some(), fields.text("task")?.is_some());
        let (on_group, on_task, alone) = (given(&ON_GROUP), given(&ON_TASK), given(&ALONE));
        Ok(match (subject, on_group.as_slice(), on_task.as_slice(), alone.as_slice()) {
            ((true, false), ["weight"], [], []) => {
                let weight = fields.number("weight")?.unwrap_or(100) as u32;
                Action::WriteWeight { group: group("group")?, weight }
            }
            ((true, false), ["max" | "burst"] | ["max", "burst"], [], []) => {
                let group = group("group")?;
                let limit = &mut limits[group as usize];
                *limit = write_files(&fields, *limit, told)?;
                Action::WriteLimit { group, limit: *limit }
            }
            ((false, true), [], ["signal"], []) => {
                let signal = fields.present("signal", fields.choice("signal")?)?;
                Action::Signal { kind: kind()?, signal }
            }
            ((false, true), [], ["move"], []) => {
                Action::Move { kind: kind()?, group: group("move")? }
            }
            ((false, true), [], ["affinity"], []) => {
                let kind = kind()?;
                let cpus = fields.present("affinity", fields.cpus("affinity")?)?;
                Action::SetAffinity { kind, cpus: self.cpu_set(cpus, fields, "affinity") }
            }
            ((false, true), [], ["nice"], []) => {
                let nice = fields.present("nice", fields.nice("nice")?)?;
                Action::SetNice { kind: kind()?, nice }
            }
            ((false, true), [], ["class"], []) => {
                let class = fields.present("class", fields.choice("class")?)?;
                Action::SetClass { kind: kind()?, class }
            }
            ((false, false), [], [], ["offline"]) => Action::CpuOffline { cpu: cpu("offline")? },
            ((false, false), [], [], ["online"]) => Action::CpuOnline { cpu: cpu("online")? },
            _ => {
                let problem = "none of the possible changes, or more than one";
                let accepted = "`group` with `max`, `burst` or `weight`; `task` with one of \
                     `signal`, `move`, `affinity`, `nice`, `class`; or `offline` or `online`";
                return Err(Refusal::new(Error::Field, problem, accepted).at(fields.at("")));
            }
        })
    }

    /// Reads an `[[expect]]`. `is` sets both bounds, and excludes `min` and `max`.
    pub(super) fn read_expectation(&mut self, fields: Fields<'t>) -> Read<()> {
        let exactly = fields.float("is")?;
        let (min, max) = (fields.float("min")?, fields.float("max")?);
        if exactly.is_some() && (min.is_some() || max.is_some()) {
            let problem = "`is` together with `min` or `max`";
            let refusal = Refusal::new(Error::Field, problem, "one or the other");
            return Err(refusal.at(fields.at("is")));
        }
        let text = |name| -> Read<Option<String>> { Ok(fields.text(name)?.map(str::to_owned)) };
        self.parts.expectations.push(Expectation {
            kernels: text("on")?.unwrap_or_default(),
            metric: fields.name("metric")?.to_owned(),
            over: text("over")?,
            per: text("per")?,
            min: exactly.or(min),
            max: exactly.or(max),
            why: text("why")?.unwrap_or_default(),
        });
        self.places.tables.insert(PartIx::Expectation(self.parts.expectations.len() - 1), fields);
        Ok(())
    }
}

/// The limit after the writes of `max` and `burst` that a change makes.
fn write_files(
    fields: &Fields<'_>,
    before: Limit,
    told: impl Fn(Refusal, &'static str) -> Refusal,
) -> Read<Limit> {
    let (max, burst) = (fields.text("max")?, fields.digits("burst")?);
    let mut limit = before;
    if max.is_some() && burst.is_some() {
        // With both given, the old burst must not hinder the new quota.
        limit = limit.with_burst_ns(0).unwrap_or(limit);
    }
    if let Some(text) = max {
        limit = write_max(limit, text).map_err(|refusal| told(refusal, "max"))?;
    }
    if let Some(text) = burst {
        limit = write_burst(limit, &text).map_err(|refusal| told(refusal, "burst"))?;
    }
    Ok(limit)
}
