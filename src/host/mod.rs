//! What this kernel, this process and this interpreter can do, as a plain value.
//!
//! [`probe()`] asks the kernel; a test writes a [`Host`] by hand. Nothing in here decides: that is
//! what `plan` does with a policy and a host.

mod cgroup;
mod environment;
mod errno;
mod headroom;
mod interpreter;
mod kernel;
mod landlock;
mod limits;
mod mountinfo;
mod namespaces;
mod paths;
mod probe;
mod relief;
mod seccomp;
mod system_paths;
mod user;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use cgroup::{CgroupAbsence, CgroupSupport, Controller, SUPERVISOR_LEAF, V2Entry};
pub use environment::CallerEnvironment;
pub use errno::Errno;
pub use headroom::Headroom;
pub use interpreter::{
    FACTS_SCRIPT, Interpreter, InterpreterError, Link, Reach, Rejection,
    probe as probe_interpreter, resolve as resolve_interpreter,
};
pub use kernel::{Arch, KernelVersion};
pub use landlock::LandlockSupport;
pub(crate) use limits::processors;
pub use limits::{HardLimits, HostLimits};
pub(crate) use mountinfo::unescape;
pub use namespaces::{NamespaceSupport, Refusal, RefusalCause};
pub use paths::{PathFact, PathKind};
pub use probe::{HostError, Needs, probe};
pub(crate) use relief::{relief, relief_of};
pub use seccomp::SeccompSupport;
pub use system_paths::{SystemPath, SystemPathKind};
pub use user::{HostUser, Ids, UNPRIVILEGED_ID};

pub use crate::sys::probe_child::ChainStep;

/// The uid and gid that the guest sees for itself.
pub const GUEST_ID: u32 = 1000;

/// What the kernel and this process can do, whatever is to run.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's version.
    pub kernel: KernelVersion,
    /// The processor architecture; `None` where Sandfork has no system call table for it.
    pub arch: Option<Arch>,
    /// Who runs the supervisor.
    pub user: HostUser,
    /// Whether the jail's namespaces and mounts can be made.
    pub namespaces: NamespaceSupport,
    /// Landlock, and its ABI.
    pub landlock: LandlockSupport,
    /// seccomp filters.
    pub seccomp: SeccompSupport,
    /// Where cgroups can be made.
    pub cgroup: CgroupSupport,
    /// What the machine has to give.
    pub limits: HostLimits,
}

/// Everything that a plan needs to know besides the policy.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The kernel and this process.
    pub machine: Machine,
    /// The interpreter that the zygote will be.
    pub interpreter: Interpreter,
    /// The system's own directories that exist here, in the order of their names.
    pub system: Vec<SystemPath>,
    /// What was found at each path that the policy names.
    pub paths: BTreeMap<PathBuf, PathFact>,
    /// Values of the variables that the policy takes from the caller.
    pub caller_env: BTreeMap<String, String>,
}
