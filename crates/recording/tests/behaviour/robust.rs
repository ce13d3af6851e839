//! Damaged recordings give an error or a consistent workload, never a panic.

use cpumax_recording::{Options, Recording, Selection};
use cpumax_workload::{Arrivals, Op, Workload};
use proptest::collection::vec;
use proptest::prelude::*;

const WEB: &[u8] = include_bytes!("../data/web.perf.data");
const TEXT: &str = include_str!("../data/web.txt");
/// The fuzzers' seeds of further forms.
const OTHERS: [&[u8]; 8] = [
    include_bytes!("../../fuzz/seeds/perf_data/pipe"),
    include_bytes!("../../fuzz/seeds/perfetto/messages"),
    include_bytes!("../../fuzz/seeds/perfetto/columns"),
    include_bytes!("../../fuzz/seeds/perfetto/compressed"),
    include_bytes!("../../fuzz/seeds/perfetto/described"),
    include_bytes!("../../fuzz/seeds/trace_dat/v6"),
    include_bytes!("../../fuzz/seeds/trace_dat/v7"),
    include_bytes!("../../fuzz/seeds/wprof/switches.json"),
];

/// Every reference is valid, system calls are paired, arrivals are in order.
fn holds_together(workload: &Workload) {
    for task in &workload.tasks {
        assert!((task.group as usize) < workload.groups.len());
        let mut inside = false;
        for op in &task.program {
            match *op {
                Op::EnterKernel => assert!(!std::mem::replace(&mut inside, true), "{}", task.name),
                Op::ExitKernel => assert!(std::mem::replace(&mut inside, false), "{}", task.name),
                Op::User(_) => assert!(!inside, "{}", task.name),
                Op::Send { channel, .. } | Op::Recv { channel, .. } => {
                    assert!((channel as usize) < workload.channels.len());
                }
                Op::Fork { kind } => assert_eq!(workload.tasks[kind as usize].count, 0),
                _ => {}
            }
        }
    }
    for source in &workload.sources {
        let Arrivals::At(times) = &source.arrivals else { panic!("arrivals of another kind") };
        assert!(times.is_sorted());
    }
    tokens_suffice(workload);
    each_job_comes_once(workload);
}

/// Work that was recorded once is done once.
fn each_job_comes_once(workload: &Workload) {
    let mut comes = vec![0; workload.jobs.len()];
    for job in workload.sources.iter().flat_map(|source| &source.jobs) {
        comes[*job as usize] += 1;
    }
    for op in workload.programs().flatten() {
        if let Op::Post { job, .. } | Op::After { job, .. } = *op {
            comes[job as usize] += 1;
        }
    }
    assert!(comes.iter().all(|times| *times == 1), "{comes:?}");
}

/// No task waits for ever: each awaited message and arrival is sent.
fn tokens_suffice(workload: &Workload) {
    let mut tokens = vec![0_i64; workload.channels.len()];
    for source in &workload.sources {
        let Arrivals::At(times) = &source.arrivals else { continue };
        // Receivers of jobs await no number.
        let plain = source.jobs.is_empty();
        tokens[source.channel as usize] += if plain { times.len() as i64 } else { 0 };
    }
    for op in workload.programs().flatten() {
        match *op {
            Op::Send { channel, n } => tokens[channel as usize] += n as i64,
            Op::Recv { channel, n } => tokens[channel as usize] -= n as i64,
            _ => {}
        }
    }
    assert!(tokens.iter().all(|left| *left == 0), "{tokens:?}");
}

fn read(data: &[u8]) -> bool {
    match Recording::read_bytes("damaged", data, Options::default()) {
        Ok(recording) => {
            recording.summary();
            recording.services();
            let limited = vec!["comm:s*".parse().unwrap()];
            for limited in [Vec::new(), limited] {
                let selection = Selection { limited, ..Selection::default() };
                match recording.import(&selection) {
                    Ok((workload, _)) => holds_together(&workload),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
            true
        }
        Err(error) => {
            assert!(error.to_string().starts_with("damaged: "), "{error}");
            false
        }
    }
}

#[test]
fn undamaged_ones_hold_together() {
    assert!(read(WEB) && read(TEXT.as_bytes()));
    assert!(OTHERS.iter().all(|data| read(data)));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bytes_changed(changes in vec((0..WEB.len(), any::<u8>()), 1..40)) {
        let mut data = WEB.to_vec();
        for (at, byte) in changes {
            data[at] = byte;
        }
        read(&data);
    }

    #[test]
    fn bytes_of_other_forms_changed(
        form in 0..OTHERS.len(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut data = OTHERS[form].to_vec();
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        read(&data);
        let len = cut.index(data.len());
        read(&data[..len]);
    }

    #[test]
    fn words_of_the_head_changed(at in 0_usize..26, value in any::<u32>()) {
        let mut data = WEB.to_vec();
        data[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
        read(&data);
    }

    #[test]
    fn lines_lost_doubled_and_out_of_order(damage in vec((0_usize..3600, 0..3_u8), 0..60)) {
        let mut lines: Vec<&str> = TEXT.lines().collect();
        for (at, how) in damage {
            let at = at % lines.len();
            match how {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at]),
                _ => {
                    let other = (at + 1) % lines.len();
                    lines.swap(at, other);
                }
            }
        }
        let text = lines.join("\n") + "\n";
        prop_assert!(read(text.as_bytes()), "this much is repaired");
    }

    #[test]
    fn requests_are_damaged(
        damage in vec((any::<usize>(), 0..4_u8, any::<u8>()), 0..80),
        sockets in any::<bool>(),
    ) {
        let mut text = super::requests::recording();
        if sockets {
            text = super::requests::by_sockets(&text, true);
        }
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, how, byte) in damage {
            let at = at % lines.len();
            match how {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at].clone()),
                2 => {
                    let other = (at + 1) % lines.len();
                    lines.swap(at, other);
                }
                _ => {
                    let mut bytes = lines[at].clone().into_bytes();
                    let place = usize::from(byte) % bytes.len();
                    bytes[place] = b'0' + byte % 10;
                    lines[at] = String::from_utf8(bytes).unwrap();
                }
            }
        }
        read((lines.join("\n") + "\n").as_bytes());
        let without: Vec<String> =
            lines.into_iter().filter(|line| !line.contains("sys_")).collect();
        read((without.join("\n") + "\n").as_bytes());
    }

    #[test]
    fn characters_changed(changes in vec((0..TEXT.len(), any::<u8>()), 1..200)) {
        let mut text = TEXT.as_bytes().to_vec();
        for (at, byte) in changes {
            text[at] = byte;
        }
        read(&text);
    }
}
