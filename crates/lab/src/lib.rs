//! The lab: real kernels, fetched once and kept, booted in virtual machines, and scenarios run on them.
//!
//! `kernels.toml` at the top of the tree says which kernels there are ([`catalog`]); [`fetch`] gets
//! them through the machine's own apt into the user's cache ([`cache`]).

pub mod apt;
pub mod cache;
pub mod catalog;
pub mod config;
mod error;
pub mod fetch;

pub use error::Error;
