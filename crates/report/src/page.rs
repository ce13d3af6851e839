//! What text is written on: how wide it may be, and text broken into lines.

use crate::escape;

/// Width of text where nothing says how wide it may be.
const TEXT: u16 = 80;

/// How wide what is written may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    width: Option<u16>,
}

impl Page {
    /// So many columns wide; `None`: tables are as wide as they like, and text is as wide as
    /// anywhere.
    pub fn of(width: Option<u16>) -> Page {
        Page { width }
    }

    /// How wide a table may be.
    pub fn width(self) -> Option<u16> {
        self.width
    }

    /// How wide text and tables of text may be.
    pub fn text_width(self) -> u16 {
        self.width.unwrap_or(TEXT)
    }

    /// Text in lines no longer than that, where its words allow it.
    pub fn wrapped(self, text: &str) -> String {
        wrap(text, usize::from(self.text_width()))
    }

    /// The same with every line after the first set in by so many columns; the first starts there.
    pub fn hanging(self, text: &str, indent: usize) -> String {
        let width = usize::from(self.text_width()).saturating_sub(indent);
        wrap(text, width).replace('\n', &format!("\n{:indent$}", ""))
    }
}

fn wrap(text: &str, width: usize) -> String {
    let text = escape::lines(text);
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for word in text.split(' ') {
        let word_length = word.chars().count();
        match lines.last_mut() {
            Some(line) if length + 1 + word_length <= width => {
                line.push(' ');
                line.push_str(word);
                length += 1 + word_length;
            }
            _ => {
                lines.push(word.to_owned());
                length = word_length;
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_words_allow() {
        assert_eq!(wrap("name: a bc def", 8), "name: a\nbc def");
        assert_eq!(wrap("unbreakable a", 4), "unbreakable\na");
        assert_eq!(wrap("", 4), "");
        assert_eq!(Page::of(Some(10)).hanging("a bc def", 4), "a bc\n    def");
    }
}
