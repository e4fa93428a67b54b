//! Probes the kernel and the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use nix::errno::Errno as NixErrno;

use super::kept::{Keeper, KeptNeeds};
use super::route::Links;
use super::{
    Arch, CallerEnvironment, CgroupSupport, EnvironmentStore, Errno, Host, HostLimits, HostUser,
    Interpreter, KernelVersion, LandlockSupport, Machine, NamespaceSupport, PathFact, Processors,
    SeccompSupport, SystemPath, TimeNamespaces, exhaustion_hint, interpreter,
};
use crate::error::{Error, ErrorKind};

/// What a policy needs to know about the host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// The paths that the policy names.
    pub paths: BTreeSet<PathBuf>,
    /// The script to run, if it is a file.
    pub script: Option<PathBuf>,
    /// The variables that the policy takes from the caller.
    pub variables: BTreeSet<String>,
    /// The candidate files of trusted certificates, if the policy needs one.
    pub certificates: Vec<PathBuf>,
    /// The policy's own files that later starts run or trust, if the policy makes a host path writable.
    pub kept: Option<KeptNeeds>,
}

/// Returns the error for a host without procfs.
pub fn no_proc() -> Error {
    Error::host(
        "no procfs is mounted on /proc, where Sandfork reads the state of its processes: `sudo mount -t proc proc /proc`",
    )
}

/// Returns the error for a probe that failed for lack of a resource.
pub(super) fn untried(problem: impl fmt::Display, errno: Errno) -> Error {
    let hint = exhaustion_hint(NixErrno::from_raw(errno.0), "try again");
    Error::new(ErrorKind::System, format!("{problem}: {errno}; {hint}"))
}

impl Machine {
    /// Probes the kernel. Takes about a millisecond. The result stays valid while the process runs with the same ids in
    /// the same cgroup.
    pub fn probe() -> Result<Self, Error> {
        Self::with_cgroup(CgroupSupport::probe())
    }

    /// Probes the rest of the kernel, given the result for cgroups.
    fn with_cgroup(cgroup: CgroupSupport) -> Result<Self, Error> {
        let user = HostUser::probe()?;
        Ok(Self {
            kernel: KernelVersion::probe().ok_or_else(|| {
                Error::host("the kernel does not report its version (uname): Sandfork needs Linux 5.13 or later")
            })?,
            arch: Arch::current(),
            user,
            namespaces: NamespaceSupport::probe(user)?,
            time_namespaces: TimeNamespaces::probe(),
            landlock: LandlockSupport::probe(),
            seccomp: SeccompSupport::probe(),
            cgroup,
            limits: HostLimits::probe(),
            processors: Processors::probe(),
        })
    }
}

/// Everything that a plan depends on besides the policy and the interpreter. Probing all of it takes less time than
/// starting an interpreter.
#[derive(Clone, Debug)]
pub struct HostWithoutInterpreter {
    machine: Machine,
    system: Vec<SystemPath>,
    paths: BTreeMap<PathBuf, PathFact>,
    closed_script: Option<String>,
    caller_env: BTreeMap<String, String>,
    keeper: Option<Keeper>,
    environments: Option<PathBuf>,
    certificates: Option<PathBuf>,
}

impl HostWithoutInterpreter {
    /// Probes what a plan needs, given the result for cgroups.
    pub fn probe(
        cgroup: CgroupSupport,
        needs: &Needs,
        environment: &CallerEnvironment,
    ) -> Result<Self, Error> {
        let paths = needs.paths.iter();
        let system = SystemPath::probe_all();
        let certificates = certificates(&needs.certificates, environment);
        let keeper = needs.kept.as_ref();
        let keeper =
            keeper.map(|needs| Keeper::new(needs, environment, &system, certificates.as_deref()));
        Ok(Self {
            machine: Machine::with_cgroup(cgroup)?,
            system,
            paths: paths
                .map(|path| (path.clone(), PathFact::probe(path)))
                .collect(),
            closed_script: needs.script.as_deref().and_then(PathFact::closed_text),
            caller_env: caller_env(&needs.variables, environment)?,
            keeper,
            environments: EnvironmentStore::of(environment)
                .ok()
                .map(|store| Links::default().route(store.directory()).end),
            certificates,
        })
    }

    /// Returns the kernel and this process.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns what the probe found at each path that the policy names.
    pub fn paths(&self) -> &BTreeMap<PathBuf, PathFact> {
        &self.paths
    }

    /// Combines this with an interpreter.
    pub fn with(self, interpreter: Interpreter) -> Host {
        let keeper = self.keeper;
        let kept = keeper.map(|keeper| keeper.with(&interpreter));
        Host {
            machine: self.machine,
            interpreter,
            system: self.system,
            paths: self.paths,
            closed_script: self.closed_script,
            caller_env: self.caller_env,
            kept: kept.unwrap_or_default(),
            environments: self.environments,
            certificates: self.certificates,
        }
    }
}

/// Returns the caller's `SSL_CERT_FILE`, or the first candidate that exists.
fn certificates(places: &[PathBuf], environment: &CallerEnvironment) -> Option<PathBuf> {
    let chosen = environment
        .text("SSL_CERT_FILE")
        .filter(|_| !places.is_empty());
    let chosen = chosen.map(PathBuf::from);
    chosen.or_else(|| places.iter().find(|path| path.is_file()).cloned())
}

/// Returns those of the variables that are set.
fn caller_env(
    names: &BTreeSet<String>,
    environment: &CallerEnvironment,
) -> Result<BTreeMap<String, String>, Error> {
    let passed = |name: &String| match environment.text(name) {
        Some(value) => Some(Ok((name.clone(), value.to_owned()))),
        None if environment.has(name) => Some(Err(Error::host(format!(
            "the value of {name} in the caller's environment is not UTF-8, and the policy passes it on: change it, \
             or take {name} out of the policy"
        )))),
        None => None,
    };
    names.iter().filter_map(passed).collect()
}

/// Resolves and probes the interpreter, and probes the kernel, in this process's environment.
pub fn probe(interpreter: &str, needs: &Needs) -> Result<Host, Error> {
    let environment = CallerEnvironment::current();
    let path = interpreter::resolve(interpreter, &environment)?;
    let interpreter = interpreter::probe(&path, &environment)?;
    let host = HostWithoutInterpreter::probe(CgroupSupport::probe(), needs, &environment)?;
    Ok(host.with(interpreter))
}

#[cfg(test)]
mod tests;
