//! Whether a file is open for writing (fcntl(2), `F_SETLEASE`).

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Of `asm-generic/fcntl.h`, which libc does not name.
const F_SETSIG: libc::c_int = 10;

/// Whether a process has this file open for writing. It must be open for reading only here, and be of this thread's
/// user (`fsuid`), or the thread have `CAP_LEASE`.
///
/// The kernel grants a lease on a file that no one can write to. The lease is given back at once.
pub fn is_written(file: BorrowedFd) -> Result<bool, Errno> {
    let set = |what: libc::c_int, value: libc::c_int| {
        // SAFETY: both are integers, and the descriptor is borrowed for the call.
        Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), what, value) })
    };
    // A process that opens the file meanwhile has this one get a signal. `SIGIO` would end it; this one is ignored.
    set(F_SETSIG, libc::SIGURG)?;
    match set(libc::F_SETLEASE, libc::F_RDLCK) {
        Err(Errno::EAGAIN) => Ok(true),
        other => {
            other?;
            set(libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_is_written_for_as_long_as_it_is_open_for_that() {
        let file = super::super::sealed::memory_file(c"x").expect("there is memory");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reader = File::open(&path).expect("it is there");
        // The kernel does not count the first descriptor of a memory file.
        assert_eq!(is_written(reader.as_fd()), Ok(false));
        let open = || OpenOptions::new().write(true).open(&path);
        let writer = open().expect("it can be opened");
        assert_eq!(is_written(reader.as_fd()), Ok(true));
        let another = writer.try_clone().expect("there are descriptors");
        drop(writer);
        assert_eq!(is_written(reader.as_fd()), Ok(true));
        drop(another);
        assert_eq!(is_written(reader.as_fd()), Ok(false));
        // No lease is left, for which this would wait.
        drop(open().expect("it can be opened"));
    }
}
