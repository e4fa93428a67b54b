//! Starts a worker: creates its pid namespace and its init, and forks.

use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;

use super::Server;
use crate::native::python;
use crate::native::reaper::{self, ReaperFds};
use sandfork_jail::failure::{Failure, InStep, Step};
use sandfork_jail::sys;
use sandfork_jail::sys::namespace_init::{InitLifetime, NamespaceInit};
use sandfork_jail::sys::process::{Fork, ForkedChild};

/// The result of a fork, in each of the processes.
pub(super) enum Forked {
    Parent {
        pid: Pid,
        pidfd: OwnedFd,
        init: NamespaceInit,
    },
    /// At level `landlock`, in the zygote: the pid of the reaper, whose child the worker is.
    Reaper(Pid),
    Worker(ForkedChild),
}

impl Server {
    /// Forks a worker, with its own init or reaper. On error, no process is left behind.
    pub(super) fn fork_worker(&mut self, monitor: &OwnedFd) -> Result<Forked, Failure> {
        if self.jail.namespaces.is_none() {
            return Ok(match self.fork()? {
                Fork::Parent(pid) => Forked::Reaper(pid),
                Fork::Child(own) => {
                    let ties = ReaperFds {
                        monitor,
                        zygote: &self.home,
                        proc: &self.zygote.proc,
                    };
                    let worker = reaper::fork_worker(own, &self.jail, &self.single, &ties);
                    Forked::Worker(worker)
                }
            });
        }
        // An earlier attempt to return may have failed. The worker's namespace must be created from the zygote's own.
        self.reset_child_namespace()?;
        // This affects children only: the zygote itself stays in its namespace, and resets the setting for the next
        // worker.
        unshare(CloneFlags::CLONE_NEWPID).in_step(Step::PidNamespace)?;
        self.pid_ns_unshared = true;
        let init = sys::namespace_init::spawn(&mut self.stacks, InitLifetime::UntilKilled);
        let init = init.in_step(Step::SpawnInit);
        let forked = init.and_then(|init| match self.fork() {
            Ok(forked) => Ok((init, forked)),
            Err(failure) => {
                self.stacks.end(&init, None);
                Err(failure)
            }
        });
        let (init, pid) = match forked {
            Ok((init, Fork::Child(child))) => {
                std::mem::forget(init);
                return Ok(Forked::Worker(child));
            }
            Ok((init, Fork::Parent(pid))) => (init, pid),
            Err(failure) => {
                // If this fails, the next fork tries again.
                _ = self.reset_child_namespace();
                return Err(failure);
            }
        };
        let handle = sys::pidfd::open(pid).in_step(Step::Fork);
        match self.reset_child_namespace().and(handle) {
            Ok(pidfd) => Ok(Forked::Parent { pid, pidfd, init }),
            Err(failure) => {
                self.stacks.end(&init, Some(pid));
                Err(failure)
            }
        }
    }

    /// Makes the zygote's next children enter its own pid namespace again.
    fn reset_child_namespace(&mut self) -> Result<(), Failure> {
        if self.pid_ns_unshared {
            sys::process::enter_namespaces(self.home.as_fd(), CloneFlags::CLONE_NEWPID.bits())
                .in_step(Step::PidNamespace)?;
            self.pid_ns_unshared = false;
        }
        Ok(())
    }

    fn fork(&self) -> Result<Fork, Failure> {
        python::before_fork();
        let forked = sys::process::fork(&self.single).in_step(Step::Fork);
        if !matches!(forked, Ok(Fork::Child(_))) {
            python::after_fork_in_parent();
        }
        forked
    }
}
