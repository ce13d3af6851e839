//! Runs a recording from begin to end.

use super::about::{Watch, about};
use super::beside::Beside;
use super::calibrate::own_tid;
use super::kernel::{Chosen, Counters, Followed, Program, Wanted};
use super::writer::Writer;
use crate::error::Error;
use crate::groups::{Group, Hierarchy};
use crate::pods;
use crate::request::{End, Finished, Progress, Request, Target};
use cpumax_recording::about::About;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Name of the recorder's thread, also in the file.
const NAME: &std::ffi::CStr = c"cpumax-record";
/// Time between two writes to the file.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Time over which the cost is compared with the budget.
const BUDGET_OVER: Duration = Duration::from_secs(1);

pub(crate) fn record(
    request: &Request,
    go_on: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Finished, Error> {
    let _ = rustix::thread::set_name(NAME);
    let is_mixed = matches!(request.what, Target::Command(_)) || io::stdout().is_terminal();
    if request.file.as_os_str() == "-" && is_mixed {
        let what = "a recording cannot go to a terminal, nor to standard output beside that of a \
                    command: give a file with -o";
        return Err(Error::NotFound { what: what.to_owned() });
    }
    let group = match &request.what {
        Target::Group(path) => Some(Group::find(path)?),
        Target::Pod(pod) => Some(pods::find(pod)?),
        _ => None,
    };
    let wanted = wanted(request, group.as_ref())?;
    let mut about = about(request, group.as_ref(), wanted.is_version_1);
    let mut program = Program::load(&wanted).map_err(|refused| refused.for_request(request))?;
    (about.call_cost_ns, about.event_cost_ns) = (program.cost.call_ns, program.cost.other_ns);
    let used = cpu_time();
    let beside = Beside::create(&request.file)?;
    let file = beside.file()?;
    let mut command = None;
    if let Target::Command(words) = &request.what {
        command = Some(start(words)?);
        program.forget_thread(own_tid());
    }
    let session = Session {
        request,
        writer: Writer::new(file),
        began: Instant::now(),
        command,
        budget: Budget::begin(&program),
        watch: Watch::begin(&about, group.as_ref()),
        group,
        used,
    };
    match session.whole(&about, &mut program, go_on) {
        Ok(finished) => beside.give_name().map(|()| finished),
        Err(error) => Err(beside.leave(error)),
    }
}

fn wanted(request: &Request, group: Option<&Group>) -> Result<Wanted, Error> {
    let chosen = match &request.what {
        Target::All => Chosen::All,
        Target::Group(_) | Target::Pod(_) => match group {
            Some(group) => Chosen::Group(Box::new(Followed::new(group)?)),
            None => Chosen::Threads(Vec::new()),
        },
        Target::Process(pid) => Chosen::Threads(threads_of(*pid)?),
        Target::Command(_) => Chosen::Threads(vec![own_tid()]),
    };
    let is_version_1 = match group {
        Some(group) => group.hierarchy.is_version_1,
        None => Hierarchy::all().is_ok_and(|all| all.iter().any(|one| one.is_version_1)),
    };
    let (calls, sockets, memory) = (request.calls, request.sockets, request.memory);
    Ok(Wanted { chosen, is_version_1, calls, sockets, memory })
}

struct Session<'a> {
    request: &'a Request,
    writer: Writer<File>,
    began: Instant,
    command: Option<Child>,
    budget: Budget,
    watch: Watch,
    group: Option<Group>,
    /// CPU time used before the recording began.
    used: Duration,
}

