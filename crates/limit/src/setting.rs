//! The grammar of limits on the command line: `[GROUP:]LIMIT`, several of them with commas between.
//!
//! A LIMIT is a value for a file (`cpu.max=50000 100000`, `cpu.weight=50`), or an amount of CPU
//! time for `cpu.max` in the notation of the kernel (`50000 100000`), Kubernetes (`500m`, `0.5`),
//! systemd (`50%/10ms`) or docker (`1.5cpus`). A [`Setting`] keeps the given text beside its parsed
//! parts.

mod amount;
mod elsewhere;
mod error;

pub use error::SettingError;

use crate::{File, Limit, LimitError, Rules};
use amount::{Level, cpu_max, refused, time_us};
use std::fmt;
use std::str::FromStr;

/// Parsed limits of one or several groups: files and their values.
///
/// ```
/// use cpumax_limit::{Limit, Rules, Setting};
///
/// let setting: Setting = "500m,pod:1".parse()?;
/// assert_eq!(setting.understood(), ["500m = 50000 100000", "pod:1 = 100000 100000"]);
/// let container = &setting.parts()[0];
/// let limit = container.apply(Limit::UNLIMITED, &Rules::NEWEST)?.limit;
/// assert_eq!(limit.to_string(), "50000 100000");
/// # Ok::<(), cpumax_limit::SettingError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Setting {
    given: String,
    parts: Vec<Part>,
}

/// The writes to the files of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// The group.
    pub target: Target,
    writes: Vec<Write>,
}

