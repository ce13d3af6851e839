//! Things that a recording lacks, and whether its numbers can still be relied on. Every command
//! that answers from a recording prints these sentences. docs/reference/recordings.md has the
//! thresholds.

use crate::build::Selection;
use crate::recording::Recording;
use crate::requests::Service;
use crate::summary::{Waits, sum};
use crate::thread::Thread;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod charges;
mod skipped;

/// Something that a recording lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Gap {
    /// Its kind.
    pub kind: GapKind,
    /// Whether so much is missing that numbers are not to be relied on, and no limit is named.
    pub doubtful: bool,
    /// Description for users, in sentences.
    pub told: String,
}

/// Kinds of things that a recording may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GapKind {
    /// CPUs of which nothing was recorded.
    Cpus,
    /// Threads ran and nothing tells when.
    Runs,
    /// Events of some threads only were recorded.
    Threads,
    /// Intervals in which no CPU has an event.
    Silence,
    /// Events were lost, or cannot be read.
    Lost,
    /// The oldest events were overwritten.
    Overwritten,
    /// Thread switches are missing.
    Switches,
    /// The recording was cut off.
    Cut,
    /// When waits ended.
    Waits,
    /// CPU time as the kernel charged it.
    Charges,
    /// Charges of CPU time that cannot be.
    ImpossibleCharges,
    /// Periodic threads skip times at which they should have run.
    Skipped,
    /// A clock that tells short times apart.
    Clock,
    /// Time taken by interrupts and by the host.
    Stolen,
    /// Measured cost of recording an event.
    EventCost,
    /// Whether threads or interrupts woke threads.
    Context,
    /// Clients on other machines.
    Clients,
    /// CPU time of a real-time class, which no limit holds.
    RealTime,
}

impl GapKind {
    /// The better recording to make, as the object of "record", with options of perf.
    pub fn instead(self) -> &'static str {
        match self {
            GapKind::Cpus | GapKind::Runs => "all CPUs (`-a`, without `-C` or a mask of CPUs)",
            GapKind::Threads => "all threads of the machine (`-a`, without a filter)",
            GapKind::Silence => "again, while the machine is not suspended or stopped",
            GapKind::Lost | GapKind::Switches | GapKind::Overwritten | GapKind::Skipped => {
                "with larger buffers (`-m 8M`), or fewer events"
            }
            GapKind::Cut => "again, and end the recorder with SIGINT",
            GapKind::Waits => {
                "wakeups as well (sched:sched_waking) and larger buffers, so that nothing is lost"
            }
            GapKind::Charges | GapKind::Stolen => "the CPU time charged (sched:sched_stat_runtime)",
            GapKind::ImpossibleCharges => "again, each event once, on the host",
            GapKind::Clock => "with a finer clock (of ftrace `local` or `mono`)",
            GapKind::EventCost => {
                "fewer events, or with `cpumax record`, which measures their cost"
            }
            GapKind::Context => {
                "perf.data itself, or text with events of interrupts (irq:softirq_entry and the \
                 like)"
            }
            GapKind::Clients => "messages of sockets or system calls",
            GapKind::RealTime => "the service with ordinary threads",
        }
    }
}

