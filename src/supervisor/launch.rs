//! Starts an interpreter outside any jail and reads its facts, on which the plan depends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{Shutdown, SockType, shutdown};
use nix::unistd::Pid;

use super::clock;
use super::descriptors::{pipe, socket_pair};
use super::embedded::WORKER;
use super::error::{SupervisorError, While, kind_of};
use super::verify::OtherNamespaces;
use super::wait::wait_readable;
use crate::error::ErrorKind;
use crate::host::io_exhaustion_hint;
use crate::waiters::lock;
use sandfork_jail::control::{FromZygote, MAX_MESSAGE, recv_message};
use sandfork_jail::sys;

/// The source of the zygote's program.
const BOOTSTRAP: &str = concat!(
    include_str!("../host/interpreter/facts.py"),
    include_str!(concat!(env!("SANDFORK_GUEST"), "/bootstrap.py"))
);

/// The longest time for an interpreter to report its facts.
const FACTS_TIMEOUT: Duration = Duration::from_secs(20);

/// An interpreter that was started outside any jail and has not reported its facts yet. Dropping it
/// ends it.
#[derive(Debug)]
pub struct Starting(Launched);

/// An interpreter that runs outside any jail and waits for its plan. Dropping it ends it.
#[derive(Debug)]
pub struct Launched {
    pub(super) control: OwnedFd,
    pub(super) lifeline: OwnedFd,
    pub(super) their_lifeline: OwnedFd,
    pub(super) log: File,
    pub(super) born_in: OtherNamespaces,
    /// The facts that the interpreter reported, as text.
    pub facts: String,
    // Dropped last: the process ends when its connections to this process close.
    pub(super) process: Started,
}

/// Ends an interpreter that is being prepared, from another thread.
#[derive(Clone, Debug, Default)]
pub struct Abort(Arc<Mutex<Aborting>>);

#[derive(Debug, Default)]
struct Aborting {
    is_over: bool,
    /// A duplicate of the interpreter's control socket.
    control: Option<OwnedFd>,
}

impl Abort {
    /// Makes `abort` end this interpreter. Fails if `abort` was called before.
    pub fn watch(&self, launched: &Launched) -> Result<(), SupervisorError> {
        let control = launched.control.try_clone();
        let control = control.when("copy the zygote's descriptor")?;
        let mut aborting = lock(&self.0);
        if aborting.is_over {
            return Err(SupervisorError::ZygoteGone);
        }
        aborting.control = Some(control);
        Ok(())
    }

    /// Forgets the interpreter, which serves or has ended.
    pub fn release(&self) {
        lock(&self.0).control = None;
    }

