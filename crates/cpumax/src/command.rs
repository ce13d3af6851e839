//! One file for each subcommand.

pub mod kernels;
pub mod shell;
