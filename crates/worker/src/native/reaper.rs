//! A worker's reaper at level `landlock` (see `sandfork_jail::reaper`). The zygote forks one reaper process for each
//! worker. The reaper forks the worker, reports the worker's birth and end on the monitor, and finally ends every
//! process that the worker started.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::{Pid, getpid};

use crate::native::serve::report_not_born;
use sandfork_jail::control::{Beneath, FromMonitor, send_message};
use sandfork_jail::failure::{Failure, InStep, Step};
use sandfork_jail::program::ZygoteJail;
use sandfork_jail::reaper::{EndReason, Reach, Reaper};
use sandfork_jail::sys;
use sandfork_jail::sys::process::{Dumpable, Fork, ForkedChild, Held, SingleThreaded};

/// The exit status of a reaper that left a process behind. The zygote then kills it.
const EXIT_FAILED: i32 = 70;

/// The descriptors that a reaper keeps.
pub struct ReaperFds<'a> {
    /// The link to the supervisor, which shuts down its end to end the worker.
    pub monitor: &'a OwnedFd,
    /// The pidfd of the zygote. The worker ends with the zygote.
    pub zygote: &'a OwnedFd,
    /// The root of a procfs.
    pub proc: &'a OwnedFd,
}

/// Turns a process that the zygote has just forked into the reaper of a new worker. Returns in the worker only.
pub fn fork_worker(
    own: ForkedChild,
    jail: &ZygoteJail,
    single: &SingleThreaded,
    ties: &ReaperFds,
) -> ForkedChild {
    let forked = Reach::establish(jail, Reach::Group).and_then(|reach| {
        let forked = sys::process::fork(single).in_step(Step::Fork)?;
        Ok((reach, forked))
    });
    let served = match forked {
        Ok((_, Fork::Child(worker))) => return worker,
        Ok((reach, Fork::Parent(worker))) => serve(own, reach, worker, ties),
        Err(failure) => {
            report_not_born(ties.monitor, failure);
            Err(failure)
        }
    };
    sys::process::exit_now(if served.is_ok() { 0 } else { EXIT_FAILED })
}

fn serve(own: ForkedChild, reach: Reach, worker: Pid, ties: &ReaperFds) -> Result<(), Failure> {
    // Close the worker's streams and the other workers' monitors, so that their peers see EOF.
    let kept = own
        .hold(
            &[ties.zygote.as_fd(), ties.proc.as_fd()],
            (ties.monitor.as_fd(), MONITOR),
        )
        .and_then(Held::place)
        .in_step(Step::CloseDescriptors)?;
    let [zygote, proc] = kept.as_slice() else {
        return Err(Errno::EBADF).in_step(Step::CloseDescriptors);
    };
    let monitor = sys::descriptors::inherited(MONITOR);
    let born = Reaper::new(reach, worker).and_then(|reaper| {
        // Dumpable, like the worker: otherwise a procfs with `hidepid` hides from the supervisor the resource usage of
        // orphans, which the reaper has reaped.
        sys::process::set_dumpable(Dumpable::Yes)?;
        let own = sys::pidfd::open(getpid())?;
        let beneath = Beneath::Reaper;
        let handles = [reaper.handle().as_fd(), own.as_fd()];
        // If the supervisor is gone, the monitor hangs up, which the reaper notices next.
        _ = send_message(monitor.as_fd(), &FromMonitor::Born { beneath }, &handles);
        Ok(reaper)
    });
    let reaper = born.in_step(Step::ForkReaper).inspect_err(|failure| {
        report_not_born(&monitor, *failure);
    })?;
    let over = reaper
        .watch(&[monitor.as_fd(), zygote.as_fd()])
        .in_step(Step::ForkReaper)?;
    if let EndReason::Ended(exit) = over {
        // Report at once, so that the supervisor need not wait for the remaining processes.
        _ = send_message(monitor.as_fd(), &FromMonitor::exited(exit), &[]);
    }
    let killed = reaper.end_all(proc.as_fd()).in_step(Step::ForkReaper)?;
    // A worker that was killed because the zygote is gone has no end to report.
    if let (EndReason::HolderGone(0), Some(exit)) = (over, killed) {
        _ = send_message(monitor.as_fd(), &FromMonitor::exited(exit), &[]);
    }
    Ok(())
}

/// The descriptor number of the monitor in a reaper.
const MONITOR: RawFd = 3;
