// SPDX-License-Identifier: GPL-2.0-only
//! Escapes names of cgroups, tasks and arguments before they are printed: terminal sequences, line
//! ends and characters that change the direction of text.

use std::path::Path;

/// The text on one line; hidden characters are shown as `\u{1b}`.
pub fn one_line(text: &str) -> String {
    escaped(text, is_hidden)
}

/// Escapes a text of several lines: newlines and tabs stay.
pub fn lines(text: &str) -> String {
    escaped(text, |c| c != '\n' && c != '\t' && is_hidden(c))
}

/// A path on one line.
pub fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_hidden(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// Whether a character is invisible, or affects the terminal or other characters.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::{lines, one_line};

    #[test]
    fn hidden_characters_are_shown_by_number() {
        let hostile = "a\u{1b}[2Jb\nc\u{202e}d\u{9b}é";
        assert_eq!(one_line(hostile), "a\\u{1b}[2Jb\\nc\\u{202e}d\\u{9b}é");
        assert_eq!(lines(hostile), "a\\u{1b}[2Jb\nc\\u{202e}d\\u{9b}é");
    }
}
