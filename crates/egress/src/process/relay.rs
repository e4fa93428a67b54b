//! Moves bytes between a guest and a host, both ways, within the kernel (splice(2)).

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

/// How much a pipe may hold, if the kernel lets this user have so much.
const PIPE: i32 = 256 * 1024;

/// Moves bytes until both sides have ended, one of them breaks, or the worker's limit is reached.
pub async fn relay(guest: Guest, host: Metered) -> io::Result<()> {
    let (head, meter, mut to) = (guest.head, host.meter, host.stream);
    if !head.is_empty() {
        to.write_all(&head).await?;
        meter.sent(head.len());
    }
    let out = one_way(&guest.stream, &to, &meter, Meter::sent);
    let back = one_way(&to, &guest.stream, &meter, Meter::received);
    tokio::try_join!(out, back).map(drop)
}

/// Moves what one side sends, until it ends, and passes the end on.
async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    meter: &Meter,
    count: fn(&Meter, usize),
) -> io::Result<()> {
    let pipe = Pipe::new()?;
    loop {
        from.readable().await?;
        let moved = from.try_io(Interest::READABLE, || {
            // Other connections take from the same limit, but not in between.
            match meter.room().min(pipe.capacity) {
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
        // It has ended by itself.
        Err(Errno::ENOTCONN) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A pipe for the bytes on their way.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // Without the larger one it takes more calls.
        _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE));
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
