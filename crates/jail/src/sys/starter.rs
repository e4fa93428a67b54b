//! Starts a program on a signal, even while this process runs native code or waits.
//!
//! The program becomes a child of the namespace's init. As a child of this process, it could be reaped by the guest's
//! own wait(2).

use std::ffi::CString;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::descriptors::owned;

/// The starting signal. Neither the kernel nor any known library sends or uses it.
pub const SIGNAL: Signal = Signal::SIGSTKFLT;

/// The descriptor number of the input in the started program.
pub const INPUT: RawFd = 3;

/// The size of the stack of each intermediate process, bytes. Each makes only a few system calls.
const STACK: usize = 16 * 1024;

/// The exit status of a failed start. It is not read.
const FAILED: libc::c_int = 127;

/// The data of a start, complete before the first signal, because a signal handler must not allocate.
struct Prepared {
    arguments: Pointers,
    environment: Pointers,
    input: RawFd,
    /// Two stacks of [`STACK`] bytes, never freed, on which the processes of a start run.
    stacks: [*mut u8; 2],
    is_starting: AtomicBool,
}

/// A null-terminated array of C strings.
struct Pointers {
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Pointers {
    fn new(owned: Vec<CString>) -> Self {
        let pointers = owned.iter().map(|text| text.as_ptr());
        Self {
            pointers: pointers.chain([ptr::null()]).collect(),
            _owned: owned,
        }
    }
}

static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(ptr::null_mut());

/// Prepares the start: from now on, [`SIGNAL`] starts the program whose path is the first of `arguments`, with `input`
/// as descriptor [`INPUT`] and no other open descriptor.
///
/// `input` is a socket. A copy of it stays open at the highest number below `below` that this process may use. If the
/// program cannot be started, the errno is sent to the socket's peer as one byte.
pub fn prepare(
    arguments: Vec<CString>,
    environment: Vec<CString>,
    input: BorrowedFd,
    below: RawFd,
) -> Result<(), Errno> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let highest = i32::try_from(limit).unwrap_or(below).min(below) - 1;
    let input = owned(fcntl(input, FcntlArg::F_DUPFD_CLOEXEC(highest))?.into());
    let prepared = Box::new(Prepared {
        arguments: Pointers::new(arguments),
        environment: Pointers::new(environment),
        input: input.into_raw_fd(),
        stacks: [(); 2].map(|()| Box::leak(vec![0; STACK].into_boxed_slice()).as_mut_ptr()),
        is_starting: AtomicBool::new(false),
    });
    // Never freed, because a handler may use it at any time.
    PREPARED.store(Box::into_raw(prepared), Ordering::Release);
    let action = SigAction::new(
        SigHandler::Handler(handle),
        SaFlags::SA_RESTART | SaFlags::SA_ONSTACK,
        SigSet::all(),
    );
    // SAFETY: the handler makes only async-signal-safe calls and restores errno.
    unsafe { sigaction(SIGNAL, &action) }.map(drop)
}

extern "C" fn handle(_: libc::c_int) {
    let prepared = PREPARED.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or comes from a box that is never freed and only read.
    let Some(now) = (unsafe { prepared.as_ref() }) else {
        return;
    };
    // Another thread may be handling the same signal, and there are stacks for one start only.
    if now.is_starting.swap(true, Ordering::Acquire) {
        return;
    }
    let errno = Errno::last_raw();
    let pid = start_in_copy(intermediate, now, 0, 0);
    if pid > 0 {
        // SAFETY: the status pointer may be null. The child has no exit signal, so only a wait with __WCLONE finds it.
        while unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WCLONE) } < 0
            && Errno::last() == Errno::EINTR
        {}
    } else {
        report_failure(now.input);
    }
    Errno::set_raw(errno);
    now.is_starting.store(false, Ordering::Release);
}

/// Calls a function in a new process that shares this one's memory. Suspends this process until the new one exits or
/// executes a program (`CLONE_VM | CLONE_VFORK`).
fn start_in_copy(
    function: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    prepared: &Prepared,
    stack: usize,
    signal: libc::c_int,
) -> libc::pid_t {
    let stack = prepared.stacks[stack];
    // SAFETY: the stack's top is aligned and within the stack, which no other process uses before this one is done with
    // it: CLONE_VFORK suspends the caller, whose memory and errno the new process shares until then.
    unsafe {
        let top = stack.add(STACK);
        let top = top.sub(top as usize & 15);
        libc::clone(
            function,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | signal,
            ptr::from_ref(prepared).cast_mut().cast(),
        )
    }
}

/// Runs as the parent of the program, and exits as soon as the program runs. That makes the program an orphan, which
/// the init adopts.
extern "C" fn intermediate(prepared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `handle` passes a pointer to the `Prepared` that is never freed.
    let prepared = unsafe { &*prepared.cast::<Prepared>() };
    if start_in_copy(execute, prepared, 1, libc::SIGCHLD) < 0 {
        report_failure(prepared.input);
    }
    0
}

extern "C" fn execute(prepared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `intermediate` passes a pointer to the `Prepared` that is never freed. The calls are async-signal-safe,
    // affect only this process's own descriptor table, and get null-terminated arrays. All signals are blocked, so no
    // handler runs on the shared memory.
    unsafe {
        let prepared = &*prepared.cast::<Prepared>();
        // Fails in a worker whose filter forbids it to leave its process group.
        libc::setsid();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        if null < 0
            || (0..3).any(|stream| libc::dup2(null, stream) < 0)
            || libc::dup2(prepared.input, INPUT) < 0
            || libc::syscall(libc::SYS_close_range, INPUT + 1, libc::c_uint::MAX, 0) < 0
        {
            report_failure(prepared.input);
            return FAILED;
        }
        let arguments = prepared.arguments.pointers.as_ptr();
        libc::execve(
            *arguments,
            arguments,
            prepared.environment.pointers.as_ptr(),
        );
    }
    report_failure(INPUT);
    FAILED
}

/// Sends the errno to the socket's peer, and discards data that has already arrived for the program, so that its sender
/// notices that the program is gone. Data that arrives after the errno was sent belongs to a later start: its sender
/// has seen the failure of this one.
fn report_failure(socket: RawFd) {
    // Every errno of the kernel fits into a byte.
    let errno = [u8::try_from(Errno::last_raw()).unwrap_or_default()];
    let mut taken = [0_u8];
    let mut waiting: libc::c_int = 0;
    // SAFETY: async-signal-safe calls on live buffers of the passed length, and on the integer that FIONREAD writes.
    unsafe {
        if libc::ioctl(socket, libc::FIONREAD, &raw mut waiting) < 0 {
            waiting = 1;
        }
        libc::write(socket, errno.as_ptr().cast(), errno.len());
        for _ in 0..waiting {
            // Descriptors in the message are closed, because there is no control buffer.
            libc::recv(socket, taken.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT);
        }
    }
}
