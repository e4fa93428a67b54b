//! Queues a cell's calls of host tools, hands them to the caller and returns the results to the guest. Also forwards
//! the caller's decisions about connections.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::Purpose;
use super::caller::{Caller, Payload};
use super::cell::RunningCell;
use super::life::WorkerLife;
use super::refusal::too_large;
use super::worker_io::WorkerIo;
use super::worker_loop::BACKLOG;
use super::worker_messages::accept_payload;
use crate::protocol::caller::ClientEvent;
use crate::protocol::{Blob, NamedError, Request, ToolAnswer, ToolCall};
use sandfork_egress::control::Question;

/// The most unanswered calls that the caller holds at once. Further calls are queued here and dropped at the end of the
/// cell. Otherwise a caller that answers calls one by one would keep serving a guest that has ended.
const MAX_HANDED_OUT: usize = 64;

/// The most bytes of arguments that the caller holds at once, for the same reason: it takes longer to read more bytes.
/// A single call may have any size.
const MAX_HANDED_OUT_BYTES: u64 = 128 << 10;

/// The number of queued calls at which the supervisor stops reading from the worker. A single read may exceed it.
const MAX_QUEUED: usize = 64;

/// The bytes of queued calls at which the supervisor stops reading from the worker. A single frame may exceed it.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// The unanswered calls of one cell, in order of arrival.
#[derive(Debug, Default)]
pub struct OpenCalls {
    /// The sizes of the calls that the caller holds, by call number.
    handed_out: BTreeMap<u64, u64>,
    queued: VecDeque<QueuedCall>,
}

/// A queued call. A file that came with it is neither checked nor copied yet.
#[derive(Debug)]
struct QueuedCall {
    call: ToolCall,
    payload: Payload,
    /// The bytes of the call's header.
    header: usize,
}

impl QueuedCall {
    /// Returns the bytes that the call occupies in this process.
    fn held(&self) -> usize {
        self.header + self.payload.bytes.len()
    }

    /// Returns the bytes that the caller has to read.
    fn size(&self) -> u64 {
        self.header as u64 + self.call.blob.as_ref().map_or(0, Blob::total)
    }
}

impl OpenCalls {
    /// Whether every call is answered.
    pub fn is_empty(&self) -> bool {
        self.handed_out.is_empty() && self.queued.is_empty()
    }

    /// Whether more calls may be read from the worker.
    pub fn has_room(&self) -> bool {
        let held: usize = self.queued.iter().map(QueuedCall::held).sum();
        self.queued.len() < MAX_QUEUED && held < MAX_QUEUED_BYTES
    }

    /// Queues a call whose header has `header` bytes. Returns an error if its number is in use.
    fn push(&mut self, call: ToolCall, payload: Payload, header: usize) -> Result<(), String> {
        let number = call.call;
        if self.numbers().any(|taken| taken == number) {
            return Err(format!("it used call number {number} twice"));
        }
        self.queued.push_back(QueuedCall {
            call,
            payload,
            header,
        });
        Ok(())
    }

    /// Returns the next call to hand to the caller, if the limits allow another one.
    fn hand_out(&mut self) -> Option<(ToolCall, Payload)> {
        let size = self.queued.front()?.size();
        let bytes: u64 = self.handed_out.values().sum();
        let fits = self.handed_out.len() < MAX_HANDED_OUT && bytes + size <= MAX_HANDED_OUT_BYTES;
        if !fits && !self.handed_out.is_empty() {
            return None;
        }
        let QueuedCall { call, payload, .. } = self.queued.pop_front()?;
        self.handed_out.insert(call.call, size);
        Some((call, payload))
    }

