//! The request made of a recording, and the ways to read the recording.

use super::costs::Costs;
use crate::predict::{Window, WorkRange};
use crate::recorded;
use cpumax_recording::{Clients, Clock, Loop, Recording, Selection, Selector, Service, Summary};
use cpumax_study::{Error, Try, common_group};
use cpumax_workload::{CpuSet, GroupIx, Tasks, Workload, as_name};
use std::sync::Arc;

pub(super) const OPEN_OR_CLOSED: &str = "the recording does not show whether clients wait for an \
answer \
before they ask again, and the results differ: record system calls, or give --clients open, \
--clients closed or the number of closed clients, such as --clients 16";

const HOW_MANY_ASK: &str = "the recording does not show how many closed clients there are, and the \
results differ: record system calls, or give their number, such as --clients 16";

const SKIPS_OR_QUEUES: &str = "the recording does not show whether threads with a periodic timer \
skip what they are late for or do it later, and the results differ: give --skip-late PATTERN for \
threads that skip it";

/// Group of threads that were chosen one by one, and its path where the group above it is limited,
/// too. It is below the group above these threads where that was limited in the recording.
pub(super) const CHOSEN: &str = "/limited";
const CHOSEN_IN_POD: &str = "/pod/limited";

/// The questions put to a recording. [`Request::default`] asks for a ladder of limits of its
/// busiest group.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The threads to limit. Empty: the group that the limits name, else the one that used most CPU
    /// time.
    pub group: Vec<Selector>,
    /// Limits to try; empty: a ladder around the CPUs used.
    pub limits: Vec<Try>,
    /// How clients ask, or how many closed ones there are; `None`: as the recording shows.
    pub clients: Option<Clients>,
    /// The CPUs that the limited threads may use; `None`: as the recording shows.
    pub pin: Option<CpuSet>,
    /// Ticks in a second, 100, 250, 300 or 1000; `None`: as the recording tells.
    pub hz: Option<u32>,
    /// CPUs of the machine; `None`: as the recording tells.
    pub cpus: Option<u16>,
    /// Threads that act at fixed times, whatever happened before.
    pub open_loop: Vec<Selector>,
    /// Threads that pause for a given time after their work.
    pub closed_loop: Vec<Selector>,
    /// Threads with a periodic timer that skip expirations that they are late for.
    pub skip_late: Vec<Selector>,
    /// When the load began, ns since the start of the recording, where the user knows that better
    /// than the activity of its threads tells it.
    pub from_ns: Option<u64>,
    /// When the load ended, ns since the start of the recording; as `from_ns`.
    pub until_ns: Option<u64>,
    /// Factor on the CPU time of the limited threads' work; `None`: as much as was recorded.
    pub scale_work: Option<f64>,
    /// Factor on the traffic; `None`: as much as was recorded.
    pub scale_load: Option<f64>,
    /// How much more or less the work may cost on another day.
    pub work: WorkRange,
    /// Periods for which [`Replay::demand`] is computed, ns.
    pub periods_ns: Vec<u64>,
    /// Threshold above which latencies are counted, ns.
    pub over_ns: Option<u64>,
    /// The words of the command, for documents to repeat.
    pub made_by: Vec<String>,
}

impl Request {
    /// The window of a recording of length `span_ns`: `seen`, as the activity of its threads shows
    /// it, with the ends that the user gave. [`Error::NoWindow`] where these leave nothing.
    pub(super) fn window(&self, seen: Window, span_ns: u64) -> Result<Window, Error> {
        let from_ns = self.from_ns.unwrap_or(seen.from_ns);
        let until_ns = self.until_ns.map_or(seen.until_ns, |ns| ns.min(span_ns));
        let is_told = self.from_ns.is_some() || self.until_ns.is_some();
        if is_told && from_ns >= until_ns {
            return Err(Error::NoWindow { from_ns, until_ns, span_ns });
        }
        Ok(Window { from_ns, until_ns: until_ns.max(from_ns) })
    }

    /// Path of the one group that the limits name; `None` if they name none.
    ///
    /// # Errors
    /// The limits name several groups or the root, or threads were chosen as well.
    pub fn limited_group(&self) -> Result<Option<String>, Error> {
        let group = common_group(&self.limits)?;
        match group {
            Some(path) if !self.group.is_empty() => Err(Error::GroupAndThreads { path }),
            group => Ok(group),
        }
    }

