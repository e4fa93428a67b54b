//! The messages from a worker to its supervisor: hostile.

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
    /// A cell or a program ended by itself.
    Result(CellResult),
    /// A cell shows something.
    Display(Display),
    /// A cell calls a host tool.
    Call(ToolCall),
    /// The worker stands: to be copied, or to take on the state of another.
    Standing(CopyPoint),
    /// A step failed by which the worker takes on the state of another. The last message of the worker.
    FailedStep(FailedStep),
}

/// A step that failed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FailedStep {
    /// Its place in the list, from 0.
    pub step: usize,
    /// Its error.
    pub errno: i32,
}

/// Where a worker stands.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CopyPoint {
    /// The request's number.
    pub id: u64,
    /// The address from which a copy goes on.
    pub place: u64,
    /// The end of its heap.
    #[serde(rename = "break")]
    pub program_break: u64,
    /// Where its thread's own data are.
    #[serde(default)]
    pub thread: u64,
    /// The descriptors of the files with the memory that it takes on, if it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<i32>,
    /// Ranges of memory that copies may share until they write to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shareable: Vec<[u64; 2]>,
}

/// Something that a cell shows, in one or more forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Display {
    /// The cell's number.
    pub id: u64,
    /// Forms by their media types (RFC 6838): text, or bytes.
    pub data: BTreeMap<String, Value>,
    /// Whether the display is the value of the cell's last expression.
    #[serde(default)]
    pub main: bool,
    /// The forms' buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// A call of a host tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The cell's number.
    pub id: u64,
    /// A number that the answer repeats.
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
    /// If the header exceeds a limit, is of an unknown kind, or lacks what its kind needs, or the
    /// payload's length differs from the header's. Each is a protocol violation and ends the
    /// session.
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

    /// The buffers of the message.
    pub const fn blob(&self) -> Option<&Blob> {
        match self {
            Self::Ready { .. } | Self::Standing(_) | Self::FailedStep(_) => None,
            Self::Result(result) => result.blob.as_ref(),
            Self::Display(display) => display.blob.as_ref(),
            Self::Call(call) => call.blob.as_ref(),
        }
    }
}
