//! Forks, reaps and configures processes: fork(2), wait(2) and prctl(2).

use std::cmp::Ordering;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::FcntlArg;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use serde::{Deserialize, Serialize};

use super::check;
use super::descriptors::{close_from, owned};
use super::procfs;

/// Proof that this process had one thread when its threads were counted.
#[derive(Debug)]
pub struct SingleThreaded(());

impl SingleThreaded {
    /// Counts the threads; `EBUSY` if there is more than one.
    pub fn count(proc: BorrowedFd) -> Result<Self, Errno> {
        if count_threads(proc)? == 1 {
            Ok(Self(()))
        } else {
            Err(Errno::EBUSY)
        }
    }
}

/// Returns the number of threads of this process, from `self/task` of the procfs at `proc`.
pub fn count_threads(proc: BorrowedFd) -> Result<usize, Errno> {
    Ok(procfs::numbers(proc, "self/task")?.len())
}

/// The result of a fork.
#[derive(Debug)]
pub enum Fork {
    /// In the parent, with the child's pid.
    Parent(Pid),
    /// In the child.
    Child(ForkedChild),
}

/// Proof that this process was just forked: it has one thread and its parent's descriptors.
#[derive(Debug)]
pub struct ForkedChild(());

/// Forks by glibc's fork(2), so that glibc's thread descriptor and locks, and the `pthread_atfork` handlers of
/// libraries (OpenSSL, OpenBLAS), are correct in the child.
pub fn fork(_proof: &SingleThreaded) -> Result<Fork, Errno> {
    // SAFETY: the process has one thread, as the argument proves. So no lock is held by a thread that the child lacks,
    // and the child may do everything that the parent could.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Fork::Parent(child)),
        ForkResult::Child => Ok(Fork::Child(ForkedChild(()))),
    }
}

/// Uses up one pid. The child that gets it shares this process's memory and exits at once, because a fork would copy
/// the page tables of a whole interpreter (clone(2)).
pub fn skip_number(_proof: &SingleThreaded) -> Result<(), Errno> {
    extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    // Room for two frames, with the alignment of a stack.
    let mut stack = vec![0_u128; 1024];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK suspends this process, which has one thread as the argument proves, until the child has
    // exited. So `stack` outlives the child, and the two never run concurrently.
    let child = unsafe { libc::clone(end, top.cast(), flags, std::ptr::null_mut()) };
    check(libc::c_long::from(child))?;
    waitpid(Pid::from_raw(child), None).map(drop)
}

impl ForkedChild {
    /// Duplicates `apart.0` to the number `apart.1`, and holds copies of `kept`, which [`Held::place`] moves to the
    /// numbers 0, 1, 2 and so on.
    ///
    /// On error, every descriptor stays where it was.
    pub fn hold(self, kept: &[BorrowedFd], apart: (BorrowedFd, RawFd)) -> Result<Held, Errno> {
        let count = RawFd::try_from(kept.len()).map_err(|_| Errno::EMFILE)?;
        let (apart, number) = apart;
        // Copies go above the target numbers, so that none overwrites a descriptor that is yet to be copied.
        let copy = |fd: &BorrowedFd| {
            let again = || nix::fcntl::fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(count));
            match again()? {
                copy if copy == number => again(),
                copy => Ok(copy),
            }
        };
        let copies: Vec<RawFd> = kept.iter().map(copy).collect::<Result<_, _>>()?;
        if apart.as_raw_fd() != number {
            // SAFETY: integer arguments only. The owner of the replaced descriptor is leaked, as `place` requires.
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

/// Copies of the only descriptors that a forked child keeps.
#[derive(Debug)]
pub struct Held {
    copies: Vec<RawFd>,
    apart: RawFd,
}

impl Held {
    /// Moves the held descriptors to their numbers and closes every other descriptor. Returns those at 0, 1, 2 and so
    /// on.
    ///
    /// The caller must leak, not drop, the owners of descriptors inherited from the parent: their numbers now refer to
    /// other descriptors.
    pub fn place(self) -> Result<Vec<OwnedFd>, Errno> {
        let count = RawFd::try_from(self.copies.len()).map_err(|_| Errno::EMFILE)?;
        for (number, copy) in (0..count).zip(self.copies) {
            let flags = if number <= libc::STDERR_FILENO {
                0
            } else {
                libc::O_CLOEXEC
            };
            // SAFETY: integer arguments only. The numbers below `count` have no owner but the process's standard
            // streams and values that the caller promised to leak.
            let placed = unsafe { libc::dup3(copy, number, flags) };
            check(libc::c_long::from(placed))?;
        }
        close_from(count, self.apart)?;
        Ok((0..count)
            .map(|number| owned(libc::c_long::from(number)))
            .collect())
    }
}

/// Whether other processes of the same user may access a process's memory and `/proc` files (`PR_SET_DUMPABLE`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dumpable {
    /// Access is denied.
    No,
    /// The usual permission checks apply.
    Yes,
}

/// Sets whether this process is dumpable.
pub fn set_dumpable(dumpable: Dumpable) -> Result<(), Errno> {
    nix::sys::prctl::set_dumpable(dumpable == Dumpable::Yes)
}

/// Moves this thread into namespaces of another process (setns(2) with a pidfd, Linux 5.8). `flags` selects their
/// kinds.
pub fn enter_namespaces(handle: BorrowedFd, flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: integer arguments only.
    check(libc::c_long::from(unsafe {
        libc::setns(handle.as_raw_fd(), flags)
    }))?;
    Ok(())
}

/// Drops a capability from the bounding set (prctl(2)). `EPERM` without `CAP_SETPCAP`, `EINVAL` beyond the kernel's
/// last capability.
pub fn drop_from_bounding_set(capability: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: integer arguments only.
    check(libc::c_long::from(unsafe {
        libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0)
    }))
    .map(drop)
}

