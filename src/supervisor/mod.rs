//! The trusted side: starts zygotes, asks them for workers, looks at each worker from outside,
//! feeds it, watches its limits, ends it, and says what happened.

mod as_guest;
mod descriptors;
mod drain;
mod ending;
mod hang_up;
mod launch;
mod link;
mod live;

mod library;
mod owner;
mod passed;
mod proc_dir;
mod run;
mod spawn;
mod standing;
mod trace;
mod verify;
mod wait;
mod zygote;

pub mod cgroup;
pub mod error;
pub mod files;
pub mod session;

pub use error::SupervisorError;
pub use launch::Launched;
pub(crate) use live::attend;
pub use live::{
    Caller, FrameCaller, Hearing, Left, Payload, SessionTerms, await_caller, ended, refuse,
};
pub use passed::sealed;
pub use run::{Cancel, OutputSink, Place, Request, RunLimits, run};
pub(crate) use run::{Later, run_in};
pub(crate) use standing::Standing;
pub use wait::wait;
pub use zygote::Zygote;
