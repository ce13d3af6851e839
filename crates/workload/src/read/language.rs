//! The tables of the language and their fields, as docs/reference/scenarios.md describes them.

use super::table::Form::{
    Bounds, Choice, Counted, Cpus, Digits, EachOrCpus, Flag, Float, Length, Names, Nice, Number,
    Of, Rate, Steps, Tables, Text, Time, Times, True,
};
use super::table::{Field, Form, Table, may, must};
use crate::bounds::{MAX_CPUS, MAX_TASKS, MAX_TOKENS, MAX_VALUE_COUNT};
use crate::model::{Class, LockKind, LockMode, Preempt, Signal};

/// The largest whole number that a file can hold.
const MOST: u64 = i64::MAX as u64;

/// A value that files write as one word.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// All words of the type, each with its value.
    const WORDS: &'static [(&'static str, Self)];

    /// The word of this value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// The words of a type, for its form.
fn words<W: Word>() -> Vec<&'static str> {
    W::WORDS.iter().map(|(word, _)| *word).collect()
}

macro_rules! words {
    ($($type:ident: $($word:literal = $value:ident),*;)*) => {
        $(impl Word for $type {
            const WORDS: &'static [(&'static str, $type)] = &[$(($word, $type::$value)),*];
        })*
    };
}

words! {
    Class: "fair" = Fair, "idle" = Idle, "rt" = Rt, "kthread" = Kthread;
    Hierarchy: "v2" = V2, "v1" = V1;
    LockKind: "mutex" = Mutex, "rwsem" = Rwsem, "percpu-rwsem" = PercpuRwsem,
        "rwlock" = Rwlock, "spin" = Spin;
    LockMode: "read" = Read, "write" = Write;
    Preempt: "none" = None, "voluntary" = Voluntary, "lazy" = Lazy, "full" = Full, "rt" = Rt,
        "rt-lazy" = RtLazy;
    Signal: "kill" = Kill, "stop" = Stop, "cont" = Cont;
    Waited: "children" = Children;
}

/// The hierarchy whose rules check the limit of a group.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Hierarchy {
    V1,
    V2,
}

/// Tasks that an instruction waits for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Waited {
    Children,
}

const CLASS: Form = Choice(words::<Class>);
const MODE: Field = may(
    "mode",
    Choice(words::<LockMode>),
    "Together with readers, or alone; not of mutex and spin.",
);

pub(crate) static SCENARIO: Table = Table {
    what: "a scenario",
    fields: &[
        may("name", Text, "What it is called; else the name of the file without extension."),
        may("shows", Text, "One sentence: what it shows."),
        may("duration", Time, "Simulated time, up to one day; 10s if it is not given."),
        may("machine", Form::Table(&MACHINE), "The machine it runs on."),
        may("group", Tables(&GROUP), "Groups; the root is always there."),
        may("lock", Tables(&LOCK), "Locks that programs take."),
        may("channel", Tables(&CHANNEL), "Tokens passed between tasks."),
        may("task", Tables(&TASK), "Kinds of task, and how many there are of each."),
        may("job", Tables(&JOB), "Work that a token carries from who asks for it to who does it."),
        may("source", Tables(&SOURCE), "Whatever puts tokens in channels, come what may."),
        may("service", Tables(&SERVICE), "Threads that answer requests, and who sends these."),
        may("at", Tables(&AT), "What is done from outside at a given time."),
        may("expect", Tables(&EXPECT), "What a run must show."),
    ],
};

pub(super) static MACHINE: Table = Table {
    what: "[machine]",
    fields: &[
        may("cpus", Number(1, MAX_CPUS), "Number of CPUs; 1 if it is not given."),
        may("llc", Number(0, MAX_CPUS), "CPUs that share a last-level cache; 0: all."),
        may("hz", Number(1, 1000), "Ticks a second: 100, 250, 300 or 1000; 250 if not given."),
        may("preempt", Choice(words::<Preempt>), "Where the kernel lets itself be preempted."),
        may("hrtick", Flag, "High-resolution tick at the end of a slice."),
        may("timer_phase", Time, "Phase of every period timer, up to 1s."),
        may("tick_skew", Flag, "Ticks of the CPUs spread over a tick instead of all at once."),
        may("slice", Time, "Runtime a CPU takes from a group's pool at once, 1us to 10s; 5ms."),
        may("base_slice", Time, "Base slice of EEVDF, 0.1ms to 100ms."),
        may("nohz_full", Cpus, "CPUs without a tick while one task runs."),
        may("costs", Flag, "The modelled cost of throttling and releasing takes time."),
        may("ipi", Time, "From sending an interrupt until its handler runs, up to 1s; 2us."),
        may("softirq", Tables(&SOFTIRQ), "Work of the timer threads of a real-time kernel."),
    ],
};

pub(super) static SOFTIRQ: Table = Table {
    what: "[[machine.softirq]]",
    fields: &[
        may("cpu", Number(0, MAX_CPUS - 1), "Its CPU; 0 if it is not given."),
        must("every", Time, "From one to the next, from 1us."),
        must("lock", Of("lock"), "The lock it takes."),
        MODE,
        must("hold", Time, "How long it holds the lock, at most `every`."),
    ],
};

