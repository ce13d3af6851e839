//! Search for the smallest step of a ladder that meets a condition which nearly all larger steps
//! meet, too.

use std::collections::BTreeMap;

/// Distance of the first probe from the start; each further probe goes twice as far.
const STRIDE: usize = 4;

/// The steps that were tried, and the result.
///
/// ```
/// use cpumax_forecast::advise::smallest;
///
/// let keeps = |at: &[usize]| Ok::<_, ()>(at.iter().map(|at| *at >= 70).collect());
/// let searched = smallest(100, 20, keeps)?;
/// assert_eq!(searched.smallest, Some(70));
/// assert!(searched.tried.len() < 20 && searched.uneven().is_empty());
/// # Ok::<(), ()>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Searched {
    /// The smallest step that meets the condition, as do all larger ones that were tried.
    pub smallest: Option<usize>,
    /// Each step that was tried, and whether it meets the condition.
    pub tried: BTreeMap<usize, bool>,
}

impl Searched {
    /// Steps that meet the condition although a larger one that was tried does not, ascending.
    pub fn uneven(&self) -> Vec<usize> {
        let fails = self.tried.iter().rev().find(|(_, kept)| !**kept).map(|(at, _)| *at);
        let kept = self.tried.iter().filter(|(_, kept)| **kept).map(|(at, _)| *at);
        kept.filter(|at| fails.is_some_and(|fails| *at < fails)).collect()
    }
}

/// Searches the smallest of the steps 0 to `steps` - 1 from `start`: in growing strides, then by
/// halves, and at last by trying its neighbours. `keeps` tells for several steps at once whether
/// they meet the condition; it is never asked twice about a step.
///
/// # Errors
/// The error of `keeps`.
pub fn smallest<E>(
    steps: usize,
    start: usize,
    mut keeps: impl FnMut(&[usize]) -> Result<Vec<bool>, E>,
) -> Result<Searched, E> {
    let mut searched = Searched::default();
    let Some(last) = steps.checked_sub(1) else { return Ok(searched) };
    let mut ask = |searched: &mut Searched, at: &[usize]| -> Result<(), E> {
        let new: Vec<usize> =
            at.iter().copied().filter(|at| !searched.tried.contains_key(at)).collect();
        let kept = if new.is_empty() { Vec::new() } else { keeps(&new)? };
        searched.tried.extend(new.into_iter().zip(kept));
        Ok(())
    };
    let mut at = start.min(last);
    // All steps tried from `high` on meet the condition; `low` is the last that fails.
    let (mut low, mut high) = (None, None);
    let mut stride = STRIDE;
    loop {
        ask(&mut searched, &[at])?;
        if searched.tried[&at] {
            high = Some(at);
        } else {
            low = Some(at);
        }
        at = match (low, high) {
            (Some(low), None) if low == last => return Ok(searched),
            (Some(low), None) => last.min(low + stride),
            (None, None) => break,
            (None, Some(high)) if high > 0 => high.saturating_sub(stride),
            (Some(low), Some(high)) if high - low > 1 => usize::midpoint(low, high),
            (_, Some(found)) => {
                // Its neighbours tell whether it meets the condition by chance.
                let beside = [found + 1, found + 2].into_iter().filter(|at| *at <= last);
                let beside: Vec<usize> = beside.chain(found.checked_sub(2)).collect();
                ask(&mut searched, &beside)?;
                let worst = beside.into_iter().filter(|at| *at > found && !searched.tried[at]);
                let Some(worst) = worst.max() else { break };
                (low, high, stride) = (Some(worst), None, 1);
                last.min(worst + 1)
            }
        };
        stride *= 2;
        if low == Some(at) {
            return Ok(searched);
        }
    }
    searched.smallest = high;
    Ok(searched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn search(steps: usize, start: usize, keeps: impl Fn(usize) -> bool) -> Searched {
        let mut asked = 0;
        let searched = smallest(steps, start, |at| {
            asked += 1;
            assert!(asked <= 20, "too many questions");
            Ok::<_, Infallible>(at.iter().map(|at| keeps(*at)).collect())
        });
        let Ok(searched) = searched;
        searched
    }

    #[test]
    fn the_smallest_is_found_from_wherever_it_begins() {
        for steps in [1, 2, 3, 17, 200] {
            for smallest in 0..steps {
                for start in [0, 1, steps / 3, steps - 1, steps + 5] {
                    let searched = search(steps, start, |at| at >= smallest);
                    assert_eq!(searched.smallest, Some(smallest), "{steps} from {start}");
                    assert!(smallest == 0 || !searched.tried[&(smallest - 1)]);
                    assert!(searched.uneven().is_empty());
                }
            }
            assert_eq!(search(steps, 0, |_| false).smallest, None);
        }
        assert_eq!(search(0, 3, |_| true), Searched::default());
    }

    #[test]
    fn a_step_below_a_failing_one_is_not_taken() {
        // 40 keeps it, but 42 does not, and only from 47 on all do.
        let keeps = |at: usize| at == 40 || at == 41 || at == 45 || at >= 47;
        let searched = search(100, 30, keeps);
        assert_eq!(searched.smallest, Some(47));
        let uneven = searched.uneven();
        assert!(!uneven.is_empty() && uneven.iter().all(|at| keeps(*at) && *at < 46), "{uneven:?}");
    }

    #[test]
    fn a_single_step_below_the_result_is_uneven() {
        let searched = search(100, 50, |at| at == 48 || at >= 50);
        assert_eq!((searched.smallest, searched.uneven()), (Some(50), vec![48]));
    }

    #[test]
    fn a_ladder_that_fails_at_its_end_has_no_result() {
        let searched = search(20, 18, |at| at == 18);
        assert_eq!(searched.smallest, None);
    }
}
