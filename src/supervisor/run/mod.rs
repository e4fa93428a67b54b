//! One run from its request to its outcome: feeds the worker, drains its output, watches and ends
//! it.

mod deferred;
mod files;
mod report;
mod request;
mod request_files;
mod stdin;
mod watch;

use std::sync::Arc;
use std::time::Instant;

pub use self::request::{Cancel, Request};
pub use super::drain::OutputSink;

pub(crate) use self::deferred::Deferred;
pub(super) use self::files::{Files, NoRoom};
pub(super) use self::report::{Fate, Seen, report};
pub(super) use self::request::ONLY_REQUEST;
pub(super) use self::watch::{Pace, Watch};
use super::cgroup::CgroupRoot;
use super::error::{SupervisorError, While};
use super::live::{EndedRun, Purpose, Times, WorkerLoop};
use super::session::SessionRoot;
use super::trace;
use super::verified_worker::VerifiedWorker;
use super::zygote::Zygote;
use crate::outcome::{JailSteps, Outcome, Phases, PolicyIdentity};
use crate::policy::Limits;
use sandfork_jail::control::CpuBudgetScope;
use sandfork_jail::program::ZygoteJail;
use sandfork_jail::timing::{Part, Timing};

/// The context of a run: a zygote with its jail, and the cgroups and directories of its workers.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// The zygote that forks the worker.
    pub zygote: &'a Zygote,
    /// The zygote's jail. The worker is checked against it.
    pub jail: &'a ZygoteJail,
    /// The parent of the worker's cgroup, if the plan has that layer.
    pub cgroups: Option<&'a Arc<CgroupRoot>>,
    /// The parent of the worker's directory, if the plan has no mounts.
    pub sessions: Option<&'a Arc<SessionRoot>>,
    /// The limits of the run.
    pub limits: Limits,
    /// The policy's name and digest.
    pub policy: &'a PolicyIdentity,
    /// The processor to start at, if the plan pins workers.
    pub first_core: usize,
}

/// Runs a request in a fresh worker: requests the fork, checks the worker from outside, sends the
/// code, watches the limits, and returns when nothing of the worker is left.
///
/// # Errors
///
/// When no worker could be made, a layer does not hold ([`SupervisorError::NotEnforced`], nothing
/// was run), or the zygote was ended from outside.
pub fn run(
    context: &RunContext,
    request: &Request,
    sink: &mut dyn OutputSink,
) -> Result<Outcome, SupervisorError> {
    let called = Instant::now();
    trace::in_span(|| {
        let prepared = Prepared::new(context, request)?;
        let stdin = request.open_stdin().when("open stdin")?;
        let verified = VerifiedWorker::new(context, stdin, CpuBudgetScope::Life)?;
        prepared.run(&verified, sink, called, None)
    })
}

/// Runs a request in a verified worker: the part of [`run`] after making one. `called` is when the
/// caller requested the run, and `later` is deferred until the run is over.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_in(
    verified: &VerifiedWorker,
    context: &RunContext,
    request: &Request,
    sink: &mut dyn OutputSink,
    called: Instant,
    later: Option<Deferred>,
) -> Result<Outcome, SupervisorError> {
    trace::in_span(|| Prepared::new(context, request)?.run(verified, sink, called, later))
}

/// A request that passed its checks, before anything was made for it.
struct Prepared<'a> {
    context: RunContext<'a>,
    request: &'a Request,
    message: Vec<u8>,
}

impl<'a> Prepared<'a> {
    fn new(context: &RunContext<'a>, request: &'a Request) -> Result<Self, SupervisorError> {
        let limits = request.limits(context.limits)?;
        Ok(Self {
            context: RunContext { limits, ..*context },
            request,
            message: request.encode()?,
        })
    }

    fn run(
        self,
        verified: &VerifiedWorker,
        sink: &mut dyn OutputSink,
        called: Instant,
        later: Option<Deferred>,
    ) -> Result<Outcome, SupervisorError> {
        let Self {
            context,
            request,
            message,
        } = self;
        request_files::put(request.files(), &verified.worker, &context)?;
        let purpose = Purpose::Run(request.kind());
        let EndedRun {
            seen,
            output,
            times,
        } = WorkerLoop::new(&context, verified, purpose)?.run(
            message,
            sink,
            request.cancelled_by(),
            later,
        )?;
        let seen = Seen {
            phases: phases(called, verified, times),
            ..seen
        };
        let enforced = verified.enforced.clone();
        let outcome = report(&context, request.kind(), seen, output.total(), enforced);
        let (stdout, stderr) = output.into_bytes();
        Ok(outcome.with_output(stdout, stderr))
    }
}

fn phases(called: Instant, verified: &VerifiedWorker, times: Times) -> Phases {
    let worker = &verified.worker;
    // A worker that was made in advance did not cost the caller time.
    let since =
        |later: Instant, earlier: Instant| later.saturating_duration_since(earlier.max(called));
    let ready = worker.jailed.max(called);
    Phases {
        place: since(worker.asked, called),
        fork: since(worker.born, worker.asked),
        jail: since(worker.jailed, worker.born),
        jail_steps: if worker.jailed > called {
            jail_steps(&worker.timing)
        } else {
            JailSteps::default()
        },
        verify: times.started - ready,
        code: times.answered - times.started,
        exit: times.exited - times.answered,
        reap: times.gone - times.exited,
    }
}

fn jail_steps(timing: &Timing) -> JailSteps {
    JailSteps {
        descriptors: timing.of(Part::Descriptors),
        cgroup: timing.of(Part::Cgroup),
        namespaces: timing.of(Part::Namespaces),
        mounts: timing.of(Part::Mounts),
        limits: timing.of(Part::Limits),
        identity: timing.of(Part::Identity),
        landlock: timing.of(Part::Landlock),
        capabilities: timing.of(Part::Capabilities),
        seccomp: timing.of(Part::Seccomp),
    }
}
