//! Puts a command's results into the document that shows them.
//!
//! A document has a place for each command between two marks that Markdown does not render. The
//! text around them is written by hand, and the figures are not.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;

const END: &str = "<!-- xtask: end -->\n";

/// Replaces the results of `command` in `document` by `text`.
pub fn replace(document: &Path, command: &str, text: &str) -> Result<(), Error> {
    let old = fs::read_to_string(document)?;
    let name = document.display();
    let new = between(&old, command, text.trim_end())
        .ok_or_else(|| format!("{name} has no place for what `{command}` found"))?;
    Ok(fs::write(document, new)?)
}

fn between(document: &str, command: &str, text: &str) -> Option<String> {
    let begin = format!("<!-- xtask: what `{command}` found -->\n");
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{text}\n\n{END}{after}"))
}

/// The date and the machine of a measurement: `on 2026-11-22, Linux 6.18, 2 processors`.
pub fn here_and_now() -> Result<String, Error> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    // Only major and minor version: the suffix of a distribution or a cloud does not matter to a
    // reader.
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let processors = std::thread::available_parallelism()?;
    Ok(format!(
        "on {}, Linux {}, {processors} processors",
        today()?,
        kernel.join(".")
    ))
}

/// The date, as `2026-11-22`.
pub fn today() -> Result<String, Error> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    Ok(String::from_utf8(date.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_takes_the_place_of_the_last() {
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
    fn a_document_without_a_place_is_left_alone() {
        assert_eq!(between("# Hosts\n", "cargo xtask verify soak", "new"), None);
    }
}
