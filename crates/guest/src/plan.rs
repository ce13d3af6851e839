//! How real system calls execute a workload, or why they cannot.
//!
//! Kernels from 6.18 on stop a task only at its return to user mode. There all steps of a `syscall`
//! must be one real system call: a read or write of calibrated length, or a list of requests that
//! `io_submit(2)` executes in order. Up to 6.17 the steps may be several system calls.

use crate::kernel::Facts;
use crate::owner::{self, call_end};
use cpumax_workload::{
    Action, Class, GroupIx, LockIx, LockKind, LockMode, Op, Signal, Span, Target, TaskSpec,
    Workload,
};

/// Most tasks at the same time.
pub const MAX_TASKS: usize = 1000;
/// Room for forked tasks within [`MAX_TASKS`].
const FORKED: usize = 200;
/// Most requests in one system call.
pub const MAX_REQUESTS: usize = 200;
/// Most tokens sent or received at once.
pub const MAX_TOKENS: u64 = 8192;
/// Most tokens sent or received inside a list of requests.
const MAX_CALL_TOKENS: u64 = 32;

/// The real lock that stands for a lock of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealLock {
    /// The lock of an inode, held by a write of calibrated length.
    Inode,
    /// The lock of the memory map, held by an mprotect(2) or madvise(2) of calibrated length.
    MemoryMap,
    /// Bytes in a pipe: one for each reader there may be, and a gate for waiting tasks.
    Pipe {
        /// Most readers that hold it at once.
        readers: u32,
    },
    /// A queue in user space, on a futex.
    Futex,
    /// The lock of a file's owner, which the timer thread takes as well.
    Owner,
}

/// How a workload is executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// By lock.
    pub locks: Vec<RealLock>,
    /// By kind of task: whether each `syscall` is one real call. Else it is several.
    pub whole_calls: Vec<bool>,
    /// Whether a task needs lists of requests.
    pub lists: bool,
    /// Whether groups with children have tasks of their own (cgroup v2: threaded groups).
    pub inner: bool,
    /// Most tasks at the same time.
    pub tasks: usize,
    /// Interrupts a second in which the timer thread takes the owner's lock.
    pub interrupts_hz: Option<u32>,
    /// Where the run deviates from the scenario, for the report.
    pub notes: Vec<String>,
}

/// How this machine runs the workload: what each lock is made of, which calls are one system call,
/// how many tasks there are.
///
/// # Errors
/// The step, lock or setting that cannot be had here, and why.
pub fn make_plan(workload: &Workload, facts: Facts) -> Result<Plan, String> {
    check_machine(workload, facts)?;
    check_sources(workload)?;
    let interrupts_hz = owner::interrupts_hz(workload, facts)?;
    let mut plan = Plan { interrupts_hz, ..Plan::default() };
    for spec in &workload.tasks {
        check_task(workload, spec, &mut plan)?;
        let whole = match needs_lists(workload, &spec.program, facts) {
            Ok(lists) => {
                plan.lists |= lists;
                true
            }
            Err(_) if facts.stops_anywhere => false,
            Err(why) => return Err(format!("task {:?}: {why}", spec.name)),
        };
        plan.whole_calls.push(whole);
    }
    for lock in 0..workload.locks.len() as LockIx {
        let made = choose_lock(workload, &plan, lock, facts)?;
        plan.lists |= matches!(made, RealLock::Pipe { .. });
        plan.locks.push(made);
    }
    check_kills(workload, &plan)?;
    plan.inner = crate::cgroup::has_inner_tasks(workload, facts.root_is_root, |group| {
        lives_in(workload, group)
    });
    let started: u64 = workload.tasks.iter().map(|spec| u64::from(spec.count)).sum();
    let forks =
        workload.tasks.iter().any(|spec| has_step(spec, |op| matches!(op, Op::Fork { .. })));
    plan.tasks = started as usize + if forks { FORKED } else { 0 };
    if plan.tasks > MAX_TASKS {
        return Err(format!("{started} tasks: at most {MAX_TASKS} run as real processes"));
    }
    Ok(plan)
}

