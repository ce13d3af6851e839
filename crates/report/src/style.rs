//! Weights and colours of text. Callers strip them where they are not wanted.

use crate::escape;
use anstyle::AnsiColor;
use std::fmt::Display;

pub use anstyle::Style;

/// Headings.
pub const BOLD: Style = Style::new().bold();
/// Notes.
pub const DIM: Style = Style::new().dimmed();
/// Results within bounds.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Results slightly beyond bounds.
pub const NEAR: Style = AnsiColor::Yellow.on_default();
/// Failures.
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Text in a style, escaped.
pub fn styled(style: Style, text: impl Display) -> impl Display {
    let reset = style.render_reset();
    let text = text.to_string();
    format!("{style}{}{reset}", escape::lines(&text), style = style.render())
}
