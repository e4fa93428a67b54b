//! Many tasks through fresh sandboxes, several at a time: [`Batch`] maps an iterator of [`Task`]s to
//! [`Done`]s, in memory that does not grow with their number.
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
//! Anything that a program does is the outcome of its task, which is never run again. If no sandbox
//! could be provided, the task is tried again a few times, after pauses. If that fails too, the
//! result has the status `infrastructure`.
//!
//! [`TaskLine`] and [`RecordLine`] are the lines of `sandfork map`; `docs/batch.md` describes them.

mod done;
mod failure_streak;
mod id;
mod line;
mod map;
mod pool;
mod record;
mod retry;
mod sandboxes;
mod task;

pub use done::{Done, Verdict};
pub use failure_streak::{FailureStreak, LOST_IN_A_ROW};
pub use id::TaskId;
pub use line::{TaskLine, TaskLineError, TaskProgram};
pub use map::{Batch, CallOff, Mapped};
pub use pool::{Order, WINDOW};
pub use record::{INFRASTRUCTURE, RecordLine, RecordLineError};
pub use retry::Retry;
pub use task::Task;
