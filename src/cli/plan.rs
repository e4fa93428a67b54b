//! Implements `sandfork plan` and `sandfork doctor`: what the sandbox would enforce on this host, and what it could.

use std::path::PathBuf;

use nix::errno::Errno;

use crate::host::{
    self, CallerEnvironment, CgroupSupport, EnvironmentStore, HostWithoutInterpreter, Machine,
    Needs, probe_interpreter, resolve_interpreter,
};
use crate::outcome::exit_code;
use crate::plan::{
    self, CopiedPages, DirectoryFound, PreloadDiagnosis, PreloadPlan, Usability, check_syscalls,
    diagnose, explain,
};
use crate::policy;
use crate::sandbox::ChosenInterpreter;
use crate::supervisor::{kept_in, snapshots_are_possible};
use crate::{Error, Level, Policy, Sandbox};

use super::args::{DoctorArguments, PlanArguments};
use super::failure::Failure;
use super::policy::chosen;
use super::{print, print_json};

/// Shows the plan of a policy on this host.
pub fn plan(arguments: &PlanArguments) -> Result<u8, Failure> {
    let policy = chosen(&arguments.policy)?;
    let mut plan = plan_here(&policy)?;
    plan.interpreter.preload = try_preloads(&policy)?;
    if arguments.json {
        print_json(&plan)
    } else {
        print(explain(&plan))
    }
}

pub(super) fn plan_here(policy: &Policy) -> Result<plan::Plan, Error> {
    let environment = CallerEnvironment::current();
    // `chosen` keeps the package environment from being removed meanwhile.
    let chosen = ChosenInterpreter::of(policy, &environment)?;
    let host = host::probe(&chosen.executable.display().to_string(), &needs(policy))?;
    plan::plan(policy, &host)
}

/// Returns what a policy needs to know of the host, without the values of passed variables: these are secrets, and
/// plans are printed and saved. Values of credentials are never in a plan; planning only fails if they are unset.
fn needs(policy: &Policy) -> Needs {
    let mut needs = plan::needs(policy);
    needs
        .variables
        .retain(|name| !policy.env.pass.contains(name));
    needs
}

/// Returns everything that this host would refuse and that can be found without an interpreter: system calls, the
/// level, limits and paths.
pub(super) fn refused_here(policy: &Policy) -> Vec<Error> {
    let environment = CallerEnvironment::current();
    let mut refused = check_syscalls(policy);
    match HostWithoutInterpreter::probe(CgroupSupport::probe(), &needs(policy), &environment) {
        Ok(host) => {
            let values = plan::refused(policy, host.machine(), host.paths());
            refused.extend(values);
        }
        Err(error) => refused.push(error),
    }
    refused
}

/// Returns why the policy's interpreter or its packages cannot be used on this host.
pub(super) fn interpreter_refused_here(policy: &Policy) -> Option<Error> {
    let environment = CallerEnvironment::current();
    let interpreter = ChosenInterpreter::of(policy, &environment);
    let interpreter =
        interpreter.and_then(|chosen| probe_interpreter(&chosen.executable, &environment));
    interpreter.err()
}

/// Preloads the policy's modules as a run would, because only an import shows whether a package can be preloaded.
pub fn try_preloads(policy: &Policy) -> Result<Vec<PreloadPlan>, Error> {
    if policy.python.preload.is_empty() {
        return Ok(Vec::new());
    }
    let builder = Sandbox::builder().policy(policy.clone());
    builder.try_preloads()
}

/// Tries the preloads of those built-in policies whose level this host reaches.
fn diagnose_preloads(level: Option<Level>) -> Vec<PreloadDiagnosis> {
    policy::builtin_names()
        .filter_map(Policy::builtin)
        .filter(|policy| level.is_some_and(|level| level >= policy.require()))
        .filter(|policy| !policy.python.preload.is_empty())
        .map(|policy| {
            let (modules, error) = match try_preloads(&policy) {
                Ok(modules) => (modules, None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            PreloadDiagnosis {
                policy: policy.name().to_owned(),
                modules,
                error,
            }
        })
        .collect()
}

/// Tries whether forks copy pages eagerly. If not, everything still runs, but more slowly.
fn diagnose_forks(policy: Policy) -> Usability<CopiedPages> {
    let error = match Sandbox::builder().policy(policy).try_copies() {
        Ok(Ok(pages)) => return Usability::Usable(CopiedPages { pages }),
        Ok(Err(errno)) => {
            let why = errno.desc();
            let remedy = match errno {
                Errno::EPERM | Errno::ENOSYS | Errno::EACCES => {
                    ": this process may not use io_uring; allow it by `sysctl kernel.io_uring_disabled=0`, and in the \
                     filter of its container or unit"
                }
                Errno::ENOMEM => ": this user may pin too little memory; raise `ulimit -l`",
                _ => "",
            };
            format!("workers copy pages one at a time, which takes longer ({why}){remedy}")
        }
        Err(error) => error.to_string(),
    };
    Usability::Unusable { error }
}

/// Checks this host layer by layer. Fails if it cannot run anything.
pub fn doctor(arguments: &DoctorArguments) -> Result<u8, Failure> {
    let machine = Machine::probe()?;
    let environment = CallerEnvironment::current();
    let policy = Policy::default();
    let interpreter = resolve_interpreter(&policy.python.interpreter.value, &environment)
        .and_then(|path| probe_interpreter(&path, &environment));
    let mut diagnosis = diagnose(&machine, interpreter.as_ref());
    let found = |directory: PathBuf| DirectoryFound {
        directory: directory.display().to_string(),
    };
    diagnosis.cache = Some(Usability::of(kept_in().map(found)));
    let environments = EnvironmentStore::usable(&environment).map(found);
    diagnosis.environments = Some(Usability::of(environments));
    let snapshots = diagnosis.level.map(snapshots_are_possible);
    diagnosis.snapshots = snapshots.map(Usability::of);
    if diagnosis.is_usable() {
        let default =
            Some(Policy::default()).filter(|policy| diagnosis.level >= Some(policy.require()));
        diagnosis.forks = default.map(diagnose_forks);
        diagnosis.preloads = diagnose_preloads(diagnosis.level);
    }
    if arguments.json {
        print_json(&diagnosis)?;
    } else {
        print(diagnosis.to_string())?;
    }
    Ok(if diagnosis.is_usable() {
        exit_code::OK
    } else {
        exit_code::SANDBOX_UNAVAILABLE
    })
}
