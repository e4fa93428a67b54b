//! A step of replacing a process's memory, in the encoding that the restoring code reads (`sys/checkpoint_x86_64.rs`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sys::pagemap::{MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};

/// An instruction for the restoring code, 64 bytes encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    kind: u16,
    flags: u16,
    call: u32,
    arguments: [u64; 6],
    result: u64,
}

/// The encoded length of a step, bytes.
pub const STEP: u64 = 64;

const CALL: u16 = 0;
const COPY_DIFFERING: u16 = 1;
const TOUCH: u16 = 2;

/// Flag: replace the first argument by the descriptor that was opened last.
const FILE_FIRST: u16 = 1;
/// Flag: replace the fifth argument by the descriptor that was opened last.
const FILE_FIFTH: u16 = 2;
/// Flag: the result is the opened descriptor.
const OPENS: u16 = 4;
/// Flag: the result must equal `result`.
const EXACT: u16 = 8;

/// The protection of a mapping, as in mmap(2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Protection(pub u64);

impl Protection {
    /// Readable.
    pub const READ: Self = Self(libc::PROT_READ as u64);
    /// Readable and writable.
    pub const READ_WRITE: Self = Self((libc::PROT_READ | libc::PROT_WRITE) as u64);

    /// Returns this protection with reading and writing added.
    #[must_use]
    pub const fn written(self) -> Self {
        Self(self.0 | Self::READ_WRITE.0)
    }
}

/// The sharing mode of a file mapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// Writes stay in the process.
    Private,
    /// Writes go to the file.
    Shared,
}

/// A position in an image file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The file's descriptor in the process that executes the steps.
    pub descriptor: i32,
    /// The file offset.
    pub offset: u64,
}

impl Place {
    const fn file(self) -> u64 {
        self.descriptor.unsigned_abs() as u64
    }
}

