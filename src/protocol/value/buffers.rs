//! The buffers of a message that came, by number.

use std::ops::Range;

use super::ValueError;
use crate::protocol::Blob;

/// A message's buffers: what [`Value::bytes`](super::Value::bytes) and its like look into.
#[derive(Clone, Debug, Default)]
pub struct Buffers<'a> {
    bytes: &'a [u8],
    places: Vec<Range<usize>>,
}

impl<'a> Buffers<'a> {
    /// The buffers of `blob`, all of whose bytes are `bytes`: a frame's payload, or a mapped file.
    ///
    /// # Errors
    ///
    /// When there are more or fewer bytes than the blob says.
    pub fn new(blob: &Blob, bytes: &'a [u8]) -> Result<Self, ValueError> {
        let found = bytes.len() as u64;
        if found != blob.total() {
            return Err(ValueError::Total {
                expected: blob.total(),
                found,
            });
        }
        // Each place ends before `total`, which is the length of something in memory.
        let inside = |range: Range<u64>| {
            Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
        };
        Ok(Self {
            bytes,
            places: blob.ranges().filter_map(inside).collect(),
        })
    }

    /// The bytes of one buffer.
    pub fn get(&self, buffer: u32) -> Option<&'a [u8]> {
        let place = self.places.get(usize::try_from(buffer).ok()?)?;
        self.bytes.get(place.clone())
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
