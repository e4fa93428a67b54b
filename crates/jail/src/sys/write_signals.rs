//! The signals by which the kernel ends a process that writes: SIGPIPE (pipe(7)) and SIGXFSZ (setrlimit(2)).
//!
//! How a process treats them is its own affair, and this library is in the process of another. It ends one that has the
//! default of both, as a C program does.

use std::mem::MaybeUninit;
use std::ptr;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

const SIGNALS: [Signal; 2] = [Signal::SIGPIPE, Signal::SIGXFSZ];

/// Calls a function whose writes fail with `EPIPE` or `EFBIG`, also where the signal would end this process. It concerns
/// this thread alone. The function must start no process, which would have the signals blocked.
pub fn as_errors<T>(writes: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::new();
    writes()
}

/// This thread's mask before, and the signals that came for it since.
struct Blocked {
    before: Option<SigSet>,
    own: SigSet,
}

impl Blocked {
    fn new() -> Self {
        let signals = SigSet::from_iter(SIGNALS);
        // It fails only for a wrong argument.
        let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok();
        let pending = pending();
        let own = SIGNALS
            .into_iter()
            .filter(|signal| !pending.contains(*signal));
        Self {
            before,
            own: own.collect(),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        take(&self.own);
        if let Some(before) = self.before {
            _ = before.thread_set_mask();
        }
    }
}

/// The signals that wait for this thread, or for any thread of this process (sigpending(2)).
fn pending() -> SigSet {
    let mut found = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the kernel writes a set to where the pointer leads. It has no other error. The set is one of integers, which
    // zeros are too.
    unsafe {
        libc::sigpending(found.as_mut_ptr());
        SigSet::from_sigset_t_unchecked(found.assume_init())
    }
}

/// Takes the signals of a set that wait, so that they never come (sigtimedwait(2)).
fn take(signals: &SigSet) {
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both pointers are to live values of the right type, and a null pointer asks for nothing.
    let next = || unsafe { libc::sigtimedwait(signals.as_ref(), ptr::null_mut(), &raw const now) };
    // An error says that none waits.
    while next() > 0 {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nix::errno::Errno;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::sys::signal::{SigHandler, signal};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork, pipe, write};

    use super::*;
    use crate::sys::process::exit_now;
    use crate::sys::sealed::memory_file;

    /// In a process with the default of both signals and a limit of one byte, which a harness has not.
    fn ends_with(writes: fn() -> i32) -> WaitStatus {
        // SAFETY: the child only makes system calls.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => waitpid(child, None).unwrap(),
            ForkResult::Child => {
                for number in SIGNALS {
                    // SAFETY: the default action runs no code of this process.
                    unsafe { signal(number, SigHandler::SigDfl) }.unwrap();
                }
                let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
                setrlimit(Resource::RLIMIT_FSIZE, 1, hard).unwrap();
                exit_now(writes())
            }
        }
    }

    fn broken_pipe() -> i32 {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        write(&writer, b"x").map_or_else(|errno| errno as i32, |_| 0)
    }

    fn too_large() -> i32 {
        let file = File::from(memory_file(c"x").unwrap());
        let written = file.write_at(b"x", 1);
        written.map_or_else(|error| error.raw_os_error().unwrap_or(0), |_| 0)
    }

    #[test]
    fn a_write_that_would_end_its_process_fails() {
        let ended = |writes| match ends_with(writes) {
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            WaitStatus::Signaled(_, signal, _) => Ok(signal),
            other => panic!("{other:?}"),
        };
        assert_eq!(ended(broken_pipe), Ok(Signal::SIGPIPE));
        assert_eq!(ended(too_large), Ok(Signal::SIGXFSZ));
        assert_eq!(ended(|| as_errors(broken_pipe)), Err(Errno::EPIPE));
        assert_eq!(ended(|| as_errors(too_large)), Err(Errno::EFBIG));
        // What has come is gone, and what comes afterwards has its effect.
        let again = || {
            as_errors(too_large);
            as_errors(|| as_errors(broken_pipe));
            broken_pipe()
        };
        assert_eq!(ended(again), Ok(Signal::SIGPIPE));
    }
}
