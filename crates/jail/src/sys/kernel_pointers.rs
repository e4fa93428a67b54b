//! The addresses in a thread's memory that the kernel accesses on its own. A process whose memory is replaced withdraws
//! them from the kernel before, and registers the new ones afterwards.

use std::ffi::CStr;
use std::ptr;

use nix::errno::Errno;

use super::check;

/// Constants of the restartable sequence area that glibc registers for each thread (rseq(2)).
mod restartable {
    /// The length that every kernel accepts, even if its own area is larger.
    pub const LENGTH: usize = 32;
    /// The longest area that glibc may have registered.
    pub const MAX_LENGTH: usize = 256;
    /// `RSEQ_FLAG_UNREGISTER`.
    pub const UNREGISTER: i32 = 1;
    /// `RSEQ_SIG` on x86-64.
    pub const SIGNATURE: u32 = 0x5305_3053;
}

/// The length of `struct robust_list_head`.
const LOCKS: usize = 24;

/// The addresses that the kernel uses when a thread exits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelPointers {
    /// The head of the list of robust futexes that the thread holds (set_robust_list(2)).
    locks: u64,
    /// The address that the kernel clears when the thread exits (set_tid_address(2)). Zero if the kernel does not
    /// report it.
    ending: u64,
}

impl KernelPointers {
    /// Returns the addresses registered for this thread.
    pub fn of_this_thread() -> Result<Self, Errno> {
        let (mut locks, mut length, mut ending) = (0_u64, 0_usize, 0_u64);
        // SAFETY: both calls write to live locals of the expected types. The second fails on a kernel that cannot
        // report the address.
        unsafe {
            check(libc::syscall(
                libc::SYS_get_robust_list,
                0,
                &raw mut locks,
                &raw mut length,
            ))?;
            libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut ending);
        }
        Ok(Self { locks, ending })
    }

    /// Reverts [`detach`], for the thread that these addresses belong to.
    pub fn attach(self) -> Result<(), Errno> {
        self.set()?;
        if let Some(area) = restartable_area() {
            // Errors are ignored: an area that is still registered is `EBUSY`, and without a registration glibc makes a
            // system call instead of reading the area.
            _ = register(area, restartable::LENGTH, 0);
        }
        // glibc caches the end of the heap, which differs now if the memory came from another process.
        // SAFETY: an address of zero moves nothing.
        unsafe { libc::brk(ptr::null_mut()) };
        Ok(())
    }

    fn set(self) -> Result<(), Errno> {
        // SAFETY: the kernel accesses these addresses only when the thread exits, and tolerates invalid ones, as from
        // any program. Each is zero or an address that glibc registered for this thread.
        unsafe {
            check(libc::syscall(libc::SYS_set_robust_list, self.locks, LOCKS))?;
            check(libc::syscall(libc::SYS_set_tid_address, self.ending))?;
        }
        Ok(())
    }
}

/// Withdraws from the kernel all addresses of this thread that the kernel accesses on its own, because other memory
/// will be mapped there.
pub fn detach() -> Result<(), Errno> {
    let none = KernelPointers {
        locks: 0,
        ending: 0,
    };
    none.set()?;
    let Some(area) = restartable_area() else {
        return Ok(());
    };
    let lengths = (restartable::LENGTH..=restartable::MAX_LENGTH).step_by(restartable::LENGTH);
    let mut last = Errno::EINVAL;
    for length in lengths {
        match register(area, length, restartable::UNREGISTER) {
            // A kernel without the call has nothing registered.
            Ok(()) | Err(Errno::ENOSYS) => return Ok(()),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

/// Returns the address of glibc's rseq area for this thread, if it has one.
fn restartable_area() -> Option<u64> {
    let symbol = |name: &CStr| {
        // SAFETY: the name is NUL-terminated.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (size, offset) = (symbol(c"__rseq_size")?, symbol(c"__rseq_offset")?);
    // SAFETY: glibc documents both symbols with these types (sys/rseq.h), and does not change them after startup.
    let (size, offset) = unsafe { (*size.cast::<u32>(), *offset.cast::<isize>()) };
    (size > 0).then(|| thread_pointer().wrapping_add_signed(offset as i64))
}

fn register(area: u64, length: usize, flags: i32) -> Result<(), Errno> {
    let signature = restartable::SIGNATURE;
    // SAFETY: the area belongs to glibc, was allocated for this thread, and lives as long as the thread.
    let done = unsafe { libc::syscall(libc::SYS_rseq, area, length, flags, signature) };
    check(done).map(drop)
}

/// Returns the thread pointer.
pub fn thread_pointer() -> u64 {
    // SAFETY: no preconditions. On x86-64 glibc's `pthread_t` is the address that `fs` points to.
    unsafe { libc::pthread_self() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_addresses_are_detached_and_attached_again() {
        let tried = std::thread::spawn(|| {
            let pointers = || KernelPointers::of_this_thread().expect("they can be read");
            let own = pointers();
            assert_ne!(own.locks, 0);
            detach().expect("the registrations of the C library can be withdrawn");
            let none = pointers();
            assert_eq!((none.locks, none.ending), (0, 0));
            own.attach().expect("it is the thread's own");
            assert_eq!(pointers(), own);
            if let Some(area) = restartable_area() {
                let twice = register(area, restartable::LENGTH, 0);
                assert_eq!(twice, Err(Errno::EBUSY));
            }
        });
        tried.join().expect("the thread survives");
    }
}
