//! Spawns a worker: requests it from the zygote and waits until it is ready in its jail, to be verified from outside.

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
use super::session_dir::SessionDirectory;
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

/// The longest wait for the end of a killed worker. By then none of its processes runs code; the zygote waits for the
/// kernel to free the rest.
const END_WITHIN: Duration = Duration::from_millis(900);

/// Returns the error of a worker that ended before it sent its report. `hint` is a likely cause.
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
    /// The process above the guest's main process. It adopts the worker's orphans, and the whole worker ends with it.
    pub above: Arc<OwnedFd>,
    /// The pid of `above`.
    pub above_pid: i32,
    beneath: Beneath,
    /// The worker's uid and gid on the host, if root switched it to another user.
    pub ids: Option<HostIds>,
    /// The directories that the guest can write to, work directory first.
    pub directories: Vec<OwnedFd>,
    /// The sockets in the worker's network namespace that the egress process serves.
    pub sockets: Vec<OwnedFd>,
    /// The seccomp listener for system calls that the filter forwards; `None` if the host does not support it.
    pub listener: Option<OwnedFd>,
    /// When the worker was requested.
    pub requested: Instant,
    /// When the worker was forked, computed from its report and the durations in it.
    pub forked: Instant,
    /// When the jail was complete.
    pub jailed: Instant,
    /// When the worker was killed, or was first found to have ended.
    ending: OnceLock<Instant>,
    /// Set once no process of the worker is left.
    gone: OnceLock<()>,
    /// The duration of each step of the jail's set-up, as the worker reported it before any guest code ran.
    pub timing: Timing,
}

/// The properties that differ between workers.
#[derive(Clone, Copy, Debug)]
pub struct ForWorker {
    /// The first processor to use, if the plan pins workers.
    pub first_core: usize,
    /// The scope of the CPU limit.
    pub cpu: CpuBudgetScope,
    /// The host uid to switch to; `None` to keep the zygote's.
    pub uid: Option<u32>,
    /// The worker's uid and gid on the host, if root switched it to another user.
    pub ids: Option<HostIds>,
    /// The number of directory descriptors that the worker passes.
    pub directories: usize,
    /// The number of sockets that the worker passes after the directories.
    pub sockets: usize,
}

impl Worker {
    /// Requests a worker from the zygote, with this standard input, in this cgroup, with its files in this directory,
    /// and waits until its jail is complete.
    pub fn spawn(
        zygote: &Zygote,
        stdin: OwnedFd,
        cgroup: Option<&WorkerCgroup>,
        session: Option<&SessionDirectory>,
        properties: ForWorker,
    ) -> Result<Self, SupervisorError> {
        let (ends, requested) = Ends::request(zygote, stdin.as_fd(), cgroup, session, properties)?;
        drop(stdin);
        let deadline = requested + BIRTH_TIMEOUT;
        // The zygote reports the birth before the worker is in its jail. Waiting for the worker first saves this thread
        // a wakeup, and a failed birth closes the worker's socket too.
        let handed_over = await_report(ends.data.as_fd(), deadline);
        let ([process, above], beneath) = await_birth(&ends.monitor, deadline)?;
        // Runs while the worker closes the descriptors that it passed.
        let found =
            ProcDir::of(process.as_fd()).and_then(|proc| Ok((proc, number(above.as_fd())?)));
        let (proc, above_pid) = match found {
            // The worker may end before its directory is opened, and reports the reason before it ends.
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
            ids: properties.ids,
            directories: vec![],
            sockets: vec![],
            listener: None,
            requested,
            forked: requested,
            jailed: requested,
            ending: OnceLock::new(),
            gone: OnceLock::new(),
            timing: Timing::default(),
        };
        let (handed_over, _) = handed_over?;
        let mut handed_over = handed_over.into_iter();
        worker.directories = handed_over.by_ref().take(properties.directories).collect();
        worker.sockets = handed_over.by_ref().take(properties.sockets).collect();
        worker.listener = handed_over.next();
        (_, worker.timing) = await_report(worker.ends.data.as_fd(), deadline)?;
        worker.jailed = clock::now();
        let forked = worker.jailed.checked_sub(worker.timing.total());
        worker.forked = forked.unwrap_or(requested).max(requested);
        Ok(worker)
    }

