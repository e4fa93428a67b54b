//! Counts lines of code that are not blank and not part of a comment, a docstring or a test.

use std::ffi::OsStr;
use std::fs;

use anyhow::Result;
use walkdir::WalkDir;

use crate::workspace;

const PARTS: [(&str, &[&str]); 2] = [
    ("product", &["src", "crates", "python/src"]),
    ("tools", &["xtask", "benches", "fuzz"]),
];

/// Prints the number of lines of each part, and of each of its directories.
pub fn run() -> Result<()> {
    for (part, directories) in PARTS {
        let mut sum = 0;
        for directory in directories {
            let lines = count(directory)?;
            println!("{directory:12} {lines:6}");
            sum += lines;
        }
        println!("{part:12} {sum:6}\n");
    }
    Ok(())
}

/// Counts the lines below a directory. Does not follow symlinks, so that a file with two names counts once.
fn count(directory: &str) -> Result<usize> {
    let is_test = |name: &OsStr| {
        ["tests", "tests.rs", "target"]
            .map(OsStr::new)
            .contains(&name)
    };
    let tree = WalkDir::new(workspace().join(directory)).into_iter();
    let mut lines = 0;
    for entry in tree.filter_entry(|entry| !is_test(entry.file_name())) {
        let entry = entry?;
        let count = match entry.path().extension().and_then(OsStr::to_str) {
            Some("rs") => of_rust,
            Some("py") => of_python,
            _ => continue,
        };
        if entry.file_type().is_file() {
            lines += count(&fs::read_to_string(entry.path())?);
        }
    }
    Ok(lines)
}

fn of_rust(text: &str) -> usize {
    let mut lines = text.lines().filter(|line| {
        !matches!(line.trim(), "" | "#![cfg(test)]") && !line.trim().starts_with("//")
    });
    let mut count = 0;
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
            count += 1;
            continue;
        };
        let item = lines.find(|line| !line.trim().starts_with("#["));
        if item.is_some_and(|item| !item.ends_with(['}', ';', ','])) {
            // rustfmt ends an item at the indentation at which it begins.
            let is_end = |line: &str| line.trim_end_matches(';').strip_prefix(indent) == Some("}");
            lines.find(|line| is_end(line));
        }
    }
    count
}

fn of_python(text: &str) -> usize {
    // Whether the string that a line begins in is code and not a docstring.
    let mut open = None;
    let is_code = |line: &&str| {
        let (line, quotes) = (line.trim(), line.matches("\"\"\"").count());
        let begins = line.trim_start_matches('r').starts_with("\"\"\"");
        let is_code = open.unwrap_or(!begins && !line.is_empty() && !line.starts_with('#'));
        if quotes % 2 == 1 {
            open = if open.is_none() { Some(!begins) } else { None };
        }
        is_code
    };
    text.lines().filter(is_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_of_rust_do_not_count() {
        let text = "//! Head.\nuse a;\n\nstruct A {\n    /// Field.\n    a: u8,\n    #[cfg(test)]\n    b: u8,\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn f() {\n    }\n}\nfn g() {} // end\n";
        assert_eq!(of_rust(text), 5);
    }

    #[test]
    fn docstrings_of_python_do_not_count() {
        let text = "\"\"\"Head.\n\nMore.\n\"\"\"\nUSAGE = \"\"\"a\n\nb\n\"\"\"\n# c\ndef f():\n    \"\"\"One.\"\"\"\n    return 1\n";
        assert_eq!(of_python(text), 6);
    }
}