/// Hides all but the first command-line argument of this process and its forks (proc_pid_cmdline(5)). The interpreter
/// has already read the arguments.
///
/// If the last byte of the arguments is not NUL, the kernel takes them for a process title that ends at the first NUL
/// (setproctitle(3)).
pub fn hide_arguments(proc: BorrowedFd) -> Result<(), Errno> {
    // The kernel reports zero if the caller lacks permission.
    let last = procfs::arguments_end(proc)?
        .checked_sub(1)
        .ok_or(Errno::EACCES)?;
    // SAFETY: the kernel wrote the arguments to the main thread's stack when this program started, and that memory
    // stays mapped and writable. Only a C program's `main` has a pointer to them: CPython works with its own copies.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(last).write_volatile(b' ') };
    Ok(())
}

/// Makes a write beyond the file size limit fail with `EFBIG`; by default SIGXFSZ would end this process
/// (setrlimit(2)). The handler is not inherited across execve(2), unlike an ignored or blocked signal.
pub fn survive_file_size_limit() -> Result<(), Errno> {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = SigHandler::Handler(nothing);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, which is async-signal-safe.
    unsafe { sigaction(Signal::SIGXFSZ, &action) }.map(drop)
}

/// Lets this process wait for its children (wait(2)). The kernel keeps no exit status for a parent that ignores
/// SIGCHLD, and ignored signals are inherited across execve(2).
pub fn keep_exit_statuses() -> Result<(), Errno> {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this process.
    unsafe { sigaction(Signal::SIGCHLD, &action) }.map(drop)
}

/// Returns whether this process ignores a signal. nohup(1) ignores SIGHUP, and a shell script ignores SIGINT in
/// background jobs.
pub fn is_ignored(signal: Signal) -> bool {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the current action to `found`, which is live. The structure
    // consists of integers and an optional function pointer, for which zeros are valid.
    let found = unsafe {
        libc::sigaction(signal as libc::c_int, std::ptr::null(), found.as_mut_ptr());
        found.assume_init()
    };
    found.sa_sigaction == libc::SIG_IGN
}

/// Returns the page size, bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf(3) takes an integer and has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Exits at once (_exit(2)): no atexit handlers, no flushing of buffers inherited from the parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Reaps one child that has ended, if any, with its resource usage (wait4(2)).
pub fn reap_any() -> Result<Option<(Pid, Exit)>, Errno> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live locals of the right type.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    if pid == 0 {
        return Ok(None);
    }
    match check(libc::c_long::from(pid)) {
        Err(Errno::ECHILD) => return Ok(None),
        other => other?,
    };
    // SAFETY: an all-zero `rusage` is valid, and the kernel has filled it in.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    let status = if libc::WIFSIGNALED(status) {
        ExitStatus::Signal(libc::WTERMSIG(status))
    } else {
        ExitStatus::Code(libc::WEXITSTATUS(status))
    };
    let exit = Exit {
        status,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    };
    Ok(Some((Pid::from_raw(pid), exit)))
}

/// Orders two descriptors of a process by the kernel's internal order. They are equal if they share an open file
/// description, and so a file offset (kcmp(2)). Descriptors that the kernel refuses to compare count as different.
pub fn compare_files(pid: i32, one: RawFd, other: RawFd) -> Ordering {
    const KCMP_FILE: libc::c_int = 0;
    // SAFETY: integer arguments only.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, one, other) } {
        0 => Ordering::Equal,
        1 => Ordering::Less,
        _ => Ordering::Greater,
    }
}

/// How a process ended (wait(2)), as the kernel reported it to its parent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code or signal.
    pub status: ExitStatus,
    /// CPU time of the process and of the children that it waited for, microseconds.
    pub cpu_us: u64,
    /// The maximum resident set size, KiB (`ru_maxrss`).
    pub max_rss_kib: u64,
}

/// The exit code or the signal of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// The process exited with this code.
    Code(i32),
    /// The process was killed by this signal.
    Signal(i32),
}