    /// Removes an answered call. Returns whether the caller held it.
    fn answered(&mut self, number: u64) -> bool {
        self.handed_out.remove(&number).is_some()
    }

    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let queued = self.queued.iter().map(|queued| queued.call.call);
        self.handed_out.keys().copied().chain(queued)
    }
}

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Whether more tool calls may be read from the worker.
    pub fn has_room_for_calls(&self) -> bool {
        self.cell.as_ref().is_none_or(|cell| cell.calls.has_room())
    }

    /// Asks the caller whether to allow a connection, after its decisions on earlier ones. Without a running cell, or
    /// if the caller does not read its events, the connection gets no decision.
    pub fn ask_caller(&mut self, question: Question, caller: &mut dyn Caller) {
        let is_session = matches!(self.terms.purpose, Purpose::Session(_));
        let is_asked = is_session && caller.unsent() < BACKLOG;
        let cell = self.cell_of_caller().filter(|_| is_asked);
        let running = cell.filter(|cell| cell.result.is_none() && cell.questions.has_room());
        let Some(cell) = running else {
            return self.forward_decision(question.question, None);
        };
        if let Some(question) = cell.questions.push(question) {
            caller.answer(ClientEvent::Connect(question), Payload::default());
        }
    }

    /// Forwards the decision on a connection to the egress process; `None` if there is no decision.
    fn forward_decision(&mut self, question: u64, allowed: Option<bool>) {
        if let Some(network) = self.io.network() {
            network.decide(question, allowed);
        }
    }

    /// Forwards the caller's decision, and asks about the next connection.
    pub(super) fn decide(&mut self, number: u64, allowed: Option<bool>, caller: &mut dyn Caller) {
        self.forward_decision(number, allowed);
        let cell = self.cell.as_mut();
        if let Some(next) = cell.and_then(|cell| cell.questions.decided(number)) {
            caller.answer(ClientEvent::Connect(next), Payload::default());
        }
    }

    /// Handles a worker's tool call.
    pub(super) fn call(
        &mut self,
        request: ToolCall,
        payload: Payload,
        header: usize,
        now: Instant,
        caller: &mut dyn Caller,
    ) -> Result<(), String> {
        let running = self.cell_of_caller().filter(|cell| cell.result.is_none());
        let Some(cell) = running else {
            let error = "host tools answer only while a cell runs; this call came after its end";
            self.answer_call(
                ToolAnswer::raising(request.call, NamedError::new("RuntimeError", error)),
                Payload::default(),
            );
            return Ok(());
        };
        let id = cell.id;
        let numbered = ToolCall { id, ..request };
        cell.calls.push(numbered, payload, header)?;
        cell.clock.pause(now);
        self.hand_out_calls(caller)
    }

    /// Hands queued calls to the caller. A file that came with a call is checked, and copied if necessary, only here,
    /// because the guest may make calls faster than the caller answers them.
    fn hand_out_calls(&mut self, caller: &mut dyn Caller) -> Result<(), String> {
        let Some(cell) = &mut self.cell else {
            return Ok(());
        };
        while let Some((call, payload)) = cell.calls.hand_out() {
            let payload = accept_payload(&mut self.io, call.blob.as_ref(), payload)?;
            caller.answer(ClientEvent::Call(call), payload);
        }
        Ok(())
    }

    /// Returns the caller's answer to the guest. An answer that arrives after the end of the cell is dropped.
    pub(super) fn return_to_guest(
        &mut self,
        answer: ToolAnswer,
        payload: Payload,
        now: Instant,
        caller: &mut dyn Caller,
    ) {
        let Some(cell) = &mut self.cell else { return };
        if !cell.calls.answered(answer.call) {
            return;
        }
        if cell.calls.is_empty() {
            cell.clock.resume(now);
        }
        self.answer_call(answer, payload);
        if let Err(how) = self.hand_out_calls(caller) {
            self.on_violation(how);
        }
    }

    /// Fails the unanswered calls of a cell that has ended, and ends the wait of connections for a decision.
    pub(super) fn refuse_open_calls(&mut self, cell: &RunningCell) {
        for question in cell.questions.numbers() {
            self.forward_decision(question, None);
        }
        for call in cell.calls.numbers() {
            let error = NamedError::new("RuntimeError", "the cell that made this call has ended");
            self.answer_call(ToolAnswer::raising(call, error), Payload::default());
        }
    }

    fn answer_call(&mut self, answer: ToolAnswer, payload: Payload) {
        let mut bytes = Vec::new();
        let call = answer.call;
        let mut passed = payload.passed;
        let encoded = Request::Return(answer).encode_into(&payload.bytes, &mut bytes);
        if let Err(error) = encoded {
            let error = NamedError::new("ValueError", too_large("the tool's answer", &error));
            let instead = Request::Return(ToolAnswer::raising(call, error));
            if instead.encode_into(&[], &mut bytes).is_err() {
                return;
            }
            passed = None;
        }
        self.io.send(bytes, passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(sizes: impl IntoIterator<Item = usize>) -> OpenCalls {
        let mut calls = OpenCalls::default();
        for (number, size) in (1..).zip(sizes) {
            let pushed = calls.push(call(number), Payload::default(), size);
            pushed.expect("the number is new");
        }
        calls
    }

    fn call(number: u64) -> ToolCall {
        ToolCall {
            id: 1,
            call: number,
            tool: "tool".into(),
            args: Vec::new(),
            kwargs: BTreeMap::new(),
            blob: None,
        }
    }

    fn handed_out(calls: &mut OpenCalls) -> usize {
        std::iter::from_fn(|| calls.hand_out()).count()
    }

    #[test]
    fn small_calls_are_handed_out_together() {
        let mut calls = calls([100; MAX_HANDED_OUT + 3]);
        assert_eq!(handed_out(&mut calls), MAX_HANDED_OUT);
        assert!(calls.answered(1) && calls.answered(2));
        assert_eq!(handed_out(&mut calls), 2);
    }

    #[test]
    fn large_calls_are_handed_out_one_by_one() {
        let mut calls = calls([1 << 30; 3]);
        for number in 1..=3 {
            assert_eq!(handed_out(&mut calls), 1);
            assert!(calls.answered(number));
        }
        assert!(calls.is_empty());
    }

    #[test]
    fn answer_to_a_queued_or_unknown_call_is_ignored() {
        let mut calls = calls([1 << 30; 2]);
        assert_eq!(handed_out(&mut calls), 1);
        assert!(!calls.answered(2) && !calls.answered(7));
        assert!(calls.push(call(2), Payload::default(), 0).is_err());
    }

    #[test]
    fn full_queue_stops_reading() {
        assert!(calls([0; MAX_QUEUED - 1]).has_room());
        assert!(!calls([0; MAX_QUEUED]).has_room());
        assert!(calls([MAX_QUEUED_BYTES / 2]).has_room());
        assert!(!calls([MAX_QUEUED_BYTES / 2; 2]).has_room());
    }
}
