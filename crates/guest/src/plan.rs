//! How a workload is to be executed by real system calls, or why it cannot be.
//!
//! What stands in a `syscall` must be one real system call where a kernel stops tasks at their
//! return to user mode (6.18 and later): a read or a write of calibrated length where that is all,
//! else a list of requests that `io_submit(2)` executes one after the other without leaving the
//! kernel. On kernels that stop tasks anywhere it may as well be several calls, and what has no
//! place in such a list is allowed there.

use crate::owner;
use cpumax_workload::{
    Action, Class, GroupIx, LockIx, LockKind, LockMode, Op, Signal, Span, Target, TaskSpec,
    Workload,
};

/// Most tasks that can be there at once.
pub const MAX_TASKS: usize = 1000;
/// How many forked ones of these.
const FORKED: usize = 200;
/// Most requests in one system call.
pub const MAX_REQUESTS: usize = 200;
/// Most tokens sent or received at once.
pub const MAX_TOKENS: u64 = 8192;
/// Most of them inside a list of requests.
const MAX_CALL_TOKENS: u64 = 32;

/// What matters about the world the workload is to run in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// The kernel stops tasks wherever they are, so one call may be split into several.
    pub stops_anywhere: bool,
    /// A timer can be waited for in a list of requests (6.10).
    pub timer_requests: bool,
    /// CPUs on line.
    pub cpus: u32,
    /// Timers are work of a thread (`PREEMPT_RT`), which may be made to wait, as the machine is
    /// ours.
    pub timer_thread: bool,
    /// The workload's root is that of the hierarchy, not a group of ours in it.
    pub root_is_root: bool,
    /// Of the first 64 CPUs those that are without a tick while one task runs, a bit each.
    pub nohz_full: u64,
}

/// How a lock is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMade {
    /// The lock of an inode, held through a write of calibrated length.
    Inode,
    /// The lock of the memory map, held through an mprotect(2) or madvise(2) of calibrated length.
    MemoryMap,
    /// Tokens in a pipe: as many as there may be readers, and a gate for those who wait.
    Pipe {
        /// Readers that may be inside at once.
        readers: u32,
    },
    /// A queue in user space.
    Futex,
    /// The lock of a file's owner, which the timer thread takes too.
    Owner,
}

/// How a workload is executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// By lock.
    pub locks: Vec<LockMade>,
    /// By kind: whether its system calls are one call each; else they are split.
    pub whole_calls: Vec<bool>,
    /// Whether any task needs lists of requests.
    pub lists: bool,
    /// Whether tasks are in groups that have groups below them.
    pub inner: bool,
    /// Tasks there may be at once.
    pub tasks: usize,
    /// How many times a second the timer thread is to take the lock of the owner.
    pub interrupts_hz: Option<u32>,
    /// Where the run is not quite what the workload says.
    pub notes: Vec<String>,
}

