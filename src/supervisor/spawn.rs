//! Makes a worker that is ready in its jail, for checks from outside.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, SockType, shutdown};

use super::cgroup::WorkerCgroup;
use super::clock;
use super::descriptors::{give_pipe, pipe, recv_report, socket_pair};
use super::error::{SupervisorError, While};
use super::proc_dir::{ProcDir, number};
use super::session::SessionDirectory;
use super::wait::wait_readable;
use super::zygote::{BIRTH_TIMEOUT, Zygote, failure};
use crate::error::ErrorKind;
use crate::host::no_proc;
use sandfork_jail::control::{Beneath, CpuBudgetScope, FromMonitor, ToZygote};
use sandfork_jail::failure::{REPORT_LENGTH, decode_report};
use sandfork_jail::program::HostIds;
use sandfork_jail::sys;
use sandfork_jail::sys::descriptors::receive;
use sandfork_jail::timing::Timing;

/// How long a caller waits until a killed worker is gone. None of its processes runs code by then;
/// the zygote waits for the kernel to free the rest.
const END_WITHIN: Duration = Duration::from_millis(900);

/// The error of a worker that ended before it reported. `hint` is a likely cause.
fn ended(hint: &str) -> SupervisorError {
    SupervisorError::new(
        ErrorKind::System,
        format!("a worker ended before it had entered its jail{hint}"),
    )
}

/// A worker that is ready in its jail and has not run guest code yet.
#[derive(Debug)]
pub struct Worker {
    /// The supervisor's ends of its sockets and pipes.
    pub ends: Ends,
    /// The guest's main process.
    pub process: Arc<OwnedFd>,
    /// The process's directory in `/proc`.
    pub proc: ProcDir,
    /// The process that inherits its orphans and ends them all.
    pub above: Arc<OwnedFd>,
    /// The pid of `above`.
    pub above_pid: i32,
    beneath: Beneath,
    /// Its identity on the host, if root gave it a different one.
    pub ids: Option<HostIds>,
    /// The directories that the guest can write to, work directory first.
    pub directories: Vec<OwnedFd>,
    /// The sockets of its network that the egress process serves.
    pub sockets: Vec<OwnedFd>,
    /// The listener for calls that its filter forwards; `None` if the host does not support that.
    pub listener: Option<OwnedFd>,
    /// When it was requested.
    pub asked: Instant,
    /// When it had been forked: as long before its report as its own clock says.
    pub born: Instant,
    /// When its jail was complete.
    pub jailed: Instant,
    /// When it was first asked to end, or had ended by itself.
    ending: OnceLock<Instant>,
    /// Set once nothing of it is left.
    gone: OnceLock<()>,
    /// How long each step of closing its jail took, as it reported before any guest code ran.
    pub timing: Timing,
}

/// The properties that differ between workers.
#[derive(Clone, Copy, Debug)]
pub struct ForWorker {
    /// The processor to start at, if the plan pins workers.
    pub first_core: usize,
    /// What its limit on processor time applies to.
    pub cpu: CpuBudgetScope,
    /// The host uid to switch to, unless it keeps the zygote's.
    pub uid: Option<u32>,
    /// Its identity on the host, if root gave it a different one.
    pub ids: Option<HostIds>,
    /// The number of directories that it hands over.
    pub directories: usize,
    /// The number of sockets that it hands over after them.
    pub sockets: usize,
}

