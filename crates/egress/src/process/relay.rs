//! Relays bytes between a guest and a host in both directions, without copying them to user space (splice(2)).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::pipe2;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::head::Guest;
use super::metered::{Meter, Metered};

/// The requested pipe capacity in bytes. The kernel may refuse it to this user.
const PIPE_CAPACITY: i32 = 256 * 1024;

/// Relays until both sides have closed, one of them fails, or the worker's quota is used up.
pub async fn relay(guest: Guest, host: Metered) -> io::Result<()> {
    let (head, meter, mut to) = (guest.head, host.meter, host.stream);
    if !head.is_empty() {
        to.write_all(&head).await?;
        meter.sent(head.len());
    }
    let out = relay_direction(&guest.stream, &to, &meter, Meter::sent);
    let back = relay_direction(&to, &guest.stream, &meter, Meter::received);
    tokio::try_join!(out, back).map(drop)
}

/// Relays one direction until EOF, and forwards the EOF.
async fn relay_direction(
    from: &TcpStream,
    to: &TcpStream,
    meter: &Meter,
    count: fn(&Meter, usize),
) -> io::Result<()> {
    let pipe = Pipe::new()?;
    loop {
        from.readable().await?;
        let moved = from.try_io(Interest::READABLE, || {
            // Other connections share the quota, but no other task runs between this check and the charge.
            match meter.remaining().min(pipe.capacity) {
                0 => Err(io::ErrorKind::QuotaExceeded.into()),
                room => pipe.fill(from, room).inspect(|moved| count(meter, *moved)),
            }
        });
        let mut held = match moved {
            Ok(0) => break,
            Ok(moved) => moved,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        while held > 0 {
            to.writable().await?;
            match to.try_io(Interest::WRITABLE, || pipe.drain(to, held)) {
                Ok(moved) => held -= moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    match shutdown(to.as_raw_fd(), Shutdown::Write) {
        // The peer has already closed the connection.
        Err(Errno::ENOTCONN) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The pipe through which splice(2) moves the bytes.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // A smaller pipe also works, with more system calls.
        _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE_CAPACITY));
        let capacity = fcntl(&write, FcntlArg::F_GETPIPE_SZ)?;
        Ok(Self {
            read,
            write,
            capacity: usize::try_from(capacity).unwrap_or(0),
        })
    }

    fn fill(&self, from: &TcpStream, room: usize) -> io::Result<usize> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        Ok(splice(from, None, &self.write, None, room, flags)?)
    }

    fn drain(&self, to: &TcpStream, held: usize) -> io::Result<usize> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        Ok(splice(&self.read, None, to, None, held, flags)?)
    }
}
