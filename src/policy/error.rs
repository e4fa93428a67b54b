//! Why a policy cannot be used: one sentence with the place, the problem and the remedy.

use crate::error::{Cause, ErrorKind};
use std::path::PathBuf;

use thiserror::Error;

use super::effective::Policy;
use super::origin::Origin;

/// A policy that cannot be used. Its text is one sentence: place, key, problem, remedy.
#[derive(Debug, Error)]
#[error("{origin}: {}{problem}", .key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
pub struct PolicyError {
    origin: Origin,
    key: Option<String>,
    // Boxed: `Result<Policy, PolicyError>` is passed through every function of the loader.
    problem: Box<PolicyProblem>,
}

impl PolicyError {
    pub(super) fn new(origin: Origin, key: impl Into<String>, problem: PolicyProblem) -> Self {
        Self {
            origin,
            key: Some(key.into()),
            problem: Box::new(problem),
        }
    }

    pub(super) fn of_file(origin: Origin, problem: PolicyProblem) -> Self {
        Self {
            origin,
            key: None,
            problem: Box::new(problem),
        }
    }
}

/// A policy that is refused, with all of its errors.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The errors. There is at least one.
    pub(crate) errors: Vec<PolicyError>,
    /// The policy without the values that are wrong, for further checks, if all its texts can be read.
    pub(crate) rest: Option<Box<Policy>>,
}

impl Refused {
    /// The error to fix first.
    pub(super) fn first(self) -> PolicyError {
        let first = self.errors.into_iter().next();
        first.expect("a refused policy has an error")
    }
}

impl From<Vec<PolicyError>> for Refused {
    fn from(errors: Vec<PolicyError>) -> Self {
        Self { errors, rest: None }
    }
}

/// What is wrong and where, for the tests.
#[cfg(feature = "internals")]
impl PolicyError {
    /// The place of the error.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The dotted key, if the problem is with one key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What is wrong.
    pub fn problem(&self) -> &PolicyProblem {
        &self.problem
    }
}

/// What is wrong with a policy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyProblem {
    /// A name that is neither a built-in policy nor a file.
    #[error("no built-in policy and no file is called \"{name}\": {hint}")]
    UnknownPolicy {
        /// The name.
        name: String,
        /// What to write instead.
        hint: String,
    },
    /// A policy file that cannot be read.
    #[error("{} cannot be read: {cause}; check the path and its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The text is not TOML.
    #[error("this is not valid TOML ({message}): mend the syntax here")]
    Syntax {
        /// The parser's message.
        message: String,
    },
    /// A key that no policy file accepts.
    #[error("unknown key: {hint}")]
    UnknownKey {
        /// What to write instead.
        hint: String,
    },
    /// A value that the key does not accept.
    #[error("{message}")]
    WrongValue {
        /// The reason, and what to write.
        message: String,
    },
    /// Policies that extend each other in a cycle.
    #[error("{chain} is a circle: remove one `extends`")]
    ExtendsCycle {
        /// The policies, joined by arrows.
        chain: String,
    },
    /// A chain of `extends` that is too long.
    #[error("more than {limit} policies extend each other: join some of them into one file")]
    ExtendsTooDeep {
        /// The longest chain allowed.
        limit: usize,
    },
    /// An `extends` on the command line.
    #[error("only a policy file can extend another: choose the policy with --policy")]
    ExtendsInOverride,
    /// An item that a list already has.
    #[error("\"{item}\" is already in this list at {first}: remove it here")]
    Duplicate {
        /// The item.
        item: String,
        /// Where the item was written first.
        first: Origin,
    },
    /// An item to remove that no earlier policy has.
    #[error("no policy that this one builds on has \"{item}\" in this list: {hint}")]
    NothingToRemove {
        /// The item.
        item: String,
        /// What to write instead.
        hint: String,
    },
    /// `*` beside other import patterns.
    #[error(
        "\"*\" allows every module and {other_origin} allows \"{other}\": remove one of the two"
    )]
    EverythingAndMore {
        /// Another pattern.
        other: String,
        /// Where the other pattern was written.
        other_origin: Origin,
    },
    /// A path that is both read-only and writable.
    #[error(
        "\"{}\" is to be read-only, but {write_origin} makes \"{}\" writable: remove one of the two",
        read.display(), write.display()
    )]
    ReadInsideWrite {
        /// The read-only path.
        read: PathBuf,
        /// The writable path that contains it.
        write: PathBuf,
        /// Where the writable path was written.
        write_origin: Origin,
    },
    /// A system call that is both allowed and denied.
    #[error(
        "\"{syscall}\" is allowed here and denied at {deny_origin}: remove one, or extend a policy that does not deny it"
    )]
    AllowedAndDenied {
        /// The system call.
        syscall: String,
        /// Where the system call is denied.
        deny_origin: Origin,
    },
    /// A limit outside the range that a sandbox can enforce or run under.
    #[error("{value} is out of range: write {least} to {most}")]
    OutOfRange {
        /// The value, in the key's unit.
        value: String,
        /// The least value.
        least: String,
        /// The greatest value.
        most: String,
    },
    /// A variable that is both set and passed.
    #[error(
        "\"{name}\" is taken from the caller here and set at {set_origin}: remove one of the two"
    )]
    EnvSetAndPassed {
        /// The variable.
        name: String,
        /// Where it is set.
        set_origin: Origin,
    },
    /// An override that is not `KEY=VALUE`.
    #[error(
        "\"{text}\" is not an override: write KEY=VALUE with a key of the policy file, such as limits.wall=2s"
    )]
    OverrideSyntax {
        /// The argument.
        text: String,
    },
}

impl Cause for PolicyError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Policy
    }
}
