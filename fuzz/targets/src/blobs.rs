//! Compares the offsets of buffers with arithmetic that cannot overflow.

use sandfork::internals::outcome::value::blob::{ALIGNMENT, Blob, LARGEST, Transport};

use crate::Target;
use crate::replies::refused;
use crate::source::Source;

pub(crate) const TARGET: Target = Target {
    name: "blobs",
    run,
    inputs: 100_000,
};

/// Reads eight bytes for each length; an odd number of bytes tests the other direction.
fn run(bytes: &[u8]) -> bool {
    let way = if bytes.len().is_multiple_of(2) {
        Transport::Payload
    } else {
        Transport::Passed
    };
    let mut source = Source::new(bytes);
    let mut lengths = Vec::new();
    while !source.is_empty() {
        lengths.push(source.long());
    }
    let expected = places(&lengths);
    match Blob::new(lengths, way) {
        Ok(blob) => {
            let expected = expected.expect("a blob is taken that is empty or too long");
            let found: Vec<(u128, u128)> = blob
                .ranges()
                .map(|range| (range.start.into(), range.end.into()))
                .collect();
            assert_eq!(found, expected);
            assert_eq!(u128::from(blob.total()), expected[expected.len() - 1].1);
            assert_same_again(&blob);
            true
        }
        Err(error) => {
            assert_eq!(expected, None, "an honest blob is refused");
            refused(&error)
        }
    }
}

/// Computes the offsets as in docs/protocol.md: each buffer starts at the first multiple of 64 at or after the
/// end of the previous one. Sums of up to 2^60 lengths fit.
fn places(lengths: &[u64]) -> Option<Vec<(u128, u128)>> {
    let alignment = u128::from(ALIGNMENT);
    let mut places = Vec::new();
    let mut end = 0u128;
    for length in lengths {
        let start = end.div_ceil(alignment) * alignment;
        end = start + u128::from(*length);
        places.push((start, end));
    }
    (!places.is_empty() && end <= u128::from(LARGEST)).then_some(places)
}

fn assert_same_again(blob: &Blob) {
    let text = serde_json::to_vec(blob).expect("serialization succeeds");
    let again: Blob = serde_json::from_slice(&text).expect("the file is readable");
    assert_eq!(&again, blob);
}
