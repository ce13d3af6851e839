//! Decides what a wait becomes in the workload: a message from another task, an arrival at a fixed
//! time, or a sleep of a fixed length. A thread slows down with others (closed loop) or does not
//! (open loop) by this decision.
//!
//! A wait that another thread ended is certain. For timers the system call decides, where it was
//! recorded. Programs, however, compute relative sleeps from an absolute plan, and libraries do the
//! reverse. A thread with enough timer waits is therefore judged by regularity. If the lengths of
//! the waits vary less than the times between wakeups, it sleeps for a length of time. In the
//! opposite case it follows a clock.
//!
//! Random times need another test. A client that sends at random times sleeps the shorter the
//! longer it was busy before. A client that thinks for a random time after each answer does not. If
//! the lengths of the waits fall with the busy times before them, the thread follows a clock. If
//! they do not, and the thread waits for answers in between, it is a client that thinks. A thread
//! that waits for no answers is judged by its system call.

use crate::build::Clock;
use crate::event::PrevState;
use crate::syscalls::Hint;
use crate::thread::{Cause, Interrupt, Thread, Wait};
use cpumax_outcome::median;

/// The wait in the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Until the other thread sends a message.
    Message,
    /// Until a point of time, whatever other tasks do.
    Arrival,
    /// For a length of time.
    Sleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitGuess {
    Sure(Plan),
    /// A timer; the regularity of all such waits decides, else this.
    Timer(Plan),
}

/// `TIMER_SOFTIRQ`, `BLOCK_SOFTIRQ`, `HRTIMER_SOFTIRQ`.
const TIMER_SOFTIRQ: u32 = 1;
const BLOCK_SOFTIRQ: u32 = 4;
const HRTIMER_SOFTIRQ: u32 = 8;
/// Least number of waits whose regularity is judged.
const TIMER_WAITS_MIN: usize = 8;
/// Factor by which one variation must exceed the other.
const CLEARLY: u64 = 2;
/// A wakeup is on the grid of a clock if it is off by at most the period divided by this.
const ON_GRID: u64 = 20;
/// Percentage of wakeups that must be on the grid.
const ON_GRID_PERCENT: usize = 80;
/// Timers of ordinary threads may be late by `timer_slack_ns`, and a wakeup takes time. A poll that
/// lasted its timeout, less this slack, is taken to have timed out.
const TIMEOUT_SLACK_NS: u64 = 1_500_000;

/// One plan for each wait of a thread. `is_included` tells whether a wakeup (index into the edges)
/// comes from a thread of the workload. `clock`, if given, decides timers; else their regularity
/// does, then how they depend on the busy times before them, then each one's system call.
pub(crate) fn plans(
    thread: &Thread,
    kernel: bool,
    clock: Option<Clock>,
    mut is_included: impl FnMut(u32) -> bool,
) -> Vec<Plan> {
    let guesses: Vec<WaitGuess> = thread
        .waits
        .iter()
        .map(|wait| match wait.cause {
            Cause::Thread { edge } if is_included(edge) => WaitGuess::Sure(Plan::Message),
            Cause::Thread { .. } | Cause::Unseen => WaitGuess::Sure(Plan::Arrival),
            Cause::Interrupt(interrupt) => guess_by_interrupt(wait, interrupt, kernel),
        })
        .collect();
    let timers: Vec<&Wait> = thread
        .waits
        .iter()
        .zip(&guesses)
        .filter_map(|(wait, guess)| matches!(guess, WaitGuess::Timer(_)).then_some(wait))
        .collect();
    let told = match clock {
        Some(Clock::Absolute) => Some(Plan::Arrival),
        Some(Clock::Relative) => Some(Plan::Sleep),
        None => plan_by_regularity(&timers)
            .or_else(|| plan_by_dependence(&timers, asks_between(&guesses))),
    };
    let plan = |guess: &WaitGuess| match *guess {
        WaitGuess::Sure(plan) => plan,
        WaitGuess::Timer(plan) => told.unwrap_or(plan),
    };
    guesses.iter().map(plan).collect()
}

