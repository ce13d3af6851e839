//! Escapes foreign text in messages, such as names of groups and files.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// Whether a character is a control or invisible one, which may mislead a terminal or a reader.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// The text on one line; hidden characters are shown by number, as in `\u{1b}`.
///
/// ```
/// assert_eq!(cpumax_limit::one_line("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
/// ```
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// A path on one line, as [`one_line`] shows it; bytes that are not UTF-8 are replaced.
pub fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy()).into_owned()
}

/// The text with the chosen characters shown by number, newlines and tabs as `\n` and `\t`;
/// borrowed if there are none.
pub fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if is_hidden(c) => out.push_str("\\n"),
            '\t' if is_hidden(c) => out.push_str("\\t"),
            c if is_hidden(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}
