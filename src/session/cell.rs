//! What goes into a cell, and what comes out of it.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::errno::Errno;

use super::SessionError;
use crate::outcome::Outcome;
use crate::protocol::caller::{self, Ask, CellOutcome, SessionState, Told};
use crate::protocol::message::{Last, Then};
use crate::protocol::value::{Attachments, Buffers};
use crate::protocol::{Blob, Display, Value, Way};
use crate::supervisor::{Payload, sealed};
use crate::sys::sealed::SealedBytes;

/// A piece of Python source to run in a session. A string is one too.
#[derive(Clone, Debug)]
pub struct Cell {
    source: Vec<u8>,
    filename: String,
    wall: Option<Duration>,
    last: Last,
}

impl Cell {
    /// Python source.
    pub fn new(source: impl Into<Vec<u8>>) -> Self {
        Self {
            source: source.into(),
            filename: "<cell>".to_owned(),
            wall: None,
            last: Last::Expression,
        }
    }

    /// The name that tracebacks show.
    #[must_use]
    pub fn filename(mut self, name: impl Into<String>) -> Self {
        self.filename = name.into();
        self
    }

    /// Time on the clock, instead of the policy's `limits.wall`.
    #[must_use]
    pub const fn wall(mut self, wall: Duration) -> Self {
        self.wall = Some(wall);
        self
    }

    /// What its value is.
    #[must_use]
    pub const fn last(mut self, last: Last) -> Self {
        self.last = last;
        self
    }

    pub(super) fn ask(self, id: u64) -> (Ask, Vec<u8>) {
        let cell = caller::Cell {
            id,
            filename: self.filename,
            argv: Vec::new(),
            last: self.last,
            then: Then::Stay,
            stream: true,
            wall: self.wall.map(|wall| wall.as_secs_f64()),
        };
        (Ask::Cell(cell), self.source)
    }
}

impl From<&str> for Cell {
    fn from(source: &str) -> Self {
        Self::new(source)
    }
}

impl From<String> for Cell {
    fn from(source: String) -> Self {
        Self::new(source)
    }
}

/// A value, and the buffers that it refers to.
#[derive(Clone, Debug, Default)]
pub struct Parcel {
    /// The value.
    pub value: Value,
    /// Where its parts put their bytes.
    pub attachments: Attachments<'static>,
}

impl<V: Into<Value>> From<V> for Parcel {
    fn from(value: V) -> Self {
        Self {
            value: value.into(),
            attachments: Attachments::default(),
        }
    }
}

impl Parcel {
    /// The value, and its buffers as a message carries them.
    pub(super) fn pack(self) -> Result<(Value, Option<Blob>, Payload), SessionError> {
        let Self { value, attachments } = self;
        let blob = attachments.blob();
        let blob = blob.map_err(|error| SessionError::Buffers(error.to_string()))?;
        let payload = match blob.as_ref().map(Blob::way) {
            None => Payload::default(),
            Some(Way::Payload) => Payload::bytes(attachments.concatenated()),
            Some(Way::Passed) => {
                let file = sealed(attachments.pieces());
                let cause = |errno: Errno| SessionError::Buffers(errno.desc().to_owned());
                Payload::passed(file.map_err(cause)?)
            }
        };
        Ok((value, blob, payload))
    }
}

/// The bytes of a message's buffers: in memory, or mapped as they were passed.
#[derive(Debug, Default)]
pub struct Carried {
    blob: Option<Blob>,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Held(Vec<u8>),
    Mapped(SealedBytes),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Held(Vec::new())
    }
}

impl Carried {
    /// What came with a message. Where a file cannot be mapped there are no buffers.
    pub(super) fn new(blob: Option<Blob>, payload: Payload) -> Self {
        let Some(blob) = blob else {
            return Self::default();
        };
        let length = usize::try_from(blob.total()).unwrap_or(usize::MAX);
        let bytes = match payload.passed {
            None => Some(Bytes::Held(payload.bytes)),
            Some(file) => SealedBytes::map(file, length).ok().map(Bytes::Mapped),
        };
        match bytes {
            Some(bytes) => Self {
                blob: Some(blob),
                bytes,
            },
            None => Self::default(),
        }
    }

    /// What [`Value::bytes`] and its like look into.
    pub fn buffers(&self) -> Buffers<'_> {
        let bytes: &[u8] = match &self.bytes {
            Bytes::Held(bytes) => bytes,
            Bytes::Mapped(bytes) => bytes,
        };
        let buffers = self.blob.as_ref().map(|blob| Buffers::new(blob, bytes));
        // They are as long as the blob says: the link saw to that.
        buffers.and_then(Result::ok).unwrap_or_default()
    }
}

/// Something that a cell displayed.
#[derive(Debug)]
pub struct Shown {
    data: BTreeMap<String, Value>,
    main: bool,
    carried: Carried,
}

impl Shown {
    pub(super) fn new(display: Display, payload: Payload) -> Self {
        Self {
            data: display.data,
            main: display.main,
            carried: Carried::new(display.blob, payload),
        }
    }

    /// Its forms by their media types: text, or a buffer's bytes.
    pub const fn data(&self) -> &BTreeMap<String, Value> {
        &self.data
    }

    /// Whether it is the value of the cell's last expression.
    pub const fn is_main(&self) -> bool {
        self.main
    }

    /// What its forms refer to.
    pub fn buffers(&self) -> Buffers<'_> {
        self.carried.buffers()
    }
}

/// How a cell ended, what it said and what it showed.
#[derive(Debug)]
pub struct CellReport {
    outcome: Outcome,
    shown: Vec<Shown>,
    state: SessionState,
    carried: Carried,
}

impl CellReport {
    pub(super) fn new(
        told: CellOutcome,
        payload: Payload,
        (stdout, stderr): (Vec<u8>, Vec<u8>),
        shown: Vec<Shown>,
    ) -> Self {
        let CellOutcome {
            outcome: Told(outcome),
            value,
            session,
            blob,
            ..
        } = told;
        Self {
            outcome: outcome.with_output(stdout, stderr).with_value(value),
            shown,
            state: session,
            carried: Carried::new(blob, payload),
        }
    }

    /// How it ended, with its output and its value.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// What it displayed, in order.
    pub fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// Whether the session lives on.
    pub const fn session(&self) -> SessionState {
        self.state
    }

    /// What the value refers to.
    pub fn buffers(&self) -> Buffers<'_> {
        self.carried.buffers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_found_again_however_they_travel() {
        for large in [10, 200_000] {
            let mut attachments = Attachments::default();
            let parts = [vec![1u8; 3], vec![], vec![2; large]];
            let value: Vec<Value> = parts
                .iter()
                .map(|part| attachments.bytes(part.clone()))
                .collect();
            let parcel = Parcel {
                value: value.into(),
                attachments,
            };
            let (value, blob, payload) = parcel.pack().expect("it is packed");
            assert_eq!(payload.passed.is_some(), large > 100_000);
            let carried = Carried::new(blob, payload);
            let found = value.as_list().expect("a list").iter();
            let found: Vec<_> = found.map(|part| part.bytes(&carried.buffers())).collect();
            assert_eq!(found, parts.each_ref().map(|part| Some(part.as_slice())));
        }
    }
}
