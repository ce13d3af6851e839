//! The lab: fetches real kernels, boots them in virtual machines, and runs scenarios on them.
//!
//! `kernels.toml` at the top of the tree lists the kernels ([`catalog`]). [`fetch`] gets them
//! through the machine's own apt into the user's cache ([`cache`]). [`Lab`] runs [`Job`]s on them.

pub mod apt;
pub mod cache;
pub mod catalog;
mod command;
pub mod config;
mod error;
pub mod fetch;
mod guest;
mod host;
pub mod initramfs;
mod kept;
mod kvm;
mod lock;
mod others;
mod qemu;
mod qmp;
mod runner;
mod seat;
mod snapshot;
mod turns;
pub mod vm;
mod whole;

pub use command::Command;
pub use error::Error;
pub use guest::Guest;
pub use host::Host;
pub use qemu::Mode;
pub use runner::{Job, Lab, MACHINE_NOTE, Quiet, Step, Watch};
pub use turns::Turns;