pub(super) static GROUP: Table = Table {
    what: "[[group]]",
    fields: &[
        must("path", Text, "Where it is, from the root down; may contain ranges, {0..9}."),
        may("max", Text, "Quota and period, us, as cpu.max takes them: 50000 100000, or max."),
        may("burst", Digits, "What may be carried over, us, up to the quota."),
        may("weight", Number(1, 10_000), "As cpu.weight; 100 if it is not given."),
        may("shares", Number(2, 262_144), "In place of `weight`, as v1 writes it."),
        may("hierarchy", Choice(words::<Hierarchy>), "Which rules its limit is checked by."),
    ],
};

pub(super) static LOCK: Table = Table {
    what: "[[lock]]",
    fields: &[
        must("name", Text, "By which programs call it."),
        must("kind", Choice(words::<LockKind>), "Who may hold it together, who is next."),
    ],
};

pub(super) static CHANNEL: Table = Table {
    what: "[[channel]]",
    fields: &[
        must("name", Text, "By which programs call it."),
        may("capacity", Number(1, MOST), "A sender waits while there is no room."),
        may("oldest_first", Flag, "The token is next whose request began first."),
    ],
};

pub(super) static TASK: Table = Table {
    what: "[[task]]",
    fields: &[
        must("name", Text, "Name of the kind; may contain ranges, {0..9}."),
        may("label", Text, "Name under which results tell of it, which several may have."),
        may("count", Number(0, MAX_TASKS), "How many run from the start; 1 if it is not given."),
        may("group", Of("group"), "Path of the group they start in; may contain ranges, {0..9}."),
        may("nice", Nice, "Their nice value; 0 if it is not given."),
        may("class", CLASS, "Scheduling class; fair if it is not given."),
        may("cpus", EachOrCpus, "CPUs they may use; each: the i-th on the i-th CPU only."),
        may("start", Time, "When the first of them starts."),
        may("stagger", Time, "How much later each further one starts."),
        may("slice", Time, "Own slice request (EEVDF), 0.1ms to 100ms."),
        may("program", Steps, "What they do; a task exits after the last instruction."),
    ],
};

pub(super) static JOB: Table = Table {
    what: "[[job]]",
    fields: &[
        must("name", Text, "By which programs and sources call it."),
        may("program", Steps, "What is done by the task that takes the token."),
    ],
};

pub(super) static SOURCE: Table = Table {
    what: "[[source]]",
    fields: &[
        must("name", Text, "Its name."),
        must("channel", Of("channel"), "Where its tokens go."),
        may("every", Length, "From one arrival to the next, in the mean from 1us."),
        may("at", Times, "In place of `every`: the times of all arrivals, ascending."),
        may("start", Time, "The first arrival comes one `every` after this."),
        may("count", Number(0, MOST), "Number of arrivals; no end if it is not given."),
        may("jobs", Names, "Jobs that its tokens carry, in turn."),
        may("lossy", Flag, "A token that comes while nobody waits for it is lost."),
    ],
};

pub(super) static SERVICE: Table = Table {
    what: "[[service]]",
    fields: &[
        must("name", Text, "Results tell of it under this name."),
        may("group", Of("group"), "Path of the group of its threads."),
        may("threads", Number(1, MAX_TASKS), "How many there are; 1 if it is not given."),
        may("cpus", EachOrCpus, "CPUs they may use; each: the i-th on the i-th CPU only."),
        must("work", Length, "Work of a request in user mode."),
        may("kernel", Length, "Work in a system call that a request needs beside."),
        may("clients", Number(1, MAX_TASKS), "Closed loop: so many that wait for their answers."),
        may("think", Length, "How long a client thinks."),
        may("rate", Rate, "Open loop: so many requests in a time, at random."),
        may("every", Length, "Open loop: from one request to the next."),
        may("shared", Flag, "Who is idle takes the next request; true if it is not given."),
    ],
};

pub(super) static AT: Table = Table {
    what: "[[at]]",
    fields: &[
        must("time", Time, "When."),
        may("repeat", Time, "And again after each such time, from 1us."),
        may("until", Time, "But no longer at or after that time."),
        may("group", Of("group"), "The group that a limit or weight is written to."),
        may("max", Text, "Quota and period, us, as cpu.max takes them."),
        may("burst", Digits, "What may be carried over, us."),
        may("weight", Number(1, 10_000), "As cpu.weight."),
        may("task", Of("task"), "The kind of task that something is done to."),
        may("signal", Choice(words::<Signal>), "Sent to every task of the kind."),
        may("move", Of("group"), "Path of the group to which every task of the kind is moved."),
        may("affinity", Cpus, "CPUs that every task of the kind may use from then on."),
        may("nice", Nice, "Nice value of every task of the kind."),
        may("class", CLASS, "Class of every task of the kind."),
        may("offline", Number(0, MAX_CPUS - 1), "A CPU that goes off line; not CPU 0."),
        may("online", Number(0, MAX_CPUS - 1), "A CPU that comes back."),
    ],
};

