//! One run from its request to its outcome: feeds the worker, drains it, watches it, ends it.

mod event_loop;
mod files;
mod later;
mod less;
mod placed;
mod report;
mod request;
mod stdin;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::request::{Cancel, Request};
pub use super::drain::OutputSink;

use self::event_loop::{Ended, Running, Times};
pub(super) use self::files::{Files, NoRoom};
pub(crate) use self::later::Later;
pub(super) use self::report::{Fate, Seen, report};
pub(super) use self::watch::{Pace, Watch};
use super::cgroup::{CgroupRoot, WorkerCgroup};
use super::error::{SupervisorError, While};
use super::session::SessionRoot;
use super::standing::Standing;
use super::trace;
use super::zygote::Zygote;
use crate::jail::control::CpuSpan;
use crate::jail::program::ZygoteJail;
use crate::jail::timing::{Part, Timing};
use crate::outcome::{JailSteps, Outcome, Phases, PolicyIdentity};
use crate::plan::FileQuota;

/// What the supervisor itself watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunLimits {
    /// From the moment that the worker gets its code.
    pub wall: Duration,
    /// All processes of the worker together.
    pub cpu: Duration,
    /// Bytes, all processes of the worker together.
    pub memory: u64,
    /// Tasks.
    pub pids: u32,
    /// Bytes, both streams.
    pub output: u64,
    /// Thousandths of a processor: how soon the processor time could be used up.
    pub millicores: u32,
    /// The session's files, where no file system has a quota for them.
    pub files: Option<FileQuota>,
}

/// Where runs happen: a zygote with its jail, and the cgroups and directories of its workers.
#[derive(Debug)]
pub struct Place<'a> {
    /// Forks the worker.
    pub zygote: &'a Zygote,
    /// The zygote's jail, against which the worker is checked.
    pub jail: &'a ZygoteJail,
    /// Where the worker's cgroup is made, if the plan has that layer.
    pub cgroups: Option<&'a Arc<CgroupRoot>>,
    /// Where the worker's directory is made, if the plan has no mounts.
    pub sessions: Option<&'a Arc<SessionRoot>>,
    /// The limits.
    pub limits: RunLimits,
    /// What the work directory may hold, bytes.
    pub work_size: u64,
    /// The policy's name and digest.
    pub policy: &'a PolicyIdentity,
    /// The processor to start at, where the plan pins.
    pub first_core: usize,
}

/// Runs a request in a fresh worker: has it forked, looks at it from outside, sends the code, watches
/// the limits, and returns when nothing of the worker is left.
///
/// # Errors
///
/// When no worker could be made, a layer does not hold ([`SupervisorError::NotEnforced`], nothing was
/// run), or the zygote was ended from outside.
pub fn run(
    place: &Place,
    request: &Request,
    sink: &mut dyn OutputSink,
) -> Result<Outcome, SupervisorError> {
    let called = Instant::now();
    trace::in_span(|| {
        let prepared = Prepared::new(place, request)?;
        let stdin = request.open_stdin().when("open stdin")?;
        let standing = Standing::new(place, stdin, CpuSpan::Life)?;
        prepared.run(&standing, sink, called, None)
    })
}

/// Runs a request in a worker that stood ready: what [`run`] does after making one. `called` is when it
/// was asked for, and `later` waits until it is over.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_in(
    standing: &Standing,
    place: &Place,
    request: &Request,
    sink: &mut dyn OutputSink,
    called: Instant,
    later: Option<Later>,
) -> Result<Outcome, SupervisorError> {
    trace::in_span(|| Prepared::new(place, request)?.run(standing, sink, called, later))
}

/// A request that was found fit to be run, before anything was made for it.
struct Prepared<'a> {
    place: Place<'a>,
    request: &'a Request,
    message: Vec<u8>,
}

impl<'a> Prepared<'a> {
    fn new(place: &Place<'a>, request: &'a Request) -> Result<Self, SupervisorError> {
        let limits = request.limits(place.limits)?;
        Ok(Self {
            place: Place { limits, ..*place },
            request,
            message: request.encode()?,
        })
    }

    fn run(
        self,
        standing: &Standing,
        sink: &mut dyn OutputSink,
        called: Instant,
        later: Option<Later>,
    ) -> Result<Outcome, SupervisorError> {
        let Self {
            place,
            request,
            message,
        } = self;
        let worker = &standing.worker;
        placed::put(request.files(), worker, &place)?;
        let watch = standing.watch(&place);
        let running = Running::new(worker, message, place.limits, request.kind(), watch)?;
        let Ended {
            stop,
            exit,
            result,
            output,
            times,
            watched,
        } = running.until_end(sink, request.cancelled_by(), later)?;
        worker.end();
        if exit.is_none() && stop.is_none() {
            return Err(SupervisorError::RunLost);
        }

        let counts = standing.cgroup.as_ref().map(WorkerCgroup::counts);
        let seen = Seen {
            stop,
            exit,
            result,
            counts: counts.unwrap_or_default(),
            watched,
            files: standing.files(&place),
            wall: times.exited - times.started,
            phases: phases(called, standing, times),
            fate: Fate::Ended,
        };
        let enforced = standing.enforced.clone();
        let outcome = report(&place, request.kind(), seen, output.total(), enforced);
        let (stdout, stderr) = output.into_bytes();
        Ok(outcome.with_output(stdout, stderr))
    }
}

fn phases(called: Instant, standing: &Standing, times: Times) -> Phases {
    let Standing { worker, jailed, .. } = standing;
    // A worker that stood ready was made on nobody's time.
    let since =
        |later: Instant, earlier: Instant| later.saturating_duration_since(earlier.max(called));
    let ready = (*jailed).max(called);
    Phases {
        place: since(worker.asked, called),
        fork: since(worker.born, worker.asked),
        jail: since(*jailed, worker.born),
        jail_steps: if *jailed > called {
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
