//! Turns a launched interpreter into a zygote, and requests workers from it. The zygote forks one worker per request.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use nix::sys::stat::Mode;
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::getpid;

use super::cache::{FontCache, LentFile, StartCache};
use super::error::{SupervisorError, While};
use super::launch::{Launched, Started};
use super::received_fd::sealed;
use super::verify::OtherNamespaces;
use crate::error::ErrorKind;
use crate::waiters::lock;
use sandfork_jail::control::{
    FromZygote, Lent, PythonSetup, ToZygote, Unready, ZygotePlan, send_message,
};
use sandfork_jail::failure::{Failure, Step};
use sandfork_jail::program::{Access, RootEntry, ZygoteJail};
use sandfork_jail::sys::pidfd;

/// The longest time for preloading.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time for a worker to enter its jail. A millisecond is usual, but on a host with hundreds of busy
/// processes a single turn of the processor takes seconds.
pub(super) const BIRTH_TIMEOUT: Duration = Duration::from_secs(30);

/// A warm interpreter in its jail. Dropping it ends it and all of its workers.
///
/// Any thread may send requests: a request is one datagram, and each worker replies on its own sockets.
#[derive(Debug)]
pub struct Zygote {
    control: OwnedFd,
    /// The namespaces of the process that started the zygote, and the zygote's own.
    pub(super) others: OtherNamespaces,
    /// `/proc`, for watching the workers. Opening it for each run would take longer than all other preparations.
    pub(super) proc: OwnedFd,
    /// The modules of the preload list that the zygote has imported.
    pub preloaded: Vec<String>,
    /// The number of pages that each fork copies eagerly, or the error because of which it copies none. `None` if the
    /// zygote did not try, because it forks only once.
    pub copied: Option<Result<usize, Errno>>,
    /// The zygote's init holds the other end, and ends when this end closes for any reason.
    _lifeline: OwnedFd,
    // Dropped last.
    process: Mutex<Started>,
}

impl Zygote {
    /// Requests a worker.
    pub(super) fn request(
        &self,
        request: &ToZygote,
        fds: &[BorrowedFd],
    ) -> Result<(), SupervisorError> {
        send_request(self.control.as_fd(), request, fds)
    }

    /// Makes the zygote exit, without waiting for its end. It must have no workers.
    pub fn close(&self) {
        // Fails if the zygote has ended already.
        _ = shutdown(self.control.as_raw_fd(), Shutdown::Both);
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        lock(&self.process).is_alive()
    }
}

fn send_request(
    control: BorrowedFd,
    request: &ToZygote,
    fds: &[BorrowedFd],
) -> Result<(), SupervisorError> {
    match send_message(control, request, fds) {
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(SupervisorError::ZygoteGone),
        Err(Errno::EAGAIN) => Err(SupervisorError::ZygoteSilent),
        other => other.when("request a worker from the zygote"),
    }
}

/// Sets the send timeout of the control socket: a stopped zygote reads no requests, and its queue fills up.
fn limit_sending(control: &OwnedFd, timeout: Duration) -> Result<(), Errno> {
    let micros = i64::try_from(timeout.as_micros()).unwrap_or(i64::MAX);
    let timeout = TimeVal::microseconds(micros);
    setsockopt(control, sockopt::SendTimeout, &timeout)
}

/// An interpreter that enters its jail and prepares to serve. Dropping it ends it.
#[derive(Debug)]
pub struct Entering {
    launched: Launched,
    codes: Option<LentFile>,
    fonts: Option<(FontCache, LentFile)>,
    writable: Vec<PathBuf>,
}

impl Entering {
    /// Sends a launched interpreter its plan, with the cached files that earlier zygotes left.
    pub fn begin(
        mut launched: Launched,
        jail: ZygoteJail,
        python: PythonSetup,
        start: &StartCache,
        fonts: Option<FontCache>,
    ) -> Result<Self, SupervisorError> {
        let codes = start.lend(&launched.facts).ok();
        let fonts = fonts.and_then(|fonts| {
            let lent = fonts.lend().ok()?;
            Some((fonts, lent))
        });
        let lent_codes = codes.iter().map(|lent| (Lent::Codes, lent.file.as_fd()));
        let lent_fonts = fonts
            .iter()
            .map(|(_, lent)| (Lent::Fonts, lent.file.as_fd()));
        let (lent, files): (Vec<Lent>, Vec<BorrowedFd>) = lent_codes.chain(lent_fonts).unzip();
        let writable = writable(&jail);
        let plan = serde_json::to_vec(&ZygotePlan { jail, python });
        let plan = plan.map_err(|_| Errno::EINVAL).when("write the plan")?;
        let file = sealed([&*plan]).when("write the plan")?;
        let enter = ToZygote::Enter {
            length: plan.len(),
            lent,
        };
        let own = pidfd::open(getpid()).when("open a handle on this process")?;
        let always = [&file, &launched.their_lifeline, &own].map(AsFd::as_fd);
        let fds = [&always[..], &files].concat();
        match send_message(launched.control.as_fd(), &enter, &fds) {
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(launched.ended()),
            other => other.when("send the plan to the zygote")?,
        }
        Ok(Self {
            launched,
            codes,
            fonts,
            writable,
        })
    }

