//! Encodes and decodes frames: `u32` header length, `u32` payload length, header, payload; little-endian.
//!
//! [`Decoder`] accepts bytes as they arrive, in pieces of any size, and returns whole frames. It buffers
//! at most one frame, and its allocations grow with the bytes that have arrived, not with the announced
//! lengths: a length that a hostile peer announces costs nothing until the bytes arrive.

use thiserror::Error;

/// The size of the two lengths before the header, bytes.
pub const PREFIX: usize = 8;

/// The initial capacity for a header, bytes. Most headers are shorter.
const USUAL_HEADER: usize = 512;

/// The maximum lengths of a frame's parts, bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameLimits {
    /// The maximum length of the header.
    pub header: usize,
    /// The maximum length of the payload.
    pub payload: usize,
}

impl FrameLimits {
    /// The supervisor's limits on frames from a worker.
    pub const FROM_WORKER: Self = Self {
        header: 2 << 20,
        payload: 16 << 20,
    };

    /// The limits on frames to a worker. The payload limits the size of a guest's source.
    pub const TO_WORKER: Self = Self {
        header: 2 << 20,
        payload: 16 << 20,
    };

    /// The limits on frames from a caller, which is trusted: those on frames to a worker.
    pub const FROM_CALLER: Self = Self::TO_WORKER;

    /// The limits on frames to a caller. They leave room for the supervisor's additions to a worker's data.
    pub const TO_CALLER: Self = Self {
        header: 8 << 20,
        payload: 16 << 20,
    };

    /// Checks the lengths of a complete or announced frame.
    fn check(&self, header: usize, payload: usize) -> Result<(), FrameError> {
        if header == 0 {
            return Err(FrameError::HeaderEmpty);
        }
        if header > self.header {
            return Err(FrameError::HeaderTooLong {
                length: header,
                limit: self.header,
            });
        }
        if payload > self.payload {
            return Err(FrameError::PayloadTooLong {
                length: payload,
                limit: self.payload,
            });
        }
        Ok(())
    }
}

/// A frame with an unparsed header.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Frame {
    /// The JSON header, not yet validated: see [`Reply::parse`](super::Reply::parse).
    pub header: Vec<u8>,
    /// Raw bytes, whose meaning the message defines.
    pub payload: Vec<u8>,
}

/// Appends a frame, whose header the function `write` appends. Leaves `out` unchanged if the frame
/// exceeds `limits` or `write` fails.
pub fn encode_with<E: From<FrameError>>(
    payload: &[u8],
    limits: &FrameLimits,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.reserve(PREFIX + USUAL_HEADER + payload.len());
    out.extend_from_slice(&[0; PREFIX]);
    let written = write(out).and_then(|()| {
        let header = out.len() - start - PREFIX;
        limits.check(header, payload.len())?;
        // The lengths fit 32 bits, because the limits are far lower.
        let lengths = [header, payload.len()].map(|length| u32::try_from(length).unwrap_or(0));
        out[start..start + PREFIX].copy_from_slice(lengths.map(u32::to_le_bytes).as_flattened());
        out.extend_from_slice(payload);
        Ok(())
    });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// The reason why bytes are not a frame. After any of these errors the next frame boundary is unknown.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame has no header.
    #[error("the header of a frame is empty")]
    HeaderEmpty,
    /// The header exceeds the limit.
    #[error("a header of {length} bytes is over the limit of {limit}")]
    HeaderTooLong {
        /// The announced length.
        length: usize,
        /// The configured limit.
        limit: usize,
    },
    /// The payload exceeds the limit.
    #[error("a payload of {length} bytes is over the limit of {limit}")]
    PayloadTooLong {
        /// The announced length.
        length: usize,
        /// The configured limit.
        limit: usize,
    },
}

/// Decodes a stream of bytes into frames.
#[derive(Debug)]
pub struct Decoder {
    limits: FrameLimits,
    state: State,
}

#[derive(Debug)]
enum State {
    Prefix {
        bytes: [u8; PREFIX],
        filled: usize,
    },
    Body {
        header_length: usize,
        payload_length: usize,
        frame: Frame,
    },
    Failed(FrameError),
}

impl State {
    const START: Self = Self::Prefix {
        bytes: [0; PREFIX],
        filled: 0,
    };
}

impl Decoder {
    /// Creates a decoder for the start of a stream.
    pub const fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            state: State::START,
        }
    }

    /// Consumes bytes from the front of `input` until a frame is complete or `input` is empty.
    ///
    /// `Ok(None)` means that all of `input` was consumed and more is needed, so
    /// `while let Some(frame) = decoder.decode(&mut input)?` handles one read from the peer. Bytes
    /// after a frame stay in `input`: the decoder never reads ahead.
    ///
    /// # Errors
    ///
    /// If a frame is invalid or exceeds a limit. All later calls then return the same error, because the
    /// start of the next frame is unknown.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        loop {
            match &mut self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Prefix { bytes, filled } => {
                    let taken = take(input, PREFIX - *filled);
                    bytes[*filled..*filled + taken.len()].copy_from_slice(taken);
                    *filled += taken.len();
                    if *filled < PREFIX {
                        return Ok(None);
                    }
                    let bytes = *bytes;
                    self.state = self.begin_body(bytes)?;
                }
                State::Body {
                    header_length,
                    payload_length,
                    frame,
                } => {
                    fill(&mut frame.header, *header_length, input);
                    if frame.header.len() == *header_length {
                        fill(&mut frame.payload, *payload_length, input);
                        if frame.payload.len() == *payload_length {
                            let frame = std::mem::take(frame);
                            self.state = State::START;
                            return Ok(Some(frame));
                        }
                    }
                    return Ok(None);
                }
            }
        }
    }

    fn begin_body(&mut self, prefix: [u8; PREFIX]) -> Result<State, FrameError> {
        let [h0, h1, h2, h3, p0, p1, p2, p3] = prefix;
        let header_length = u32::from_le_bytes([h0, h1, h2, h3]) as usize;
        let payload_length = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        if let Err(error) = self.limits.check(header_length, payload_length) {
            self.state = State::Failed(error.clone());
            return Err(error);
        }
        Ok(State::Body {
            header_length,
            payload_length,
            frame: Frame::default(),
        })
    }
}

/// Removes at most `count` bytes from the front of `input` and returns them.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

/// Moves bytes from `input` to `part` until `part` has `length` bytes.
fn fill(part: &mut Vec<u8>, length: usize, input: &mut &[u8]) {
    let taken = take(input, length - part.len());
    if taken.len() == length {
        // Usually one read contains the whole part, so the allocation is exact.
        part.reserve_exact(length);
    }
    part.extend_from_slice(taken);
}
