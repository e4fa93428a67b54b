//! What a session's worker says: hostile, and heard only as far as it fits the moment.

use std::time::Instant;

use super::attend::Live;
use super::caller::{Caller, Payload};
use crate::protocol::caller::Answer;
use crate::protocol::message::Then;
use crate::protocol::{Blob, Frame, Reply, VERSION, Way};
use crate::supervisor::ending::Stop;
use crate::supervisor::hang_up::HangUp;
use crate::supervisor::link::Received;
use crate::supervisor::passed;

/// The most that one cell may display, bytes.
const MOST_DISPLAYED: u64 = 64 << 20;

/// What a display takes besides its bytes, so that empty ones end too.
const OF_A_DISPLAY: u64 = 1 << 10;

impl Live<'_> {
    /// Reads once and takes the frames that came; whether something did.
    pub(super) fn read_frames(&mut self, caller: &mut dyn Caller) -> bool {
        match self.data.receive() {
            Ok(Received::Some) => {}
            Ok(Received::Nothing) => return false,
            Ok(Received::End) => {
                self.data_open = false;
                self.hung_up = Some(HangUp::new(Instant::now()));
                return false;
            }
            Err(error) => {
                self.violate(error.to_string());
                return false;
            }
        }
        while let Some(frame) = self.data.next() {
            if let Err(how) = self.take_frame(frame, caller) {
                self.violate(how);
                return false;
            }
        }
        true
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
            Reply::Call(call) => self.call(call, payload, caller),
            Reply::Display(display) => {
                let Some(cell) = self.cell.as_mut().filter(|cell| cell.id == display.id) else {
                    // Of a thread that outlived its cell.
                    return Ok(());
                };
                let blob = display.blob.as_ref().map_or(0, Blob::total);
                let text = frame.header.len() as u64;
                cell.displayed += OF_A_DISPLAY + text + blob;
                if cell.displayed > MOST_DISPLAYED {
                    self.interrupt(Stop::output());
                    return Ok(());
                }
                caller.answer(Answer::Display(display), payload);
                Ok(())
            }
            Reply::Result(result) => match &mut self.cell {
                Some(cell) if cell.id == result.id && cell.result.is_none() => {
                    cell.answered = Some(Instant::now());
                    if cell.then == Then::End {
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

    /// What comes with a frame: its payload, or a file that nobody can change any more.
    fn payload_of(&mut self, blob: Option<&Blob>, bytes: Vec<u8>) -> Result<Payload, String> {
        let passed = match blob {
            Some(blob) if blob.way() == Way::Passed => {
                let passed = self.data.take_passed();
                let passed = passed.map_err(|error| error.to_string())?;
                let file = passed::accept(passed, blob.total());
                Some(file.map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        Ok(Payload { bytes, passed })
    }
}