/// The plan of a wait that an interrupt ended. Uninterruptible and block waits are sleeps. A kernel
/// thread's timers are sleeps, its other waits arrivals. Otherwise the system call decides: a
/// length, a time, or an event; timeouts count if they passed.
fn guess_by_interrupt(wait: &Wait, interrupt: Interrupt, kernel: bool) -> WaitGuess {
    if wait.left == PrevState::Blocked {
        return WaitGuess::Sure(Plan::Sleep);
    }
    let soft_timer =
        matches!(interrupt, Interrupt::Soft { vector: TIMER_SOFTIRQ | HRTIMER_SOFTIRQ });
    let may_be_timer = soft_timer || matches!(interrupt, Interrupt::Timer | Interrupt::Unknown);
    if kernel {
        let sleep = soft_timer || interrupt == Interrupt::Timer;
        return WaitGuess::Sure(if sleep { Plan::Sleep } else { Plan::Arrival });
    }
    if interrupt == (Interrupt::Soft { vector: BLOCK_SOFTIRQ }) {
        return WaitGuess::Sure(Plan::Sleep);
    }
    match wait.hint {
        Some(Hint::Relative) => WaitGuess::Timer(Plan::Sleep),
        Some(Hint::Absolute) => WaitGuess::Timer(Plan::Arrival),
        _ if !may_be_timer => WaitGuess::Sure(Plan::Arrival),
        Some(Hint::Event) => WaitGuess::Sure(Plan::Arrival),
        Some(Hint::TimeoutMs(ms)) => {
            let timeout_ns = u64::from(ms.unsigned_abs()) * 1_000_000;
            let waited_ns = wait.end_ns - wait.start_ns;
            let timed_out = waited_ns + TIMEOUT_SLACK_NS >= timeout_ns;
            if timed_out { WaitGuess::Timer(Plan::Sleep) } else { WaitGuess::Sure(Plan::Arrival) }
        }
        Some(Hint::TimeoutUnknown) => WaitGuess::Timer(Plan::Sleep),
        Some(Hint::Other) | None => WaitGuess::Timer(Plan::Arrival),
    }
}

/// A clock (arrival) or a length (sleep), whichever varies less than half as much; `None` if
/// neither is clear, or there are fewer than eight waits.
fn plan_by_regularity(timers: &[&Wait]) -> Option<Plan> {
    if timers.len() < TIMER_WAITS_MIN {
        return None;
    }
    let lengths: Vec<u64> = timers.iter().map(|w| w.end_ns - w.start_ns).collect();
    let between: Vec<u64> = timers.windows(2).map(|pair| pair[1].end_ns - pair[0].end_ns).collect();
    let length_varies_ns = variation_ns(&lengths, false);
    let between_varies_ns = variation_ns(&between, true);
    if length_varies_ns.saturating_mul(CLEARLY) <= between_varies_ns {
        Some(Plan::Sleep)
    } else if between_varies_ns.saturating_mul(CLEARLY) <= length_varies_ns {
        Some(Plan::Arrival)
    } else {
        None
    }
}

/// Whether the thread wakes up at multiples of a period, the median time between its arrivals that
/// no other thread caused: four fifths of these times are off by at most a twentieth of it. False
/// for fewer than eight arrivals.
pub(crate) fn is_periodic(thread: &Thread, plans: &[Plan]) -> bool {
    let by_thread = |wait: &Wait| matches!(wait.cause, Cause::Thread { .. });
    let arrivals = thread.waits.iter().zip(plans).filter(|(_, plan)| **plan == Plan::Arrival);
    let ends: Vec<u64> =
        arrivals.filter(|(wait, _)| !by_thread(wait)).map(|(wait, _)| wait.end_ns).collect();
    if ends.len() < TIMER_WAITS_MIN {
        return false;
    }
    let between: Vec<u64> = ends.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let period_ns = median(&mut between.clone()).max(1);
    let on_grid = |ns: &&u64| {
        let times = ((**ns + period_ns / 2) / period_ns).max(1);
        ns.abs_diff(times.saturating_mul(period_ns)) <= period_ns / ON_GRID
    };
    let on_grid = between.iter().filter(on_grid).count();
    on_grid * 100 >= between.len() * ON_GRID_PERCENT
}

