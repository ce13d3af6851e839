//! Measures how often the ranges of a fit to counters hold the truth: `make calibrate`. The true
//! services are drawn from the priors of the fit; the model gives their counters, and the effect of
//! other limits. Arguments: number of services [40], draws for each [640], kernel [6.18].

use cpumax_observed::fitted::{Fitting, Knows, calibrate};
use cpumax_study::{Running, kernel::parse_kernels};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: &str| {
        arguments.get(at).map_or_else(|| default.to_owned(), Clone::clone)
    };
    let services: u64 = argument(0, "40").parse()?;
    let kernel = parse_kernels(&argument(2, "6.18"))?[0];
    let draws = argument(1, "640").parse()?;
    let fitting = Fitting { draws, running: Running::default(), ..Fitting::on(kernel) };
    for (knows, name) in [
        (Knows::Counters, "counters of the group"),
        (Knows::Requests, "and requests, p50 and p99 of the service"),
        (Knows::Service, "and threads, and whether clients wait"),
    ] {
        let (numbers, refused) = calibrate(&fitting, knows, 0..services, &())?;
        println!("{name} ({refused} of {services} services not told of)");
        println!("| number | told | in the range, % | width | rank of the truth, by tenths |");
        println!("|---|---|---|---|---|");
        for number in numbers {
            let held = 100.0 * number.held as f64 / number.told.max(1) as f64;
            let ranks: Vec<String> = number.ranks.iter().map(ToString::to_string).collect();
            let (name, told, width) = (number.name, number.told, number.width);
            println!("| {name} | {told} | {held:.0} | {width:.2} | {} |", ranks.join(" "));
        }
        println!();
    }
    Ok(())
}