/// Doubtful percentage of lost events, and of CPU time without them.
const LOST_PERCENT: u64 = 3;
/// Percentage of events on impossible CPUs from which the head is wrong.
const IMPOSSIBLE_PERCENT: u64 = 5;
/// Doubtful percentages of missing switches, and of wakeups of threads that ran unseen.
const SWITCHES_PERCENT: u64 = 3;
const RUNS_PERCENT: u64 = 1;
/// Up to this number neither is doubtful.
const RUNS_FEW: u64 = 2;
const SWITCHES_FEW: u64 = 5;
/// Doubtful percentage of the CPU time that is between events of other threads, and the number of
/// breaks up to which it is not.
const HIDDEN_PERCENT: u64 = 2;
const BREAKS_FEW: u64 = 2;
/// From this step on a clock is too coarse, ns; a step is known after so many events.
const STEP_LEAST_NS: u64 = 100_000;
const STEP_EVENTS: u64 = 100;
/// Percentage of the recording without events that makes its load unknown, where it cannot be cut
/// out.
const SILENCE_PERCENT: u64 = 20;
/// Estimated cost of recording as a percentage of CPU time: from which a note is given, and from
/// which it is doubtful.
const COST_TOLD_PERCENT: u64 = 5;
const COST_PERCENT: u64 = 20;
/// CPU time of a real-time class as a percentage: from which a note is given, and from which it is
/// doubtful.
const REAL_TIME_TOLD_PERCENT: u64 = 1;
const REAL_TIME_PERCENT: u64 = 5;
/// Percentage of waits ended by data from the network from which a note is given.
const NETWORK_PERCENT: u64 = 20;
/// Short options of `perf record` that take no value.
const FLAGS: &str = "abdghilnqsvBNPRTW";
/// Most threads named in a sentence.
const NAMED_MOST: usize = 3;

/// Whether `part` is more than `percent` per cent of `all`; exact, without overflow.
fn exceeds(part: u64, percent: u64, all: u64) -> bool {
    u128::from(part) * 100 > u128::from(all) * u128::from(percent)
}

/// `part` as a percentage of `all`, rounded down; an `all` of 0 counts as 1.
fn percent(part: u64, all: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(all.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// A time in seconds with one digit after the point, cut, for messages: `1.5 s`.
fn seconds(ns: u64) -> String {
    format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10)
}

/// The rest of the word behind an option of perf, its value, if it is one of `options`; it may be
/// empty or begin with `=`. Short options may stand together, as in `-aC0`. `None` for other words.
fn option_value<'a>(word: &'a str, options: &[&str]) -> Option<&'a str> {
    let is_value = |rest: &str| rest.is_empty() || rest.starts_with('=');
    if word.starts_with("--") {
        let mut rests = options.iter().filter_map(|option| word.strip_prefix(option));
        return rests.find(|rest| is_value(rest));
    }
    let letters = word.strip_prefix('-')?;
    for (at, letter) in letters.char_indices() {
        let rest = &letters[at + letter.len_utf8()..];
        if options
            .iter()
            .any(|option| option.strip_prefix('-') == Some(letter.to_string().as_str()))
        {
            let value = rest.strip_prefix('=').unwrap_or(rest);
            let is_number = value.starts_with(|c: char| c.is_ascii_digit());
            return Some(rest).filter(|rest| is_value(rest) || is_number);
        }
        if !FLAGS.contains(letter) {
            break;
        }
    }
    None
}

#[derive(Default)]
struct Gaps(Vec<Gap>);

impl Gaps {
    /// Appends a gap.
    fn add(&mut self, kind: GapKind, doubtful: bool, told: String) {
        self.0.push(Gap { kind, doubtful, told });
    }
}

impl Recording {
    /// Everything that the whole recording lacks, as it concerns all of its threads.
    pub fn gaps(&self) -> Vec<Gap> {
        let all = vec![true; self.threads.len()];
        self.gaps_among(&all, None)
    }

    /// The gaps that matter to the selection's chosen threads. `service`: their requests, if known;
    /// only where these are not recorded does the lack of clients on other machines count, and not
    /// where the caller tells how inferred ones ask.
    pub fn gaps_of(&self, selection: &Selection, service: Option<&Service>) -> Vec<Gap> {
        let inside = self.inside(&self.names(), selection);
        let mut gaps = Gaps(self.gaps_among(&inside, service));
        let is_told = selection.clients.is_some() || !selection.clocks.is_empty();
        if service.is_none_or(|service| !service.recorded && !is_told) {
            self.add_network_clients(&inside, service.is_some(), &mut gaps);
        }
        gaps.0
    }

