//! The trusted side of Sandfork. Starts zygotes, requests workers from them, verifies each worker from outside, sends
//! it code, enforces its limits, ends it, and reports the outcome.

mod allowance;
mod as_guest;
mod cache;
pub mod clock;
mod denials;
mod descriptors;
mod drain;
pub mod egress;
mod embedded;
mod ending;
mod forwarded_calls;
mod launch;
mod link;
mod machine_calls;
mod own_signals;
mod part;
mod session_loop;

mod instance_name;
mod proc_dir;
mod programs;
mod random;
mod received_fd;
mod refused_calls;
mod regular_file;
mod run;
mod shared_memory;
mod snapshot;
mod sockets;
mod spawn;
mod stop;
mod trace;
mod verified_worker;
mod verify;
mod wait;
mod watch;
mod worker_uid;
mod zygote;

pub mod cgroup;
pub mod error;
pub mod files;
pub mod session_dir;

pub use cache::{FontCache, StartCache, kept_in};
pub use drain::Stream;
pub use error::SupervisorError;
pub use launch::{Abort, Launched, Starting};
pub(crate) use part::Part;
#[cfg(feature = "internals")]
pub use programs::Report as ProgramStarterReport;
pub(crate) use programs::{BesideRefusal, CLOSED, Closed, NO_PROGRAMS, Queue};
pub use programs::{Process, ProcessEvent, Program, ProgramEnd, ProgramReport, Programs};
pub use random::UniqueIds;
pub use received_fd::sealed;
pub(crate) use regular_file::open_regular;
pub use run::{AskHost, Cancel, OutputSink, Request, RunContext, run};
pub(crate) use run::{Deferred, Opaque, run_in};
pub(crate) use session_loop::{BACKLOG, PIECE, WorkerLoop};
pub use session_loop::{
    Beginning, Caller, CallerEvent, FrameCaller, Paused, Payload, Purpose, Refusal, SessionExit,
    SessionTerms, Use, await_caller, awaited, drain,
};
#[cfg(feature = "internals")]
pub use snapshot::readers as snapshot_readers;
pub use snapshot::{Image, MadeBy, Shelf, SnapshotRefusal, are_possible as snapshots_are_possible};
pub use stop::hold_guests;
pub(crate) use verified_worker::VerifiedWorker;
pub use wait::wait;
pub use watch::{Depth, Watch, Watcher};
pub use zygote::{Entering, Zygote};
