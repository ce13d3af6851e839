//! Finding the program that runs scenarios, which is built beside this one.

use crate::Error;
use std::fs;
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
    /// [`Error::NoGuest`] when none of these is there and linked so that it needs no library.
    pub fn find() -> Result<Guest, Error> {
        if let Some(path) = std::env::var_os("CPUMAX_GUEST").map(PathBuf::from) {
            let bytes = fs::read(&path).map_err(|error| Error::Malformed {
                path: path.clone(),
                reason: format!("$CPUMAX_GUEST names it as the guest program, but {error}"),
            })?;
            return if is_static(&bytes) {
                Ok(Guest { path, bytes })
            } else {
                Err(Error::Malformed { path, reason: "not a static program".to_owned() })
            };
        }
        let program = std::env::current_exe().unwrap_or_default();
        let candidates = candidates(program.parent().unwrap_or(Path::new(".")));
        let read = |path: &PathBuf| {
            let bytes = fs::read(path).ok().filter(|bytes| is_static(bytes))?;
            Some(Guest { path: path.clone(), bytes })
        };
        let found = candidates.iter().find_map(read);
        found.ok_or_else(|| Error::NoGuest { path: candidates[0].clone() })
    }
}

/// Beside this program, and in the folders of a build of either kind; a test is one folder further
/// down.
fn candidates(folder: &Path) -> Vec<PathBuf> {
    let places = ["", "../guest/release", "../../guest/release", "../release", "../../release"];
    places.iter().map(|place| folder.join(place).join(NAME)).collect()
}

/// Whether an ELF program names no interpreter, which is what loads libraries.
pub fn is_static(bytes: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    };
    let is_dynamic = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let kind = |index| number(usize::try_from(table + index * size).ok()?, 4);
        Some((0..count).any(|index| kind(index) == Some(u64::from(INTERPRETER))))
    };
    bytes.starts_with(b"\x7fELF\x02\x01") && is_dynamic() == Some(false)
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
}
