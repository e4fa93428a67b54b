//! Programs that a caller runs in a session, beside its cells.
//!
//! A process in the sandbox starts them (`programs.py` of the guest's side), so that they inherit every wall from the
//! worker. Guest code may end, replace or imitate that process: then it reports of its own session what is wrong, and
//! nothing else. The thread that serves the session tells it what to start and to signal ([`ProgramServer`]); a caller reads
//! and writes a program's streams itself ([`Process`]), so that nothing of them is kept here.

mod process;
mod program;
mod queue;
mod refusal;
mod report;
mod resting;
mod server;
mod stage;
mod summons;
#[cfg(test)]
mod tests;

pub use self::process::{Process, ProcessEvent, ProgramEnd, ProgramReport};
pub use self::program::Program;
pub use self::queue::{Closed, Programs, Queue};
pub use self::refusal::{BesideRefusal, NO_PROGRAMS};
#[cfg(feature = "internals")]
pub use self::report::Report;
pub use self::server::{CLOSED, ProgramServer, Terms};
pub use self::summons::Summons;