    /// The gaps of the recording as a whole, and those of the threads that are `inside`; a missing
    /// context is doubtful where the requests of `service` are inferred.
    fn gaps_among(&self, inside: &[bool], service: Option<&Service>) -> Vec<Gap> {
        let mut gaps = Gaps::default();
        self.add_missing_cpus(&mut gaps);
        self.add_missing_parts(&mut gaps);
        self.add_filtered_threads(&mut gaps);
        self.add_silences(&mut gaps);
        self.add_skipped_times(&mut gaps);
        self.add_coarse_clock(&mut gaps);
        self.add_lost_events(&mut gaps);
        self.add_missing_switches(&mut gaps);
        let chosen: Vec<&Thread> = (0..self.threads.len())
            .filter(|ix| inside[*ix] && self.is_included(*ix))
            .map(|ix| &self.threads[ix])
            .collect();
        add_unknown_waits(&chosen, &mut gaps);
        self.add_wrong_charges(&mut gaps);
        self.add_guessed_cost(&chosen, &mut gaps);
        self.add_missing_context(service, &mut gaps);
        self.add_real_time(&chosen, &mut gaps);
        gaps.0
    }

    /// Adds CPUs without events, doubtful if perf was given a list of CPUs or threads must have run
    /// there. If every CPU has events, adds as doubtful that threads were woken again and again but
    /// not seen to run. A wrong number of CPUs in the head is added instead.
    fn add_missing_cpus(&self, gaps: &mut Gaps) {
        let signs = &self.signs;
        let seen = self.cpus_seen.len() as u32;
        let is_unseen = |cpu: &&u32| !self.cpus_seen.iter().any(|seen| u32::from(*seen) == **cpu);
        let named = signs.named.keys().filter(is_unseen).count() as u32;
        let online = self.machine.cpus.unwrap_or(0).max(seen + named);
        let has_run = signs.named.iter().any(|(cpu, has_run)| *has_run && is_unseen(&cpu));
        if self.is_head_wrong() {
            let told = format!(
                "{} of {} events are on CPUs that cannot be by the head of the recording, and are \
                 left out: its number of CPUs is not right.",
                self.defects.impossible_cpus, self.events
            );
            return gaps.add(GapKind::Cpus, true, told);
        }
        let (unseen, runs) = (online.saturating_sub(seen), signs.unseen_runs + signs.never_ran);
        // Where most wakeups name another CPU, the number means something else.
        let moved = if signs.moved <= signs.stayed { signs.moved } else { 0 };
        let missed = signs.unseen_runs + moved;
        let often = missed > RUNS_FEW && exceeds(missed, RUNS_PERCENT, signs.wakeups);
        if unseen > 0 && self.machine.about.is_none() {
            let chosen = self.perf_option(&["-C", "--cpu"]);
            let why = match &chosen {
                Some(words) => format!(" (perf ran with `{words}`)"),
                None if runs > 0 || has_run => String::new(),
                None => ", or they were idle all the time".to_owned(),
            };
            let ran = match runs {
                0 if has_run => "; threads were there".to_owned(),
                0 => String::new(),
                _ => format!("; threads were woken {runs} times and not seen to run"),
            };
            let told = format!(
                "{seen} of {online} CPUs have events; the others are not recorded{why}{ran}. Work \
                 on them is missing."
            );
            gaps.add(GapKind::Cpus, chosen.is_some() || runs > 0 || has_run, told);
        } else if often {
            let told = format!(
                "{missed} of {} wakeups are of threads that had been woken before and were not \
                 seen to run since, or that were last on another CPU than they were seen on: they \
                 ran on CPUs, or at times, that are not recorded.",
                signs.wakeups
            );
            gaps.add(GapKind::Runs, true, told);
        }
    }

