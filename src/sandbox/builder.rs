//! From a policy to a sandbox: starts the interpreter, learns what the host can do, plans, enters.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pool::{Filler, Pool};
use super::warm::Warm;
use super::{AtomicUsize, Inner, Sandbox};
use crate::admission::Admission;
use crate::error::Error;
use crate::host::{
    CallerEnvironment, Host, Interpreter, InterpreterError, probe_interpreter, processors,
    resolve_interpreter,
};
use crate::jail::control::Lifetime;
use crate::outcome::PolicyIdentity;
use crate::plan::{Plan, SessionFiles, Start, needs, plan};
use crate::policy::Policy;
use crate::supervisor::cgroup::CgroupRoot;
use crate::supervisor::session::SessionRoot;
use crate::supervisor::{Launched, SupervisorError};

/// Describes a [`Sandbox`].
#[derive(Clone, Debug, Default)]
pub struct SandboxBuilder {
    /// The built-in one, where there is none: loading it takes longer than finding a sandbox that is there.
    policy: Option<Policy>,
    lifetime: Lifetime,
    environment: Option<CallerEnvironment>,
    ready: Option<usize>,
    admission: Option<Admission>,
}

/// How many workers may stand ready where nobody said: as many as can be made at once.
fn usual_ready() -> usize {
    const MOST: usize = 8;
    processors().get().min(MOST)
}

impl SandboxBuilder {
    /// What the guests may do; the built-in `standard` unless this is called.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Whose environment decides which interpreter a name means, and what `env.pass` passes on; this
    /// process's unless this is called.
    #[must_use]
    pub fn environment(mut self, environment: CallerEnvironment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// How many runs it is for; many unless this is called. A sandbox for one run starts sooner and
    /// runs later ones, which it can, slower.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// How many workers may stand ready before anyone asks for one: forked, jailed and looked at, as
    /// many of them as were wanted lately, and none before the first. Each has the memory of a forked
    /// interpreter that has done nothing yet. 0 has every worker made when it is wanted; without this
    /// call there may be as many as the host has processors, at most 8.
    #[must_use]
    pub fn ready(mut self, most: usize) -> Self {
        self.ready = Some(most);
        self
    }

    pub(super) fn for_policy(&self) -> Cow<'_, Policy> {
        let given = self.policy.as_ref();
        given.map_or_else(|| Cow::Owned(Policy::default()), Cow::Borrowed)
    }

    pub(super) const fn for_lifetime(&self) -> Lifetime {
        self.lifetime
    }

    pub(super) fn caller_environment(&self) -> CallerEnvironment {
        let given = self.environment.clone();
        given.unwrap_or_else(CallerEnvironment::current)
    }

    /// Lets no more go on at once than this admits; as many as are asked for unless this is called.
    #[must_use]
    pub fn admission(mut self, admission: &Admission) -> Self {
        self.admission = Some(admission.clone());
        self
    }

    /// Starts the interpreter, enters its jail and preloads: some tens of milliseconds, and what
    /// the preloaded packages take.
    ///
    /// # Errors
    ///
    /// When the policy cannot be kept on this host ([`ErrorKind::Host`](crate::ErrorKind::Host)), or
    /// the interpreter cannot be used ([`ErrorKind::Interpreter`](crate::ErrorKind::Interpreter)): in
    /// one sentence that names the thing and the remedy. Nothing is left behind.
    pub fn build(self) -> Result<Sandbox, Error> {
        let environment = self.caller_environment();
        let policy = self.for_policy();
        let executable = executable(&policy, &environment)?;
        let launched = launch(&executable, &environment)?;
        let plan = plan_for(&policy, &launched, &executable, &environment)?;
        let cgroups = plan.cgroup.as_ref().map(CgroupRoot::create).transpose()?;
        let sessions = match plan.session_files {
            SessionFiles::Private => None,
            SessionFiles::HostDirectory(_) => Some(Arc::new(SessionRoot::create(&plan.jail)?)),
        };
        let warm = Warm::start(launched, &plan, self.lifetime)?;
        let policy = PolicyIdentity {
            name: policy.name().to_owned(),
            sha256: policy.sha256().to_owned(),
        };
        let ready = match (self.lifetime, plan.interpreter.start) {
            (Lifetime::ManyRuns, Start::Forked) => self.ready.unwrap_or_else(usual_ready),
            // What is not forked would be ready at the price of a whole interpreter.
            _ => 0,
        };
        let inner = Inner {
            pool: Pool::new(ready),
            plan,
            policy,
            cgroups: cgroups.map(Arc::new),
            sessions,
            warm,
            admission: self.admission,
            runs: AtomicUsize::new(0),
        };
        Ok(Sandbox {
            inner: Arc::new(inner),
            filler: Filler::default(),
        })
    }
}

/// Starts the interpreter. One that ends without a word is asked again, by the probe, which knows
/// what else can go by that name.
fn launch(executable: &Path, environment: &CallerEnvironment) -> Result<Launched, Error> {
    let error = match Launched::start(executable) {
        Err(error @ SupervisorError::ZygoteEnded { .. }) => error,
        other => return Ok(other?),
    };
    let asked = probe_interpreter(executable, environment);
    asked.map_err(crate::host::HostError::from)?;
    Err(error.into())
}

/// The interpreter's own facts decide the plan, so that it is started first and asked once.
fn plan_for(
    policy: &Policy,
    launched: &Launched,
    executable: &Path,
    environment: &CallerEnvironment,
) -> Result<Plan, Error> {
    let interpreter = Interpreter::from_facts(launched.facts(), executable)
        .map_err(crate::host::HostError::from)?;
    let host = Host::with_interpreter(interpreter, &needs(policy), environment)?;
    Ok(plan(policy, &host)?)
}

/// The program behind the policy's `python.interpreter`.
///
/// A launcher script, as pyenv puts on `PATH`, is asked for the interpreter that it would start:
/// it needs the caller's environment, which a zygote must not have.
fn executable(policy: &Policy, environment: &CallerEnvironment) -> Result<PathBuf, Error> {
    let find = || -> Result<PathBuf, InterpreterError> {
        let path = resolve_interpreter(&policy.python().interpreter.value, environment)?;
        if is_script(&path) {
            return Ok(probe_interpreter(&path, environment)?.executable);
        }
        Ok(path)
    };
    Ok(find().map_err(crate::host::HostError::from)?)
}

pub(super) fn is_script(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 2];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"#!"
}
