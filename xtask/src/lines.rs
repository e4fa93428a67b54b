//! Counts lines of code: those that are not blank, a comment, a docstring or a test.

use std::fs;

use anyhow::Result;
use walkdir::{DirEntry, WalkDir};

use crate::workspace;

const PARTS: [(&str, &[&str]); 2] = [
    ("product", &["src", "crates", "python/src"]),
    ("tools", &["xtask", "benches", "fuzz"]),
];

/// Prints the number of lines of each part, and of each of its directories.
pub fn run() -> Result<()> {
    for (part, directories) in PARTS {
        let counts: Vec<usize> = directories
            .iter()
            .map(|directory| count(directory))
            .collect::<Result<_, _>>()?;
        println!("{part:12} {:6}", counts.iter().sum::<usize>());
        for (directory, count) in directories.iter().zip(counts) {
            println!("  {directory:10} {count:6}");
        }
    }
    Ok(())
}

/// Does not follow symbolic links, so that a file with two names counts once.
fn count(directory: &str) -> Result<usize> {
    let is_counted = |entry: &DirEntry| {
        !matches!(
            entry.file_name().to_str(),
            Some("tests" | "tests.rs" | "target")
        )
    };
    let mut lines = 0;
    for entry in WalkDir::new(workspace().join(directory))
        .into_iter()
        .filter_entry(is_counted)
    {
        let entry = entry?;
        let extension = entry.path().extension().unwrap_or_default();
        if entry.file_type().is_file() && extension == "rs" {
            lines += of_rust(&fs::read_to_string(entry.path())?);
        } else if entry.file_type().is_file() && extension == "py" {
            lines += of_python(&fs::read_to_string(entry.path())?);
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
    /// What a line begins in.
    enum Place {
        Code,
        String,
        Docstring,
    }
    let mut place = Place::Code;
    let is_code = |line: &&str| {
        let (line, quotes) = (line.trim(), line.matches("\"\"\"").count());
        let begins = line.trim_start_matches('r').starts_with("\"\"\"");
        let is_code = match place {
            Place::Code => !begins && !line.is_empty() && !line.starts_with('#'),
            Place::String => true,
            Place::Docstring => false,
        };
        if quotes % 2 == 1 {
            place = match place {
                Place::Code if begins => Place::Docstring,
                Place::Code => Place::String,
                _ => Place::Code,
            };
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
