//! Instances of tracefs, which record beside what others record on the machine.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub(crate) const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// An instance; dropping it removes it.
pub(crate) struct Instance(PathBuf);

impl Instance {
    /// Makes an instance with this clock. The buffer of each CPU has the largest of these sizes,
    /// halved down to the least where memory is short.
    ///
    /// # Errors
    /// There is one of this name, no tracefs, or no right to it.
    pub fn make(name: &str, clock: &str, kib: RangeInclusive<u32>) -> Result<Instance, String> {
        let folder = Path::new(INSTANCES).join(name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let instance = Instance(folder);
        instance.write("trace_clock", clock)?;
        let (least, mut size) = kib.into_inner();
        while let Err(error) = instance.write("buffer_size_kb", &size.to_string()) {
            if size == least {
                return Err(error);
            }
            size /= 2;
        }
        Ok(instance)
    }

    /// Writes a file of the instance; the error names its path.
    pub fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Passes each recorded line to `each`, the oldest first.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn read(&self, mut each: impl FnMut(&str)) -> Result<(), String> {
        let path = self.0.join("trace");
        let no = |error| format!("{}: {error}", path.display());
        for line in BufReader::new(File::open(&path).map_err(no)?).split(b'\n') {
            each(&String::from_utf8_lossy(&line.map_err(no)?));
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // In a virtual machine the instance goes with the machine.
        let _ = fs::remove_dir(&self.0);
    }
}
