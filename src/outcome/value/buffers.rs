//! The buffers of a received message, by number.

use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::Blob;
use super::ValueError;

/// A message's buffers, which [`Value::bytes`](super::Value::bytes) and similar functions read.
#[derive(Clone, Debug, Default)]
pub struct Buffers<'a> {
    bytes: &'a [u8],
    places: Vec<Range<usize>>,
}

impl Blob {
    /// The buffers in `bytes`, which has all of them: a frame's payload, or a mapped file.
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
            places: self.ranges().filter_map(inside).collect(),
        })
    }
}

/// Bytes that stay as they are: in memory, or where a file is mapped.
pub trait HeldBytes:
    Deref<Target = [u8]> + Debug + Send + Sync + UnwindSafe + RefUnwindSafe
{
}

impl<B> HeldBytes for B where
    B: Deref<Target = [u8]> + Debug + Send + Sync + UnwindSafe + RefUnwindSafe
{
}

/// The buffers of a message, which are kept with a value of it. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct HeldBuffers {
    blob: Blob,
    bytes: Arc<dyn HeldBytes>,
}

impl HeldBuffers {
    /// Those of a message that announces this blob.
    pub fn new(blob: Blob, bytes: impl HeldBytes + 'static) -> Self {
        Self {
            blob,
            bytes: Arc::new(bytes),
        }
    }

    /// Their lengths.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }

    /// All of them, one after another.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffers by number; none if the bytes are not those that the blob announces.
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
    /// The bytes of one buffer.
    pub fn get(&self, buffer: u32) -> Option<&'a [u8]> {
        let place = self.places.get(usize::try_from(buffer).ok()?)?;
        self.bytes.get(place.clone())
    }

    /// The number of buffers.
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no buffers.
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
