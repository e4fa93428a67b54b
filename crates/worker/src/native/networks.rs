//! Lends network namespaces to workers, each to one worker at a time.
//!
//! Two workers in one network namespace could interact: a worker cannot bind an abstract name that the other has bound,
//! and `/proc/self/net/unix` lists every socket. Creating a namespace for each worker would take longer than the rest
//! of its start, and destroying it takes machine-wide locks. A namespace is therefore reused after its worker has
//! ended, once no socket is left in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;

/// The maximum number of namespaces kept for reuse. Sockets may remain in some: the kernel garbage-collects sockets
/// that refer to each other through descriptors in flight at a time of its choosing.
const MAX_FREE: usize = 16;

/// An empty network namespace, in which no interface is up.
pub struct Network {
    namespace: OwnedFd,
    /// The namespace's table of unix sockets (proc_pid_net(5)).
    sockets: OwnedFd,
}

/// The network namespaces of one zygote.
pub struct Networks {
    /// The zygote's own namespace, to return to after creating another.
    home: OwnedFd,
    /// The namespaces that no worker uses.
    free: Vec<Network>,
}

impl Networks {
    /// Starts with the namespace of the calling process. The process must not open a socket in it afterwards.
    pub fn new(proc: BorrowedFd) -> Result<Self, Errno> {
        let own = Network::current(proc)?;
        Ok(Self {
            home: own.namespace.try_clone().map_err(|_| Errno::EMFILE)?,
            free: vec![own],
        })
    }

    /// Returns a namespace without a socket, reused or new.
    ///
    /// `proc` is the root of a procfs that shows the calling process.
    pub fn lend(&mut self, proc: BorrowedFd) -> Result<Network, Errno> {
        // Search from the end: the most recently used namespace is the likeliest to be in the CPU's caches.
        for place in (0..self.free.len()).rev() {
            if self.free[place].is_empty()? {
                return Ok(self.free.swap_remove(place));
            }
        }
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = Network::current(proc);
        setns(&self.home, CloneFlags::CLONE_NEWNET)?;
        made
    }

    /// Puts the namespace of a worker that has no process left back into the pool.
    pub fn take_back(&mut self, network: Network) {
        if self.free.len() >= MAX_FREE {
            self.free.remove(0);
        }
        self.free.push(network);
    }
}

impl Network {
    /// Opens the namespace of the calling process.
    fn current(proc: BorrowedFd) -> Result<Self, Errno> {
        let open = |path| {
            openat(
                proc,
                path,
                OFlag::O_RDONLY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )
        };
        Ok(Self {
            namespace: open("self/ns/net")?,
            sockets: open("self/net/unix")?,
        })
    }

    /// Returns whether the namespace has no unix socket; the jail's filter lets a guest create no other kind. The table
    /// has a header line and one line per socket, so any text after the first line, even a partial line, means a
    /// socket.
    fn is_empty(&self) -> Result<bool, Errno> {
        let mut text = [0; 256];
        let length = pread(&self.sockets, &mut text, 0)?;
        Ok(text[..length].iter().position(|byte| *byte == b'\n') == length.checked_sub(1))
    }
}

impl AsFd for Network {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}
