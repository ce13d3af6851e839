//! The user's cache: fetched kernels are in `cpumax/kernels/NAME/`, with the image (`vmlinuz`), its
//! configuration (`config`) and the origin of both (`kernel.json`).

use crate::config::{self, Config};
use crate::whole::write;
use crate::{Error, catalog};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder in which the lab keeps all its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

/// Origin of a fetched kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Kernel release, as `uname -r` prints it.
    pub release: String,
    /// Version of the package, e.g. `6.12.117-1`.
    pub package_version: String,
    /// Names of the packages, and their SHA-256 in the signed index.
    pub packages: Vec<(String, String)>,
    /// SHA-256 of the unpacked image; older entries lack it.
    #[serde(default)]
    pub image_sha256: Option<String>,
}

/// A fetched kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name in `kernels.toml`.
    pub name: String,
    /// Major and minor version, e.g. `6.12`.
    pub version: String,
    /// Packages it came from.
    pub origin: Origin,
    /// Its configuration, if that was fetched: mirrors drop its package before the image.
    pub config: Option<Config>,
    /// The image to boot.
    pub image: PathBuf,
}

impl Cache {
    /// The user's cache: `$CPUMAX_CACHE`, or `cpumax` in `$XDG_CACHE_HOME`, or `~/.cache/cpumax`.
    ///
    /// # Errors
    /// [`Error::NoCache`] if no variable is set.
    pub fn of_user() -> Result<Cache, Error> {
        let set =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("CPUMAX_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("cpumax")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/cpumax")));
        folder.map(Cache::at).ok_or(Error::NoCache)
    }

    /// A cache in this folder, which need not exist.
    pub fn at(folder: PathBuf) -> Cache {
        Cache { folder }
    }

    /// Writes the console of a failed machine to a file, and adds its path to the error.
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

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder of a kernel's files, which may not exist.
    pub fn kernel_folder(&self, name: &str) -> PathBuf {
        self.folder.join("kernels").join(name)
    }

    /// The fetched kernel with a name of `kernels.toml`; checks its image.
    ///
    /// # Errors
    /// [`Error::UnknownKernel`], [`Error::NotFetched`], [`Error::Damaged`], or a file error.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let entry = catalog::find(name)?;
        let folder = self.kernel_folder(name);
        let [image, config_path, origin] =
            ["vmlinuz", "config", "kernel.json"].map(|file| folder.join(file));
        if !origin.exists() {
            return Err(Error::NotFetched { name: name.to_owned() });
        }
        let text = fs::read_to_string(&origin).map_err(Error::file("read", &origin))?;
        let parsed: Origin = serde_json::from_str(&text)
            .map_err(|error| Error::Malformed { path: origin, reason: error.to_string() })?;
        let bytes = fs::read(&image).map_err(Error::file("read", &image))?;
        let is_other = |kept: &String| *kept != sha256(&bytes);
        if !is_whole(&bytes) || parsed.image_sha256.as_ref().is_some_and(is_other) {
            return Err(Error::Damaged { path: image, name: name.to_owned() });
        }
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

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// Whether an image is as long as its header says: setup sectors, then the kernel in units of 16
/// bytes (kernel: Documentation/arch/x86/boot.rst, `setup_sects` and `syssize`).
fn is_whole(image: &[u8]) -> bool {
    const MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
    if image.get(MAGIC.0..MAGIC.0 + 4) != Some(MAGIC.1) {
        return false;
    }
    let setup = match image[0x1f1] {
        // 0 means 4, as in the oldest boot protocol.
        0 => 4,
        sectors => usize::from(sectors),
    };
    let paragraphs = image[0x1f4..0x1f8].iter().rev().fold(0, |sum, &b| sum << 8 | usize::from(b));
    image.len() >= (setup + 1) * 512 + paragraphs * 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with one kernel, and the path of its image.
    fn kept(folder: &Path, image_sha256: Option<String>) -> (Cache, PathBuf) {
        let cache = Cache::at(folder.to_owned());
        let kernel = cache.kernel_folder("6.12");
        fs::create_dir_all(&kernel).unwrap();
        let mut image = vec![7; 512 + 512 + 16];
        (image[0x1f1], image[0x1f4]) = (1, 1);
        image[0x1f5..0x1f8].fill(0);
        image[0x202..0x206].copy_from_slice(b"HdrS");
        fs::write(kernel.join("vmlinuz"), image).unwrap();
        let (release, package_version) = ("6.12.1".to_owned(), "1".to_owned());
        let origin = Origin { release, package_version, packages: Vec::new(), image_sha256 };
        fs::write(kernel.join("kernel.json"), serde_json::to_string(&origin).unwrap()).unwrap();
        (cache, kernel.join("vmlinuz"))
    }

    #[test]
    fn an_image_that_differs_from_the_fetched_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, image) = kept(folder.path(), None);
        assert!(cache.kernel("6.12").is_ok());
        let whole = fs::read(&image).unwrap();
        for length in [0, 100, 1000, whole.len() - 1] {
            fs::write(&image, &whole[..length]).unwrap();
            let told = cache.kernel("6.12").unwrap_err().to_string();
            assert!(told.contains("vmlinuz") && told.contains("lab fetch 6.12"), "{told}");
        }
        fs::write(&image, &whole).unwrap();
        kept(folder.path(), Some(sha256(&whole)));
        assert!(cache.kernel("6.12").is_ok());
        let mut other = whole.clone();
        other[1000] ^= 1;
        fs::write(&image, &other).unwrap();
        assert!(matches!(cache.kernel("6.12"), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_missing_kernel_is_told_with_the_command_that_fetches_it() {
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
