//! Writes records into a file: activity of each CPU, threads, groups, and the machine.
//!
//! All threads that are not recorded appear as one thread for each CPU, `others`. It runs while the
//! CPU is busy and no recorded thread runs.

use super::bundle::{AtSocket, Bundle, Next, OURS};
use super::deflate::Deflate;
use super::raw::{
    CHARGED, HARDIRQ, KTHREAD, Kind, NEXT_OTHER, PREV_OTHER, Record, SOFTIRQ, Thread, until_nul,
};
use super::wire::{bytes, number};
use cpumax_recording::about::About;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};

/// Id of the thread `others` of CPU 0, beyond all ids of the kernel.
const OTHERS_TID: i32 = 0x4000_0000;
/// A bundle of this size is written, bytes.
const BUNDLE_SIZE: usize = 1 << 16;
/// Most known threads or groups; beyond that threads are forgotten and described again.
const KNOWN_MAX: usize = 1 << 18;
/// Most known sockets; beyond that the oldest are forgotten and get new numbers when used again.
const SOCKETS_MAX: usize = 1 << 18;
const CPUS_MAX: usize = 4096;
/// Size of tables of recent threads, indexed by the lowest bits of their ids.
const RECENT: usize = 1 << 12;

/// Values in the kernel's tracepoints.
const STATE_SLEEPING: u32 = 1;
const STATE_PREEMPTED: u32 = 0x100;
const TCP_CLOSE: i64 = 7;
const TRACE_HARDIRQ: u64 = 0x08;
const TRACE_SOFTIRQ: u64 = 0x10;

/// Field numbers in Perfetto's `FtraceEvent`.
const WAKEUP_NEW: u32 = 114;
const RENAME: u32 = 236;
const FORK: u32 = 239;
const SYS_ENTER: u32 = 329;
const SYS_EXIT: u32 = 330;
/// Field numbers in Perfetto's `TracePacket`.
const PROCESS_TREE: u32 = 2;
const SYSTEM_INFO: u32 = 45;
const COMPRESSED_PACKETS: u32 = 50;

/// Writes records into a file.
pub(crate) struct Writer<W> {
    to: W,
    /// Packets not written yet.
    packets: Vec<u8>,
    deflate: Deflate,
    cpus: Vec<Cpu>,
    recent: Vec<i32>,
    /// CPU time of threads when they last left a CPU, ns, indexed as `recent`.
    left: Vec<(i32, u64)>,
    threads: HashMap<i32, i32>,
    processes: HashSet<i32>,
    /// Content of the next process tree.
    tree: Vec<u8>,
    groups: HashMap<u64, Group>,
    new_groups: Vec<u8>,
    groups_written: u32,
    sockets: Sockets,
    pub written_bytes: u64,
    pub events: u64,
    pub lost: u64,
}

#[derive(Default)]
struct Cpu {
    bundle: Bundle,
    /// The running thread in the file.
    current: Option<i32>,
    others_sleep: bool,
    /// Caller and number of the last entered system call.
    call: (i32, u64),
}

/// Numbers of sockets by their cookies, which the kernel uses once. Recently used ones are in
/// `numbers`, older ones in `before`; these are forgotten when there are too many.
#[derive(Default)]
struct Sockets {
    numbers: HashMap<u64, u32>,
    before: HashMap<u64, u32>,
    next: u32,
    forgotten: u64,
}

impl Sockets {
    fn number(&mut self, cookie: u64) -> u32 {
        if let Some(number) = self.numbers.get(&cookie) {
            return *number;
        }
        let number = self.before.remove(&cookie).unwrap_or_else(|| {
            self.next = self.next.wrapping_add(1);
            self.next
        });
        if self.numbers.len() >= SOCKETS_MAX / 2 {
            self.forgotten += self.before.len() as u64;
            self.before = std::mem::take(&mut self.numbers);
        }
        self.numbers.insert(cookie, number);
        number
    }

    fn forget(&mut self, cookie: u64) {
        self.numbers.remove(&cookie);
        self.before.remove(&cookie);
    }
}

struct Group {
    parent: u64,
    name: String,
    /// Its number in the file, once it is written.
    number: Option<u32>,
}

