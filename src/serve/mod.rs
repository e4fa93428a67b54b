//! Sessions and batches for another process: what `sandfork serve` does.
//!
//! The other process has one end of a `SOCK_SEQPACKET` pair, and hands a connection over by sending
//! one byte and one end of a `SOCK_STREAM` pair. Each connection is one session or one batch, on a
//! thread of its own; what is said on it is [`protocol::caller`](crate::protocol::caller). When the pair's other end
//! is closed, however that comes about, everything ends.

mod batch;
mod connection;
mod policies;
mod program;
mod sandboxes;
mod watch;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::sockopt::SockType;
use nix::sys::socket::{self, Shutdown, getsockopt, shutdown};

use self::sandboxes::Sandboxes;
use crate::supervisor::Cancel;
use crate::waiters::lock;
use sandfork_jail::limits::raise_open_files;
use sandfork_jail::sys::descriptors::{inherited, receive};

/// The control socket, which this process inherited by number.
///
/// # Panics
///
/// When the number is negative.
pub fn control_socket(number: i32) -> OwnedFd {
    let control = inherited(number);
    // For no program that this process starts. Fails if the number is no descriptor's, which `serve` reports.
    _ = fcntl(&control, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    control
}

/// Serves connections until the control socket's other end is closed, and returns when nothing of
/// them is left.
///
/// # Errors
///
/// When the control socket is none, or there is no descriptor left.
pub fn serve(control: &OwnedFd) -> io::Result<()> {
    // Where the host refuses, fewer run at once.
    _ = raise_open_files();
    let cancel = Cancel::new()?;
    let sandboxes = Arc::new(Sandboxes::new(cancel.clone()));
    let open = Open::default();
    let served = accept(control, &sandboxes, &open);
    // A thread that installs packages does not see that its caller is gone.
    cancel.cancel();
    open.end_all();
    Ok(served?)
}

fn accept(control: &OwnedFd, sandboxes: &Arc<Sandboxes>, open: &Open) -> Result<(), Errno> {
    let mut byte = [0; 1];
    loop {
        let (length, fds) = match receive(control.as_fd(), &mut byte) {
            // More descriptors than one connection has, or none left: the sender sees its own closed.
            Err(Errno::EMSGSIZE | Errno::EMFILE | Errno::ENFILE) => continue,
            Err(Errno::ECONNRESET) => return Ok(()),
            other => other?,
        };
        if length == 0 {
            return Ok(());
        }
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(fds) else {
            continue;
        };
        // Another kind never says that its other end is closed.
        if getsockopt(&socket, SockType) != Ok(socket::SockType::Stream) {
            continue;
        }
        let socket = Arc::new(socket);
        let (served, sandboxes) = (Arc::clone(&socket), Arc::clone(sandboxes));
        let serve = move || connection::serve(&served, &sandboxes);
        // A host without a thread to spare closes the connection, which its other end sees.
        let started = thread::Builder::new().name("session".into()).spawn(serve);
        if let Ok(thread) = started {
            open.add(&socket, thread);
        }
    }
}

/// The connections that are open.
#[derive(Default)]
struct Open(Mutex<Vec<(Weak<OwnedFd>, JoinHandle<()>)>>);

impl Open {
    fn add(&self, socket: &Arc<OwnedFd>, thread: JoinHandle<()>) {
        let mut open = lock(&self.0);
        open.retain(|(_, thread)| !thread.is_finished());
        open.push((Arc::downgrade(socket), thread));
    }

    fn end_all(self) {
        let open = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (socket, _) in &open {
            if let Some(socket) = socket.upgrade() {
                // Seen by its thread as the caller's end.
                _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            }
        }
        for (_, thread) in open {
            // One that panicked has said so.
            _ = thread.join();
        }
    }
}
