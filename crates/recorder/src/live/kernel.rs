//! Loads the BPF program into the kernel and reads its rings. The program is unloaded when the
//! value is dropped or the process ends.

use super::calibrate::{Bench, Cost, Round};
use super::raw::{Kind, Record};
use super::refused::Refused;
use crate::error::Error;
use crate::groups::Group;
use crate::request::Buffer;
use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, RingBuf};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, PerfEvent};
use aya::util::online_cpus;
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use aya_obj::btf::BtfKind;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::thread::sleep;
use std::time::Duration;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/record.bpf.o"));

/// Placeholder in the program for the address of a kernel variable (`context()` there).
const VARIABLE: u32 = 0x7072_6565;
/// `BPF_LD | BPF_IMM | BPF_DW`, and the marker for an id of a variable in the kernel's BTF.
const LOAD_64: u8 = 0x18;
const PSEUDO_BTF_ID: u8 = 3;
/// Offset of `preempt_count` in `pcpu_hot`, which contains it in Linux 6.2 to 6.14.
const IN_PCPU_HOT: u32 = 8;

/// Interrupts that have tracepoints. A program is loaded for one tracepoint, so each has its own.
const INTERRUPTS: [(&str, &str); 6] = [
    ("on_hard_begin", "irq_handler_entry"),
    ("on_hard_end", "irq_handler_exit"),
    ("on_timer_begin", "hrtimer_expire_entry"),
    ("on_timer_end", "hrtimer_expire_exit"),
    ("on_soft_begin", "softirq_entry"),
    ("on_soft_end", "softirq_exit"),
];

/// A sleep of this length makes the thread leave its CPU.
const A_SWITCH: Duration = Duration::from_micros(100);
const BEATS_PER_SECOND: u64 = 10;
/// Most rings; with more CPUs, some share a ring.
const RINGS_MAX: usize = 512;

/// Smallest and largest size of a ring, bytes.
const RING_MIN: u32 = 1 << 16;
const RING_MAX: u32 = 1 << 26;

/// `enum mode` of the program.
const MODE_ALL: u32 = 0;
const MODE_GROUP: u32 = 1;
const MODE_PROCESS: u32 = 2;
/// Value in the table of chosen threads; only the key counts.
const IS_CHOSEN: u32 = 1;

/// Threads to record, in the form of the BPF program.
#[derive(Debug)]
pub(crate) enum Chosen {
    All,
    /// A group and all groups below it.
    Group(Box<Followed>),
    /// Existing threads, and all that they start.
    Threads(Vec<i32>),
}

/// Settings with which the program is loaded.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub chosen: Chosen,
    /// Groups are those of the controller `cpu` in cgroup v1.
    pub is_version_1: bool,
    pub calls: bool,
    pub sockets: bool,
    /// Size of all rings together, bytes.
    pub memory: usize,
}

/// Copy of `struct cpu` of the program.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Cpu {
    sum_ns: u64,
    runs: u64,
    group: u64,
    lost: u64,
    no_room: u64,
    records: u64,
    cost_ns: u64,
    cost_of: u64,
    hard: u32,
    soft: u32,
    sent_ns: u64,
    sent_tid: i32,
    unused: u32,
}

// SAFETY: numbers only, and no padding between them.
unsafe impl Pod for Cpu {}

const GROUP_PATH_MAX: usize = 512;

/// Copy of `struct followed` of the program.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Followed {
    id: u64,
    made_ns: u64,
    hierarchy: i32,
    length: i32,
    path: [u8; GROUP_PATH_MAX],
    made: [u8; GROUP_PATH_MAX],
}

// SAFETY: numbers only, and no padding between them.
unsafe impl Pod for Followed {}

impl Followed {
    /// # Errors
    /// The group does not exist any more.
    pub fn new(group: &Group) -> Result<Followed, Error> {
        let (mut path, made) = ([0; GROUP_PATH_MAX], [0; GROUP_PATH_MAX]);
        let (mut hierarchy, mut length) = (0, 0);
        if let Some((text, number)) = group.in_kernel()
            && text.len() < GROUP_PATH_MAX
        {
            path[..text.len()].copy_from_slice(text.as_bytes());
            (hierarchy, length) = (number, text.len() as i32 + 1);
        }
        Ok(Followed { id: group.id()?, made_ns: 0, hierarchy, length, path, made })
    }
}

