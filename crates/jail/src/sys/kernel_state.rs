//! The part of a process's state that the kernel keeps and a guest may change: signal handlers, the signal mask and
//! stack, timers, the umask, the work directory, the name and the limits.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr;

use nix::errno::Errno;

use super::check;
use super::kernel_pointers::KernelPointers;

/// Signals are numbered from 1 to this.
const SIGNALS: usize = 64;
/// Limits are numbered from 0 to below this (getrlimit(2)).
const LIMITS: u32 = 16;
/// The timers of setitimer(2).
const TIMERS: [i32; 3] = [0, 1, 2];
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
    pointers: KernelPointers,
}

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
                check(libc::getitimer(which, timer.as_mut_ptr()).into())?;
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
        let pointers = KernelPointers::of_this_thread()?;
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
            pointers,
        })
    }

    /// Gives this process the saved state.
    pub fn load(&self) -> Result<(), Errno> {
        self.pointers.attach()?;
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
            if runs {
                // SAFETY: the kernel copies what it is given.
                unsafe { check(libc::setitimer(which, timer, ptr::null_mut()).into())? };
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
    // SAFETY: the kernel fills what it is given.
    unsafe { check(libc::prlimit64(0, which, ptr::null(), &raw mut limit).into())? };
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
    // SAFETY: the kernel copies what it is given.
    unsafe { check(libc::prlimit64(0, which, &raw const lower, ptr::null_mut()).into()).map(drop) }
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
}