/// Refuses a machine with more CPUs than are online, or other `nohz_full` CPUs than booted with.
fn check_machine(workload: &Workload, facts: Facts) -> Result<(), String> {
    let machine = &workload.machine;
    if u32::from(machine.cpus) > facts.cpus {
        return Err(format!("needs {} CPUs, and {} are online", machine.cpus, facts.cpus));
    }
    if let Some(set) = machine.nohz_full {
        let bit = |cpu: &u16| 1u64.checked_shl(u32::from(*cpu)).unwrap_or(0);
        let wanted =
            workload.cpu_sets[set as usize].0.iter().map(bit).fold(0, |all, bit| all | bit);
        if wanted != facts.nohz_full {
            return Err("this kernel was not booted with these `nohz_full` CPUs".to_owned());
        }
    }
    Ok(())
}

/// Refuses sources that send jobs or lose tokens, which only the model has.
fn check_sources(workload: &Workload) -> Result<(), String> {
    for source in &workload.sources {
        let name = &source.name;
        if let Some(&job) = source.jobs.first() {
            let job = &workload.jobs[job as usize].name;
            return Err(format!("source {name:?} sends job {job:?}: only the model runs jobs"));
        }
        if source.lossy {
            return Err(format!("source {name:?} is lossy: only the model loses tokens"));
        }
    }
    Ok(())
}

