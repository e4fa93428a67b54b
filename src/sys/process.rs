//! Processes: fork, the init of a worker's pid namespace, and what prctl(2) says of a process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

use super::check;
use super::descriptors::owned;

/// Proof that this process had one thread when it was counted.
#[derive(Debug)]
pub struct SingleThreaded(());

impl SingleThreaded {
    /// Counts the threads; `EBUSY` when there is more than one.
    pub fn count(proc: BorrowedFd) -> Result<Self, Errno> {
        if count_threads(proc)? == 1 {
            Ok(Self(()))
        } else {
            Err(Errno::EBUSY)
        }
    }
}

/// Number of threads of this process, in `self/task` of the procfs at `proc`.
pub fn count_threads(proc: BorrowedFd) -> Result<usize, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut tasks = Dir::openat(proc, "self/task", flags, Mode::empty())?;
    Ok(tasks
        .iter()
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_bytes()
                .first()
                .is_some_and(u8::is_ascii_digit)
        })
        .count())
}

/// The two sides of a fork.
#[derive(Debug)]
pub enum Fork {
    /// The side that called.
    Parent(Pid),
    /// The new process.
    Child(ForkedChild),
}

/// Proof of being a process that was just forked: one thread, its parent's descriptors.
#[derive(Debug)]
pub struct ForkedChild(());

/// Forks (fork(2)), by glibc's own function: its thread descriptor, its locks and the
/// `pthread_atfork` handlers of libraries (OpenSSL's, OpenBLAS's) are then right in the child.
pub fn fork(_proof: &SingleThreaded) -> Result<Fork, Errno> {
    // SAFETY: the process has one thread, which the argument proves, so that no lock is held by a
    // thread that the child lacks and the child may do whatever the parent could.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Fork::Parent(child)),
        ForkResult::Child => Ok(Fork::Child(ForkedChild(()))),
    }
}

impl ForkedChild {
    /// Puts a copy of `apart.0` at the number `apart.1`, and holds copies of `kept`, which
    /// [`Held::place`] puts at the numbers 0, 1, 2, ... below that.
    ///
    /// In case of an error every descriptor is where it was.
    pub fn hold(self, kept: &[BorrowedFd], apart: (BorrowedFd, RawFd)) -> Result<Held, Errno> {
        let count = RawFd::try_from(kept.len()).map_err(|_| Errno::EMFILE)?;
        let (apart, number) = apart;
        // So that no descriptor is overwritten before it was copied.
        let copy = |fd: &BorrowedFd| {
            let again = || nix::fcntl::fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(count));
            match again()? {
                copy if copy == number => again(),
                copy => Ok(copy),
            }
        };
        let copies: Vec<RawFd> = kept.iter().map(copy).collect::<Result<_, _>>()?;
        if apart.as_raw_fd() != number {
            // SAFETY: integers only; what the number held is leaked by its owner, as `place` asks.
            check(libc::c_long::from(unsafe {
                libc::dup3(apart.as_raw_fd(), number, libc::O_CLOEXEC)
            }))?;
        }
        Ok(Held {
            copies,
            apart: number,
        })
    }
}

/// Descriptors of a forked child that are to be all that it has.
#[derive(Debug)]
pub struct Held {
    copies: Vec<RawFd>,
    apart: RawFd,
}

impl Held {
    /// Puts what is held in its place, and closes every other descriptor. Returns those at 0, 1, 2, ...
    ///
    /// Owners of descriptors that the parent left behind must be leaked, not dropped: their
    /// numbers belong to others now.
    pub fn place(self) -> Result<Vec<OwnedFd>, Errno> {
        let count = RawFd::try_from(self.copies.len()).map_err(|_| Errno::EMFILE)?;
        for (number, copy) in (0..count).zip(self.copies) {
            let flags = if number <= libc::STDERR_FILENO {
                0
            } else {
                libc::O_CLOEXEC
            };
            // SAFETY: integers only. The numbers below `count` have no owner but the process's
            // standard streams and what the caller promised to leak.
            let placed = unsafe { libc::dup3(copy, number, flags) };
            check(libc::c_long::from(placed))?;
        }
        for (first, last) in [(count, self.apart - 1), (self.apart + 1, RawFd::MAX)] {
            // SAFETY: integers only; as above, no owner of a number in the range is used again.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
        Ok((0..count)
            .map(|number| owned(libc::c_long::from(number)))
            .collect())
    }
}

/// Stacks for namespace inits. They are not copied into workers (`MADV_DONTFORK`), so that their
/// number does not make a fork slower.
#[derive(Debug)]
pub struct InitStacks {
    base: NonNull<libc::c_void>,
    free: Vec<usize>,
}

/// The init only waits in one system call: its stack holds two frames.
const INIT_STACK: usize = 16 * 1024;

impl InitStacks {
    /// Reserves address space for `count` inits that live at once.
    pub fn reserve(count: usize) -> Result<Self, Errno> {
        let length = INIT_STACK * count;
        // SAFETY: a fresh anonymous mapping; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
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
        // SAFETY: `slot` came from `free`, so that the end of its stack lies within the mapping
        // or one past it.
        unsafe { self.base.as_ptr().byte_add((slot + 1) * INIT_STACK) }
    }