fn others(cpu: u16) -> i32 {
    OTHERS_TID + i32::from(cpu)
}

fn others_name() -> [u8; 16] {
    *b"others\0\0\0\0\0\0\0\0\0\0"
}

impl<W: Write> Writer<W> {
    pub fn new(to: W) -> Writer<W> {
        Writer {
            to,
            packets: Vec::new(),
            deflate: Deflate::new(),
            cpus: Vec::new(),
            recent: vec![-1; RECENT],
            left: vec![(-1, 0); RECENT],
            threads: HashMap::new(),
            processes: HashSet::new(),
            tree: Vec::new(),
            groups: HashMap::new(),
            new_groups: Vec::new(),
            groups_written: 0,
            sockets: Sockets::default(),
            written_bytes: 0,
            events: 0,
            lost: 0,
        }
    }

    /// Number of forgotten sockets, which may have got new numbers.
    pub fn forgotten_sockets(&self) -> u64 {
        self.sockets.forgotten
    }

    /// Writes the description of the machine for the Perfetto UI.
    pub fn machine(&mut self, about: &About) {
        let mut utsname = Vec::new();
        bytes(&mut utsname, 1, b"Linux");
        bytes(&mut utsname, 2, about.version.as_bytes());
        bytes(&mut utsname, 3, about.release.as_bytes());
        bytes(&mut utsname, 4, about.arch.as_bytes());
        let mut system = Vec::new();
        bytes(&mut system, 1, &utsname);
        number(&mut system, 8, cpus_in(&about.online));
        self.packet(SYSTEM_INFO, &system);
    }

    /// Writes the file's description of itself: field 1 at the begin, 3 at the end.
    pub fn describe(&mut self, field: u32, what: &impl Serialize) -> io::Result<()> {
        let mut described = Vec::new();
        bytes(&mut described, field, &serde_json::to_vec(what)?);
        // Uncompressed, so that any reader can tell what the file is.
        self.compress_packets()?;
        self.packet(OURS, &described);
        self.write_packets()
    }

    /// Appends a packet with one field.
    fn packet(&mut self, field: u32, content: &[u8]) {
        let mut packet = Vec::with_capacity(content.len() + 8);
        bytes(&mut packet, field, content);
        bytes(&mut self.packets, 1, &packet);
    }

