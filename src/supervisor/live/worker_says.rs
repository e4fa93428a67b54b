//! Messages from a session's worker: hostile, and accepted only if they are valid at that moment.

use std::time::Instant;

use super::Purpose;
use super::caller::{Caller, Payload};
use super::cell::CellUnderWay;
use super::worker_loop::WorkerLoop;
use crate::protocol::caller::ClientEvent;
use crate::protocol::message::AfterCell;
use crate::protocol::{Blob, Frame, Reply, Transport, VERSION};
use crate::supervisor::disconnect::Disconnect;
use crate::supervisor::ending::{Kind, Stop};
use crate::supervisor::error::SupervisorError;
use crate::supervisor::link::{LinkError, Received};
use crate::supervisor::received_fd;

/// The most that one cell may display, bytes.
const MOST_DISPLAYED: u64 = 64 << 20;

/// The overhead of a display, bytes, so that empty displays also reach the limit.
const OF_A_DISPLAY: u64 = 1 << 10;

impl WorkerLoop<'_> {
    /// Reads once and handles the frames that arrived. Returns whether anything did.
    pub(super) fn read_frames(&mut self, caller: &mut dyn Caller) -> bool {
        match self.data.receive() {
            Ok(Received::Some) => {}
            Ok(Received::Nothing) => return false,
            Ok(Received::End) => {
                self.data_open = false;
                let has_answered = |cell: &CellUnderWay| cell.result.is_some();
                let may_close = self.purpose == Purpose::Run(Kind::Program)
                    || self.cell.as_ref().is_some_and(has_answered);
                if !may_close {
                    self.hung_up = Some(Disconnect::new(Instant::now()));
                }
                return false;
            }
            Err(LinkError::Unreadable(errno)) => {
                // A result may be there that cannot be read: any report of the cell would be a guess.
                let what = "read from the worker";
                self.fail(SupervisorError::System { what, errno });
                return false;
            }
            Err(error) => {
                self.violate(error.to_string());
                return false;
            }
        }
        if matches!(self.purpose, Purpose::Run(_)) {
            self.data.discard_passed();
        }
        while let Some(frame) = self.data.next() {
            if let Err(how) = self.take_frame(frame, caller) {
                self.violate(how);
                return false;
            }
        }
        true
    }

    /// Ends the worker for a fault of the host.
    fn fail(&mut self, why: SupervisorError) {
        self.data_open = false;
        self.failure = Some(why);
        self.worker.kill();
        self.expect_the_end();
    }

    fn violate(&mut self, how: String) {
        self.data_open = false;
        if self.cell.is_none() {
            self.why = Some(format!("it broke the protocol between two cells: {how}"));
        }
        self.end(Stop::Violation(how));
    }

    fn take_frame(&mut self, frame: Frame, caller: &mut dyn Caller) -> Result<(), String> {
        let reply = Reply::parse(&frame).map_err(|error| error.to_string())?;
        let is_of_a_session =
            matches!(reply, Reply::Call(_) | Reply::Display(_)) || reply.blob().is_some();
        if matches!(self.purpose, Purpose::Run(_)) && is_of_a_session {
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
            Reply::Call(call) => self.call(call, payload, frame.header.len(), caller),
            Reply::Display(display) => {
                let Some(cell) = self.cell.as_mut().filter(|cell| cell.id == display.id) else {
                    // A thread that outlived its cell sent it.
                    return Ok(());
                };
                let blob = display.blob.as_ref().map_or(0, Blob::total);
                let text = frame.header.len() as u64;
                cell.displayed += OF_A_DISPLAY + text + blob;
                if cell.displayed > MOST_DISPLAYED {
                    self.interrupt(Stop::output());
                    return Ok(());
                }
                caller.answer(ClientEvent::Display(display), payload);
                Ok(())
            }
            Reply::Result(result) => match &mut self.cell {
                Some(cell) if cell.id == result.id && cell.result.is_none() => {
                    cell.answered = Some(Instant::now());
                    if cell.then == AfterCell::End {
                        cell.result = Some((result, payload));
                    } else {
                        self.finish_live(result, payload, caller);
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
                let passed = self.data.take_passed();
                let passed = passed.map_err(|error| error.to_string())?;
                let file = received_fd::accept(passed, blob.total());
                Some(file.map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        Ok(Payload { bytes, passed })
    }
}
