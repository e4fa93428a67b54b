//! Gives access to the buffers of a received message by number.

use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::Blob;
use super::ValueError;

/// The buffers of a message, from which [`Value::bytes`](super::Value::bytes) and similar methods read.
#[derive(Clone, Debug, Default)]
pub struct Buffers<'a> {
    bytes: &'a [u8],
    ranges: Vec<Range<usize>>,
}

impl Blob {
    /// Returns the buffers in `bytes`, the whole payload of a frame or a mapped file.
    ///
    /// # Errors
    ///
    /// If the number of bytes differs from the total.
    pub fn buffers<'a>(&self, bytes: &'a [u8]) -> Result<Buffers<'a>, ValueError> {
        let found = bytes.len() as u64;
        if found != self.total() {
            return Err(ValueError::Total {
                expected: self.total(),
                found,
            });
        }
        // Each range ends before `total`, which is the length of data in memory.
        let inside = |range: Range<u64>| {
            Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
        };
        Ok(Buffers {
            bytes,
            ranges: self.ranges().filter_map(inside).collect(),
        })
    }
}

/// Immutable bytes, in memory or in a mapped file.
pub trait HeldBytes:
    Deref<Target = [u8]> + Debug + Send + Sync + UnwindSafe + RefUnwindSafe
{
}

impl<B> HeldBytes for B where
    B: Deref<Target = [u8]> + Debug + Send + Sync + UnwindSafe + RefUnwindSafe
{
}

/// The owned buffers of a message, which are kept with a value of that message. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct HeldBuffers {
    blob: Blob,
    bytes: Arc<dyn HeldBytes>,
}

impl HeldBuffers {
    /// Creates the buffers of a message that announces this blob.
    pub fn new(blob: Blob, bytes: impl HeldBytes + 'static) -> Self {
        Self {
            blob,
            bytes: Arc::new(bytes),
        }
    }

    /// Returns the lengths of the buffers.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Returns the bytes of all buffers, with the padding between them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the buffers by number. Returns no buffers if the number of bytes differs from the blob's total.
    pub fn buffers(&self) -> Buffers<'_> {
        self.blob.buffers(&self.bytes).unwrap_or_default()
    }
}

impl PartialEq for HeldBuffers {
    fn eq(&self, other: &Self) -> bool {
        (self.blob(), self.bytes()) == (other.blob(), other.bytes())
    }
}

impl<'a> Buffers<'a> {
    /// Returns the bytes of one buffer.
    pub fn get(&self, buffer: u32) -> Option<&'a [u8]> {
        let range = self.ranges.get(usize::try_from(buffer).ok()?)?;
        self.bytes.get(range.clone())
    }

    /// Returns the number of buffers.
    pub const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there are no buffers.
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}
