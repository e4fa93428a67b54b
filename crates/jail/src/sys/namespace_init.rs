//! Starts the init of a pid namespace (pid_namespaces(7)), which shares the memory of the process that creates the
//! namespace.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::descriptors::owned;
use super::process::exit_now;
use super::{check, uninterrupted};

/// Stacks for namespace inits. They are not copied to workers (`MADV_DONTFORK`), so their number does not slow down a
/// fork.
#[derive(Debug)]
pub struct InitStacks {
    base: NonNull<libc::c_void>,
    free: Vec<usize>,
}

/// The size of an init's stack, bytes. The init only waits in one system call, so its stack holds two frames.
const INIT_STACK: usize = 16 * 1024;

impl InitStacks {
    /// Reserves address space for the stacks of up to `count` concurrent inits.
    pub fn reserve(count: usize) -> Result<Self, Errno> {
        let length = INIT_STACK * count;
        // SAFETY: a fresh anonymous mapping; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: exactly the mapping made above.
        check(libc::c_long::from(unsafe {
            libc::madvise(base, length, libc::MADV_DONTFORK)
        }))?;
        let base = NonNull::new(base).ok_or(Errno::ENOMEM)?;
        Ok(Self {
            base,
            free: (0..count).rev().collect(),
        })
    }

    /// Returns the top of stack `slot`, where an empty stack begins.
    fn top(&self, slot: usize) -> *mut libc::c_void {
        // SAFETY: `slot` came from `free`, so the end of its stack lies within the mapping or one past it.
        unsafe { self.base.as_ptr().byte_add((slot + 1) * INIT_STACK) }
    }

    /// Takes a free stack.
    fn take(&mut self) -> Result<usize, Errno> {
        self.free.pop().ok_or(Errno::EAGAIN)
    }

    /// Puts the stack of a reaped init back into the pool.
    pub fn release(&mut self, init: &NamespaceInit) {
        self.free.push(init.stack);
    }

    /// Ends an init that was not reported to the supervisor, and its namespace with it. That includes the worker in it,
    /// if there is one, which is also a child of this process.
    pub fn end(&mut self, init: &NamespaceInit, worker: Option<Pid>) {
        if super::pidfd::signal(init.pidfd.as_fd(), Signal::SIGKILL).is_err() {
            // Its stack may still be in use.
            return;
        }
        // Reap the worker first: the init's end completes only when no other process of its namespace is left.
        for child in worker.into_iter().chain([init.pid]) {
            _ = uninterrupted(|| waitpid(child, None));
        }
        self.release(init);
    }
}

/// Process 1 of a pid namespace.
///
/// It shares the memory of its parent (`CLONE_VM`) but executes none of its parent's code: it waits with every signal
/// blocked. It exists so that guest code is not process 1, which could neither be ended by its own SIGTERM nor leave
/// orphans to another process. Killing this init ends the whole namespace (pid_namespaces(7)). Because the init shares
/// memory, it costs a tenth of a fork.
#[derive(Debug)]
pub struct NamespaceInit {
    /// The pid in the parent's pid namespace.
    pub pid: Pid,
    /// The pidfd, which cannot come to refer to another process.
    pub pidfd: OwnedFd,
    stack: usize,
}

/// How long an init waits.
#[derive(Clone, Copy, Debug)]
pub enum InitLifetime<'a> {
    /// Until it is killed.
    UntilKilled,
    /// Until one of these descriptors is readable or hung up. None of them may be a standard stream.
    UntilReadable([BorrowedFd<'a>; 2]),
}

/// `struct sigaction` in the kernel's layout: handler, flags, restorer, mask.
static IGNORE: [usize; 4] = [libc::SIG_IGN, 0, 0, 0];

/// Packs two descriptor numbers into the halves of a pointer-sized integer. Zero stands for no descriptor.
fn packed([one, other]: [RawFd; 2]) -> usize {
    (one.cast_unsigned() as usize) << 32 | other.cast_unsigned() as usize
}

fn unpacked(ends: usize) -> [RawFd; 2] {
    [ends >> 32, ends & u32::MAX as usize].map(|number| RawFd::try_from(number).unwrap_or(0))
}

/// The body of an init. `ends` contains the packed numbers of the descriptors to wait on.
extern "C" fn wait(ends: *mut libc::c_void) -> libc::c_int {
    let mut kept = 0;
    for end in unpacked(ends.addr()) {
        if end == 0 {
            continue;
        }
        // SAFETY: integer arguments only. The descriptor table is this process's own copy (no CLONE_FILES).
        if unsafe { libc::syscall(libc::SYS_dup3, end, kept, 0) } != kept {
            exit_with_errno();
        }
        kept += 1;
    }
    // SAFETY: integer arguments only. The descriptor table is this process's own copy. Without this call, workers'
    // sockets would stay open in it after the zygote closed them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, kept, libc::c_uint::MAX, 0) };
    // The init adopts orphans and never waits for them. Ignoring SIGCHLD makes the kernel reap them. Otherwise they
    // would remain as zombies and count as the guest's processes.
    // SAFETY: the action is a live constant of the kernel's layout and size. The table of signal actions is this
    // process's own copy (no CLONE_SIGHAND).
    let ignored = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGCHLD,
            &raw const IGNORE,
            0_usize,
            size_of::<u64>(),
        )
    };
    if (closed, ignored) != (0, 0) {
        exit_with_errno();
    }
    let mut ends = [0, 1].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: the array is in this frame, and its first `kept` elements are used. With every signal blocked the
        // call returns only when a descriptor is ready, so it never writes the errno that this process shares with its
        // parent's thread.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_ppoll,
                ends.as_mut_ptr(),
                kept,
                0_usize,
                0_usize,
                0_usize,
            )
        };
        if ready > 0 {
            return 0;
        }
    }
}

/// Exits with the errno of a failed preparation. No process may run under an unprepared init, and its exit ends the
/// namespace.
fn exit_with_errno() -> ! {
    exit_now(Errno::last_raw())
}

/// Spawns the init of the pid namespace that this thread's next child enters, as the first process in it.
pub fn spawn(stacks: &mut InitStacks, lifetime: InitLifetime) -> Result<NamespaceInit, Errno> {
    let ends = match lifetime {
        InitLifetime::UntilKilled => [0; 2],
        InitLifetime::UntilReadable(ends) => ends.map(|end| end.as_raw_fd()),
    };
    let stack = stacks.take()?;
    let mut pidfd: RawFd = -1;
    // Block signals across the clone, so that the init starts with them blocked: a handler of the parent would run on
    // shared memory.
    let mut before = SigSet::empty();
    sigprocmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the stack is exclusive to this init until `release`, 16-byte aligned, and grows down from its top. `wait`
    // writes only to that stack, so sharing the address space with the running parent is sound. Only if its preparation
    // fails does it also write the parent's errno, which is valid with any value. `pidfd` outlives the call.
    let pid = unsafe {
        libc::clone(
            wait,
            stacks.top(stack),
            libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD,
            ptr::without_provenance_mut(packed(ends)),
            &raw mut pidfd,
        )
    };
    let result = check(libc::c_long::from(pid));
    let restored = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    if let Err(errno) = result {
        stacks.free.push(stack);
        return Err(errno);
    }
    let init = NamespaceInit {
        pid: Pid::from_raw(pid),
        pidfd: owned(libc::c_long::from(pidfd)),
        stack,
    };
    match restored {
        Ok(()) => Ok(init),
        Err(errno) => {
            stacks.end(&init, None);
            Err(errno)
        }
    }
}
