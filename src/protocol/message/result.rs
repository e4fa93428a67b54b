//! The result of a cell, as its worker reports it.

use serde::{Deserialize, Serialize};

use crate::outcome::ExceptionInfo;
use crate::protocol::{Blob, Value};

/// The result of a cell or a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ResultFields", into = "ResultFields")]
#[non_exhaustive]
pub struct CellResult {
    /// The request's number.
    pub id: u64,
    /// How the cell ended, as the guest reports it.
    pub ended: Ended,
    /// The refused operations that the worker noticed.
    pub denied: Vec<Denied>,
    /// The event that completed the cell.
    pub finish: Finish,
    /// The buffers of the value.
    pub blob: Option<Blob>,
}

/// The event that completed a cell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Finish {
    /// The cell's last statement.
    #[default]
    LastStatement,
    /// The cell's last statement, followed by a semicolon: the value is not displayed.
    Quietly,
    /// A host tool that ends the cell. The return value of the tool is the cell's value.
    Tool,
}

#[cfg(test)]
impl CellResult {
    /// Creates a result without refused operations.
    pub const fn new(id: u64, ended: Ended) -> Self {
        Self {
            id,
            ended,
            denied: Vec::new(),
            finish: Finish::LastStatement,
            blob: None,
        }
    }
}

/// How guest code ended, as its worker reports it. An interrupted cell ends by an exception.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// The code ran to its end, with the value of its last expression if that is not `None`.
    Ok(Option<Value>),
    /// An exception was not caught, or a program could not be started.
    Exception(GuestError),
    /// The guest called `sys.exit`, or a program exited with this status.
    Exit(u8),
}

/// An exception as the guest describes it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct GuestError {
    /// The name of the exception's class.
    pub name: String,
    /// The exception's `str()`.
    pub message: String,
    /// The traceback as Python prints it, with guest frames only.
    #[serde(default)]
    pub traceback: String,
    /// `errno` of an `OSError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// A refused operation that the worker noticed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// The operation: `access`, `run`, `import`, `socket` or `system call`. `more` counts the refusals that are
    /// not listed.
    pub operation: String,
    /// The target of the operation: an absolute path, or the name of a module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The error that the guest got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// For a refused write that the file's permissions would allow: the target, or its nearest existing parent
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
    /// The guest's source file that tried the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The number of times that the operation was refused.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
}

const fn once() -> u64 {
    1
}

// serde requires this signature.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_once(count: &u64) -> bool {
    *count == 1
}

impl GuestError {
    /// Converts to the exception of an outcome.
    pub fn into_exception(self) -> ExceptionInfo {
        ExceptionInfo::new(self.name, self.message, self.traceback)
    }
}

/// The serialized form of [`CellResult`].
#[derive(Serialize, Deserialize)]
struct ResultFields {
    id: u64,
    status: ResultStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<GuestError>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    denied: Vec<Denied>,
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    by_tool: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    quiet: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<Blob>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ResultStatus {
    Ok,
    Exception,
    Exit,
}

impl TryFrom<ResultFields> for CellResult {
    type Error = &'static str;

    fn try_from(fields: ResultFields) -> Result<Self, Self::Error> {
        let ended = match fields.status {
            ResultStatus::Ok => Ended::Ok(fields.value),
            ResultStatus::Exception => {
                Ended::Exception(fields.error.ok_or("an exception without `error`")?)
            }
            ResultStatus::Exit => {
                Ended::Exit(fields.exit_code.ok_or("an exit without `exit_code`")?)
            }
        };
        Ok(Self {
            id: fields.id,
            ended,
            denied: fields.denied,
            finish: match (fields.by_tool, fields.quiet) {
                (true, _) => Finish::Tool,
                (false, true) => Finish::Quietly,
                (false, false) => Finish::LastStatement,
            },
            blob: fields.blob,
        })
    }
}

impl From<CellResult> for ResultFields {
    fn from(result: CellResult) -> Self {
        let CellResult {
            id,
            ended,
            denied,
            finish,
            blob,
        } = result;
        let (status, exit_code, value, error) = match ended {
            Ended::Ok(value) => (ResultStatus::Ok, None, value, None),
            Ended::Exception(error) => (ResultStatus::Exception, None, None, Some(error)),
            Ended::Exit(code) => (ResultStatus::Exit, Some(code), None, None),
        };
        Self {
            id,
            status,
            exit_code,
            value,
            error,
            denied,
            by_tool: finish == Finish::Tool,
            quiet: finish == Finish::Quietly,
            blob,
        }
    }
}
