//! Raw records of tracepoints, as perf.data and trace.dat hold them: where the fields are is told
//! by the kernel's descriptions in the file.

mod bytes;
mod format;
mod kind;
mod walk;

pub(crate) use bytes::Bytes;
pub(crate) use format::{Format, Formats};
pub(crate) use kind::{PID_AT, TYPE_AT, context};
pub(crate) use walk::{Walk, WalkError};
