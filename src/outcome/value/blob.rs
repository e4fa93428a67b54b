//! The binary part of a message: buffers that its values refer to by number.
//!
//! A small blob is the frame's payload. A large blob is a file whose descriptor is passed with the frame
//! (unix(7), `SCM_RIGHTS`), so that an array is not copied through a socket. Each buffer begins at a
//! multiple of [`ALIGNMENT`], so that arrays of any element type can be mapped there.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The alignment of buffers, bytes.
pub const ALIGNMENT: u64 = 64;

/// The largest blob that is sent as a payload, bytes. A larger blob is passed as a file.
pub const LARGEST_PAYLOAD: u64 = 64 << 10;

/// The largest blob of the result of a run, bytes. The supervisor holds it until the caller takes the
/// outcome, and a batch holds four outcomes for each run at once.
pub const LARGEST_OF_RUN: u64 = 4 << 20;

/// The largest blob of one message, bytes.
pub const LARGEST: u64 = 4 << 30;

/// The `blob` field of a message: the lengths of its buffers, and their transport.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Blob {
    lengths: Vec<u64>,
    transport: Transport,
    total: u64,
}

/// The transport of a blob's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// As the frame's payload.
    Payload,
    /// In a file whose descriptor is passed with the frame.
    Passed,
}

/// The error for a blob that is empty or too long.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("a blob of {buffers} buffers is empty, or longer than {LARGEST} bytes")]
pub struct BlobError {
    buffers: usize,
}

impl Blob {
    /// Creates a blob with buffers of these lengths.
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

    /// Returns the transport.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Sets the transport.
    #[must_use]
    pub const fn with_transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Returns the number of bytes from the start of the first buffer to the end of the last one.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the length of each buffer, bytes.
    pub fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// Returns the byte range of each buffer in the blob.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        // The constructor checked that no range overflows.
        ranges(&self.lengths).flatten()
    }
}

/// Returns the byte range of each buffer. Yields `None` from the first buffer whose end overflows.
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
    fn buffers_start_at_aligned_offsets() {
        let blob = Blob::new(vec![1, 64, 0, 3], Transport::Payload).expect("these fit");
        let ranges: Vec<_> = blob.ranges().collect();
        assert_eq!(ranges, [0..1, 64..128, 128..128, 128..131]);
        assert_eq!(blob.total(), 131);
    }

    #[test]
    fn overflowing_lengths_are_rejected() {
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
    fn payload_blob_omits_passed() {
        let blob = Blob::new(vec![5], Transport::Payload).expect("it fits");
        let text = serde_json::to_string(&blob).expect("it is written");
        assert_eq!(text, r#"{"lengths":[5]}"#);
        assert_eq!(
            serde_json::from_str::<Blob>(&text).expect("it is read"),
            blob
        );
    }
}
