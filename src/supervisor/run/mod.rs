//! Executes one run, from its request to its outcome.

mod cancel;
mod deferred;
mod files;
mod opaque;
mod program;
mod report;
mod request;
mod request_files;
mod stdin;
mod watch;

use std::sync::Arc;
use std::time::Instant;

pub use self::cancel::Cancel;
pub use self::request::Request;
pub use super::drain::OutputSink;

pub(crate) use self::deferred::Deferred;
pub(super) use self::files::Files;
pub(crate) use self::opaque::Opaque;
pub(super) use self::report::{Fate, Observed, report};
pub(super) use self::request::ONLY_REQUEST;
pub(super) use self::watch::{Measured, Pace, Watch};
use super::cgroup::CgroupRoot;
use super::clock;
use super::egress::Egress;
use super::error::{SupervisorError, While};
use super::session_dir::SessionRoot;
use super::session_loop::{OneRun, serve_run};
use super::snapshot::Shelf;
use super::trace;
use super::verified_worker::VerifiedWorker;
use super::zygote::Zygote;
use crate::error::ErrorKind;
use crate::outcome::{Outcome, PolicyIdentity};
use crate::plan::Grants;
use crate::policy::Limits;
use sandfork_jail::control::CpuBudgetScope;
use sandfork_jail::program::ZygoteJail;

/// The context of a run: a zygote with its jail, and the cgroups and directories of its workers.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// The zygote that forks the worker.
    pub zygote: &'a Arc<Zygote>,
    /// The zygote's jail. The worker is checked against it.
    pub jail: &'a ZygoteJail,
    /// The parent of the worker's cgroup, if the plan has that layer.
    pub cgroups: Option<&'a Arc<CgroupRoot>>,
    /// The parent of the worker's directory, if the plan has no mounts.
    pub sessions: Option<&'a Arc<SessionRoot>>,
    /// The egress process, if the policy allows any hosts.
    pub egress: Option<&'a Arc<Egress>>,
    /// The limits of the run.
    pub limits: Limits,
    /// The policy's name and digest.
    pub policy: &'a PolicyIdentity,
    /// The first processor to use, if the plan pins workers.
    pub first_core: usize,
    /// The policy's grants, which explain refusals.
    pub grants: &'a Grants,
    /// Whether denials say which of the hidden paths exist on the host.
    pub ask_host: AskHost,
    /// The snapshots of sessions.
    pub snapshots: &'a Shelf,
    /// The number under which the session's snapshots are kept.
    pub session: u64,
}

/// Whether the supervisor looks up which of the paths that a guest did not find exist on the host.
///
/// The answer is meant for the caller. A caller that passes it on to the author of the code, or to a model, reveals
/// what exists on the host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AskHost {
    /// No lookup: a missing path and a hidden path are reported alike.
    #[default]
    No,
    /// Paths are looked up on the host.
    Yes,
}

/// Runs a request in a fresh worker: requests the fork, verifies the worker from outside, sends the code, enforces the
/// limits, and returns when no process of the worker is left.
///
/// # Errors
///
/// When no worker could be made, when a layer does not hold ([`SupervisorError::NotEnforced`]; nothing was run), or
/// when the zygote was killed from outside.
pub fn run(
    context: &RunContext,
    request: &Request,
    sink: &mut dyn OutputSink,
) -> Result<Outcome, SupervisorError> {
    let called = clock::now();
    trace::in_span(|| {
        let prepared = Prepared::new(context, request)?;
        let stdin = request.stdin.open().when("open stdin")?;
        let verified = VerifiedWorker::new(context, stdin, CpuBudgetScope::Life)?;
        prepared.run(&verified, sink, called, None)
    })
}

/// Runs a request in an existing verified worker. `called` is when the caller requested the run, and `later` is work
/// that is deferred until the run is over, or until it is due.
///
/// # Errors
///
/// As for [`run`].
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

/// A validated and encoded request.
struct Prepared<'a> {
    context: RunContext<'a>,
    request: &'a Request,
    message: Vec<u8>,
}

impl<'a> Prepared<'a> {
    fn new(context: &RunContext<'a>, request: &'a Request) -> Result<Self, SupervisorError> {
        let limits = request.overrides.resolve(&context.limits);
        let limits =
            limits.map_err(|above| SupervisorError::new(ErrorKind::Request, above.to_string()))?;
        request.check_files(&limits)?;
        if request.terminal().is_some() && context.jail.worker.ptys.is_none() {
            return Err(SupervisorError::new(
                ErrorKind::Request,
                "the program cannot have a terminal: this needs namespaces, and a policy whose `filesystem.system` is \
                 \"programs\"; leave out `-t`, or see `sandfork doctor` and `sandfork plan`",
            ));
        }
        Ok(Self {
            context: RunContext {
                limits,
                ask_host: request.ask_host,
                ..*context
            },
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
        let (context, request) = (self.context, self.request);
        request_files::put(&request.files, &verified.worker, &context)?;
        let run = OneRun {
            kind: request.kind(),
            message: self.message,
            called,
            sink,
            cancel: request.cancel.as_ref(),
        };
        let outcome = serve_run(&context, verified, run, later)?;
        request.collect_from(&verified.worker, &context.jail.worker.cwd, &outcome);
        Ok(outcome)
    }
}
