//! What is asked of a recording, and the ways in which it may be understood.

use super::costs::Costs;
use crate::predict::{Window, WorkRange};
use crate::what_if::{self, Try};
use crate::{Error, recorded};
use cpumax_recording::{Clients, Clock, Loop, Recording, Selection, Selector, Service, Summary};
use cpumax_workload::{CpuSet, GroupIx, Tasks, Workload, as_name};
use std::sync::Arc;

const OPEN_OR_CLOSED: &str = "whether clients wait for an answer before they ask again makes a \
difference, and the recording does not tell: record system calls, or tell --clients open, \
--clients closed or how many closed ones there are, such as --clients 16";

const SKIPS_OR_QUEUES: &str = "some of its threads follow a clock, and whether they do later what \
they are late for or leave it out makes a difference: tell --skip-late PATTERN if they leave it \
out";

/// Where chosen threads are put, and where if the group above that is limited, too. Below the group
/// above them where that was limited in the recording.
pub(super) const CHOSEN: &str = "/limited";
const CHOSEN_IN_POD: &str = "/pod/limited";

/// What is asked of a recording. [`Request::default`] asks for a ladder of limits of its busiest
/// group.
///
/// [Example](crate).
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The threads to limit; none is the group that used most CPU time, or that of the limits.
    pub group: Vec<Selector>,
    /// Limits to try; none is a ladder around what was used.
    pub limits: Vec<Try>,
    /// How clients ask, or how many closed ones there are; `None`: as the recording shows.
    pub clients: Option<Clients>,
    /// The CPUs that the limited threads may use; `None`: as the recording shows.
    pub pin: Option<CpuSet>,
    /// Ticks in a second, 100, 250, 300 or 1000; `None`: as the recording tells.
    pub hz: Option<u32>,
    /// CPUs of the machine; `None`: as the recording tells.
    pub cpus: Option<u16>,
    /// Threads that act on a clock, whatever happened before.
    pub open_loop: Vec<Selector>,
    /// Threads that pause for a length of time.
    pub closed_loop: Vec<Selector>,
    /// Threads that leave out what they are late for, where they follow a clock.
    pub skip_late: Vec<Selector>,
    /// When the load began and ended, ns since the recording did, where that is known better than
    /// the activity of its threads tells.
    pub from_ns: Option<u64>,
    /// See `from_ns`.
    pub until_ns: Option<u64>,
    /// The limited threads' work costs so many times the CPU time that was recorded; `None`: as
    /// much, as far as that can be known.
    pub scale_work: Option<f64>,
    /// So many times the traffic; `None`: as much as was recorded.
    pub scale_load: Option<f64>,
    /// How much more or less it may cost on another day.
    pub work: WorkRange,
    /// Periods of which is to be told what the threads ask for in them, ns.
    pub periods_ns: Vec<u64>,
    /// How many latencies are longer than this is to be told, ns.
    pub over_ns: Option<u64>,
    /// The words of the command that asks, so that it can be asked again.
    pub made_by: Vec<String>,
}

impl Request {
    /// When the load was there in a recording of that length, if the activity of its threads tells
    /// it like this.
    pub(super) fn window(&self, seen: Window, span_ns: u64) -> Result<Window, Error> {
        let from_ns = self.from_ns.unwrap_or(seen.from_ns);
        let until_ns = self.until_ns.map_or(seen.until_ns, |ns| ns.min(span_ns));
        let is_told = self.from_ns.is_some() || self.until_ns.is_some();
        if is_told && from_ns >= until_ns {
            return Err(Error::NoWindow { from_ns, until_ns, span_ns });
        }
        Ok(Window { from_ns, until_ns: until_ns.max(from_ns) })
    }

    /// The group that the limits name, if any does.
    ///
    /// # Errors
    /// They contradict each other or the threads chosen.
    pub fn limited_group(&self) -> Result<Option<String>, Error> {
        let group = what_if::common_group(&self.limits)?;
        match group {
            Some(path) if !self.group.is_empty() => Err(Error::GroupAndThreads { path }),
            group => Ok(group),
        }
    }

