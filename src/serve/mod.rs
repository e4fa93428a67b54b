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

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Shutdown, shutdown};

use self::connection::Connection;
use self::sandboxes::Sandboxes;
use crate::supervisor::driver::{Spawned, Waits, spawn};
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
/// When the control socket is none, or the process has no thread or descriptor left.
pub fn serve(control: OwnedFd) -> io::Result<()> {
    raise_open_files();
    // Dropped here, where the end of a sandbox delays no session.
    let sandboxes = Arc::new(Sandboxes::new());
    let (sender, receiver) = channel();
    let shared = Arc::clone(&sandboxes);
    // A task too, so that a driver is there when a connection comes.
    spawn(move || async move {
        let mut open = Open::default();
        let served = accept(&control, &shared, &mut open).await;
        _ = sender.send((open, served));
    })?;
    let accepted = receiver.recv();
    let (open, served) = accepted.map_err(io::Error::other)?;
    open.end_all();
    Ok(served?)
}

async fn accept(
    control: &OwnedFd,
    sandboxes: &Arc<Sandboxes>,
    open: &mut Open,
) -> Result<(), Errno> {
    let mut byte = [0; 1];
    let mut waits = Waits::default();
    loop {
        let source = Some((control.as_fd(), PollFlags::POLLIN));
        let [found] = waits.any([source], None, None).await?;
        if found.is_empty() {
            continue;
        }
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
