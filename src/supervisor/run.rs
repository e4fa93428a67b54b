//! One run from its request to its outcome: feeds the worker, drains it, watches it, ends it.

mod event_loop;
mod files;
mod report;
mod request;
mod watch;

use std::time::{Duration, Instant};

pub use self::request::{Cancel, Request};
pub use super::drain::OutputSink;

use self::event_loop::{Ended, Running, Times};
pub(super) use self::files::Files;
pub(super) use self::report::{Fate, Seen, report};
pub(super) use self::watch::{Pace, Watch};
use super::cgroup::{CgroupRoot, WorkerCgroup};
use super::error::{SupervisorError, While};
use super::session::SessionRoot;
use super::spawn::Worker;
use super::verify::verify;
use super::zygote::Zygote;
use crate::jail::control::CpuSpan;
use crate::jail::program::ZygoteJail;
use crate::outcome::{Outcome, Phases, PolicyIdentity};
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
    pub cgroups: Option<&'a CgroupRoot>,
    /// Where the worker's directory is made, if the plan has no mounts.
    pub sessions: Option<&'a SessionRoot>,
    /// The limits.
    pub limits: RunLimits,
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
    let message = request.encode()?;
    let cgroup = match place.cgroups {
        Some(root) => Some(root.worker()?),
        None => None,
    };
    // Before the worker, and so removed after it.
    let session = match place.sessions {
        Some(root) => Some(root.directory()?),
        None => None,
    };
    let (cgroup, session) = (cgroup.as_ref(), session.as_ref());
    let stdin = request.open_stdin().when("open stdin")?;
    let worker = Worker::spawn(
        place.zygote,
        stdin,
        cgroup,
        session,
        place.first_core,
        CpuSpan::Life,
    )?;
    let guard = EndOnDrop(&worker);
    let jailed = Instant::now();
    let host = place.zygote.born_in();
    let enforced = verify(
        &worker.proc,
        place.jail,
        host,
        cgroup,
        session,
        CpuSpan::Life,
    )?;
    let watch = Watch::new(&worker, cgroup, session, place.limits)?;
    let running = Running::new(&worker, message, place.limits, request.kind(), watch)?;
    let Ended {
        stop,
        exit,
        result,
        output,
        times,
        watched,
    } = running.until_end(sink, request.cancelled_by())?;
    drop(guard);
    if exit.is_none() && stop.is_none() {
        return Err(SupervisorError::RunLost);
    }

    let counts = cgroup.map(WorkerCgroup::counts);
    let seen = Seen {
        stop,
        exit,
        result,
        counts: counts.unwrap_or_default(),
        watched,
        files: match (session, place.limits.files) {
            (Some(session), Some(quota)) => Files::of_session(session, quota),
            _ => Files::measure(&worker.directories),
        },
        wall: times.exited - times.started,
        phases: phases(called, &worker, jailed, times),
        fate: Fate::Ended,
    };
    let outcome = report(place, request.kind(), seen, output.total(), enforced);
    let (stdout, stderr) = output.into_bytes();
    Ok(outcome.with_output(stdout, stderr))
}

fn phases(called: Instant, worker: &Worker, jailed: Instant, times: Times) -> Phases {
    Phases {
        place: worker.asked - called,
        fork: worker.born - worker.asked,
        jail: jailed - worker.born,
        verify: times.started - jailed,
        code: times.answered - times.started,
        exit: times.exited - times.answered,
        reap: times.gone - times.exited,
    }
}

/// Ends the worker on every way out, an error's too: nothing is left behind.
pub(super) struct EndOnDrop<'a>(pub(super) &'a Worker);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
