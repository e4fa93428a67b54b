//! How long a session lives if it is not closed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use super::error::{PolicyError, PolicyProblem};
use super::field::Field;
use super::file::PolicyFile;
use super::merge::Merge;
use super::text_value::text_value;
use super::units::{Milliseconds, UnitError, duration_pattern};
use crate::outcome::LimitName;

/// When a session that is not closed ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SessionPolicy {
    /// How long it may wait for its next cell. `None` means forever.
    pub idle: Option<Duration>,
    /// How long it may live, in a cell or waiting. `None` means forever.
    pub age: Option<Duration>,
}

impl SessionPolicy {
    /// Reads the policy from the layers.
    pub(super) fn new(layers: Merge) -> Result<Self, PolicyError> {
        Ok(Self {
            idle: term(layers, "session.idle", |file| file.session.idle.as_ref())?,
            age: term(layers, "session.age", |file| file.session.age.as_ref())?,
        })
    }
}

fn term(
    layers: Merge,
    key: &'static str,
    get: impl Fn(&PolicyFile) -> Option<&Field<Term>>,
) -> Result<Option<Duration>, PolicyError> {
    let term = layers.scalar(key, get)?;
    let Term::After(time) = term.value else {
        return Ok(None);
    };
    // A longer duration is meant to have no end.
    let (least, most) = LimitName::Wall.range();
    if (least..=most).contains(&time.0) {
        return Ok(Some(time.duration()));
    }
    let problem = PolicyProblem::OutOfRange {
        value: term.value.to_string(),
        least: Milliseconds(least).to_string(),
        most: format!("{}, or \"{NEVER}\"", Milliseconds(most)),
    };
    Err(PolicyError::new(term.origin, key, problem))
}

/// The word for no limit.
const NEVER: &str = "never";

/// A duration, or `"never"`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Term {
    After(Milliseconds),
    Never,
}

impl From<Option<Duration>> for Term {
    fn from(time: Option<Duration>) -> Self {
        time.map_or(Self::Never, |time| {
            let milliseconds = u64::try_from(time.as_millis());
            Self::After(Milliseconds(milliseconds.unwrap_or(u64::MAX)))
        })
    }
}

/// The error for a text that is neither a duration nor the word.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0}, or \"{NEVER}\"")]
pub(super) struct TermError(UnitError);

impl FromStr for Term {
    type Err = TermError;

    fn from_str(text: &str) -> Result<Self, TermError> {
        match text {
            NEVER => Ok(Self::Never),
            text => text.parse().map(Self::After).map_err(TermError),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(time) => time.fmt(f),
            Self::Never => f.write_str(NEVER),
        }
    }
}

text_value!(Term, "a duration in quotes, such as \"1h\", or \"never\"", "pattern": format!("^{NEVER}$|{}", duration_pattern()));
