//! A live session: a worker that runs cell after cell for one caller.
//!
//! One thread per session runs [`attend`]: it hears the caller, feeds the worker, drains and watches
//! it, in a cell and between cells, for a guest's threads and processes go on after the cell that
//! started them. Nothing here waits for the guest, or for a caller that does not read.

mod attend;
mod caller;
mod calls;
mod cell;
mod clocks;
mod files;
mod finish;
mod hear;
mod wakeful;
mod worker_says;

use std::time::Duration;

pub use self::caller::{Caller, FrameCaller, Hearing, Payload, await_caller};

pub use self::hear::{ended, refuse};

use self::attend::Live;
use super::error::SupervisorError;
use super::run::{Later, Place};
use super::standing::Standing;
use crate::protocol::caller::ToolTime;

/// What holds for a session besides its place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SessionTerms {
    /// How long it may wait for its next cell.
    pub idle: Option<Duration>,
    /// How long it may live.
    pub age: Option<Duration>,
    /// Whether the time in which a host tool runs counts as the cell's.
    pub tool_time: ToolTime,
}

/// Why a session's worker is left.
#[derive(Debug)]
pub enum Left {
    /// The caller asked for its end.
    Closed,
    /// The caller is gone.
    Gone,
    /// The caller asked for another worker.
    Restart {
        /// Of the request.
        id: u64,
    },
    /// The worker is gone: why, as a part of a sentence.
    Ended(String),
}

/// Attends to a worker that stands until it, or the caller, is gone. `later` waits until the first cell
/// is over.
///
/// # Errors
///
/// As [`run`](super::run()); where the worker was lost in a cell, the caller is told by the caller of
/// this.
pub(crate) fn attend(
    standing: &Standing,
    place: &Place,
    terms: SessionTerms,
    caller: &mut dyn Caller,
    later: Option<Later>,
) -> Result<Left, SupervisorError> {
    Live::new(place, standing, terms)?.attend(caller, later)
}
