//! Defines a cell's input and result.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::outcome::Outcome;
use crate::outcome::value::{Attachments, BufferCheck, Buffers, HeldBuffers, MAX_LEVELS};
use crate::protocol::caller::{self, CellOutcome, ClientRequest, SessionState, WireOutcome};
use crate::protocol::message::{AfterCell, ResultMode};
use crate::protocol::{Blob, Display, Transport, Value};
use crate::supervisor::{Cancel, Payload, sealed};
use sandfork_jail::sys::sealed::SealedBytes;

/// Python source to run in a session. A string converts to a cell.
#[derive(Clone, Debug)]
pub struct Cell {
    source: Vec<u8>,
    request: caller::Cell,
    pub(super) cancel: Option<Cancel>,
}

impl Cell {
    /// Creates a cell from Python source.
    pub fn new(source: impl Into<Vec<u8>>) -> Self {
        Self {
            source: source.into(),
            request: caller::Cell {
                id: 0,
                filename: "<cell>".to_owned(),
                argv: Vec::new(),
                last: ResultMode::Expression,
                then: AfterCell::Stay,
                stream: true,
                wall: None,
            },
            cancel: None,
        }
    }

    /// Sets the file name that tracebacks show.
    #[must_use]
    pub fn filename(mut self, name: impl Into<String>) -> Self {
        self.request.filename = name.into();
        self
    }

    /// Sets a wall-clock limit that replaces the policy's `limits.wall`. Time that the cell waits for host tools is
    /// excluded, up to ten times the limit.
    #[must_use]
    pub const fn wall(mut self, wall: Duration) -> Self {
        self.request.wall = Some(wall.as_secs_f64());
        self
    }

    /// Lets another thread interrupt the cell, even before it starts, as [`Interrupter::interrupt`] does.
    ///
    /// [`Interrupter::interrupt`]: super::Interrupter::interrupt
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Sets which value the cell returns.
    #[must_use]
    pub const fn last(mut self, last: ResultMode) -> Self {
        self.request.last = last;
        self
    }

    pub(super) fn into_request(self, id: u64) -> (ClientRequest, Vec<u8>) {
        let request = caller::Cell { id, ..self.request };
        (ClientRequest::Cell(request), self.source)
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

/// A value with the buffers to which it refers.
#[derive(Clone, Debug, Default)]
pub struct OutgoingValue {
    /// The value.
    pub value: Value,
    /// The buffers of its parts.
    pub attachments: Attachments<'static>,
}

impl<V: Into<Value>> From<V> for OutgoingValue {
    fn from(value: V) -> Self {
        Self {
            value: value.into(),
            attachments: Attachments::default(),
        }
    }
}

impl OutgoingValue {
    /// Converts the value and its buffers into the parts of a message.
    pub(super) fn pack(self) -> Result<(Value, Option<Blob>, Payload), Error> {
        let Self { value, attachments } = self;
        let request_error = |why: String| Error::new(ErrorKind::Request, why);
        let send_error =
            |cause: &str| request_error(format!("the value's buffers cannot be sent: {cause}"));
        let value = value.of_few_levels().map_err(|_| {
            request_error(format!(
                "the value is nested more than {MAX_LEVELS} levels deep: pass it in parts, or as text"
            ))
        })?;
        let blob = attachments.blob();
        let blob = blob.map_err(|error| send_error(&error.to_string()))?;
        let mut check = BufferCheck::new(blob.as_ref());
        check.value(&value).map_err(|error| {
            request_error(format!(
                "the value does not fit its attachments: {error}; long text, bytes and arrays that came from a guest \
                 must be attached with the methods of `Attachments`"
            ))
        })?;
        let payload = match blob.as_ref().map(Blob::transport) {
            None => Payload::default(),
            Some(Transport::Payload) => Payload::bytes(attachments.concatenated()),
            Some(Transport::Passed) => {
                let file = sealed(attachments.pieces());
                Payload::passed(file.map_err(|errno| send_error(errno.desc()))?)
            }
        };
        Ok((value, blob, payload))
    }
}

/// The bytes of a message's buffers: in memory, or mapped from a passed file.
#[derive(Debug, Default)]
pub struct ReceivedBuffers(Option<HeldBuffers>);

impl ReceivedBuffers {
    /// Takes the buffers of a message. If the passed file cannot be mapped, the buffers are absent.
    pub(super) fn new(blob: Option<Blob>, payload: Payload) -> Self {
        let Some(blob) = blob else {
            return Self::default();
        };
        let length = usize::try_from(blob.total()).unwrap_or(usize::MAX);
        Self(match payload.passed {
            None => Some(HeldBuffers::new(blob, payload.bytes)),
            Some(file) => {
                let bytes = SealedBytes::map(file, length).ok();
                bytes.map(|bytes| HeldBuffers::new(blob, bytes))
            }
        })
    }

    /// Returns the buffers that [`Value::bytes`] and similar methods read.
    pub fn buffers(&self) -> Buffers<'_> {
        let buffers = self.0.as_ref();
        // The link has checked that their lengths match the blob.
        buffers.map(HeldBuffers::buffers).unwrap_or_default()
    }
}

/// A value that a cell displayed.
#[derive(Debug)]
pub struct DisplayOutput {
    data: BTreeMap<String, Value>,
    main: bool,
    received: ReceivedBuffers,
}

impl DisplayOutput {
    pub(super) fn new(display: Display, payload: Payload) -> Self {
        Self {
            data: display.data,
            main: display.main,
            received: ReceivedBuffers::new(display.blob, payload),
        }
    }

