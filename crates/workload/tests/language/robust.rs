//! Any input: no panic, and an accepted workload is accepted again after printing.

use cpumax_workload::{
    Action, Affinity, CpuSet, Distribution, LockMode, Op, Parts, Span, Target, Workload, parse,
    print, random,
};
use proptest::prelude::*;

/// Reads `text`; if it is accepted, printing and reading it gives an equal workload.
fn read_and_again(text: &str) {
    let Ok(workload) = parse(text, "any.toml") else { return };
    workload.check().unwrap_or_else(|error| panic!("accepted, then refused: {error}\n{text}"));
    let printed = print(&workload);
    match parse(&printed, "printed.toml") {
        Ok(again) => assert_eq!(again, workload, "{text}\n\n{printed}"),
        Err(error) => panic!("{error}\n\n{text}\n\n{printed}"),
    }
}

/// Pieces of the language, combined at random.
const PIECES: [&str; 81] = [
    "[[task]]\n",
    "[[group]]\n",
    "[[lock]]\n",
    "[[channel]]\n",
    "[[at]]\n",
    "[[expect]]\n",
    "[[source]]\n",
    "[[job]]\n",
    "[[service]]\n",
    "[[service]]\nname = \"a\"\nwork = \"1ms\"\nclients = 3\n",
    "[[service]]\nname = \"b\"\nwork = \"1ms\"\nrate = \"2/s\"\n",
    "work = { uniform = [\"0ns\", \"1ms\"] }\n",
    "shared = false\n",
    "threads = 3\n",
    "think = { exponential = \"1ms\" }\n",
    "jobs = [\"a\"]\n",
    "lossy = true\n",
    "{ serve = \"a\" }, ",
    "{ post = \"a\", to = \"a\" }, ",
    "{ after = \"1ms\", post = \"a\", to = \"a\" }, ",
    "{ after = { exponential = \"0ns\" }, post = \"a\", to = \"a\" }, ",
    "{ begin = true }, ",
    "{ done = true }, ",
    "{ sleep = \"1ms\" }, ",
    "[machine]\n",
    "[[machine.softirq]]\n",
    "name = \"a\"\n",
    "name = \"b{0..3}\"\n",
    "path = \"/a\"\n",
    "path = \"/a/b\"\n",
    "path = \"/..\"\n",
    "max = \"20000 100000\"\n",
    "max = \"max\"\n",
    "max = \"10000\"\n",
    "burst = 5000\n",
    "weight = 7\n",
    "shares = 300\n",
    "hierarchy = \"v1\"\n",
    "kind = \"mutex\"\n",
    "kind = \"rwsem\"\n",
    "kind = \"spin\"\n",
    "capacity = 2\n",
    "count = 3\n",
    "count = 0\n",
    "group = \"/a\"\n",
    "class = \"kthread\"\n",
    "cpus = 4\n",
    "cpus = \"0-2\"\n",
    "cpus = \"each\"\n",
    "start = \"1ms\"\n",
    "time = \"1s\"\n",
    "repeat = \"1ms\"\n",
    "until = \"2s\"\n",
    "task = \"a\"\n",
    "signal = \"stop\"\n",
    "offline = 1\n",
    "metric = \"events\"\n",
    "is = 1.5\n",
    "min = 1\n",
    "channel = \"a\"\n",
    "every = \"1ms\"\n",
    "at = [\"1ms\"]\n",
    "preempt = \"rt\"\n",
    "program = [",
    "]\n",
    "{ user = \"1ms\" }, ",
    "{ user = { exponential = \"1ms\" } }, ",
    "{ kernel = \"1ms\" }, ",
    "{ forever = [",
    "{ loop = 3, do = [",
    "{ syscall = [",
    "] }, ",
    "{ lock = \"a\" }, ",
    "{ lock = \"a\", mode = \"read\" }, ",
    "{ unlock = \"a\" }, ",
    "{ send = \"a\" }, ",
    "{ recv = \"a\", n = 2 }, ",
    "{ fork = \"a\" }, ",
    "{ affinity = \"1\" }, ",
    "{ nice = 3, of = \"a\" }, ",
    "{ exit = true }, ",
];