/// Refuses a kind of task that no real process can be, such as one that serves jobs or keeps
/// interrupts off. A kernel thread outside of limited groups runs as a process; `plan` gets a note.
fn check_task(workload: &Workload, spec: &TaskSpec, plan: &mut Plan) -> Result<(), String> {
    let name = &spec.name;
    if spec.class == Class::Kthread {
        if is_limited(workload, spec.group) || has_step(spec, |op| matches!(op, Op::Move { .. })) {
            return Err(format!(
                "task {name:?}: a kernel thread in a limited group cannot be made from user \
                 space"
            ));
        }
        plan.notes.push(format!(
            "kernel thread {name:?} runs as a process; outside of limited groups that makes no \
             difference"
        ));
    }
    for op in &spec.program {
        match *op {
            Op::IrqOff(_) => {
                return Err(format!(
                    "task {name:?}: no system call keeps interrupts off for a given time"
                ));
            }
            Op::Send { n, .. } | Op::Recv { n, .. } if n > MAX_TOKENS => {
                return Err(format!(
                    "task {name:?}: {n} tokens at once; at most {MAX_TOKENS} are possible"
                ));
            }
            Op::Post { job, .. } | Op::After { job, .. } => {
                let job = &workload.jobs[job as usize].name;
                return Err(format!("task {name:?} posts job {job:?}: only the model runs jobs"));
            }
            Op::Serve { channel } => {
                let channel = &workload.channels[channel as usize].name;
                return Err(format!(
                    "task {name:?} serves channel {channel:?}: only the model runs jobs"
                ));
            }
            Op::SetClass { class: Class::Kthread, .. } => {
                return Err(format!("task {name:?}: no task can become a kernel thread"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the group or one of its ancestors ever has a limit.
fn is_limited(workload: &Workload, mut group: GroupIx) -> bool {
    while group != 0 {
        let spec = &workload.groups[group as usize];
        let is_written = workload.interventions.iter().any(
            |i| matches!(i.action, Action::WriteLimit { group: written, .. } if written == group),
        );
        if spec.limit.quota_ns().is_some() || is_written {
            return true;
        }
        group = spec.parent.unwrap_or(0);
    }
    false
}

/// Whether a task ever is in this group itself: by start, by its program or by an intervention.
pub(crate) fn lives_in(workload: &Workload, group: GroupIx) -> bool {
    let starts = workload.tasks.iter().any(|spec| spec.group == group);
    let moves = workload
        .tasks
        .iter()
        .any(|spec| has_step(spec, |op| matches!(op, Op::Move { group: to, .. } if *to == group)));
    let moved = workload
        .interventions
        .iter()
        .any(|i| matches!(i.action, Action::Move { group: to, .. } if to == group));
    starts || moves || moved
}

/// Whether a task's program contains an instruction for which `what` holds.
fn has_step(spec: &TaskSpec, what: impl Fn(&Op) -> bool) -> bool {
    spec.program.iter().any(what)
}

/// Whether a `syscall` of this program needs several `io_submit(2)` requests; an error if none fit.
fn needs_lists(workload: &Workload, program: &[Op], facts: Facts) -> Result<bool, String> {
    let mut lists = false;
    let mut at = 0;
    while at < program.len() {
        if program[at] == Op::EnterKernel {
            let end = call_end(program, at);
            let ops = &program[at + 1..end];
            let asks = owner::single_lock_call(ops)
                .is_some_and(|(lock, ..)| owner::is_owner_lock(workload, lock, facts));
            lists |= !asks && count_requests(ops, facts)? > 1;
            at = end;
        }
        at += 1;
    }
    Ok(lists)
}

/// Most `io_submit(2)` requests that the steps of a `syscall` need; 1: a single read or write does
/// it.
///
/// # Errors
/// A step that no list can have, or more than [`MAX_REQUESTS`].
fn count_requests(ops: &[Op], facts: Facts) -> Result<usize, String> {
    let mut requests = 0usize;
    let mut factors = vec![1usize];
    let mut time_has_passed = false;
    for op in ops {
        let factor = *factors.last().unwrap_or(&1);
        let own = match *op {
            Op::Begin | Op::Lock { .. } | Op::Unlock { .. } => 4,
            Op::Done | Op::Send { .. } => 2,
            Op::Kernel(_) => {
                time_has_passed = true;
                3
            }
            Op::Recv { n, .. } if n > MAX_CALL_TOKENS => {
                return Err(format!(
                    "{n} tokens inside one system call; at most {MAX_CALL_TOKENS} are possible"
                ));
            }
            Op::Recv { n, .. } => {
                time_has_passed = true;
                n as usize + 2
            }
            Op::Sleep(_) if time_has_passed || factor > 1 => {
                return Err("a sleep inside a `syscall` must come first in it".to_owned());
            }
            Op::Sleep(_) | Op::Every { .. } if !facts.timer_requests => {
                return Err(
                    "this kernel cannot wait for a timer inside a `syscall`; 6.10 and later can"
                        .to_owned(),
                );
            }
            Op::Sleep(_) | Op::Every { .. } | Op::Move { who: Target::Myself, .. } => 1,
            Op::LoopStart { times, .. } => {
                factors.push(factor.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX)));
                0
            }
            Op::LoopEnd { .. } => {
                factors.pop();
                0
            }
            other => {
                let name = name_of(other);
                return Err(format!("{name} cannot be combined with other steps in one `syscall`"));
            }
        };
        requests = requests.saturating_add(factor.saturating_mul(own));
    }
    // A lock around kernel time is one write, a single step of kernel time one read.
    let one_write = matches!(ops, [Op::Lock { .. }, Op::Kernel(_), Op::Unlock { .. }]);
    if matches!(ops, [] | [Op::Kernel(_)]) || one_write {
        return Ok(1);
    }
    if requests > MAX_REQUESTS {
        return Err(format!("a `syscall` has more than {MAX_REQUESTS} steps"));
    }
    Ok(requests.max(2))
}

/// The scenario's word for a step, for messages.
fn name_of(op: Op) -> &'static str {
    match op {
        Op::Fork { .. } => "`fork`",
        Op::WaitChildren => "`wait`",
        Op::Yield => "`yield`",
        Op::Move { .. } => "`move` of others",
        Op::SetAffinity { .. } => "`affinity`",
        Op::SetNice { .. } => "`nice`",
        Op::SetClass { .. } => "`class`",
        _ => "this step",
    }
}

/// Index of the `unlock`, if the steps from `at` on are only `lock`, kernel time and `unlock`.
pub fn end_of_kernel_hold(program: &[Op], at: usize) -> Option<usize> {
    let Op::Lock { lock, .. } = *program.get(at)? else { return None };
    let rest = &program[at + 1..];
    let work = rest.iter().take_while(|op| matches!(op, Op::Kernel(_))).count();
    (work > 0 && rest.get(work) == Some(&Op::Unlock { lock })).then_some(at + 1 + work)
}

/// How the programs of a workload use a lock.
#[derive(Default)]
struct Use {
    /// Outside of a `syscall`, or in one that is several real calls.
    outside: bool,
    /// Inside of a `syscall` that is one real call.
    inside: bool,
    /// Around something else than kernel time.
    around_other_work: bool,
    /// Number of tasks that take it for reading.
    readers: u32,
}

/// The real lock (inode, pipe, futex ...) that fits all uses of a lock; an error where none does.
fn choose_lock(
    workload: &Workload,
    plan: &Plan,
    lock: LockIx,
    facts: Facts,
) -> Result<RealLock, String> {
    let spec = &workload.locks[lock as usize];
    if owner::is_owner_lock(workload, lock, facts) {
        owner::check_use(workload, lock)?;
        return Ok(RealLock::Owner);
    }
    let mut found = Use::default();
    for (task, whole) in workload.tasks.iter().zip(&plan.whole_calls) {
        let mut in_call = false;
        let mut reads = false;
        for (at, op) in task.program.iter().enumerate() {
            match *op {
                Op::EnterKernel => in_call = *whole,
                Op::ExitKernel => in_call = false,
                Op::Lock { lock: taken, mode } if taken == lock => {
                    reads |= mode == LockMode::Read;
                    found.outside |= !in_call;
                    found.inside |= in_call;
                    found.around_other_work |= end_of_kernel_hold(&task.program, at).is_none();
                }
                _ => {}
            }
        }
        if reads {
            // The number of forked tasks is unknown.
            let many = if task.count == 0 { 64 } else { task.count };
            found.readers = found.readers.saturating_add(many);
        }
    }
    if spec.kind == LockKind::Spin {
        return Err(format!("lock {:?}: user space cannot hold a spin lock", spec.name));
    }
    if workload.is_memory_map(lock) && !found.outside {
        return Ok(RealLock::MemoryMap);
    }
    Ok(match found {
        Use { inside: true, outside: false, around_other_work: false, readers: 0 | 1, .. } => {
            RealLock::Inode
        }
        Use { inside: true, readers, .. } => RealLock::Pipe { readers: readers.clamp(1, 64) },
        _ => RealLock::Futex,
    })
}

/// Refuses to kill tasks that take locks made in user space (pipe, futex, memory map), which would
/// stay locked. The kernel releases its own locks when a process dies.
fn check_kills(workload: &Workload, plan: &Plan) -> Result<(), String> {
    for intervention in &workload.interventions {
        let Action::Signal { kind, signal: Signal::Kill } = intervention.action else { continue };
        let spec = &workload.tasks[kind as usize];
        let is_kernels = |made| matches!(made, RealLock::Inode | RealLock::Owner);
        let stays = |lock: LockIx| !is_kernels(plan.locks[lock as usize]);
        if has_step(spec, |op| matches!(*op, Op::Lock { lock, .. } if stays(lock))) {
            let name = &spec.name;
            return Err(format!(
                "task {name:?} takes locks and is killed: a lock that it holds would stay locked"
            ));
        }
    }
    Ok(())
}

/// The longest time for which any task holds a lock around kernel time alone, ns; 0 if none does.
pub fn longest_hold_ns(workload: &Workload, lock: LockIx) -> u64 {
    let programs = workload.tasks.iter().map(|task| &task.program);
    let holds_ns = programs.flat_map(|program| {
        program.iter().enumerate().filter_map(move |(at, op)| {
            matches!(op, Op::Lock { lock: taken, .. } if *taken == lock)
                .then(|| end_of_kernel_hold(program, at))
                .flatten()
                .map(|end| work_ns(workload, &program[at..end]))
        })
    });
    holds_ns.max().unwrap_or(0)
}

/// Number of tasks that may take the lock for writing at the same time.
pub fn writers(workload: &Workload, lock: LockIx) -> usize {
    let writes = |op: &Op| matches!(*op, Op::Lock { lock: l, mode: LockMode::Write } if l == lock);
    let kinds = workload.tasks.iter().filter(|task| task.program.iter().any(writes));
    kinds.map(|task| if task.count == 0 { FORKED } else { task.count as usize }).sum()
}

/// The sum of the longest kernel times of these steps, ns.
fn work_ns(workload: &Workload, program: &[Op]) -> u64 {
    let ns = program.iter().map(|op| match op {
        Op::Kernel(span) => longest_ns(workload, *span),
        _ => 0,
    });
    ns.fold(0, u64::saturating_add)
}

/// The longest time to prepare for, ns: the maximum, or a rare value of an unbounded distribution.
fn longest_ns(workload: &Workload, span: Span) -> u64 {
    use cpumax_workload::Distribution::{Constant, Empirical, Exponential, LogNormal, Uniform};
    match span {
        Span::Fixed(ns) => ns,
        Span::Drawn(ix) => match &workload.distributions[ix as usize] {
            Constant { ns } => *ns,
            Uniform { high_ns, .. } => *high_ns,
            Exponential { mean_ns } => mean_ns.saturating_mul(12),
            LogNormal { median_ns, .. } => median_ns.saturating_mul(20),
            Empirical { values_ns, .. } => values_ns.iter().copied().max().unwrap_or(0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_workload::parse;

    /// The plan for a task with this program in a limited group.
    fn of(stops_anywhere: bool, program: &str, more: &str) -> Result<Plan, String> {
        let text = format!(
            "duration = \"1s\"\n[[group]]\npath = \"/g\"\nmax = \"10000 100000\"\n[[lock]]\n\
             name = \"l\"\n\
             kind = \"rwsem\"\n[[task]]\nname = \"t\"\ngroup = \"/g\"\n\
             program = [{{ forever = [{program}] }}]\n{more}"
        );
        let workload = parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
        let facts = Facts { stops_anywhere, timer_requests: true, cpus: 1, ..Facts::default() };
        make_plan(&workload, facts)
    }

    const HELD: &str = "{ syscall = [{ lock = \"l\", mode = \"write\" }, { kernel = \"1ms\" }, \
                        { unlock = \"l\" }] }";

    #[test]
    fn a_lock_around_kernel_time_is_an_inode() {
        let plan = of(false, HELD, "").unwrap();
        assert_eq!(plan.locks, [RealLock::Inode]);
        assert!(!plan.lists, "one write needs no list");
    }

    #[test]
    fn several_readers_need_more_than_an_inode() {
        let reader = HELD.replace("write", "read");
        let more = format!(
            "[[task]]\nname = \"r\"\ncount = 3\n\
             program = [{{ forever = [{{ user = \"1ms\" }}, {reader}] }}]\n"
        );
        let plan = of(false, HELD, &more).unwrap();
        assert_eq!(plan.locks, [RealLock::Pipe { readers: 3 }]);
        assert!(plan.lists);
    }

    #[test]
    fn the_lock_of_the_memory_map_is_one_by_its_name_where_a_call_does_nothing_else() {
        let named = |program: &str| program.replace("\"l\"", "\"mmap_lock\"");
        let of = |program: &str, readers: &str| {
            let text = format!(
                "duration = \"1s\"\n[[lock]]\nname = \"mmap_lock\"\nkind = \"rwsem\"\n[[task]]\n\
                 name = \"t\"\n\
                 program = [{{ forever = [{program}] }}]\n[[task]]\nname = \"r\"\ncount = 3\n\
                 program = [{readers}]\n"
            );
            let workload = parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
            let plan =
                make_plan(&workload, Facts { timer_requests: true, cpus: 1, ..Facts::default() });
            let plan = plan.unwrap();
            (plan.locks[0], plan.lists)
        };
        let [alone, reads] = [HELD.to_owned(), HELD.replace("write", "read")].map(|p| named(&p));
        assert_eq!(of(&alone, &reads), (RealLock::MemoryMap, false));
        let more = reads.replace("{ unlock", "{ kernel = \"1ms\" }, { unlock");
        assert_eq!(of(&alone, &more), (RealLock::Pipe { readers: 3 }, true));
    }

    #[test]
    fn a_lock_outside_of_calls_is_a_queue() {
        let held = "{ lock = \"l\", mode = \"write\" }, { user = \"1ms\" }, { unlock = \"l\" }";
        assert_eq!(of(false, held, "").unwrap().locks, [RealLock::Futex]);
    }

    #[test]
    fn steps_that_no_single_call_can_do_are_refused_where_one_is_needed() {
        for (program, why) in [
            ("{ syscall = [{ kernel = \"1ms\" }, { sleep = \"1ms\" }] }", "come first"),
            ("{ syscall = [{ kernel = \"1ms\" }, { yield = true }] }", "`yield`"),
        ] {
            let refused = of(false, program, "").unwrap_err();
            assert!(refused.contains(why) && refused.contains("\"t\""), "{refused}");
            assert_eq!(of(true, program, "").unwrap().whole_calls, [false]);
        }
    }

    #[test]
    fn cpus_without_a_tick_are_those_the_kernel_was_booted_with() {
        let text = "duration = \"1s\"\n[machine]\ncpus = 3\nnohz_full = \"1-2\"\n[[task]]\n\
                    name = \"t\"\n\
                    program = [{ user = \"1ms\" }]\n";
        let workload = parse(text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
        let booted = |nohz_full| Facts { cpus: 3, nohz_full, ..Facts::default() };
        assert!(make_plan(&workload, booted(0b110)).is_ok());
        for other in [0, 0b100, 0b111] {
            assert!(make_plan(&workload, booted(other)).unwrap_err().contains("booted"));
        }
    }

    #[test]
    fn effects_that_user_space_cannot_have_are_refused_by_name() {
        let refused = of(true, "{ irqoff = \"1ms\" }", "").unwrap_err();
        assert!(refused.contains("interrupts off"), "{refused}");
        let kthread = "[[task]]\nname = \"k\"\nclass = \"kthread\"\ngroup = \"/g\"\n\
                       program = [{ kernel = \"1ms\" }]\n";
        let refused = of(true, "{ user = \"1ms\" }", kthread).unwrap_err();
        assert!(refused.contains("\"k\"") && refused.contains("kernel thread"), "{refused}");
        let outside = kthread.replace("group = \"/g\"\n", "");
        assert_eq!(of(true, "{ user = \"1ms\" }", &outside).unwrap().notes.len(), 1);
        let kill = "[[at]]\ntime = \"10ms\"\ntask = \"t\"\nsignal = \"kill\"\n";
        let held = "{ lock = \"l\", mode = \"write\" }, { user = \"1ms\" }, { unlock = \"l\" }";
        assert!(of(true, held, kill).unwrap_err().contains("stay locked"));
        assert!(of(false, HELD, kill).is_ok(), "the kernel releases an inode's lock");
    }

    #[test]
    fn jobs_are_refused_by_name() {
        let more =
            "[[channel]]\nname = \"c\"\n[[job]]\nname = \"j\"\nprogram = [{ user = \"1ms\" }]\n";
        let work = "{ user = \"1ms\" }";
        assert!(of(true, work, more).is_ok(), "a job that nobody does stands in nobody's way");
        let program = |step: &str| of(true, &format!("{work}, {step}"), more).unwrap_err();
        for step in
            ["{ post = \"j\", to = \"c\" }", "{ after = \"1ms\", post = \"j\", to = \"c\" }"]
        {
            let refused = program(step);
            assert_eq!(refused, "task \"t\" posts job \"j\": only the model runs jobs");
        }
        let refused = program("{ serve = \"c\" }");
        assert_eq!(refused, "task \"t\" serves channel \"c\": only the model runs jobs");
        let source = |what: &str| {
            let source = "[[source]]\nname = \"s\"\nchannel = \"c\"\nevery = \"1ms\"\n";
            of(true, work, &format!("{more}{source}{what}")).unwrap_err()
        };
        let refused = source("jobs = [\"j\"]");
        assert_eq!(refused, "source \"s\" sends job \"j\": only the model runs jobs");
        assert!(source("lossy = true").contains("source \"s\" is lossy"));
    }
}