    /// Adds CPUs of which the begin or the end was not recorded, doubtful beyond `LOST_PERCENT` of
    /// the recording.
    fn add_missing_parts(&self, gaps: &mut Gaps) {
        for (cpu, ns) in &self.signs.parts {
            let told = format!(
                "CPU {cpu} has no event for {} at the begin or end of the recording, and many \
                 otherwise: a part of it is not recorded.",
                seconds(*ns)
            );
            gaps.add(GapKind::Cpus, exceeds(*ns, LOST_PERCENT, self.span_ns()), told);
        }
    }

    /// Whether more than 5 % of the events are on impossible CPUs: the head, not the events, is
    /// damaged then.
    fn is_head_wrong(&self) -> bool {
        exceeds(self.defects.impossible_cpus, IMPOSSIBLE_PERCENT, self.events)
    }

    /// Adds, as doubtful, that only some threads were recorded: perf had an option such as `-p`, or
    /// one thread is part of every switch of a CPU. Adds nothing otherwise.
    fn add_filtered_threads(&self, gaps: &mut Gaps) {
        const FILTERS: [&str; 7] = ["--filter", "-p", "--pid", "-t", "--tid", "-u", "--uid"];
        let words = self.perf_option(&FILTERS);
        let only = self.signs.only.map(|ix| self.names().swap_remove(ix as usize));
        let how = match (words, only) {
            (Some(words), _) => format!("perf ran with `{words}`"),
            (None, Some(name)) => format!("{name} is part of every thread switch of a CPU"),
            (None, None) => return,
        };
        let told = format!(
            "Only events of some threads were recorded ({how}). CPU time and waits of the other \
             threads, and the load of the CPUs, are not known."
        );
        gaps.add(GapKind::Threads, true, told);
    }

    /// The first option of perf's own command among `options`, with its value, for messages;
    /// options of the recorded command do not count. `None` for recordings of `cpumax record`.
    fn perf_option(&self, options: &[&str]) -> Option<String> {
        let command = self.machine.command.as_deref().filter(|_| self.machine.about.is_none())?;
        let words: Vec<&str> =
            command.split_whitespace().take_while(|word| *word != "--").collect();
        let mut found = words.iter().enumerate();
        let (at, rest) = found.find_map(|(at, word)| Some((at, option_value(word, options)?)))?;
        let has_value = rest.is_empty();
        let words = &words[at..(at + 1 + usize::from(has_value)).min(words.len())];
        Some(cpumax_limit::one_line(&words.join(" ")).to_string())
    }

    /// Adds intervals in which no CPU has an event, and apart from that an end that was cut off.
    /// Intervals of more than 20 % of the recording are doubtful unless they are cut out of it.
    fn add_silences(&self, gaps: &mut Gaps) {
        let signs = &self.signs;
        if signs.silences > 0 {
            let left_ns = signs.silence_ns.saturating_sub(signs.cut_ns);
            let what = if signs.cut_ns > left_ns {
                "the machine was suspended or stopped. That time is left out"
            } else {
                "the machine was suspended or stopped, or what runs there is not recorded. That \
                 time counts"
            };
            let told = format!(
                "No CPU has an event in {} interval{}, {} together: {what}.",
                signs.silences,
                if signs.silences == 1 { "" } else { "s" },
                seconds(signs.silence_ns)
            );
            let doubtful = exceeds(left_ns, SILENCE_PERCENT, self.span_ns());
            gaps.add(GapKind::Silence, doubtful, told);
        }
        let is_unfinished = self.machine.about.is_some() && self.machine.ended.is_none();
        if is_unfinished || self.defects.cut_at_the_end > 0 {
            let told = "The recording was cut off. Events after its last one, and the number of \
                        lost events, are not known.";
            gaps.add(GapKind::Cut, false, told.to_owned());
        }
    }

