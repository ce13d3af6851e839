//! `cpumax kernels`: which versions behave alike, and what changed between them.

use crate::failure::Failure;
use crate::output::{self, DIM};
use cpumax_machine::kernel::{Generation, RELEASES, UNKNOWN_FROM, UNRELEASED, Version};
use serde::Serialize;
use std::io::Write;

/// Versions that behave alike.
#[derive(Serialize)]
struct Entry {
    first: String,
    last: String,
    generation: String,
    changed: &'static str,
}

pub fn kernels(json: bool) -> Result<(), Failure> {
    let entries = entries();
    let mut out = output::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &entries)?;
        return Ok(writeln!(out)?);
    }
    let row = |entry: Entry| {
        let Entry { first, last, generation, changed } = entry;
        let versions = if first == last { first } else { format!("{first}..{last}") };
        vec![versions, generation, changed.to_owned()]
    };
    let header = ["kernels", "generation", "what changed"];
    let rows = entries.into_iter().map(row);
    write!(out, "{}", cpumax_report::list(&header, rows, Some(output::text_width())))?;
    let note = "A kernel with back-ports behaves like the version they come from: give that one.";
    writeln!(out, "\n{}", output::styled(DIM, note))?;
    Ok(())
}

fn entries() -> Vec<Entry> {
    let ends = RELEASES.iter().skip(1).map(|release| release.from).chain([UNKNOWN_FROM]);
    let entry = |(release, end): (&cpumax_machine::kernel::Release, Version)| Entry {
        first: release.from.to_string(),
        last: before(end).to_string(),
        generation: release.generation.to_string(),
        changed: release.changed,
    };
    let unreleased = UNRELEASED.iter().map(|kernel| Entry {
        first: kernel.name.to_owned(),
        last: kernel.name.to_owned(),
        generation: Generation::Own.to_string(),
        changed: kernel.changed,
    });
    RELEASES.iter().zip(ends).map(entry).chain(unreleased).collect()
}

/// The release before a version. Linux went from 4.20 to 5.0, from 5.19 to 6.0 and from 6.19 to
/// 7.0.
fn before(version: Version) -> Version {
    match (version.major, version.minor) {
        (5, 0) => Version { major: 4, minor: 20 },
        (major, 0) => Version { major: major.saturating_sub(1), minor: 19 },
        (major, minor) => Version { major, minor: minor - 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_meet_without_gap_or_overlap() {
        let entries = entries();
        assert_eq!(entries[0].first, "4.18");
        let of = |first: &str| entries.iter().find(|entry| entry.first == first).unwrap();
        assert_eq!(of("4.19").last, "5.0");
        assert_eq!(of("6.18").last, "6.18");
        assert_eq!(of("6.14").last, "6.15");
        assert_eq!(of("7.3").last, "7.3");
        assert_eq!(before(Version { major: 7, minor: 0 }).to_string(), "6.19");
    }
}
