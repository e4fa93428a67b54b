//! The effective policy: combined and checked, with no defaults left to fill in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::keyword::{Stdin, SystemFiles};
use super::module_name::{ImportPattern, Preload};
use super::network::NetworkPolicy;
use super::origin::{Located, Origin};
use super::packages::{EnvironmentName, Requirement};
use super::values::{Values, given};
use crate::outcome::{CpuRule, Level, LimitName, Limits};

/// What a guest may do, complete and checked. Made by [`Policy::load`] and [`Policy::builtin`].
///
/// Two policies are equal if they have the same values from the same places. Compare
/// [`Policy::sha256`] to find out whether they have the same effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) sha256: String,
    /// The interpreter and its preloaded modules.
    pub(crate) python: PythonPolicy,
    /// What guest code may import.
    pub(crate) imports: ImportPolicy,
    /// What the guest sees of the host's files.
    pub(crate) filesystem: FilesystemPolicy,
    /// The network that the guest has.
    pub(crate) network: NetworkPolicy,
    /// Environment variables.
    pub(crate) env: EnvPolicy,
    /// What the guest reads on its standard input.
    pub(crate) stdin: Stdin,
    /// Limits on time, memory and every other resource that can run out.
    pub(crate) limits: Limits,
    /// What the limit on processor time is of a cell that has a wall time of its own.
    pub(crate) cpu_rule: CpuRule,
    /// How long a session lives if it is not closed.
    pub(crate) session: SessionPolicy,
    /// Changes to the list of allowed system calls.
    pub(crate) syscalls: SyscallPolicy,
    pub(super) require: Located<Level>,
    /// The files that it was read from, by absolute paths.
    pub(crate) files: Vec<PathBuf>,
    pub(super) values: Values,
}

/// The interpreter and its preloaded modules.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PythonPolicy {
    /// A bare name to look up in PATH, or the absolute path of an interpreter or of a virtual
    /// environment. It is a path exactly when it contains a `/`.
    pub interpreter: Located<String>,
    /// The environment of packages. It brings its interpreter.
    pub environment: Option<Located<EnvironmentName>>,
    /// The packages of an environment without a name.
    pub packages: Vec<Located<Requirement>>,
    /// Whether such an environment is made at its first use.
    pub missing_packages: MissingPackages,
    /// Whether packages can be added to running sessions.
    pub added_packages: AddedPackages,
    /// Modules that the zygote imports once, in this order, without duplicates.
    pub preload: Vec<Located<Preload>>,
    /// Absolute directories added to `sys.path`, read-only, in this order.
    pub path: Vec<Located<PathBuf>>,
    /// The directory of a program of several files, absolute.
    pub project: Option<Located<PathBuf>>,
    /// The script that is about to run, which the guest finds at its own path. It is no key, and not
    /// in the digest: it belongs to the run.
    pub script: Option<PathBuf>,
    /// Whether sessions share a zygote.
    pub start: Start,
}

/// What becomes of packages that are not installed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MissingPackages {
    /// They are installed at the first use.
    Installed,
    /// They are an error.
    Refused,
}

/// Whether packages can be added to running sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddedPackages {
    /// Guests see all that were added under this user.
    Shown,
    /// They cannot.
    Refused,
}

/// Where a session's interpreter comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Forked from a warm zygote: sessions share its hash seed and address layout.
    Forked,
    /// A cold interpreter for each session.
    Cold,
}

/// What guest code may import: an aid to good error messages, not a wall.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ImportPolicy {
    /// The patterns, in the order of the files; `[Everything]` if no file has any.
    pub allow: Vec<ImportPattern>,
}

/// What the guest sees of the host's files.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FilesystemPolicy {
    /// The host's system directories that are shown, read-only.
    pub system: SystemFiles,
    /// Whether the guest has a `/proc`.
    pub proc: ProcVisibility,
    /// Whether programs in the work directory can be run. The origin is that of the key.
    pub work_exec: Located<WorkExec>,
    /// Absolute host paths shown read-only at the same path. None is beneath one of `write`.
    pub read: Vec<Located<PathBuf>>,
    /// Absolute host paths shown read-write at the same path.
    pub write: Vec<Located<PathBuf>>,
}

/// What the guest sees of processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProcVisibility {
    /// The guest has a `/proc` with only its own processes.
    Own,
    /// The guest has no `/proc`.
    Absent,
}

/// Whether what a guest writes to its work directory can be run and loaded as a library.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WorkExec {
    /// It can.
    Allowed,
    /// It cannot, like everything that a guest can write to.
    Denied,
}

/// Environment variables. No name is both set and passed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct EnvPolicy {
    /// Variables and their values.
    pub set: BTreeMap<String, String>,
    /// Names of variables taken from the caller's environment.
    pub pass: Vec<String>,
}

/// Changes to the list of allowed system calls, by name. The plan knows which names exist.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SyscallPolicy {
    /// Calls allowed beyond the preset. None of them is in `deny`.
    pub allow: Vec<Located<String>>,
    /// Calls removed from the preset.
    pub deny: Vec<Located<String>>,
}

/// When a session that is not closed ends, and when it is paused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SessionPolicy {
    /// How long it may wait for its next cell. `None` means forever.
    pub idle: Option<Duration>,
    /// How long it may live, in a cell or waiting. `None` means forever.
    pub age: Option<Duration>,
    /// How long it is unused before it is paused. `None` means forever.
    pub pause_after: Option<Duration>,
}

impl Policy {
    /// The name that the user gave: a built-in name or a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The purpose of the policy, in a sentence.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// SHA-256 in hex of the effective policy as canonical JSON (sorted keys, no spaces), without
    /// the name and the description. Equal hashes mean equal effects, independent of where the
    /// values came from.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The amount of a limit: milliseconds of times, bytes of sizes, thousandths of cores, or a number.
    pub fn limit(&self, name: LimitName) -> u64 {
        self.limits.amount(name)
    }

    /// The same policy for a run of this script, given by an absolute path.
    pub(crate) fn with_script(mut self, script: PathBuf) -> Self {
        self.python.script = Some(script);
        self
    }

    /// Where a limit was written.
    pub(crate) fn limit_origin(&self, name: LimitName) -> &Origin {
        given(self.values.origin(name.key()))
    }

    /// The lowest level at which a run may start.
    pub fn require(&self) -> Level {
        self.require.value
    }

    /// Where [`Policy::require`] was written.
    pub(crate) fn require_origin(&self) -> &Origin {
        &self.require.origin
    }
}