    /// Adds a gap each for lost or unreadable events, and for overwritten ones. Lost events are
    /// doubtful above `LOST_PERCENT` of all events, or of the CPU time; overwritten ones never.
    fn add_lost_events(&self, gaps: &mut Gaps) {
        let defects = &self.defects;
        let ended = self.machine.ended.as_deref();
        let told_lost = ended.map_or(0, |ended| sum(ended.lost.values().copied()));
        let lost = defects.lost_events.max(told_lost);
        let lost = sum([lost, defects.unreadable_records, defects.unreadable_lines].into_iter());
        // Events on impossible CPUs are among `events`.
        let all = self.events.saturating_add(lost);
        let left_out = if self.is_head_wrong() { 0 } else { defects.impossible_cpus };
        let lost = lost.saturating_add(left_out);
        if lost > 0 {
            let told = format!(
                "{lost} of {all} events were lost or cannot be read ({} %).",
                percent(lost, all)
            );
            let much = exceeds(lost, LOST_PERCENT, all)
                || exceeds(self.signs.lost_ns, LOST_PERCENT, self.cpus_ns());
            gaps.add(GapKind::Lost, much, told);
        }
        if defects.overwritten_events > 0 || defects.left_out_ns > 0 {
            let told = format!(
                "The oldest events were overwritten. The first {} of the rest are left out, \
                 because not every CPU has events there.",
                seconds(defects.left_out_ns)
            );
            gaps.add(GapKind::Overwritten, false, told);
        }
    }

    /// Adds, as doubtful, missing thread switches: more than `SWITCHES_PERCENT` of all, or such
    /// that CPUs were with unknown threads for more than `HIDDEN_PERCENT` of the time.
    fn add_missing_switches(&self, gaps: &mut Gaps) {
        let (missing, all) = (self.defects.mismatched_switches, self.signs.switches);
        let often = missing > SWITCHES_FEW && exceeds(missing, SWITCHES_PERCENT, all);
        let (hidden_ns, cpus_ns) = (self.signs.hidden_ns, self.cpus_ns());
        if often || missing > BREAKS_FEW && exceeds(hidden_ns, HIDDEN_PERCENT, cpus_ns) {
            let told = format!(
                "{missing} thread switches are missing beside {all} recorded ones: CPUs go on with \
                 other threads than they switched to. Which threads ran is not known for {} % of \
                 the time.",
                percent(hidden_ns, cpus_ns)
            );
            gaps.add(GapKind::Switches, true, told);
        }
    }

    /// The time of all CPUs that have events, ns.
    fn cpus_ns(&self) -> u64 {
        self.span_ns().saturating_mul(self.cpus_seen.len().max(1) as u64)
    }

    /// Adds, as doubtful, that the clock of the recording counts in steps of 0.1 ms or more.
    fn add_coarse_clock(&self, gaps: &mut Gaps) {
        let step_ns = self.signs.least_step_ns;
        if step_ns >= STEP_LEAST_NS && self.events >= STEP_EVENTS {
            let told = format!(
                "The clock of the recording is coarse: its times differ by {}.{} ms or more. CPU \
                 times and waits may be wrong by that each.",
                step_ns / 1_000_000,
                step_ns / 100_000 % 10
            );
            gaps.add(GapKind::Clock, true, told);
        }
    }

    /// Adds the cost of recording where it is an estimate and above 5 % of the CPU time of the
    /// `chosen` threads; doubtful above 20 %.
    fn add_guessed_cost(&self, chosen: &[&Thread], gaps: &mut Gaps) {
        let cost_ns = sum(chosen.iter().map(|thread| thread.cost_ns));
        let all_ns = sum(chosen.iter().map(|thread| thread.runtime_ns)).saturating_add(cost_ns);
        if self.is_cost_guessed && exceeds(cost_ns, COST_TOLD_PERCENT, all_ns) {
            let told = format!(
                "Recording events took an estimated {} % of the CPU time, which is subtracted; the \
                 estimate comes from the times between events. --event-cost and --syscall-cost set \
                 the cost.",
                percent(cost_ns, all_ns)
            );
            gaps.add(GapKind::EventCost, exceeds(cost_ns, COST_PERCENT, all_ns), told);
        }
    }