impl Worker {
    /// Requests a worker from the zygote, with this standard input, in this cgroup, with its files
    /// in this directory.
    pub fn spawn(
        zygote: &Zygote,
        stdin: OwnedFd,
        cgroup: Option<&WorkerCgroup>,
        session: Option<&SessionDirectory>,
        its: ForWorker,
    ) -> Result<Self, SupervisorError> {
        let (ends, asked) = Ends::of_request(zygote, stdin.as_fd(), cgroup, session, its)?;
        drop(stdin);
        let deadline = asked + BIRTH_TIMEOUT;
        // The zygote reports the birth before the worker is in its jail. To wait for the worker first
        // saves this thread a wakeup, and a birth that failed ends the worker's socket too.
        let handed_over = await_report(ends.data.as_fd(), deadline);
        let ([process, above], beneath) = await_birth(&ends.monitor, deadline)?;
        // Runs while the worker closes what it handed over.
        let found =
            ProcDir::of(process.as_fd()).and_then(|proc| Ok((proc, number(above.as_fd())?)));
        let (proc, above_pid) = match found {
            // The worker reports why before it ends, and may end before its directory is opened.
            Err(error) if is_gone(&error) => {
                let report = handed_over.and_then(|_| await_report(ends.data.as_fd(), deadline));
                return Err(report.err().unwrap_or_else(not_found));
            }
            other => other.when("find the worker in /proc")?,
        };
        let mut worker = Self {
            ends,
            proc,
            process: Arc::new(process),
            above: Arc::new(above),
            above_pid,
            beneath,
            ids: its.ids,
            directories: vec![],
            sockets: vec![],
            listener: None,
            asked,
            born: asked,
            jailed: asked,
            ending: OnceLock::new(),
            gone: OnceLock::new(),
            timing: Timing::default(),
        };
        let (handed_over, _) = handed_over?;
        let mut handed_over = handed_over.into_iter();
        worker.directories = handed_over.by_ref().take(its.directories).collect();
        worker.sockets = handed_over.by_ref().take(its.sockets).collect();
        worker.listener = handed_over.next();
        (_, worker.timing) = await_report(worker.ends.data.as_fd(), deadline)?;
        worker.jailed = clock::now();
        let born = worker.jailed.checked_sub(worker.timing.total());
        worker.born = born.unwrap_or(asked).max(asked);
        Ok(worker)
    }

    /// Whether its main process, or everything of it, has ended.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.ends.monitor.as_fd(), PollFlags::POLLIN)];
        // An error counts as input: the worker is unusable.
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }

    /// Kills the worker with every process that it made.
    pub fn kill(&self) {
        self.ending.get_or_init(clock::now);
        // The call fails if the worker has already ended, which is fine.
        match self.beneath {
            Beneath::Init => _ = sys::pidfd::signal(self.above.as_fd(), Signal::SIGKILL),
            Beneath::Reaper => {
                _ = shutdown(self.ends.monitor.as_raw_fd(), Shutdown::Write);
                // The reaper kills the process too, but it has to be scheduled first.
                _ = sys::pidfd::signal(self.process.as_fd(), Signal::SIGKILL);
            }
        }
    }

    /// When to stop waiting for the end of a worker that was killed, or whose main process has
    /// ended.
    pub fn ends_by(&self) -> Instant {
        *self.ending.get_or_init(clock::now) + END_WITHIN
    }

    /// Notes that nothing is left of the worker: its monitor is at end of file.
    pub fn note_gone(&self) {
        _ = self.gone.set(());
    }

    /// Kills the worker and waits, for a bounded time, until nothing is left of it.
    pub fn end(&self) {
        if self.gone.get().is_some() {
            return;
        }
        self.kill();
        while await_input(self.ends.monitor.as_fd(), self.ends_by()).is_ok() {
            // Waits for end of file; an error counts as one.
            match recv_report::<FromMonitor>(self.ends.monitor.as_fd()) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return self.note_gone(),
            }
        }
    }
}

/// Every path ends the worker, including error paths, so that nothing is left behind.
impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// The supervisor's ends of a worker's sockets and pipes.
#[derive(Debug)]
pub struct Ends {
    /// The socket that reports the end.
    pub monitor: OwnedFd,
    /// The socket for frames, both ways.
    pub data: OwnedFd,
    /// The guest's standard output.
    pub stdout: OwnedFd,
    /// The guest's standard error.
    pub stderr: OwnedFd,
}

