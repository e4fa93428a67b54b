//! Formats rows of cells as aligned text.

use std::fmt::Write;

/// A column: its title, and a function that returns the text for a row; `None` for an unknown number.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> Option<String>);

/// Formats the rows. Text is aligned left, numbers with their title right.
pub fn table<T>(rows: &[T], columns: &[Column<T>]) -> String {
    let titles: Vec<String> = columns
        .iter()
        .map(|(title, _)| (*title).to_owned())
        .collect();
    let row = |row: &T| {
        let cells = columns.iter().map(|(_, cell)| cell(row));
        cells
            .map(|cell| cell.unwrap_or_else(|| MISSING.to_owned()))
            .collect()
    };
    let rows: Vec<Vec<String>> = [titles].into_iter().chain(rows.iter().map(row)).collect();
    let shapes: Vec<Shape> = (0..columns.len())
        .map(|column| Shape::of(&rows, column))
        .collect();
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

/// Returns whether a cell is a number or the placeholder of one.
fn is_number(cell: &str) -> bool {
    cell == MISSING || cell.parse::<f64>().is_ok()
}

/// The placeholder of an unknown number.
const MISSING: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_and_numbers_are_right_aligned() {
        let name: Column<(&str, &str)> = ("", &|row| Some(row.0.to_owned()));
        let time: Column<(&str, &str)> = ("p50 ms", &|row| {
            Some(row.1.to_owned()).filter(|it| it != "0")
        });
        assert_eq!(
            table(&[("é", "1.5"), ("bare fork", "0")], &[name, time]),
            "           p50 ms\né             1.5\nbare fork       -\n"
        );
        let words = table(
            &[("0.1", "10"), ("all", "1")],
            &[name, ("n", &|row| Some(row.1.to_owned()))],
        );
        assert_eq!(words, "      n\n0.1  10\nall   1\n");
    }
}