/// Whether most of its timer waits come directly after a wait for another thread.
fn asks_between(guesses: &[WaitGuess]) -> bool {
    let is_timer = |guess: &WaitGuess| matches!(guess, WaitGuess::Timer(_));
    let timers = guesses.iter().filter(|guess| is_timer(guess)).count();
    let after_answer =
        |pair: &&[WaitGuess]| pair[0] == WaitGuess::Sure(Plan::Message) && is_timer(&pair[1]);
    guesses.windows(2).filter(after_answer).count() * 2 > timers
}

/// Arrival if waits are the shorter the longer the thread was busy before, by rank correlation at a
/// significance of one in a hundred. Else, and for fewer than eight waits, sleep if the thread asks
/// between them (`asks_between`), or `None`.
fn plan_by_dependence(timers: &[&Wait], asks_between: bool) -> Option<Plan> {
    if timers.len() < TIMER_WAITS_MIN {
        return asks_between.then_some(Plan::Sleep);
    }
    let after = timers.windows(2).map(|pair| (pair[0], pair[1]));
    let busy: Vec<u64> = after.map(|(a, b)| b.start_ns.saturating_sub(a.end_ns)).collect();
    let waited: Vec<u64> = timers[1..].iter().map(|w| w.end_ns - w.start_ns).collect();
    let (busy, waited) = (ranks(&busy), ranks(&waited));
    let n = busy.len() as u128;
    let distances: u128 =
        busy.iter().zip(&waited).map(|(a, b)| u128::from(a.abs_diff(*b)).pow(2)).sum();
    // Spearman's rho is 1 - 6 * distances / (n * (n^2 - 1)). It is below -2.33 / sqrt(n - 1) by
    // chance once in a hundred times. All terms are multiplied by 100 to stay in whole numbers.
    let whole = n * (n * n - 1);
    let by_chance = 100 + (2330 * 2330 / 100 / (n - 1)).isqrt();
    if 600 * distances > whole * by_chance {
        Some(Plan::Arrival)
    } else {
        asks_between.then_some(Plan::Sleep)
    }
}

/// The rank of each value, from 0 for the least; equal values keep their order.
fn ranks(values: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|at| values[*at]);
    let mut ranks = vec![0; values.len()];
    for (rank, at) in order.into_iter().enumerate() {
        ranks[at] = rank as u64;
    }
    ranks
}

/// Median distance from the median, ns. With `multiples`: from the nearest multiple of the median,
/// because a clock whose tick was missed goes on with a later one.
fn variation_ns(values: &[u64], multiples: bool) -> u64 {
    let middle = median(&mut values.to_vec()).max(1);
    let distance = |value: u64| {
        let times = if multiples { ((value + middle / 2) / middle).max(1) } else { 1 };
        value.abs_diff(middle.saturating_mul(times))
    };
    let mut distances: Vec<u64> = values.iter().map(|value| distance(*value)).collect();
    median(&mut distances)
}

#[cfg(test)]
mod tests {
    use super::{Plan, plans};
    use crate::build::Clock;
    use crate::event::PrevState;
    use crate::syscalls::Hint;
    use crate::thread::{Cause, Interrupt, Thread, Wait};

    const MS: u64 = 1_000_000;

    fn thread(waits: impl IntoIterator<Item = (u64, u64)>, hint: Option<Hint>) -> Thread {
        let mut thread = Thread::new(7);
        thread.waits = waits
            .into_iter()
            .map(|(start_ns, end_ns)| Wait {
                start_ns,
                end_ns,
                left: PrevState::Sleeping,
                cause: Cause::Interrupt(Interrupt::Timer),
                hint,
            })
            .collect();
        thread
    }

    /// Work of 1 to 7 ms, then a wait of 10 ms.
    fn sleeper() -> Vec<(u64, u64)> {
        let mut now = 0;
        (0..20)
            .map(|i| {
                let start = now + (i * 3 % 7 + 1) * MS;
                now = start + 10 * MS + i % 3 * 10_000;
                (start, now)
            })
            .collect()
    }