pub(super) static EXPECT: Table = Table {
    what: "[[expect]]",
    fields: &[
        may("on", Text, "Kernels, as --kernel takes them; all if it is not given."),
        must("metric", Text, "Path of a number in the result."),
        may("per", Text, "Divided by this other number of the same run."),
        may("over", Text, "Divided by the same on this kernel."),
        may("min", Float, "It must be at least this."),
        may("max", Float, "It must be at most this."),
        may("is", Float, "It must be this."),
        may("why", Text, "Why it must be so."),
    ],
};

/// Each verb with the fields of its instruction. `do` is listed only for the message that it
/// belongs to a loop.
pub(crate) static VERBS: [(&str, Table); 26] = [
    ("user", Table { what: "{ user = … }", fields: &[must("user", Length, "Run in user mode.")] }),
    ("kernel", instruction(&[must("kernel", Length, "Run in kernel mode.")])),
    ("irqoff", instruction(&[must("irqoff", Length, "Run with interrupts off.")])),
    ("sleep", instruction(&[must("sleep", Length, "Sleep for that long.")])),
    (
        "every",
        instruction(&[must("every", Time, "Sleep to the next multiple of this time, from 1us.")]),
    ),
    ("syscall", instruction(&[must("syscall", Steps, "One stay in kernel mode.")])),
    ("forever", instruction(&[must("forever", Steps, "Again and again.")])),
    ("loop", LOOP),
    (
        "lock",
        Table {
            what: "{ lock = …, mode = … }",
            fields: &[must("lock", Of("lock"), "Take this lock, waiting for it."), MODE],
        },
    ),
    ("unlock", instruction(&[must("unlock", Of("lock"), "Release this lock.")])),
    ("send", instruction(&[must("send", Of("channel"), "Put tokens in this channel."), TOKENS])),
    (
        "recv",
        instruction(&[
            must("recv", Of("channel"), "Take tokens out of this channel, waiting."),
            TOKENS,
        ]),
    ),
    (
        "serve",
        instruction(&[must(
            "serve",
            Of("channel"),
            "Take a token out, and do the job that it carries.",
        )]),
    ),
    ("post", Table { what: "{ post = …, to = … }", fields: &POST_FIELDS }),
    ("after", Table { what: "{ after = …, post = …, to = … }", fields: &POST_FIELDS }),
    ("fork", instruction(&[must("fork", Of("task"), "Start one new task of this kind.")])),
    (
        "wait",
        instruction(&[must("wait", Choice(words::<Waited>), "Wait until every child has exited.")]),
    ),
    ("exit", instruction(&[must("exit", True, "End here.")])),
    ("yield", instruction(&[must("yield", True, "Let others run.")])),
    (
        "move",
        Table {
            what: "{ move = …, to = … }",
            fields: &[
                must("move", Of("task"), "Every task of this kind, or self."),
                must("to", Of("group"), "Path of the group to which it is moved."),
            ],
        },
    ),
    ("affinity", instruction(&[must("affinity", Cpus, "CPUs to use from then on."), OF])),
    ("nice", instruction(&[must("nice", Nice, "The nice value from then on."), OF])),
    ("class", instruction(&[must("class", CLASS, "The class from then on."), OF])),
    ("begin", instruction(&[must("begin", True, "A request starts here.")])),
    (
        "done",
        instruction(&[must("done", True, "A request is complete, and its latency is recorded.")]),
    ),
    ("do", LOOP),
];

const fn instruction(fields: &'static [Field]) -> Table {
    Table { what: "the instruction", fields }
}

const OF: Field = may("of", Of("task"), "Every task of this kind; itself if it is not given.");
const TOKENS: Field = may("n", Number(1, MAX_TOKENS), "How many; 1 if it is not given.");

const LOOP: Table = Table {
    what: "{ loop = N, do = […] }",
    fields: &[
        must("loop", Number(1, MOST), "So many times what `do` says."),
        must("do", Steps, "What is done each time."),
    ],
};
const POST_FIELDS: [Field; 4] = [
    must("post", Of("job"), "Put a token in a channel that carries this job."),
    must("to", Of("channel"), "The channel."),
    may("after", Length, "It comes from outside after that time, and is another request."),
    may("keep", Flag, "With `after`: it is of the request under way."),
];

pub(crate) static DISTRIBUTION: Table = Table {
    what: "a length of time",
    fields: &[
        may("uniform", Bounds, "Every length from the first to the second equally likely."),
        may("exponential", Time, "Lengths without memory, with this mean."),
        may("lognormal", Form::Table(&LOGNORMAL), "e to the power of a normal number."),
        may("empirical", Counted(MAX_VALUE_COUNT), "Each length as often as its count says."),
    ],
};

pub(super) static LOGNORMAL: Table = Table {
    what: "lognormal",
    fields: &[
        must("median", Time, "Half of all lengths are shorter."),
        must("sigma", Float, "Standard deviation of the logarithm, 0 to 10."),
    ],
};
