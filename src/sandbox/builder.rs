//! From a policy to a sandbox: starts the interpreter, learns what the host can do, plans, enters.

use std::path::{Path, PathBuf};

use super::warm::Warm;
use super::{AtomicUsize, Sandbox};
use crate::error::Error;
use crate::host::{
    CallerEnvironment, Host, Interpreter, InterpreterError, probe_interpreter, resolve_interpreter,
};
use crate::outcome::PolicyIdentity;
use crate::plan::{Plan, SessionFiles, needs, plan};
use crate::policy::Policy;
use crate::supervisor::Launched;
use crate::supervisor::cgroup::CgroupRoot;
use crate::supervisor::session::SessionRoot;

/// Describes a [`Sandbox`].
#[derive(Clone, Debug, Default)]
pub struct SandboxBuilder {
    policy: Policy,
}

impl SandboxBuilder {
    /// What the guests may do; the built-in `standard` unless this is called.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Starts the interpreter, enters its jail and preloads: some tens of milliseconds, and what
    /// the preloaded packages take.
    ///
    /// # Errors
    ///
    /// When the policy cannot be kept on this host, or the interpreter cannot be used: in one
    /// sentence that names the thing and the remedy.
    pub fn build(self) -> Result<Sandbox, Error> {
        let executable = executable(&self.policy)?;
        let launched = Launched::start(&executable)?;
        let plan = plan_for(&self.policy, &launched, &executable)?;
        let cgroups = plan.cgroup.as_ref().map(CgroupRoot::create).transpose()?;
        let sessions = match plan.session_files {
            SessionFiles::Private => None,
            SessionFiles::HostDirectory(_) => Some(SessionRoot::create(&plan.jail)?),
        };
        let warm = Warm::start(launched, &plan)?;
        let policy = PolicyIdentity {
            name: self.policy.name().to_owned(),
            sha256: self.policy.sha256().to_owned(),
        };
        Ok(Sandbox {
            plan,
            policy,
            cgroups,
            sessions,
            warm,
            runs: AtomicUsize::new(0),
        })
    }
}

/// The interpreter's own facts decide the plan, so that it is started first and asked once.
fn plan_for(policy: &Policy, launched: &Launched, executable: &Path) -> Result<Plan, Error> {
    let interpreter = Interpreter::from_facts(launched.facts(), executable)
        .map_err(crate::host::HostError::from)?;
    let host = Host::with_interpreter(interpreter, &needs(policy))?;
    Ok(plan(policy, &host)?)
}

/// The program behind the policy's `python.interpreter`.
///
/// A launcher script, as pyenv puts on `PATH`, is asked for the interpreter that it would start:
/// it needs the caller's environment, which a zygote must not have.
fn executable(policy: &Policy) -> Result<PathBuf, Error> {
    let environment = CallerEnvironment::current();
    let find = || -> Result<PathBuf, InterpreterError> {
        let path = resolve_interpreter(&policy.python().interpreter.value, &environment)?;
        if is_script(&path) {
            return Ok(probe_interpreter(&path, &environment)?.executable);
        }
        Ok(path)
    };
    Ok(find().map_err(crate::host::HostError::from)?)
}

fn is_script(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 2];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"#!"
}