    /// The threads to limit. A recorded group is limited where it is; chosen threads move into a
    /// group of their own. Without a choice it is the group that used most CPU time.
    ///
    /// # Errors
    /// The limits name several groups, or threads were chosen as well, or there is no group to
    /// choose.
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

    /// Imports the recording for the index of the limited group, and its requests where the
    /// recording shows them.
    ///
    /// # Errors
    /// The patterns choose no thread.
    pub(super) fn find_limited(
        &self,
        name: &str,
        recording: &Recording,
        selection: &Selection,
    ) -> Result<(GroupIx, Option<Service>), Error> {
        match read(name, recording, selection) {
            Err(Error::NotInGroup { .. }) if !selection.limited.is_empty() => {
                let patterns: Vec<String> = self.group.iter().map(ToString::to_string).collect();
                Err(Error::NoThread { patterns: patterns.join(" ") })
            }
            seen => seen.map(|(_, group, service)| (group, service)),
        }
    }

    /// All readings that the recording allows, the most likely one first, with the traffic scaled
    /// as asked. Others follow where it is uncertain whether clients are open or closed, how many
    /// closed ones there are, and which work is periodic.
    ///
    /// # Errors
    /// The recording cannot be made a workload with this selection, or the traffic cannot be
    /// scaled.
    pub(super) fn readings(
        &self,
        name: &str,
        recording: &Recording,
        selection: &Selection,
        service: Option<&Service>,
    ) -> Result<Vec<Reading>, Error> {
        let loaded = |selection: &Selection| -> Result<Reading, Error> {
            let (reading, ..) = read(name, recording, selection)?;
            match self.scale_load {
                Some(factor) => reading.with_traffic(factor),
                None => Ok(reading),
            }
        };
        let mut readings = vec![loaded(selection)?];
        if let Some(service) = service.filter(|service| !service.sure) {
            let other = if service.clients == Loop::Open { Loop::Closed } else { Loop::Open };
            let selection = Selection { clients: Some(other.into()), ..selection.clone() };
            readings.push(Reading { alternative: OPEN_OR_CLOSED, ..loaded(&selection)? });
        }
        if let Some(number) = service.and_then(|service| service.or_as_many) {
            let clients = Some(Clients { ask: Loop::Closed, number: Some(number) });
            let selection = Selection { clients, ..selection.clone() };
            readings.push(Reading { alternative: HOW_MANY_ASK, ..loaded(&selection)? });
        }
        if selection.skip_late.is_empty() && recording.has_periodic(selection) {
            readings.push(loaded(&Selection { skip_periodic: true, ..selection.clone() })?);
        }
        Ok(readings)
    }
}

#[derive(Debug)]
pub(super) struct Reading {
    /// The workload; its tasks are labelled by kind.
    pub workload: Arc<Workload>,
    /// The load lasts for a given time, whatever the limit does to it.
    pub lasts: bool,
    /// Clients are open.
    pub is_open: bool,
    /// Costs of its requests.
    pub costs: Costs,
    /// Why it may hold instead of the first reading, and how the user can decide it.
    pub alternative: &'static str,
}

impl Reading {
    /// The reading with `factor` times its traffic; an error where that cannot be scaled.
    fn with_traffic(self, factor: f64) -> Result<Reading, Error> {
        let workload = Arc::unwrap_or_clone(self.workload).scale_load(Tasks::All, factor)?;
        Ok(Reading { workload: Arc::new(workload), ..self })
    }
}

/// Imports the recording with this selection as a workload whose tasks are labelled by kind; also
/// returns the limited group and its requests. An error if it is larger than a workload may be, or
/// nothing is in that group.
fn read(
    name: &str,
    recording: &Recording,
    selection: &Selection,
) -> Result<(Reading, GroupIx, Option<Service>), Error> {
    let shows = format!("Threads recorded in {name}.");
    let (workload, service) = recording.import(selection)?;
    let workload = workload.with_name(&as_name(name, usize::MAX), &shows)?;
    let group = recorded::find_group(&workload, &selection.group)?;
    let workload = Arc::new(recorded::label_by_kind(workload, group)?);
    // A server waits for more requests. A thread that skips late expirations has no work left when
    // its timer stops. Both last for the recorded time.
    let lasts = service.is_some() || selection.skip_periodic || !selection.skip_late.is_empty();
    let costs = Costs::of(service.as_ref());
    let is_open = service.as_ref().is_some_and(|service| service.clients == Loop::Open);
    Ok((Reading { workload, lasts, is_open, costs, alternative: SKIPS_OR_QUEUES }, group, service))
}