    /// A group that was recorded is limited where it is; other threads are put into one. Where
    /// nothing is chosen, it is the group that used most.
    pub(super) fn selection(&self, summary: &Summary) -> Result<Selection, Error> {
        let path = self.limited_group()?;
        let open = self.open_loop.iter().map(|selector| (selector.clone(), Clock::Absolute));
        let closed = self.closed_loop.iter().map(|selector| (selector.clone(), Clock::Relative));
        let recorded = recorded::runtime_by_group(&summary.threads);
        let is_recorded = match self.group.as_slice() {
            [one] => recorded.contains_key(one.to_string().trim_end_matches('/')),
            _ => false,
        };
        let limited = if is_recorded { Vec::new() } else { self.group.clone() };
        let in_pod = self.limits.iter().any(|limit| limit.pod.is_some());
        let group = if limited.is_empty() {
            let chosen = path.or_else(|| self.group.first().map(ToString::to_string));
            chosen.map_or_else(|| recorded::busiest_group(summary), Ok)?
        } else {
            if in_pod { CHOSEN_IN_POD } else { CHOSEN }.to_owned()
        };
        Ok(Selection {
            limited,
            group,
            clocks: open.chain(closed).collect(),
            clients: self.clients,
            pin: self.pin.clone(),
            hz: self.hz,
            cpus: self.cpus,
            skip_late: self.skip_late.clone(),
            skip_periodic: false,
            until_ns: None,
        })
    }

    /// What this makes of the selected threads, and the group that is limited.
    ///
    /// # Errors
    /// The patterns choose no thread.
    pub(super) fn seen(
        &self,
        name: &str,
        recording: &Recording,
        selection: &Selection,
    ) -> Result<(GroupIx, Option<Service>), Error> {
        match reading(name, recording, selection) {
            Err(Error::NotInGroup { .. }) if !selection.limited.is_empty() => {
                let patterns: Vec<String> = self.group.iter().map(ToString::to_string).collect();
                Err(Error::NoThread { patterns: patterns.join(" ") })
            }
            seen => seen.map(|(_, group, service)| (group, service)),
        }
    }

    /// All ways to understand the recording, the most likely one first.
    pub(super) fn readings(
        &self,
        name: &str,
        recording: &Recording,
        selection: &Selection,
        service: Option<&Service>,
    ) -> Result<Vec<Reading>, Error> {
        let loaded = |selection: &Selection| -> Result<Reading, Error> {
            let (reading, ..) = reading(name, recording, selection)?;
            match self.scale_load {
                Some(factor) => reading.under(factor),
                None => Ok(reading),
            }
        };
        let mut readings = vec![loaded(selection)?];
        if let Some(service) = service.filter(|service| !service.sure) {
            let other = if service.clients == Loop::Open { Loop::Closed } else { Loop::Open };
            let selection = Selection { clients: Some(other.into()), ..selection.clone() };
            readings.push(Reading { doubt: OPEN_OR_CLOSED, ..loaded(&selection)? });
        }
        if selection.skip_late.is_empty() && recording.has_periodic(selection) {
            readings.push(loaded(&Selection { skip_periodic: true, ..selection.clone() })?);
        }
        Ok(readings)
    }
}

/// One way to understand the recording.
#[derive(Debug)]
pub(super) struct Reading {
    /// Its tasks are labelled by kind.
    pub workload: Arc<Workload>,
    /// The load lasts for a given time, whatever the limit does to it.
    pub lasts: bool,
    /// What its requests cost.
    pub costs: Costs,
    /// What is not known, and how to tell it, where this differs from the first one.
    pub doubt: &'static str,
}

impl Reading {
    /// With so many times the traffic.
    fn under(self, factor: f64) -> Result<Reading, Error> {
        let workload = Arc::unwrap_or_clone(self.workload).scale_load(Tasks::All, factor)?;
        Ok(Reading { workload: Arc::new(workload), ..self })
    }
}

/// The recording, understood like this, and its group that is limited.
fn reading(
    name: &str,
    recording: &Recording,
    selection: &Selection,
) -> Result<(Reading, GroupIx, Option<Service>), Error> {
    let shows = format!("Threads recorded in {name}.");
    let (workload, service) = recording.import(selection)?;
    let workload = workload.with_name(&as_name(name, usize::MAX), &shows)?;
    let group = recorded::find_group(&workload, &selection.group)?;
    let workload = Arc::new(recorded::label_by_kind(workload, group)?);
    // Who serves waits for more, and who leaves out what it is late for has nothing left to do when
    // its clock stops.
    let lasts = service.is_some() || selection.skip_periodic || !selection.skip_late.is_empty();
    let costs = Costs::of(service.as_ref());
    Ok((Reading { workload, lasts, costs, doubt: SKIPS_OR_QUEUES }, group, service))
}