/// Sums over all CPUs so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub lost: u64,
    pub records: u64,
    /// Threads that are not recorded, as the table of chosen threads is full.
    pub forgotten: u64,
    /// Average time to write a record, measured in the program, ns; 0: unknown.
    pub handed_ns: u64,
    /// CPU time that a record costs its thread, ns: the larger of `handed_ns` and the calibration.
    pub whole_ns: u64,
}

pub(crate) struct Program {
    ebpf: Ebpf,
    rings: Vec<RingBuf<MapData>>,
    ring_bytes: u64,
    cpus: Array<MapData, Cpu>,
    followed: Array<MapData, Followed>,
    /// Lost records by CPU, as far as records have reported them.
    reported_lost: Vec<u32>,
    /// Records lost before the recording began, by CPU.
    lost_before: BTreeMap<u32, u64>,
    /// Group records from the calibration, which the recording needs too.
    groups: Vec<Vec<u8>>,
    /// Cost of an event.
    pub cost: Cost,
    pub has_sockets: bool,
}

impl Program {
    pub fn load(wanted: &Wanted) -> Result<Program, Refused> {
        let btf = Btf::from_sys_fs()
            .map_err(|_| Refused::because("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"))?;
        let bench = Bench::begin();
        let before = bench.as_ref().map(|bench| bench.rounds(wanted.calls, &mut || (0, 0)));
        // Features of the kernel are found by trying: a program without them loads everywhere.
        let mut result = Err(Refused::because("there is no BPF"));
        for (has_prev_state, has_variable) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            result = Program::load_with(wanted, &btf, has_prev_state, has_variable);
            if result.is_ok() {
                break;
            }
        }
        let mut program = result?;
        if let (Some(bench), Some(before)) = (bench, before) {
            program.calibrate(wanted, &bench, &before)?;
        }
        Ok(program)
    }

    fn load_with(
        wanted: &Wanted,
        btf: &Btf,
        has_prev_state: bool,
        has_variable: bool,
    ) -> Result<Program, Refused> {
        let variable = preempt_count(btf).filter(|_| has_variable);
        let object = with_variable(OBJECT, variable);
        let preempt_count_at = variable.map_or(0, |(_, at)| at);
        let possible = possible_cpus()?;
        let mode = match &wanted.chosen {
            Chosen::All => MODE_ALL,
            Chosen::Group(_) => MODE_GROUP,
            Chosen::Threads(_) => MODE_PROCESS,
        };
        let is_version_1 = u32::from(wanted.is_version_1);
        let has_prev_state = u32::from(has_prev_state);
        let rings = possible.min(RINGS_MAX);
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(btf))
            .override_global("mode", &mode, true)
            .override_global("is_version_1", &is_version_1, true)
            .override_global("preempt_count_at", &preempt_count_at, true)
            .override_global("has_prev_state", &has_prev_state, true)
            .map_max_entries("cpus", possible as u32)
            .map_max_entries("rings", possible as u32);
        let mut ebpf = loader.load(&object)?;
        let (rings, ring_bytes) = make_rings(&mut ebpf, possible, rings, wanted.memory)?;
        if let Chosen::Threads(tids) = &wanted.chosen {
            let map = map(&mut ebpf, "chosen")?;
            let mut chosen: HashMap<_, i32, u32> = HashMap::try_from(map)?;
            for tid in tids {
                chosen.insert(tid, IS_CHOSEN, 0)?;
            }
        }
        if wanted.calls {
            tell_arguments(&mut ebpf)?;
        }
        let followed = ebpf.take_map("followed").ok_or_else(|| missing("followed"))?;
        let mut followed: Array<_, Followed> = Array::try_from(followed)?;
        if let Chosen::Group(group) = &wanted.chosen {
            followed.set(0, **group, 0)?;
        }
        let cpus = Array::try_from(ebpf.take_map("cpus").ok_or_else(|| missing("cpus"))?)?;
        let mut program = Program {
            ebpf,
            rings,
            ring_bytes,
            cpus,
            followed,
            reported_lost: vec![0; possible],
            lost_before: BTreeMap::new(),
            groups: Vec::new(),
            cost: Cost::default(),
            has_sockets: false,
        };
        program.attach(wanted, btf, variable.is_none())?;
        Ok(program)
    }

    fn attach(&mut self, wanted: &Wanted, btf: &Btf, counts: bool) -> Result<(), Refused> {
        let always = [
            ("on_fork", "sched_process_fork"),
            ("on_exec", "sched_process_exec"),
            ("on_exit", "sched_process_exit"),
            ("on_switch", "sched_switch"),
            ("on_waking", "sched_waking"),
            ("on_new", "sched_wakeup_new"),
        ];
        let sockets = [
            ("on_sent", "sock_send_length"),
            ("on_received", "sock_recv_length"),
            ("on_ready", "sk_data_ready"),
            ("on_state", "inet_sock_set_state"),
        ];
        let calls = [("on_enter", "sys_enter"), ("on_leave", "sys_exit")];
        self.has_sockets =
            wanted.sockets && sockets.iter().all(|(_, tracepoint)| has_tracepoint(btf, tracepoint));
        // They come first, so that each wakeup is known to be in an interrupt or not.
        let interrupts = INTERRUPTS.iter().filter(|(_, name)| counts && has_tracepoint(btf, name));
        let mut all: Vec<_> = interrupts.copied().collect();
        all.extend(always);
        all.extend(sockets.iter().filter(|_| self.has_sockets));
        all.extend(calls.iter().filter(|_| wanted.calls));
        // If all threads are chosen, no partners are looked for.
        let finds_partners = !matches!(wanted.chosen, Chosen::All);
        let packet = ("on_packet", "netif_rx");
        all.extend([packet].iter().filter(|(_, name)| finds_partners && has_tracepoint(btf, name)));
        let made = ("on_mkdir", "cgroup_mkdir");
        let follows = matches!(wanted.chosen, Chosen::Group(_));
        all.extend([made].iter().filter(|(_, name)| follows && has_tracepoint(btf, name)));
        // Debian's and Ubuntu's kernels want CAP_SYS_ADMIN for it (perf_event_paranoid 3 and 4).
        if self.beat().is_err() {
            all.push(("on_tick", "hrtimer_expire_entry"));
        }
        for (name, tracepoint) in &all {
            let program = self.ebpf.program_mut(name).ok_or_else(|| missing(name))?;
            let program: &mut BtfTracePoint = program.try_into()?;
            program.load(tracepoint, btf)?;
        }
        for (name, _) in &all {
            let program = self.ebpf.program_mut(name).ok_or_else(|| missing(name))?;
            let program: &mut BtfTracePoint = program.try_into()?;
            program.attach()?;
        }
        Ok(())
    }

    /// Looks some times a second at what runs on each CPU.
    fn beat(&mut self) -> Result<(), Refused> {
        let beat = self.ebpf.program_mut("on_beat").ok_or_else(|| missing("on_beat"))?;
        let beat: &mut PerfEvent = beat.try_into()?;
        beat.load()?;
        for cpu in online_cpus().map_err(|(_, error)| error)? {
            let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
            let scope = PerfEventScope::AllProcessesOneCpu { cpu };
            let policy = SamplePolicy::Frequency(BEATS_PER_SECOND);
            beat.attach(clock, scope, policy, false)?;
        }
        Ok(())
    }

    /// Measures the cost of an event. Records of other threads are dropped, except for groups,
    /// which are reported only once.
    fn calibrate(&mut self, wanted: &Wanted, bench: &Bench, before: &Round) -> Result<(), Refused> {
        let tids = bench.tids();
        let mut partners: HashMap<_, i32, u32> =
            HashMap::try_from(self.ebpf.take_map("partners").ok_or_else(|| missing("partners"))?)?;
        for tid in tids {
            partners.insert(tid, IS_CHOSEN, 0)?;
        }
        // A thread's class is looked up when it gets on a CPU.
        sleep(A_SWITCH);
        let mut groups = Vec::new();
        let with = bench.rounds(wanted.calls, &mut || {
            let (mut calls, mut others) = (0, 0);
            let Ok(_) = self.drain_bytes(|bytes, record| -> Result<(), Infallible> {
                match record.kind {
                    Kind::Group { .. } => groups.push(bytes.to_vec()),
                    _ if !tids.contains(&record.tid) => {}
                    Kind::Enter { .. } | Kind::Leave { .. } => calls += 1,
                    _ => others += 1,
                }
                Ok(())
            });
            (calls, others)
        });
        for tid in tids {
            // A thread may have ended.
            let _ = partners.remove(&tid);
        }
        sleep(A_SWITCH);
        let Ok(_) = self.drain_bytes(|bytes, record| -> Result<(), Infallible> {
            if let Kind::Group { .. } = record.kind {
                groups.push(bytes.to_vec());
            }
            Ok(())
        });
        self.cost = with.cost(before);
        self.groups = groups;
        self.lost_before = self.lost_so_far();
        for (reported, (_, lost)) in self.reported_lost.iter_mut().zip(&self.lost_before) {
            *reported = *lost as u32;
        }
        Ok(())
    }

    /// Passes records of all CPUs to `take`, at most one ring's size for each ring, as threads may
    /// write faster than this reads. Returns the bytes in the fullest ring.
    pub fn drain<E>(
        &mut self,
        mut take: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        for group in std::mem::take(&mut self.groups) {
            if let Some(record) = Record::read(&group) {
                take(&Record { lost: 0, ..record })?;
            }
        }
        self.drain_bytes(|_, record| take(record))
    }

    fn drain_bytes<E>(
        &mut self,
        mut take: impl FnMut(&[u8], &Record<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (mut most, room) = (0, self.ring_bytes);
        for ring in &mut self.rings {
            let mut bytes = 0;
            while bytes < room
                && let Some(item) = ring.next()
            {
                bytes += item.len() as u64 + 8;
                if let Some(mut record) = Record::read(&item) {
                    record.lost = lost_since(&mut self.reported_lost, &record);
                    take(&item, &record)?;
                }
            }
            most = most.max(bytes);
        }
        Ok(most)
    }

    /// Size of all rings together, and whether it is bounded below or above the request.
    pub fn buffer(&self) -> Buffer {
        let bytes = self.ring_bytes * self.rings.len() as u64;
        if self.ring_bytes == u64::from(RING_MAX) {
            return Buffer::Most { bytes };
        }
        if self.ring_bytes == u64::from(RING_MIN) { Buffer::Least { bytes } } else { Buffer::Asked }
    }

    /// Size of each ring, bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Removes a thread from the chosen ones, so that its future children are not chosen.
    pub fn forget_thread(&mut self, tid: i32) {
        if let Some(map) = self.ebpf.map_mut("chosen")
            && let Ok(mut chosen) = HashMap::<_, i32, u32>::try_from(map)
        {
            // It may have ended.
            let _ = chosen.remove(&tid);
        }
    }

    /// Id of the chosen group, and when it was made again last, by the clock of the events (0:
    /// never). `None`: no group is chosen.
    pub fn followed(&self) -> Option<(u64, u64)> {
        let Followed { id, made_ns, .. } = self.followed.get(&0, 0).ok()?;
        (id != 0).then_some((id, made_ns))
    }

    /// Unloads the programs; records in the rings can still be read.
    pub fn detach(&mut self) {
        for (_, program) in self.ebpf.programs_mut() {
            // Programs that stay go with the process.
            let _ = match program {
                aya::programs::Program::BtfTracePoint(program) => program.unload(),
                aya::programs::Program::PerfEvent(program) => program.unload(),
                _ => Ok(()),
            };
        }
    }

    /// Lost records of the recording, by CPU.
    pub fn lost(&self) -> BTreeMap<u32, u64> {
        let mut lost = self.lost_so_far();
        for (cpu, lost) in &mut lost {
            *lost -= self.lost_before.get(cpu).copied().unwrap_or(0).min(*lost);
        }
        lost.retain(|_, lost| *lost > 0);
        lost
    }

    fn lost_so_far(&self) -> BTreeMap<u32, u64> {
        let lost = |ix| Some((ix, self.cpus.get(&ix, 0).ok()?.lost));
        (0..self.cpus.len()).filter_map(lost).collect()
    }

    pub fn counters(&self) -> Counters {
        let mut counters = Counters { lost: self.lost().values().sum(), ..Counters::default() };
        let (mut cost_ns, mut cost_of) = (0, 0);
        for ix in 0..self.cpus.len() {
            let Ok(cpu) = self.cpus.get(&ix, 0) else { continue };
            counters.forgotten += cpu.no_room;
            counters.records += cpu.records;
            cost_ns += cpu.cost_ns;
            cost_of += cpu.cost_of;
        }
        counters.handed_ns = cost_ns.checked_div(cost_of).unwrap_or(0);
        // With system calls recorded, other events are few.
        let measured_ns =
            if self.cost.call_ns > 0 { self.cost.call_ns } else { self.cost.other_ns };
        counters.whole_ns = measured_ns.max(counters.handed_ns);
        counters
    }
}