impl Session<'_> {
    fn whole(
        mut self,
        about: &About,
        program: &mut Program,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Finished, Error> {
        self.writer.machine(about);
        self.writer.describe(1, about).map_err(|e| Error::io(&self.request.file, e))?;
        let end = self.run(program, go_on)?;
        self.finish(program, end)
    }

    fn run(
        &mut self,
        program: &mut Program,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<End, Error> {
        let mut flushed = Instant::now();
        let mut pause = PAUSE_MIN;
        let room = program.ring_bytes();
        loop {
            sleep(pause);
            let most = self.drain(program)?;
            self.follow(program);
            // Aims at rings that are a quarter full when they are read.
            let next = if most > room / 4 { pause / 2 } else { pause * 2 };
            pause = if most > room / 8 && most <= room / 4 { pause } else { next };
            pause = pause.clamp(PAUSE_MIN, PAUSE_MAX);
            if flushed.elapsed() >= FLUSH_EVERY {
                flushed = Instant::now();
                self.writer.flush().map_err(|e| Error::io(&self.request.file, e))?;
                self.watch.poll();
            }
            if let Some(end) = self.end(program) {
                return Ok(end);
            }
            if !go_on(&self.progress(program)) {
                return Ok(End::Asked);
            }
        }
    }

    fn drain(&mut self, program: &mut Program) -> Result<u64, Error> {
        let (writer, size) = (&mut self.writer, self.request.size);
        let drained = program.drain(|record| {
            // Records beyond the size limit are dropped.
            let is_full = size.is_some_and(|size| writer.written_bytes >= size);
            if is_full { Ok(()) } else { writer.add(record) }
        });
        drained.map_err(|e| Error::io(&self.request.file, e))
    }

    /// Notes whether the recorded group was made again; returns its present id.
    fn follow(&mut self, program: &Program) -> Option<u64> {
        let (id, made_ns) = program.followed()?;
        self.watch.made_again_at(made_ns);
        Some(id)
    }

    /// The reason to end now, if there is one.
    fn end(&mut self, program: &Program) -> Option<End> {
        if let Some(command) = &mut self.command
            && let Ok(Some(status)) = command.try_wait()
        {
            return Some(End::Command(status));
        }
        if self.request.time.is_some_and(|time| self.began.elapsed() >= time) {
            return Some(End::Time);
        }
        if self.request.size.is_some_and(|size| self.writer.written_bytes >= size) {
            return Some(End::Size);
        }
        let budget = self.request.budget?;
        self.budget.is_over(budget, program).then_some(End::Budget)
    }

    fn progress(&self, program: &Program) -> Progress {
        Progress {
            elapsed: self.began.elapsed(),
            events: self.writer.events,
            lost: program.counters().lost,
            bytes: self.writer.written_bytes,
        }
    }

    /// Stops the program, writes the rest and the description of the end.
    fn finish(mut self, program: &mut Program, end: End) -> Result<Finished, Error> {
        program.detach();
        self.drain(program)?;
        let buffer = program.buffer();
        let Counters { handed_ns, whole_ns: event_ns, forgotten, .. } = program.counters();
        let used = cpu_time().saturating_sub(self.used);
        let followed = self.follow(program);
        let now = self.group.as_ref().and_then(|group| group.id().ok());
        let mut finished = Finished {
            progress: self.progress(program),
            end,
            used,
            event_ns,
            forgotten,
            buffer,
            made_again: self.watch.made_again() as u64,
            is_gone: followed != now,
        };
        let (watch, file) = (self.watch, &self.request.file);
        let mut ended = watch.ended(&finished, handed_ns, program.lost());
        ended.forgotten_sockets = self.writer.forgotten_sockets();
        let written = self.writer.flush().and_then(|()| self.writer.describe(3, &ended));
        written.map_err(|e| Error::io(file, e))?;
        finished.progress.bytes = self.writer.written_bytes;
        Ok(finished)
    }
}

/// Compares the cost with the budget from time to time.
struct Budget {
    since: Instant,
    used_ns: u64,
}

impl Budget {
    fn begin(program: &Program) -> Budget {
        Budget { since: Instant::now(), used_ns: used_ns(program) }
    }

    fn is_over(&mut self, share: f64, program: &Program) -> bool {
        let elapsed = self.since.elapsed();
        if elapsed < BUDGET_OVER {
            return false;
        }
        let before_ns = self.used_ns;
        *self = Budget::begin(program);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let most_ns = elapsed.as_nanos() as f64 * cpus as f64 * share;
        self.used_ns.saturating_sub(before_ns) as f64 > most_ns
    }
}

/// CPU time of the recorder and of its events in recorded threads, ns.
fn used_ns(program: &Program) -> u64 {
    let counters = program.counters();
    cpu_time().as_nanos() as u64 + counters.records * counters.whole_ns
}

fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn start(words: &[OsString]) -> Result<Child, Error> {
    let what = |what: String| Error::NotFound { what };
    let (program, arguments) =
        words.split_first().ok_or_else(|| what("no command is given".to_owned()))?;
    Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|e| what(format!("{}: {e}", cpumax_limit::one_line(&program.to_string_lossy()))))
}

/// All threads of a process and of its descendants.
fn threads_of(pid: i32) -> Result<Vec<i32>, Error> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (process, parent) in processes() {
        children.entry(parent).or_default().push(process);
    }
    let (mut found, mut to_do) = (Vec::new(), vec![pid]);
    while let Some(process) = to_do.pop() {
        found.extend(numbers_in(&format!("/proc/{process}/task")));
        to_do.extend(children.remove(&process).unwrap_or_default());
    }
    if found.is_empty() {
        return Err(Error::NotFound { what: format!("there is no process {pid}") });
    }
    Ok(found)
}

fn processes() -> Vec<(i32, i32)> {
    let parent = |pid| super::writer::parent_and_name(pid).map(|(parent, _)| (pid, parent));
    numbers_in("/proc").into_iter().filter_map(parent).collect()
}

fn numbers_in(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
