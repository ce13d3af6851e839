//! Ranges in names: one table of a scenario file that stands for many groups or kinds of task.
//!
//! `{0..9}` in a text stands for ten texts, each with one of the numbers in its place. Several
//! ranges stand for every combination, the last one changing fastest. `{{0..9}`, with one more
//! brace, is the text `{0..9}`. Other braces have no meaning.

use super::fields::{Fields, Read};
use crate::bounds::{MAX_GROUPS, MAX_KINDS, MAX_PATH_BYTES};
use crate::error::{Error, Refusal};
use crate::units::quoted;

/// Paths of the groups that `path` stands for, when `listed` groups exist already.
pub(super) fn groups(path: &str, listed: usize) -> Read<Vec<String>> {
    expand(path, MAX_GROUPS.saturating_sub(listed as u64))
}

/// The name and the group of each kind that a `[[task]]` stands for, when `listed` kinds exist
/// already. Ranges in its group must give as many groups as names.
pub(super) fn tasks(fields: &Fields<'_>, listed: usize) -> Read<Vec<(String, String)>> {
    let room = MAX_KINDS.saturating_sub(listed as u64);
    let texts = |text, field| expand(text, room).map_err(|refusal| refusal.at(fields.at(field)));
    let names = texts(fields.name("name")?, "name")?;
    let groups = texts(fields.text("group")?.unwrap_or("/"), "group")?;
    if groups.len() != 1 && groups.len() != names.len() {
        let problem = format!("{} groups for {} kinds of task", groups.len(), names.len());
        let accepted = "ranges in `name` that give as many names as there are groups";
        return Err(Refusal::new(Error::Name, problem, accepted).at(fields.at("group")));
    }
    Ok(names.into_iter().zip(groups.into_iter().cycle()).collect())
}

/// Every text that `text` stands for, at most `room`; without a range only itself.
fn expand(text: &str, room: u64) -> Read<Vec<String>> {
    if text.len() as u64 > 2 * MAX_PATH_BYTES {
        // Too long for a name or a path: the checks refuse it.
        return Ok(vec![text.to_owned()]);
    }
    let mut texts = vec![String::new()];
    let mut rest = text;
    while let Some((before, low, high, after)) = next_range(rest) {
        if let Some(kept) = before.strip_suffix('{') {
            let itself = &rest[before.len()..rest.len() - after.len()];
            for text in &mut texts {
                text.extend([kept, itself]);
            }
            rest = after;
            continue;
        }
        let refuse = |problem: String| Refusal::new(Error::Value, problem, "such as {0..9}");
        if low > high {
            return Err(refuse(format!(
                "the range {{{low}..{high}}} in {} is empty",
                quoted(text)
            )));
        }
        let many = (high - low).saturating_add(1).saturating_mul(texts.len() as u64);
        if many > room {
            return Err(refuse(format!("{} stands for too many names", quoted(text))));
        }
        let with = |start: &String, number: u64| format!("{start}{before}{number}");
        texts = texts.iter().flat_map(|start| (low..=high).map(move |n| with(start, n))).collect();
        rest = after;
    }
    for text in &mut texts {
        text.push_str(rest);
    }
    Ok(texts)
}

/// Escapes the ranges in a text.
pub(crate) fn as_itself(text: &str) -> String {
    let mut escaped = String::new();
    let mut rest = text;
    while let Some((before, _, _, after)) = next_range(rest) {
        let itself = &rest[before.len()..rest.len() - after.len()];
        escaped.extend([before, "{", itself]);
        rest = after;
    }
    escaped + rest
}

/// The text before the first range of `text`, its two numbers, and the text after it.
fn next_range(text: &str) -> Option<(&str, u64, u64, &str)> {
    for (open, _) in text.match_indices('{') {
        let (inside, after) = text[open + 1..].split_once('}')?;
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        if let Some((low, high)) = inside.split_once("..")
            && let (Some(low), Some(high)) = (number(low), number(high))
        {
            return Some((&text[..open], low, high, after));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_give_every_combination_in_order() {
        assert_eq!(expand("/a", 100).unwrap(), ["/a"]);
        assert_eq!(expand("/a{9..11}/b", 100).unwrap(), ["/a9/b", "/a10/b", "/a11/b"]);
        assert_eq!(expand("{0..1}{3..4}", 100).unwrap(), ["03", "04", "13", "14"]);
        assert_eq!(expand("x{7..7}", 100).unwrap(), ["x7"]);
    }

    #[test]
    fn other_braces_are_themselves() {
        for text in ["{}", "{a..b}", "{1-2}", "{1..", "}{", "{..2}", "{+1..2}", "{1...2}"] {
            assert_eq!(expand(text, 100_000).unwrap(), [text], "{text}");
        }
        assert_eq!(expand("{{0..1}", 100).unwrap(), ["{0..1}"]);
        assert_eq!(expand("a{{0..1}{2..3}", 100).unwrap(), ["a{0..1}2", "a{0..1}3"]);
        assert_eq!(expand("{x}{0..1}", 100).unwrap(), ["{x}0", "{x}1"]);
    }

    #[test]
    fn any_text_can_be_itself() {
        for text in ["w{0..3}", "{{0..3}", "{{{0..3}}", "{0..1}{2..1}", "a", "{", "{x}{0..", ""] {
            assert_eq!(expand(&as_itself(text), 100).unwrap(), [text], "{text}");
        }
    }

    #[test]
    fn empty_and_huge_ranges_are_refused() {
        for text in ["{2..1}", "{0..18446744073709551615}", "{0..999}{0..999}", "{0..99999}{0..1}"]
        {
            assert!(expand(text, 100_000).is_err(), "{text}");
        }
    }
}
