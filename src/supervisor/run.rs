//! One run from its request to its outcome: feeds the worker, drains it, watches it, ends it.

mod event_loop;
mod request;
mod watch;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

pub use self::request::{Cancel, Request};
pub use super::drain::OutputSink;

use self::event_loop::{Ended, Running};
use self::watch::Watch;
use super::cgroup::CgroupRoot;
use super::ending::{Evidence, decide};
use super::error::{SupervisorError, While};
use super::session::SessionRoot;
use super::spawn::Worker;
use super::verify::verify;
use super::zygote::Zygote;
use crate::jail::program::ZygoteJail;
use crate::outcome::{Denial, Outcome, PolicyIdentity, Usage};
use crate::plan::FileQuota;
use crate::protocol::Ended as Said;

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
    /// Thousandths of a processor.
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

/// Runs a request in a fresh worker.
pub fn run(
    place: &Place,
    mut request: Request,
    sink: &mut dyn OutputSink,
) -> Result<Outcome, SupervisorError> {
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
    let stdin = request
        .take_stdin()
        .map_or_else(nothing_to_read, Ok)
        .when("open /dev/null")?;
    let worker = Worker::spawn(
        place.zygote,
        stdin,
        cgroup.as_ref(),
        session.as_ref(),
        place.first_core,
    )?;
    let guard = EndOnDrop(&worker);
    let process = worker.process.as_fd();
    let enforced = verify(process, place.jail, cgroup.as_ref(), session.as_ref())?;
    let watch = Watch::new(&worker, cgroup.as_ref(), session.as_ref(), place.limits)?;
    let running = Running::new(&worker, message, place.limits, request.kind(), watch)?;
    let Ended {
        stop,
        exit,
        result,
        output,
        wall,
        watched,
    } = running.until_end(sink, request.cancelled_by())?;
    drop(guard);

    let counts = cgroup
        .as_ref()
        .map(super::cgroup::WorkerCgroup::counts)
        .unwrap_or_default();
    let evidence = Evidence {
        stop,
        exit,
        result: result.as_ref(),
        counts,
        cpu_limit_us: u64::try_from(place.limits.cpu.as_micros()).unwrap_or(u64::MAX),
        kind: request.kind(),
    };
    let ending = decide(&evidence);
    let cpu_us = counts
        .cpu_us
        .or(exit.map(|exit| exit.cpu_us))
        .unwrap_or(0)
        .max(watched.cpu_us);
    let usage = Usage {
        wall,
        cpu: Duration::from_micros(cpu_us),
        peak_memory_bytes: counts
            .peak_memory
            .or_else(|| exit.map(|exit| (exit.max_rss_kib * 1024).max(watched.memory))),
        peak_pids: counts.peak_pids.or(Some(watched.pids)),
        written_bytes: match (&session, place.limits.files) {
            (Some(session), Some(quota)) => Some(session.size(&[], quota).bytes),
            _ => written(&worker.directories),
        },
        output_bytes: output.total(),
    };
    let mut denied: Vec<Denial> = Vec::new();
    if counts.refused_forks > 0 {
        denied.push(Denial::by_kernel("fork"));
    }
    let (value, error) = match result {
        Some(result) => {
            denied.extend(result.denied.into_iter().map(Denial::from));
            match result.ended {
                Said::Ok(value) => (value, None),
                Said::Exception(error) => (None, Some(error)),
                Said::Exit(_) => (None, None),
            }
        }
        None => (None, None),
    };
    let (stdout, stderr) = output.into_bytes();
    let mut outcome = Outcome::new(ending, place.policy.clone())
        .with_output(stdout, stderr)
        .with_value(value)
        .with_usage(usage)
        .with_enforced(enforced)
        .with_denied(denied);
    if let Some(error) = error {
        outcome = outcome.with_error(error);
    }
    Ok(outcome)
}

/// Ends the worker on every way out, an error's too: nothing is left behind.
struct EndOnDrop<'a>(&'a Worker);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn nothing_to_read() -> Result<OwnedFd, Errno> {
    open(
        "/dev/null",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Bytes that the worker's private file systems hold at the end.
fn written(directories: &[OwnedFd]) -> Option<u64> {
    directories.iter().try_fold(0, |sum, directory| {
        let stat = nix::sys::statvfs::fstatvfs(directory).ok()?;
        Some(sum + (stat.blocks() - stat.blocks_free()) * stat.fragment_size())
    })
}