impl Ends {
    /// Requests a worker that has the other ends. Returns when that was, too.
    fn of_request(
        zygote: &Zygote,
        stdin: BorrowedFd,
        cgroup: Option<&WorkerCgroup>,
        session: Option<&SessionDirectory>,
        its: ForWorker,
    ) -> Result<(Self, Instant), SupervisorError> {
        let (data, their_data) = socket_pair(SockType::Stream).when("make the data socket")?;
        let (monitor, their_monitor) = socket_pair(SockType::SeqPacket).when("make the monitor")?;
        let (stdout, their_stdout) = pipe().when("make the output pipe")?;
        let (stderr, their_stderr) = pipe().when("make the output pipe")?;
        for pipe in [&their_stdout, &their_stderr] {
            give_pipe(pipe, its.ids.map(|ids| ids.uid));
        }
        let mut fds = vec![
            stdin,
            their_stdout.as_fd(),
            their_stderr.as_fd(),
            their_data.as_fd(),
            their_monitor.as_fd(),
        ];
        let join_files = cgroup.map(WorkerCgroup::join_files).transpose()?;
        fds.extend(
            join_files
                .iter()
                .flat_map(|files| files.iter().map(AsFd::as_fd)),
        );
        let work = session.map(|session| session.path().to_owned());
        let spawn = ToZygote::Spawn {
            first_core: its.first_core,
            work,
            cpu: its.cpu,
            uid: its.uid,
        };
        let asked = clock::now();
        zygote.request(&spawn, &fds)?;
        // The worker's ends close here, so that the end of the worker is visible on this side.
        let ends = Self {
            monitor,
            data,
            stdout,
            stderr,
        };
        Ok((ends, asked))
    }
}

/// Waits for a report of the worker's set-up. It makes two, before any guest code runs: what it hands over
/// (its directories, its sockets, then the filter's listener), and that its jail is complete.
fn await_report(
    data: BorrowedFd,
    deadline: Instant,
) -> Result<(Vec<OwnedFd>, Timing), SupervisorError> {
    await_input(data, deadline)?;
    let mut report = [0; REPORT_LENGTH];
    let (length, fds) = receive(data, &mut report).when("read the worker's report")?;
    match decode_report(&report[..length]) {
        Some(Ok(timing)) => Ok((fds, timing)),
        Some(Err(failure)) => Err(SupervisorError::of_step("a worker", failure)),
        None => {
            let hint = " (killed while it was set up: the memory limit may be too small)";
            Err(ended(hint))
        }
    }
}

/// Why a worker that has reported well is not in `/proc`.
fn not_found() -> SupervisorError {
    if Path::new("/proc/self").exists() {
        ended("")
    } else {
        no_proc().into()
    }
}

/// Whether the process is missing, as opposed to the file being inaccessible.
fn is_gone(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(libc::ESRCH) || errno == Some(libc::ENOENT)
}

/// What the zygote, or the reaper, reports of a worker when it is forked: handles on the process, and on the one above it.
type Born = ([OwnedFd; 2], Beneath);

fn await_birth(monitor: &OwnedFd, deadline: Instant) -> Result<Born, SupervisorError> {
    if !wait_readable(monitor.as_fd(), deadline).when("wait for a worker")? {
        return Err(SupervisorError::ZygoteSilent);
    }
    let received = match recv_report(monitor.as_fd()) {
        Err(Errno::ECONNRESET) => None,
        other => other.when("read from the zygote")?,
    };
    match received {
        Some((FromMonitor::Born { beneath }, fds)) => {
            let handles = <[OwnedFd; 2]>::try_from(fds).map_err(|_| Errno::EBADF);
            Ok((handles.when("take the worker's handles")?, beneath))
        }
        Some((FromMonitor::NotBorn { step, errno }, _)) => Err(SupervisorError::Jail {
            who: "the zygote",
            failure: failure(step, errno),
        }),
        Some((FromMonitor::Exited { .. }, _)) => Err(ended("")),
        // A killed zygote closes its socket before its process has ended. A live zygote that does
        // not answer is of no more use.
        None => Err(SupervisorError::ZygoteGone),
    }
}

fn await_input(fd: BorrowedFd, deadline: Instant) -> Result<(), SupervisorError> {
    if wait_readable(fd, deadline).when("wait for a worker")? {
        return Ok(());
    }
    Err(SupervisorError::new(
        ErrorKind::System,
        format!(
            "a worker had not entered its jail after {} s: the host is overloaded, or out of memory",
            BIRTH_TIMEOUT.as_secs()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zygote_that_does_not_answer_makes_no_other_worker() {
        let (monitor, _zygote) = socket_pair(SockType::SeqPacket).expect("they are made");
        let born = await_birth(&monitor, clock::now());
        assert!(born.is_err_and(|error| error.discredits_zygote()));
    }
}
