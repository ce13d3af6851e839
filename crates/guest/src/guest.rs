//! Main loop of the guest: reads jobs, runs each in a child process, and writes the results.
//!
//! A child may hang or die without harm: the guest then kills its tasks and removes its groups,
//! also when the connection closes in the middle of a job.

use crate::cgroup::Hierarchy;
use crate::command;
use crate::init::{self, Connection};
use crate::kernel;
use crate::run::{self, Environment, Error};
use crate::sys;
use crate::trace;
use crate::work::{self, WorkFiles};
use cpumax_protocol::{FromGuest, Job, MAX_LINE_BYTES, Ready, ToGuest, VERSION};

/// Prepares and calibrates the machine, announces that over the connection, and answers jobs (or
/// runs one command) until the connection ends or asks to quit; then removes the groups. Returns
/// the exit status. As `/init` (pid 1) it powers the virtual machine off instead.
pub fn guest() -> i32 {
    let in_vm = std::process::id() == 1;
    if !in_vm {
        init::set_signal_handlers();
    }
    let mut connection = match if in_vm { init::set_up_vm() } else { Ok(Connection::standard()) } {
        Ok(connection) => connection,
        Err(reason) => return init::finish(in_vm, Some(&reason)),
    };
    let env = match prepare(in_vm) {
        Ok(env) => env,
        Err(reason) => {
            send(&connection, &FromGuest::Failed { reason });
            return init::finish(in_vm, None);
        }
    };
    if in_vm && let Err(reason) = connection.take_jobs() {
        send(&connection, &FromGuest::Failed { reason });
        return init::finish(in_vm, None);
    }
    send(&connection, &FromGuest::Ready(ready(&env)));
    while let Some(text) = connection.read_message(MAX_LINE_BYTES) {
        match serde_json::from_str(&text) {
            Ok(ToGuest::Job(job)) => match answer(&job, &env, &mut connection) {
                Some(answer) => connection.send(&answer),
                None => break,
            },
            // On a host the lab does not run programs through the guest.
            Ok(ToGuest::Command(command)) if in_vm => {
                let status = command::run(&command, &mut |message| send(&connection, message));
                send(&connection, &status);
                break;
            }
            Ok(ToGuest::Quit | ToGuest::Command(_)) => break,
            Err(error) => {
                send(&connection, &FromGuest::Failed { reason: format!("not a message: {error}") });
            }
        }
    }
    env.hierarchy.remove_groups();
    init::finish(in_vm, None)
}

/// Writes the message to the connection as a line of JSON.
fn send(connection: &Connection, message: &FromGuest) {
    connection.send(&to_text(message));
}

/// The message as JSON on one line.
fn to_text(message: &FromGuest) -> String {
    // Cannot fail: keys are text, and no number is NaN or infinite.
    serde_json::to_string(message).unwrap_or_default()
}

/// Finds the cgroup hierarchy, removes groups and trace instances of earlier guests, and calibrates
/// this machine (on a host with real-time priority meanwhile).
///
/// # Errors
/// There is no usable hierarchy, file or memory.
fn prepare(in_vm: bool) -> Result<Environment, String> {
    let hierarchy = Hierarchy::find(in_vm)?;
    hierarchy.remove_stale();
    trace::remove_leftover_instances(hierarchy.own_name(), |name| hierarchy.has_group(name));
    let files = WorkFiles::open().map_err(|error| format!("/dev/urandom: {error}"))?;
    let scratch = work::map_memory(work::SCRATCH_BYTES).map_err(|error| error.to_string())?;
    // SAFETY: the memory is ours and as long as that.
    unsafe { scratch.write_bytes(1, work::SCRATCH_BYTES) };
    // In a virtual machine nothing else runs; there the calibration has the ticks of a fair task.
    if !in_vm {
        sys::set_sched(0, sys::SchedAttr::real_time(50, true));
    }
    let speed = work::calibrate(files, scratch);
    sys::set_sched(0, sys::SchedAttr::fair(libc::SCHED_OTHER, 0, 0));
    let settings = kernel::Settings::read();
    Ok(Environment { in_vm, hierarchy, settings, speed, files, scratch })
}

/// The first message: the protocol's version, kernel, CPUs, settings and calibration.
fn ready(env: &Environment) -> Ready {
    Ready {
        protocol: VERSION,
        world: if env.in_vm { "vm" } else { "host" }.to_owned(),
        release: kernel::release(),
        cgroup: env.hierarchy.version(),
        cpus: kernel::cpus(),
        hz: kernel::hz(),
        preempt: kernel::preemption(),
        clocksource: kernel::clocksource(),
        calibration: env.speed.calibration(),
    }
}

/// Runs a job in a child process and returns its answer, a line of JSON: a result, or the reason of
/// a failure. Afterwards kills everything that the child started, and removes its trace instance
/// and groups. `None` if the connection has closed meanwhile.
fn answer(job: &Job, env: &Environment, connection: &mut Connection) -> Option<String> {
    // Held until the groups are removed.
    let _claims = match env.hierarchy.claim() {
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
        run_and_exit(job, env, ends[1]);
    }
    // SAFETY: the descriptor is ours and not used again.
    unsafe { libc::close(ends[1]) };
    if pid < 0 {
        return Some(failed("no process"));
    }
    let answer = connection.read_all_while_connected(ends[0]);
    // Everything that the child started is in its process group.
    sys::kill(-pid, libc::SIGKILL);
    sys::kill(pid, libc::SIGKILL);
    let mut status = 0;
    // SAFETY: the status has room; the descriptor is ours and not used again.
    unsafe {
        libc::waitpid(pid, &raw mut status, 0);
        libc::close(ends[0]);
    }
    trace::remove_leftover_instances(env.hierarchy.own_name(), |_| true);
    env.hierarchy.remove_groups();
    let answer = answer?;
    let is_whole = serde_json::from_slice::<FromGuest>(&answer).is_ok();
    match String::from_utf8(answer) {
        Ok(text) if is_whole => Some(text),
        _ => Some(failed(&format!("the run ended without a result, status {status:#x}"))),
    }
}

/// The message, as a line of JSON, that a job failed for this reason.
fn failed(reason: &str) -> String {
    to_text(&FromGuest::Failed { reason: reason.to_owned() })
}

/// In the child process: runs the job in a process group of its own, writes the answer to
/// `answer_fd` and exits. On a host it dies with its parent.
fn run_and_exit(job: &Job, env: &Environment, answer_fd: i32) -> ! {
    // SAFETY: the call takes numbers.
    unsafe { libc::setpgid(0, 0) };
    if !env.in_vm {
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
    }
    sys::allow_many_files();
    let message = match run::run(job, env) {
        Ok(report) => FromGuest::Result(Box::new(report)),
        Err(Error::Refused(reason)) => FromGuest::Refused { reason },
        Err(Error::Failed(reason)) => FromGuest::Failed { reason },
    };
    let text = to_text(&message);
    init::write_all(answer_fd, text.as_bytes());
    sys::exit(0)
}