    /// Takes a stack.
    fn take(&mut self) -> Result<usize, Errno> {
        self.free.pop().ok_or(Errno::EAGAIN)
    }

    /// Gives back the stack of an init that has been reaped.
    pub fn release(&mut self, init: &NamespaceInit) {
        self.free.push(init.stack);
    }

    /// Ends an init that nobody was told of, and its namespace with it: with the worker in it, if there
    /// is one, which is a child of this process too.
    pub fn end(&mut self, init: &NamespaceInit, worker: Option<Pid>) {
        if super::pidfd::signal(init.pidfd.as_fd(), Signal::SIGKILL).is_err() {
            // Its stack may be in use.
            return;
        }
        // First: the init is gone only when nothing else is left of its namespace.
        for child in worker.into_iter().chain([init.pid]) {
            while waitpid(child, None) == Err(Errno::EINTR) {}
        }
        self.release(init);
    }
}

/// Process 1 of a worker's pid namespace.
///
/// It shares the zygote's memory (`CLONE_VM`) but runs none of its code: it waits, forever, with
/// every signal blocked. It exists so that guest code is not process 1, which could neither be
/// ended by its own SIGTERM nor leave orphans to anyone, and so that killing one process ends the
/// whole namespace (pid_namespaces(7)). Sharing memory makes it cost a tenth of a fork.
#[derive(Debug)]
pub struct NamespaceInit {
    /// Its number in the zygote's pid namespace.
    pub pid: Pid,
    /// A handle that cannot be reused by another process.
    pub pidfd: OwnedFd,
    stack: usize,
}

/// `struct sigaction` as the kernel has it: handler, flags, restorer, mask.
static IGNORE: [usize; 4] = [libc::SIG_IGN, 0, 0, 0];

/// Exit status of an init that could not prepare itself.
const INIT_FAILED: libc::c_int = 70;

extern "C" fn wait_forever(_: *mut libc::c_void) -> libc::c_int {
    // SAFETY: integers only. The descriptor table is this process's own copy, in which the other
    // workers' sockets would otherwise stay open after the zygote closed them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
    // Orphans come here, and nobody waits for them: ignoring SIGCHLD lets the kernel reap them, or
    // they would stay as zombies and count as the guest's processes.
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
        // No worker has an init that is less than this: its namespace ends, and the worker with it.
        exit_now(INIT_FAILED);
    }
    loop {
        // SAFETY: null pointers only. With every signal blocked it never returns, so that the
        // errno which this process shares with the zygote's thread is never written.
        unsafe { libc::syscall(libc::SYS_ppoll, 0usize, 0usize, 0usize, 0usize, 0usize) };
    }
}

/// Starts the init of the pid namespace that this thread's next child will be in, and the first in.
pub fn spawn_namespace_init(stacks: &mut InitStacks) -> Result<NamespaceInit, Errno> {
    let stack = stacks.take()?;
    let mut pidfd: RawFd = -1;
    // Blocked across the clone, so that the init is born with them blocked: a handler of the
    // zygote's would run on shared memory.
    let mut before = SigSet::empty();
    sigprocmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the stack is this init's alone until `release`, 16-byte aligned, and grows down
    // from its top. `wait_forever` touches no memory but that stack, so that sharing the address
    // space with the running zygote is sound. `pidfd` outlives the call.
    let pid = unsafe {
        libc::clone(
            wait_forever,
            stacks.top(stack),
            libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD,
            std::ptr::null_mut(),
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

/// Whether a process's memory and `/proc` entry are open to others of its user (`PR_SET_DUMPABLE`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dumpable {
    /// Closed.
    No,
    /// As the permissions say.
    Yes,
}

/// Sets whether this process is dumpable.
pub fn set_dumpable(dumpable: Dumpable) -> Result<(), Errno> {
    nix::sys::prctl::set_dumpable(dumpable == Dumpable::Yes)
}

/// Moves this thread into the namespaces of `pidfd` that `flags` name (setns(2), Linux 5.8).
pub fn enter_namespaces(handle: BorrowedFd, flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: integers only.
    check(libc::c_long::from(unsafe {
        libc::setns(handle.as_raw_fd(), flags)
    }))?;
    Ok(())
}

/// The size of a page, bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf(3) takes an integer and has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Ends this process at once (_exit(2)): no atexit handlers, no flushing of what the parent owns.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; it has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Reaps one child that ended, if there is one, with its resource usage (wait4(2)).
pub fn reap_any() -> Result<Option<(Pid, Reaped)>, Errno> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live locals of the right type.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    if pid == 0 {
        return Ok(None);
    }
    match check(libc::c_long::from(pid)) {
        Err(Errno::ECHILD) => return Ok(None),
        other => other?,
    };
    // SAFETY: zeroed is a valid `rusage`, and the kernel filled it in.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    let end = if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Code(libc::WEXITSTATUS(status))
    };
    let reaped = Reaped {
        end,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    };
    Ok(Some((Pid::from_raw(pid), reaped)))
}

/// What wait4(2) told of a child.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    /// How it ended.
    pub end: End,
    /// Processor time, with that of the children it waited for, microseconds.
    pub cpu_us: u64,
    /// Largest resident set, KiB.
    pub max_rss_kib: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}
