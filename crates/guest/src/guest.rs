//! The guest itself: takes jobs, gives each to a process of its own, and hands the answers on.
//!
//! That process may hang or die without harm: what it leaves is killed and removed here, also when
//! whoever gives the jobs goes away in the middle of one.

use crate::cgroup::Hierarchy;
use crate::command;
use crate::init::{self, Line};
use crate::kernel;
use crate::run::{self, Error, Place};
use crate::sys;
use crate::trace;
use crate::work::{self, WorkFiles};
use cpumax_protocol::{FromGuest, Job, MAX_LINE_BYTES, Ready, ToGuest, VERSION};

/// Runs until there are no more jobs; the status to exit with.
pub fn guest() -> i32 {
    let in_vm = std::process::id() == 1;
    if !in_vm {
        init::heed_signals();
    }
    let mut line = match if in_vm { init::start() } else { Ok(Line::standard()) } {
        Ok(line) => line,
        Err(reason) => return init::end(in_vm, Some(&reason)),
    };
    let place = match prepare(in_vm) {
        Ok(place) => place,
        Err(reason) => {
            say(&line, &FromGuest::Failed { reason });
            return init::end(in_vm, None);
        }
    };
    if in_vm && let Err(reason) = line.take_jobs() {
        say(&line, &FromGuest::Failed { reason });
        return init::end(in_vm, None);
    }
    say(&line, &FromGuest::Ready(ready(&place)));
    while let Some(text) = line.next(MAX_LINE_BYTES) {
        match serde_json::from_str(&text) {
            Ok(ToGuest::Job(job)) => match answer(&job, &place, &mut line) {
                Some(answer) => line.say(&answer),
                None => break,
            },
            // On the host everybody can do that by himself.
            Ok(ToGuest::Command(command)) if in_vm => {
                let status = command::run(&command, &mut |message| say(&line, message));
                say(&line, &status);
                break;
            }
            Ok(ToGuest::Quit | ToGuest::Command(_)) => break,
            Err(error) => {
                say(&line, &FromGuest::Failed { reason: format!("not a message: {error}") });
            }
        }
    }
    place.hierarchy.remove();
    init::end(in_vm, None)
}

fn say(line: &Line, message: &FromGuest) {
    line.say(&to_text(message));
}

fn to_text(message: &FromGuest) -> String {
    // Messages have text keys and no numbers that JSON lacks.
    serde_json::to_string(message).unwrap_or_default()
}

fn prepare(in_vm: bool) -> Result<Place, String> {
    let hierarchy = Hierarchy::find(in_vm)?;
    hierarchy.remove_stale();
    trace::remove_left(hierarchy.own_name(), |name| hierarchy.has_group(name));
    let files = WorkFiles::open().map_err(|error| format!("/dev/urandom: {error}"))?;
    let scratch = work::memory(work::SCRATCH_BYTES).map_err(|error| error.to_string())?;
    // SAFETY: the memory is ours and as long as that.
    unsafe { scratch.write_bytes(1, work::SCRATCH_BYTES) };
    // In a machine of our own nobody else runs, and a fair task's ticks are what tasks will see.
    if !in_vm {
        sys::set_sched(0, sys::SchedAttr::real_time(50, true));
    }
    let speed = work::calibrate(files, scratch);
    sys::set_sched(0, sys::SchedAttr::fair(libc::SCHED_OTHER, 0, 0));
    let knobs = kernel::Knobs::read();
    Ok(Place { in_vm, hierarchy, knobs, speed, files, scratch })
}

fn ready(place: &Place) -> Ready {
    Ready {
        protocol: VERSION,
        world: if place.in_vm { "vm" } else { "host" }.to_owned(),
        release: kernel::release(),
        cgroup: place.hierarchy.version(),
        cpus: kernel::cpus(),
        hz: kernel::hz(),
        preempt: kernel::preemption(),
        clocksource: kernel::clocksource(),
        calibration: place.speed.calibration(),
    }
}

/// The line that answers a job; `None` when nobody waits for it any more.
fn answer(job: &Job, place: &Place, line: &mut Line) -> Option<String> {
    // Ours until the groups are removed.
    let _claims = match place.hierarchy.claim() {
        Ok(claims) => claims,
        Err(reason) => return Some(failed(&reason)),
    };
    let mut ends = [-1; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Some(failed("no pipe"));
    }
    // SAFETY: this process has no other threads.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        run_and_exit(job, place, ends[1]);
    }
    // SAFETY: the descriptor is ours and not used again.
    unsafe { libc::close(ends[1]) };
    if pid < 0 {
        return Some(failed("no process"));
    }
    let answer = line.read_all_while_there(ends[0]);
    // All that was started there is in its process group.
    sys::kill(-pid, libc::SIGKILL);
    sys::kill(pid, libc::SIGKILL);
    let mut status = 0;
    // SAFETY: the status has room; the descriptor is ours and not used again.
    unsafe {
        libc::waitpid(pid, &raw mut status, 0);
        libc::close(ends[0]);
    }
    trace::remove_left(place.hierarchy.own_name(), |_| true);
    place.hierarchy.remove();
    let answer = answer?;
    let is_whole = serde_json::from_slice::<FromGuest>(&answer).is_ok();
    match String::from_utf8(answer) {
        Ok(text) if is_whole => Some(text),
        _ => Some(failed(&format!("the run ended without a result, status {status:#x}"))),
    }
}

fn failed(reason: &str) -> String {
    to_text(&FromGuest::Failed { reason: reason.to_owned() })
}

fn run_and_exit(job: &Job, place: &Place, answer_fd: i32) -> ! {
    // SAFETY: the call takes numbers.
    unsafe { libc::setpgid(0, 0) };
    if !place.in_vm {
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
    }
    sys::allow_many_files();
    let message = match run::run(job, place) {
        Ok(report) => FromGuest::Result(Box::new(report)),
        Err(Error::Refused(reason)) => FromGuest::Refused { reason },
        Err(Error::Failed(reason)) => FromGuest::Failed { reason },
    };
    let text = to_text(&message);
    init::write_all(answer_fd, text.as_bytes());
    sys::exit(0)
}
