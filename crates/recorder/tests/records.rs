//! Recordings on this machine's kernel.

use cpumax_recorder::{End, Error, Finished, Progress, Request, Target, record};
use cpumax_recording::{Options, Recording, Summary, ThreadSummary};
use cpumax_require::{Need, found, missing};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A shell script that works, sleeps now and then, and writes its CPU time, ns, to a file.
const LOAD: &str = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); j=0; while [ $j -lt 9000 ]; do \
                    j=$((j+1)); done; read line < /proc/uptime; sleep 0.01; done; \
                    read ns rest < /proc/$$/schedstat; echo $ns > FILE";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self) -> Vec<std::ffi::OsString> {
        let script = LOAD.replace("FILE", &self.file("ns").display().to_string());
        // The start of the first shell is not recorded; all of the inner one is.
        ["sh", "-c", "sh -c \"$0\"; exit $?", &script].map(Into::into).to_vec()
    }

    /// CPU time of the load by its own account, ns.
    fn used_ns(&self) -> f64 {
        fs::read_to_string(self.file("ns")).unwrap().trim().parse().unwrap()
    }
}

/// Recordings in parallel would cost each other time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records, for at most a minute; `None` where BPF is not allowed.
fn recorded(request: &Request) -> Option<Finished> {
    let _alone = alone();
    recorded_now(request)
}

fn recorded_now(request: &Request) -> Option<Finished> {
    let request = &Request {
        time: Some(Duration::from_secs(60)).min(request.time.or(Some(Duration::MAX))),
        ..request.clone()
    };
    match record(request, &mut |_: &Progress| true) {
        Err(error @ Error::NoBpf { .. }) => found(Need::Bpf, Err(error)),
        result => Some(result.unwrap()),
    }
}

fn read(file: &Path) -> Summary {
    Recording::read(file, Options::default()).unwrap().summary()
}

fn thread<'a>(summary: &'a Summary, comm: &str) -> &'a ThreadSummary {
    summary
        .threads
        .iter()
        .filter(|thread| thread.comm == comm)
        .max_by_key(|thread| thread.runtime_ns)
        .unwrap()
}

/// Some kernels miss switches, and CPU time with them, so an incomplete recording is repeated so
/// many times.
const TRIES: u32 = 6;

fn where_no_time_is_missing(mut try_it: impl FnMut(&Folder) -> Option<(Summary, Finished)>) {
    for left in (0..TRIES).rev() {
        let folder = Folder::new();
        let Some((summary, finished)) = try_it(&folder) else { return };
        let sh = thread(&summary, "sh");
        if used(&folder, &finished).contains(&(sh.runtime_ns as f64)) {
            return;
        }
        assert!(left > 0, "{sh:?}, {finished:?}");
    }
}

/// Expected CPU time: within a hundredth of the load's account, plus the cost of recording. The
/// load's account ends a little before the load does.
fn used(folder: &Folder, finished: &Finished) -> Range<f64> {
    const END_NS: f64 = 3e6;
    let told_ns = folder.used_ns();
    let cost_ns = finished.event_ns as f64 * finished.progress.events as f64;
    told_ns * 0.99 - cost_ns..told_ns * 1.01 + END_NS
}

#[test]
fn the_cpu_time_of_a_command_is_that_which_the_kernel_counts() {
    for calls in [false, true] {
        where_no_time_is_missing(|folder| command(folder, calls));
    }
}

/// Records a command from begin to end.
fn command(folder: &Folder, calls: bool) -> Option<(Summary, Finished)> {
    let file = folder.file("load.cpumax");
    let request = Request { calls, ..Request::new(Target::Command(folder.load()), file.clone()) };
    let finished = recorded(&request)?;
    assert!(matches!(finished.end, End::Command(status) if status.success()), "{finished:?}");
    let summary = read(&file);
    assert_eq!(summary.has_syscalls, calls);
    assert!(summary.has_runtime && summary.has_context);
    let sh = thread(&summary, "sh");
    assert!(sh.waits >= 30, "{sh:?}");
    // Its children are recorded too.
    assert!(summary.threads.iter().filter(|t| t.comm == "sleep").count() >= 25);
    let ended = summary.ended.as_ref().unwrap();
    assert_eq!((ended.why.as_str(), ended.lost.len()), ("command", 0));
    assert_eq!(ended.events, finished.progress.events);
    let about = summary.about.as_ref().unwrap();
    assert_eq!(about.chosen, "command");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(about.release, release.trim());
    Some((summary, finished))
}

