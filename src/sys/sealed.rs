//! Files that nobody can change any more (memfd_create(2), fcntl(2) `F_ADD_SEALS`), and their bytes.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

/// What keeps a file as it is: its length and its bytes.
pub const UNCHANGING: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// Whether nobody can change a file any more. File systems without seals answer `EINVAL`, which is no.
pub fn is_unchanging(file: BorrowedFd) -> bool {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).unwrap_or(0);
    SealFlag::from_bits_truncate(seals).contains(UNCHANGING)
}

/// The bytes of a file that nobody can change, mapped and not copied.
#[derive(Debug)]
pub struct SealedBytes {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the bytes are read-only for everyone as long as they are mapped, and nothing in the value
// belongs to a thread.
unsafe impl Send for SealedBytes {}
// SAFETY: as above.
unsafe impl Sync for SealedBytes {}

impl SealedBytes {
    /// Maps the first `length` bytes.
    ///
    /// `EINVAL` when the file can still change, or `length` is 0.
    pub fn map(file: impl AsFd, length: usize) -> Result<Self, Errno> {
        let file = file.as_fd();
        if !is_unchanging(file) {
            return Err(Errno::EINVAL);
        }
        // Cannot shrink any more: checked against the length that it keeps.
        let size = nix::sys::stat::fstat(file)?.st_size;
        if usize::try_from(size).is_ok_and(|size| size < length) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a new mapping at a place of the kernel's choosing, which overlaps nothing.
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
        // SAFETY: `map` saw that the file has these bytes and can neither shrink nor be written to, so
        // that they are there and stay as they are until `drop` unmaps them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for SealedBytes {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, of this length, and what borrowed from it is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
