//! Runs a caller's programs in a session, beside its cells.
//!
//! A process in the sandbox, the starter (`programs.py` among the guest modules), spawns them, so that they inherit the
//! whole jail from the worker. Guest code may end, replace or imitate that process, but it can only forge reports about
//! its own session. The thread that serves the session sends orders to the starter ([`ProgramServer`]). A caller reads
//! and writes the streams of a program itself ([`Process`]), so that their contents are not buffered here.

mod process;
mod program;
mod queue;
mod refusal;
mod report;
mod resting;
mod server;
mod stage;
mod starter_socket;
#[cfg(test)]
mod tests;

pub use self::process::{Process, ProcessEvent, ProgramEnd, ProgramReport};
pub use self::program::Program;
pub use self::queue::{Closed, Programs, Queue};
pub use self::refusal::{BesideRefusal, NO_PROGRAMS};
#[cfg(feature = "internals")]
pub use self::report::Report;
pub use self::server::{CLOSED, ProgramServer, Terms};
pub use self::starter_socket::StarterSocket;
