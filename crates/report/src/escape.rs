//! Escapes names and other text from files: no escape sequences for a terminal, no line ends, no
//! characters that are invisible or reverse the direction of text, no markup.

use cpumax_limit::escaped;
use serde_json::ser::{CompactFormatter, Formatter};
use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write as _;
use std::io;

/// For one line on a terminal, and for paths.
pub use cpumax_limit::{is_hidden, one_line as line, shown as path};

/// Escapes text of several lines; line ends stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_hidden(c))
}

/// Escapes text of several lines, but keeps ANSI styles: colours and weights, nothing that moves
/// the cursor.
pub fn styled_lines(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return lines(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('\u{1b}');
    out.push_str(&lines(parts.next().unwrap_or_default()));
    for part in parts {
        let digits = part
            .strip_prefix('[')
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        let is_style = digits.is_some_and(|rest| rest.starts_with('m'));
        out.push_str(if is_style { "\u{1b}" } else { "\\u{1b}" });
        out.push_str(&lines(part));
    }
    Cow::Owned(out)
}

/// An error and its causes on one line, escaped. A cause that the text before already ends with is
/// left out.
pub fn chain<'a>(errors: impl Iterator<Item = &'a (dyn Error + 'static)>) -> String {
    let mut told = String::new();
    for error in errors.map(ToString::to_string) {
        if told.is_empty() {
            told = error;
        } else if !told.ends_with(&error) {
            told = format!("{told}: {error}");
        }
    }
    lines(&told).into_owned()
}

/// Escapes text for Markdown, also in a cell of a table.
pub fn markdown(text: &str) -> String {
    with_entities(&line(text), |c| {
        matches!(c, '&' | '<' | '>' | '|' | '`' | '\\' | '[' | ']' | '*')
    })
}

/// A name in Markdown: as code unless it contains markup.
pub fn markdown_name(name: &str) -> String {
    let is_plain = !name.is_empty() && !name.chars().any(|c| matches!(c, '|' | '`' | '\\'));
    if is_plain && line(name) == name { format!("`{name}`") } else { markdown(name) }
}

/// Escapes text and attributes for XML: SVG and HTML.
pub fn xml(text: &str) -> String {
    with_entities(&line(text), |c| matches!(c, '&' | '<' | '>' | '"' | '\''))
}

fn with_entities(text: &str, is_markup: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_markup(c) => out.push(c),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
        }
    }
    out
}

/// Formats JSON with hidden characters escaped; parsers read the same text.
#[derive(Debug, Default, Clone, Copy)]
pub struct VisibleJson;

impl Formatter for VisibleJson {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !fragment.chars().any(is_hidden) {
            return CompactFormatter.write_string_fragment(writer, fragment);
        }
        let mut units = [0; 2];
        for c in fragment.chars() {
            if !is_hidden(c) {
                write!(writer, "{c}")?;
                continue;
            }
            for unit in c.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

/// Writes a value as JSON on one line, hidden characters escaped.
///
/// # Errors
/// `writer` fails, or JSON cannot represent the value.
pub fn to_json(writer: impl io::Write, value: &impl serde::Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, VisibleJson))
}

/// A value as indented JSON, hidden characters escaped.
///
/// # Errors
/// JSON cannot represent the value.
pub fn pretty_json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        // Hidden characters occur only inside strings.
        if c == '\n' || !is_hidden(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[31mb\nc\u{202e}d\u{9b}2J\u{200b}|`<x>&\\[y](z)*\u{e0041}é語";

    #[test]
    fn what_is_hidden_is_told() {
        let told = line(HOSTILE);
        assert_eq!(
            told,
            "a\\u{1b}[31mb\\nc\\u{202e}d\\u{9b}2J\\u{200b}|`<x>&\\[y](z)*\\u{e0041}é語"
        );
        assert!(matches!(line("plain é語 \\u"), Cow::Borrowed(_)));
        assert_eq!(lines("a\nb\r\u{7}"), "a\nb\\u{d}\\u{7}");
    }

    #[test]
    fn only_styles_of_our_own_are_kept() {
        assert_eq!(styled_lines("\u{1b}[1mb\u{1b}[0m\n"), "\u{1b}[1mb\u{1b}[0m\n");
        assert_eq!(styled_lines("\u{1b}[38;5;1mb"), "\u{1b}[38;5;1mb");
        for hostile in ["[2J", "]0;title\u{7}", "[6n", "c", "", "[1", "P"] {
            let text = format!("a\u{1b}{hostile}");
            assert!(!styled_lines(&text).contains('\u{1b}'), "{hostile:?}");
        }
    }

    #[test]
    fn causes_are_told_once() {
        let told = |texts: &[&str]| {
            let errors: Vec<std::io::Error> =
                texts.iter().map(|text| std::io::Error::other(*text)).collect();
            chain(errors.iter().map(|error| error as &(dyn Error + 'static)))
        };
        let twice = told(&["reading", "a.toml: no such file", "no such file"]);
        assert_eq!(twice, "reading: a.toml: no such file");
        assert_eq!(told(&["a\u{1b}[2J\nb\u{202e}"]), "a\\u{1b}[2J\nb\\u{202e}");
    }

    #[test]
    fn markup_is_text() {
        for markup in ["|", "`", "<", "\\", "[", "*", "\n", "\u{1b}"] {
            assert!(!markdown(HOSTILE).contains(markup) || markup == "\\", "{markup:?}");
        }
        assert_eq!(markdown("a\\|`"), "a&#92;&#124;&#96;");
        assert_eq!(markdown_name("profile-384"), "`profile-384`");
        assert_eq!(markdown_name("a<b>"), "`a<b>`", "code has no markup");
        assert_eq!(markdown_name("x|y`z"), "x&#124;y&#96;z");
        assert_eq!(xml("<a b='c'>&\u{0}"), "&lt;a b=&#39;c&#39;&gt;&amp;\\u{0}");
    }

    #[test]
    fn json_says_the_same_and_hides_nothing() {
        let mut text = Vec::new();
        to_json(&mut text, &(HOSTILE, 1)).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.chars().any(is_hidden), "{text}");
        assert_eq!(serde_json::from_str::<(String, u8)>(&text).unwrap(), (HOSTILE.to_owned(), 1));
        let text = pretty_json(&(HOSTILE, 1)).unwrap();
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text}");
        assert_eq!(serde_json::from_str::<(String, u8)>(&text).unwrap(), (HOSTILE.to_owned(), 1));
    }
}
