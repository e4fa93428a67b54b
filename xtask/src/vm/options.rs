//! The arguments of `cargo xtask vm`.

use super::job::User;
use super::kernel::Line;
use crate::Error;

/// What is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Each is booted for each user.
    pub kernels: Vec<Line>,
    /// Who runs the tests.
    pub users: Vec<User>,
    /// Test programs; all of them where none is named.
    pub tests: Vec<String>,
    /// Passed to each of them.
    pub arguments: Vec<String>,
    /// What is done with the guests.
    pub purpose: Purpose,
}

/// What guests are booted for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// To run tests.
    Tests,
    /// To run this command of the shell instead.
    Command(String),
    /// To find out which levels each kind of host gives, for the document.
    Matrix,
}

impl Options {
    /// Reads them; a kernel or user that is not named is each of them.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut options = Self {
            kernels: Vec::new(),
            users: Vec::new(),
            tests: Vec::new(),
            arguments: Vec::new(),
            purpose: Purpose::Tests,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.ok_or_else(|| format!("{argument} takes a value"))
            };
            match argument.as_str() {
                "--kernel" => options.kernels.push(value()?.parse()?),
                "--user" => options.users.push(value()?.parse()?),
                "--test" => options.tests.push(value()?),
                "--command" => options.purpose = Purpose::Command(value()?),
                "--matrix" => options.purpose = Purpose::Matrix,
                "--" => options.arguments.extend(arguments.by_ref()),
                _ => return Err(format!("unknown argument `{argument}`").into()),
            }
        }
        if options.kernels.is_empty() {
            options.kernels.extend(Line::ALL);
        }
        if options.users.is_empty() {
            options.users.extend(User::TESTING);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let arguments = arguments.iter().map(|it| (*it).to_owned());
        Options::parse(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_named_is_all() {
        let options = parse(&[]).expect("options");
        assert_eq!((options.kernels.len(), options.users.len()), (2, 3));
    }

    #[test]
    fn the_rest_is_for_the_tests() {
        let line = [
            "--kernel", "6.1", "--user", "plain", "--test", "kernel", "--", "--exact", "a",
        ];
        let expected = Options {
            kernels: vec![Line::V6_1],
            users: vec![User::Plain],
            tests: vec!["kernel".to_owned()],
            arguments: vec!["--exact".to_owned(), "a".to_owned()],
            purpose: Purpose::Tests,
        };
        assert_eq!(parse(&line), Ok(expected));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (line, error) in [
            (&["--kernel"][..], "--kernel takes a value"),
            (
                &["--user", "me"],
                "unknown user `me`: there are root, delegated, plain, service, subgroup",
            ),
            (&["--fast"], "unknown argument `--fast`"),
        ] {
            assert_eq!(parse(line), Err(error.to_owned()));
        }
    }
}
