//! Saves and restores the process state that the kernel keeps and a guest may change: signal handlers, the signal mask
//! and alternate stack, timers, the umask, the working directory, the process name and resource limits.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr;

use nix::errno::Errno;

use super::check;
use super::kernel_pointers::KernelPointers;

/// The highest signal number; the lowest is 1.
const SIGNALS: usize = 64;
/// The number of resource limits (getrlimit(2)), numbered from 0.
const LIMITS: u32 = 16;
/// The interval timers of setitimer(2).
const TIMERS: [i32; 3] = [0, 1, 2];
/// The maximum length of a process name, including its terminating NUL.
const NAME: usize = 16;

/// `struct kernel_sigaction`: handler, flags, restorer and mask.
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
            // SAFETY: the kernel writes to `timer`, which is live and for which zeros are valid.
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
        // SAFETY: each call writes to a live local of the size that the kernel expects. The umask is restored at once,
        // and there is no other thread that could create a file meanwhile: the supervisor does not copy a worker with
        // threads.
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

    /// Applies the saved state to this process.
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
                // SAFETY: the kernel only reads `timer`, which is live.
                unsafe { check(libc::setitimer(which, timer, ptr::null_mut()).into())? };
            }
        }
        // SAFETY: the kernel only reads the arguments, which are live and of the size that it expects. The alternate
        // stack's memory has been restored. The mask is set last, because signals may be delivered from then on.
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

/// Sets or queries the action of a signal. Bypasses glibc's sigaction(), which would replace the saved restorer by its
/// own.
fn act_on(signal: i32, new: *const Action, old: *mut Action) -> Result<(), Errno> {
    // SAFETY: each pointer is null or points to a live action with the kernel's layout.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, 8) };
    check(done).map(drop)
}

fn limit(which: u32) -> Result<libc::rlimit64, Errno> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes to a live local of the right type.
    unsafe { check(libc::prlimit64(0, which, ptr::null(), &raw mut limit).into())? };
    Ok(limit)
}

/// Lowers a limit to the saved value. Leaves `RLIMIT_NPROC` alone: its value depends on the number of tasks at the
/// fork, so each worker has its own.
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
    // SAFETY: the kernel only reads `lower`, which is live.
    unsafe { check(libc::prlimit64(0, which, &raw const lower, ptr::null_mut()).into()).map(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_state_can_be_loaded() {
        let state = KernelState::save().expect("it can be read");
        assert_eq!(state.actions.len(), SIGNALS);
        assert_eq!(
            state.directory.as_deref().map(|path| path.to_bytes()[0]),
            Some(b'/')
        );
        state.load().expect("it is this process's own");
    }
}
