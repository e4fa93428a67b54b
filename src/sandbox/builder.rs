//! Builds a sandbox from a policy: starts the interpreter, probes the host, makes the plan, and has the interpreter
//! enter the jail.

use std::borrow::Cow;
use std::sync::Arc;

use nix::errno::Errno;

use super::interpreter::ChosenInterpreter;
use super::pool::{Filler, Pool};
use super::stats::Counts;
#[cfg(feature = "internals")]
use super::turnover::Turnover;
use super::zygote_manager::{PendingZygote, Serving, ZygoteManager};
use super::{AddedStore, AtomicUsize, Inner, Sandbox};
use crate::admission::Admission;
use crate::error::Error;
use crate::host::{
    CallerEnvironment, CgroupSupport, EnvironmentStore, HostWithoutInterpreter, Interpreter,
    probe_interpreter, processors,
};
use crate::outcome::PolicyIdentity;
use crate::plan::{Grants, Plan, PreloadPlan, SessionFiles, Start, needs, plan, trust};
use crate::policy::{AddedPackages, Policy};
use crate::supervisor::cgroup::{self, CgroupRoot};
use crate::supervisor::egress::Egress;
use crate::supervisor::session_dir::SessionRoot;
use crate::supervisor::{Launched, Shelf, StartCache, Starting, SupervisorError, Zygote};
use sandfork_jail::control::Lifetime;
#[cfg(feature = "internals")]
use sandfork_jail::control::RunPath;

/// Builds a [`Sandbox`].
#[derive(Clone, Debug, Default)]
pub struct SandboxBuilder {
    /// `None` for the built-in policy, which is loaded late because loading it takes longer than finding an existing
    /// sandbox.
    policy: Option<Policy>,
    serving: Serving,
    environment: Option<CallerEnvironment>,
    ready: Option<usize>,
    pub(super) admission: Option<Admission>,
}

/// Returns the default number of ready workers: as many as the host can make at once.
fn default_ready() -> usize {
    const MAX: usize = 8;
    processors().get().min(MAX)
}

impl SandboxBuilder {
    /// Sets the policy. The default is the built-in `standard`.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets the environment that resolves the interpreter's name and supplies the variables of `env.pass`. The default
    /// is this process's environment.
    #[must_use]
    pub fn environment(mut self, environment: CallerEnvironment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Sets how many runs the sandbox is optimized for. The default is many. A sandbox for one run starts sooner; it
    /// can run more, but more slowly.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.serving.lifetime = lifetime;
        self
    }

    /// Sets how many workers may be ready before a request arrives: forked, jailed and verified. The number of ready
    /// workers follows the recent request rate, and is zero before the first request. Each takes the memory of a forked
    /// interpreter that has run nothing yet. With 0, every worker is made on request. The default is the number of the
    /// host's processors, at most 8.
    #[must_use]
    pub fn ready(mut self, most: usize) -> Self {
        self.ready = Some(most);
        self
    }

    /// Sets which code executes a run in its worker.
    #[cfg(feature = "internals")]
    pub(crate) fn with_run_path(mut self, run_path: RunPath) -> Self {
        self.serving.run_path = run_path;
        self
    }

    /// Sets when zygotes are replaced.
    #[cfg(feature = "internals")]
    pub(crate) fn with_turnover(mut self, turnover: Turnover) -> Self {
        self.serving.turnover = turnover;
        self
    }

