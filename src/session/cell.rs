//! What goes into a cell, and what comes out of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::SessionError;
use crate::outcome::Outcome;
use crate::protocol::blob::LARGEST_PAYLOAD;
use crate::protocol::caller::{self, Ask, CellOutcome, SessionState, Told};
use crate::protocol::message::{Last, Then};
use crate::protocol::{Blob, Display, Value, Way};
use crate::supervisor::{Payload, sealed};

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

/// A value with the buffers that it refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// The value.
    pub value: Value,
    /// What its parts refer to by number.
    pub buffers: Vec<Vec<u8>>,
}

impl<V: Into<Value>> From<V> for Parcel {
    fn from(value: V) -> Self {
        Self {
            value: value.into(),
            buffers: Vec::new(),
        }
    }
}

/// Lays buffers out as a message carries them.
pub fn pack(buffers: &[Vec<u8>]) -> Result<(Option<Blob>, Payload), SessionError> {
    if buffers.is_empty() {
        return Ok((None, Payload::default()));
    }
    let lengths: Vec<u64> = buffers.iter().map(|buffer| buffer.len() as u64).collect();
    let refused = |bytes, cause: String| SessionError::Buffers { bytes, cause };
    let sum = lengths.iter().sum();
    let blob = Blob::new(lengths, Way::Payload).map_err(|error| refused(sum, error.to_string()))?;
    let mut bytes = Vec::new();
    for (buffer, place) in buffers.iter().zip(blob.ranges()) {
        bytes.resize(usize::try_from(place.start).unwrap_or(usize::MAX), 0);
        bytes.extend_from_slice(buffer);
    }
    if blob.total() <= LARGEST_PAYLOAD {
        return Ok((Some(blob), Payload::bytes(bytes)));
    }
    let file = sealed(&bytes).map_err(|errno| refused(blob.total(), errno.desc().to_owned()))?;
    Ok((Some(blob.travelling(Way::Passed)), Payload::passed(file)))
}

/// What a cell's values refer to by number.
#[derive(Debug, Default)]
pub struct Buffers {
    blob: Option<Blob>,
    bytes: Vec<u8>,
    file: Option<File>,
}

impl Buffers {
    /// What came with a message.
    pub(super) fn new(blob: Option<Blob>, payload: Payload) -> Self {
        Self {
            blob,
            bytes: payload.bytes,
            file: payload.passed.map(File::from),
        }
    }

    /// The bytes of one buffer; `None` where there is no such buffer.
    ///
    /// # Errors
    ///
    /// When the file that holds them cannot be read.
    pub fn read(&self, number: usize) -> io::Result<Option<Vec<u8>>> {
        let place = self
            .blob
            .as_ref()
            .and_then(|blob| blob.ranges().nth(number));
        let Some(place) = place else { return Ok(None) };
        let length = usize::try_from(place.end - place.start).map_err(io::Error::other)?;
        if let Some(file) = &self.file {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, place.start)?;
            return Ok(Some(bytes));
        }
        let start = usize::try_from(place.start).map_err(io::Error::other)?;
        Ok(self.bytes.get(start..start + length).map(<[u8]>::to_vec))
    }
}

/// Something that a cell displayed.
#[derive(Debug)]
pub struct Shown {
    data: BTreeMap<String, Value>,
    main: bool,
    buffers: Buffers,
}

impl Shown {
    pub(super) fn new(display: Display, payload: Payload) -> Self {
        Self {
            data: display.data,
            main: display.main,
            buffers: Buffers::new(display.blob, payload),
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
    pub const fn buffers(&self) -> &Buffers {
        &self.buffers
    }
}

/// How a cell ended, what it said and what it showed.
#[derive(Debug)]
pub struct CellReport {
    outcome: Outcome,
    shown: Vec<Shown>,
    state: SessionState,
    buffers: Buffers,
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
            buffers: Buffers::new(blob, payload),
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
    pub const fn buffers(&self) -> &Buffers {
        &self.buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_found_again_however_they_travel() {
        for large in [10, 200_000] {
            let buffers = vec![vec![1; 3], vec![], vec![2; large]];
            let (blob, payload) = pack(&buffers).expect("they are packed");
            assert_eq!(payload.passed.is_some(), large > 100_000);
            let packed = Buffers::new(blob, payload);
            for (number, buffer) in buffers.iter().enumerate() {
                let read = packed.read(number).expect("it is read");
                assert_eq!(read.as_ref(), Some(buffer), "{number}");
            }
            assert_eq!(packed.read(3).expect("it is read"), None);
        }
    }
}
