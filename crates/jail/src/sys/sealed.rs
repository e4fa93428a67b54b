//! Creates, seals and maps immutable files in memory (memfd_create(2), fcntl(2) `F_ADD_SEALS`).

use std::ffi::CStr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The seals that make a file's length and contents immutable.
const UNCHANGING: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// Creates an empty memfd that can be sealed.
pub fn memory_file(name: &CStr) -> Result<OwnedFd, Errno> {
    // `MFD_NOEXEC_SEAL` of `linux/memfd.h`, which nix does not define yet. A host may allow only this kind of memfd.
    // Linux before 6.3 does not know the flag.
    const MFD_NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(0x8);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    match memfd_create(name, flags | MFD_NOEXEC_SEAL) {
        Err(Errno::EINVAL) => memfd_create(name, flags),
        other => other,
    }
}

/// Returns whether a file is immutable. File systems without seals fail with `EINVAL`, which means no.
pub fn is_unchanging(file: BorrowedFd) -> bool {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).unwrap_or(0);
    SealFlag::from_bits_truncate(seals).contains(UNCHANGING)
}

/// The number of attempts to seal a file.
const TRIES: usize = 8;

/// Makes the length and contents of a memfd immutable.
///
/// The kernel waits about a tenth of a second for other references to the file's pages to be dropped, and then fails
/// with `EBUSY` (`memfd_wait_for_pins` in mm/memfd.c). On a machine with little free memory the kernel's own reclaim
/// briefly holds such references, hence the retries. A file with a writable mapping also fails with `EBUSY`, but
/// without a wait.
pub fn seal(file: BorrowedFd) -> Result<(), Errno> {
    let seals = || FcntlArg::F_ADD_SEALS(UNCHANGING | SealFlag::F_SEAL_SEAL);
    let mut tries = (0..TRIES).map(|_| fcntl(file, seals()).map(drop));
    let ended = tries.find(|sealed| *sealed != Err(Errno::EBUSY));
    ended.unwrap_or(Err(Errno::EBUSY))
}

/// The contents of an immutable file, mapped and not copied.
#[derive(Debug)]
pub struct SealedBytes {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the bytes are read-only for every thread and process as long as they are mapped, and nothing in the value is
// tied to a thread.
unsafe impl Send for SealedBytes {}
// SAFETY: as above.
unsafe impl Sync for SealedBytes {}

impl SealedBytes {
    /// Maps the first `length` bytes of a file.
    ///
    /// `EINVAL` if the file is not immutable, is shorter, or `length` is 0.
    pub fn map(file: impl AsFd, length: usize) -> Result<Self, Errno> {
        let file = file.as_fd();
        if !is_unchanging(file) {
            return Err(Errno::EINVAL);
        }
        // The file can no longer shrink, so its length is checked once.
        let size = nix::sys::stat::fstat(file)?.st_size;
        if usize::try_from(size).is_ok_and(|size| size < length) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a new mapping at an address that the kernel chooses, which overlaps no existing mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        NonNull::new(start.cast()).map_or(Err(Errno::EINVAL), |start| Ok(Self { start, length }))
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `map` checked that the file has these bytes and can neither shrink nor be written to, so they exist
        // and stay unchanged until `drop` unmaps them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for SealedBytes {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping, of this length, and every borrow from it has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
