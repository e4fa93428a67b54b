//! Serves sessions and batches to another process, as `sandfork serve`.
//!
//! The other process holds one end of a `SOCK_SEQPACKET` pair. It opens a connection by sending one byte and one end of
//! a `SOCK_STREAM` pair. A connection carries one session, one batch, one program or one directory watch, or single
//! requests. It is served on a separate thread, and speaks [`protocol::caller`](crate::protocol::caller). When the
//! other end of the `SOCK_SEQPACKET` pair is closed, for any reason, all connections and their guests end.

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

/// Takes the control socket, which this process inherited by descriptor number.
///
/// # Panics
///
/// If the number is negative.
pub fn control_socket(number: i32) -> OwnedFd {
    let control = inherited(number);
    // Child processes must not inherit it. Fails if the descriptor is not open, which `serve` reports.
    _ = fcntl(&control, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    control
}

/// Serves connections until the control socket's other end is closed, and returns when everything that belongs to them
/// has ended.
///
/// # Errors
///
/// If the control socket is invalid, or no descriptor is left.
pub fn serve(control: &OwnedFd) -> io::Result<()> {
    // If the host refuses, fewer sessions can run at once.
    _ = raise_open_files();
    let cancel = Cancel::new()?;
    let sandboxes = Arc::new(Sandboxes::new(cancel.clone()));
    let open = Open::default();
    let served = accept(control, &sandboxes, &open);
    // A thread that installs packages does not notice that its caller is gone.
    cancel.cancel();
    open.end_all();
    Ok(served?)
}

fn accept(control: &OwnedFd, sandboxes: &Arc<Sandboxes>, open: &Open) -> Result<(), Errno> {
    let mut byte = [0; 1];
    loop {
        let (length, fds) = match receive(control.as_fd(), &mut byte) {
            // Too many descriptors in the message, or none left here: the sender sees EOF.
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
        // Other socket types never report EOF.
        if getsockopt(&socket, SockType) != Ok(socket::SockType::Stream) {
            continue;
        }
        let socket = Arc::new(socket);
        let (served, sandboxes) = (Arc::clone(&socket), Arc::clone(sandboxes));
        let serve = move || connection::serve(&served, &sandboxes);
        // If no thread can be started, the connection is closed, which its other end notices.
        let started = thread::Builder::new().name("session".into()).spawn(serve);
        if let Ok(thread) = started {
            open.add(&socket, thread);
        }
    }
}

/// The open connections.
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
                // Its thread sees this as a disconnect.
                _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            }
        }
        for (_, thread) in open {
            // A thread that panicked has reported the panic itself.
            _ = thread.join();
        }
    }
}
