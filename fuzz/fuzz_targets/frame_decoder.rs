//! A worker's bytes, cut in two ways: nothing panics, and the cut makes no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandfork::protocol::{Decoder, FrameError, FrameLimits, MessageError, Reply};

fuzz_target!(|bytes: &[u8]| {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let pieces = decode(stream.chunks(usize::from(piece).max(1)));
    assert_eq!(decode(std::iter::once(stream)), pieces);
});

type Replies = Vec<Result<Reply, MessageError>>;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Replies, Result<(), FrameError>) {
    let mut decoder = Decoder::new(FrameLimits::FROM_WORKER);
    let mut replies = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(frame)) => replies.push(Reply::parse(&frame)),
                Ok(None) => break,
                Err(error) => return (replies, Err(error)),
            }
        }
    }
    (replies, decoder.finish())
}
