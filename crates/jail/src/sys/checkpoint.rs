//! A process that stands still while its memory is copied, and a process that replaces its own memory by
//! such a copy and goes on where the other one stood.
//!
//! The code that replaces the memory cannot be a part of what it replaces. It is a few instructions without
//! data, which run from a mapping of their own, the [`Blob`]. They carry out a list of steps that the
//! supervisor has made (`restore.rs` of this crate has their form).

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

use super::check;

/// Whether this processor has code here.
pub const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// Where a process stands, as the code that resumes it needs it. The resuming code fills in the last three.
#[repr(C)]
#[derive(Debug, Default)]
struct Place {
    stack: u64,
    code: u64,
    blob: u64,
    blob_length: u64,
    number: u64,
}

/// How [`stand`] returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stood {
    /// In the process that stood, once the wait was over.
    Original,
    /// In a process that has taken on its memory. Holds the number that the supervisor gave to the restore.
    Copy(u64),
}

/// Stands still: calls `wait` with the address of the place, during which this process's memory can be copied.
///
/// It returns once in each process. Signal handlers, the mask and other state that the kernel keeps are not
/// memory: [`KernelState`](super::kernel_state::KernelState) carries them.
pub fn stand(mut wait: impl FnMut(u64)) -> Stood {
    let mut place = Place::default();
    let at = &raw mut place;
    let mut with_place = || wait(at as u64);
    let mut call: &mut dyn FnMut() = &mut with_place;
    let data = (&raw mut call).cast::<c_void>();
    // SAFETY: `at` and `data` point at values of this frame, which outlives the call; `invoke` takes what `data`
    // points at. In a copy the frame has been restored with all other memory before the call returns.
    let resumed = unsafe { code::stand_at(at, invoke, data) };
    if resumed == 0 {
        return Stood::Original;
    }
    // SAFETY: the code that resumed this process has written these fields, behind the compiler's back.
    let (start, length, number) = unsafe {
        let place = at.read_volatile();
        (place.blob, place.blob_length, place.number)
    };
    // SAFETY: the blob's mapping, which nothing refers to any more: this code is outside of it.
    unsafe { libc::munmap(start as *mut c_void, usize::try_from(length).unwrap_or(0)) };
    Stood::Copy(number)
}

extern "C" fn invoke(data: *mut c_void) {
    // SAFETY: `stand` passes a pointer to a function that lives in its frame.
    unsafe { (*data.cast::<&mut dyn FnMut()>())() }
}

/// The end of the program's data (brk(2)).
pub fn program_break() -> u64 {
    // SAFETY: an increment of zero changes nothing.
    unsafe { libc::sbrk(0) as u64 }
}

/// What the restoring code reads, at the start of the data in the blob.
pub mod header {
    /// Where the other process stood.
    pub const PLACE: usize = 0;
    /// The blob's address.
    pub const BLOB: usize = 8;
    /// The blob's length.
    pub const BLOB_LENGTH: usize = 16;
    /// The number of the restore.
    pub const NUMBER: usize = 24;
    /// The address of the first step.
    pub const STEPS: usize = 32;
    /// The address behind the last step.
    pub const STEPS_END: usize = 40;
    /// The descriptor on which the code reports the step that fails.
    pub const LINK: usize = 48;
    /// The frame that tells it.
    pub const FRAME: usize = 64;
    /// The length of the header.
    pub const LENGTH: usize = 192;
}

/// What the restoring code sends if a step fails. It fills in the numbers.
pub mod failure {
    /// The frame: the length of its text, and that of no payload, before the text.
    pub const FRAME: &[u8] = b"\x3c\0\0\0\0\0\0\0\
        {\"kind\":\"failed-step\",\"errno\":      0,\"step\":             0}";
    /// Where the last digit of the errno is.
    pub const ERRNO: usize = 44;
    /// Where the last digit of the step's number is.
    pub const STEP: usize = 66;
}

/// Where the header is in a blob, behind the code.
pub const HEADER_AT: usize = 4096;
/// Where the buffer is, through which pages are compared that cannot be mapped. The stack ends there.
pub const BUFFER_AT: usize = 2 * 4096;
/// The length of the buffer.
pub const BUFFER: usize = 256 << 10;
/// Where the names of files and the steps are.
pub const DATA_AT: usize = BUFFER_AT + BUFFER;

/// The mapping from which memory is replaced.
#[derive(Debug)]
pub struct Blob {
    start: u64,
    length: usize,
}

impl Blob {
    /// Maps the blob whose header and data a file has, at the address that the header names and where nothing may be
    /// mapped. Allocates nothing: the steps were made for the memory that this process has now.
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
        // SAFETY: a new mapping that replaces none.
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
        // SAFETY: the mapping is new, of this length, and nothing else refers to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), length) };
        bytes[..code.len()].copy_from_slice(code);
        bytes[HEADER_AT..HEADER_AT + header.len()].copy_from_slice(&header);
        read_at(file, &mut bytes[DATA_AT..], header.len())?;
        Ok(blob)
    }

    /// Replaces this process's memory, and goes on where the other process stood. If a step fails, the process
    /// sends its number and the errno(3), and exits.
    pub fn enter(&self) -> Result<(), Errno> {
        // The handlers of signals are a part of what is replaced.
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
        let at = self.start + HEADER_AT as u64;
        let stack = self.start + BUFFER_AT as u64;
        // SAFETY: `map` has put code and data there; the steps are the supervisor's, which has checked that they
        // leave the blob alone. This process holds nothing that must survive them.
        unsafe { code::enter(self.start, at, stack) }
    }
}

/// Reads from a position to the end of the file, or as much as there is room for.
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
        // SAFETY: `map` made the mapping, and nothing refers to it.
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

    use super::Place;

    pub unsafe fn stand_at(
        _: *mut Place,
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
    fn a_process_that_stands_goes_on() {
        let mut places = Vec::new();
        assert_eq!(stand(|place| places.push(place)), Stood::Original);
        assert_eq!(places.len(), 1);
    }

    #[test]
    fn a_blob_replaces_no_mapping() {
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
