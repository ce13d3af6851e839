//! Raw records of tracepoints in perf.data and trace.dat. The kernel's descriptions in the file
//! tell where their fields are.

mod bytes;
mod format;
mod kind;
mod walk;

pub(crate) use bytes::{Bytes, text};
pub(crate) use format::{Format, Formats};
pub(crate) use kind::{PID_AT, TYPE_AT, context};
pub(crate) use walk::{Walk, WalkError};