    /// Adds that wakeups by interrupts look like wakeups by threads, where no event tells its
    /// context. Doubtful if the requests of `service` are inferred.
    fn add_missing_context(&self, service: Option<&Service>, gaps: &mut Gaps) {
        if self.has_context {
            return;
        }
        let told = "Wakeups by interrupts are not told from those by threads: a timer that fires \
                    while a thread runs looks like a wakeup by that thread. Which thread asks \
                    which is a guess.";
        let inferred = service.is_some_and(|service| !service.recorded);
        gaps.add(GapKind::Context, inferred, told.to_owned());
    }

    /// Adds that more than 1 % of the CPU time of the `chosen` threads is of a real-time class,
    /// which cpu.max does not hold; doubtful above 5 %. Kernel threads do not count.
    fn add_real_time(&self, chosen: &[&Thread], gaps: &mut Gaps) {
        let ordinary: Vec<&&Thread> = chosen.iter().filter(|t| !self.is_kernel(t)).collect();
        let all_ns = sum(ordinary.iter().map(|thread| thread.runtime_ns));
        let real_time_ns = sum(ordinary.iter().map(|thread| thread.real_time_ns()));
        if !exceeds(real_time_ns, REAL_TIME_TOLD_PERCENT, all_ns) {
            return;
        }
        let told = |t: &Thread| exceeds(t.real_time_ns(), REAL_TIME_TOLD_PERCENT, t.runtime_ns);
        let of_it = ordinary.iter().filter(|t| told(t));
        let mut names: Vec<&str> = of_it.map(|thread| thread.comm.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let more = if names.len() > NAMED_MOST { " and others" } else { "" };
        names.truncate(NAMED_MOST);
        let names = cpumax_limit::one_line(&names.join(", ")).to_string();
        let who = if names.is_empty() { String::new() } else { format!(" ({names}{more})") };
        let told = format!(
            "{} % of the CPU time is of a real-time class{who}: cpu.max does not hold that part.",
            percent(real_time_ns, all_ns)
        );
        let much = exceeds(real_time_ns, REAL_TIME_PERCENT, all_ns);
        gaps.add(GapKind::RealTime, much, told);
    }

    /// Adds clients on other machines, where data from the network ends more than 20 % of the waits
    /// of the threads that are `inside`. Doubtful if requests are inferred.
    fn add_network_clients(&self, inside: &[bool], inferred: bool, gaps: &mut Gaps) {
        let chosen = self.threads.iter().zip(inside).filter(|(_, inside)| **inside);
        let (asked, waits) = chosen.fold((0, 0), |(asked, waits), (thread, _)| {
            (asked + thread.network_waits() as u64, waits + thread.waits.len() as u64)
        });
        if exceeds(asked, NETWORK_PERCENT, waits) {
            let holds = if inferred {
                "Their requests are inferred from wakeups: record system calls, or give --clients \
                 open, --clients closed or --clients N."
            } else {
                "Under a limit that stops the service, the numbers hold only if they do not wait \
                 for answers."
            };
            let told = format!(
                "Data from the network ended {asked} of {waits} waits: clients are on other \
                 machines, and how they ask is not known. {holds}"
            );
            gaps.add(GapKind::Clients, inferred, told);
        }
    }
}

/// Adds, as doubtful, that more than a tenth of the waits of the `chosen` threads end for an
/// unknown reason, too many to tell latencies from them.
fn add_unknown_waits(chosen: &[&Thread], gaps: &mut Gaps) {
    let waits = chosen.iter().fold(Waits::default(), |sum, thread| sum.with(thread));
    if !waits.are_known() {
        let told = format!(
            "The end of {} of {} waits is not known: no latency can be told from them.",
            waits.unknown, waits.all
        );
        gaps.add(GapKind::Waits, true, told);
    }
}