    /// Accepts a record, which is written later with others.
    pub fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        let cpu = usize::from(record.cpu);
        if cpu >= CPUS_MAX {
            return Ok(());
        }
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, Cpu::default);
        }
        if record.lost > 0 {
            self.lost += u64::from(record.lost);
            self.close(cpu)?;
            self.cpus[cpu].bundle.lost(record.lost.into());
            self.cpus[cpu].current = None;
        }
        self.events += 1;
        match record.kind {
            Kind::Switch { charged_ns, sum_ns, next } => {
                let charged_ns = self.charged(record, charged_ns, sum_ns);
                self.switch(record, charged_ns, &next);
            }
            Kind::Waking(thread) => self.waking(record, &thread),
            Kind::New(thread) => {
                let tid = self.running(record);
                self.plain(record, tid, WAKEUP_NEW, |to| {
                    bytes(to, 1, until_nul(&thread.comm));
                    number(to, 2, thread.tid as u64);
                    number(to, 3, thread.prio as u64);
                });
            }
            Kind::Exec(thread) => {
                let tid = self.running(record);
                self.plain(record, tid, RENAME, |to| {
                    number(to, 1, thread.tid as u64);
                    bytes(to, 3, until_nul(&thread.comm));
                });
            }
            Kind::Fork(child) => self.fork(record, &child),
            Kind::Beat(thread) => self.beat(record, &thread),
            Kind::Group { id, parent, name } => self.group(id, parent, name),
            Kind::Enter { number, args } => self.enter(record, number, &args),
            Kind::Leave { result } => {
                let (tid, (caller, call)) = (self.running(record), self.cpus[cpu].call);
                let call = if caller == record.tid { call } else { u64::MAX };
                self.plain(record, tid, SYS_EXIT, |to| {
                    number(to, 1, call);
                    number(to, 2, result as u64);
                });
            }
            Kind::Sent { socket, result } => {
                self.socket_event(record, AtSocket::Sent, socket, result);
            }
            Kind::Received { socket, result } => {
                self.socket_event(record, AtSocket::Received, socket, result);
            }
            Kind::Ready { socket } => self.socket_event(record, AtSocket::Ready, socket, 0),
            Kind::State { socket, from, to } => {
                self.socket_event(record, AtSocket::State, socket, i64::from(from << 8 | to));
            }
        }
        if self.cpus[cpu].bundle.size() >= BUNDLE_SIZE {
            self.close(cpu)?;
        }
        Ok(())
    }

    /// Writes everything accepted so far.
    pub fn flush(&mut self) -> io::Result<()> {
        for cpu in 0..self.cpus.len() {
            self.close(cpu)?;
        }
        self.compress_packets()?;
        self.to.flush()
    }

    /// Writes the pending packets, compressed.
    fn compress_packets(&mut self) -> io::Result<()> {
        if self.packets.is_empty() {
            return Ok(());
        }
        let packed = self.deflate.packed(&self.packets)?;
        self.packets.clear();
        let mut packet = Vec::with_capacity(packed.len() + 8);
        bytes(&mut packet, COMPRESSED_PACKETS, packed);
        bytes(&mut self.packets, 1, &packet);
        self.write_packets()
    }

    fn write_packets(&mut self) -> io::Result<()> {
        self.to.write_all(&self.packets)?;
        self.written_bytes += self.packets.len() as u64;
        self.packets.clear();
        Ok(())
    }

    /// Ends the bundle of a CPU, after the threads and groups that it refers to.
    fn close(&mut self, cpu: usize) -> io::Result<()> {
        if !self.tree.is_empty() {
            let tree = std::mem::take(&mut self.tree);
            self.packet(PROCESS_TREE, &tree);
        }
        if !self.new_groups.is_empty() {
            let groups = std::mem::take(&mut self.new_groups);
            self.packet(OURS, &groups);
        }
        self.cpus[cpu].bundle.write(cpu as u16, &mut self.packets);
        if self.packets.len() >= BUNDLE_SIZE { self.compress_packets() } else { Ok(()) }
    }

    fn plain(
        &mut self,
        record: &Record<'_>,
        tid: i32,
        field: u32,
        content: impl FnOnce(&mut Vec<u8>),
    ) {
        self.cpus[usize::from(record.cpu)].bundle.plain(record.time_ns, tid, field, content);
    }

    /// The running thread in the file. If it is unknown, the thread of the record.
    fn running(&mut self, record: &Record<'_>) -> i32 {
        let cpu = &mut self.cpus[usize::from(record.cpu)];
        if let Some(tid) = cpu.current {
            return tid;
        }
        cpu.current = Some(record.tid);
        cpu.bundle.beat(record.time_ns, record.tid);
        record.tid
    }

    /// Makes `tid` the running thread from this record on. If the file has another one, a switch
    /// was missed, and a beat tells the reader.
    fn runs(&mut self, record: &Record<'_>, tid: i32) {
        let cpu = &mut self.cpus[usize::from(record.cpu)];
        if cpu.current != Some(tid) {
            cpu.bundle.beat(record.time_ns, tid);
        }
        cpu.current = Some(tid);
    }

    /// CPU time of the leaving thread since it came, ns; if that was missed, since it left before.
    fn charged(&mut self, record: &Record<'_>, charged_ns: u64, sum_ns: u64) -> Option<u64> {
        let left = &mut self.left[record.tid as usize % RECENT];
        let (tid, before_ns) = std::mem::replace(left, (record.tid, sum_ns));
        if record.has(PREV_OTHER) {
            return None;
        }
        let since_left = || (tid == record.tid).then(|| sum_ns.saturating_sub(before_ns));
        if record.has(CHARGED) { Some(charged_ns) } else { since_left() }
    }

    fn switch(&mut self, record: &Record<'_>, charged_ns: Option<u64>, next: &Thread) {
        let (from_others, to_others) = (record.has(PREV_OTHER), record.has(NEXT_OTHER));
        let others_tid = others(record.cpu);
        self.runs(record, if from_others { others_tid } else { record.tid });
        let next = if to_others {
            self.name_others(record.cpu);
            Next { tid: others_tid, prio: 120, comm: others_name(), group: 0 }
        } else {
            self.describe_thread(next, record.has(KTHREAD));
            let group = self.group_number(next.group);
            Next { tid: next.tid, prio: next.prio, comm: next.comm, group }
        };
        let cpu = &mut self.cpus[usize::from(record.cpu)];
        let mut state = match record.kind {
            Kind::Switch { next, .. } => next.state,
            _ => STATE_PREEMPTED,
        };
        if from_others {
            let goes_on = next.tid != 0 && matches!(state, 0 | STATE_PREEMPTED);
            state = if goes_on { STATE_PREEMPTED } else { STATE_SLEEPING };
            cpu.others_sleep = !goes_on;
        }
        if to_others && std::mem::take(&mut cpu.others_sleep) {
            let name = others_name();
            cpu.bundle.waking(record.time_ns, others_tid, 120, &name, TRACE_HARDIRQ);
        }
        cpu.bundle.switch(record.time_ns, state, charged_ns, &next);
        cpu.current = Some(next.tid);
    }

    fn waking(&mut self, record: &Record<'_>, thread: &Thread) {
        self.running(record);
        let hard = if record.has(HARDIRQ) { TRACE_HARDIRQ } else { 0 };
        let flags = hard | if record.has(SOFTIRQ) { TRACE_SOFTIRQ } else { 0 };
        self.describe_thread(thread, record.has(KTHREAD));
        let cpu = &mut self.cpus[usize::from(record.cpu)];
        cpu.bundle.waking(record.time_ns, thread.tid, thread.prio, &thread.comm, flags);
    }

    fn beat(&mut self, record: &Record<'_>, thread: &Thread) {
        let is_other = record.has(NEXT_OTHER);
        let tid = if is_other { others(record.cpu) } else { thread.tid };
        if is_other {
            self.name_others(record.cpu);
        } else {
            self.describe_thread(thread, false);
        }
        self.runs(record, tid);
    }

    fn fork(&mut self, record: &Record<'_>, child: &Thread) {
        let tid = self.running(record);
        if child.pid == child.tid {
            self.threads.insert(child.tid, child.pid);
            self.processes.insert(child.pid);
            self.tell_process(child.pid, Some(record.pid), child.comm, record.has(KTHREAD));
        } else {
            self.describe_thread(child, record.has(KTHREAD));
        }
        self.plain(record, tid, FORK, |to| {
            number(to, 2, tid as u64);
            bytes(to, 3, until_nul(&child.comm));
            number(to, 4, child.tid as u64);
        });
    }

    fn enter(&mut self, record: &Record<'_>, call: u64, args: &[u64; 5]) {
        let tid = self.running(record);
        self.cpus[usize::from(record.cpu)].call = (record.tid, call);
        let count = args.iter().rposition(|arg| *arg != 0).map_or(0, |last| last + 1);
        self.plain(record, tid, SYS_ENTER, |to| {
            number(to, 1, call);
            args[..count].iter().for_each(|arg| number(to, 2, *arg));
        });
    }

    fn socket_event(&mut self, record: &Record<'_>, kind: AtSocket, cookie: u64, value: i64) {
        let tid = self.running(record);
        let socket = self.sockets.number(cookie);
        if let AtSocket::State = kind
            && value & 0xff == TCP_CLOSE
        {
            self.sockets.forget(cookie);
        }
        let bundle = &mut self.cpus[usize::from(record.cpu)].bundle;
        bundle.socket(record.time_ns, tid, kind, socket, value);
    }

    fn group(&mut self, id: u64, parent: u64, name: &[u8]) {
        if self.groups.len() >= KNOWN_MAX {
            return;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        self.groups.entry(id).or_insert(Group { parent, name, number: None });
    }

    /// The group's number in the file, 0 if unknown; describes a new group.
    fn group_number(&mut self, id: u64) -> u32 {
        match self.groups.get(&id) {
            None => return 0,
            Some(Group { number: Some(number), .. }) => return *number,
            Some(_) => {}
        }
        let path = self.path(id);
        self.groups_written += 1;
        let group_number = self.groups_written;
        if let Some(group) = self.groups.get_mut(&id) {
            group.number = Some(group_number);
        }
        let mut group = Vec::new();
        number(&mut group, 1, u64::from(group_number));
        bytes(&mut group, 2, path.as_bytes());
        bytes(&mut self.new_groups, 2, &group);
        group_number
    }

    fn path(&self, id: u64) -> String {
        let mut names = Vec::new();
        let mut at = id;
        while let Some(group) = self.groups.get(&at)
            && group.parent != 0
            && names.len() < 64
        {
            names.push(group.name.as_str());
            at = group.parent;
        }
        names.iter().rev().fold(String::new(), |path, name| path + "/" + name)
            + if names.is_empty() { "/" } else { "" }
    }

    /// Describes a thread and its process, if they are new.
    fn describe_thread(&mut self, thread: &Thread, kthread: bool) {
        if thread.tid <= 0 {
            return;
        }
        let recent = &mut self.recent[thread.tid as usize % RECENT];
        if *recent == thread.tid || self.threads.get(&thread.tid) == Some(&thread.pid) {
            *recent = thread.tid;
            return;
        }
        *recent = thread.tid;
        if self.threads.len() >= KNOWN_MAX {
            self.threads.clear();
            self.processes.clear();
        }
        self.threads.insert(thread.tid, thread.pid);
        if thread.pid > 0 && self.processes.insert(thread.pid) {
            let (parent, comm) = parent_and_name(thread.pid).unzip();
            let comm = comm.unwrap_or(thread.comm);
            self.tell_process(thread.pid, parent, comm, kthread);
        }
        if thread.tid != thread.pid {
            let mut message = Vec::new();
            number(&mut message, 1, thread.tid as u64);
            bytes(&mut message, 2, String::from_utf8_lossy(until_nul(&thread.comm)).as_bytes());
            number(&mut message, 3, thread.pid as u64);
            bytes(&mut self.tree, 2, &message);
        }
    }

    fn tell_process(&mut self, pid: i32, parent: Option<i32>, comm: [u8; 16], kthread: bool) {
        let mut message = Vec::new();
        number(&mut message, 1, pid as u64);
        if let Some(parent) = parent {
            number(&mut message, 2, parent as u64);
        }
        bytes(&mut message, 3, String::from_utf8_lossy(until_nul(&comm)).as_bytes());
        if kthread {
            number(&mut message, 8, 1);
        }
        number(&mut message, 9, 1);
        bytes(&mut self.tree, 1, &message);
    }

    fn name_others(&mut self, cpu: u16) {
        let tid = others(cpu);
        if self.processes.insert(tid) {
            self.tell_process(tid, Some(0), others_name(), false);
        }
    }
}

