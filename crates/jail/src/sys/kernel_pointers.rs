//! The places in a thread's memory that the kernel reads and writes by itself. A process whose memory is replaced has the
//! kernel let go of them before, and take the new ones afterwards.

use std::ffi::CStr;
use std::ptr;

use nix::errno::Errno;

use super::check;

/// What glibc registers for each thread (rseq(2)).
mod restartable {
    /// The length that every kernel accepts, also one whose own is larger.
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

/// Where the kernel looks for what a thread leaves behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelPointers {
    /// The list of the locks that the thread holds (set_robust_list(2)).
    locks: u64,
    /// Where the kernel notes that the thread has ended (set_tid_address(2)), if it says.
    ending: u64,
}

impl KernelPointers {
    /// Those of this thread.
    pub fn of_this_thread() -> Result<Self, Errno> {
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
        Ok(Self { locks, ending })
    }

    /// Undoes [`detach`], for the thread whose pointers these are.
    pub fn attach(self) -> Result<(), Errno> {
        self.set()?;
        if let Some(area) = restartable_area() {
            // It is registered already where the memory took the place of equal memory. Without it glibc asks the kernel.
            _ = register(area, restartable::LENGTH, 0);
        }
        // glibc notes where the heap ends, which is elsewhere now if the memory came from another place.
        // SAFETY: an address of zero moves nothing.
        unsafe { libc::brk(ptr::null_mut()) };
        Ok(())
    }

    fn set(self) -> Result<(), Errno> {
        // SAFETY: the kernel reads and writes there only when the thread ends, and treats both as a program's, which may
        // be wrong. Each is zero, or what glibc made for this thread.
        unsafe {
            check(libc::syscall(libc::SYS_set_robust_list, self.locks, LOCKS))?;
            check(libc::syscall(libc::SYS_set_tid_address, self.ending))?;
        }
        Ok(())
    }
}

/// Withdraws from the kernel all addresses of this thread that it writes to by itself: other memory will be there.
pub fn detach() -> Result<(), Errno> {
    let none = KernelPointers {
        locks: 0,
        ending: 0,
    };
    none.set()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lets_go_of_a_thread_s_memory_and_takes_it_again() {
        let tried = std::thread::spawn(|| {
            let pointers = || KernelPointers::of_this_thread().expect("they can be read");
            let own = pointers();
            assert_ne!(own.locks, 0);
            detach().expect("what the C library registers is let go of");
            let none = pointers();
            assert_eq!((none.locks, none.ending), (0, 0));
            own.attach().expect("it is the thread's own");
            assert_eq!(pointers(), own);
            if let Some(area) = restartable_area() {
                let twice = register(area, restartable::LENGTH, 0);
                assert_eq!(twice, Err(Errno::EBUSY));
            }
        });
        tried.join().expect("the thread goes on");
    }
}
