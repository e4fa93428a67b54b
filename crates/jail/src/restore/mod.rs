//! Encodes what the supervisor sends to a worker that replaces its memory by another worker's: an order for the
//! worker's native half, and steps for the code that replaces the memory. Pure.
//!
//! The supervisor computes both from the kernel's view of the two processes. The worker executes them with a guest's
//! privileges.

mod step;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::DATA;
use crate::sys::checkpoint::{BUFFER_AT, DATA_AT, failure, header};

pub use self::step::{Place, Protection, STEP, Sharing, Step};

/// The work that the worker does before its memory is replaced.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The directories to restore, in the order of their contents in the archive.
    pub trees: Vec<String>,
    /// The number of image files that contain the memory.
    pub images: usize,
    /// The descriptors to recreate.
    pub descriptors: Vec<Descriptor>,
}

/// A descriptor to recreate.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Descriptor {
    /// The descriptor number.
    pub number: i32,
    /// Whether the descriptor stays open across execve(2).
    pub inherited: bool,
    /// The object that the descriptor is open on.
    pub open: Opened,
}

/// The object that a descriptor is open on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opened {
    /// The open file of another descriptor, which every worker has or which comes earlier in the list.
    Same(i32),
    /// A file.
    File {
        /// The path of the file.
        path: String,
        /// The flags of open(2).
        flags: i32,
        /// The file offset.
        position: u64,
    },
}

/// The maximum length of a blob, bytes. The window follows it.
pub const LARGEST_BLOB: u64 = 240 << 20;

/// The length of the window into which image pages are mapped for comparison, bytes.
pub const WINDOW: u64 = 16 << 20;

/// A blob under construction: file names and steps.
#[derive(Debug)]
pub struct BlobData {
    blob: u64,
    data: Vec<u8>,
}

impl BlobData {
    /// Returns empty data for a blob at this address.
    pub fn new(blob: u64) -> Self {
        Self {
            blob,
            data: Vec::new(),
        }
    }

    /// Returns the address of the buffer, of [`BUFFER`](crate::sys::checkpoint::BUFFER) bytes.
    pub fn buffer(&self) -> u64 {
        self.blob + BUFFER_AT as u64
    }

    /// Returns the address of the window, of [`WINDOW`] bytes, in which nothing is mapped initially.
    pub fn window(&self) -> u64 {
        self.blob + LARGEST_BLOB
    }

    /// Returns the end address of a blob of this length.
    pub fn end_of(&self, length: u64) -> u64 {
        self.blob + length
    }

    fn address(&self) -> u64 {
        self.blob + (DATA_AT + self.data.len()) as u64
    }

    /// Adds a file name and returns its address.
    pub fn name(&mut self, path: &str) -> u64 {
        let address = self.address();
        self.data.extend(path.as_bytes());
        self.data.push(0);
        address
    }

    /// Adds the steps, and returns the contents of the file that [`Blob::map`](crate::sys::checkpoint::Blob::map)
    /// reads. `place` is the address of the other process's resume point, and `number` the number of the restore, which
    /// [`suspend`](crate::sys::checkpoint::suspend) returns in the copy.
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
            (header::LINK, u64::from(DATA.unsigned_abs())),
        ];
        let mut bytes = vec![0; header::LENGTH];
        for (at, value) in fields {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let frame = header::FRAME..header::FRAME + failure::FRAME.len();
        bytes[frame].copy_from_slice(failure::FRAME);
        bytes.append(&mut self.data);
        bytes
    }
}
