//! From a request to a worker that stands in its jail, ready to be looked at from outside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;

use super::cgroup::WorkerCgroup;
use super::descriptors::{hear, pipe, socket_pair};
use super::error::{SupervisorError, While};
use super::proc_dir::ProcDir;
use super::zygote::{Zygote, failure};
use crate::jail::control::FromMonitor;
use crate::jail::failure::{REPORT_LENGTH, decode_report};
use crate::sys;
use crate::sys::descriptors::receive;

/// How long a worker may take to enter its jail: a millisecond, but on a host with hundreds of busy
/// processes a turn of the processor alone takes seconds.
const BIRTH_TIMEOUT: Duration = Duration::from_secs(30);

/// A worker that stands in its jail and has not run guest code yet.
#[derive(Debug)]
pub struct Worker {
    /// Reports the end.
    pub monitor: OwnedFd,
    /// Frames, both ways.
    pub data: OwnedFd,
    /// What the guest writes to descriptor 1.
    pub stdout: OwnedFd,
    /// What the guest writes to descriptor 2.
    pub stderr: OwnedFd,
    /// The guest's main process.
    pub process: OwnedFd,
    /// What the kernel tells of it.
    pub proc: ProcDir,
    /// Process 1 of its pid namespace, whose end is everything's end. None at level `landlock`.
    pub init: Option<OwnedFd>,
    /// The directories that the guest can write to, work directory first.
    pub directories: Vec<OwnedFd>,
    /// When it was asked for.
    pub asked: Instant,
    /// When it had been forked.
    pub born: Instant,
}

impl Worker {
    /// Has the zygote fork a worker with this standard input, into this cgroup.
    pub fn spawn(
        zygote: &Zygote,
        stdin: OwnedFd,
        cgroup: Option<&WorkerCgroup<'_>>,
        first_core: usize,
    ) -> Result<Self, SupervisorError> {
        let (data, their_data) = socket_pair(SockType::Stream).when("make the data socket")?;
        let (monitor, their_monitor) = socket_pair(SockType::SeqPacket).when("make the monitor")?;
        let (stdout, their_stdout) = pipe().when("make the output pipe")?;
        let (stderr, their_stderr) = pipe().when("make the output pipe")?;
        let mut fds = vec![
            stdin.as_fd(),
            their_stdout.as_fd(),
            their_stderr.as_fd(),
            their_data.as_fd(),
            their_monitor.as_fd(),
        ];
        let join_files = cgroup
            .map(WorkerCgroup::join_files)
            .transpose()?
            .unwrap_or_default();
        fds.extend(join_files.iter().map(AsFd::as_fd));
        zygote.request(first_core, &fds)?;
        // The worker's ends, so that its end shows as ours.
        drop((
            stdin,
            their_data,
            their_monitor,
            their_stdout,
            their_stderr,
            join_files,
        ));
        let asked = Instant::now();
        let deadline = asked + BIRTH_TIMEOUT;
        let (process, init) = await_birth(zygote, &monitor, deadline)?;
        let mut worker = Self {
            monitor,
            data,
            stdout,
            stderr,
            proc: ProcDir::of(process.as_fd())
                .map_err(|_| SupervisorError::WorkerEnded { hint: "" })?,
            process,
            init,
            directories: vec![],
            asked,
            born: Instant::now(),
        };
        worker.directories = worker.await_jail(deadline)?;
        Ok(worker)
    }

    /// Waits for the two reports: the directories, and that the jail stands.
    fn await_jail(&self, deadline: Instant) -> Result<Vec<OwnedFd>, SupervisorError> {
        let mut directories = Vec::new();
        for _ in 0..2 {
            await_input(self.data.as_fd(), deadline)?;
            let mut report = [0; REPORT_LENGTH];
            let (length, fds) =
                receive(self.data.as_fd(), &mut report).when("read the worker's report")?;
            match decode_report(&report[..length]) {
                Some(Ok(())) => directories.extend(fds),
                Some(Err(failure)) => {
                    return Err(SupervisorError::Jail {
                        who: "a worker",
                        failure,
                    });
                }
                None => {
                    let hint = " (killed while it was set up: the memory limit may be too small)";
                    return Err(SupervisorError::WorkerEnded { hint });
                }
            }
        }
        Ok(directories)
    }

    /// Ends the worker, with every process that it made.
    pub fn kill(&self) {
        let handle = self.init.as_ref().unwrap_or(&self.process);
        // One that is gone already is as good.
        _ = sys::pidfd::signal(handle.as_fd(), Signal::SIGKILL);
    }
}

fn await_birth(
    zygote: &Zygote,
    monitor: &OwnedFd,
    deadline: Instant,
) -> Result<(OwnedFd, Option<OwnedFd>), SupervisorError> {
    await_input(monitor.as_fd(), deadline)?;
    let heard = match hear(monitor.as_fd()) {
        Err(Errno::ECONNRESET) => None,
        other => other.when("read from the zygote")?,
    };
    match heard {
        Some((FromMonitor::Born, fds)) => {
            let mut fds = fds.into_iter();
            let process = fds
                .next()
                .ok_or(Errno::EBADF)
                .when("take the worker's handle")?;
            Ok((process, fds.next()))
        }
        Some((FromMonitor::NotBorn { step, errno }, _)) => Err(SupervisorError::Jail {
            who: "the zygote",
            failure: failure(step, errno),
        }),
        Some((FromMonitor::Exited(_), _)) | None => {
            if zygote.is_alive() {
                Err(SupervisorError::WorkerEnded { hint: "" })
            } else {
                Err(SupervisorError::ZygoteGone)
            }
        }
    }
}

fn await_input(fd: BorrowedFd, deadline: Instant) -> Result<(), SupervisorError> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let millis = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, millis) {
            Err(Errno::EINTR) => {}
            Ok(0) => {
                return Err(SupervisorError::WorkerSlow {
                    seconds: BIRTH_TIMEOUT.as_secs(),
                });
            }
            other => return other.map(drop).when("wait for a worker"),
        }
    }
}
