//! The trusted side: starts zygotes, asks them for workers, looks at each worker from outside,
//! feeds it, watches its limits, ends it, and says what happened.

mod as_guest;
mod descriptors;
mod drain;
mod ending;
mod launch;
mod library;
mod owner;
mod proc_dir;
mod run;
mod spawn;
mod verify;
mod zygote;

pub mod cgroup;
pub mod error;
pub mod session;

pub use error::SupervisorError;
pub use launch::Launched;
pub use run::{Cancel, OutputSink, Place, Request, RunLimits, WorkPath, WorkPathError, run};
pub use zygote::Zygote;
