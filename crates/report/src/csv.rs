//! A study as CSV (RFC 4180): a line for each limit on each kernel, each number with its range.

use crate::columns::{Column, columns};
use cpumax_forecast::saved::Saved;

/// The whole study, with a header line.
pub fn csv(study: &Saved) -> String {
    let columns = columns(study);
    let head: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let cells: Vec<Vec<String>> = columns.iter().map(|(_, column)| cells(column)).collect();
    let mut out = head.join(",") + "\r\n";
    for at in 0..study.runs.len() {
        let line: Vec<&str> = cells.iter().map(|column| column[at].as_str()).collect();
        out += &(line.join(",") + "\r\n");
    }
    out
}

fn cells(column: &Column) -> Vec<String> {
    match column {
        Column::Text(all) => shown(all, |text| quoted(text)),
        Column::Whole(all) => shown(all, u64::to_string),
        Column::Number(all) => shown(all, f64::to_string),
        Column::Flag(all) => shown(all, bool::to_string),
    }
}

fn shown<T>(all: &[Option<T>], text: impl Fn(&T) -> String) -> Vec<String> {
    all.iter().map(|one| one.as_ref().map(&text).unwrap_or_default()).collect()
}

/// A cell with any text. A leading quote keeps spreadsheets from reading it as a formula.
fn quoted(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) || is_formula {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_cell_and_no_formula() {
        assert_eq!(quoted("web.data"), "web.data");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }
}
