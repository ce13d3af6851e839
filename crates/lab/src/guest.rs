//! Finds the guest program, which is built beside this one.

use crate::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "cpumax-guest";

/// The guest program, read into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Its path.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

impl Guest {
    /// Reads `$CPUMAX_GUEST`, or `cpumax-guest` beside this program or where `make guest` builds
    /// it.
    ///
    /// # Errors
    /// [`Error::NoGuest`] if there is none, [`Error::OtherGuest`] if the file needs libraries or is
    /// no program for x86-64.
    pub fn find() -> Result<Guest, Error> {
        if let Some(path) = std::env::var_os("CPUMAX_GUEST").map(PathBuf::from) {
            let named = ", which $CPUMAX_GUEST names,";
            return Guest::read(path, named)?.map_err(|path| Error::NoGuest { path, named });
        }
        let program = std::env::current_exe().unwrap_or_default();
        Guest::first_of(candidates(program.parent().unwrap_or(Path::new("."))))
    }

    /// The first guest among these paths; else the error of the first file that exists.
    fn first_of(places: Vec<PathBuf>) -> Result<Guest, Error> {
        let mut wrong = None;
        let mut last = PathBuf::new();
        for path in places {
            match Guest::read(path, "") {
                Ok(Ok(guest)) => return Ok(guest),
                Ok(Err(path)) => last = path,
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        Err(wrong.unwrap_or(Error::NoGuest { path: last, named: "" }))
    }

    /// Reads the guest at a path. Inner error: the path, where no file is.
    fn read(path: PathBuf, named: &'static str) -> Result<Result<Guest, PathBuf>, Error> {
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(path)),
            bytes => bytes.map_err(Error::file("read", &path))?,
        };
        if !is_static(&bytes) {
            return Err(Error::OtherGuest { path, named, what: why_not_guest(&bytes) });
        }
        Ok(Ok(Guest { path, bytes }))
    }
}

/// Paths of the guest: beside this program where it is installed, and where `make guest` builds it,
/// from a program and from a test. `cargo build` makes a dynamic one elsewhere.
fn candidates(folder: &Path) -> Vec<PathBuf> {
    let places = ["", "../guest/release", "../../guest/release"];
    places.iter().map(|place| folder.join(place).join(NAME)).collect()
}

/// Describes a file that is no guest, for [`Error::OtherGuest`].
fn why_not_guest(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(ELF_64) {
        "needs libraries, as what `cargo build` makes does, and a virtual machine has none"
    } else {
        "is no program for x86-64"
    }
}

/// First bytes of a 64-bit ELF program.
const ELF_64: &[u8] = b"\x7fELF\x02\x01";

/// Whether a file is an ELF program without an interpreter, the loader of shared libraries.
pub fn is_static(bytes: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    };
    let is_dynamic = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let kind = |index: u64| {
            let at = index.checked_mul(size).and_then(|offset| table.checked_add(offset));
            at.and_then(|at| number(usize::try_from(at).ok()?, 4))
        };
        Some((0..count).any(|index| kind(index) == Some(u64::from(INTERPRETER))))
    };
    bytes.starts_with(ELF_64) && is_dynamic() == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_told_from_one_that_does_not() {
        assert!(!is_static(&fs::read(std::env::current_exe().unwrap()).unwrap()));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(b"\x7fELF\x02\x01"));
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (program[32], program[54], program[56], program[64]) = (64, 56, 1, 1);
        assert!(is_static(&program));
        program[64] = 3;
        assert!(!is_static(&program));
    }

    #[test]
    fn a_file_that_is_no_guest_is_passed_over_and_told_if_there_is_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(ELF_64);
        (program[32], program[54], program[56], program[64]) = (64, 56, 1, 3);
        fs::write(place("dynamic"), &program).unwrap();
        program[64] = 1;
        fs::write(place("static"), &program).unwrap();
        fs::write(place("script"), "#!/bin/sh\n").unwrap();
        let told = |names: &[&str]| {
            let places = names.iter().map(|name| place(name)).collect();
            Guest::first_of(places).map(|guest| guest.path).map_err(|error| error.to_string())
        };
        assert_eq!(told(&["none", "dynamic", "static"]), Ok(place("static")));
        let dynamic = told(&["none", "dynamic"]).unwrap_err();
        assert!(dynamic.contains("/dynamic") && dynamic.contains("needs libraries"), "{dynamic}");
        assert!(dynamic.contains("make guest"), "{dynamic}");
        assert!(told(&["script"]).unwrap_err().contains("is no program for x86-64"));
        assert!(told(&["none"]).unwrap_err().contains("/none; `make guest` builds it"));
    }

    #[test]
    fn a_build_puts_nothing_where_the_guest_is_looked_for() {
        let made = ["/target/release", "/target/debug"].map(|folder| Path::new(folder).join(NAME));
        for folder in ["/target/release", "/target/debug", "/target/debug/deps"] {
            // The first candidate lies beside the program, and is skipped if dynamic.
            for place in candidates(Path::new(folder)).iter().skip(1) {
                let parts = place.components();
                let mut plain = PathBuf::new();
                for part in parts {
                    match part {
                        std::path::Component::ParentDir => drop(plain.pop()),
                        part => plain.push(part),
                    }
                }
                assert!(!made.contains(&plain), "{}", plain.display());
            }
        }
    }
}