    /// Whether the main process, or the whole worker, has ended.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.ends.monitor.as_fd(), PollFlags::POLLIN)];
        // An error of poll(2) counts as an end: the worker is unusable.
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }

    /// Kills every process of the worker.
    pub fn kill(&self) {
        self.ending.get_or_init(clock::now);
        // These calls fail if the worker has ended already, which is fine.
        match self.beneath {
            Beneath::Init => _ = sys::pidfd::signal(self.above.as_fd(), Signal::SIGKILL),
            Beneath::Reaper => {
                _ = shutdown(self.ends.monitor.as_raw_fd(), Shutdown::Write);
                // The reaper kills the process too, but must be scheduled first.
                _ = sys::pidfd::signal(self.process.as_fd(), Signal::SIGKILL);
            }
        }
    }

    /// Returns the deadline for the end of a worker that was killed, or whose main process has ended.
    pub fn ends_by(&self) -> Instant {
        *self.ending.get_or_init(clock::now) + END_WITHIN
    }

    /// Records that the monitor reported EOF: no process of the worker is left.
    pub fn note_gone(&self) {
        _ = self.gone.set(());
    }

    /// Kills the worker, and waits for a bounded time until no process of it is left.
    pub fn end(&self) {
        if self.gone.get().is_some() {
            return;
        }
        self.kill();
        while await_input(self.ends.monitor.as_fd(), self.ends_by()).is_ok() {
            // Reads until EOF; an error counts as EOF.
            match recv_report::<FromMonitor>(self.ends.monitor.as_fd()) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return self.note_gone(),
            }
        }
    }
}

/// Ends the worker on every path, including error paths, so that nothing is left behind.
impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// The supervisor's ends of a worker's sockets and pipes.
#[derive(Debug)]
pub struct Ends {
    /// The socket on which the birth and the end of the worker are reported.
    pub monitor: OwnedFd,
    /// The socket for frames in both directions.
    pub data: OwnedFd,
    /// The read end of the guest's stdout.
    pub stdout: OwnedFd,
    /// The read end of the guest's stderr.
    pub stderr: OwnedFd,
}

impl Ends {
    /// Creates the sockets and pipes, and requests a worker that gets the other ends. Also returns the time of the
    /// request.
    fn request(
        zygote: &Zygote,
        stdin: BorrowedFd,
        cgroup: Option<&WorkerCgroup>,
        session: Option<&SessionDirectory>,
        properties: ForWorker,
    ) -> Result<(Self, Instant), SupervisorError> {
        let (data, their_data) = socket_pair(SockType::Stream).when("make the data socket")?;
        let (monitor, their_monitor) = socket_pair(SockType::SeqPacket).when("make the monitor")?;
        let (stdout, their_stdout) = pipe().when("make the output pipe")?;
        let (stderr, their_stderr) = pipe().when("make the output pipe")?;
        for pipe in [&their_stdout, &their_stderr] {
            give_pipe(pipe, properties.ids.map(|ids| ids.uid));
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
            first_core: properties.first_core,
            work,
            cpu: properties.cpu,
            uid: properties.uid,
        };
        let requested = clock::now();
        zygote.request(&spawn, &fds)?;
        // Returning closes the worker's ends in this process, so that the end of the worker shows as EOF.
        let ends = Self {
            monitor,
            data,
            stdout,
            stderr,
        };
        Ok((ends, requested))
    }
}

/// Waits for a report of the worker's set-up. The worker sends two before any guest code runs: the first passes its
/// descriptors (directories, sockets, then the filter's listener), the second says that its jail is complete.
fn await_report(
    data: BorrowedFd,
    deadline: Instant,
) -> Result<(Vec<OwnedFd>, Timing), SupervisorError> {
    await_input(data, deadline)?;
    let mut report = [0; REPORT_LENGTH];
    let (length, fds) = receive(data, &mut report).when("read the worker's report")?;
    match decode_report(&report[..length]) {
        Some(Ok(timing)) => Ok((fds, timing)),
        Some(Err(failure)) => Err(SupervisorError::from_step("a worker", failure)),
        None => {
            let hint = " (killed while it was set up: the memory limit may be too small)";
            Err(ended(hint))
        }
    }
}

/// Returns the error of a worker that reported success but is not in `/proc`.
fn not_found() -> SupervisorError {
    if Path::new("/proc/self").exists() {
        ended("")
    } else {
        no_proc().into()
    }
}

/// Whether the error says that the process is gone, rather than that its file is inaccessible.
fn is_gone(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(libc::ESRCH) || errno == Some(libc::ENOENT)
}

/// The report of a birth, from the zygote or the reaper: pidfds of the worker's main process and of the process above
/// it.
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
            Ok((handles.when("receive the worker's pidfds")?, beneath))
        }
        Some((FromMonitor::NotBorn { step, errno }, _)) => Err(SupervisorError::Jail {
            who: "the zygote",
            failure: failure(step, errno),
        }),
        Some((FromMonitor::Exited { .. }, _)) => Err(ended("")),
        // A killed zygote closes its socket before its process has ended. A live zygote that does not answer is
        // useless.
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
    fn silent_zygote_is_discredited() {
        let (monitor, _zygote) = socket_pair(SockType::SeqPacket).expect("a socket pair");
        let forked = await_birth(&monitor, clock::now());
        assert!(forked.is_err_and(|error| error.discredits_zygote()));
    }
}
