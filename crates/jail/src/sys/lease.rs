//! Detects whether a file is open for writing (fcntl(2), `F_SETLEASE`).

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// `F_SETSIG` of asm-generic/fcntl.h, which libc does not define.
const F_SETSIG: libc::c_int = 10;

/// Returns whether any process has this file open for writing. `file` must be open for reading only, and either belong
/// to this thread's user (`fsuid`) or the thread must have `CAP_LEASE`.
///
/// The kernel grants a read lease only on a file that no process has open for writing. This function releases the lease
/// immediately.
pub fn is_written(file: BorrowedFd) -> Result<bool, Errno> {
    let set = |what: libc::c_int, value: libc::c_int| {
        // SAFETY: integer arguments only, and the descriptor is borrowed for the call.
        Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), what, value) })
    };
    // A process that opens the file meanwhile makes the kernel signal this one. SIGIO would end it; SIGURG is ignored
    // by default.
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
    fn file_counts_as_written_while_any_writer_is_open() {
        let file = super::super::sealed::memory_file(c"x").expect("there is memory");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reader = File::open(&path).expect("it is there");
        // The kernel does not count the first descriptor of a memfd.
        assert_eq!(is_written(reader.as_fd()), Ok(false));
        let open = || OpenOptions::new().write(true).open(&path);
        let writer = open().expect("it can be opened");
        assert_eq!(is_written(reader.as_fd()), Ok(true));
        let another = writer.try_clone().expect("there are descriptors");
        drop(writer);
        assert_eq!(is_written(reader.as_fd()), Ok(true));
        drop(another);
        assert_eq!(is_written(reader.as_fd()), Ok(false));
        // Blocks if a lease is left.
        drop(open().expect("it can be opened"));
    }
}
