//! Asks the kernel and the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nix::unistd::{getegid, geteuid};

use super::{
    Arch, CallerEnvironment, CgroupSupport, Host, HostLimits, HostUser, Interpreter,
    InterpreterError, KernelVersion, LandlockSupport, NamespaceSupport, PathFact, SeccompSupport,
    SystemPath, interpreter,
};

/// What a policy makes it necessary to know.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// Paths that the policy names.
    pub paths: BTreeSet<PathBuf>,
    /// Variables that the policy takes from the caller.
    pub variables: BTreeSet<String>,
}

/// Why the host could not be probed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HostError {
    /// The interpreter will not do.
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// uname(2) says nothing that can be read.
    #[error("the kernel does not tell its version (uname): Sandfork needs Linux 5.13 or later")]
    UnknownKernel,
}

impl Host {
    /// Everything but the interpreter, which the caller already knows.
    pub fn with_interpreter(interpreter: Interpreter, needs: &Needs) -> Result<Self, HostError> {
        let user = HostUser {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
        };
        Ok(Self {
            kernel: KernelVersion::probe().ok_or(HostError::UnknownKernel)?,
            arch: Arch::current(),
            user,
            namespaces: NamespaceSupport::probe(user),
            landlock: LandlockSupport::probe(),
            seccomp: SeccompSupport::probe(),
            cgroup: CgroupSupport::probe(),
            interpreter,
            system: SystemPath::probe_all(),
            paths: needs
                .paths
                .iter()
                .map(|path| (path.clone(), PathFact::probe(path)))
                .collect(),
            limits: HostLimits::probe(),
            caller_env: caller_env(&needs.variables),
        })
    }
}

/// Variables that are not set, or are not text, are not passed.
fn caller_env(names: &BTreeSet<String>) -> BTreeMap<String, String> {
    names
        .iter()
        .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
        .collect()
}

/// Finds and asks the interpreter, then the kernel.
pub fn probe(name: &str, needs: &Needs) -> Result<Host, HostError> {
    let environment = CallerEnvironment::current();
    let path = interpreter::resolve(name, &environment)?;
    Host::with_interpreter(interpreter::probe(&path, &environment)?, needs)
}

#[cfg(test)]
mod tests;
