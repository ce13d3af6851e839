//! Makes Perfetto traces, as `traced_probes` writes them, from the text of `perf script -F
//! comm,pid,tid,cpu,time,event,trace --show-task-events`.

use std::collections::BTreeMap;

/// A message of protocol buffers.
#[derive(Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub fn number(mut self, field: u32, number: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(number);
        self
    }

    pub fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub fn message(self, field: u32, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    /// Several numbers in one field.
    pub fn packed(self, field: u32, numbers: &[u64]) -> Self {
        let mut column = Message::default();
        for number in numbers {
            column.varint(*number);
        }
        self.message(field, &column)
    }
}

pub fn message() -> Message {
    Message::default()
}

/// A line of the text.
#[derive(Clone)]
pub struct Line {
    pub time_ns: u64,
    pub cpu: u64,
    pub tid: u64,
    pub name: String,
    pub content: String,
}

impl Line {
    /// The word behind the key.
    fn word(&self, key: &str) -> &str {
        let rest = self.content.split_once(key).unwrap_or_else(|| panic!("{key}")).1;
        rest.split(' ').next().unwrap()
    }

    pub fn number(&self, key: &str) -> u64 {
        self.word(key).parse::<i64>().unwrap() as u64
    }

    /// The name behind the key, which may hold spaces and ends at the next key.
    pub fn text(&self, key: &str, next: &str) -> &[u8] {
        let rest = self.content.split_once(key).unwrap().1;
        rest.split_once(next).unwrap().0.as_bytes()
    }

    pub fn state(&self) -> u64 {
        match self.word("prev_state=") {
            "R" => 0,
            "R+" => 0x100,
            "S" => 1,
            "D" => 2,
            "I" => 0x80,
            "X" => 0x10,
            "Z" => 0x20,
            other => panic!("state {other}"),
        }
    }

    fn woken(&self) -> Message {
        message()
            .bytes(1, self.text("comm=", " pid="))
            .number(2, self.number("pid="))
            .number(3, self.number("prio="))
    }

    /// `FtraceEvent`
    pub fn event(&self) -> Message {
        let event = message().number(1, self.time_ns).number(2, self.tid);
        let generic = |fields: &[(&str, u64)]| {
            let mut generic = message().bytes(1, self.name.as_bytes());
            for (name, number) in fields {
                let field = message().bytes(1, name.as_bytes()).number(5, *number);
                generic = generic.message(2, &field);
            }
            generic
        };
        match self.name.as_str() {
            "sched_switch" => {
                let switch = message()
                    .bytes(1, self.text("prev_comm=", " prev_pid="))
                    .number(2, self.number("prev_pid="))
                    .number(3, self.number("prev_prio="))
                    .number(4, self.state())
                    .bytes(5, self.text("next_comm=", " next_pid="))
                    .number(6, self.number("next_pid="))
                    .number(7, self.number("next_prio="));
                event.message(4, &switch)
            }
            "sched_waking" => event.message(20, &self.woken()),
            "sched_wakeup_new" => event.message(114, &self.woken()),
            "sched_process_fork" => {
                let fork = message()
                    .bytes(3, self.text("child_comm=", " child_pid="))
                    .number(4, self.number("child_pid="));
                event.message(239, &fork)
            }
            "sched_stat_runtime" => {
                let fields = [("pid", self.number(" pid=")), ("runtime", self.number("runtime="))];
                event.message(327, &generic(&fields))
            }
            "sys_enter" => {
                let mut enter = message().number(1, self.number("NR "));
                let args = self.content.split_once('(').unwrap().1.trim_end_matches(')');
                for arg in args.split(", ") {
                    enter = enter.number(2, u64::from_str_radix(arg, 16).unwrap());
                }
                event.message(329, &enter)
            }
            "sys_exit" => {
                let exit = message().number(1, self.number("NR ")).number(2, self.number("= "));
                event.message(330, &exit)
            }
            "task_rename" => {
                let comm = self.content.rsplit_once(':').unwrap().0;
                event.message(236, &message().number(1, self.tid).bytes(3, comm.as_bytes()))
            }
            "softirq_entry" => event.message(24, &message().number(1, self.number("vec="))),
            "softirq_exit" => event.message(25, &message()),
            "irq_handler_entry" => event.message(36, &message()),
            "irq_handler_exit" => event.message(37, &message()),
            "hrtimer_expire_entry" => event.message(553, &message()),
            "hrtimer_expire_exit" => event.message(554, &message()),
            other => panic!("event {other}"),
        }
    }
}