/// A small random change to a text.
#[derive(Debug, Clone)]
enum Edit {
    DropLine(prop::sample::Index),
    RepeatLine(prop::sample::Index),
    SwapLines(prop::sample::Index, prop::sample::Index),
    Insert(prop::sample::Index, &'static str),
    Digit(prop::sample::Index, char),
    Cut(prop::sample::Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(Edit::DropLine),
        index().prop_map(Edit::RepeatLine),
        (index(), index()).prop_map(|(one, other)| Edit::SwapLines(one, other)),
        (index(), prop::sample::select(PIECES.as_slice())).prop_map(|(at, p)| Edit::Insert(at, p)),
        (index(), prop::char::range('0', '9')).prop_map(|(at, digit)| Edit::Digit(at, digit)),
        index().prop_map(Edit::Cut),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return String::new();
    }
    let count = lines.len();
    match edit {
        Edit::DropLine(at) => drop(lines.remove(at.index(count))),
        Edit::RepeatLine(at) => lines.insert(at.index(count), lines[at.index(count)].clone()),
        Edit::SwapLines(one, other) => lines.swap(one.index(count), other.index(count)),
        Edit::Insert(at, piece) => lines.insert(at.index(count), (*piece).to_owned()),
        Edit::Digit(at, digit) => {
            let digits: Vec<usize> =
                text.match_indices(|c: char| c.is_ascii_digit()).map(|d| d.0).collect();
            let mut text = text.to_owned();
            if !digits.is_empty() {
                let at = digits[at.index(digits.len())];
                text.replace_range(at..=at, &digit.to_string());
            }
            return text;
        }
        Edit::Cut(at) => lines.truncate(at.index(count)),
    }
    lines.join("\n")
}

/// Breaks one thing in a valid workload.
fn damage(workload: &mut Parts, choice: u64, at: prop::sample::Index, number: u32) {
    let tasks = workload.tasks.len();
    let task = at.index(tasks);
    let op = at.index(workload.tasks[task].program.len().max(1));
    let mut replace = |with: Op| {
        if let Some(op) = workload.tasks[task].program.get_mut(op) {
            *op = with;
        }
    };
    match choice {
        0 => replace(Op::Lock { lock: number, mode: LockMode::Write }),
        1 => replace(Op::Unlock { lock: number }),
        2 => replace(Op::LoopEnd { start: number }),
        3 => replace(Op::LoopStart { times: number.into(), end: number }),
        4 => replace(Op::EnterKernel),
        5 => replace(Op::ExitKernel),
        6 => replace(Op::Send { channel: number, n: number.into() }),
        7 => replace(Op::Fork { kind: number }),
        8 => replace(Op::User(Span::Drawn(number))),
        9 => replace(Op::Move { who: Target::Kind(number), group: number }),
        10 => replace(Op::SetAffinity { who: Target::Myself, cpus: number }),
        11 => workload.tasks[task].group = number,
        12 => workload.tasks[task].cpus = Affinity::Set(number),
        13 => workload.groups.clear(),
        14 => {
            let other = at.index(workload.groups.len());
            workload.groups.swap(0, other);
        }
        15 => {
            if let Some(group) = workload.groups.last_mut() {
                group.parent = Some(number);
            }
        }
        16 => workload.cpu_sets.push(CpuSet(vec![number as u16, 1])),
        17 => workload
            .distributions
            .push(Distribution::Empirical { values_ns: vec![1], cumulative: vec![0, 1] }),
        18 => {
            if let Some(first) = workload.interventions.first_mut() {
                first.action = Action::Move { kind: number, group: number };
            }
        }
        19 => workload.machine.cpus = number as u16,
        20 => workload.locks.clear(),
        21 => workload.channels.clear(),
        22 => workload.machine.nohz_full = Some(number),
        23 => replace(Op::Serve { channel: number }),
        24 => replace(Op::Post { channel: number, job: number }),
        25 => {
            replace(Op::After { delay: Span::Fixed(0), channel: number, job: number, keep: true });
        }
        26 => {
            let jobs = workload.jobs.len();
            if let Some(job) = workload.jobs.get_mut(at.index(jobs.max(1))) {
                job.program.insert(0, Op::Post { channel: number, job: number });
            }
        }
        27 => workload.jobs.clear(),
        _ => drop(workload.tasks.remove(task)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        read_and_again(&text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_and_again(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_pieces_are_read_or_refused(
        pieces in prop::collection::vec(prop::sample::select(PIECES.as_slice()), 0..30),
    ) {
        read_and_again(&pieces.concat());
    }

    #[test]
    fn edited_scenarios_are_read_or_refused(
        seed in 0u64..1_000_000,
        edits in prop::collection::vec(edit(), 1..4),
    ) {
        let made = if seed % 2 == 0 { random::workload } else { random::with_jobs };
        let mut text = print(&made(seed));
        for edit in &edits {
            text = apply(&text, edit);
        }
        read_and_again(&text);
    }

    #[test]
    fn damaged_workloads_are_checked_without_panic(
        seed in 0u64..1_000_000,
        choice in 0u64..29,
        at in any::<prop::sample::Index>(),
        number in prop_oneof![0u32..10, any::<u32>()],
    ) {
        let mut parts = random::with_jobs(seed).into_parts();
        damage(&mut parts, choice, at, number);
        if let Ok(workload) = Workload::try_from(parts) {
            read_and_again(&print(&workload));
        }
    }

    #[test]
    fn random_workloads_are_valid(seed in any::<u64>()) {
        random::workload(seed).check().unwrap();
        random::with_jobs(seed).check().unwrap();
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in
        [("{ forever = [", "] }"), ("{ syscall = [", "] }"), ("[", "]"), ("{ a = ", "}")]
    {
        for depth in [30, 33, 70, 100_000] {
            let program = format!("{}{}", open.repeat(depth), close.repeat(depth));
            let text = format!("[[task]]\nname = \"a\"\nprogram = [ {program} ]\n");
            assert!(parse(&text, "deep.toml").is_err());
        }
    }
}

/// The largest accepted programs are checked quickly.
#[test]
fn large_programs_are_checked_quickly() {
    let mut parts = parse("[[task]]\nname = \"a\"\n", "large.toml").unwrap().into_parts();
    parts.tasks[0].program = vec![Op::User(Span::Fixed(1)); 1_000_000].into();
    let before = std::time::Instant::now();
    Workload::try_from(parts).unwrap();
    assert!(before.elapsed().as_secs() < 10);
}