/// The group that a limit is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// The group in question.
    Chosen,
    /// The group above it: the pod of a container.
    Pod,
    /// The group of this path.
    Path(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Write {
    file: SetFile,
    value: String,
    /// The text as given, without the group.
    given: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SetFile {
    Limit(File),
    Weight,
}

/// A file that a kernel does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{file} exists from Linux {since} on")]
pub struct Missing {
    /// Its name.
    pub file: &'static str,
    /// First kernel that has it.
    pub since: &'static str,
}

/// The result of a [`Part`] on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The limit of the group.
    pub limit: Limit,
    /// Its weight, where it is set.
    pub weight: Option<u32>,
    /// Given files that this kernel does not have.
    pub missing: Vec<Missing>,
}

impl Setting {
    /// The parts in the order given; each group occurs once.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Translations of values that are not in the kernel's form: `500m = 50000 100000`.
    pub fn understood(&self) -> Vec<String> {
        let of = |part: &Part| {
            let group = part.target.prefix();
            let translated = part.writes.iter().filter(|write| write.is_translated());
            let told = translated.map(|write| format!("{group}{} = {}", write.given, write.value));
            told.collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of).collect()
    }
}

impl Part {
    /// Applies the writes of this part, in the order given, to `limit`, under a kernel with these
    /// rules; returns the result, with the weight if one is given. A file that the kernel lacks is
    /// left out and listed.
    ///
    /// # Errors
    /// The kernel refuses a value, or has none of the files.
    pub fn apply(&self, limit: Limit, rules: &Rules) -> Result<Applied, SettingError> {
        let mut applied = Applied { limit, weight: None, missing: Vec::new() };
        for write in &self.writes {
            let SetFile::Limit(file) = write.file else {
                applied.weight = Some(weight(&write.value)?);
                continue;
            };
            match applied.limit.write(file, &write.value, rules) {
                Ok(limit) => applied.limit = limit,
                Err(LimitError::NoSuchFile { file, since }) => {
                    applied.missing.push(Missing { file, since });
                }
                Err(why) => return Err(refused(&write.given, why)),
            }
        }
        match applied.missing.first() {
            Some(&missing) if applied.missing.len() == self.writes.len() => {
                let given: Vec<&str> = self.writes.iter().map(|w| w.given.as_str()).collect();
                Err(SettingError::Nothing { given: given.join(","), missing })
            }
            _ => Ok(applied),
        }
    }
}

impl Target {
    /// The group as it stands before a limit: nothing, `pod:`, or its path and a colon.
    fn prefix(&self) -> String {
        match self {
            Target::Chosen => String::new(),
            Target::Pod => "pod:".to_owned(),
            Target::Path(path) => format!("{path}:"),
        }
    }

    /// The group in words, or its path, for errors.
    fn named(&self) -> String {
        match self {
            Target::Chosen => "the group".to_owned(),
            Target::Pod => "the pod".to_owned(),
            Target::Path(path) => path.clone(),
        }
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    /// Parses `[GROUP:]LIMIT`, several with commas between; the error tells the fault and what may
    /// have been meant.
    fn from_str(text: &str) -> Result<Setting, SettingError> {
        let parts = parts_of(text).map_err(|error| match without_comma(text) {
            Some(meant) => SettingError::Comma { text: text.to_owned(), meant },
            None => error,
        })?;
        Ok(Setting { given: text.to_owned(), parts })
    }
}

/// Parses a setting into parts, one for each group. A limit without a group is for that of the
/// limit before it. An error for a group without a limit, two values for one file of a group, or a
/// value that cannot be parsed.
fn parts_of(text: &str) -> Result<Vec<Part>, SettingError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut target = Target::Chosen;
    for piece in pieces(text) {
        let (group, given) = match piece.rsplit_once(':') {
            Some(_) if elsewhere::is_known(&piece) => (None, piece.trim()),
            Some((group, given)) => (Some(group.trim()), given.trim()),
            None => (None, piece.trim()),
        };
        let names_only = group.is_none() && given.starts_with('/');
        if group == Some("") || given.is_empty() || names_only {
            return Err(SettingError::NoLimit { text: text.to_owned() });
        }
        target = match group {
            Some("pod") => Target::Pod,
            Some(path) => Target::Path(path.to_owned()),
            None => target,
        };
        let write = Write::parse(given, target == Target::Pod)?;
        let Some(part) = parts.iter_mut().find(|part| part.target == target) else {
            parts.push(Part { target: target.clone(), writes: vec![write] });
            continue;
        };
        if part.writes.iter().any(|earlier| earlier.file == write.file) {
            let (setting, group) = (text.to_owned(), target.named());
            return Err(SettingError::Twice { setting, file: write.file.name(), group });
        }
        part.writes.push(write);
    }
    Ok(parts)
}

/// The text with commas between digits replaced by points, as in `0,5`, or by spaces, as in
/// `50000,100000`, if that can be parsed.
fn without_comma(text: &str) -> Option<String> {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let is_between = |at: usize| {
        bytes[at] == b',' && is_digit(bytes[..at].last()) && is_digit(bytes.get(at + 1))
    };
    let with = |instead: char| -> String {
        text.char_indices().map(|(at, c)| if is_between(at) { instead } else { c }).collect()
    };
    let meant = [' ', '.'].map(with).into_iter();
    meant.filter(|meant| meant != text).find(|meant| parts_of(meant).is_ok())
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.given)
    }
}

/// Splits at commas, and at ` --` before options of docker. A comma in a path, before its colon,
/// belongs to the path.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    // Options of docker are separated by spaces.
    for piece in text.replace(" --", ",--").split(',') {
        match pieces.last_mut().filter(|path| path.starts_with('/') && !path.contains(':')) {
            Some(path) => {
                path.push(',');
                path.push_str(piece);
            }
            None => pieces.push(piece.trim_start().to_owned()),
        }
    }
    pieces
}

impl Write {
    /// Parses one limit without its group, and checks that the newest kernel takes the value for
    /// the file by itself. `is_pod`: amounts are rounded as for a pod. An error for an unknown
    /// file, a missing or an impossible value.
    fn parse(given: &str, is_pod: bool) -> Result<Write, SettingError> {
        let write = |file, value: String| Write { file, value, given: given.to_owned() };
        let translated = elsewhere::translated(given)?;
        let text = translated.as_deref().unwrap_or(given);
        let Some((name, value)) = text.split_once('=') else {
            if text.starts_with("cpu.") {
                return Err(SettingError::NoValue { text: given.to_owned() });
            }
            let level = if is_pod { Level::Pod } else { Level::Container };
            let value = if is_own(text) { kernels_own(given, text) } else { cpu_max(text, level) };
            return Ok(write(SetFile::Limit(File::CpuMax), value?));
        };
        let (name, value) = (name.trim(), value.trim());
        if name == SetFile::Weight.name() {
            return Ok(write(SetFile::Weight, weight(value)?.to_string()));
        }
        let Some(file) = File::ALL.into_iter().find(|file| file.name() == name) else {
            return Err(SettingError::NoSuchFile { file: name.to_owned() });
        };
        let value = match file {
            File::CpuMax => kernels_own(given, value)?,
            _ => value.to_owned(),
        };
        // Checks that it is a value at all; conflicts with other values are found when it is
        // applied.
        Limit::UNLIMITED.write(file, &value, &Rules::NEWEST).map_err(|why| refused(given, why))?;
        Ok(write(SetFile::Limit(file), value))
    }

