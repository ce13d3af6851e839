//! Runs a workload under limits, on kernels, with seeds.
//!
//! A **study** is a list of runs ([`Job`]), each of which yields a [`Report`]. The workload comes
//! from a scenario, from Rust code, or from the built-in scenarios ([`scenario::load`]). A
//! [`World`] runs it: the [`Model`] of every kernel, real kernels in virtual machines
//! ([`Machines`]), or [`ThisHost`]. A limit ([`Try`]) is written as the kernel's files take it, or
//! as Kubernetes, systemd and docker do.
//!
//! ```
//! use cpumax_study::{Model, Study, apply, kernels, workload, world};
//!
//! let text = r#"
//!     duration = "5s"
//!     machine = { cpus = 2 }
//!     [[group]]
//!     path = "/web"
//!     [[service]]
//!     name = "web"
//!     group = "/web"
//!     threads = 4
//!     work = { exponential = "3ms" }
//!     rate = "200/s"
//! "#;
//! let web = workload::parse(text, "web.toml")?;
//! println!("{:<10} {:<8} {:>9} {:>9}", "limit", "kernel", "throttled", "p99, ms");
//! let mut throttled = Vec::new();
//! for limit in ["/web:700m", "/web:2"] {
//!     let study = Study::new(apply(web.clone(), limit)?).on(kernels::modelled("6.12,7.3")?);
//!     for report in world::all(&Model::default(), &study.jobs(), &())? {
//!         let (kernel, group) = (&report.outcome.kernel, &report.outcome.groups["/web"]);
//!         let p99_ms = group.latency_ns.p99 as f64 / 1e6;
//!         println!("{limit:<10} {kernel:<8} {:>9} {p99_ms:>9.1}", group.nr_throttled);
//!         throttled.push(group.nr_throttled);
//!     }
//! }
//! assert!(throttled[0] > throttled[2], "0.7 CPUs are less than two: {throttled:?}");
//! # Ok::<(), cpumax_study::Error>(())
//! ```
//!
//! A [`Simulation`] is a single run that can be stopped at any time and inspected. A [`suite`]
//! checks what scenarios expect of their runs.

pub mod answer;
pub mod builtin;
mod change;
mod error;
pub mod expect;
pub mod given;
mod job;
pub mod kernels;
mod ranged;
mod report;
pub mod scenario;
mod study;
pub mod suite;
pub mod vary;
mod watch;
mod what_if;
pub mod world;

pub use change::{apply, lacks};
pub use cpumax_machine::{Simulation, kernel};
pub use cpumax_noise::Microseconds;
pub use error::{Error, OtherError, no_groups};
pub use job::{Job, NamedKernel, Share, Variant, WhatIf, with_shares};
pub use ranged::Ranged;
pub use report::{Report, ReportDocument};
pub use study::Study;
pub use watch::{Kept, Step, Trace, Traced, Watch};
pub use what_if::{Beside, CURVE, FEW, Try, common_group, ladder};
pub use world::{Machines, Model, Running, ThisHost, World};
pub use {
    cpumax_limit as limit, cpumax_machine as machine, cpumax_outcome as outcome,
    cpumax_workload as workload,
};
