//! One file for each subcommand.

pub mod advise;
pub mod compare;
pub mod counted;
pub mod inspect;
pub mod kernels;
pub mod lab;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod scenarios;
pub mod sched;
pub mod search;
pub mod shell;
pub mod stat;
pub mod verify;
pub mod weigh;
