//! What a caller asks of its session.

use std::time::{Duration, Instant};

use super::Left;
use super::attend::Live;
use super::caller::{Caller, Hearing, Payload};
use super::cell::{CellUnderWay, Streaming};
use crate::protocol::Request;
use crate::protocol::caller::{Answer, Ask, Cell, ErrorWord};
use crate::supervisor::ending::Stop;
use crate::supervisor::run::Pace;

/// A cell that comes so soon after the one before it begins with what was counted at its end.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The longest time that a cell may be given: what a clock can add.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

impl Live<'_> {
    /// Hears whatever the caller has said by now.
    pub(super) fn hear(&mut self, caller: &mut dyn Caller) -> Option<Left> {
        loop {
            match caller.hear() {
                Hearing::Nothing => return None,
                Hearing::Gone => return Some(Left::Gone),
                Hearing::Garbled(how) => {
                    refuse(caller, None, ErrorWord::Protocol, how);
                    return Some(Left::Gone);
                }
                Hearing::Ask(ask, payload) => {
                    let left = self.heed(ask, payload, caller);
                    if left.is_some() {
                        return left;
                    }
                }
            }
        }
    }

    fn heed(&mut self, ask: Ask, payload: Payload, caller: &mut dyn Caller) -> Option<Left> {
        let id = ask.id();
        let answered_like_a_cell =
            matches!(ask, Ask::Cell(_) | Ask::Set { .. } | Ask::Tools { .. });
        if answered_like_a_cell || matches!(ask, Ask::Restart { .. }) {
            if self.cell.is_some() {
                let busy =
                    "a cell is running in this session: wait for its end, or open another session";
                refuse(caller, id, ErrorWord::Busy, busy.into());
                return None;
            }
            if answered_like_a_cell && self.reap_until.is_some() {
                // It ends just now: whoever attends next says why.
                let why = self.why.clone();
                let why = why.unwrap_or_else(|| "its process ended between two cells".into());
                refuse(caller, id, ErrorWord::SessionEnded, ended(&why));
                return None;
            }
        }
        match ask {
            Ask::Cell(cell) => self.begin_cell(cell, payload, caller),
            Ask::Set(set) => _ = self.begin(set.id, &Request::Set(set), payload, caller),
            Ask::Tools(tools) => _ = self.begin(tools.id, &Request::Tools(tools), payload, caller),
            Ask::Return(answer) => self.return_to_guest(answer, payload),
            Ask::Interrupt => {
                if self.cell.is_some() {
                    self.interrupt(Stop::Cancelled);
                }
            }
            Ask::Restart { id } => return Some(Left::Restart { id }),
            Ask::Close => return Some(Left::Closed),
            Ask::File(request) => self.file(&request, caller),
            Ask::Open(_) => {
                let twice = "this connection has its session: open another connection for another";
                refuse(caller, None, ErrorWord::Protocol, twice.into());
            }
            Ask::Map(_) | Ask::Task(_) | Ask::End => {
                let other = "this connection is a session's: open another one for a batch";
                refuse(caller, id, ErrorWord::Protocol, other.into());
            }
        }
        None
    }

    fn begin_cell(&mut self, cell: Cell, source: Payload, caller: &mut dyn Caller) {
        let Cell {
            id,
            filename,
            argv,
            last,
            then,
            stream,
            wall,
        } = cell;
        let wall = match wall.map(Duration::try_from_secs_f64) {
            None => self.place.limits.wall,
            Some(Ok(wall)) => wall.min(LONGEST),
            Some(Err(_)) => {
                let message = "a cell's `wall` is a positive number of seconds".into();
                refuse(caller, Some(id), ErrorWord::Request, message);
                return;
            }
        };
        let request = Request::Cell {
            id,
            filename,
            argv,
            last,
            then,
        };
        self.cells += 1;
        if !self.begin(id, &request, source, caller) {
            self.cells -= 1;
            return;
        }
        let end_of_life = self.end_of_life();
        if let Some(cell) = &mut self.cell {
            cell.then = then;
            let deadline = cell.started + wall;
            cell.deadline = end_of_life.map_or(deadline, |end| deadline.min(end));
            if stream {
                cell.streaming = Streaming::AsItComes;
            }
        }
    }

    /// Hands a request to the worker; whether it could be.
    fn begin(
        &mut self,
        id: u64,
        request: &Request,
        payload: Payload,
        caller: &mut dyn Caller,
    ) -> bool {
        let mut bytes = Vec::new();
        if let Err(error) = request.encode_into(&payload.bytes, &mut bytes) {
            refuse(caller, Some(id), ErrorWord::Request, error.to_string());
            return false;
        }
        let now = Instant::now();
        // What ran on since the last cell is not this one's, if there was time for any.
        let before = match now.duration_since(self.waiting_since) {
            short if self.cells > 1 && short < AT_ONCE => self.counted,
            _ => self.counts(),
        };
        if self.standing.lost_cgroup(&before) {
            let why = "its cgroup was removed from outside, and nothing held it to its limits";
            refuse(caller, Some(id), ErrorWord::SessionEnded, ended(why));
            self.end_between_cells(why);
            return false;
        }
        self.cell = Some(CellUnderWay::new(id, self.place.limits.wall, before));
        self.watch.begin(Pace::Running, now, before.cpu_us);
        self.data.send(bytes, payload.passed);
        true
    }
}

/// Tells a caller that what it asked for was not done.
pub fn refuse(caller: &mut dyn Caller, id: Option<u64>, error: ErrorWord, message: String) {
    let answer = Answer::Error {
        id,
        error,
        message,
        errno: None,
    };
    caller.answer(answer, Payload::default());
}

/// What is said of a session that has ended.
pub fn ended(why: &str) -> String {
    format!(
        "the session has ended because {why}: its variables, imports and files are lost; restart it, \
         or open another"
    )
}
