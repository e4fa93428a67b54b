//! The binary part of a message: buffers that its values refer to by number.
//!
//! Small blobs are the frame's payload. Large ones are a file passed with the frame (unix(7),
//! `SCM_RIGHTS`), so that an array crosses without being copied through a socket. Each buffer
//! begins at a multiple of [`ALIGNMENT`], where arrays of any element type can be mapped.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The alignment of buffers, bytes.
pub const ALIGNMENT: u64 = 64;

/// The largest blob that travels as a payload, bytes. A larger one is passed as a file.
pub const LARGEST_PAYLOAD: u64 = 64 << 10;

/// The largest blob of the result of a run, bytes. The supervisor holds it until the caller takes the
/// outcome, and a batch holds four outcomes for each run at once.
pub const LARGEST_OF_RUN: u64 = 4 << 20;

/// The largest blob of one message, bytes.
pub const LARGEST: u64 = 4 << 30;

/// The number of buffers, their lengths, and their transport: the field `blob`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Blob {
    lengths: Vec<u64>,
    transport: Transport,
    total: u64,
}

/// How a blob's bytes travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// As the frame's payload.
    Payload,
    /// In a file passed with the frame.
    Passed,
}

/// Why a blob was refused.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("a blob of {buffers} buffers is empty, or longer than {LARGEST} bytes")]
pub struct BlobError {
    buffers: usize,
}

impl Blob {
    /// A blob with buffers of these lengths.
    ///
    /// # Errors
    ///
    /// If there is no buffer, or their total is above [`LARGEST`].
    pub fn new(lengths: Vec<u64>, transport: Transport) -> Result<Self, BlobError> {
        let refused = BlobError {
            buffers: lengths.len(),
        };
        let total = ranges(&lengths)
            .last()
            .flatten()
            .map(|last| last.end)
            .filter(|total| *total <= LARGEST)
            .ok_or(refused)?;
        Ok(Self {
            lengths,
            transport,
            total,
        })
    }

    /// How the bytes travel.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// The same buffers with another transport.
    #[must_use]
    pub const fn travelling(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Bytes from the start of the first buffer to the end of the last one.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The length of each buffer, bytes.
    pub fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// The range of each buffer in the blob.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        // The constructor checked that no range overflows.
        ranges(&self.lengths).flatten()
    }
}

/// The range of each buffer. `None` replaces the first one whose address overflows, and all later
/// ones.
fn ranges(lengths: &[u64]) -> impl Iterator<Item = Option<Range<u64>>> + '_ {
    lengths.iter().scan(Some(0u64), |end, length| {
        let range = end
            .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
            .and_then(|start| Some(start..start.checked_add(*length)?));
        *end = range.as_ref().map(|range| range.end);
        Some(range)
    })
}

#[derive(Serialize, Deserialize)]
struct Fields {
    lengths: Vec<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    passed: bool,
}

impl TryFrom<Fields> for Blob {
    type Error = BlobError;

    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        let transport = if fields.passed {
            Transport::Passed
        } else {
            Transport::Payload
        };
        Self::new(fields.lengths, transport)
    }
}

impl From<Blob> for Fields {
    fn from(blob: Blob) -> Self {
        Self {
            passed: blob.transport == Transport::Passed,
            lengths: blob.lengths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_aligned_places() {
        let blob = Blob::new(vec![1, 64, 0, 3], Transport::Payload).expect("these fit");
        let places: Vec<_> = blob.ranges().collect();
        assert_eq!(places, [0..1, 64..128, 128..128, 128..131]);
        assert_eq!(blob.total(), 131);
    }

    #[test]
    fn lengths_that_wrap_around_are_refused() {
        for lengths in [
            vec![],
            vec![u64::MAX],
            vec![1, u64::MAX - 64],
            vec![LARGEST, 1],
        ] {
            assert!(
                Blob::new(lengths.clone(), Transport::Passed).is_err(),
                "{lengths:?}"
            );
        }
    }

    #[test]
    fn the_field_is_short_where_nothing_is_passed() {
        let blob = Blob::new(vec![5], Transport::Payload).expect("it fits");
        let text = serde_json::to_string(&blob).expect("it is written");
        assert_eq!(text, r#"{"lengths":[5]}"#);
        assert_eq!(
            serde_json::from_str::<Blob>(&text).expect("it is read"),
            blob
        );
    }
}
