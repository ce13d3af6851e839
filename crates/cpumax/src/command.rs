//! One file for each subcommand.

pub mod kernels;
pub mod run;
pub mod scenarios;
pub mod shell;
