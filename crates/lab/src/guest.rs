//! Finding the program that runs scenarios, which is built beside this one.

use crate::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "cpumax-guest";

/// The guest program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Where it is.
    pub path: PathBuf,
    /// It itself.
    pub bytes: Vec<u8>,
}

impl Guest {
    /// `$CPUMAX_GUEST`, or `cpumax-guest` beside this program or where `make guest` puts it.
    ///
    /// # Errors
    /// [`Error::NoGuest`] when none of these is there, [`Error::OtherGuest`] when what is there
    /// cannot run without libraries.
    pub fn find() -> Result<Guest, Error> {
        if let Some(path) = std::env::var_os("CPUMAX_GUEST").map(PathBuf::from) {
            let named = ", which $CPUMAX_GUEST names,";
            return Guest::read(path, named)?.map_err(|path| Error::NoGuest { path, named });
        }
        let program = std::env::current_exe().unwrap_or_default();
        Guest::among(candidates(program.parent().unwrap_or(Path::new("."))))
    }

    /// The first that is a guest; else what is wrong with the first that is there.
    fn among(places: Vec<PathBuf>) -> Result<Guest, Error> {
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

    /// The one at this place; the place again, where nothing is.
    fn read(path: PathBuf, named: &'static str) -> Result<Result<Guest, PathBuf>, Error> {
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(path)),
            bytes => bytes.map_err(Error::file("read", &path))?,
        };
        if !is_static(&bytes) {
            return Err(Error::OtherGuest { path, named, what: what_else(&bytes) });
        }
        Ok(Ok(Guest { path, bytes }))
    }
}

/// Beside this program, where it is installed, and in the folder of a build by `make guest`; a test
/// is one folder further down. What `cargo build` makes is elsewhere or of the other kind.
fn candidates(folder: &Path) -> Vec<PathBuf> {
    let places = ["", "../guest/release", "../../guest/release"];
    places.iter().map(|place| folder.join(place).join(NAME)).collect()
}

/// What a program is that is no guest.
fn what_else(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(ELF_64) {
        "needs libraries, as what `cargo build` makes does, and a virtual machine has none"
    } else {
        "is no program for x86-64"
    }
}

/// How an ELF program of 64 bits begins.
const ELF_64: &[u8] = b"\x7fELF\x02\x01";

/// Whether an ELF program names no interpreter, which is what loads libraries.
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
    fn what_is_there_and_no_guest_is_told_and_one_further_on_is_taken() {
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
            Guest::among(places).map(|guest| guest.path).map_err(|error| error.to_string())
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
            // What lies beside the program is of the other kind then, and passed over.
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
