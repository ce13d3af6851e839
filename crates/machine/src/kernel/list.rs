//! Lists of kernels as people write them: `4.19,6.12..7.3,G2a`.

use super::{Generation, Kernel, KernelError, RELEASES, UNKNOWN_FROM, UNRELEASED, Version, v};

/// Reads one kernel: a version, a generation, an unreleased kernel's or a distribution's name.
///
/// # Errors
/// It cannot be read, or is not modelled.
fn parse_kernel(text: &str) -> Result<Kernel, KernelError> {
    let unreleased = UNRELEASED.iter().find(|kernel| kernel.name.eq_ignore_ascii_case(text));
    if let Some(kernel) = unreleased {
        return Kernel::of(kernel.version);
    }
    match Generation::ALL.iter().find(|g| g.to_string().eq_ignore_ascii_case(text)) {
        Some(generation) => Kernel::of(generation.representative()),
        None if text.split('-').any(|part| part == "rt") => {
            Err(KernelError::RealTime(text.to_owned()))
        }
        None => super::named::by_hand(text),
    }
}

/// Parses a list of kernels such as `4.19,6.12..7.3,G2a`: in its order, each once. A range stands
/// for its two ends and every entry of [`RELEASES`] between them.
///
/// # Errors
/// A part of it cannot be read, or names a kernel that is not modelled.
pub fn parse_kernels(text: &str) -> Result<Vec<Kernel>, KernelError> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut add = |kernel: Kernel| {
        if !kernels.iter().any(|k| k.version == kernel.version) {
            kernels.push(kernel);
        }
    };
    for part in text.split(',').map(str::trim) {
        let Some((low, high)) = part.split_once("..") else {
            add(parse_kernel(part)?);
            continue;
        };
        let low = if low.is_empty() { Kernel::of(RELEASES[0].from)? } else { parse_kernel(low)? };
        let high = match high.strip_prefix('=').unwrap_or(high) {
            "" => Kernel::of(RELEASES[RELEASES.len() - 1].from)?,
            high => parse_kernel(high)?,
        };
        // Unreleased kernels cannot end a range.
        if low.version > high.version || high.version >= UNKNOWN_FROM {
            return Err(KernelError::EmptyRange(part.to_owned()));
        }
        add(low);
        for release in RELEASES {
            if release.from > low.version && release.from < high.version {
                add(Kernel::of(release.from)?);
            }
        }
        add(high);
    }
    Ok(kernels)
}

/// Whether a list (as for [`parse_kernels`]) covers this kernel: by version, within a range, or by
/// generation. An empty list covers all.
///
/// # Errors
/// The list cannot be read.
pub fn covers(list: &str, kernel: &Kernel) -> Result<bool, KernelError> {
    if list.trim().is_empty() {
        return Ok(true);
    }
    let generation = kernel.generation.to_string();
    for part in list.split(',').map(str::trim) {
        let hit = if let Some((low, high)) = part.split_once("..") {
            let low = if low.is_empty() { RELEASES[0].from } else { first_of(low)? };
            let high = if high.is_empty() { UNKNOWN_FROM } else { last_of(high)? };
            (low..=high).contains(&kernel.version)
        } else if Generation::ALL.iter().any(|g| g.to_string().eq_ignore_ascii_case(part)) {
            generation.eq_ignore_ascii_case(part)
        } else {
            parse_kernel(part)?.version == kernel.version
        };
        if hit {
            return Ok(true);
        }
    }
    Ok(false)
}

/// First version that a version (itself) or generation name (its first release) means.
///
/// # Errors
/// The name cannot be read, or is not modelled.
fn first_of(text: &str) -> Result<Version, KernelError> {
    let kernel = parse_kernel(text)?;
    if text.contains('.') {
        return Ok(kernel.version);
    }
    let first = RELEASES.iter().find(|r| r.generation == kernel.generation);
    Ok(first.map_or(kernel.version, |r| r.from))
}

/// Last version that a version (itself) or generation name (before the next generation) means.
///
/// # Errors
/// The name cannot be read, or is not modelled.
fn last_of(text: &str) -> Result<Version, KernelError> {
    let kernel = parse_kernel(text)?;
    if text.contains('.') {
        return Ok(kernel.version);
    }
    let next = RELEASES.iter().find(|r| r.generation > kernel.generation);
    let next = next.map_or(UNKNOWN_FROM, |r| r.from);
    Ok(if next.minor == 0 { v(next.major - 1, u16::MAX) } else { v(next.major, next.minor - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(text: &str) -> Vec<String> {
        parse_kernels(text).unwrap().iter().map(|k| k.version.to_string()).collect()
    }

    #[test]
    fn any_version_finds_its_generation() {
        for (text, generation) in [
            ("3.16.7", Generation::G0),
            ("4.17", Generation::G0),
            ("4.18", Generation::G1),
            ("5.3.8", Generation::G1),
            ("5.4", Generation::G2),
            ("6.1.192", Generation::G2),
            ("v6.5", Generation::G2a),
            ("6.17.3-cloud", Generation::G2a),
            ("6.19", Generation::G3),
            ("7.1", Generation::G3),
            ("7.2.13", Generation::G4),
            ("7.3", Generation::G4F),
        ] {
            assert_eq!(parse_kernels(text).unwrap()[0].generation, generation, "{text}");
        }
    }

    #[test]
    fn ranges_and_generations_are_lists_without_repetition() {
        assert_eq!(
            versions("6.12..7.3"),
            ["6.12", "6.13", "6.14", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.3"]
        );
        assert_eq!(versions("G2a, 6.12,7.3"), ["6.12", "7.3"]);
        assert_eq!(versions("7.1.."), ["7.1", "7.2", "7.3"]);
        assert_eq!(versions("6.13..6.13"), ["6.13"]);
    }

    #[test]
    fn texts_that_name_no_kernel_are_refused() {
        for text in
            ["", "6", "6.x", "six", "3.10", "7.4", "8.0", "7.3..6.1", "6.12,,7.3", "-6.1", "6.1x"]
        {
            assert!(parse_kernels(text).is_err(), "{text}");
        }
        for text in ["7.3-rt", "6.12.117+deb13-rt-amd64"] {
            assert!(matches!(parse_kernels(text), Err(KernelError::RealTime(_))), "{text}");
        }
    }

    #[test]
    fn lists_cover_versions_ranges_and_generations() {
        let kernel = |text: &str| parse_kernels(text).unwrap()[0];
        assert!(covers("", &kernel("6.1")).unwrap());
        assert!(covers("G1,G2", &kernel("5.10")).unwrap());
        assert!(
            covers("G0", &kernel("4.14")).unwrap() && covers("..4.17", &kernel("4.9")).unwrap()
        );
        assert!(!covers("G1,G2", &kernel("6.3")).unwrap());
        assert!(covers("6.18..7.1", &kernel("6.19")).unwrap());
        assert!(!covers("6.18..7.1", &kernel("7.2")).unwrap());
        assert!(covers("G2a..G3", &kernel("7.1")).unwrap());
        assert!(covers("7.2..", &kernel("7.3")).unwrap());
        assert!(covers("4.19", &kernel("4.19")).unwrap());
        assert!(!covers("4.19", &kernel("4.18")).unwrap());
    }
}
