//! Suspends a process at a point where its memory can be copied, and replaces a process's memory by such a copy, so
//! that it resumes at that point.
//!
//! The code that replaces memory cannot be part of the memory that it replaces. It is a few instructions without data
//! that run from a separate mapping, the [`Blob`], and execute a list of steps prepared by the supervisor (the module
//! `restore` of this crate defines their encoding).

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

use super::check;

/// Whether checkpoints are implemented for this architecture.
pub const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// The state that is needed to resume a suspended process. The restoring code fills in the last three fields.
#[repr(C)]
#[derive(Debug, Default)]
struct ResumePoint {
    stack: u64,
    code: u64,
    blob: u64,
    blob_length: u64,
    number: u64,
}

/// How [`suspend`] returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resumed {
    /// In the suspended process, after `wait` returned.
    Original,
    /// In a process whose memory was replaced by a copy. Contains the number of the restore, which the supervisor
    /// chose.
    Copy(u64),
}

/// Calls `wait` with the address of the resume point. While `wait` runs, this process's memory can be copied.
///
/// Returns once in each process. Signal handlers, the signal mask and other kernel state are not part of memory:
/// [`KernelState`](super::kernel_state::KernelState) saves and restores them.
pub fn suspend(mut wait: impl FnMut(u64)) -> Resumed {
    let mut place = ResumePoint::default();
    let at = &raw mut place;
    let mut with_place = || wait(at as u64);
    let mut call: &mut dyn FnMut() = &mut with_place;
    let data = (&raw mut call).cast::<c_void>();
    // SAFETY: `at` and `data` point to locals of this frame, which outlives the call. `invoke` expects the type that
    // `data` points to. In a copy, the frame was restored with all other memory before the call returns.
    let resumed = unsafe { code::suspend_at(at, invoke, data) };
    if resumed == 0 {
        return Resumed::Original;
    }
    // SAFETY: `at` points to a live local. The read is volatile because the restoring code has written these fields
    // without the compiler's knowledge.
    let (start, length, number) = unsafe {
        let place = at.read_volatile();
        (place.blob, place.blob_length, place.number)
    };
    // SAFETY: this is the blob's mapping. No reference to it is left, and this code is outside it.
    unsafe { libc::munmap(start as *mut c_void, usize::try_from(length).unwrap_or(0)) };
    Resumed::Copy(number)
}

extern "C" fn invoke(data: *mut c_void) {
    // SAFETY: `suspend` passes a pointer to a closure reference that lives in its frame.
    unsafe { (*data.cast::<&mut dyn FnMut()>())() }
}

/// Returns the end of the heap (brk(2)).
pub fn program_break() -> u64 {
    // SAFETY: an increment of zero changes nothing.
    unsafe { libc::sbrk(0) as u64 }
}

/// Offsets in the header, which the restoring code reads. Bytes, relative to [`HEADER_AT`].
pub mod header {
    /// The address of the resume point of the suspended process.
    pub const PLACE: usize = 0;
    /// The blob's address.
    pub const BLOB: usize = 8;
    /// The blob's length.
    pub const BLOB_LENGTH: usize = 16;
    /// The number of the restore.
    pub const NUMBER: usize = 24;
    /// The address of the first step.
    pub const STEPS: usize = 32;
    /// The end address of the steps.
    pub const STEPS_END: usize = 40;
    /// The descriptor on which the restoring code reports a failed step.
    pub const LINK: usize = 48;
    /// The frame of that report.
    pub const FRAME: usize = 64;
    /// The length of the header.
    pub const LENGTH: usize = 192;
}

/// The report that the restoring code sends if a step fails. The code fills in the numbers.
pub mod failure {
    /// The frame: the length of its JSON text and a payload length of zero, then the text.
    pub const FRAME: &[u8] = b"\x3c\0\0\0\0\0\0\0\
        {\"kind\":\"failed-step\",\"errno\":      0,\"step\":             0}";
    /// The offset of the last digit of the errno.
    pub const ERRNO: usize = 44;
    /// The offset of the last digit of the step number.
    pub const STEP: usize = 66;
}

/// The offset of the header in a blob, after the code.
pub const HEADER_AT: usize = 4096;
/// The offset of the buffer into which pages are read that cannot be mapped for comparison. The stack grows down from
/// there.
pub const BUFFER_AT: usize = 2 * 4096;
/// The length of the buffer, bytes.
pub const BUFFER: usize = 256 << 10;
/// The offset of the file names and the steps.
pub const DATA_AT: usize = BUFFER_AT + BUFFER;

