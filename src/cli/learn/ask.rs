//! Asks the user what to allow.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::cli::denials::what;
use crate::cli::failure::Failure;
use crate::cli::terminal::harmless_line;
use crate::outcome::Denial;

/// The user's answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Allow it with this setting.
    Yes(String),
    /// Do not allow it.
    No,
    /// Stop learning.
    Quit,
}

/// Asks about a denial that a setting would allow. Control characters in both are escaped. EOF means [`Answer::Quit`].
///
/// # Errors
/// If the question cannot be written or the answer cannot be read.
pub fn ask(
    denial: &Denial,
    set: &str,
    from: &mut dyn BufRead,
    to: &mut dyn Write,
) -> Result<Answer, Failure> {
    let directory = directory_of(set);
    loop {
        writeln!(to, "{}", what(denial))?;
        if let Some(place) = link_target(set) {
            writeln!(to, "  it is a link to {place}, which the guest would see")?;
        }
        let or_all = match &directory {
            Some(directory) => format!(", [d] all of {directory}"),
            None => String::new(),
        };
        write!(
            to,
            "  allow it by {set}? [y] yes, [n] no{or_all}, [q] stop: "
        )?;
        to.flush()?;
        let mut line = String::new();
        match from.read_line(&mut line) {
            Ok(0) => return Ok(Answer::Quit),
            Ok(_) => {}
            // Ask again after a line that is not UTF-8.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(error) => return Err(Failure::Input(error)),
        }
        match (line.trim(), &directory) {
            ("y" | "yes", _) => return Ok(Answer::Yes(set.to_owned())),
            ("n" | "no" | "", _) => return Ok(Answer::No),
            ("q" | "quit", _) => return Ok(Answer::Quit),
            ("d", Some(directory)) => {
                let key = set.split('=').next().unwrap_or(set);
                return Ok(Answer::Yes(format!("{key}={directory}")));
            }
            _ => {}
        }
    }
}

/// Returns the host path that a setting would expose.
fn path_of(set: &str) -> Option<&Path> {
    let (key, path) = set.split_once('=')?;
    matches!(key, "filesystem.read" | "filesystem.write").then(|| Path::new(path))
}

/// Returns the link target of a path that a setting would expose. A guest may have created the link in a directory to
/// which it writes.
fn link_target(set: &str) -> Option<String> {
    let path = path_of(set)?;
    let place = fs::canonicalize(path).ok().filter(|place| place != path)?;
    Some(harmless_line(&place.display().to_string()))
}

/// Returns the parent directory of a path that a setting would expose. A top-level directory of the host is not
/// offered.
fn directory_of(set: &str) -> Option<String> {
    let parent = path_of(set)?.parent()?;
    let is_deep = parent.components().count() > 2;
    is_deep.then(|| parent.display().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::outcome::Reporter;

    fn answered(set: &str, input: &str) -> (Answer, String) {
        let mut denial = Denial::new("open", Reporter::Guest);
        denial.target = Some("/srv/a\u{1b}[2J\nb".to_owned());
        let mut prompt = Vec::new();
        let answer = ask(&denial, set, &mut input.as_bytes(), &mut prompt).unwrap();
        (answer, String::from_utf8(prompt).unwrap())
    }

    #[test]
    fn answers_are_parsed() {
        let set = "filesystem.read=/srv/in/x";
        let yes = |set: &str| Answer::Yes(set.to_owned());
        for (input, answer) in [
            ("y\n", yes(set)),
            ("yes\n", yes(set)),
            ("\n", Answer::No),
            ("n\n", Answer::No),
            ("what\nd\n", yes("filesystem.read=/srv/in")),
            ("q\n", Answer::Quit),
            ("", Answer::Quit),
            ("what", Answer::Quit),
        ] {
            assert_eq!(answered(set, input).0, answer, "{input:?}");
        }
    }

    #[test]
    fn top_level_directory_is_not_offered() {
        for set in [
            "filesystem.read=/srv/x",
            "filesystem.read=/x",
            "imports.allow=os",
        ] {
            assert_eq!(answered(set, "d\nn\n").0, Answer::No);
            assert!(!answered(set, "n\n").1.contains("[d]"), "{set}");
        }
    }

    #[test]
    fn question_names_the_link_target() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (secret, link) = (place.join("secret\u{1b}"), place.join("link"));
        fs::write(&secret, "").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let set = |path: &Path| format!("filesystem.read={}", path.display());
        let (_, prompt) = answered(&set(&link), "n\n");
        let place = format!(r"link to {}/secret\x1b, ", place.display());
        assert!(prompt.contains(&place), "{prompt}");
        assert!(!answered(&set(&secret), "n\n").1.contains("link to"));
    }

    #[test]
    fn control_characters_in_a_name_are_escaped() {
        let (_, prompt) = answered("filesystem.read=/srv/in/x", "y\n");
        assert!(prompt.starts_with(r"open /srv/a\u{1b}[2J\nb"), "{prompt}");
    }
}
