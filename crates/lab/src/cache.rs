//! Where fetched kernels are kept: `cpumax/kernels/NAME/` in the user's cache, with the image
//! (`vmlinuz`), its configuration (`config`) and where both come from (`kernel.json`).

use crate::config::{self, Config};
use crate::whole::write;
use crate::{Error, catalog};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of everything the lab keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

/// Where a kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What `uname -r` says.
    pub release: String,
    /// Version of the package, e.g. `6.12.117-1`.
    pub package_version: String,
    /// The packages and the SHA-256 that the signed index has for each.
    pub packages: Vec<(String, String)>,
}

/// A kernel that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name in `kernels.toml`.
    pub name: String,
    /// Major and minor version, e.g. `6.12`.
    pub version: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What its configuration says; mirrors drop the package that has it before the image.
    pub config: Option<Config>,
    /// The image to boot.
    pub image: PathBuf,
}

impl Cache {
    /// The user's: `$CPUMAX_CACHE`, or `cpumax` in `$XDG_CACHE_HOME`, or in `~/.cache`.
    ///
    /// # Errors
    /// [`Error::NoCache`] when none of these is set.
    pub fn of_user() -> Result<Cache, Error> {
        let set =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("CPUMAX_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("cpumax")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/cpumax")));
        folder.map(Cache::at).ok_or(Error::NoCache)
    }

    /// One in a folder of its own, which need not exist.
    pub fn at(folder: PathBuf) -> Cache {
        Cache { folder }
    }

    /// Keeps the console of a machine that failed, under that name.
    pub(crate) fn with_console<T>(
        &self,
        result: Result<T, Error>,
        console: &str,
        name: &str,
    ) -> Result<T, Error> {
        use Error::{Hung, Panic, TimedOut, Vm};
        let error = match result {
            Err(error @ (Panic { .. } | Hung { .. } | TimedOut { .. } | Vm { .. })) => error,
            result => return result,
        };
        if console.is_empty() {
            return Err(error);
        }
        let folder = self.folder.join("consoles");
        let path = folder.join(format!("{name}.log"));
        let written = fs::create_dir_all(&folder).and_then(|()| write(&path, console));
        if written.is_ok() { Err(Error::Kept { error: Box::new(error), path }) } else { Err(error) }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the files of that kernel are, or would be.
    pub fn kernel_folder(&self, name: &str) -> PathBuf {
        self.folder.join("kernels").join(name)
    }

    /// The kernel of that name in `kernels.toml`.
    ///
    /// # Errors
    /// [`Error::UnknownKernel`], [`Error::NotFetched`], or what is wrong with its files.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let entry = catalog::find(name)?;
        let folder = self.kernel_folder(name);
        let [image, config_path, origin] =
            ["vmlinuz", "config", "kernel.json"].map(|file| folder.join(file));
        if !origin.exists() {
            return Err(Error::NotFetched { name: name.to_owned() });
        }
        let text = fs::read_to_string(&origin).map_err(Error::file("read", &origin))?;
        let parsed = serde_json::from_str(&text)
            .map_err(|error| Error::Malformed { path: origin, reason: error.to_string() })?;
        let config = match fs::read_to_string(&config_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            config => Some(config::parse(&config.map_err(Error::file("read", &config_path))?)),
        };
        Ok(Kernel {
            name: name.to_owned(),
            version: entry.version().to_owned(),
            origin: parsed,
            config,
            image,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_here_is_told_with_the_command_that_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let told = cache.kernel("6.12").unwrap_err().to_string();
        assert!(told.contains("cpumax lab fetch 6.12"), "{told}");
    }

    #[test]
    fn a_broken_entry_is_told_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let kernel = cache.kernel_folder("6.12");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("kernel.json"), "{}").unwrap();
        let told = cache.kernel("6.12").unwrap_err().to_string();
        assert!(told.contains("kernel.json") && told.contains("release"), "{told}");
    }
}
