//! Parsing of a caller's frames.

use std::path::PathBuf;

use serde::Deserialize;

use super::{ClientRequest, ProgramTerminal};
use crate::protocol::message::{MessageError, check_payload};
use crate::protocol::{Frame, JsonLimits};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Open,
    Cell,
    Set,
    Tools,
    Return,
    Decide,
    Interrupt,
    Restart,
    Snapshot,
    Pause,
    Rollback,
    Discard,
    Save,
    File,
    Program,
    Attach,
    Programs,
    Watch,
    Input,
    Signal,
    Size,
    Close,
    Map,
    Task,
    End,
}

#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

#[derive(Deserialize)]
struct Decide {
    question: u64,
    #[serde(default)]
    allowed: Option<bool>,
}

#[derive(Deserialize)]
struct Input {
    id: u64,
    #[serde(default)]
    end: bool,
}

#[derive(Deserialize)]
struct Signal {
    id: u64,
    signal: i32,
}

#[derive(Deserialize)]
struct Attach {
    session: u64,
    pid: i32,
}

#[derive(Deserialize)]
struct OfSession {
    session: u64,
}

#[derive(Deserialize)]
struct Discard {
    snapshot: u64,
}

#[derive(Deserialize)]
struct Save {
    snapshot: u64,
    path: PathBuf,
}

impl ClientRequest {
    /// Parses a caller's frame.
    ///
    /// # Errors
    ///
    /// If the header exceeds a limit, is of an unknown kind, or lacks what its kind needs.
    pub fn parse(frame: &Frame) -> Result<Self, MessageError> {
        let header = JsonLimits::FROM_CALLER.tagged(&frame.header)?;
        let ask = match header.kind {
            Kind::Open => Self::Open(header.members()?),
            Kind::Cell => Self::Cell(header.members()?),
            Kind::Set => Self::Set(header.members()?),
            Kind::Tools => Self::Tools(header.members()?),
            Kind::Return => Self::Return(header.members()?),
            Kind::Decide => {
                let Decide { question, allowed } = header.members()?;
                Self::Decide { question, allowed }
            }
            Kind::Interrupt => Self::Interrupt,
            Kind::Restart => {
                let Numbered { id } = header.members()?;
                Self::Restart { id }
            }
            Kind::Snapshot => {
                let Numbered { id } = header.members()?;
                Self::Snapshot { id }
            }
            Kind::Pause => {
                let Numbered { id } = header.members()?;
                Self::Pause { id }
            }
            Kind::Rollback => {
                let Numbered { id } = header.members()?;
                let Discard { snapshot } = header.members()?;
                Self::Rollback { id, snapshot }
            }
            Kind::Discard => {
                let Discard { snapshot } = header.members()?;
                Self::Discard { snapshot }
            }
            Kind::Save => {
                let Save { snapshot, path } = header.members()?;
                Self::Save { snapshot, path }
            }
            Kind::File => Self::File(header.members()?),
            Kind::Program => Self::Program(header.members()?),
            Kind::Input => {
                let Input { id, end } = header.members()?;
                Self::Input { id, end }
            }
            Kind::Signal => {
                let Signal { id, signal } = header.members()?;
                Self::Signal { id, signal }
            }
            Kind::Size => {
                let Numbered { id } = header.members()?;
                let size: ProgramTerminal = header.members()?;
                Self::Size { id, size }
            }
            Kind::Attach => {
                let Attach { session, pid } = header.members()?;
                Self::Attach { session, pid }
            }
            Kind::Programs => {
                let OfSession { session } = header.members()?;
                Self::Programs { session }
            }
            Kind::Watch => Self::Watch(header.members()?),
            Kind::Close => Self::Close,
            Kind::Map => Self::Map(header.members()?),
            Kind::Task => Self::Task(header.members()?),
            Kind::End => Self::End,
        };
        if !matches!(ask, Self::Cell(_) | Self::Task(_) | Self::Input { .. }) {
            check_payload(frame, ask.blob())?;
        }
        Ok(ask)
    }
}
