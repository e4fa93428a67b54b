//! Suppresses the signals by which the kernel ends a process that writes: SIGPIPE (pipe(7)) and SIGXFSZ (setrlimit(2)).
//!
//! This library runs in other programs' processes, whose signal dispositions are not its to change. With the default
//! dispositions, as in a C program, either signal would end the process.

use std::mem::MaybeUninit;
use std::ptr;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

const SIGNALS: [Signal; 2] = [Signal::SIGPIPE, Signal::SIGXFSZ];

/// Calls a function whose writes then fail with `EPIPE` or `EFBIG` instead of ending this process. Affects this thread
/// only. The function must not start a process, which would inherit the blocked signals.
pub fn as_errors<T>(writes: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::new();
    writes()
}

/// This thread's previous signal mask, and the signals to discard: those that were not pending before.
struct Blocked {
    before: Option<SigSet>,
    own: SigSet,
}

impl Blocked {
    fn new() -> Self {
        let signals = SigSet::from_iter(SIGNALS);
        // Fails only for an invalid argument.
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

/// Returns the signals that are pending for this thread or for the process (sigpending(2)).
fn pending() -> SigSet {
    let mut found = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `found` is live, and the kernel writes a signal set to it; an invalid pointer is the only error. The set
    // consists of integers, for which zeros are valid.
    unsafe {
        libc::sigpending(found.as_mut_ptr());
        SigSet::from_sigset_t_unchecked(found.assume_init())
    }
}

/// Discards the pending signals of a set (sigtimedwait(2)).
fn take(signals: &SigSet) {
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the set and the timeout are live values of the right types; a null `siginfo_t` is allowed.
    let next = || unsafe { libc::sigtimedwait(signals.as_ref(), ptr::null_mut(), &raw const now) };
    // An error means that none is pending.
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

    /// Runs `writes` in a child with the default disposition of both signals and a file size limit of one byte, which a
    /// test harness does not have.
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
    fn fatal_write_fails_with_an_errno() {
        let ended = |writes| match ends_with(writes) {
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            WaitStatus::Signaled(_, signal, _) => Ok(signal),
            other => panic!("{other:?}"),
        };
        assert_eq!(ended(broken_pipe), Ok(Signal::SIGPIPE));
        assert_eq!(ended(too_large), Ok(Signal::SIGXFSZ));
        assert_eq!(ended(|| as_errors(broken_pipe)), Err(Errno::EPIPE));
        assert_eq!(ended(|| as_errors(too_large)), Err(Errno::EFBIG));
        // Signals of the wrapped writes are discarded, and later ones have their effect.
        let again = || {
            as_errors(too_large);
            as_errors(|| as_errors(broken_pipe));
            broken_pipe()
        };
        assert_eq!(ended(again), Ok(Signal::SIGPIPE));
    }
}
