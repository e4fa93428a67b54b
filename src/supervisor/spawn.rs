//! From a request to a worker that stands in its jail, ready to be looked at from outside.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, SockType, shutdown};

use super::cgroup::WorkerCgroup;
use super::descriptors::{hear, pipe, socket_pair};
use super::error::{SupervisorError, While};
use super::proc_dir::{ProcDir, number};
use super::session::SessionDirectory;
use super::zygote::{Zygote, failure};
use crate::jail::control::{Beneath, CpuSpan, FromMonitor, ToZygote};
use crate::jail::failure::{REPORT_LENGTH, decode_report};
use crate::jail::timing::Timing;
use crate::sys;
use crate::sys::descriptors::receive;

/// How long a worker may take to enter its jail: a millisecond, but on a host with hundreds of busy
/// processes a turn of the processor alone takes seconds.
const BIRTH_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a killed worker may take to be gone before it is left to the zygote.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A worker that ended and did not say why.
const ENDED: SupervisorError = SupervisorError::WorkerEnded { hint: "" };

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
    /// The process to which its orphans come and which ends them all, and what that is.
    pub above: OwnedFd,
    /// Its number.
    pub above_pid: i32,
    beneath: Beneath,
    /// The directories that the guest can write to, work directory first.
    pub directories: Vec<OwnedFd>,
    /// When it was asked for.
    pub asked: Instant,
    /// When it had been forked.
    pub born: Instant,
    /// What it took to close its jail, as it says: before there was any guest code in it.
    pub timing: Timing,
}

impl Worker {
    /// Has the zygote fork a worker with this standard input, into this cgroup, with its files in
    /// this directory.
    pub fn spawn(
        zygote: &Zygote,
        stdin: OwnedFd,
        cgroup: Option<&WorkerCgroup>,
        session: Option<&SessionDirectory>,
        first_core: usize,
        cpu: CpuSpan,
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
        let join_files = cgroup.map(WorkerCgroup::join_files).transpose()?;
        fds.extend(
            join_files
                .iter()
                .flat_map(|files| files.iter().map(AsFd::as_fd)),
        );
        let work = session.map(|session| session.path().to_owned());
        let spawn = ToZygote::Spawn {
            first_core,
            work,
            cpu,
        };
        zygote.request(&spawn, &fds)?;
        // The worker's ends, so that its end shows as ours.
        drop((stdin, their_data, their_monitor, their_stdout, their_stderr));
        let asked = Instant::now();
        let deadline = asked + BIRTH_TIMEOUT;
        let Born {
            process,
            above,
            beneath,
        } = await_birth(&monitor, deadline)?;
        // While it enters its jail.
        let found =
            ProcDir::of(process.as_fd()).and_then(|proc| Ok((proc, number(above.as_fd())?)));
        let (proc, above_pid) = match found {
            // It says why before it ends, and may end before anybody looks.
            Err(error) if is_gone(&error) => {
                let reported = await_jail(data.as_fd(), deadline);
                return Err(reported.err().unwrap_or(ENDED));
            }
            other => other.when("find the worker in /proc")?,
        };
        let mut worker = Self {
            monitor,
            data,
            stdout,
            stderr,
            proc,
            process,
            above,
            above_pid,
            beneath,
            directories: vec![],
            asked,
            born: Instant::now(),
            timing: Timing::default(),
        };
        (worker.directories, worker.timing) = await_jail(worker.data.as_fd(), deadline)?;
        Ok(worker)
    }

    /// Whether nothing is left of it, or its main process has ended.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.monitor.as_fd(), PollFlags::POLLIN)];
        // An error comes to the same as something to read: it is not to be used.
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }

    /// Ends the worker, with every process that it made.
    pub fn kill(&self) {
        // One that is gone already is as good.
        match self.beneath {
            Beneath::Init => _ = sys::pidfd::signal(self.above.as_fd(), Signal::SIGKILL),
            Beneath::Reaper => {
                _ = shutdown(self.monitor.as_raw_fd(), Shutdown::Write);
                // The reaper does it too, but has to be given a processor first.
                _ = sys::pidfd::signal(self.process.as_fd(), Signal::SIGKILL);
            }
        }
    }

    /// Ends the worker and waits until nothing is left of it, if that takes no longer than anyone
    /// should wait.
    pub fn end(&self) {
        self.kill();
        let deadline = Instant::now() + END_TIMEOUT;
        while await_input(self.monitor.as_fd(), deadline).is_ok() {
            // Its end of file is what is waited for; an error comes to the same.
            match hear::<FromMonitor>(self.monitor.as_fd()) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// On every way out, an error's too: nothing is left behind.
impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for the two reports: the directories, and that the jail stands.
fn await_jail(
    data: BorrowedFd,
    deadline: Instant,
) -> Result<(Vec<OwnedFd>, Timing), SupervisorError> {
    let (mut directories, mut timing) = (Vec::new(), Timing::default());
    for _ in 0..2 {
        await_input(data, deadline)?;
        let mut report = [0; REPORT_LENGTH];
        let (length, fds) = receive(data, &mut report).when("read the worker's report")?;
        match decode_report(&report[..length]) {
            Some(Ok(last)) => {
                directories.extend(fds);
                timing = last;
            }
            Some(Err(failure)) => {
                return Err(SupervisorError::of_step("a worker", failure));
            }
            None => {
                let hint = " (killed while it was set up: the memory limit may be too small)";
                return Err(SupervisorError::WorkerEnded { hint });
            }
        }
    }
    Ok((directories, timing))
}

/// Whether it is the process that is not there, and not what was to be opened that is out of reach.
fn is_gone(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(libc::ESRCH) || errno == Some(libc::ENOENT)
}

/// What the zygote, or the reaper, says of a worker when it is born.
struct Born {
    process: OwnedFd,
    above: OwnedFd,
    beneath: Beneath,
}

fn await_birth(monitor: &OwnedFd, deadline: Instant) -> Result<Born, SupervisorError> {
    await_input(monitor.as_fd(), deadline)?;
    let heard = match hear(monitor.as_fd()) {
        Err(Errno::ECONNRESET) => None,
        other => other.when("read from the zygote")?,
    };
    match heard {
        Some((FromMonitor::Born { beneath }, fds)) => {
            let [process, above] = <[OwnedFd; 2]>::try_from(fds)
                .map_err(|_| Errno::EBADF)
                .when("take the worker's handles")?;
            Ok(Born {
                process,
                above,
                beneath,
            })
        }
        Some((FromMonitor::NotBorn { step, errno }, _)) => Err(SupervisorError::Jail {
            who: "the zygote",
            failure: failure(step, errno),
        }),
        Some((FromMonitor::Exited(_), _)) => Err(ENDED),
        // The end of one that was killed shows here before its process has ended: and one that lives and
        // does not answer is of no more use.
        None => Err(SupervisorError::ZygoteGone),
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
