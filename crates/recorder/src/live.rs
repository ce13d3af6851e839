//! Recording with the feature `bpf`.

mod about;
mod beside;
mod bundle;
mod calibrate;
mod deflate;
mod kernel;
mod raw;
mod refused;
pub(crate) mod session;
mod wire;
mod writer;
