//! Requests of open clients, drawn again.
//!
//! A recording is one draw of when open clients ask and of what that costs. Its time is cut into
//! blocks; a run that draws again puts blocks in a random order, some of them several times and
//! others not at all. A block keeps its requests and their distances, so bursts stay bursts.

use crate::predict::Window;
use cpumax_workload::{Arrivals, Domain, Error, Stream, Workload};

/// Number of blocks. Rates of fewer vary little between two draws, and shorter ones cut bursts.
const BLOCKS: u64 = 25;

/// The workload with its jobs that arrive within `window` drawn again, by `seed`. All sources of
/// jobs draw the same blocks. Sources of other tokens, and a source that would bring nothing, stay.
///
/// # Errors
/// The workload is refused with these times.
pub(super) fn drawn_again(
    workload: Workload,
    window: Window,
    seed: u64,
) -> Result<Workload, Error> {
    let block_ns = window.length_ns().div_ceil(BLOCKS).max(1);
    let begin_ns = |block: u64| window.from_ns.saturating_add(block * block_ns);
    let mut stream = Stream::new(seed, Domain::Workload, 0);
    let drawn: Vec<u64> = (0..BLOCKS).map(|_| stream.below(BLOCKS)).collect();
    let mut parts = workload.into_parts();
    for source in &mut parts.sources {
        let Arrivals::At(times) = &source.arrivals else { continue };
        if source.jobs.len() != times.len() {
            continue;
        }
        let first = |ns: u64| times.partition_point(|at_ns| *at_ns < ns);
        let kept = |at: usize| (times[at], source.jobs[at]);
        let mut again: Vec<(u64, u32)> = (0..first(window.from_ns)).map(kept).collect();
        for (block, from) in (0..BLOCKS).zip(&drawn) {
            let moved =
                |at: usize| (times[at] - begin_ns(*from) + begin_ns(block), source.jobs[at]);
            again.extend((first(begin_ns(*from))..first(begin_ns(from + 1))).map(moved));
        }
        again.extend((first(begin_ns(BLOCKS))..times.len()).map(kept));
        if !again.is_empty() {
            let (times, jobs) = again.into_iter().unzip();
            (source.arrivals, source.jobs) = (Arrivals::At(times), jobs);
        }
    }
    parts.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job each ms for 100 ms, numbered in order.
    const TOML: &str = r#"
name = "again"
duration = "100ms"
[[group]]
path = "/g"
[[channel]]
name = "c"
[[task]]
name = "t"
group = "/g"
program = [{ forever = [{ serve = "c" }] }]
"#;

    fn workload() -> Workload {
        let job = |n: u64| format!("[[job]]\nname = \"j{n}\"\nprogram = [{{ user = \"1us\" }}]\n");
        let list = |one: &dyn Fn(u64) -> String| (0..100).map(one).collect::<Vec<_>>().join(", ");
        let source = format!(
            "[[source]]\nname = \"s\"\nchannel = \"c\"\nat = [{}]\njobs = [{}]\n",
            list(&|n| format!("\"{n}ms\"")),
            list(&|n| format!("\"j{n}\"")),
        );
        let jobs: String = (0..100).map(job).collect();
        cpumax_workload::parse(&format!("{TOML}{jobs}{source}"), "again.toml").unwrap()
    }

    fn times_and_jobs(workload: &Workload) -> Vec<(u64, u32)> {
        let source = &workload.sources[0];
        let Arrivals::At(times) = &source.arrivals else { panic!("{source:?}") };
        times.iter().copied().zip(source.jobs.iter().copied()).collect()
    }

    #[test]
    fn blocks_come_in_another_order_and_keep_their_requests() {
        let before = workload();
        let window = Window { from_ns: 10_000_000, until_ns: 60_000_000 };
        let again = |seed| drawn_again(workload(), window, seed).unwrap();
        assert_eq!(times_and_jobs(&again(1)), times_and_jobs(&again(1)));
        assert_ne!(times_and_jobs(&again(1)), times_and_jobs(&again(2)));
        let (old, new) = (times_and_jobs(&before), times_and_jobs(&again(1)));
        // 25 blocks of two requests each; what is outside of the window stays.
        assert_eq!((&new[..10], &new[60..]), (&old[..10], &old[60..]));
        for pair in new[10..60].chunks(2) {
            assert_eq!(pair[1].1, pair[0].1 + 1, "{pair:?}");
        }
        assert_ne!(new[10..60], old[10..60]);
        assert!(new.is_sorted_by_key(|(at_ns, _)| *at_ns));
    }
}