/// Records of the CPU that were lost since the last record. A record from an interrupt may report
/// fewer than the one before it, which counts as 0.
fn lost_since(reported: &mut [u32], record: &Record<'_>) -> u32 {
    let Some(reported) = reported.get_mut(usize::from(record.cpu)) else { return 0 };
    let since = record.lost.wrapping_sub(*reported);
    if since > u32::MAX / 2 {
        return 0;
    }
    *reported = record.lost;
    since
}

fn missing(name: &str) -> Refused {
    Refused::because(&format!("the BPF program has no {name}"))
}

fn map<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Map, Refused> {
    ebpf.map_mut(name).ok_or_else(|| missing(name))
}

fn make_rings(
    ebpf: &mut Ebpf,
    cpus: usize,
    rings: usize,
    memory: usize,
) -> Result<(Vec<RingBuf<MapData>>, u64), Refused> {
    const TYPE_RINGBUF: u32 = 27;
    let size = ring_size(memory / rings.max(1));
    let mut outer: ArrayOfMaps<_, MapData> = ArrayOfMaps::try_from(map(ebpf, "rings")?)?;
    let mut made = Vec::new();
    for ring in 0..rings {
        let inner = aya_obj::Map::new_from_params(TYPE_RINGBUF, 0, 0, size, 0);
        let inner = MapData::create(inner, "ring", None)?;
        for cpu in (ring..cpus).step_by(rings) {
            outer.set(cpu as u32, &inner, 0)?;
        }
        made.push(RingBuf::try_from(Map::RingBuf(inner))?);
    }
    Ok((made, size.into()))
}

