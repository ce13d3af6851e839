//! The matrix as a picture: a coloured field with its number for each cell; disagreements in its
//! tooltip.

use super::{Matrix, MatrixCell, sentence, text};
use crate::escape::xml;
use std::fmt::Write;

const ROW: usize = 18;
const COLUMN: usize = 64;
const CHARACTER: usize = 7;
const MARGIN: usize = 8;

/// Upper end of a range of ratios, its colour, and its name.
const SCALE: [(f64, &str, &str); 5] = [
    (0.5, "#1a9850", "to half the tolerance"),
    (1.0, "#91cf60", "within the tolerance"),
    (2.0, "#fee08b", "to twice the tolerance"),
    (5.0, "#fc8d59", "to five times"),
    (f64::INFINITY, "#d73027", "more"),
];
const NOT_RUN: (&str, &str) = ("#dddddd", "not run");
const FAILED: (&str, &str) = ("#888888", "failed");

/// The picture as a complete SVG document.
pub fn svg(matrix: &Matrix, title: &str) -> String {
    let longest = matrix.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let left = 2 * MARGIN + longest * CHARACTER;
    let top = 2 * MARGIN + 2 * ROW;
    let legend = top + matrix.rows.len() * ROW + 2 * MARGIN;
    let entries = SCALE.len() + 2;
    let width = (left + matrix.columns.len() * COLUMN + MARGIN)
        .max(title.chars().count() * CHARACTER + 2 * MARGIN)
        .max(260);
    let height = legend + entries * ROW + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    write_label(&mut out, MARGIN, MARGIN + 12, "start", title);
    for (column, name) in matrix.columns.iter().enumerate() {
        let middle = left + column * COLUMN + COLUMN / 2;
        write_label(&mut out, middle, top - 6, "middle", name);
    }
    for (row, (name, cells)) in matrix.rows.iter().enumerate() {
        let y = top + row * ROW;
        write_label(&mut out, MARGIN, y + 13, "start", name);
        for (column, cell) in cells.iter().enumerate() {
            let what = matrix.columns.get(column).map_or("", String::as_str);
            write_field(&mut out, left + column * COLUMN, y, cell, &format!("{name} on {what}"));
        }
    }
    let scale = SCALE.iter().map(|&(_, colour, name)| (colour, name));
    for (row, (colour, name)) in scale.chain([NOT_RUN, FAILED]).enumerate() {
        let y = legend + row * ROW;
        let _ = writeln!(
            out,
            "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"24\" height=\"{}\" fill=\"{colour}\"/>",
            ROW - 2
        );
        write_label(&mut out, MARGIN + 32, y + 13, "start", name);
    }
    out.push_str("</svg>\n");
    out
}

fn write_field(out: &mut String, x: usize, y: usize, cell: &MatrixCell, name: &str) {
    let (colour, tip) = match cell {
        MatrixCell::Held { ratio, deviations, .. } if deviations.is_empty() => {
            (colour(*ratio), format!("{ratio:.1} of the tolerance"))
        }
        MatrixCell::Held { ratio, deviations, .. } => {
            let tips: Vec<String> = deviations.iter().map(sentence).collect();
            (colour(*ratio), tips.join("; "))
        }
        MatrixCell::Refused(reason) => (NOT_RUN.0, reason.clone()),
        MatrixCell::Failed(reason) => (FAILED.0, reason.clone()),
        MatrixCell::Open => (NOT_RUN.0, NOT_RUN.1.to_owned()),
    };
    let (width, height) = (COLUMN - 2, ROW - 2);
    let tip = xml(&format!("{name}: {tip}"));
    let _ = writeln!(
        out,
        "<g><title>{tip}</title>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"/>"
    );
    write_label(out, x + COLUMN / 2, y + 13, "middle", &text(cell));
    out.push_str("</g>\n");
}

fn colour(ratio: f64) -> &'static str {
    let found = SCALE.iter().find(|(upto, _, _)| ratio <= *upto);
    found.map_or(FAILED.0, |(_, colour, _)| colour)
}

fn write_label(out: &mut String, x: usize, y: usize, anchor: &str, text: &str) {
    let text = xml(text);
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::tests::example;

    #[test]
    fn each_cell_is_a_field_in_the_colour_of_its_worst_number() {
        let text = svg(&example(), "model & <vm>");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<title>").count(), 6);
        assert!(text.contains("model &amp; &lt;vm&gt;"), "{text}");
        assert!(text.contains("it needs 8 CPUs &lt;here&gt;"), "{text}");
        assert!(text.contains("<title>nested on 6.12: 0.4 of the tolerance</title>"), "{text}");
        // Once in the legend, and once in each matching cell.
        for (colour, times) in [("#1a9850", 2), ("#fc8d59", 2), ("#dddddd", 3), ("#888888", 2)] {
            assert_eq!(text.matches(colour).count(), times, "{colour}");
        }
    }

    #[test]
    fn a_matrix_of_nothing_is_a_picture_too() {
        assert!(svg(&Matrix::default(), "").contains("</svg>"));
    }
}