/// The mapping that contains the restoring code, its header and its steps.
#[derive(Debug)]
pub struct Blob {
    start: u64,
    length: usize,
}

impl Blob {
    /// Maps the blob whose header and data `file` contains, at the address that the header specifies. Fails if anything
    /// is mapped there. Does not allocate, because the steps were computed for the memory that this process has now.
    pub fn map(file: BorrowedFd) -> Result<Self, Errno> {
        let code = code::restorer();
        let mut header = [0; header::LENGTH];
        let field = |header: &[u8], at: usize| {
            let bytes = header[at..at + 8].try_into();
            bytes.map_or(0, u64::from_le_bytes)
        };
        read_at(file, &mut header, 0)?;
        let start = field(&header, header::BLOB);
        let length = usize::try_from(field(&header, header::BLOB_LENGTH)).unwrap_or(0);
        if length < DATA_AT || code.len() > HEADER_AT {
            return Err(Errno::EINVAL);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping; MAP_FIXED_NOREPLACE leaves existing mappings alone.
        let mapped = unsafe { libc::mmap(start as *mut c_void, length, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let blob = Self {
            start: mapped as u64,
            length,
        };
        if blob.start != start {
            return Err(Errno::EEXIST);
        }
        // SAFETY: the mapping is new, writable and of this length, and nothing else refers to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), length) };
        bytes[..code.len()].copy_from_slice(code);
        bytes[HEADER_AT..HEADER_AT + header.len()].copy_from_slice(&header);
        read_at(file, &mut bytes[DATA_AT..], header.len())?;
        Ok(blob)
    }

    /// Replaces this process's memory and resumes at the resume point of the suspended process. If a step fails, the
    /// process reports the step number and errno(3), and exits.
    pub fn enter(&self) -> Result<(), Errno> {
        // Block all signals: their handlers are part of the replaced memory.
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
        let at = self.start + HEADER_AT as u64;
        let stack = self.start + BUFFER_AT as u64;
        // SAFETY: `map` placed code and data there. The steps come from the supervisor, which ensured that they do not
        // touch the blob. This process has no values that must survive them.
        unsafe { code::enter(self.start, at, stack) }
    }
}

/// Reads from a file offset to EOF, or until the buffer is full.
fn read_at(file: BorrowedFd, mut room: &mut [u8], mut position: usize) -> Result<(), Errno> {
    while !room.is_empty() {
        let offset = libc::off_t::try_from(position).map_err(|_| Errno::EINVAL)?;
        match nix::sys::uio::pread(file, room, offset) {
            Err(Errno::EINTR) => {}
            Ok(0) => return Ok(()),
            Ok(length) => {
                position += length;
                room = &mut room[length..];
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Drop for Blob {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping, and nothing refers to it.
        unsafe {
            check(i64::from(libc::munmap(
                self.start as *mut c_void,
                self.length,
            )))
            .ok()
        };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod code {
    use std::ffi::c_void;

    use nix::errno::Errno;

    use super::ResumePoint;

    pub unsafe fn suspend_at(
        _: *mut ResumePoint,
        call: extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> u64 {
        call(data);
        0
    }

    pub fn restorer() -> &'static [u8] {
        &[]
    }

    pub unsafe fn enter(_: u64, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
}

#[cfg(target_arch = "x86_64")]
#[path = "checkpoint_x86_64.rs"]
mod code;

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    #[test]
    fn suspended_process_resumes_as_the_original() {
        let mut places = Vec::new();
        assert_eq!(suspend(|place| places.push(place)), Resumed::Original);
        assert_eq!(places.len(), 1);
    }

    #[test]
    fn blob_never_replaces_a_mapping() {
        let mapped = [0_u8; 4096];
        let mut fields = [0; header::LENGTH];
        let mut set =
            |at: usize, value: u64| fields[at..at + 8].copy_from_slice(&value.to_le_bytes());
        set(header::BLOB, mapped.as_ptr() as u64 & !4095);
        set(header::BLOB_LENGTH, DATA_AT as u64);
        let file = tempfile(&fields);
        let refused = Blob::map(file.as_fd()).map(drop);
        assert_eq!(refused, Err(Errno::EEXIST));
        let refused = Blob::map(tempfile(b"short").as_fd()).map(drop);
        assert_eq!(refused, Err(Errno::EINVAL));
    }

    fn tempfile(bytes: &[u8]) -> OwnedFd {
        let file = super::super::sealed::memory_file(c"blob").expect("there is memory");
        nix::unistd::write(&file, bytes).expect("there is memory");
        file
    }
}
