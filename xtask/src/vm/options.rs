//! The arguments of `cargo xtask verify vm`.

use super::job::{Cgroups, User};
use super::kernel::Line;
use super::suite::Suite;
use crate::Error;

/// The options of the command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// The kernels. Each is booted for each user.
    pub kernels: Vec<Line>,
    /// The users who run the tests.
    pub users: Vec<User>,
    /// The kind of cgroups.
    pub cgroups: Cgroups,
    /// The suites to run; all if none is named.
    pub tests: Vec<Suite>,
    /// Arguments for each suite.
    pub arguments: Vec<String>,
    /// The purpose of the guests.
    pub purpose: Purpose,
    /// Whether the matrix keeps what an earlier one found where nothing failed.
    pub earlier: Earlier,
}

/// What becomes of the findings of an earlier matrix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Earlier {
    /// Every kind of host is looked at anew.
    Discard,
    /// Only those where something failed, or that were not reached.
    Keep,
}

/// The purpose of booting guests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// To run tests.
    Tests,
    /// To run this shell command instead.
    Command(String),
    /// To measure the cost of a cgroup, for the document.
    Bench,
    /// To find out which levels each kind of host gives, for the document.
    Matrix,
}

impl Options {
    /// Parses the arguments. If no kernel or user is named, all of them are used.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut options = Self {
            kernels: Vec::new(),
            users: Vec::new(),
            cgroups: Cgroups::V2,
            tests: Vec::new(),
            arguments: Vec::new(),
            purpose: Purpose::Tests,
            earlier: Earlier::Discard,
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
                "--cgroups" => options.cgroups = value()?.parse()?,
                "--test" => options.tests.push(value()?.parse()?),
                "--command" => options.purpose = Purpose::Command(value()?),
                "--bench" => options.purpose = Purpose::Bench,
                "--resume" => options.earlier = Earlier::Keep,
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
        if options.tests.is_empty() {
            options.tests.extend(Suite::ALL);
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
            cgroups: Cgroups::V2,
            tests: vec![Suite::Kernel],
            arguments: vec!["--exact".to_owned(), "a".to_owned()],
            purpose: Purpose::Tests,
            earlier: Earlier::Discard,
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
            (
                &["--test", "tidy"],
                "unknown test `tidy`: there are kernel, seccomp_kernel, escape, landlock_level, faults, python",
            ),
            (
                &["--cgroups", "3"],
                "unknown cgroups `3`: there are v2, v1, none",
            ),
            (&["--fast"], "unknown argument `--fast`"),
        ] {
            assert_eq!(parse(line), Err(error.to_owned()));
        }
    }
}
