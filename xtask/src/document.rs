//! Puts a command's results into the document that shows them.
//!
//! Each command's results are between two markers that Markdown does not render. The
//! text around them is written by hand.

use std::fmt::Display;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::workspace;

const END: &str = "<!-- xtask: end -->\n";

/// Replaces the results of `command` in a file of `docs` by `text`.
pub fn replace(document: &str, command: &str, text: &str) -> Result<()> {
    let path = workspace().join("docs").join(document);
    let old = fs::read_to_string(&path)?;
    let new = between(&old, command, text.trim_end())
        .with_context(|| format!("docs/{document} has no place for what `{command}` found"))?;
    Ok(fs::write(path, new)?)
}

fn between(document: &str, command: &str, text: &str) -> Option<String> {
    let begin = format!("<!-- xtask: what `{command}` found -->\n");
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{text}\n\n{END}{after}"))
}

/// Formats a row of a table.
pub fn row<C: Display>(cells: impl IntoIterator<Item = C>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| format!(" {cell} |")).collect();
    format!("|{}\n", cells.concat())
}

/// Formats the header of a table.
pub fn head<C: Display>(cells: impl IntoIterator<Item = C>) -> String {
    let names = row(cells);
    let columns = names.matches(" |").count();
    format!("{names}|{}\n", "---|".repeat(columns))
}

/// Formats an item of a list.
pub fn item(text: impl Display) -> String {
    format!("- {text}\n")
}

/// Formats the errors of a report, or a sentence if there are none.
pub fn wrong_or(wrong: &Value, nothing: &str) -> String {
    let wrong = wrong
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    match wrong.collect::<Vec<_>>().join("\n") {
        wrong if wrong.is_empty() => format!("{nothing}\n\n"),
        wrong => format!("What was wrong:\n\n```text\n{wrong}\n```\n\n"),
    }
}

/// Returns the date and the machine of a measurement, such as `on 2026-11-22, Linux 6.18, 2 processors`.
pub fn here_and_now() -> Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    // Only major and minor version: the suffix of a distribution or a cloud does not matter to a
    // reader.
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let processors = std::thread::available_parallelism()?;
    let (today, kernel) = (today()?, kernel.join("."));
    Ok(format!(
        "on {today}, Linux {kernel}, {processors} processors"
    ))
}

/// Returns the date, such as `2026-11-22`.
pub fn today() -> Result<String> {
    let sh = Shell::new()?;
    Ok(cmd!(sh, "date -u +%Y-%m-%d").quiet().read()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_replace_the_previous_ones() {
        let begin = "<!-- xtask: what `cargo xtask verify soak` found -->\n";
        let document = format!("# Hosts\n{begin}old\n{END}after\n");
        let expected = format!("# Hosts\n{begin}\nnew\n\n{END}after\n");
        let replaced = between(&document, "cargo xtask verify soak", "new");
        assert_eq!(replaced.as_deref(), Some(expected.as_str()));
        assert_eq!(
            between(&expected, "cargo xtask verify soak", "new"),
            Some(expected.clone())
        );
    }

    #[test]
    fn document_without_markers_is_unchanged() {
        assert_eq!(between("# Hosts\n", "cargo xtask verify soak", "new"), None);
    }
}