/// The plan for this workload in this world, or why it cannot be run there.
///
/// # Errors
/// What cannot be done, and why.
pub fn plan(workload: &Workload, facts: Facts) -> Result<Plan, String> {
    check_machine(workload, facts)?;
    check_sources(workload)?;
    let interrupts_hz = owner::interrupts_hz(workload, facts)?;
    let mut plan = Plan { interrupts_hz, ..Plan::default() };
    for spec in &workload.tasks {
        check_task(workload, spec, &mut plan)?;
        let whole = match calls(workload, &spec.program, facts) {
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
        let made = lock_made(workload, &plan, lock, facts)?;
        plan.lists |= matches!(made, LockMade::Pipe { .. });
        plan.locks.push(made);
    }
    check_kills(workload, &plan)?;
    plan.inner = crate::cgroup::has_inner_tasks(workload, facts.root_is_root, |group| {
        lives_in(workload, group)
    });
    let started: u64 = workload.tasks.iter().map(|spec| u64::from(spec.count)).sum();
    let forks = workload.tasks.iter().any(|spec| has(spec, |op| matches!(op, Op::Fork { .. })));
    plan.tasks = started as usize + if forks { FORKED } else { 0 };
    if plan.tasks > MAX_TASKS {
        return Err(format!("{started} tasks: more than {MAX_TASKS} real ones are not started"));
    }
    Ok(plan)
}

fn check_machine(workload: &Workload, facts: Facts) -> Result<(), String> {
    let machine = &workload.machine;
    if u32::from(machine.cpus) > facts.cpus {
        return Err(format!("needs {} CPUs, there are {}", machine.cpus, facts.cpus));
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

/// Jobs, and tokens that are lost, are the model's alone.
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

fn check_task(workload: &Workload, spec: &TaskSpec, plan: &mut Plan) -> Result<(), String> {
    let name = &spec.name;
    if spec.class == Class::Kthread {
        if is_limited(workload, spec.group) || has(spec, |op| matches!(op, Op::Move { .. })) {
            return Err(format!(
                "task {name:?}: user space cannot make a kernel thread that does given work in a \
                 limited group"
            ));
        }
        plan.notes.push(format!(
            "kernel thread {name:?} is a process; outside of limited groups that makes no \
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
                return Err(format!("task {name:?}: {n} tokens at once, at most {MAX_TOKENS}"));
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
                return Err(format!("task {name:?}: nothing becomes a kernel thread"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the group or one above it ever has a limit.
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

pub(crate) fn lives_in(workload: &Workload, group: GroupIx) -> bool {
    let starts = workload.tasks.iter().any(|spec| spec.group == group);
    let moves = workload
        .tasks
        .iter()
        .any(|spec| has(spec, |op| matches!(op, Op::Move { group: to, .. } if *to == group)));
    let moved = workload
        .interventions
        .iter()
        .any(|i| matches!(i.action, Action::Move { group: to, .. } if to == group));
    starts || moves || moved
}

fn has(spec: &TaskSpec, what: impl Fn(&Op) -> bool) -> bool {
    spec.program.iter().any(what)
}

/// Whether a program's calls need lists of requests, or why they are no lists.
fn calls(workload: &Workload, program: &[Op], facts: Facts) -> Result<bool, String> {
    let mut lists = false;
    let mut at = 0;
    while at < program.len() {
        if program[at] == Op::EnterKernel {
            let end = call_end(program, at);
            let ops = &program[at + 1..end];
            let asks =
                owner::question(ops).is_some_and(|(lock, ..)| owner::is_it(workload, lock, facts));
            lists |= !asks && call_requests(ops, facts)? > 1;
            at = end;
        }
        at += 1;
    }
    Ok(lists)
}

/// Index of the `ExitKernel` that ends the call at `at`.
pub fn call_end(program: &[Op], at: usize) -> usize {
    let rest = program[at..].iter().position(|op| *op == Op::ExitKernel);
    rest.map_or(program.len(), |end| at + end)
}

/// How many requests a call is.
fn call_requests(ops: &[Op], facts: Facts) -> Result<usize, String> {
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
                    "{n} tokens inside one system call, at most {MAX_CALL_TOKENS}"
                ));
            }
            Op::Recv { n, .. } => {
                time_has_passed = true;
                n as usize + 2
            }
            Op::Sleep(_) if time_has_passed || factor > 1 => {
                return Err("a sleep inside a system call must come first in it".to_owned());
            }
            Op::Sleep(_) | Op::Every { .. } if !facts.timer_requests => {
                return Err("this kernel cannot wait for a timer inside a call (6.10)".to_owned());
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
                return Err(format!("no system call that does {name} does anything else as well"));
            }
        };
        requests = requests.saturating_add(factor.saturating_mul(own));
    }
    // A lock around kernel time is one write, a single stretch of kernel time one read.
    let stretches = ops.iter().all(|op| matches!(op, Op::Kernel(_)));
    let one_write = matches!(ops, [Op::Lock { .. }, Op::Kernel(_), Op::Unlock { .. }]);
    if (stretches && ops.len() <= 1) || one_write {
        return Ok(1);
    }
    if requests > MAX_REQUESTS {
        return Err(format!("more than {MAX_REQUESTS} steps inside one system call"));
    }
    Ok(requests.max(2))
}

fn name_of(op: Op) -> &'static str {
    match op {
        Op::Fork { .. } => "`fork`",
        Op::WaitChildren => "`wait`",
        Op::Yield => "`yield`",
        Op::Move { .. } => "`move` of others",
        Op::SetAffinity { .. } => "`affinity`",
        Op::SetNice { .. } => "`nice`",
        Op::SetClass { .. } => "`class`",
        _ => "this",
    }
}

/// A stretch `lock`, kernel time, `unlock` that begins at `at`, all in one call: the index of its
/// `unlock`.
pub fn held_stretch(program: &[Op], at: usize) -> Option<usize> {
    let Op::Lock { lock, .. } = *program.get(at)? else { return None };
    let rest = &program[at + 1..];
    let work = rest.iter().take_while(|op| matches!(op, Op::Kernel(_))).count();
    (work > 0 && rest.get(work) == Some(&Op::Unlock { lock })).then_some(at + 1 + work)
}

/// How a lock is used by all programs.
#[derive(Default)]
struct Use {
    /// Outside of calls, or in calls that are split.
    outside: bool,
    inside: bool,
    /// In some other way than around kernel time alone.
    not_a_stretch: bool,
    /// Tasks that take it for reading.
    readers: u32,
}

fn lock_made(
    workload: &Workload,
    plan: &Plan,
    lock: LockIx,
    facts: Facts,
) -> Result<LockMade, String> {
    let spec = &workload.locks[lock as usize];
    if owner::is_it(workload, lock, facts) {
        owner::check_use(workload, lock)?;
        return Ok(LockMade::Owner);
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
                    found.not_a_stretch |= held_stretch(&task.program, at).is_none();
                }
                _ => {}
            }
        }
        if reads {
            // A forked kind may be there any number of times.
            let many = if task.count == 0 { 64 } else { task.count };
            found.readers = found.readers.saturating_add(many);
        }
    }
    if spec.kind == LockKind::Spin {
        return Err(format!("lock {:?}: user space cannot hold a spin lock", spec.name));
    }
    if workload.is_memory_map(lock) && !found.outside {
        return Ok(LockMade::MemoryMap);
    }
    Ok(match found {
        Use { inside: true, outside: false, not_a_stretch: false, readers: 0 | 1, .. } => {
            LockMade::Inode
        }
        Use { inside: true, readers, .. } => LockMade::Pipe { readers: readers.clamp(1, 64) },
        _ => LockMade::Futex,
    })
}