    /// Waits until the zygote serves, and caches the files that it leaves for later zygotes.
    pub fn serves(self, start: &StartCache) -> Result<Zygote, SupervisorError> {
        let mut launched = self.launched;
        let ready =
            until_ready(&mut launched).map_err(|error| explain_link(error, self.writable))?;
        if let Some(lent) = self.codes
            && let Err(error) = start.take_back(&lent, &launched.facts)
        {
            tracing::debug!(%error, "the byte code is not kept");
        }
        if let Some((fonts, lent)) = self.fonts
            && let Err(error) = fonts.take_back(&lent)
        {
            tracing::debug!(%error, "the list of fonts is not kept");
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open("/proc", flags, Mode::empty()).when("open /proc")?;
        limit_sending(&launched.control, BIRTH_TIMEOUT).when("set the timeout of requests")?;
        Ok(Zygote {
            control: launched.control,
            others: launched.born_in.with_zygote(ready.namespaces),
            proc,
            preloaded: ready.preloaded,
            copied: ready.copied,
            _lifeline: launched.lifeline,
            process: Mutex::new(launched.process),
        })
    }
}

/// The report of a zygote that serves.
struct Ready {
    preloaded: Vec<String>,
    namespaces: Vec<String>,
    copied: Option<Result<usize, Errno>>,
}

/// Waits until the zygote serves.
fn until_ready(launched: &mut Launched) -> Result<Ready, SupervisorError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let mut importing = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let received = launched.recv_within(left, "preloading");
        match received.map_err(|error| explain_import(error, importing.as_deref()))? {
            FromZygote::Preloading { module } => importing = module,
            FromZygote::Ready {
                preloaded,
                namespaces,
                copied,
            } => {
                let copied = copied.map(|pages| pages.map_err(Errno::from_raw));
                match copied {
                    Some(Ok(pages)) => tracing::debug!(pages, "each fork copies pages eagerly"),
                    Some(Err(error)) => tracing::debug!(%error, "forks do not copy pages eagerly"),
                    None => {}
                }
                return Ok(Ready {
                    preloaded,
                    namespaces,
                    copied,
                });
            }
            FromZygote::Failed { step, errno } => {
                return Err(SupervisorError::Jail {
                    who: "the zygote",
                    failure: failure(step, errno),
                });
            }
            FromZygote::Unready(why) => return Err(SupervisorError::Unready(why)),
            FromZygote::Facts { .. } => return Err(launched.ended()),
        }
    }
}

/// Returns the host directories that guests can write to.
fn writable(jail: &ZygoteJail) -> Vec<PathBuf> {
    let source = |entry: &RootEntry| match entry {
        RootEntry::Bind {
            source,
            access: Access::ReadWrite,
            ..
        } => Some(source.clone()),
        _ => None,
    };
    jail.root.iter().filter_map(source).collect()
}

/// Replaces the error of a zygote that found a symbolic link in place of a writable directory.
fn explain_link(error: SupervisorError, writable: Vec<PathBuf>) -> SupervisorError {
    let SupervisorError::Jail { failure, .. } = &error else {
        return error;
    };
    if (failure.step, failure.errno) != (Step::CloneTrees, Errno::ELOOP) {
        return error;
    }
    let is_elsewhere = |path: &PathBuf| fs::canonicalize(path).ok().as_ref() != Some(path);
    match writable.into_iter().find(is_elsewhere) {
        Some(path) => SupervisorError::new(
            ErrorKind::Host,
            format!(
                "{} has become a symbolic link, or lies behind one, and is not mounted, because guests may have made \
                 the link: check where it points, remove it and create the directory again",
                path.display()
            ),
        ),
        None => error,
    }
}

/// Replaces the error of a zygote that ended, or timed out, while it imported a module.
fn explain_import(error: SupervisorError, importing: Option<&str>) -> SupervisorError {
    let Some(module) = importing else {
        return error;
    };
    let error = match error {
        SupervisorError::ZygoteEnded(log) => {
            format!("it ended the interpreter{}", super::error::said(&log))
        }
        SupervisorError::ZygoteSlow { .. } => {
            format!("its import took more than {} s", READY_TIMEOUT.as_secs())
        }
        other => return other,
    };
    let module = module.to_owned();
    SupervisorError::Unready(Unready::Preload { module, error })
}

pub(super) fn failure(step: u16, errno: i32) -> Failure {
    Failure {
        step: Step::from_number(step).unwrap_or(Step::Prepare),
        errno: Errno::from_raw(errno),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::SockType;
    use sandfork_jail::control::CpuBudgetScope;

    use super::*;
    use crate::supervisor::descriptors::socket_pair;

    #[test]
    fn zygote_that_reads_no_requests_is_discredited() {
        let (control, _stopped) = socket_pair(SockType::SeqPacket).expect("a socket pair");
        limit_sending(&control, Duration::from_millis(1)).expect("the timeout is set");
        let request = ToZygote::Spawn {
            first_core: 0,
            work: None,
            cpu: CpuBudgetScope::Life,
            uid: None,
        };
        let error = (0..100_000).find_map(|_| send_request(control.as_fd(), &request, &[]).err());
        assert!(error.is_some_and(|error| error.discredits_zygote()));
    }
}
