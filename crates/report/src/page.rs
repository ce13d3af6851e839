//! Width of printed text, and text broken into lines.

use crate::escape;

const TEXT: u16 = 80;

/// The width of a page, in columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    width: Option<u16>,
}

impl Page {
    /// A page of this width; `None`: tables have no maximum width, and text has 80 columns.
    pub fn of(width: Option<u16>) -> Page {
        Page { width }
    }

    /// Maximum width of a table.
    pub fn width(self) -> Option<u16> {
        self.width
    }

    /// Width of text, and of tables of text.
    pub fn text_width(self) -> u16 {
        self.width.unwrap_or(TEXT)
    }

    /// Breaks text into lines of at most this width, at blanks; escapes it.
    pub fn wrapped(self, text: &str) -> String {
        wrap(text, usize::from(self.text_width()))
    }

    /// Like [`Page::wrapped`], but every line after the first is indented by so many columns; the
    /// first line is as long as the others without their indent.
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
