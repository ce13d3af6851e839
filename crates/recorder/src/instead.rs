//! A `perf record` command that records the same events without BPF.

use crate::error::Error;
use crate::pods;
use crate::request::{Request, Target};
use std::path::Path;

const SCHEDULER: [&str; 5] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup_new",
    "sched_process_fork",
    "sched_stat_runtime",
];
const SOCKETS: [&str; 4] =
    ["sock_send_length", "sock_recv_length", "sk_data_ready", "inet_sock_set_state"];
/// The kernel's folders of events, where they are mounted and readable.
const EVENTS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// The command, ready to be pasted, and the command that replays its file.
pub(crate) fn perf_record(request: &Request) -> String {
    let release = rustix::system::uname();
    line(request, has_sockets(&release.release().to_string_lossy()))
}

fn line(request: &Request, has_sockets: bool) -> String {
    let names = |system: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("{system}:{name}")).collect();
        names.join(",")
    };
    let mut events = format!("-e {}", names("sched", &SCHEDULER));
    if request.sockets && has_sockets {
        events = format!("{events} -e {}", names("sock", &SOCKETS));
    }
    if request.calls {
        events += " -e raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    }
    let seconds = request.time.map_or(10, |time| time.as_secs().max(1));
    let (command, group) = match &request.what {
        Target::Command(words) => {
            let words: Vec<String> = words.iter().map(|w| quoted(&w.to_string_lossy())).collect();
            (words.join(" "), String::new())
        }
        Target::Group(path) => {
            (sleep(seconds), format!(" --group {}", quoted(&format!("cgroup:{path}"))))
        }
        Target::Pod(pod) => {
            let path = pods::find(pod).map_or_else(|_| format!("*pod{pod}*"), |group| group.path);
            (sleep(seconds), format!(" --group {}", quoted(&format!("cgroup:{path}"))))
        }
        Target::Process(pid) => (sleep(seconds), format!(" --group pid:{pid}")),
        Target::All => (sleep(seconds), String::new()),
    };
    format!(
        "perf record -a --all-cgroups -m 8M {events} --exclude-perf -o perf.data -- {command}\n    \
         cpumax replay perf.data{group}"
    )
}

impl Error {
    /// BPF cannot be used; adds the commands that record without it.
    pub(crate) fn no_bpf(why: impl Into<String>, request: &Request) -> Error {
        Error::NoBpf { why: why.into(), instead: perf_record(request) }
    }
}

fn sleep(seconds: u64) -> String {
    format!("sleep {seconds}")
}

/// Quotes a word for a shell, if needed.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether the kernel has the socket events: by its list of events, else by its version (6.3).
fn has_sockets(release: &str) -> bool {
    if let Some(events) = EVENTS.iter().map(Path::new).find(|events| events.join("sched").is_dir())
    {
        return events.join("sock/sock_send_length").is_dir();
    }
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 3),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn request(what: Target) -> Request {
        Request { time: Some(Duration::from_secs(5)), ..Request::new(what, "web.cpumax".into()) }
    }

    #[test]
    fn the_line_can_be_pasted() {
        let group = line(&request(Target::Group("/a b/it's".to_owned())), true);
        assert!(group.contains(" -e sock:sock_send_length,"), "{group}");
        assert!(group.contains(" -- sleep 5\n"), "{group}");
        assert!(group.ends_with("--group 'cgroup:/a b/it'\\''s'"), "{group}");
        let words = ["sh", "-c", "echo $HOME"].map(Into::into).to_vec();
        let command = line(&Request { calls: true, ..request(Target::Command(words)) }, false);
        assert!(command.contains("raw_syscalls:sys_exit --exclude-perf"), "{command}");
        assert!(command.contains(" -- sh -c 'echo $HOME'\n"), "{command}");
        assert!(!command.contains("sock:"), "{command}");
    }
}
