//! The effective policy: combined and checked, with a value for every key.

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

/// A complete and checked policy. [`Policy::load`] and [`Policy::builtin`] create it.
///
/// Two policies are equal if they have the same values with the same origins. Compare
/// [`Policy::sha256`] to find out whether they have the same effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) sha256: String,
    /// The interpreter and its preloaded modules.
    pub(crate) python: PythonPolicy,
    /// The modules that guest code may import.
    pub(crate) imports: ImportPolicy,
    /// The host files that the guest sees.
    pub(crate) filesystem: FilesystemPolicy,
    /// The guest's network access.
    pub(crate) network: NetworkPolicy,
    /// Environment variables.
    pub(crate) env: EnvPolicy,
    /// The guest's standard input.
    pub(crate) stdin: Stdin,
    /// Limits on time, memory and other resources.
    pub(crate) limits: Limits,
    /// The rule for the CPU limit of a cell that sets its own wall time.
    pub(crate) cpu_rule: CpuRule,
    /// When an open session ends or is paused.
    pub(crate) session: SessionPolicy,
    /// Changes to the list of allowed system calls.
    pub(crate) syscalls: SyscallPolicy,
    pub(super) require: Located<Level>,
    /// The absolute paths of the files that the policy was read from.
    pub(crate) files: Vec<PathBuf>,
    pub(super) values: Values,
}

/// The interpreter and its preloaded modules.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PythonPolicy {
    /// A bare name to look up in `PATH`, or the absolute path of an interpreter or of a virtual
    /// environment. It is a path if and only if it contains a `/`.
    pub interpreter: Located<String>,
    /// The named package environment, which includes an interpreter.
    pub environment: Option<Located<EnvironmentName>>,
    /// The packages of an unnamed environment.
    pub packages: Vec<Located<Requirement>>,
    /// What happens if `packages` are not installed.
    pub missing_packages: MissingPackages,
    /// Whether packages can be added to running sessions.
    pub added_packages: AddedPackages,
    /// Modules that the zygote imports once, in this order, without duplicates.
    pub preload: Vec<Located<Preload>>,
    /// Absolute directories added to `sys.path`, read-only, in this order.
    pub path: Vec<Located<PathBuf>>,
    /// The directory of a program of several files, absolute.
    pub project: Option<Located<PathBuf>>,
    /// The script that is about to run, which the guest sees at its host path. It belongs to the run, not to
    /// the policy: no key sets it, and the hash does not cover it.
    pub script: Option<PathBuf>,
    /// Where a session's interpreter comes from.
    pub start: Start,
}

/// What happens if packages are not installed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MissingPackages {
    /// The packages are installed at their first use.
    Installed,
    /// Missing packages are an error.
    Refused,
}

/// Whether packages can be added to running sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddedPackages {
    /// Packages can be added. Guests see all packages that this user has added.
    Shown,
    /// Packages cannot be added.
    Refused,
}

/// Where a session's interpreter comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Forked from a warm zygote: sessions share its hash seed and address layout.
    Forked,
    /// A new interpreter for each session.
    Cold,
}

/// The modules that guest code may import. This makes good error messages; it is not a security boundary.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ImportPolicy {
    /// The patterns, in the order of the files. `[Everything]` if no file has a list.
    pub allow: Vec<ImportPattern>,
}

/// The host files that the guest sees.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FilesystemPolicy {
    /// The host's system directories that the guest sees, read-only.
    pub system: SystemFiles,
    /// Whether the guest has a `/proc`.
    pub proc: ProcVisibility,
    /// Whether programs in the work directory can be executed. The origin is that of the key.
    pub work_exec: Located<WorkExec>,
    /// Absolute host paths shown read-only at the same path. None of them is beneath a path of `write`.
    pub read: Vec<Located<PathBuf>>,
    /// Absolute host paths shown read-write at the same path.
    pub write: Vec<Located<PathBuf>>,
}

/// Whether the guest has a `/proc`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProcVisibility {
    /// The guest has a `/proc` with only its own processes.
    Own,
    /// The guest has no `/proc`.
    Absent,
}

/// Whether files that a guest writes to its work directory can be executed and loaded as libraries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WorkExec {
    /// The work directory is mounted executable.
    Allowed,
    /// The work directory is mounted `noexec`, like everything that a guest can write to.
    Denied,
}

/// Environment variables. No variable is both set and passed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct EnvPolicy {
    /// Variables and their values.
    pub set: BTreeMap<String, String>,
    /// Names of variables that are copied from the caller's environment.
    pub pass: Vec<String>,
}

/// Changes to the list of allowed system calls, by name. The plan checks whether the names exist.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SyscallPolicy {
    /// Calls allowed in addition to the preset. None of them is in `deny`.
    pub allow: Vec<Located<String>>,
    /// Calls removed from the preset.
    pub deny: Vec<Located<String>>,
}

/// When an open session ends or is paused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SessionPolicy {
    /// The time without a cell after which the session ends. `None` means never.
    pub idle: Option<Duration>,
    /// The time after which the session ends, even during a cell. `None` means never.
    pub age: Option<Duration>,
    /// The time without use after which the session is paused. `None` means never.
    pub pause_after: Option<Duration>,
}

impl Policy {
    /// Returns the name that the user gave: a built-in name or a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the purpose of the policy, in one sentence.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the SHA-256, in hexadecimal, of the effective policy as canonical JSON (sorted keys, no
    /// spaces), without its name and description. Equal hashes mean equal effects, independent of where
    /// the values came from.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the amount of a limit: milliseconds, bytes, thousandths of a processor, or a count.
    pub fn limit(&self, name: LimitName) -> u64 {
        self.limits.amount(name)
    }

    /// Sets the script of a run, by its absolute path.
    pub(crate) fn with_script(mut self, script: PathBuf) -> Self {
        self.python.script = Some(script);
        self
    }

    /// Returns where a limit was written.
    pub(crate) fn limit_origin(&self, name: LimitName) -> &Origin {
        given(self.values.origin(name.key()))
    }

    /// Returns the lowest level at which a run may start.
    pub fn require(&self) -> Level {
        self.require.value
    }

    /// Returns where the level of [`Policy::require`] was written.
    pub(crate) fn require_origin(&self) -> &Origin {
        &self.require.origin
    }
}
