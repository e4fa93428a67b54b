//! The part of a process's state that the kernel keeps and a guest may change: signal handlers, the signal mask and
//! stack, timers, the umask, the work directory, the name and the limits. And where in the process's memory the kernel
//! reads and writes by itself.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

use nix::errno::Errno;

use super::check;

/// Signals are numbered from 1 to this.
const SIGNALS: usize = 64;
/// Limits are numbered from 0 to below this (getrlimit(2)).
const LIMITS: u32 = 16;
/// The timers of setitimer(2).
const TIMERS: [u32; 3] = [0, 1, 2];
/// The longest name of a process, with its final zero.
const NAME: usize = 16;

/// `struct kernel_sigaction`: the handler, flags, restorer and mask.
type Action = [u64; 4];

/// The saved state.
#[derive(Debug)]
pub struct KernelState {
    actions: Vec<Action>,
    mask: u64,
    stack: libc::stack_t,
    timers: Vec<libc::itimerval>,
    umask: libc::mode_t,
    directory: Option<CString>,
    name: [u8; NAME],
    limits: Vec<libc::rlimit64>,
    /// The list of the locks that the thread holds (set_robust_list(2)).
    locks: u64,
    /// Where the kernel notes that the thread has ended (set_tid_address(2)), if it says.
    ending: u64,
}

/// What glibc registers for each thread (rseq(2)).
mod restartable {
    /// The length, which the kernel takes whatever its own is.
    pub const LENGTH: usize = 32;
    /// The longest that glibc may have registered.
    pub const MOST: usize = 256;
    /// `RSEQ_FLAG_UNREGISTER`.
    pub const UNREGISTER: i32 = 1;
    /// `RSEQ_SIG` on x86-64.
    pub const SIGNATURE: u32 = 0x5305_3053;
}

/// The length of the head of the list of locks.
const LOCKS: usize = 24;

impl KernelState {
    /// Saves the state of this process, which has one thread.
    pub fn save() -> Result<Self, Errno> {
        let mut actions = vec![Action::default(); SIGNALS];
        for (signal, action) in (1..).zip(&mut actions) {
            act_on(signal, ptr::null(), action)?;
        }
        let mut timers = Vec::new();
        for which in TIMERS {
            let mut timer = MaybeUninit::<libc::itimerval>::zeroed();
            // SAFETY: the kernel fills what it is given, which is valid as zeros too.
            timers.push(unsafe {
                check(libc::syscall(
                    libc::SYS_getitimer,
                    which,
                    timer.as_mut_ptr(),
                ))?;
                timer.assume_init()
            });
        }
        let mut limits = Vec::new();
        for which in 0..LIMITS {
            limits.push(limit(which)?);
        }
        let (mut mask, mut name) = (0_u64, [0; NAME]);
        let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
        // SAFETY: each call fills what it is given, of the size that the kernel has for it. The umask is put back at
        // once, and no other thread creates a file meanwhile.
        let (stack, umask) = unsafe {
            let none = ptr::null::<u64>();
            check(libc::syscall(
                libc::SYS_rt_sigprocmask,
                0,
                none,
                &raw mut mask,
                8,
            ))?;
            check(libc::sigaltstack(ptr::null(), stack.as_mut_ptr()).into())?;
            check(libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()).into())?;
            let umask = libc::umask(0);
            libc::umask(umask);
            (stack.assume_init(), umask)
        };
        let (mut locks, mut length, mut ending) = (0_u64, 0_usize, 0_u64);
        // SAFETY: both calls fill what they are given. The second one fails where the kernel cannot tell.
        unsafe {
            check(libc::syscall(
                libc::SYS_get_robust_list,
                0,
                &raw mut locks,
                &raw mut length,
            ))?;
            libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut ending);
        }
        let directory = nix::unistd::getcwd().ok();
        let directory = directory
            .and_then(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok());
        Ok(Self {
            actions,
            mask,
            stack,
            timers,
            umask,
            directory,
            name,
            limits,
            locks,
            ending,
        })
    }

    /// Gives this process the saved state.
    pub fn load(&self) -> Result<(), Errno> {
        self.attach()?;
        for (signal, action) in (1..).zip(&self.actions) {
            if ![libc::SIGKILL, libc::SIGSTOP].contains(&signal) {
                act_on(signal, action, ptr::null_mut())?;
            }
        }
        if let Some(directory) = &self.directory {
            nix::unistd::chdir(directory.as_c_str())?;
        }
        for (which, saved) in (0..).zip(&self.limits) {
            lower(which, *saved)?;
        }
        for (which, timer) in TIMERS.into_iter().zip(&self.timers) {
            let runs = timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0;
            let none = ptr::null_mut::<libc::itimerval>();
            if runs {
                // SAFETY: the kernel copies what it is given.
                unsafe {
                    check(libc::syscall(
                        libc::SYS_setitimer,
                        which,
                        ptr::from_ref(timer),
                        none,
                    ))?
                };
            }
        }
        // SAFETY: the kernel copies what it is given, of the size that it has for it. The stack's memory has been
        // restored. The mask comes last: a signal may arrive from then on.
        unsafe {
            check(libc::sigaltstack(&raw const self.stack, ptr::null_mut()).into())?;
            check(libc::prctl(libc::PR_SET_NAME, self.name.as_ptr()).into())?;
            libc::umask(self.umask);
            let none = ptr::null_mut::<u64>();
            let set = libc::SIG_SETMASK;
            check(libc::syscall(
                libc::SYS_rt_sigprocmask,
                set,
                &raw const self.mask,
                none,
                8,
            ))?;
        }
        Ok(())
    }
}

