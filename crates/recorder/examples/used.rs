//! Records a command with its system calls, and prints the CPU time of each thread:
//! `cargo run --example used FILE COMMAND [ARGUMENT]...`

use cpumax_recorder::{Request, Target, describe_end, record};
use cpumax_recording::{Options, Recording};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let file = PathBuf::from(words.next().ok_or("which file?")?);
    let what = Target::Command(words.collect());
    let request = Request { calls: true, ..Request::new(what, file.clone()) };
    let done = record(&request, &mut |_| true)?;
    println!("{}", describe_end(&request, &done));
    let summary = Recording::read(&file, Options::default())?.summary();
    println!("{:?}", summary.event_cost);
    let about = summary.about.ok_or("the recording does not describe itself")?;
    println!(
        "{} {} measured before, {} while it ran",
        about.call_cost_ns, about.event_cost_ns, done.event_ns
    );
    for thread in &summary.threads {
        println!("{:8.3} ms  {}", thread.runtime_ns as f64 / 1e6, thread.name);
    }
    Ok(())
}