    /// Wakes every 10 ms, whatever it did before; misses one.
    fn clock() -> Vec<(u64, u64)> {
        (0..20)
            .filter(|i| *i != 9)
            .map(|i| (i * 10 * MS + (i * 3 % 7 + 1) * MS, (i + 1) * 10 * MS + i % 3 * 10_000))
            .collect()
    }

    fn first(thread: &Thread, clock: Option<Clock>) -> Plan {
        let plans = plans(thread, false, clock, |_| true);
        assert!(plans.iter().all(|plan| *plan == plans[0]));
        plans[0]
    }

    #[test]
    fn regularity_beats_the_system_call() {
        assert_eq!(first(&thread(sleeper(), Some(Hint::Absolute)), None), Plan::Sleep);
        assert_eq!(first(&thread(clock(), Some(Hint::Relative)), None), Plan::Arrival);
        assert_eq!(first(&thread(sleeper(), None), None), Plan::Sleep);
        assert_eq!(first(&thread(clock(), None), None), Plan::Arrival);
    }

    #[test]
    fn the_system_call_decides_where_nothing_is_regular() {
        let few = |hint| thread([(MS, 2 * MS), (3 * MS, 9 * MS)], hint);
        assert_eq!(first(&few(Some(Hint::Absolute)), None), Plan::Arrival);
        assert_eq!(first(&few(Some(Hint::Relative)), None), Plan::Sleep);
        assert_eq!(first(&few(Some(Hint::Event)), None), Plan::Arrival);
        assert_eq!(first(&few(None), None), Plan::Arrival);
    }

    /// Pseudo-random numbers.
    fn noise(i: u64) -> u64 {
        (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    /// A client whose waits are: timer, answer, timer, answer, and so on. `think`: the time to the
    /// next request counts from the answer, else from the last request.
    fn client(think: bool) -> Thread {
        let mut thread = thread([], None);
        let mut now = 0;
        for i in 0..100 {
            let answered = now + noise(2 * i) % (5 * MS);
            let next = noise(2 * i + 1) % (10 * MS);
            let asked = now;
            now = if think { answered + next } else { answered.max(asked + MS + next) + 1 };
            let wait = |start_ns, end_ns, cause| Wait {
                start_ns,
                end_ns,
                left: PrevState::Sleeping,
                cause,
                hint: None,
            };
            thread.waits.push(wait(asked, answered, Cause::Thread { edge: 0 }));
            thread.waits.push(wait(answered, now, Cause::Interrupt(Interrupt::Timer)));
        }
        thread
    }

    #[test]
    fn a_client_that_thinks_is_told_from_one_that_asks_on_a_clock() {
        let timer_plan = |thread: &Thread| plans(thread, false, None, |_| true)[1];
        assert_eq!(timer_plan(&client(true)), Plan::Sleep);
        assert_eq!(timer_plan(&client(false)), Plan::Arrival);
    }

    #[test]
    fn the_user_has_the_last_word() {
        assert_eq!(first(&thread(sleeper(), None), Some(Clock::Absolute)), Plan::Arrival);
        assert_eq!(first(&thread(clock(), None), Some(Clock::Relative)), Plan::Sleep);
    }

    #[test]
    fn a_poll_that_lasts_its_timeout_timed_out() {
        let poll = |end_ns| thread([(0, end_ns)], Some(Hint::TimeoutMs(10)));
        assert_eq!(first(&poll(10 * MS), None), Plan::Sleep);
        assert_eq!(first(&poll(5 * MS), None), Plan::Arrival);
    }

    #[test]
    fn devices_take_their_time_and_the_network_comes_when_it_comes() {
        let mut disk = thread([(0, MS)], None);
        disk.waits[0].left = PrevState::Blocked;
        disk.waits[0].cause = Cause::Interrupt(Interrupt::Device);
        assert_eq!(first(&disk, None), Plan::Sleep);
        let mut net = thread([(0, MS)], Some(Hint::TimeoutMs(1)));
        net.waits[0].cause = Cause::Interrupt(Interrupt::Soft { vector: 3 });
        assert_eq!(first(&net, None), Plan::Arrival);
    }
}