/// The largest possible size that is a power of two, not above `bytes` and within the bounds.
fn ring_size(bytes: usize) -> u32 {
    let bytes = bytes.clamp(RING_MIN as usize, RING_MAX as usize);
    1 << bytes.ilog2()
}

/// Tells the program to record the first five arguments of each system call.
fn tell_arguments(ebpf: &mut Ebpf) -> Result<(), Refused> {
    let map = map(ebpf, "telling")?;
    let mut telling: Array<_, u32> = Array::try_from(map)?;
    for call in 0..telling.len() {
        telling.set(call, 0x1f, 0)?;
    }
    Ok(())
}

fn has_tracepoint(btf: &Btf, name: &str) -> bool {
    btf.id_by_type_name_kind(&format!("btf_trace_{name}"), BtfKind::Typedef).is_ok()
}

fn possible_cpus() -> Result<usize, Refused> {
    Ok(aya::util::nr_cpus().map_err(|(_, error)| error)?)
}

/// BTF id of the kernel variable with `preempt_count`, and the offset in it.
fn preempt_count(btf: &Btf) -> Option<(u32, u32)> {
    let number = |name| btf.id_by_type_name_kind(name, BtfKind::Var).ok();
    let plain = number("__preempt_count").map(|id| (id, 0));
    plain.or_else(|| number("pcpu_hot").map(|id| (id, IN_PCPU_HOT)))
}

/// The object file with the placeholder replaced by the variable.
fn with_variable(object: &[u8], variable: Option<(u32, u32)>) -> Vec<u8> {
    let mut object = object.to_vec();
    for at in (0..object.len().saturating_sub(15)).step_by(8) {
        let instruction = &mut object[at..at + 16];
        let is_it = instruction[0] == LOAD_64
            && instruction[1] & 0xf0 == 0
            && instruction[4..8] == VARIABLE.to_ne_bytes()
            && instruction[8..].iter().all(|byte| *byte == 0);
        if is_it {
            instruction[1] |= variable.map_or(0, |_| PSEUDO_BTF_ID << 4);
            instruction[4..8].copy_from_slice(&variable.map_or(0, |(id, _)| id).to_ne_bytes());
        }
    }
    object
}
