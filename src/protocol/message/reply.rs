//! The messages from a worker to its supervisor. Their contents are hostile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CellResult, Ended, MessageError, check_payload};
use crate::outcome::value::BufferCheck;
use crate::protocol::{Blob, Frame, JsonLimits, Value};

/// A message from a worker to its supervisor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reply {
    /// The jail is complete and the worker waits for a cell. Sent once, as the first message.
    Ready {
        /// [`VERSION`](crate::protocol::VERSION).
        version: u32,
    },
    /// The result of a cell or a program. A worker that is killed sends none.
    Result(CellResult),
    /// A cell displays data.
    Display(Display),
    /// A cell calls a host tool.
    Call(ToolCall),
    /// The worker is suspended at a copy point, for a snapshot or a restore.
    Standing(CopyPoint),
    /// A step of a restore failed. This is the worker's last message.
    FailedStep(FailedStep),
}

/// A failed step of a restore.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FailedStep {
    /// The index of the step.
    pub step: usize,
    /// The errno of the failure.
    pub errno: i32,
}

/// The state of a worker that is suspended for a snapshot or a restore.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CopyPoint {
    /// The request's number.
    pub id: u64,
    /// The address at which a copy resumes. 0 in a worker that is being restored.
    pub place: u64,
    /// The program break (brk(2)), the end of the heap.
    #[serde(rename = "break")]
    pub program_break: u64,
    /// The thread pointer, the address of the thread's control block.
    #[serde(default)]
    pub thread: u64,
    /// The descriptors of the memory images, in a worker that is being restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<i32>,
    /// The ranges of memory that copies may share until they write to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shareable: Vec<[u64; 2]>,
}

/// Data that a cell displays, in one or more formats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Display {
    /// The cell's number.
    pub id: u64,
    /// The text or bytes in each format, by media type (RFC 6838).
    pub data: BTreeMap<String, Value>,
    /// Whether the display is the value of the cell's last expression.
    #[serde(default)]
    pub main: bool,
    /// The buffers of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// A call of a host tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The cell's number.
    pub id: u64,
    /// The number of the call, which the reply repeats.
    pub call: u64,
    /// The tool's name.
    pub tool: String,
    /// Positional arguments.
    #[serde(default)]
    pub args: Vec<Value>,
    /// Keyword arguments.
    #[serde(default)]
    pub kwargs: BTreeMap<String, Value>,
    /// The arguments' buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

impl Reply {
    /// Parses a worker's frame.
    ///
    /// # Errors
    ///
    /// If the header exceeds a limit, has an unknown kind or lacks a required member, or if the payload or
    /// the values do not match the header. Each error is a protocol violation and ends the session.
    pub fn parse(frame: &Frame) -> Result<Self, MessageError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Kind {
            Ready,
            Result,
            Display,
            Call,
            Standing,
            FailedStep,
        }
        #[derive(Deserialize)]
        struct Ready {
            version: u32,
        }
        let header = JsonLimits::FROM_WORKER.tagged(&frame.header)?;
        let reply = match header.kind {
            Kind::Ready => {
                let Ready { version } = header.members()?;
                Self::Ready { version }
            }
            Kind::Result => Self::Result(header.members()?),
            Kind::Display => Self::Display(header.members()?),
            Kind::Call => Self::Call(header.members()?),
            Kind::Standing => Self::Standing(header.members()?),
            Kind::FailedStep => Self::FailedStep(header.members()?),
        };
        check_payload(frame, reply.blob())?;
        let mut buffers = BufferCheck::new(reply.blob());
        match &reply {
            Self::Ready { .. } | Self::Standing(_) | Self::FailedStep(_) => {}
            Self::Result(result) => match &result.ended {
                Ended::Ok(Some(value)) => buffers.value(value)?,
                Ended::Ok(None) | Ended::Exception(_) | Ended::Exit(_) => {}
            },
            Self::Display(display) => buffers.values(display.data.values())?,
            Self::Call(call) => buffers.values(call.args.iter().chain(call.kwargs.values()))?,
        }
        Ok(reply)
    }

    /// Returns the `blob` field of the message.
    pub const fn blob(&self) -> Option<&Blob> {
        match self {
            Self::Ready { .. } | Self::Standing(_) | Self::FailedStep(_) => None,
            Self::Result(result) => result.blob.as_ref(),
            Self::Display(display) => display.blob.as_ref(),
            Self::Call(call) => call.blob.as_ref(),
        }
    }
}
