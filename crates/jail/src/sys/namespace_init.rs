//! The init of a pid namespace (pid_namespaces(7)), which shares the memory of the process that makes the namespace.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::descriptors::owned;
use super::process::exit_now;
use super::{check, uninterrupted};

/// Stacks for namespace inits. Workers do not get copies (`MADV_DONTFORK`), so their number does not
/// slow down a fork.
#[derive(Debug)]
pub struct InitStacks {
    base: NonNull<libc::c_void>,
    free: Vec<usize>,
}

/// The init only waits in one system call: its stack holds two frames.
const INIT_STACK: usize = 16 * 1024;

impl InitStacks {
    /// Reserves address space for `count` inits that live at the same time.
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
        // SAFETY: the mapping made above, whole.
        check(libc::c_long::from(unsafe {
            libc::madvise(base, length, libc::MADV_DONTFORK)
        }))?;
        let base = NonNull::new(base).ok_or(Errno::ENOMEM)?;
        Ok(Self {
            base,
            free: (0..count).rev().collect(),
        })
    }

    /// The top of stack `slot`, where an empty stack begins.
    fn top(&self, slot: usize) -> *mut libc::c_void {
        // SAFETY: `slot` came from `free`, so the end of its stack lies within the mapping or one past
        // it.
        unsafe { self.base.as_ptr().byte_add((slot + 1) * INIT_STACK) }
    }

    /// Takes a free stack.
    fn take(&mut self) -> Result<usize, Errno> {
        self.free.pop().ok_or(Errno::EAGAIN)
    }

    /// Gives back the stack of an init that has been reaped.
    pub fn release(&mut self, init: &NamespaceInit) {
        self.free.push(init.stack);
    }

    /// Ends an init that was not reported to the supervisor, and its namespace with it. That includes
    /// the worker in it, if there is one, which is a child of this process too.
    pub fn end(&mut self, init: &NamespaceInit, worker: Option<Pid>) {
        if super::pidfd::signal(init.pidfd.as_fd(), Signal::SIGKILL).is_err() {
            // Its stack may still be in use.
            return;
        }
        // The worker first: the init is gone only when nothing else is left of its namespace.
        for child in worker.into_iter().chain([init.pid]) {
            _ = uninterrupted(|| waitpid(child, None));
        }
        self.release(init);
    }
}

/// Process 1 of a pid namespace.
///
/// It shares the memory of its parent (`CLONE_VM`) but runs none of its code: it waits with every signal
/// blocked. It exists so that guest code is not process 1: such a process could neither be ended by its
/// own SIGTERM nor leave orphans to another process. Killing this init ends the whole namespace
/// (pid_namespaces(7)). Because the init shares memory, it costs a tenth of a fork.
#[derive(Debug)]
pub struct NamespaceInit {
    /// Its number in its parent's pid namespace.
    pub pid: Pid,
    /// A handle that cannot be reused by another process.
    pub pidfd: OwnedFd,
    stack: usize,
}

/// Until when an init waits.
#[derive(Clone, Copy, Debug)]
pub enum Lives<'a> {
    /// Until it is killed.
    UntilKilled,
    /// Until one of these can be read or is hung up. None of them is a standard stream.
    WhileQuiet([BorrowedFd<'a>; 2]),
}

/// `struct sigaction` as the kernel has it: handler, flags, restorer, mask.
static IGNORE: [usize; 4] = [libc::SIG_IGN, 0, 0, 0];

/// The numbers of two descriptors, each in a half of a pointer. Zero stands for none.
fn packed([one, other]: [RawFd; 2]) -> usize {
    (one.cast_unsigned() as usize) << 32 | other.cast_unsigned() as usize
}

fn unpacked(ends: usize) -> [RawFd; 2] {
    [ends >> 32, ends & u32::MAX as usize].map(|number| RawFd::try_from(number).unwrap_or(0))
}

/// The argument has the numbers of the descriptors at which it waits.
extern "C" fn wait(ends: *mut libc::c_void) -> libc::c_int {
    let mut kept = 0;
    for end in unpacked(ends.addr()) {
        if end == 0 {
            continue;
        }
        // SAFETY: integers only. The descriptor table is this process's own copy.
        if unsafe { libc::syscall(libc::SYS_dup3, end, kept, 0) } != kept {
            end_unprepared();
        }
        kept += 1;
    }
    // SAFETY: integers only. The descriptor table is this process's own copy. Without this call the
    // sockets of workers would stay open in it after the zygote closed them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, kept, libc::c_uint::MAX, 0) };
    // This init adopts orphans and never waits for them. Ignoring SIGCHLD lets the kernel reap them.
    // Otherwise they would stay as zombies and count as the guest's processes.
    // SAFETY: the action is a live constant of the kernel's layout and size; the table of actions is
    // this process's own copy (no CLONE_SIGHAND).
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
        end_unprepared();
    }
    let mut ends = [0, 1].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: the array is this frame's, and has `kept` elements that are used. With every signal blocked the
        // call returns only when there is something to read, so the errno which this process shares with
        // its parent's thread is never written.
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

/// Nothing runs under an unprepared init: its namespace ends, and all that is in it. Its exit status is the errno.
fn end_unprepared() -> ! {
    exit_now(Errno::last_raw())
}

/// Starts the init of the pid namespace that this thread's next child enters. The init is the first
/// process in it.
pub fn spawn(stacks: &mut InitStacks, lives: Lives) -> Result<NamespaceInit, Errno> {
    let ends = match lives {
        Lives::UntilKilled => [0; 2],
        Lives::WhileQuiet(ends) => ends.map(|end| end.as_raw_fd()),
    };
    let stack = stacks.take()?;
    let mut pidfd: RawFd = -1;
    // Block signals across the clone, so that the init starts with them blocked: a handler of the
    // parent would run on shared memory.
    let mut before = SigSet::empty();
    sigprocmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the stack is this init's alone until `release`, 16-byte aligned, and grows down from its
    // top. `wait` touches no memory but that stack, so sharing the address space with the running
    // parent is sound. `pidfd` outlives the call.
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
