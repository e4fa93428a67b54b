//! Probes the kernel and the interpreter.

use crate::error::{Cause, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nix::errno::Errno as NixErrno;

use super::{
    Arch, CallerEnvironment, CgroupSupport, ChainStep, Errno, Host, HostLimits, HostUser,
    Interpreter, InterpreterError, KernelVersion, LandlockSupport, Machine, NamespaceSupport,
    PathFact, SeccompSupport, SystemPath, exhaustion_hint, interpreter,
};

/// What a policy requires the probe to find out.
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
    /// The interpreter is unsuitable.
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// uname(2) reports a version that cannot be parsed.
    #[error("the kernel does not tell its version (uname): Sandfork needs Linux 5.13 or later")]
    UnknownKernel,
    /// The host could not be probed because it has run out of a resource.
    #[error(
        "what this host can do could not be tried: could not {step}: {errno}; {}",
        exhaustion_hint(NixErrno::from_raw(errno.0), "try again")
    )]
    Exhausted {
        /// The step that was tried.
        step: ChainStep,
        /// The kernel's error.
        errno: Errno,
    },
}

impl Machine {
    /// Probes the kernel. Takes about a millisecond. The result stays valid as long as the process
    /// runs with the same ids in the same cgroup.
    pub fn probe() -> Result<Self, HostError> {
        let user = HostUser::probe();
        Ok(Self {
            kernel: KernelVersion::probe().ok_or(HostError::UnknownKernel)?,
            arch: Arch::current(),
            user,
            namespaces: NamespaceSupport::probe(user)?,
            landlock: LandlockSupport::probe(),
            seccomp: SeccompSupport::probe(),
            cgroup: CgroupSupport::probe(),
            limits: HostLimits::probe(),
        })
    }
}

impl Host {
    /// Finds out what else a plan needs, for a known machine and interpreter.
    pub fn new(
        machine: Machine,
        interpreter: Interpreter,
        needs: &Needs,
        environment: &CallerEnvironment,
    ) -> Self {
        Self {
            machine,
            interpreter,
            system: SystemPath::probe_all(),
            paths: needs
                .paths
                .iter()
                .map(|path| (path.clone(), PathFact::probe(path)))
                .collect(),
            caller_env: caller_env(&needs.variables, environment),
        }
    }
}

impl Host {
    /// Probes the kernel, for a known interpreter.
    pub fn with_interpreter(
        interpreter: Interpreter,
        needs: &Needs,
        environment: &CallerEnvironment,
    ) -> Result<Self, HostError> {
        let machine = Machine::probe()?;
        Ok(Self::new(machine, interpreter, needs, environment))
    }
}

/// Variables that are not set, or are not text, are not passed.
fn caller_env(
    names: &BTreeSet<String>,
    environment: &CallerEnvironment,
) -> BTreeMap<String, String> {
    let passed = |name: &String| Some((name.clone(), environment.text(name)?.to_owned()));
    names.iter().filter_map(passed).collect()
}

/// Finds and probes the interpreter, then the kernel, in this process's environment.
pub fn probe(interpreter: &str, needs: &Needs) -> Result<Host, HostError> {
    let environment = CallerEnvironment::current();
    let path = interpreter::resolve(interpreter, &environment)?;
    let interpreter = interpreter::probe(&path, &environment)?;
    Host::with_interpreter(interpreter, needs, &environment)
}

impl Cause for HostError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownKernel => ErrorKind::Host,
            Self::Interpreter(_) => ErrorKind::Interpreter,
            Self::Exhausted { .. } => ErrorKind::System,
        }
    }
}

#[cfg(test)]
mod tests;
