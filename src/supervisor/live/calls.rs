//! Calls of host tools: who waits for which answer.

use std::time::Instant;

use super::attend::Live;
use super::caller::{Caller, Payload};
use super::cell::CellUnderWay;
use crate::protocol::caller::{Answer, ToolTime};
use crate::protocol::{NamedError, Request, ToolAnswer, ToolCall};

/// The most calls of one cell that may wait at once.
const MOST_CALLS: usize = 1024;

impl Live<'_> {
    /// A worker calls a tool.
    pub(super) fn call(
        &mut self,
        request: ToolCall,
        payload: Payload,
        caller: &mut dyn Caller,
    ) -> Result<(), String> {
        let running = self.cell.as_mut().filter(|cell| cell.result.is_none());
        let Some(cell) = running else {
            let error = "host tools answer only while a cell runs; this call came after its end";
            self.answer_call(
                ToolAnswer::raising(request.call, NamedError::new("RuntimeError", error)),
                Payload::default(),
            );
            return Ok(());
        };
        if cell.calls.len() >= MOST_CALLS {
            return Err(format!("more than {MOST_CALLS} of its calls wait at once"));
        }
        if !cell.calls.insert(request.call) {
            return Err(format!("it used the number of call {} twice", request.call));
        }
        if self.terms.tool_time == ToolTime::Excluded {
            cell.paused.get_or_insert_with(Instant::now);
        }
        let told = ToolCall {
            id: cell.id,
            ..request
        };
        caller.answer(Answer::Call(told), payload);
        Ok(())
    }

    /// The caller has the answer. One that comes after the cell's end is nobody's.
    pub(super) fn return_to_guest(&mut self, answer: ToolAnswer, payload: Payload) {
        let Some(cell) = &mut self.cell else { return };
        if !cell.calls.remove(&answer.call) {
            return;
        }
        if cell.calls.is_empty() {
            cell.resume(Instant::now());
        }
        self.answer_call(answer, payload);
    }

    /// Threads that wait for an answer get one, which there will be no other of.
    pub(super) fn refuse_open_calls(&mut self, cell: &CellUnderWay) {
        for call in &cell.calls {
            let error = NamedError::new("RuntimeError", "the cell that made this call has ended");
            self.answer_call(ToolAnswer::raising(*call, error), Payload::default());
        }
    }

    fn answer_call(&mut self, answer: ToolAnswer, payload: Payload) {
        let mut bytes = Vec::new();
        let call = answer.call;
        let encoded = Request::Return(answer).encode_into(&payload.bytes, &mut bytes);
        if let Err(error) = encoded {
            bytes.clear();
            let error = NamedError::new("ValueError", format!("the tool's answer: {error}"));
            let instead = Request::Return(ToolAnswer::raising(call, error));
            if instead.encode_into(&[], &mut bytes).is_err() {
                return;
            }
            self.data.send(bytes, None);
            return;
        }
        self.data.send(bytes, payload.passed);
    }
}
