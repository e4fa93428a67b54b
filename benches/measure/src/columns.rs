//! Formats rows of cells as aligned text.

use std::fmt::Write;

/// The header row of a table.
pub fn head<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Aligns words left, and numbers with their header right.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let shapes: Vec<Shape> = (0..count).map(|column| Shape::of(rows, column)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, Shape { width, is_numbers }) in row.iter().zip(&shapes) {
            // Writing to a string does not fail.
            _ = if *is_numbers {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

struct Shape {
    width: usize,
    is_numbers: bool,
}

impl Shape {
    fn of(rows: &[Vec<String>], column: usize) -> Self {
        let cells = || rows.iter().filter_map(|row| row.get(column));
        let widths = cells().map(|cell| cell.chars().count());
        Self {
            width: widths.max().unwrap_or(0),
            is_numbers: cells().skip(1).all(|cell| is_number(cell)),
        }
    }
}

/// Whether a cell is a number, or stands for a missing one.
fn is_number(cell: &str) -> bool {
    cell == MISSING || cell.parse::<f64>().is_ok()
}

/// Stands for a number that is unknown.
pub const MISSING: &str = "-";

/// The number, or the sign for a missing one.
pub fn or_missing(number: Option<String>) -> String {
    number.unwrap_or_else(|| MISSING.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_and_numbers_end_together() {
        let rows = [["", "p50 ms"], ["é", "1.5"], ["bare fork", "-"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            columns(&rows),
            "           p50 ms\né             1.5\nbare fork       -\n"
        );
        let rows = [["ratio", "n"], ["0.1", "10000"], ["all", "1"]];
        let rows = rows.map(head);
        assert_eq!(columns(&rows), "ratio      n\n0.1    10000\nall        1\n");
        assert_eq!(columns(&[]), "");
    }
}