    /// Whether the written value differs from the given text by more than white space.
    fn is_translated(&self) -> bool {
        let given = self.given.split_once('=').map_or(self.given.as_str(), |(_, value)| value);
        !given.split_whitespace().eq(self.value.split_whitespace())
    }
}

impl SetFile {
    /// The name in the group's directory.
    fn name(self) -> &'static str {
        match self {
            SetFile::Limit(file) => file.name(),
            SetFile::Weight => "cpu.weight",
        }
    }
}

/// Parses a `cpu.weight` from 1 to 10000; an error for anything else.
fn weight(text: &str) -> Result<u32, SettingError> {
    match text.parse() {
        Ok(weight @ 1..=10_000) => Ok(weight),
        _ => Err(SettingError::Weight { text: text.to_owned() }),
    }
}

/// Whether it looks like the two words of `cpu.max` (`max` or a digit, then a digit), and has no
/// slash.
fn is_own(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let begins = |word: Option<&str>| word.is_some_and(|word| word.starts_with(is_digit));
    let first = words.next();
    (first == Some("max") || begins(first)) && begins(words.next()) && !text.contains('/')
}

/// Whether it is an ASCII digit.
fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Checks a value for `cpu.max` in the kernel's own form, and returns it with single spaces. The
/// kernel stops reading a number at the first other character and ignores the rest; a text with
/// such a rest is refused.
fn kernels_own(given: &str, value: &str) -> Result<String, SettingError> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let written = words.join(" ");
    let whole = match words[..] {
        [quota] => quota == "max" || is_number(quota),
        [quota, period] => (quota == "max" || is_number(quota)) && is_number(period),
        _ => false,
    };
    let read = Limit::UNLIMITED
        .write(File::CpuMax, &written, &Rules::NEWEST)
        .map_err(|why| refused(given, why));
    if whole {
        return read.map(|_| written);
    }
    let digits = |word: &str| word.find(|c: char| !is_digit(c)).unwrap_or(word.len());
    let quota = words.first().map_or("", |word| match *word {
        "max" => word,
        word => &word[..digits(word)],
    });
    if quota.is_empty() {
        return read.and(Err(SettingError::NotALimit { text: given.to_owned() }));
    }
    let period = words.get(1).map_or("", |word| &word[..digits(word)]);
    let read = [quota, period].join(" ").trim_end().to_owned();
    let meant = meant(&read, &words);
    Err(SettingError::CutOff { given: given.to_owned(), read, meant })
}

/// Texts that may have been meant by these words for `cpu.max`, as far as they can be parsed;
/// `read` is what the kernel reads of them.
fn meant(read: &str, words: &[&str]) -> Vec<String> {
    let us = |word: &str| match word {
        "max" => Some("max".to_owned()),
        word => time_us(word).or_else(|| word.parse().ok()).map(|us| us.to_string()),
    };
    let amount = Some(words.join(" "));
    let amount = amount.filter(|text| cpu_max(text, Level::Container).is_ok());
    let in_us: Option<Vec<String>> = words.iter().map(|word| us(word)).collect();
    let in_us =
        in_us.filter(|words| words.len() <= 2).map(|words| format!("cpu.max={}", words.join(" ")));
    let read = Some(format!("cpu.max={read}"));
    let mut meant: Vec<String> = [read, amount, in_us].into_iter().flatten().collect();
    meant.retain(|text| parts_of(text).is_ok());
    meant.dedup();
    meant
}
