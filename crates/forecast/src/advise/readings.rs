//! Limits that depend on how a recording is read. It may not show whether clients wait for answers.
//! The limit that does in both cases can be several times what the service needs.

use super::enough::Lack;
use super::{Kind, Probe, Searching};
use crate::predict::predict;
use cpumax_study::Error;
use std::collections::BTreeMap;

/// A limit that is at most so many per cent of the named one matters.
const CLEARLY_SMALLER_PERCENT: u64 = 80;

impl Searching<'_> {
    /// A lack that forbids to name the limit at `best`: a clearly smaller one keeps the goals if
    /// clients of a recording ask in one way, and does not if they ask in the other.
    pub(super) fn depends_on_clients(
        &mut self,
        kind: Kind,
        ladder: &[u64],
        best: usize,
        probes: &mut BTreeMap<usize, Probe>,
    ) -> Result<Option<Lack>, Error> {
        let Some(unsure) = self.cases.iter().position(|case| case.replay.why_unsure().is_some())
        else {
            return Ok(None);
        };
        let most = ladder[best] * CLEARLY_SMALLER_PERCENT / 100;
        let Some(at) = ladder.iter().rposition(|millicpus| *millicpus <= most) else {
            return Ok(None);
        };
        self.add_probes(kind, ladder, &[at], probes)?;
        let probe = &probes[&at];
        let is_kept = |reading: u32| self.is_kept_in(probe, reading);
        Ok((is_kept(0) != is_kept(1)).then(|| Lack {
            recording: self.cases[unsure].name.clone(),
            why: format!(
                "{} may be enough or not: {}",
                probe.limit.label(),
                self.cases[unsure].replay.why_unsure().unwrap_or_default()
            ),
            instead: "the service with messages of sockets or system calls".to_owned(),
        }))
    }

    /// Whether the goals are kept by the runs of this reading; by all runs of recordings that have
    /// none of it.
    fn is_kept_in(&self, probe: &Probe, reading: u32) -> bool {
        probe.each().all(|(case, run, _)| {
            let runs = &run.prediction.runs;
            let of_it = runs.iter().filter(|run| run.reading == reading);
            let mut samples: Vec<_> = of_it.map(|run| (&run.sample, run.likely)).collect();
            if samples.is_empty() {
                samples = runs.iter().map(|run| (&run.sample, run.likely)).collect();
            }
            let prediction = predict(&samples, run.prediction.latency_of);
            self.check_goals(case, run, &prediction).iter().all(super::Held::is_kept)
        })
    }
}
