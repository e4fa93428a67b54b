//! A worker's bytes, split in three ways: the split makes no difference, no byte is lost, and
//! encoding the frames yields the original bytes.

use sandfork::internals::protocol::frame::encode_with;
use sandfork::internals::protocol::{Decoder, Frame, FrameError, FrameLimits};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "frames",
    run,
    inputs: 100_000,
};

/// The first byte is the piece length of the second reading.
fn run(bytes: &[u8]) -> bool {
    let Some((&piece, stream)) = bytes.split_first() else {
        return false;
    };
    let whole = read(std::iter::once(stream));
    let pieces = read(stream.chunks(usize::from(piece).max(1)));
    assert_eq!(whole, pieces, "pieces of {piece} bytes make a difference");
    assert_eq!(
        whole,
        read(uneven(stream)),
        "uneven pieces make a difference"
    );
    check(&whole, stream);
    whole.end.is_ok()
}

#[derive(Debug, Eq, PartialEq)]
struct Read {
    frames: Vec<Frame>,
    end: Result<(), FrameError>,
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let mut decoder = Decoder::new(FrameLimits::FROM_WORKER);
    let mut frames = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    let again = decoder.decode(&mut [].as_slice());
                    assert_eq!(again, Err(error.clone()), "a failed decoder goes on");
                    let end = Err(error);
                    return Read { frames, end };
                }
            }
        }
        assert!(piece.is_empty(), "a decoder that wants more left bytes");
    }
    let end = Ok(());
    Read { frames, end }
}

/// Splits the bytes into pieces of 1, 2, 3, ... bytes.
fn uneven(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut length = 0;
    std::iter::from_fn(move || {
        length += 1;
        let (piece, tail) = rest.split_at(length.min(rest.len()));
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Checks that every byte is in a frame or after the last one, where no complete frame remains.
fn check(read: &Read, stream: &[u8]) {
    let mut written = Vec::new();
    for frame in &read.frames {
        let encoded: Result<(), FrameError> = encode_with(
            &frame.payload,
            &FrameLimits::FROM_WORKER,
            &mut written,
            |out| {
                out.extend_from_slice(&frame.header);
                Ok(())
            },
        );
        encoded.expect("a frame that was read is within the limits");
    }
    assert!(stream.starts_with(&written), "frames are not what came");
    let mut rest = &stream[written.len()..];
    if read.end.is_ok() {
        let again = Decoder::new(FrameLimits::FROM_WORKER).decode(&mut rest);
        assert_eq!(again, Ok(None), "a frame at the end was not read");
    } else {
        assert!(rest.len() >= 8, "refused before both lengths were there");
    }
}