#[test]
fn a_command_is_recorded_from_its_first_instruction() {
    for left in (0..TRIES).rev() {
        let folder = Folder::new();
        let file = folder.file("busy.cpumax");
        let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; \
                      read ns rest < /proc/$$/schedstat; echo $ns > FILE";
        let script = script.replace("FILE", &folder.file("ns").display().to_string());
        let what = Target::Command(["sh", "-c", &script].map(Into::into).to_vec());
        if recorded(&Request::new(what, file.clone())).is_none() {
            return;
        }
        let used_ns = thread(&read(&file), "sh").runtime_ns as f64;
        let is_told = used_ns > folder.used_ns() * 0.8;
        assert!(is_told || left > 0, "{used_ns}, {}", folder.used_ns());
        if is_told {
            return;
        }
    }
}

/// A busy thread for each CPU, unrelated to the recorded ones.
struct Strangers(String);

impl Strangers {
    fn named(name: &str, folder: &Folder) -> Strangers {
        let program = folder.file(name);
        fs::copy("/bin/sh", &program).unwrap();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = "-c 'while :; do :; done' >/dev/null 2>&1 & echo $!; ";
        let one = format!("{} {busy}", program.display());
        let started = Command::new("sh").args(["-c", &one.repeat(cpus)]).output().unwrap();
        Strangers(String::from_utf8(started.stdout).unwrap())
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(self.0.split_ascii_whitespace()).status();
    }
}

/// A program that waits for a timeout again and again.
const WAITS: &str = r#"
fn main() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(4))).unwrap();
    loop {
        socket.recv(&mut [0]).unwrap_err();
    }
}
"#;

/// Compiles a program; `None` where that fails.
fn program(text: &str, program: &Path) -> Option<PathBuf> {
    let source = program.with_extension("rs");
    fs::write(&source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc).arg("-o").args([program, &source]).status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        missing(Need::Bpf, "a program to record, which rustc cannot build");
    }
    is_built.then(|| program.to_owned())
}

/// A program that connects, sends a request, gets an answer and closes. The kernel then uses the
/// memory of a client's socket for one of the server.
const ASKS: &str = r#"
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
fn talk<S: Read + Write>(mut accept: impl FnMut() -> S + Send + 'static, connect: impl Fn() -> S) {
    let (serves_first, goes_on) = std::sync::mpsc::sync_channel(0);
    let serves = move || {
        for n in 0.. {
            let mut client = accept();
            client.read_exact(&mut [0; 3]).unwrap();
            client.write_all(b"answer").unwrap();
            if n % 3 > 0 {
                drop(client);
                serves_first.send(()).unwrap();
            } else {
                serves_first.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    };
    std::thread::Builder::new().name("serves".to_owned()).spawn(serves).unwrap();
    for _ in 0..60 {
        let mut asks = connect();
        asks.write_all(b"ask").unwrap();
        asks.read_exact(&mut [0; 6]).unwrap();
        goes_on.recv().unwrap();
    }
}
fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("tcp") => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            talk(move || listener.accept().unwrap().0, || TcpStream::connect(at).unwrap());
        }
        Some(at) => {
            let listener = UnixListener::bind(at).unwrap();
            talk(move || listener.accept().unwrap().0, || UnixStream::connect(at).unwrap());
        }
        None => panic!("where?"),
    }
}
"#;

