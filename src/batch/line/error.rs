//! Why a line is not a valid task. Each message follows the file's name and the line's number.

use crate::batch::exact_json::ExactJsonError;
use crate::error::{Cause, ErrorKind};
use crate::outcome::LimitName;
use crate::protocol::FrameLimits;
use crate::supervisor::files::PathError;

/// Why a line is not a valid task.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskLineError {
    /// The line is not JSON, or has a key twice.
    #[error(transparent)]
    Json(#[from] ExactJsonError),
    /// The line is JSON, but not an object.
    #[error(
        "it is not a JSON object: write one task a line, such as {{\"id\": 1, \"code\": \"print(1)\"}}"
    )]
    NotAnObject,
    /// The key is unknown.
    #[error("unknown key `{key}`: {remedy}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The key that was meant, or all that there are.
        remedy: String,
    },
    /// The id is invalid.
    #[error("`id` must be a text that is not empty, or a whole number of 64 bits")]
    Id,
    /// There is no code to run.
    #[error("there is nothing to run: give it `code`, `file` or `program`")]
    NothingToRun,
    /// There is more than one thing to run.
    #[error("it has both `{first}` and `{second}`: one task runs one thing")]
    Several {
        /// The first key.
        first: &'static str,
        /// The second key.
        second: &'static str,
    },
    /// `args` beside `program`.
    #[error(
        "`args` are of `code` and `file`: the arguments of a program stand in `program` itself"
    )]
    ArgsOfProgram,
    /// The code is larger than a frame may be.
    #[error(
        "`code` is over the {} MiB that a script may have: keep data in `files`",
        FrameLimits::TO_WORKER.payload >> 20
    )]
    CodeTooLarge,
    /// The value has the wrong type.
    #[error("`{key}` must be {wanted}")]
    Type {
        /// The key.
        key: String,
        /// The type that is required.
        wanted: &'static str,
    },
    /// The value is not base64.
    #[error("`{0}` is not base64: take the standard alphabet (RFC 4648), with padding")]
    Base64(String),
    /// A path in `files` is invalid.
    #[error("`files`: {0}")]
    Path(#[from] PathError),
    /// The value of a limit is invalid.
    #[error("`{}`: {why}", .name.key())]
    Quantity {
        /// The limit.
        name: LimitName,
        /// What is wrong.
        why: String,
    },
    /// A limit is zero.
    #[error("`{}` is zero, under which nothing runs: leave it out for the policy's", .0.key())]
    Zero(LimitName),
    /// Only a policy can set the limit.
    #[error(
        "`{key}` is part of the jail, which tasks of one policy share: set it in the policy (`--set \
         {key}=...`)"
    )]
    OfPolicy { key: String },
    /// The limit exceeds the policy's.
    #[error(
        "`{key}` is above the policy's {allowed}, and a task can only have less: raise that in the \
         policy (`--set {key}=...`)",
        key = .name.key()
    )]
    AbovePolicy {
        /// The limit.
        name: LimitName,
        /// The policy's value.
        allowed: String,
    },
    /// The policy closes the standard input that the task has.
    #[error(
        "it has `stdin`, which the policy does not let tasks read: allow it with `--set \
         stdio.stdin=pass`"
    )]
    StdinClosed,
    /// The task expects nothing.
    #[error("`expect` compares nothing: give it `stdout` or `value`")]
    NothingExpected,
    /// A tolerance beside the comparison of every character.
    #[error(
        "`expect.tolerance` compares words, which `whitespace` = \"exact\" does not: take \"trailing\" or \
         \"any\""
    )]
    ToleranceOfExact,
    /// A key that names a file of the host, where tasks come from elsewhere.
    #[error("`{0}` names a file of the host, which tasks from elsewhere cannot")]
    OfHost(&'static str),
}

impl Cause for TaskLineError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Request
    }
}
