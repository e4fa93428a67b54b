//! Sessions and batches for another process: what `sandfork serve` does.
//!
//! The other process has one end of a `SOCK_SEQPACKET` pair, and hands a connection over by sending
//! one byte and one end of a `SOCK_STREAM` pair. Each connection is one session or one batch, a task of a
//! driver; what is said on it is [`protocol::caller`](crate::protocol::caller). When the pair's other end
//! is closed, however that comes about, everything ends.

mod batch;
mod connection;
mod policies;
mod sandboxes;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Shutdown, shutdown};

use self::connection::Connection;
use self::sandboxes::Sandboxes;
use crate::supervisor::driver::{Spawned, spawn};
use sandfork_jail::sys::descriptors::{inherited, receive};

/// The control socket, which this process inherited by number.
///
/// # Panics
///
/// When the number is negative.
pub fn control_socket(number: i32) -> OwnedFd {
    inherited(number)
}

/// Serves connections until the control socket's other end is closed, and returns when nothing of
/// them is left.
///
/// # Errors
///
/// When the control socket is none.
pub fn serve(control: &OwnedFd) -> Result<(), Errno> {
    raise_open_files();
    let sandboxes = Arc::new(Sandboxes::new());
    let mut open = Open::default();
    let served = accept(control, &sandboxes, &mut open);
    open.end_all();
    served
}

fn accept(control: &OwnedFd, sandboxes: &Arc<Sandboxes>, open: &mut Open) -> Result<(), Errno> {
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
        let socket = Arc::new(socket);
        let connection = Connection::new(Arc::clone(&socket), Arc::clone(sandboxes));
        // A host without a thread to spare closes the connection, which its other end sees.
        if let Ok(served) = spawn(move || connection.serve()) {
            open.add(&socket, served);
        }
    }
}

/// Each session has about a dozen descriptors.
fn raise_open_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A host that refuses has fewer sessions at once.
        _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The connections that are open.
#[derive(Default)]
struct Open(Vec<(Weak<OwnedFd>, Spawned)>);

impl Open {
    fn add(&mut self, socket: &Arc<OwnedFd>, served: Spawned) {
        self.0.retain(|(_, served)| !served.is_over());
        self.0.push((Arc::downgrade(socket), served));
    }

    fn end_all(self) {
        for (socket, _) in &self.0 {
            if let Some(socket) = socket.upgrade() {
                // Seen by its task as the caller's end.
                _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            }
        }
        for (_, served) in self.0 {
            served.join();
        }
    }
}
