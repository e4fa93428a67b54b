//! Asks a person what to allow.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::cli::denials::what;
use crate::cli::failure::Failure;
use crate::cli::terminal::harmless_line;
use crate::outcome::Denial;

/// What a person says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// To allow it, by this setting.
    Yes(String),
    /// Not to.
    No,
    /// To stop.
    Quit,
}

/// Asks about a denial that a setting would allow. Neither has characters that act on a terminal. The end of the input
/// is a wish to stop.
///
/// # Errors
/// If the question cannot be written, or the answer not be read.
pub fn ask(
    denial: &Denial,
    set: &str,
    from: &mut dyn BufRead,
    to: &mut dyn Write,
) -> Result<Answer, Failure> {
    let directory = directory_of(set);
    loop {
        writeln!(to, "{}", what(denial))?;
        if let Some(place) = leads_to(set) {
            writeln!(
                to,
                "  by links it leads to {place}, which the guest would see"
            )?;
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
            // A line that is not UTF-8 is no answer.
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

/// The path of the host that a setting would show.
fn path_of(set: &str) -> Option<&Path> {
    let (key, path) = set.split_once('=')?;
    matches!(key, "filesystem.read" | "filesystem.write").then(|| Path::new(path))
}

/// Where a path that a setting would show leads by links. A guest may have made one in a directory that it writes to.
fn leads_to(set: &str) -> Option<String> {
    let path = path_of(set)?;
    let place = fs::canonicalize(path).ok().filter(|place| place != path)?;
    Some(harmless_line(&place.display().to_string()))
}

/// The directory of a file that a setting would show. Nothing at the top of the host is offered whole.
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

    fn answered(set: &str, said: &str) -> (Answer, String) {
        let mut denial = Denial::new("open", Reporter::Guest);
        denial.target = Some("/srv/a\u{1b}[2J\nb".to_owned());
        let mut asked = Vec::new();
        let answer = ask(&denial, set, &mut said.as_bytes(), &mut asked).unwrap();
        (answer, String::from_utf8(asked).unwrap())
    }

    #[test]
    fn a_person_says_yes_no_or_more() {
        let set = "filesystem.read=/srv/in/x";
        let yes = |set: &str| Answer::Yes(set.to_owned());
        for (said, answer) in [
            ("y\n", yes(set)),
            ("yes\n", yes(set)),
            ("\n", Answer::No),
            ("n\n", Answer::No),
            ("what\nd\n", yes("filesystem.read=/srv/in")),
            ("q\n", Answer::Quit),
            ("", Answer::Quit),
            ("what", Answer::Quit),
        ] {
            assert_eq!(answered(set, said).0, answer, "{said:?}");
        }
    }

    #[test]
    fn a_directory_at_the_top_of_the_host_is_not_offered() {
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
    fn the_question_says_where_a_link_leads() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (secret, link) = (place.join("secret\u{1b}"), place.join("link"));
        fs::write(&secret, "").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let set = |path: &Path| format!("filesystem.read={}", path.display());
        let (_, asked) = answered(&set(&link), "n\n");
        let place = format!(r"leads to {}/secret\x1b, ", place.display());
        assert!(asked.contains(&place), "{asked}");
        assert!(!answered(&set(&secret), "n\n").1.contains("leads to"));
    }

    #[test]
    fn a_guests_name_cannot_draw_the_question() {
        let (_, asked) = answered("filesystem.read=/srv/in/x", "y\n");
        assert!(asked.starts_with(r"open /srv/a\u{1b}[2J\nb"), "{asked}");
    }
}