/// The events of the text; perf's records of new names become events of the kernel.
pub fn lines(text: &str) -> Vec<Line> {
    let is_other = |line: &&str| line.starts_with('#') || line.contains("PERF_RECORD");
    let is_event = |line: &&str| !is_other(line) || line.contains("RECORD_COMM");
    let lines = text
        .lines()
        .skip_while(is_other)
        .filter(is_event)
        .map(|line| line.replace("PERF_RECORD_COMM exec", "task:task_rename"))
        .map(|line| line.replace("PERF_RECORD_COMM", "task:task_rename"))
        .map(|line| {
            let (head, rest) = line.split_once('[').unwrap();
            let (cpu, rest) = rest.split_once(']').unwrap();
            let (time, rest) = rest.trim_start().split_once(": ").unwrap();
            let rest = rest.trim_start();
            let (name, content) = rest.split_once(": ").unwrap_or((rest, ""));
            let (seconds, nanos) = time.split_once('.').unwrap();
            Line {
                time_ns: seconds.parse::<u64>().unwrap() * 1_000_000_000
                    + nanos.parse::<u64>().unwrap(),
                cpu: cpu.parse().unwrap(),
                tid: head.trim_end().rsplit_once('/').unwrap().1.parse::<i64>().unwrap() as u64,
                name: name.trim_end_matches(':').split_once(':').unwrap().1.to_owned(),
                content: content.to_owned(),
            }
        });
    let mut lines: Vec<Line> = lines.collect();
    // A new name of perf's counts from the event before on.
    for at in 1..lines.len() {
        if lines[at].name == "task_rename" {
            lines[at].time_ns = lines[at - 1].time_ns;
        }
    }
    lines
}

/// Packets about the machine and the processes of the text.
pub fn about(text: &str) -> Vec<Message> {
    let utsname = message().bytes(3, b"6.18.44").bytes(4, b"x86_64");
    let system = message().message(1, &utsname).number(8, 2);
    let mut tree = message();
    for line in text.lines().filter_map(|line| line.split_once("PERF_RECORD_FORK(")) {
        let (ids, parents) = line.1.split_once("):(").unwrap();
        let (pid, tid) = ids.split_once(':').unwrap();
        let parent = parents.split_once(':').unwrap().0;
        let number = |text: &str| text.parse().unwrap();
        if pid == tid {
            let process = message().number(1, number(pid)).number(2, number(parent));
            tree = tree.message(1, &process);
        } else {
            tree = tree.message(2, &message().number(1, number(tid)).number(3, number(pid)));
        }
    }
    vec![message().message(45, &system), message().message(2, &tree)]
}

/// Bundles of so many events each, made by `make`: all of one CPU before those of the next.
pub fn bundles(
    lines: &[Line],
    events: usize,
    make: impl Fn(u64, &[&Line]) -> Message,
) -> Vec<Message> {
    let mut by_cpu: BTreeMap<u64, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        by_cpu.entry(line.cpu).or_default().push(line);
    }
    let chunks = by_cpu.iter().flat_map(|(cpu, lines)| lines.chunks(events).map(move |c| (cpu, c)));
    chunks.map(|(cpu, lines)| message().message(1, &make(*cpu, lines))).collect()
}

pub fn plain(cpu: u64, lines: &[&Line]) -> Message {
    lines.iter().fold(message().number(1, cpu), |bundle, line| bundle.message(2, &line.event()))
}

/// Switches and wakeups as columns, the rest as messages.
pub fn compact(cpu: u64, lines: &[&Line]) -> Message {
    let (mut columns, mut names) = (vec![Vec::new(); 13], Vec::<Vec<u8>>::new());
    let (mut switch_ns, mut waking_ns) = (0, 0);
    let mut name_of = |name: &[u8]| {
        let known = names.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            names.push(name.to_vec());
            names.len() - 1
        }) as u64
    };
    let mut bundle = message().number(1, cpu);
    for line in lines {
        match line.name.as_str() {
            "sched_switch" => {
                columns[1].push(line.time_ns - switch_ns);
                switch_ns = line.time_ns;
                columns[2].push(line.state());
                columns[3].push(line.number("next_pid="));
                columns[4].push(line.number("next_prio="));
                columns[6].push(name_of(line.text("next_comm=", " next_pid=")));
            }
            "sched_waking" => {
                columns[7].push(line.time_ns - waking_ns);
                waking_ns = line.time_ns;
                columns[8].push(line.number("pid="));
                columns[9].push(0);
                columns[10].push(line.number("prio="));
                columns[11].push(name_of(line.text("comm=", " pid=")));
            }
            _ => bundle = bundle.message(2, &line.event()),
        }
    }
    let table = names.iter().fold(message(), |table, name| table.bytes(5, name));
    let compact = (1..13)
        .filter(|field| !columns[*field as usize].is_empty())
        .fold(table, |compact, field| compact.packed(field, &columns[field as usize]));
    bundle.message(4, &compact)
}

pub fn trace(packets: &[Message]) -> Vec<u8> {
    packets.iter().fold(message(), |trace, packet| trace.message(1, packet)).0
}