/// A killed process leaves what user space has locked as it was; the kernel's own locks it
/// releases.
fn check_kills(workload: &Workload, plan: &Plan) -> Result<(), String> {
    for intervention in &workload.interventions {
        let Action::Signal { kind, signal: Signal::Kill } = intervention.action else { continue };
        let spec = &workload.tasks[kind as usize];
        let is_kernels = |made| matches!(made, LockMade::Inode | LockMade::Owner);
        let stays = |lock: LockIx| !is_kernels(plan.locks[lock as usize]);
        if has(spec, |op| matches!(*op, Op::Lock { lock, .. } if stays(lock))) {
            let name = &spec.name;
            return Err(format!(
                "task {name:?} takes locks and is killed: what it holds would stay locked, or half \
                 gone through"
            ));
        }
    }
    Ok(())
}

/// The longest that a lock is held through kernel time and nothing else, ns.
pub fn longest_hold_ns(workload: &Workload, lock: LockIx) -> u64 {
    let programs = workload.tasks.iter().map(|task| &task.program);
    let holds_ns = programs.flat_map(|program| {
        program.iter().enumerate().filter_map(move |(at, op)| {
            matches!(op, Op::Lock { lock: taken, .. } if *taken == lock)
                .then(|| held_stretch(program, at))
                .flatten()
                .map(|end| work_ns(workload, &program[at..end]))
        })
    });
    holds_ns.max().unwrap_or(0)
}

/// How many tasks there may be that take a lock for writing.
pub fn writers(workload: &Workload, lock: LockIx) -> usize {
    let writes = |op: &Op| matches!(*op, Op::Lock { lock: l, mode: LockMode::Write } if l == lock);
    let kinds = workload.tasks.iter().filter(|task| task.program.iter().any(writes));
    kinds.map(|task| if task.count == 0 { FORKED } else { task.count as usize }).sum()
}

/// The longest that kernel time takes, ns.
fn work_ns(workload: &Workload, program: &[Op]) -> u64 {
    let ns = program.iter().map(|op| match op {
        Op::Kernel(span) => longest_ns(workload, *span),
        _ => 0,
    });
    ns.fold(0, u64::saturating_add)
}

/// Longest time of a span that is worth preparing for, ns.
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

    /// The plan for a task with this program, in a limited group, on a kernel of one of both sorts.
    fn of(stops_anywhere: bool, program: &str, more: &str) -> Result<Plan, String> {
        let text = format!(
            "duration = \"1s\"\n[[group]]\npath = \"/g\"\nmax = \"10000 100000\"\n[[lock]]\n\
             name = \"l\"\n\
             kind = \"rwsem\"\n[[task]]\nname = \"t\"\ngroup = \"/g\"\n\
             program = [{{ forever = [{program}] }}]\n{more}"
        );
        let workload = parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
        let facts = Facts { stops_anywhere, timer_requests: true, cpus: 1, ..Facts::default() };
        plan(&workload, facts)
    }

    const HELD: &str = "{ syscall = [{ lock = \"l\", mode = \"write\" }, { kernel = \"1ms\" }, \
                        { unlock = \"l\" }] }";

    #[test]
    fn a_lock_around_kernel_time_is_an_inode() {
        let plan = of(false, HELD, "").unwrap();
        assert_eq!(plan.locks, [LockMade::Inode]);
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
        assert_eq!(plan.locks, [LockMade::Pipe { readers: 3 }]);
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
            let plan = plan(&workload, Facts { timer_requests: true, cpus: 1, ..Facts::default() });
            let plan = plan.unwrap();
            (plan.locks[0], plan.lists)
        };
        let [alone, reads] = [HELD.to_owned(), HELD.replace("write", "read")].map(|p| named(&p));
        assert_eq!(of(&alone, &reads), (LockMade::MemoryMap, false));
        let more = reads.replace("{ unlock", "{ kernel = \"1ms\" }, { unlock");
        assert_eq!(of(&alone, &more), (LockMade::Pipe { readers: 3 }, true));
    }

    #[test]
    fn a_lock_outside_of_calls_is_a_queue() {
        let held = "{ lock = \"l\", mode = \"write\" }, { user = \"1ms\" }, { unlock = \"l\" }";
        assert_eq!(of(false, held, "").unwrap().locks, [LockMade::Futex]);
    }

    #[test]
    fn what_no_call_does_is_refused_where_a_call_must_be_one() {
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
        assert!(plan(&workload, booted(0b110)).is_ok());
        for other in [0, 0b100, 0b111] {
            assert!(plan(&workload, booted(other)).unwrap_err().contains("booted"));
        }
    }

    #[test]
    fn what_user_space_cannot_bring_about_is_refused_by_name() {
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
