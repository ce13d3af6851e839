//! Prints the contents of a recording: `cargo run --example show FILE [PATTERN]`. With a pattern,
//! also the programs of the threads it chooses.

use cpumax_recording::{Options, Recording, Selection, Selector};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which recording?")?;
    let began = Instant::now();
    let recording = Recording::read(Path::new(&file), Options::default())?;
    let took = began.elapsed();
    let summary = recording.summary();
    println!(
        "{} events in {took:?}; {} ms on {} CPUs, kernel {}",
        summary.events,
        summary.span_ns / 1_000_000,
        summary.cpus,
        summary.kernel.as_deref().unwrap_or("?"),
    );
    println!(
        "used {} us, recorder {} us, not charged {} us; syscalls {}, runtimes {}, context {}",
        summary.runtime_ns / 1000,
        summary.recorder_ns / 1000,
        summary.uncharged_ns / 1000,
        summary.has_syscalls,
        summary.has_runtime,
        summary.has_context,
    );
    if !summary.defects.is_empty() {
        println!("{}", summary.defects);
    }
    for gap in recording.gaps() {
        println!("{}{}", if gap.doubtful { "doubtful: " } else { "" }, gap.told);
    }
    for thread in &summary.threads {
        let (name, group) = (&thread.name, thread.group.as_deref().unwrap_or("?"));
        println!("{:10} us {:6} waits  {name} in {group}", thread.runtime_ns / 1000, thread.waits);
    }
    if let Some(pattern) = arguments.next() {
        let selection =
            Selection { limited: vec![pattern.parse::<Selector>()?], ..Selection::default() };
        let workload = recording.workload(&selection)?;
        for task in workload.tasks.iter().filter(|task| task.group != 0) {
            println!("{} at {} ns, {} instructions", task.name, task.start_ns, task.program.len());
            for op in &task.program {
                println!("    {op:?}");
            }
        }
    }
    Ok(())
}
