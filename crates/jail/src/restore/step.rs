//! One step of replacing a memory, as the restoring code reads it (`sys/checkpoint_x86_64.rs`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sys::pagemap::{MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};

/// One step: what the restoring code does next. 64 bytes, as the code reads them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    kind: u16,
    flags: u16,
    call: u32,
    arguments: [u64; 6],
    result: u64,
}

/// The length of a step.
pub const STEP: u64 = 64;

const CALL: u16 = 0;
const COPY_DIFFERING: u16 = 1;
const TOUCH: u16 = 2;

/// The first argument is the file that was opened last.
const FILE_FIRST: u16 = 1;
/// The fifth is.
const FILE_FIFTH: u16 = 2;
/// The result is the file that was opened.
const OPENS: u16 = 4;
/// The result must be the given one.
const EXACT: u16 = 8;

/// Protection of a mapping, as mmap(2) has it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Protection(pub u64);

impl Protection {
    /// Readable.
    pub const READ: Self = Self(libc::PROT_READ as u64);
    /// Readable and writable.
    pub const READ_WRITE: Self = Self((libc::PROT_READ | libc::PROT_WRITE) as u64);

    /// This with reading and writing.
    #[must_use]
    pub const fn written(self) -> Self {
        Self(self.0 | Self::READ_WRITE.0)
    }
}

/// How a mapping of a file is shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// Writes stay in the process.
    Private,
    /// The mapping shows the file.
    Shared,
}

/// A place in a file of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The file's descriptor in the process that carries out the steps.
    pub descriptor: i32,
    /// The position in it.
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

    /// Moves the end of the heap there.
    pub const fn program_break(end: u64) -> Self {
        Self::call(libc::SYS_brk, EXACT, [end, 0, 0, 0, 0, 0], end)
    }

    /// Grows the stack down to an address.
    pub const fn touch(address: u64) -> Self {
        Self {
            kind: TOUCH,
            flags: 0,
            call: 0,
            arguments: [address, 0, 0, 0, 0, 0],
            result: 0,
        }
    }

    /// Removes mappings.
    pub const fn unmap(start: u64, length: u64) -> Self {
        Self::call(libc::SYS_munmap, 0, [start, length, 0, 0, 0, 0], 0)
    }

    /// Moves a mapping, with its pages, to where nothing is or what is there is not needed (mremap(2)).
    pub const fn relocate(start: u64, length: u64, to: u64) -> Self {
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let arguments = [start, length, length, how, to, 0];
        Self::call(libc::SYS_mremap, EXACT, arguments, to)
    }

    /// Sets where the thread's own data are (arch_prctl(2)).
    pub const fn thread_pointer(address: u64) -> Self {
        /// `ARCH_SET_FS` (asm/prctl.h).
        const SET: u64 = 0x1002;
        #[cfg(target_arch = "x86_64")]
        const CALL: libc::c_long = libc::SYS_arch_prctl;
        // Never carried out: no worker stands on another processor.
        #[cfg(not(target_arch = "x86_64"))]
        const CALL: libc::c_long = 0;
        Self::call(CALL, 0, [SET, address, 0, 0, 0, 0], 0)
    }

    /// Maps memory of zeros.
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

    /// Maps a part of an image in place of what is there. Writes stay in the process.
    pub const fn map_image(start: u64, length: u64, protection: Protection, from: Place) -> Self {
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED).cast_unsigned() as u64;
        let arguments = [start, length, protection.0, flags, from.file(), from.offset];
        Self::call(libc::SYS_mmap, EXACT, arguments, start)
    }

    /// Closes the opened file.
    pub const fn close() -> Self {
        Self::call(libc::SYS_close, FILE_FIRST, [0; 6], 0)
    }

    /// Reads a part of an image.
    pub const fn read(start: u64, length: u64, from: Place) -> Self {
        let arguments = [from.file(), start, length, from.offset, 0, 0];
        Self::call(libc::SYS_pread64, EXACT, arguments, length)
    }

    /// Copies to an address those of the pages at `from` that differ.
    pub const fn copy_differing(start: u64, length: u64, from: u64) -> Self {
        Self {
            kind: COPY_DIFFERING,
            flags: 0,
            call: 0,
            arguments: [start, length, from, 0, 0, 0],
            result: 0,
        }
    }

    /// Protects a range.
    pub const fn protect(start: u64, length: u64, protection: Protection) -> Self {
        let arguments = [start, length, protection.0, 0, 0, 0];
        Self::call(libc::SYS_mprotect, 0, arguments, 0)
    }

    /// Gives advice on a range (madvise(2)).
    pub const fn advise(start: u64, length: u64, advice: i32) -> Self {
        let advice = advice.unsigned_abs() as u64;
        Self::call(libc::SYS_madvise, 0, [start, length, advice, 0, 0, 0], 0)
    }

    /// Makes a range one that the process may not touch.
    pub const fn guard(start: u64, length: u64) -> Self {
        Self::advise(start, length, MADV_GUARD_INSTALL)
    }

    /// Makes a range with guards an ordinary one again.
    pub const fn unguard(start: u64, length: u64) -> Self {
        Self::advise(start, length, MADV_GUARD_REMOVE)
    }

    /// Closes a file of an image.
    pub const fn close_image(descriptor: i32) -> Self {
        let descriptor = descriptor.unsigned_abs() as u64;
        Self::call(libc::SYS_close, 0, [descriptor, 0, 0, 0, 0, 0], 0)
    }

    /// What it does, by the name of a system call and an address.
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