impl KernelState {
    /// Undoes [`detach`] at the addresses that this memory has.
    fn attach(&self) -> Result<(), Errno> {
        point_at(self.locks, self.ending)?;
        if let Some(area) = restartable_area() {
            // It is registered already where the memory took the place of equal memory. Without it glibc asks the kernel.
            _ = register(area, restartable::LENGTH, 0);
        }
        // glibc notes where the heap ends, which is elsewhere now if the memory came from another place.
        // SAFETY: an address of zero moves nothing.
        unsafe { libc::brk(ptr::null_mut()) };
        Ok(())
    }
}

/// Has the kernel touch no memory of this thread by itself: other memory will be there.
pub fn detach() -> Result<(), Errno> {
    point_at(0, 0)?;
    let Some(area) = restartable_area() else {
        return Ok(());
    };
    let lengths = (restartable::LENGTH..=restartable::MOST).step_by(restartable::LENGTH);
    let mut last = Errno::EINVAL;
    for length in lengths {
        match register(area, length, restartable::UNREGISTER) {
            // A kernel without the call has registered nothing.
            Ok(()) | Err(Errno::ENOSYS) => return Ok(()),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

/// Tells the kernel where the list of locks is, and where to note the thread's end.
fn point_at(locks: u64, ending: u64) -> Result<(), Errno> {
    // SAFETY: the kernel reads and writes there only when the thread ends, and treats both as a program's, which may be
    // wrong. `locks` is zero, or the list that glibc made for this thread.
    unsafe {
        check(libc::syscall(libc::SYS_set_robust_list, locks, LOCKS))?;
        check(libc::syscall(libc::SYS_set_tid_address, ending))?;
    }
    Ok(())
}

/// Where glibc has the thread's area for restartable sequences, if it has one.
fn restartable_area() -> Option<u64> {
    let symbol = |name: &CStr| {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (size, offset) = (symbol(c"__rseq_size")?, symbol(c"__rseq_offset")?);
    // SAFETY: glibc documents both symbols with these types (sys/rseq.h), and does not change them once it runs.
    let (size, offset) = unsafe { (*size.cast::<u32>(), *offset.cast::<isize>()) };
    (size > 0).then(|| thread_pointer().wrapping_add_signed(offset as i64))
}

fn register(area: u64, length: usize, flags: i32) -> Result<(), Errno> {
    let signature = restartable::SIGNATURE;
    // SAFETY: the area is glibc's for this thread, which lives as long as the thread.
    let done = unsafe { libc::syscall(libc::SYS_rseq, area, length, flags, signature) };
    check(done).map(drop)
}

/// Where this thread's own data are.
pub fn thread_pointer() -> u64 {
    // SAFETY: it has no preconditions. On x86-64 glibc's descriptor of a thread is what `fs` points at.
    unsafe { libc::pthread_self() }
}

/// Sets what a signal does, or tells it. glibc's own function would put its restorer in place of the saved one.
fn act_on(signal: i32, new: *const Action, old: *mut Action) -> Result<(), Errno> {
    // SAFETY: each pointer is null or points at an action, which is as long as the kernel's.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, 8) };
    check(done).map(drop)
}

fn limit(which: u32) -> Result<libc::rlimit64, Errno> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let none = ptr::null::<libc::rlimit64>();
    // SAFETY: the kernel fills what it is given.
    unsafe {
        check(libc::syscall(
            libc::SYS_prlimit64,
            0,
            which,
            none,
            &raw mut limit,
        ))?
    };
    Ok(limit)
}

/// Lowers a limit to the saved one. The number of processes depends on what else runs at the fork, so that each
/// worker has its own.
fn lower(which: u32, saved: libc::rlimit64) -> Result<(), Errno> {
    let own = limit(which)?;
    let lower = libc::rlimit64 {
        rlim_cur: saved.rlim_cur.min(own.rlim_max),
        rlim_max: saved.rlim_max.min(own.rlim_max),
    };
    let is_same = (lower.rlim_cur, lower.rlim_max) == (own.rlim_cur, own.rlim_max);
    if is_same || which == libc::RLIMIT_NPROC {
        return Ok(());
    }
    let none = ptr::null_mut::<libc::rlimit64>();
    // SAFETY: the kernel copies what it is given.
    unsafe {
        check(libc::syscall(
            libc::SYS_prlimit64,
            0,
            which,
            &raw const lower,
            none,
        ))?
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_saved_and_loaded() {
        let state = KernelState::save().expect("it can be read");
        assert_eq!(state.actions.len(), SIGNALS);
        assert_eq!(
            state.directory.as_deref().map(|path| path.to_bytes()[0]),
            Some(b'/')
        );
        state.load().expect("it is this process's own");
    }

    #[test]
    fn the_kernel_lets_go_of_a_thread_s_memory_and_takes_it_again() {
        let tried = std::thread::spawn(|| {
            let state = KernelState::save().expect("it can be read");
            assert_ne!(state.locks, 0);
            detach().expect("what the C library registers is let go of");
            let without = KernelState::save().expect("it can be read");
            assert_eq!((without.locks, without.ending), (0, 0));
            state.attach().expect("it is the thread's own");
            let again = KernelState::save().expect("it can be read");
            assert_eq!((again.locks, again.ending), (state.locks, state.ending));
            if let Some(area) = restartable_area() {
                let twice = register(area, restartable::LENGTH, 0);
                assert_eq!(twice, Err(Errno::EBUSY));
            }
        });
        tried.join().expect("the thread goes on");
    }
}