/// Number of CPUs in a list of ranges.
fn cpus_in(ranges: &str) -> u64 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    ranges.split(',').filter_map(count).sum()
}

/// Parent and name of a process from `/proc`, which started before the recording.
pub(crate) fn parent_and_name(pid: i32) -> Option<(i32, [u8; 16])> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (from, to) =
        (text.iter().position(|b| *b == b'(')?, text.iter().rposition(|b| *b == b')')?);
    let mut comm = [0; 16];
    let name = text.get(from + 1..to)?;
    let length = name.len().min(15);
    comm[..length].copy_from_slice(&name[..length]);
    let rest = std::str::from_utf8(text.get(to + 1..)?).ok()?;
    Some((rest.split_ascii_whitespace().nth(1)?.parse().ok()?, comm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_keep_their_numbers_until_they_close_or_too_many_are_newer() {
        let mut sockets = Sockets::default();
        assert_eq!((sockets.number(100), sockets.number(200), sockets.number(100)), (1, 2, 1));
        sockets.forget(200);
        assert_eq!(sockets.number(200), 3);
        for address in 0..4 * SOCKETS_MAX as u64 {
            sockets.number(1000 + address);
            // A socket in use is not old.
            assert_eq!(sockets.number(100), 1);
            assert!(sockets.numbers.len() + sockets.before.len() <= SOCKETS_MAX);
        }
        assert!(sockets.forgotten > SOCKETS_MAX as u64);
        assert!(sockets.number(200) > 3);
    }
}