    /// Returns the policy, if one was set.
    pub(crate) fn given_policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    fn policy_or_default(&self) -> Cow<'_, Policy> {
        let given = self.policy.as_ref();
        given.map_or_else(|| Cow::Owned(Policy::default()), Cow::Borrowed)
    }

    pub(crate) fn caller_environment(&self) -> CallerEnvironment {
        let given = self.environment.clone();
        given.unwrap_or_else(CallerEnvironment::current)
    }

    /// Limits concurrent runs by an [`Admission`]. Sessions and their cells count only if the caller admits them with
    /// [`Admission::admit`]. The default is no limit.
    #[must_use]
    pub fn admission(mut self, admission: &Admission) -> Self {
        self.admission = Some(admission.clone());
        self
    }

    /// Builds a sandbox without installing packages: those that the policy names must be installed already.
    pub(crate) fn build_without_installing(self) -> Result<Sandbox, Error> {
        let environment = self.caller_environment();
        let policy = self.policy_or_default();
        let support = CgroupSupport::probe();
        cgroup::make_room(&support)?;
        let chosen = ChosenInterpreter::of(&policy, &environment)?;
        let added = match policy.python.added_packages {
            AddedPackages::Shown => Some(AddedStore {
                _held: EnvironmentStore::of(&environment)?.added().hold_all()?,
                caller: environment.clone(),
            }),
            AddedPackages::Refused => None,
        };
        let (launched, mut plan, start) = launch(
            &policy,
            &chosen,
            self.serving.lifetime,
            support,
            &environment,
        )?;
        let egress = plan.egress.as_ref();
        let egress = egress.map(|plan| Egress::launch(plan, &environment));
        let egress = egress.transpose()?.map(Arc::new);
        if let Some(egress) = &egress {
            trust(&mut plan.jail, &egress.certificate()?);
        }
        let zygote = PendingZygote::begin(launched, &plan, self.serving, &start, None)?;
        let cgroups = plan.cgroup.as_ref().map(CgroupRoot::create).transpose()?;
        cgroups.iter().for_each(CgroupRoot::prepare);
        let sessions = match plan.session_files {
            SessionFiles::Private => None,
            SessionFiles::HostDirectory(_) => Some(Arc::new(SessionRoot::create(&plan.jail)?)),
        };
        let zygote = zygote.finish(&mut plan, &start)?;
        let zygotes = ZygoteManager::new(zygote, &plan, self.serving, start);
        let grants = Grants::new(&policy, &plan);
        let policy = PolicyIdentity {
            name: policy.name().to_owned(),
            sha256: policy.sha256().to_owned(),
        };
        let ready = match (self.serving.lifetime, plan.interpreter.start) {
            (Lifetime::ManyRuns, Start::Forked) => self.ready.unwrap_or_else(default_ready),
            // Without forking, each ready worker would cost a whole interpreter.
            _ => 0,
        };
        let inner = Inner {
            pool: Pool::new(ready),
            plan,
            policy,
            grants,
            _environment: chosen.held,
            added,
            settings: Self {
                policy: None,
                ..self
            },
            egress,
            cgroups: cgroups.map(Arc::new),
            sessions,
            zygotes,
            snapshots: Shelf::default(),
            runs: AtomicUsize::new(0),
            counts: Counts::default(),
        };
        Ok(Sandbox {
            inner: Arc::new(inner),
            filler: Filler::default(),
        })
    }

    /// Preloads the policy's modules in a zygote that runs nothing, and returns how each was loaded.
    pub(crate) fn try_preloads(&self) -> Result<Vec<PreloadPlan>, Error> {
        Ok(self.try_zygote(Lifetime::OneRun)?.1.interpreter.preload)
    }

    /// Returns how many pages a fork copies eagerly on this host, or why none.
    pub(crate) fn try_copies(&self) -> Result<Result<usize, Errno>, Error> {
        let copied = self.try_zygote(Lifetime::ManyRuns)?.0.copied;
        Ok(copied.unwrap_or(Err(Errno::ENOTSUP)))
    }

    /// Starts a zygote that runs nothing.
    fn try_zygote(&self, lifetime: Lifetime) -> Result<(Arc<Zygote>, Plan), Error> {
        let environment = self.caller_environment();
        let policy = self.policy_or_default();
        let serving = Serving {
            lifetime,
            ..Serving::default()
        };
        let support = CgroupSupport::probe();
        let chosen = ChosenInterpreter::of(&policy, &environment)?;
        let (launched, mut plan, start) =
            launch(&policy, &chosen, serving.lifetime, support, &environment)?;
        let zygote = PendingZygote::begin(launched, &plan, serving, &start, None)?;
        let zygote = zygote.finish(&mut plan, &start)?;
        Ok((zygote, plan))
    }
}

/// Starts the interpreter and makes the plan. Work that needs no facts from the interpreter is done while it starts,
/// which takes longer.
fn launch(
    policy: &Policy,
    chosen: &ChosenInterpreter,
    lifetime: Lifetime,
    cgroup: CgroupSupport,
    environment: &CallerEnvironment,
) -> Result<(Launched, Plan, StartCache), Error> {
    let executable = &chosen.executable;
    let starting = Starting::begin(executable)?;
    let host = HostWithoutInterpreter::probe(cgroup, &needs(policy), environment);
    let start = StartCache::read(executable, lifetime);
    let plan_for = |facts: &str| -> Result<Plan, Error> {
        let interpreter = Interpreter::from_facts(facts, executable)?;
        plan(policy, &host.clone()?.with(interpreter))
    };
    // The interpreter most likely reports the same facts as last time.
    let guess = start.facts().map(|facts| (plan_for(&facts), facts));
    let launched = match starting.launched() {
        // The probe explains better what the file is if it is not a usable interpreter.
        Err(error @ SupervisorError::ZygoteEnded(_)) => {
            probe_interpreter(executable, environment)?;
            return Err(error.into());
        }
        other => other?,
    };
    let plan = match guess {
        Some((plan, facts)) if facts == launched.facts => plan,
        _ => plan_for(&launched.facts),
    };
    Ok((launched, plan?, start))
}
