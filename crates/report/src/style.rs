//! Weights and colours of text; whoever prints leaves them out where they are not wanted.

use crate::escape;
use anstyle::AnsiColor;
use std::fmt::Display;

pub use anstyle::Style;

/// A heading.
pub const BOLD: Style = Style::new().bold();
/// What is beside the point.
pub const DIM: Style = Style::new().dimmed();
/// As it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Nearly so.
pub const NEAR: Style = AnsiColor::Yellow.on_default();
/// Not as it should be.
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Text in a style, for `write!`.
pub fn styled(style: Style, text: impl Display) -> impl Display {
    let reset = style.render_reset();
    let text = text.to_string();
    format!("{style}{}{reset}", escape::lines(&text), style = style.render())
}