/// The connection of Unix sockets is not recorded, but each has one request only.
#[test]
fn a_socket_in_the_memory_of_an_earlier_one_is_another() {
    let folder = Folder::new();
    let Some(program) = program(ASKS, &folder.file("asks")) else { return };
    for at in [folder.file("at"), "tcp".into()] {
        let file = folder.file("asks.cpumax");
        let words = [program.clone().into_os_string(), at.into_os_string()];
        let request = Request::new(Target::Command(words.to_vec()), file.clone());
        if recorded(&request).is_none() {
            return;
        }
        let recording = Recording::read(&file, Options::default()).unwrap();
        let release = recording.summary().about.unwrap().release;
        let numbers: Vec<u32> = release.split('.').map_while(|part| part.parse().ok()).collect();
        if numbers < vec![6, 3] {
            return;
        }
        let services = recording.services();
        let serves = services.iter().find(|(name, _)| name == "serves");
        let (_, service) = serves.unwrap_or_else(|| panic!("{services:?}"));
        assert_eq!((service.requests.len(), service.evidence.anew), (60, true), "{service:?}");
    }
}

/// A software interrupt ends such a wait, on top of any thread.
#[test]
fn whom_an_interrupt_hits_is_no_partner_of_whom_it_wakes() {
    let folder = Folder::new();
    let file = folder.file("waits.cpumax");
    let _strangers = Strangers::named("stranger", &folder);
    let Some(program) = program(WAITS, &folder.file("waits")) else { return };
    let mut waits = Command::new(program).spawn().unwrap();
    let what = Target::Process(waits.id() as i32);
    let time = Some(Duration::from_secs(2));
    let finished = recorded(&Request { time, ..Request::new(what, file.clone()) });
    waits.kill().unwrap();
    waits.wait().unwrap();
    if finished.is_none() {
        return;
    }
    let summary = read(&file);
    assert!(thread(&summary, "waits").waits > 50, "{summary:?}");
    let stranger = summary.threads.iter().find(|thread| thread.comm == "stranger");
    assert!(stranger.is_none(), "{stranger:?}");
}

/// A packet to the same machine is delivered in a software interrupt of the sender.
#[test]
fn who_sends_to_a_chosen_thread_is_its_partner() {
    let folder = Folder::new();
    let file = folder.file("asked.cpumax");
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let client = "exec 3<>/dev/tcp/127.0.0.1/PORT; while echo ask >&3 && read -u 3 answer; do \
                  sleep 0.01; done";
    let client = client.replace("PORT", &port.to_string());
    let started = Command::new("bash")
        .args(["-c", "(exec -a asks bash -c \"$0\") >/dev/null 2>&1 & echo $!", &client])
        .output();
    let asks = match started {
        Ok(started) if started.status.success() => {
            Strangers(String::from_utf8(started.stdout).unwrap())
        }
        other => {
            missing(Need::Bpf, "bash, which is to ask");
            return drop(other);
        }
    };
    let (connection, _) = server.accept().unwrap();
    let answers = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader, Write};
        let mut answers = connection.try_clone().unwrap();
        for line in BufReader::new(connection).lines() {
            if line.is_err() || answers.write_all(b"told\n").is_err() {
                return;
            }
        }
    });
    let what = Target::Process(std::process::id() as i32);
    let time = Some(Duration::from_secs(1));
    let finished = recorded(&Request { time, ..Request::new(what, file.clone()) });
    drop(asks);
    answers.join().unwrap();
    if finished.is_some() {
        let is_asking = |thread: &&ThreadSummary| thread.comm == "bash" && thread.waits > 20;
        let summary = read(&file);
        assert!(summary.threads.iter().any(|thread| is_asking(&thread)), "{:?}", summary.threads);
    }
}

/// Some kernels miss switches; later events of the thread are recorded all the same.
#[test]
fn beside_busy_threads_no_call_is_missing() {
    let folder = Folder::new();
    let file = folder.file("calls.cpumax");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut busy: Vec<Child> = (0..cpus).map(|_| busy()).collect();
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"];
    let what = Target::Command(dd.map(Into::into).to_vec());
    let finished = recorded(&Request { calls: true, ..Request::new(what, file) });
    for busy in &mut busy {
        let _ = busy.kill().and_then(|()| busy.wait());
    }
    let Some(finished) = finished else { return };
    // One read and one write for each byte, each with an entry and an exit.
    let Progress { events, lost, .. } = finished.progress;
    assert!(events + lost >= 400_000, "{finished:?}");
}

/// A program that makes so many cheap system calls as its argument says.
const CALLS: &str = r#"
fn main() {
    let calls: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let used_ns = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let before_ns = used_ns();
    for _ in 0..calls {
        std::hint::black_box(std::os::unix::process::parent_id());
    }
    println!("{}", used_ns() - before_ns);
}
"#;

