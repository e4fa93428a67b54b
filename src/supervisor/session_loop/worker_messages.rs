//! Handles messages from a worker. The guest can forge every message, so each one is accepted only if it is valid in
//! the current state.

use std::time::Instant;

use super::Purpose;
use super::caller::{Caller, Payload};
use super::cell::Streaming;
use super::life::WorkerLife;
use super::worker_io::WorkerIo;
use crate::outcome::value::blob::{LARGEST_OF_RUN, LARGEST_PAYLOAD};
use crate::protocol::caller::ClientEvent;
use crate::protocol::message::AfterCell;
use crate::protocol::{Blob, Display, Frame, Reply, Transport, VERSION};
use crate::supervisor::drain::Stream;
use crate::supervisor::ending::Stop;

/// The limit on a cell's displays, bytes.
const MAX_DISPLAYED: u64 = 64 << 20;

/// The bytes that each display counts in addition to its contents, so that empty displays also reach the limit.
const DISPLAY_OVERHEAD: u64 = 1 << 10;

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Handles a frame of the worker. A frame that violates the protocol ends the worker.
    pub fn on_frame(&mut self, frame: Frame, now: Instant, caller: &mut dyn Caller) {
        if let Err(how) = self.take_frame(frame, now, caller) {
            self.on_violation(how);
        }
    }

    fn take_frame(
        &mut self,
        frame: Frame,
        now: Instant,
        caller: &mut dyn Caller,
    ) -> Result<(), String> {
        let reply = Reply::parse(&frame).map_err(|error| error.to_string())?;
        let fits_a_run =
            |blob: &Blob| blob.transport() == Transport::Payload && blob.total() <= LARGEST_OF_RUN;
        let is_session_only = matches!(
            reply,
            Reply::Call(_) | Reply::Display(_) | Reply::Standing(_) | Reply::FailedStep(_)
        ) || reply.blob().is_some_and(|blob| !fits_a_run(blob));
        if matches!(self.terms.purpose, Purpose::Run(_)) && is_session_only {
            return Err("it sent a message that only a session's worker may send".into());
        }
        let payload = self.payload_of(reply.blob(), frame.payload)?;
        let header = frame.header.len();
        match reply {
            Reply::Ready { .. } if self.greeted => Err("it sent a second greeting".into()),
            Reply::Ready { version } if version != VERSION => {
                Err(format!("it uses protocol version {version}"))
            }
            Reply::Ready { .. } => {
                self.greeted = true;
                Ok(())
            }
            _ if !self.greeted => Err("it sent a message before its greeting".into()),
            Reply::Standing(at) => self.on_copy_point(at),
            Reply::FailedStep(failed) => self.on_failed_step(&failed),
            Reply::Call(call) => {
                self.forward_output(now, caller);
                self.call(call, payload, header, now, caller)
            }
            Reply::Display(display) => {
                self.forward_output(now, caller);
                self.display(display, payload, header, now, caller)
            }
            Reply::Result(result) => match &mut self.cell {
                Some(cell) if cell.id == result.id && cell.result.is_none() => {
                    let payload = accept_payload(&mut self.io, result.blob.as_ref(), payload)?;
                    cell.answered = Some(now);
                    // A worker that the supervisor has killed meanwhile runs no other cell: the cell ends with the
                    // worker.
                    if cell.then == AfterCell::End || self.stop.is_some() {
                        cell.result = Some((result, payload));
                    } else {
                        self.finish_live(result, payload, now, caller);
                    }
                    Ok(())
                }
                _ => Err(format!(
                    "it sent an unexpected result of request {}",
                    result.id
                )),
            },
        }
    }

    /// Forwards the output so far, so that the caller gets it before the guest's next message: a caller that serves a
    /// tool call reads nothing until it has answered.
    fn forward_output(&mut self, now: Instant, caller: &mut dyn Caller) {
        let cell = self.cell.as_ref();
        if cell.is_some_and(|cell| cell.streaming == Streaming::Immediate) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                self.on_output(stream, now, caller);
            }
        }
    }

    /// Forwards a display to the caller. The limit is checked before a passed file is examined.
    fn display(
        &mut self,
        display: Display,
        payload: Payload,
        header: usize,
        now: Instant,
        caller: &mut dyn Caller,
    ) -> Result<(), String> {
        let Some(cell) = self.cell_of_caller() else {
            return Ok(());
        };
        let blob = display.blob.as_ref().map_or(0, Blob::total);
        cell.displayed += DISPLAY_OVERHEAD + header as u64 + blob;
        if cell.displayed > MAX_DISPLAYED {
            self.interrupt(Stop::output(), now);
            return Ok(());
        }
        if cell.id != display.id {
            // A thread that outlived its cell sent it. The display counts, but is dropped.
            return Ok(());
        }
        let payload = accept_payload(&mut self.io, display.blob.as_ref(), payload)?;
        caller.answer(ClientEvent::Display(display), payload);
        Ok(())
    }

    /// Returns the data that came with a frame: its payload, or a passed file that is not examined yet.
    fn payload_of(&mut self, blob: Option<&Blob>, bytes: Vec<u8>) -> Result<Payload, String> {
        let passed = match blob {
            Some(blob) if blob.transport() == Transport::Passed => {
                // Each passed file costs its receiver a descriptor and a mapping, which are far scarcer than bytes.
                if blob.total() <= LARGEST_PAYLOAD {
                    return Err(format!("it passed a file for only {} bytes", blob.total()));
                }
                let passed = self.io.take_passed();
                Some(passed.map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        Ok(Payload { bytes, passed })
    }
}

/// Prepares the data of a message for the caller: a passed file is replaced by one that can no longer change.
pub(super) fn accept_payload<W: WorkerIo>(
    io: &mut W,
    blob: Option<&Blob>,
    payload: Payload,
) -> Result<Payload, String> {
    let Payload { bytes, passed } = payload;
    let passed = passed.map(|passed| io.accept(passed, blob.map_or(0, Blob::total)));
    Ok(Payload {
        bytes,
        passed: passed.transpose()?,
    })
}
