//! Runs many tasks in fresh sandboxes, several at a time: [`Batch`] maps an iterator of [`Task`]s to [`Done`]s, in
//! memory that does not grow with the number of tasks.
//!
//! ```no_run
//! use std::sync::Arc;
//! use sandfork::batch::{Batch, Task};
//!
//! let sandbox = Arc::new(sandfork::Sandbox::builder().build()?);
//! let tasks = (0..1_000_000).map(|n| Task::new(n, format!("print({n} ** 2)")));
//! for done in Batch::new(sandbox).map(tasks)? {
//!     println!("{}: {}", done.id(), done.status());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every end of a program is the outcome of its task, and the task is never run again. If no sandbox could be provided,
//! the task is retried a few times, after pauses. If every attempt fails, the result has the status `infrastructure`.
//! A request that no sandbox can run has the status `refused`.
//!
//! `docs/batch.md` describes the same for the command `sandfork map`.

mod compact;
mod done;
mod exact_json;
pub(crate) mod expect;
mod failure_streak;
mod id;
pub(crate) mod line;
mod map;
mod pool;
pub(crate) mod record;
mod retry;
mod room;
mod sandboxes;
mod task;

pub use done::Done;
pub use id::TaskId;
pub use map::{Batch, CallOff, Mapped};
pub use pool::Order;
pub use task::Task;

pub(crate) use compact::Compact;
pub(crate) use expect::Expect;
pub(crate) use failure_streak::{FailureStreak, LOST_IN_A_ROW};
pub(crate) use line::{TaskLine, TaskProgram};
pub(crate) use pool::WINDOW;
pub(crate) use record::{INFRASTRUCTURE, REFUSED, RecordLine};
