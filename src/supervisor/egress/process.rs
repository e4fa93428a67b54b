//! Starts the egress process, and sends messages to it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{SockType, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use sandfork_egress::control::{Authority, FromEgress, NotReady, Start, ToEgress};
use sandfork_jail::control::send_message;
use sandfork_jail::program::HostIds;

use super::confinement::Confinement;
use super::not_ready;
use crate::error::ErrorKind;
use crate::supervisor::clock;
use crate::supervisor::descriptors::{recv_report, socket_pair};
use crate::supervisor::embedded::EGRESS;
use crate::supervisor::error::{SupervisorError, While, said};
use crate::supervisor::launch::{Started, last_words, log};
use crate::supervisor::wait::wait_readable;

/// The time that the process may take to confine itself. It usually takes a few milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The time in seconds that the process may leave messages unread.
const READ_TIMEOUT: i64 = 10;

/// Creates a socket pair with the process. Sending fails with `EAGAIN` if the process leaves messages unread for too
/// long.
pub(super) fn connection() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = socket_pair(SockType::SeqPacket)?;
    setsockopt(&ours, sockopt::SendTimeout, &TimeVal::new(READ_TIMEOUT, 0))?;
    Ok((ours, theirs))
}

/// A running egress process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    control: OwnedFd,
    log: File,
    confinement: Confinement,
    /// The user that the process must have switched to.
    identity: Option<HostIds>,
    // Dropped last: the process ends when its socket closes.
    pub(super) child: Started,
}

impl Process {
    /// Starts a process and sends it its configuration. It inherits nothing of this process's environment, which may
    /// contain secrets that do not concern it.
    pub(super) fn start(start: &Start) -> Result<Self, SupervisorError> {
        let program = EGRESS.as_ref().ok_or_else(|| {
            SupervisorError::new(
                ErrorKind::Host,
                "this build of Sandfork connects guests to no hosts: build it with the feature `egress`, one of its \
                 defaults, or do without (`--set network.mode=none`)",
            )
        })?;
        let program = match program.open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(not_ready(
                    "be made in memory, which `vm.memfd_noexec=2` forbids",
                    Some("allow it with `sudo sysctl -w vm.memfd_noexec=1`"),
                ));
            }
            made => made.when("make the egress program")?,
        };
        let (control, theirs) = connection().when("make the control socket")?;
        let (log, stderr) = log()?;
        let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg0("sandfork-egress")
            .env_clear()
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(stderr)
            // An interrupt from the terminal is for the supervisor, which ends its guests first.
            .process_group(0)
            .spawn()
            .when("start the egress process")?;
        let child = Started(child);
        let process = Self {
            control,
            log,
            confinement: Confinement::of(child.pid()).when("look at the egress process")?,
            identity: start.identity,
            child,
        };
        process.send(&ToEgress::Start(Box::new(start.clone())), &[])?;
        Ok(process)
    }

    /// Sends a message with descriptors.
    pub(super) fn send(
        &self,
        message: &ToEgress,
        descriptors: &[BorrowedFd],
    ) -> Result<(), SupervisorError> {
        match send_message(self.control.as_fd(), message, descriptors) {
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(SupervisorError::EgressGone),
            Err(Errno::EAGAIN) => Err(slow(READ_TIMEOUT.unsigned_abs())),
            // The rules are the only part of a message without a size limit of their own.
            Err(Errno::EMSGSIZE) => Err(SupervisorError::new(
                ErrorKind::Policy,
                "`network.allow` is too long: join its entries, as in \"*.example.org\"",
            )),
            other => other.when("write to the egress process"),
        }
    }

    /// Waits until the process is ready, and verifies that it is confined.
    pub(super) fn await_ready(&mut self) -> Result<Authority, SupervisorError> {
        let answers = wait_readable(self.control.as_fd(), clock::now() + READY_TIMEOUT);
        if !answers.when("wait for the egress process")? {
            return Err(slow(READY_TIMEOUT.as_secs()));
        }
        match recv_report(self.control.as_fd()) {
            Ok(Some((FromEgress::Ready(authority), _))) => {
                self.confinement.verify(self.identity)?;
                Ok(authority)
            }
            Ok(Some((FromEgress::Failed(NotReady { what, remedy }), _))) => {
                Err(not_ready(&what, remedy.as_deref()))
            }
            Ok(None) | Err(Errno::ECONNRESET) => Err(self.ended()),
            Err(errno) => Err(errno).when("read from the egress process"),
        }
    }

    /// Returns the error for a process that has exited, with the end of its log.
    pub(super) fn ended(&self) -> SupervisorError {
        let said = said(&last_words(&self.log));
        SupervisorError::new(
            ErrorKind::System,
            format!("the process that connects guests to hosts ended{said}"),
        )
    }
}

/// Returns the error for a process that did not become ready within `seconds`, or stopped reading.
fn slow(seconds: u64) -> SupervisorError {
    SupervisorError::new(
        ErrorKind::System,
        format!(
            "the process that connects guests to hosts did not answer for {seconds} s: the host is overloaded"
        ),
    )
}
