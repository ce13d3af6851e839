//! The user's request to stop, checked between steps, so that everything that was started is ended.

use anyhow::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by ctrl-C or SIGTERM.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        let flag = Arc::clone(&stop.0);
        ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
        Ok(stop)
    }

    /// Fails once the user has asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("stopped; groups and processes are removed");
        }
        Ok(())
    }
}
