//! The scenario language as its users see it.

#[path = "language/accepts.rs"]
mod accepts;