/// Recording makes each call several times as expensive. At least half of that is taken off: caches
/// and page faults make a long recording dearer than its calibration. The test is repeated if
/// another user of the machine changes its speed between runs.
#[test]
fn what_it_costs_to_record_calls_is_taken_off() {
    const TRIES: u32 = 12;
    let folder = Folder::new();
    let file = folder.file("calls.cpumax");
    let Some(program) = program(CALLS, &folder.file("calls")) else { return };
    let unrecorded_ns = || -> f64 {
        let told = Command::new(&program).arg("400000").output().unwrap().stdout;
        String::from_utf8(told).unwrap().trim().parse().unwrap()
    };
    let _alone = alone();
    for left in (0..TRIES).rev() {
        let before_ns = unrecorded_ns();
        let what = Target::Command(vec![program.clone().into(), "400000".into()]);
        let request = Request { calls: true, ..Request::new(what, file.clone()) };
        let Some(finished) = recorded_now(&request) else { return };
        let after_ns = unrecorded_ns();
        let summary = read(&file);
        let left_ns = thread(&summary, "calls").runtime_ns as f64;
        let events = finished.progress.events as f64;
        let taken_off_ns = events * f64::from(summary.event_cost.syscall_ns);
        let (least_ns, most_ns) = (before_ns.min(after_ns), before_ns.max(after_ns));
        let is_half = taken_off_ns >= left_ns - most_ns && taken_off_ns >= least_ns * 0.3;
        // Start and end of the thread take some milliseconds.
        if is_half && left_ns >= least_ns * 0.7 {
            return;
        }
        assert!(left > 0, "{left_ns}, {taken_off_ns}, {least_ns}..{most_ns}, {finished:?}");
    }
}

#[test]
fn what_costs_more_than_it_may_is_stopped_soon() {
    let folder = Folder::new();
    let mut dd = Command::new("dd")
        .args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"])
        .spawn()
        .unwrap();
    let what = Target::Process(dd.id() as i32);
    let file = folder.file("budget.cpumax");
    let budget = Some(0.001);
    let request = Request { calls: true, budget, ..Request::new(what, file.clone()) };
    let done = recorded(&request);
    dd.kill().unwrap();
    dd.wait().unwrap();
    let Some(done) = done else { return };
    assert_eq!(done.end, End::Budget);
    assert!(done.progress.elapsed < Duration::from_secs(5), "{done:?}");
    assert!(cpumax_recorder::describe_end(&request, &done).contains("--budget"));
}

#[test]
fn what_finds_no_room_is_counted_and_told_where() {
    let folder = Folder::new();
    let file = folder.file("lost.cpumax");
    let busy = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000000"].map(Into::into);
    let what = Target::Command(busy.to_vec());
    let request = Request { calls: true, memory: 1 << 16, ..Request::new(what, file.clone()) };
    let Some(finished) = recorded(&request) else { return };
    assert!(finished.progress.lost > 10_000, "{finished:?}");
    let summary = read(&file);
    assert!(summary.defects.lost_events > 10_000, "{:?}", summary.defects);
    let lost = summary.ended.unwrap().lost;
    assert_eq!(lost.values().sum::<u64>(), finished.progress.lost);
}

#[test]
fn it_ends_at_its_size_or_when_asked_and_the_file_is_whole() {
    let folder = Folder::new();
    let file = folder.file("size.cpumax");
    let busy = "dd if=/dev/zero of=/dev/null bs=1 count=100000000 2> /dev/null";
    let mut dd = Command::new("sh").args(["-c", &format!("exec {busy}")]).spawn().unwrap();
    let what = Target::Process(dd.id() as i32);
    let request = Request { calls: true, size: Some(1 << 20), ..Request::new(what, file.clone()) };
    let finished = recorded(&request);
    let asked = Request { size: None, ..request };
    let stopped = finished.map(|finished| {
        let _alone = alone();
        // A thread that runs without a switch is found by the beat, some times a second.
        let stopped =
            record(&asked, &mut |so_far| so_far.elapsed < Duration::from_millis(250)).unwrap();
        (finished, read(&file), stopped)
    });
    dd.kill().unwrap();
    dd.wait().unwrap();
    let Some((finished, summary, stopped)) = stopped else { return };
    assert_eq!(finished.end, End::Size);
    assert!((1 << 20..2 << 20).contains(&finished.progress.bytes), "{finished:?}");
    assert_eq!(stopped.end, End::Asked);
    assert!(thread(&summary, "dd").runtime_ns > 0);
    assert_eq!(summary.ended.unwrap().why, "asked");
}

