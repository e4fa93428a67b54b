//! What the supervisor sends to a worker that is to take on the memory of another: an order for the worker's native
//! half, and steps for the code that replaces the memory. Pure.
//!
//! The supervisor makes both, from what the kernel says of the two processes. The worker carries them out with a
//! guest's rights.

use serde::{Deserialize, Serialize};

use crate::sys::checkpoint::{BUFFER_AT, DATA_AT, header};

/// What the worker does before its memory is replaced.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The directories whose contents the file of trees has, in its order.
    pub trees: Vec<String>,
    /// The descriptors of the other process.
    pub descriptors: Vec<Descriptor>,
}

/// A descriptor to make.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// Whether a program that is executed inherits it.
    pub inherited: bool,
    /// What it is open on.
    pub open: Opened,
}

/// What a descriptor is open on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opened {
    /// The same as another descriptor, which every worker has or which comes earlier in the list.
    Same(i32),
    /// A file.
    File {
        /// Its path.
        path: String,
        /// The flags of open(2).
        flags: i32,
        /// The position in it.
        position: u64,
    },
}

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
/// The first argument is the image.
const IMAGE_FIRST: u16 = 4;
/// The fifth is.
const IMAGE_FIFTH: u16 = 8;
/// The result is the file that was opened.
const OPENS: u16 = 16;
/// The result must be the given one.
const EXACT: u16 = 32;

/// Protection of a mapping, as mmap(2) has it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Protection(pub u64);

impl Protection {
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

    /// Maps the image in place of what is there. Writes stay in the process.
    pub const fn map_image(start: u64, length: u64, offset: u64) -> Self {
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED).cast_unsigned() as u64;
        let protection = Protection::READ_WRITE.0;
        let arguments = [start, length, protection, flags, 0, offset];
        Self::call(libc::SYS_mmap, EXACT | IMAGE_FIFTH, arguments, start)
    }

    /// Closes the opened file.
    pub const fn close() -> Self {
        Self::call(libc::SYS_close, FILE_FIRST, [0; 6], 0)
    }

    /// Reads from the image.
    pub const fn read(start: u64, length: u64, offset: u64) -> Self {
        let arguments = [0, start, length, offset, 0, 0];
        Self::call(libc::SYS_pread64, EXACT | IMAGE_FIRST, arguments, length)
    }

    /// Copies the pages of the buffer that differ from those at an address.
    pub const fn copy_differing(start: u64, length: u64) -> Self {
        Self {
            kind: COPY_DIFFERING,
            flags: 0,
            call: 0,
            arguments: [start, length, 0, 0, 0, 0],
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

    /// Closes the image.
    pub const fn close_image() -> Self {
        Self::call(libc::SYS_close, IMAGE_FIRST, [0; 6], 0)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.call.to_le_bytes());
        for argument in self.arguments {
            out.extend(argument.to_le_bytes());
        }
        out.extend(self.result.to_le_bytes());
    }
}

/// A blob in the making: the names of files and the steps.
#[derive(Debug)]
pub struct BlobData {
    blob: u64,
    data: Vec<u8>,
}

impl BlobData {
    /// Data for a blob at this address.
    pub fn new(blob: u64) -> Self {
        Self {
            blob,
            data: Vec::new(),
        }
    }

    /// The address of the buffer, of [`BUFFER`](crate::sys::checkpoint::BUFFER) bytes.
    pub fn buffer(&self) -> u64 {
        self.blob + BUFFER_AT as u64
    }

    fn address(&self) -> u64 {
        self.blob + (DATA_AT + self.data.len()) as u64
    }

    /// Adds the name of a file, and returns its address.
    pub fn name(&mut self, path: &str) -> u64 {
        let address = self.address();
        self.data.extend(path.as_bytes());
        self.data.push(0);
        address
    }

