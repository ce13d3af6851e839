//! The scenario language as its users see it.

#[path = "language/accepts.rs"]
mod accepts;
#[path = "language/builds.rs"]
mod builds;
#[path = "language/documented.rs"]
mod documented;
#[path = "language/refuses.rs"]
mod refuses;
#[path = "language/robust.rs"]
mod robust;
#[path = "language/round_trip.rs"]
mod round_trip;
#[path = "language/services.rs"]
mod services;
