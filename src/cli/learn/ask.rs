//! Asks a person what to allow.

use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::cli::denials::what;
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
) -> io::Result<Answer> {
    let directory = directory_of(set);
    loop {
        writeln!(to, "{}", what(denial))?;
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
        if from.read_line(&mut line)? == 0 {
            return Ok(Answer::Quit);
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

/// The directory of a file that a setting would show. Nothing at the top of the host is offered whole.
fn directory_of(set: &str) -> Option<String> {
    let (key, path) = set.split_once('=')?;
    let shows_path = matches!(key, "filesystem.read" | "filesystem.write");
    let parent = Path::new(path).parent().filter(|_| shows_path)?;
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
    fn a_guests_name_cannot_draw_the_question() {
        let (_, asked) = answered("filesystem.read=/srv/in/x", "y\n");
        assert!(asked.starts_with(r"open /srv/a\u{1b}[2J\nb"), "{asked}");
    }
}