    /// Returns the value's representations by media type: text, or a buffer's bytes.
    pub const fn data(&self) -> &BTreeMap<String, Value> {
        &self.data
    }

    /// Returns whether it is the value of the cell's last expression.
    pub const fn is_main(&self) -> bool {
        self.main
    }

    /// Returns the buffers to which the representations refer.
    pub fn buffers(&self) -> Buffers<'_> {
        self.received.buffers()
    }
}

/// The result of a cell: its outcome and the values that it displayed.
#[derive(Debug)]
pub struct CellReport {
    outcome: Outcome,
    shown: Vec<DisplayOutput>,
    state: SessionState,
}

impl CellReport {
    pub(super) fn new(
        ended: CellOutcome,
        payload: Payload,
        (stdout, stderr): (Vec<u8>, Vec<u8>),
        shown: Vec<DisplayOutput>,
    ) -> Self {
        let received = ReceivedBuffers::new(ended.blob, payload);
        let WireOutcome(outcome) = ended.outcome;
        let outcome = outcome.with_output(stdout, stderr);
        let outcome = outcome.with_value(ended.value);
        Self {
            outcome: outcome.with_buffers(received.0),
            shown,
            state: ended.session,
        }
    }

    /// Returns the outcome, with output and value.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the displayed values, in order.
    pub fn shown(&self) -> &[DisplayOutput] {
        &self.shown
    }

    /// Returns whether the session is still alive.
    pub const fn session(&self) -> SessionState {
        self.state
    }

    /// Returns the buffers to which the value refers.
    pub fn buffers(&self) -> Buffers<'_> {
        self.outcome.buffers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_without_its_buffers_is_rejected() {
        let received = Attachments::default().bytes(vec![1]);
        let error = OutgoingValue::from(received).pack();
        let error = error.expect_err("its bytes are not there");
        assert!(error.to_string().contains("`Attachments`"), "{error}");
    }

    #[test]
    fn buffers_survive_both_transports() {
        for large in [10, 200_000] {
            let mut attachments = Attachments::default();
            let parts = [vec![1u8; 3], vec![], vec![2; large]];
            let value: Vec<Value> = parts
                .iter()
                .map(|part| attachments.bytes(part.clone()))
                .collect();
            let outgoing = OutgoingValue {
                value: value.into(),
                attachments,
            };
            let (value, blob, payload) = outgoing.pack().expect("it is packed");
            assert_eq!(payload.passed.is_some(), large > 100_000);
            let received = ReceivedBuffers::new(blob, payload);
            let found = value.as_list().expect("a list").iter();
            let found: Vec<_> = found.map(|part| part.bytes(&received.buffers())).collect();
            assert_eq!(found, parts.each_ref().map(|part| Some(part.as_slice())));
        }
    }
}
