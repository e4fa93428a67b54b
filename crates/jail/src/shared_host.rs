//! Enters the zygote's jail at level `landlock`, for hosts that forbid user namespaces. The layers are Landlock,
//! seccomp, resource limits and, for root, an unprivileged uid. A watcher process replaces the init of a pid namespace.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::{Pid, setsid};

use super::control::Lifetime;
use super::failure::{Failure, InStep, Step};
use super::program::ZygoteJail;
use super::reaper::{EndReason, Reach, Reaper};
use super::zygote::{Zygote, die_with_parent, finish, open_proc, watch_failed};
use super::{capabilities, identity};
use crate::sys;
use crate::sys::process::{ExitStatus, Fork, SingleThreaded};

/// Puts the calling process into the zygote's jail. Returns in the zygote only.
pub fn enter(
    jail: &ZygoteJail,
    lifetime: Lifetime,
    supervisor: &[OwnedFd; 2],
) -> Result<Zygote, Failure> {
    let proc = open_proc().in_step(Step::Prepare)?;
    if let Some(ids) = jail.identity.drop_to {
        // Before the uid changes, while the process still has CAP_SETPCAP.
        capabilities::drop_bounding().in_step(Step::Capabilities)?;
        identity::drop_to(ids).in_step(Step::DropHostIds)?;
    }
    // Leave the caller's terminal and process group. A signal to the group would end the watcher and the zygote
    // together, and no process would be left to end the guests.
    setsid().in_step(Step::Session)?;
    // Before the watcher's Landlock scope, which requires it.
    nix::sys::prctl::set_no_new_privs().in_step(Step::NoNewPrivs)?;
    // Before the fork, so that every later descendant is within the watcher's reach.
    let reach = Reach::establish(jail, Reach::Tree)?;
    let single = SingleThreaded::count(proc.as_fd()).in_step(Step::Prepare)?;
    match sys::process::fork(&single).in_step(Step::ForkZygote)? {
        Fork::Parent(zygote) => watch_and_exit(reach, zygote, &proc, supervisor),
        Fork::Child(_) => die_with_parent()?,
    }
    // A worker's own reaper adopts the worker's orphans. If that reaper is killed, the zygote adopts the orphans and
    // ends them.
    nix::sys::prctl::set_child_subreaper(true).in_step(Step::AdoptOrphans)?;
    finish(jail, lifetime, proc)
}

/// Runs the process that the supervisor started. It ends with the zygote or with the supervisor, and leaves none of
/// their processes behind.
fn watch_and_exit(reach: Reach, zygote: Pid, proc: &OwnedFd, supervisor: &[OwnedFd; 2]) -> ! {
    let watched = watch(reach, zygote, proc, supervisor);
    let watched = watched.in_step(Step::WatchSupervisor);
    sys::process::exit_now(watched.unwrap_or_else(watch_failed))
}

fn watch(
    reach: Reach,
    zygote: Pid,
    proc: &OwnedFd,
    supervisor: &[OwnedFd; 2],
) -> Result<i32, Errno> {
    let reaper = Reaper::new(reach, zygote)?;
    let over = reaper.watch(&supervisor.each_ref().map(AsFd::as_fd))?;
    reaper.end_all(proc.as_fd())?;
    Ok(match over {
        EndReason::Ended(zygote) => match zygote.status {
            ExitStatus::Code(code) => code,
            ExitStatus::Signal(signal) => 128 + signal,
        },
        EndReason::HolderGone(_) => 0,
    })
}
