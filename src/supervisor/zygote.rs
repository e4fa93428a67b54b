//! A zygote that serves: forks a jailed worker on request.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use nix::errno::Errno;

use super::descriptors::tell;
use super::error::{SupervisorError, While};
use super::launch::{Launched, last_words};
use super::verify::OtherNamespaces;
use crate::jail::control::{FromZygote, PythonSetup, ToZygote, Unready};
use crate::jail::failure::{Failure, Step};
use crate::jail::program::ZygoteJail;

/// How long preloading may take.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A warm interpreter in its jail. Dropping it ends it and every worker of it.
///
/// Requests may be made from any thread: one request is one datagram, and each worker answers on
/// sockets of its own.
#[derive(Debug)]
pub struct Zygote {
    control: OwnedFd,
    /// The zygote's init holds the other end and ends when this closes, however that comes about.
    lifeline: Option<OwnedFd>,
    child: Mutex<Child>,
    log: File,
    others: OtherNamespaces,
    preloaded: Vec<String>,
}

impl Zygote {
    /// Lets a started interpreter enter its jail, preload and serve.
    pub fn enter(
        mut launched: Launched,
        jail: ZygoteJail,
        python: PythonSetup,
    ) -> Result<Self, SupervisorError> {
        let enter = ToZygote::Enter {
            jail: Box::new(jail),
            python,
        };
        let sent = tell(
            launched.control.as_fd(),
            &enter,
            &[launched.their_lifeline.as_fd()],
        );
        match sent {
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(launched.ended()),
            other => other.when("send the plan to the zygote")?,
        }
        let (preloaded, namespaces) = match launched.hear_within(READY_TIMEOUT, "preloading")? {
            FromZygote::Ready {
                preloaded,
                namespaces,
            } => (preloaded, namespaces),
            FromZygote::Failed { step, errno } => {
                return Err(SupervisorError::Jail {
                    who: "the zygote",
                    failure: failure(step, errno),
                });
            }
            FromZygote::Unready(why) => return Err(unready(why)),
            FromZygote::Facts { .. } => return Err(launched.ended()),
        };
        let Launched {
            child,
            control,
            lifeline,
            log,
            born_in,
            ..
        } = launched;
        Ok(Self {
            control,
            lifeline: Some(lifeline),
            child: Mutex::new(child),
            log,
            others: born_in.with_zygote(namespaces),
            preloaded,
        })
    }

    /// The namespaces of the process that started it, and its own.
    pub(super) fn others(&self) -> &OtherNamespaces {
        &self.others
    }

    /// The modules that were preloaded.
    pub fn preloaded(&self) -> &[String] {
        &self.preloaded
    }

    /// Asks for a worker.
    pub(super) fn request(
        &self,
        request: &ToZygote,
        fds: &[BorrowedFd],
    ) -> Result<(), SupervisorError> {
        match tell(self.control.as_fd(), request, fds) {
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(SupervisorError::ZygoteGone),
            other => other.when("ask the zygote for a worker"),
        }
    }

    /// Whether the process is still there.
    pub fn is_alive(&self) -> bool {
        let mut child = self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None))
    }

    /// What the zygote wrote to its standard error, its end.
    pub fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // The init ends at the end of file, its namespace with it, and the process that waits for
        // the init last: when that one is reaped nothing of the zygote is left.
        drop(self.lifeline.take());
        let child = self
            .child
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        _ = child.wait();
    }
}

pub(super) fn failure(step: u16, errno: i32) -> Failure {
    Failure {
        step: Step::from_number(step).unwrap_or(Step::Prepare),
        errno: Errno::from_raw(errno),
    }
}

fn unready(why: Unready) -> SupervisorError {
    match why {
        Unready::Preload { module, error } => SupervisorError::Preload { module, error },
        Unready::Threads { module } => SupervisorError::Threads { module },
        Unready::Startup { error } => SupervisorError::Startup { error },
    }
}
