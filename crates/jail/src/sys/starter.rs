//! Starts one program when a signal comes, also while this process runs native code or waits.
//!
//! The program becomes a child of the namespace's init and not of this process, whose `wait` would report it
//! otherwise.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::descriptors::owned;

/// The signal. No part of the kernel, and no known library, sends or uses it.
pub const SIGNAL: Signal = Signal::SIGSTKFLT;

/// The number of the input in the program.
pub const INPUT: RawFd = 3;

/// Each process of the start has one: a few system calls.
const STACK: usize = 16 * 1024;

/// Exit status of a start that failed. Nothing reads it.
const FAILED: libc::c_int = 127;

/// What a start needs. A signal handler may not allocate, so it is complete before the first signal.
struct Prepared {
    arguments: Pointers,
    environment: Pointers,
    input: RawFd,
    /// Of [`STACK`] bytes each, which are never freed. Processes of the start write to them.
    stacks: [*mut u8; 2],
    is_starting: AtomicBool,
}

/// An array of C strings that ends with a null pointer.
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

/// From now on, [`SIGNAL`] starts the program that `arguments` names, by its path, with `input` as descriptor
/// [`INPUT`] and no other descriptor. A copy of the input, a socket, is kept open below `below`, at the highest number that
/// this process may use. If the program cannot be started, the socket's other end gets the errno as one byte.
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
    // It is never freed: a handler may use it at any time.
    PREPARED.store(Box::into_raw(prepared), Ordering::Release);
    let action = SigAction::new(
        SigHandler::Handler(handle),
        SaFlags::SA_RESTART | SaFlags::SA_ONSTACK,
        SigSet::all(),
    );
    // SAFETY: the handler makes only async-signal-safe calls, and restores errno.
    unsafe { sigaction(SIGNAL, &action) }.map(drop)
}

extern "C" fn handle(_: libc::c_int) {
    let prepared = PREPARED.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or that of a box which is never freed and is only read.
    let Some(now) = (unsafe { prepared.as_ref() }) else {
        return;
    };
    // Another thread may have the signal too, and the stacks are those of one start.
    if now.is_starting.swap(true, Ordering::Acquire) {
        return;
    }
    let errno = Errno::last_raw();
    let pid = start_in_copy(between, now, 0, 0);
    if pid > 0 {
        // SAFETY: a null pointer for the status. The child has no exit signal, so that only this call finds it.
        while unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WCLONE) } < 0
            && Errno::last() == Errno::EINTR
        {}
    } else {
        report_failure(now.input);
    }
    Errno::set_raw(errno);
    now.is_starting.store(false, Ordering::Release);
}

/// Calls a function in a new process that shares this one's memory, while this one waits until that ends or
/// executes a program.
fn start_in_copy(
    function: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    prepared: &Prepared,
    stack: usize,
    signal: libc::c_int,
) -> libc::pid_t {
    let stack = prepared.stacks[stack];
    // SAFETY: the pointer is aligned down within the stack, which no other process uses before this one is done
    // with it: CLONE_VFORK suspends the caller, whose memory and errno the new process shares until then.
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

/// The parent of the program, which ends as soon as that runs. The program is an orphan then.
extern "C" fn between(prepared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: what `handle` has passed.
    let prepared = unsafe { &*prepared.cast::<Prepared>() };
    if start_in_copy(execute, prepared, 1, libc::SIGCHLD) < 0 {
        report_failure(prepared.input);
    }
    0
}

extern "C" fn execute(prepared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: what `between` has passed. The calls are async-signal-safe, concern this process's own table of
    // descriptors, and get pointers to arrays that end with a null pointer. All signals are blocked, so that no
    // handler runs on the shared memory.
    unsafe {
        let prepared = &*prepared.cast::<Prepared>();
        // Refused where a worker may not leave its process group.
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

/// Tells the socket's other end why the program is not started, and takes what has come for the program, whose sender
/// then sees that it is gone. What comes after the errno is of a later start: its sender has seen this one's end.
fn report_failure(socket: RawFd) {
    // No errno of the kernel's is greater.
    let errno = [u8::try_from(Errno::last_raw()).unwrap_or_default()];
    let mut taken = [0_u8];
    let mut waiting: libc::c_int = 0;
    // SAFETY: async-signal-safe calls, with arrays of the length that they get, and a pointer to the integer that
    // FIONREAD writes.
    unsafe {
        if libc::ioctl(socket, libc::FIONREAD, &raw mut waiting) < 0 {
            waiting = 1;
        }
        libc::write(socket, errno.as_ptr().cast(), errno.len());
        for _ in 0..waiting {
            // Descriptors for which there is no room are closed.
            libc::recv(socket, taken.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT);
        }
    }
}
