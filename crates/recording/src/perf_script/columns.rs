//! Why a line is no event: the column it lacks, or the kind of text it is.

use super::head::parse_time;
use crate::input::looks_like_json;

/// The fault of a line that cannot be read, for a message: `is ...`.
pub(super) fn fault(line: &str) -> String {
    let text = line.trim_end();
    if let Some(form) = known_text(text) {
        return form.to_owned();
    }
    if looks_like_json(text.as_bytes()) {
        return "is JSON, which is not read".to_owned();
    }
    let missing = missing(text);
    if missing.is_empty() {
        return "is no event".to_owned();
    }
    format!("is an event without {}", missing.join(" and "))
}

/// A message on texts of other tools, or of perf in another format; `None` if it is none of them.
fn known_text(text: &str) -> Option<&'static str> {
    let words: Vec<&str> = text.split_whitespace().take(64).collect();
    if words.len() >= 4 && words[words.len() - 2] == "type:" {
        return Some(
            "is ftrace's text in numbers; print it with names (`echo 0` into options/raw, \
             options/hex and options/bin)",
        );
    }
    let has = |words: &[&str]| words.iter().all(|word| text.contains(word));
    if text.starts_with("Samples ") && text.contains("callchains")
        || has(&["task name", "wait time"])
        || has(&["Task ", "| Switches |"])
    {
        return Some(
            "is a table of `perf sched timehist` or `latency`, which leaves out who woke whom; \
             feed perf.data itself",
        );
    }
    if text.contains("prev_comm=") && words.iter().any(|word| is_name(word, "sched_wak")) {
        return Some(
            "is a count of a group of events (`:S`), printed as if it were one; record them \
             without the braces",
        );
    }
    if text.starts_with("Attaching ") && text.contains(" probe") {
        return Some("is what bpftrace prints; record with `perf sched record` instead");
    }
    None
}

/// Whether there is a number in brackets.
fn has_cpu(text: &str) -> bool {
    text.match_indices('[').any(|(at, _)| {
        let cpu = text[at + 1..].split(']').next().unwrap_or_default();
        !cpu.is_empty() && cpu.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The columns that a line lacks: thread id, CPU, time, name, content. Empty if it has neither the
/// name nor the content of an event, or lacks nothing.
fn missing(text: &str) -> Vec<&'static str> {
    const FIELDS: [&str; 4] = ["prev_comm=", "comm=", "NR ", "vec="];
    let words: Vec<&str> = text.split_whitespace().take(64).collect();
    let name_at = words.iter().position(|word| NAMES.iter().any(|name| is_name(word, name)));
    let has_content = FIELDS.iter().any(|field| text.contains(field)) || text.contains(" ==> ");
    if name_at.is_none() && !has_content {
        return Vec::new();
    }
    let time_at = words.iter().position(|word| parse_time(word).is_some());
    let head = &words[..time_at.or(name_at).unwrap_or(0)];
    let is_id = |word: &&str| {
        let id = word.rsplit(['-', '/']).next().unwrap_or_default();
        !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())
    };
    let checks = [
        (head.iter().any(is_id), "its thread's id"),
        (has_cpu(text), "its CPU"),
        (time_at.is_some(), "its time"),
        (name_at.is_some(), "its name"),
        (has_content, "its content"),
    ];
    checks.iter().filter(|(there, _)| !there).map(|(_, what)| *what).collect()
}

/// Beginnings of event names.
const NAMES: [&str; 4] = ["sched_", "sys_enter", "sys_exit", "softirq_"];

/// Whether the word is an event's name with a colon behind it that, without its subsystem, starts
/// with `begins`: `sched:sched_switch:` and the kernel's `sched_switch:` both do with `sched_sw`.
fn is_name(word: &str, begins: &str) -> bool {
    let name = word.strip_suffix(':').and_then(|name| name.rsplit(':').next());
    name.is_some_and(|name| name.starts_with(begins))
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn names_missing_columns_or_the_kind_of_text() {
        let switch = "prev_comm=a prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=b \
                      next_pid=8 next_prio=120";
        for (line, says) in [
            (format!("swapper [000] 1.5: sched:sched_switch: {switch}"), "its thread's id"),
            (format!("a 7 1.5: sched:sched_switch: {switch}"), "its CPU"),
            (format!("a 7 [000] sched:sched_switch: {switch}"), "its time"),
            (format!("a 7 [000] 1.5: {switch}"), "its name"),
            ("a 7 [000] 1.5: sched:sched_switch:".to_owned(), "its content"),
            (format!("sched:sched_switch: {switch}"), "its thread's id and its CPU and its time"),
            (format!("a 7 [000] 1.5: sched:sched_waking: {switch}"), "a group of events (`:S`)"),
            ("19056 0 26574846010186 type: 442".to_owned(), "in numbers"),
            ("Samples of sched_switch event do not have callchains.".to_owned(), "timehist"),
            ("Attaching 3 probes...".to_owned(), "bpftrace"),
            ("{\"traceEvents\":[".to_owned(), "JSON"),
            ("GET / HTTP/1.1".to_owned(), "is no event"),
            ("[[channel]]".to_owned(), "is no event"),
        ] {
            let fault = fault(&line);
            assert!(fault.contains(says), "{line}: {fault}");
        }
        assert_eq!(
            fault(&format!("a 7 1.5: sched_switch: {switch}")),
            "is an event without its CPU"
        );
    }
}