    /// Adds the steps, and returns the contents of the file that
    /// [`Blob::map`](crate::sys::checkpoint::Blob::map) reads. `place` is where the other process stood, and
    /// `number` what it returns there.
    pub fn finish(mut self, place: u64, number: u64, steps: &[Step]) -> Vec<u8> {
        let aligned = self.data.len().next_multiple_of(64);
        self.data.resize(aligned, 0);
        let first = self.address();
        for step in steps {
            step.encode(&mut self.data);
        }
        let end = self.address();
        let fields = [
            (header::PLACE, place),
            (header::BLOB, self.blob),
            (header::BLOB_LENGTH, end.next_multiple_of(4096) - self.blob),
            (header::NUMBER, number),
            (header::STEPS, first),
            (header::STEPS_END, end),
            (header::BUFFER, self.buffer()),
        ];
        let mut bytes = vec![0; header::LENGTH];
        for (at, value) in fields {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes.append(&mut self.data);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_as_long_as_the_code_expects() {
        let mut bytes = Vec::new();
        Step::map(0x1000, 0x2000, Protection::READ_WRITE, 0).encode(&mut bytes);
        assert_eq!(bytes.len() as u64, STEP);
        assert_eq!(bytes[..2], CALL.to_le_bytes());
        assert_eq!(bytes[8..16], 0x1000_u64.to_le_bytes());
        assert_eq!(bytes[56..], 0x1000_u64.to_le_bytes());
    }

    #[test]
    fn the_header_leads_to_the_steps() {
        let mut blob = BlobData::new(0x10_0000);
        let name = blob.name("/usr/lib/a.so");
        let bytes = blob.finish(7, 9, &[Step::open(name), Step::close()]);
        let (header, data) = bytes.split_at(header::LENGTH);
        let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let at = |address: u64| usize::try_from(address - 0x10_0000).expect("small") - DATA_AT;
        assert_eq!(field(header::PLACE), 7);
        assert_eq!(field(header::NUMBER), 9);
        let named = data[at(name)..].split(|byte| *byte == 0).next();
        assert_eq!(named, Some(&b"/usr/lib/a.so"[..]));
        let (first, end) = (field(header::STEPS), field(header::STEPS_END));
        assert_eq!(end - first, 2 * STEP);
        assert_eq!(at(end), data.len());
        assert_eq!(field(header::BUFFER) % 4096, 0);
        assert!(field(header::BLOB_LENGTH) >= end - 0x10_0000);
    }

    #[test]
    fn the_code_carries_out_the_steps_and_goes_on_at_the_place() {
        use std::os::fd::{AsFd, IntoRawFd};
        use std::os::unix::fs::FileExt;

        use crate::sys::checkpoint::{Blob, IS_SUPPORTED, Stood, stand};
        use crate::sys::sealed::memory_file;

        const BLOB: u64 = 0x3000_0000_0000;
        const MAPPED: u64 = 0x3000_1000_0000;
        if !IS_SUPPORTED {
            return;
        }
        let image = memory_file(c"image").expect("there is memory");
        let pages: Vec<u8> = [1, 2, 3, 4].iter().flat_map(|page| [*page; 4096]).collect();
        nix::unistd::write(&image, &pages).expect("there is memory");
        // The steps close it.
        let image = image.into_raw_fd();
        let all = pages.len() as u64;
        let stood = stand(|place| {
            let mut blob = BlobData::new(BLOB);
            let (name, buffer) = (blob.name("/dev/null"), blob.buffer());
            let steps = [
                Step::map(MAPPED, all, Protection::READ_WRITE, 0),
                Step::read(MAPPED, 4096, 0),
                Step::read(MAPPED + 2 * 4096, 4096, 0),
                // The first page is the same, and the others differ.
                Step::read(buffer, all, 0),
                Step::copy_differing(MAPPED, all - 4096),
                Step::open(name),
                Step::close(),
                Step::protect(MAPPED, all, Protection(1)),
                Step::close_image(),
            ];
            let file = memory_file(c"blob").expect("there is memory");
            let bytes = blob.finish(place, 42, &steps);
            nix::unistd::write(&file, &bytes).expect("there is memory");
            let blob = Blob::map(file.as_fd()).expect("the address is free");
            let ended = blob.enter(image);
            panic!("it returned: {ended:?}");
        });
        assert_eq!(stood, Stood::Copy(42));
        let memory = std::fs::File::open("/proc/self/mem").expect("it is this process's own");
        let firsts = [0, 1, 2, 3].map(|page| {
            let mut byte = [0];
            let read = memory.read_exact_at(&mut byte, MAPPED + page * 4096);
            read.expect("it is mapped");
            byte[0]
        });
        assert_eq!(firsts, [1, 2, 3, 0]);
        let link = std::fs::read_link(format!("/proc/self/fd/{image}"));
        assert!(!link.is_ok_and(|link| link.starts_with("/memfd:image")));
    }
}