/// A group in the hierarchy with limits, and a load in it.
struct Grouped {
    folder: PathBuf,
    path: String,
    load: Child,
}

impl Grouped {
    fn new(folder: &Folder) -> Result<Grouped, String> {
        let hierarchies = cpumax_recorder::Hierarchy::all().map_err(|e| e.to_string())?;
        let path = format!("/cpumax-recorder-{}", std::process::id());
        let group = hierarchies[0].root.join(&path[1..]);
        fs::create_dir(&group).map_err(|e| format!("{}: {e}", group.display()))?;
        let enter = format!("echo $$ > {}/cgroup.procs && read go && exec \"$@\"", group.display());
        let load = Command::new("sh")
            .args(["-c", &enter, "sh"])
            .args(folder.load())
            .stdin(Stdio::piped())
            .spawn();
        Ok(Grouped { folder: group, path, load: load.map_err(|e| e.to_string())? })
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        let _ = self.load.kill();
        let _ = self.load.wait();
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn of_a_group_its_threads_are_recorded_and_the_rest_as_one() {
    where_no_time_is_missing(group);
}

/// Records a load in a group while others run.
fn group(folder: &Folder) -> Option<(Summary, Finished)> {
    use std::io::Write;
    let _alone = alone();
    let mut grouped = found(Need::Cgroup, Grouped::new(folder))?;
    let file = folder.file("group.cpumax");
    let request = Request::new(Target::Group(grouped.path.clone()), file.clone());
    let mut goes = grouped.load.stdin.take();
    let result = record(&request, &mut |progress| {
        if let Some(mut stdin) = goes.take() {
            writeln!(stdin, "go").unwrap();
        }
        let has_ended = matches!(grouped.load.try_wait(), Ok(Some(_)));
        !has_ended && progress.elapsed < Duration::from_secs(60)
    });
    let finished = match result {
        Err(error @ Error::NoBpf { .. }) => {
            return found(Need::Bpf, Err(error));
        }
        result => result.unwrap(),
    };
    assert_eq!(finished.end, End::Asked);
    let summary = read(&file);
    let sh = thread(&summary, "sh");
    assert_eq!(sh.group.as_deref(), Some(&*grouped.path), "{sh:?}");
    let others = thread(&summary, "others");
    assert!(others.group.is_none(), "{others:?}");
    let about = summary.about.as_ref().unwrap();
    assert_eq!(about.chosen, format!("group {}", grouped.path));
    assert_eq!(about.groups[0].path, grouped.path);
    let limit = |name: &str| about.groups[0].files.contains_key(name);
    assert!(
        ["cpu.max", "cpu.cfs_quota_us", "cpu.stat"].iter().any(|name| limit(name)),
        "{about:?}"
    );
    Some((summary, finished))
}

/// A script that works, sleeps, and ends.
const RESTARTED: &str = "echo $$ > GROUP/cgroup.procs; i=0; while [ $i -lt 10 ]; do i=$((i+1)); \
                         j=0; while [ $j -lt 9000 ]; do j=$((j+1)); done; sleep 0.01; done";

/// Records a group, and calls `step` at each progress.
fn group_in_steps(
    grouped: &Grouped,
    file: &Path,
    mut step: impl FnMut(u32) -> bool,
) -> Option<Finished> {
    let request = Request::new(Target::Group(grouped.path.clone()), file.to_owned());
    let mut steps = 0..;
    match record(&request, &mut |_| step(steps.next().unwrap())) {
        Err(error @ Error::NoBpf { .. }) => found(Need::Bpf, Err(error)),
        result => Some(result.unwrap()),
    }
}

#[test]
fn a_group_that_is_made_again_is_followed_by_its_path() {
    let folder = Folder::new();
    let _alone = alone();
    let Some(mut grouped) = found(Need::Cgroup, Grouped::new(&folder)) else { return };
    grouped.load.kill().and_then(|()| grouped.load.wait()).unwrap();
    let file = folder.file("restarted.cpumax");
    let group = grouped.folder.clone();
    let runs = |name: &str| {
        let program = folder.file(name);
        fs::copy("/bin/sh", &program).unwrap();
        let script = RESTARTED.replace("GROUP", group.to_str().unwrap());
        let status = Command::new(&program).args(["-c", &script]).status().unwrap();
        assert!(status.success());
    };
    let steps = |step: u32| {
        match step {
            0 => runs("before"),
            1 => {
                fs::remove_dir(&group).unwrap();
                // A group at another path is not followed.
                let other = group.with_extension("other");
                fs::create_dir(&other).and_then(|()| fs::remove_dir(&other)).unwrap();
                fs::create_dir(&group).unwrap();
                runs("after");
            }
            _ => {}
        }
        step < 2
    };
    let Some(finished) = group_in_steps(&grouped, &file, steps) else { return };
    assert_eq!((finished.made_again, finished.is_gone), (1, false), "{finished:?}");
    let request = Request::new(Target::All, file.clone());
    assert!(cpumax_recorder::describe_end(&request, &finished).contains("made again once"));
    let summary = read(&file);
    let [before, after] = ["before", "after"].map(|comm| thread(&summary, comm));
    assert_eq!((&before.group, after.group.as_ref()), (&after.group, Some(&grouped.path)));
    let ratio = after.runtime_ns as f64 / before.runtime_ns as f64;
    assert!((0.5..2.0).contains(&ratio), "{before:?}, {after:?}");
    let ended = summary.ended.unwrap();
    assert_eq!((ended.made_again.len(), ended.is_gone), (1, false));
    let gone = |step: u32| {
        if step == 0 {
            fs::remove_dir(&group).unwrap();
        }
        step < 1
    };
    let finished = group_in_steps(&grouped, &file, gone).unwrap();
    assert_eq!((finished.made_again, finished.is_gone), (0, true), "{finished:?}");
    assert!(cpumax_recorder::describe_end(&request, &finished).contains("no longer exists"));
}

#[test]
fn a_command_that_a_signal_ends_has_the_status_that_shells_have_for_it() {
    let folder = Folder::new();
    for (script, status) in [("kill -9 $$", 137), ("exit 7", 7), ("true", 0)] {
        let what = Target::Command(["sh", "-c", script].map(Into::into).to_vec());
        let memory = 1 << 40;
        let request = Request { memory, ..Request::new(what, folder.file("ends.cpumax")) };
        let Some(done) = recorded(&request) else { return };
        assert_eq!(done.status(), status, "{script}");
        // Larger than any buffer that the kernel allows.
        assert!(
            cpumax_recorder::describe_end(&request, &done)
                .contains("of --buffer: more is not possible")
        );
    }
}

#[test]
fn a_recording_is_not_written_to_standard_output() {
    let what = Target::Command(vec!["true".into()]);
    match record(&Request::new(what, "-".into()), &mut |_| true) {
        Err(Error::NoBpf { instead, .. }) => assert!(instead.contains("perf record")),
        Err(error) => assert!(error.to_string().contains("give a file with -o"), "{error}"),
        Ok(finished) => panic!("{finished:?}"),
    }
}

#[test]
fn what_is_not_there_is_named() {
    let file = PathBuf::from("nothing-is-written.cpumax");
    for (what, named) in [
        (Target::Group("/no/such/group".to_owned()), "/no/such/group"),
        (Target::Pod("shop/no-such-pod".to_owned()), "shop/no-such-pod"),
        (Target::Process(i32::MAX), "2147483647"),
    ] {
        match record(&Request::new(what, file.clone()), &mut |_| true) {
            Err(Error::NoBpf { instead, .. }) => assert!(instead.contains("perf record")),
            Err(error) => assert!(error.to_string().contains(named), "{error}"),
            Ok(finished) => panic!("{finished:?}"),
        }
    }
    assert!(!file.exists());
}
