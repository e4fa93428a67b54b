//! Messages from a session's worker: hostile, and accepted only if they are valid at that moment.

use std::time::Instant;

use super::Purpose;
use super::caller::{Caller, Payload};
use super::life::WorkerLife;
use super::worker_io::WorkerIo;
use crate::outcome::value::blob::LARGEST_OF_RUN;
use crate::protocol::caller::ClientEvent;
use crate::protocol::message::AfterCell;
use crate::protocol::{Blob, Frame, Reply, Transport, VERSION};
use crate::supervisor::ending::Stop;
use crate::supervisor::received_fd;

/// The most that one cell may display, bytes.
const MOST_DISPLAYED: u64 = 64 << 20;

/// The overhead of a display, bytes, so that empty displays also reach the limit.
const OF_A_DISPLAY: u64 = 1 << 10;

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Handles a frame of the worker, and ends a worker that may not send it.
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
            |blob: &Blob| blob.way() == Transport::Payload && blob.total() <= LARGEST_OF_RUN;
        let is_of_a_session = matches!(
            reply,
            Reply::Call(_) | Reply::Display(_) | Reply::Standing(_) | Reply::FailedStep(_)
        ) || reply.blob().is_some_and(|blob| !fits_a_run(blob));
        if matches!(self.terms.purpose, Purpose::Run(_)) && is_of_a_session {
            return Err("it sent what only the worker of a session may".into());
        }
        let payload = self.payload_of(reply.blob(), frame.payload)?;
        match reply {
            Reply::Ready { .. } if self.greeted => Err("it greeted a second time".into()),
            Reply::Ready { version } if version != VERSION => {
                Err(format!("it speaks version {version} of the protocol"))
            }
            Reply::Ready { .. } => {
                self.greeted = true;
                Ok(())
            }
            _ if !self.greeted => Err("it spoke before it greeted".into()),
            Reply::Standing(said) => self.on_standing(said),
            Reply::FailedStep(failed) => self.on_failed_step(&failed),
            Reply::Call(call) => self.call(call, payload, frame.header.len(), now, caller),
            Reply::Display(display) => {
                let is_pausing = self.is_pausing();
                let cell = self.cell.as_mut().filter(|_| !is_pausing);
                let Some(cell) = cell.filter(|cell| cell.id == display.id) else {
                    // A thread that outlived its cell sent it.
                    return Ok(());
                };
                let blob = display.blob.as_ref().map_or(0, Blob::total);
                let text = frame.header.len() as u64;
                cell.displayed += OF_A_DISPLAY + text + blob;
                if cell.displayed > MOST_DISPLAYED {
                    self.interrupt(Stop::output(), now);
                    return Ok(());
                }
                caller.answer(ClientEvent::Display(display), payload);
                Ok(())
            }
            Reply::Result(result) => match &mut self.cell {
                Some(cell) if cell.id == result.id && cell.result.is_none() => {
                    cell.answered = Some(now);
                    // One that the supervisor has ended meanwhile waits for no other cell: its end is the cell's.
                    if cell.then == AfterCell::End || self.stop.is_some() {
                        cell.result = Some((result, payload));
                    } else {
                        self.finish_live(result, payload, now, caller);
                    }
                    Ok(())
                }
                _ => Err(format!("it sent a result of request {}", result.id)),
            },
        }
    }

    /// The data that comes with a frame: its payload, or a file that can no longer be changed.
    fn payload_of(&mut self, blob: Option<&Blob>, bytes: Vec<u8>) -> Result<Payload, String> {
        let passed = match blob {
            Some(blob) if blob.way() == Transport::Passed => {
                let passed = self.io.take_passed();
                let passed = passed.map_err(|error| error.to_string())?;
                let file = received_fd::accept(passed, blob.total());
                Some(file.map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        Ok(Payload { bytes, passed })
    }
}