    /// Ends the interpreter, and makes `watch` fail from now on.
    pub fn abort(&self) {
        let mut aborting = lock(&self.0);
        aborting.is_over = true;
        if let Some(control) = &aborting.control {
            // Fails if the interpreter has ended already.
            _ = shutdown(control.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// The longest time for a process to end before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that the supervisor started: the interpreter of a zygote, or an egress process. Dropping it waits until
/// the process has ended, and with an interpreter all processes of the zygote: the interpreter waits for the zygote's
/// init, which ends with its whole namespace when the lifeline closes.
#[derive(Debug)]
pub(super) struct Started(pub(super) Child);

impl Started {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether the process still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    fn ends_within(&self, timeout: Duration) -> bool {
        let pid = Pid::from_raw(self.0.id().cast_signed());
        let until = clock::now() + timeout;
        sys::pidfd::open(pid).is_ok_and(|process| wait_readable(process.as_fd(), until) == Ok(true))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A process that has not entered its jail may be stuck in an import that never returns.
        if !self.ends_within(END_TIMEOUT) {
            _ = self.0.kill();
        }
        _ = self.0.wait();
    }
}

impl Starting {
    /// Starts `executable` as a future zygote.
    ///
    /// The environment contains only the locale: the caller's environment must not end up in the memory of a process
    /// from which workers are forked.
    pub fn begin(executable: &Path) -> Result<Self, SupervisorError> {
        let (control, theirs) = socket_pair(SockType::SeqPacket).when("make the control socket")?;
        let (their_lifeline, lifeline) = pipe().when("make the lifeline")?;
        let (log, stderr) = log()?;
        let (library, filling) = WORKER.open_early().when("make the worker library")?;
        let born_in = OtherNamespaces::current()?;
        let child = Command::new(executable)
            .args(["-I", "-S", "-c", BOOTSTRAP])
            .env_clear()
            .env("LANG", "C.UTF-8")
            .stdin(theirs)
            .stdout(library)
            .stderr(stderr)
            .spawn()
            .map_err(|cause| not_started(executable, &cause))?;
        let launched = Launched {
            control,
            lifeline,
            their_lifeline,
            log,
            born_in,
            facts: String::new(),
            process: Started(child),
        };
        // The library is written while the interpreter starts, which waits for one byte before it loads the library.
        filling.fill().when("fill the worker library")?;
        match sys::descriptors::send(launched.control.as_fd(), b"\n", &[]) {
            // The next step reports why the interpreter has ended.
            Err(Errno::EPIPE | Errno::ECONNRESET) => {}
            sent => sent.when("signal the interpreter to load its library")?,
        }
        Ok(Self(launched))
    }

    /// Waits until the interpreter has reported its facts.
    pub fn launched(self) -> Result<Launched, SupervisorError> {
        let Self(mut launched) = self;
        match launched.recv_within(FACTS_TIMEOUT, "the interpreter's start")? {
            FromZygote::Facts { text } => launched.facts = text,
            _ => return Err(launched.ended()),
        }
        Ok(launched)
    }
}

/// Returns the error of an interpreter that could not be started.
fn not_started(executable: &Path, cause: &io::Error) -> SupervisorError {
    let remedy = io_exhaustion_hint(cause, "name another with `python.interpreter`");
    let path = executable.display();
    SupervisorError::new(
        kind_of(cause, ErrorKind::Interpreter),
        format!("could not start the interpreter {path}: {cause}; {remedy}"),
    )
}

impl Launched {
    /// Starts `executable` as a future zygote, and waits until it has reported its facts.
    pub fn start(executable: &Path) -> Result<Self, SupervisorError> {
        Starting::begin(executable)?.launched()
    }

    /// Receives the next message, which must arrive within `timeout`.
    pub(super) fn recv_within(
        &mut self,
        timeout: Duration,
        what: &str,
    ) -> Result<FromZygote, SupervisorError> {
        let answers = wait_readable(self.control.as_fd(), clock::now() + timeout);
        if !answers.when("wait for the zygote")? {
            return Err(SupervisorError::ZygoteSlow {
                seconds: timeout.as_secs(),
                last: what.to_owned(),
            });
        }
        match recv_message(self.control.as_fd(), &mut vec![0; MAX_MESSAGE]) {
            Ok(Some((message, _))) => Ok(message),
            Ok(None) | Err(Errno::ECONNRESET) => Err(self.ended()),
            Err(errno) => Err(errno).when("read from the zygote"),
        }
    }

    /// Returns the error of a zygote that has ended, with the end of its log.
    pub(super) fn ended(&mut self) -> SupervisorError {
        SupervisorError::ZygoteEnded(last_words(&self.log))
    }
}

/// Creates a log in memory for another process's stderr. Returns a second descriptor for that process.
pub(super) fn log() -> Result<(File, File), SupervisorError> {
    let log = memfd_create(c"sandfork-log", MFdFlags::MFD_CLOEXEC).when("make the log")?;
    let log = File::from(log);
    let theirs = log.try_clone().when("copy the log's descriptor")?;
    Ok((log, theirs))
}

/// Returns the end of what a process wrote to its log.
pub(super) fn last_words(log: &File) -> String {
    const ENOUGH: u64 = 2000;
    let length = log.metadata().map_or(0, |metadata| metadata.len());
    let start = length.saturating_sub(ENOUGH);
    let mut words = vec![0; usize::try_from(length - start).unwrap_or(0)];
    match log.read_exact_at(&mut words, start) {
        Ok(()) => String::from_utf8_lossy(&words).trim().to_owned(),
        Err(_) => String::new(),
    }
}
