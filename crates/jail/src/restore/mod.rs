//! What the supervisor sends to a worker that is to take on the memory of another: an order for the worker's native
//! half, and steps for the code that replaces the memory. Pure.
//!
//! The supervisor makes both, from what the kernel says of the two processes. The worker carries them out with a
//! guest's rights.

mod step;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::DATA;
use crate::sys::checkpoint::{BUFFER_AT, DATA_AT, failure, header};

pub use self::step::{Place, Protection, STEP, Sharing, Step};

/// What the worker does before its memory is replaced.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The directories whose contents the file of trees has, in its order.
    pub trees: Vec<String>,
    /// How many files have the memory.
    pub images: usize,
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

/// The most bytes of a blob. The window is behind it.
pub const LARGEST_BLOB: u64 = 240 << 20;

/// The length of the window, through which pages of an image are compared.
pub const WINDOW: u64 = 16 << 20;

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

    /// The address of the window, of [`WINDOW`] bytes, in which nothing is mapped at first.
    pub fn window(&self) -> u64 {
        self.blob + LARGEST_BLOB
    }

    /// The address behind a blob that is this long.
    pub fn end_of(&self, length: u64) -> u64 {
        self.blob + length
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
