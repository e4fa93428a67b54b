//! Asks the kernel and the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nix::errno::Errno as NixErrno;

use super::{
    Arch, CallerEnvironment, CgroupSupport, ChainStep, Errno, Host, HostLimits, HostUser,
    Interpreter, InterpreterError, KernelVersion, LandlockSupport, Machine, NamespaceSupport,
    PathFact, SeccompSupport, SystemPath, interpreter, relief,
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
    /// What it can do could not be tried, because it has run out of something.
    #[error(
        "what this host can do could not be tried: could not {step}: {errno}; {}",
        relief(NixErrno::from_raw(errno.0), "try again")
    )]
    Exhausted {
        /// What was tried.
        step: ChainStep,
        /// What it answered.
        errno: Errno,
    },
}

impl Machine {
    /// Asks the kernel. Takes about a millisecond, and is the same for as long as the process runs
    /// with the same ids in the same cgroup.
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
    /// Looks at what else a plan needs, for a machine and an interpreter that are known.
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
    /// Asks the kernel, for an interpreter that is known.
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

/// Finds and asks the interpreter, then the kernel, in this process's environment.
pub fn probe(interpreter: &str, needs: &Needs) -> Result<Host, HostError> {
    let environment = CallerEnvironment::current();
    let path = interpreter::resolve(interpreter, &environment)?;
    let interpreter = interpreter::probe(&path, &environment)?;
    Host::with_interpreter(interpreter, needs, &environment)
}

#[cfg(test)]
mod tests;
