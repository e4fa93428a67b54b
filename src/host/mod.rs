//! Describes what the kernel, this process and the interpreter can do, as a plain value.
//!
//! [`probe()`] asks the kernel; a test builds a [`Host`] by hand. This module decides nothing: `plan` decides from a
//! policy and a host.

mod cache_directory;
mod cgroup;
mod environment;
mod environments;
mod errno;
mod exhaustion_hint;
mod headroom;
mod interpreter;
mod kept;
mod kernel;
mod landlock;
mod limits;
mod lookup;
mod modules;
mod mountinfo;
mod namespaces;
mod ownership;
mod paths;
mod probe;
mod processors;
mod route;
mod seccomp;
mod shell_word;
mod system_paths;
mod user;
mod whole_text;
mod yama;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use cache_directory::cache_directory;
pub use cgroup::{CgroupAbsence, CgroupSupport, Controller, SUPERVISOR_LEAF, V2Entry};
pub use environment::CallerEnvironment;
pub use environments::{
    DESCRIPTION, EnvironmentStore, NamedEnvironment, PYPI, Patience, PipConfig, Sharing,
    pip_config, torn,
};
pub use errno::Errno;
pub(crate) use exhaustion_hint::{
    exhaustion_hint, has_run_out, io_exhaustion_hint, step_hint, with_hint,
};
pub use headroom::{Headroom, descriptors_left, memory_left};
pub use interpreter::{
    Interpreter, Link, Reach, probe as probe_interpreter, resolve as resolve_interpreter,
};
pub use kept::{Kept, KeptKind, KeptNeeds};
pub use kernel::{Arch, KernelVersion};
pub use landlock::LandlockSupport;
pub(crate) use limits::processors;
pub use limits::{HardLimits, HostLimits};
pub use lookup::Lookup;
pub use modules::{module_at, module_name};
pub(crate) use mountinfo::unescape;
pub use namespaces::{DEVICES, Device, NamespaceSupport, Refusal, RefusalCause, TimeNamespaces};
pub(crate) use ownership::{Exposed, check_private, may_be_made};
pub use paths::{PathFact, PathKind};
pub use probe::{HostWithoutInterpreter, Needs, no_proc, probe};
pub use processors::Processors;
pub use route::{Links, Route};
pub use seccomp::SeccompSupport;
pub(crate) use shell_word::quoted;
pub use system_paths::{SystemPath, SystemPathKind};
pub use user::{HostUser, UNPRIVILEGED_ID};
pub(crate) use whole_text::whole_text;
pub(crate) use yama::{Tracing, tracing};

pub use sandfork_jail::sys::probe_child::ChainStep;

/// The uid and gid that the guest sees for itself.
pub const GUEST_ID: u32 = 1000;

/// What the kernel and this process can do, independent of the workload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Machine {
    /// The kernel's version.
    pub kernel: KernelVersion,
    /// The processor architecture; `None` where Sandfork has no system call table for it.
    pub arch: Option<Arch>,
    /// The user that runs the supervisor.
    pub user: HostUser,
    /// Whether the jail's namespaces and mounts can be created.
    pub namespaces: NamespaceSupport,
    /// Whether a time namespace can be created as well.
    pub time_namespaces: TimeNamespaces,
    /// Landlock, and its ABI.
    pub landlock: LandlockSupport,
    /// seccomp filters.
    pub seccomp: SeccompSupport,
    /// Where cgroups can be created.
    pub cgroup: CgroupSupport,
    /// The machine's resources.
    pub limits: HostLimits,
    /// The kind of the machine's processors.
    pub processors: Processors,
}

/// Everything that a plan depends on besides the policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// The kernel and this process.
    pub machine: Machine,
    /// The interpreter for the zygote.
    pub interpreter: Interpreter,
    /// The existing system directories, sorted by name.
    pub system: Vec<SystemPath>,
    /// What the probe found at each path that the policy names.
    pub paths: BTreeMap<PathBuf, PathFact>,
    /// The text of the script to run, if not every user can read its file.
    pub closed_script: Option<String>,
    /// Values of the variables that the policy takes from the caller.
    pub caller_env: BTreeMap<String, String>,
    /// Files and directories that later starts run or trust. Empty if the policy makes no host path writable.
    pub kept: Vec<Kept>,
    /// The directory of package environments, without symbolic links. Guests load code from there.
    pub environments: Option<PathBuf>,
    /// The host's file of trusted certificates, if the policy needs one and it exists.
    pub certificates: Option<PathBuf>,
}