impl Step {
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "numbers of system calls are small"
    )]
    const fn call(number: libc::c_long, flags: u16, arguments: [u64; 6], result: u64) -> Self {
        Self {
            kind: CALL,
            flags,
            call: number as u32,
            arguments,
            result,
        }
    }

    /// Moves the end of the heap (brk(2)).
    pub const fn program_break(end: u64) -> Self {
        Self::call(libc::SYS_brk, EXACT, [end, 0, 0, 0, 0, 0], end)
    }

    /// Touches an address, so that the stack grows down to it.
    pub const fn touch(address: u64) -> Self {
        Self {
            kind: TOUCH,
            flags: 0,
            call: 0,
            arguments: [address, 0, 0, 0, 0, 0],
            result: 0,
        }
    }

    /// Removes mappings (munmap(2)).
    pub const fn unmap(start: u64, length: u64) -> Self {
        Self::call(libc::SYS_munmap, 0, [start, length, 0, 0, 0, 0], 0)
    }

    /// Moves a mapping, with its pages, over unmapped or expendable address space (mremap(2)).
    pub const fn relocate(start: u64, length: u64, to: u64) -> Self {
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let arguments = [start, length, length, how, to, 0];
        Self::call(libc::SYS_mremap, EXACT, arguments, to)
    }

    /// Sets the thread pointer, the base of thread-local storage (arch_prctl(2)).
    pub const fn thread_pointer(address: u64) -> Self {
        /// `ARCH_SET_FS` (asm/prctl.h).
        const SET: u64 = 0x1002;
        #[cfg(target_arch = "x86_64")]
        const CALL: libc::c_long = libc::SYS_arch_prctl;
        // Never executed: no other architecture supports checkpoints.
        #[cfg(not(target_arch = "x86_64"))]
        const CALL: libc::c_long = 0;
        Self::call(CALL, 0, [SET, address, 0, 0, 0, 0], 0)
    }

    /// Maps anonymous zeroed memory.
    pub const fn map(start: u64, length: u64, protection: Protection, flags: u64) -> Self {
        let all = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let none = u64::MAX;
        let arguments = [start, length, protection.0, all | flags, none, 0];
        Self::call(libc::SYS_mmap, EXACT, arguments, start)
    }

    /// Opens the file whose name is at this address.
    pub const fn open(name: u64) -> Self {
        let here = (libc::AT_FDCWD as i64).cast_unsigned();
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        Self::call(libc::SYS_openat, OPENS, [here, name, flags, 0, 0, 0], 0)
    }

    /// Maps the opened file.
    pub const fn map_file(
        start: u64,
        length: u64,
        protection: Protection,
        sharing: Sharing,
        offset: u64,
    ) -> Self {
        let sharing = match sharing {
            Sharing::Private => libc::MAP_PRIVATE,
            Sharing::Shared => libc::MAP_SHARED,
        };
        let flags = (sharing | libc::MAP_FIXED).cast_unsigned() as u64;
        let arguments = [start, length, protection.0, flags, 0, offset];
        Self::call(libc::SYS_mmap, EXACT | FILE_FIFTH, arguments, start)
    }

    /// Maps a part of an image privately, replacing existing mappings.
    pub const fn map_image(start: u64, length: u64, protection: Protection, from: Place) -> Self {
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED).cast_unsigned() as u64;
        let arguments = [start, length, protection.0, flags, from.file(), from.offset];
        Self::call(libc::SYS_mmap, EXACT, arguments, start)
    }

    /// Closes the opened file.
    pub const fn close() -> Self {
        Self::call(libc::SYS_close, FILE_FIRST, [0; 6], 0)
    }

    /// Reads a part of an image into memory.
    pub const fn read(start: u64, length: u64, from: Place) -> Self {
        let arguments = [from.file(), start, length, from.offset, 0, 0];
        Self::call(libc::SYS_pread64, EXACT, arguments, length)
    }

    /// Copies each page at `from` over its counterpart at `start`, if the two differ.
    pub const fn copy_differing(start: u64, length: u64, from: u64) -> Self {
        Self {
            kind: COPY_DIFFERING,
            flags: 0,
            call: 0,
            arguments: [start, length, from, 0, 0, 0],
            result: 0,
        }
    }

    /// Changes the protection of a range (mprotect(2)).
    pub const fn protect(start: u64, length: u64, protection: Protection) -> Self {
        let arguments = [start, length, protection.0, 0, 0, 0];
        Self::call(libc::SYS_mprotect, 0, arguments, 0)
    }

    /// Gives advice about a range (madvise(2)).
    pub const fn advise(start: u64, length: u64, advice: i32) -> Self {
        let advice = advice.unsigned_abs() as u64;
        Self::call(libc::SYS_madvise, 0, [start, length, advice, 0, 0, 0], 0)
    }

    /// Installs guard pages in a range, which the process may not touch.
    pub const fn guard(start: u64, length: u64) -> Self {
        Self::advise(start, length, MADV_GUARD_INSTALL)
    }

    /// Removes the guard pages from a range.
    pub const fn unguard(start: u64, length: u64) -> Self {
        Self::advise(start, length, MADV_GUARD_REMOVE)
    }

    /// Closes an image file.
    pub const fn close_image(descriptor: i32) -> Self {
        let descriptor = descriptor.unsigned_abs() as u64;
        Self::call(libc::SYS_close, 0, [descriptor, 0, 0, 0, 0, 0], 0)
    }

    /// Returns the name of the system call or operation, and the address that it affects.
    fn name(&self) -> (&'static str, Option<u64>) {
        let [first, second, ..] = self.arguments;
        match (self.kind, libc::c_long::from(self.call)) {
            (COPY_DIFFERING, _) => ("a comparison of pages", Some(first)),
            (TOUCH, _) => ("a touch of the stack", Some(first)),
            (_, libc::SYS_brk) => ("brk(2)", Some(first)),
            (_, libc::SYS_munmap) => ("munmap(2)", Some(first)),
            (_, libc::SYS_mmap) => ("mmap(2)", Some(first)),
            (_, libc::SYS_mremap) => ("mremap(2)", Some(first)),
            #[cfg(target_arch = "x86_64")]
            (_, libc::SYS_arch_prctl) => ("arch_prctl(2)", Some(second)),
            (_, libc::SYS_openat) => ("openat(2)", None),
            (_, libc::SYS_pread64) => ("pread(2)", Some(second)),
            (_, libc::SYS_mprotect) => ("mprotect(2)", Some(first)),
            (_, libc::SYS_madvise) => ("madvise(2)", Some(first)),
            _ => ("close(2)", None),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.call.to_le_bytes());
        for argument in self.arguments {
            out.extend(argument.to_le_bytes());
        }
        out.extend(self.result.to_le_bytes());
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            (name, Some(address)) => write!(f, "{name} at {address:#x}"),
            (name, None) => f.write_str(name),
        }
    }
}
