//! Why a line is no task. Each message goes behind the name of the file and the number of the line.

use crate::outcome::LimitName;
use crate::policy::QuantityError;
use crate::protocol::FrameLimits;
use crate::supervisor::files::PathError;

/// Why a line is no task.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskLineError {
    /// Not JSON.
    #[error("it is not JSON: {what} at column {column}")]
    NotJson {
        /// What is wrong.
        what: String,
        /// Where, from 1.
        column: usize,
    },
    /// It ends before its object does.
    #[error("it is cut off: the line ends before its JSON object does")]
    Cut,
    /// JSON, and something else than an object.
    #[error(
        "it is not a JSON object: write one task a line, such as {{\"id\": 1, \"code\": \"print(1)\"}}"
    )]
    NotAnObject,
    /// A key that no task has.
    #[error("unknown key `{key}`{}", did_you_mean(.meant.as_deref()))]
    UnknownKey {
        /// The key.
        key: String,
        /// The one that may be meant.
        meant: Option<String>,
    },
    /// A key that is there twice.
    #[error("the key `{0}` stands in it twice")]
    Twice(String),
    /// No id.
    #[error("`id` is missing: it is what the result is told by")]
    NoId,
    /// An id that is none.
    #[error("`id` must be a text that is not empty, or a whole number of 64 bits")]
    Id,
    /// Nothing is run.
    #[error("there is nothing to run: give it `code`, `file` or `program`")]
    NothingToRun,
    /// More than one thing is run.
    #[error("it has both `{first}` and `{second}`: one task runs one thing")]
    Several {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// `args` beside `program`.
    #[error(
        "`args` are of `code` and `file`: the arguments of a program stand in `program` itself"
    )]
    ArgsOfProgram,
    /// More than a frame carries.
    #[error(
        "`code` is over the {} MiB that a script may have: keep data in `files`",
        FrameLimits::TO_WORKER.payload >> 20
    )]
    CodeTooLarge,
    /// A value of another type.
    #[error("`{key}` must be {wanted}")]
    Type {
        /// Whose value.
        key: String,
        /// What it has to be.
        wanted: &'static str,
    },
    /// Not base64.
    #[error("`{0}` is not base64: take the standard alphabet (RFC 4648), with padding")]
    Base64(String),
    /// A path in `files`.
    #[error("`files`: {0}")]
    Path(#[from] PathError),
    /// The value of a limit.
    #[error("`{}`: {why}", .name.key())]
    Quantity {
        /// Which limit.
        name: LimitName,
        /// What is wrong.
        why: QuantityError,
    },
    /// A limit of zero.
    #[error("`{}` is zero, under which nothing runs: leave it out for the policy's", .0.key())]
    Zero(LimitName),
    /// A limit that only a policy can have.
    #[error(
        "`{key}` is part of the jail, which tasks of one policy share: set it in the policy (`--set \
         {key}=...`)"
    )]
    OfPolicy {
        /// Its key.
        key: String,
    },
    /// More than the policy allows.
    #[error(
        "`{key}` is above the policy's {allowed}, and a task can only have less: raise that in the \
         policy (`--set {key}=...`)",
        key = .name.key()
    )]
    AbovePolicy {
        /// Which limit.
        name: LimitName,
        /// What the policy allows.
        allowed: String,
    },
    /// The policy closes what the task would read.
    #[error(
        "it has `stdin`, which the policy does not let tasks read: allow it with `--set \
         stdio.stdin=pass`"
    )]
    StdinClosed,
    /// More than the work directory holds.
    #[error(
        "`files` have {bytes} bytes, over the {allowed} of the work directory: raise that in the policy \
         (`--set filesystem.work_size=...`)"
    )]
    FilesTooLarge {
        /// Bytes in all of them.
        bytes: usize,
        /// What the policy allows.
        allowed: String,
    },
}

fn did_you_mean(key: Option<&str>) -> String {
    key.map(|key| format!(": did you mean `{key}`?"))
        .unwrap_or_default()
}
