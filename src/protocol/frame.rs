//! The frame codec: `u32` header length, `u32` payload length, header, payload; little-endian.
//!
//! [`Decoder`] takes the bytes as they arrive, in pieces of any size, and returns whole frames. It
//! holds at most one frame, copies each byte once, and never reserves more than the bytes that have
//! arrived. A length that a hostile peer announces costs nothing until the bytes arrive.

use thiserror::Error;

/// Bytes before the header: the two lengths.
pub const PREFIX: usize = 8;

/// The initial capacity for a header, bytes. Most headers are shorter.
const USUAL_HEADER: usize = 512;

/// The maximum lengths of a frame's parts, bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameLimits {
    /// Longest header.
    pub header: usize,
    /// Longest payload.
    pub payload: usize,
}

impl FrameLimits {
    /// The limits of a supervisor on a worker's frames.
    pub const FROM_WORKER: Self = Self {
        header: 2 << 20,
        payload: 16 << 20,
    };

    /// The limits on frames to a worker. The payload limits the size of a guest's source.
    pub const TO_WORKER: Self = Self {
        header: 2 << 20,
        payload: 16 << 20,
    };

    /// The limits on frames from a caller, which is trusted: the same as on frames to a worker.
    pub const FROM_CALLER: Self = Self::TO_WORKER;

    /// The limits on frames to a caller: a worker's data and the supervisor's additions.
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

/// One frame with an unparsed header.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Frame {
    /// JSON text in UTF-8, unchecked: see [`Reply::parse`](super::Reply::parse).
    pub header: Vec<u8>,
    /// Raw bytes. The message defines their meaning.
    pub payload: Vec<u8>,
}

/// Appends a frame whose header `write` appends. Leaves `out` unchanged if the frame exceeds
/// `limits` or the header could not be written.
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
        // The limits are far below what 32 bits hold.
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

/// Why bytes are not frames. After any of these errors the stream has no known frame boundary.
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

/// Turns bytes into frames.
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
    /// A decoder at the start of a stream.
    pub const fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            state: State::START,
        }
    }

    /// Takes bytes from the front of `input` until a frame is complete or `input` is empty.
    ///
    /// `Ok(None)` means that all of `input` was taken and more is needed, so
    /// `while let Some(frame) = decoder.decode(&mut input)?` handles one read from
    /// the peer. Bytes after a frame stay in `input`: nothing is buffered ahead of the caller.
    ///
    /// # Errors
    ///
    /// If the peer exceeded a limit. The decoder then stays failed, since nothing shows where the
    /// next frame would begin.
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

/// Takes at most `count` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

/// Moves bytes from `input` until `part` has `length` of them.
fn fill(part: &mut Vec<u8>, length: usize, input: &mut &[u8]) {
    let taken = take(input, length - part.len());
    if taken.len() == length {
        // In the usual case one read has the whole part, and the allocation is exact.
        part.reserve_exact(length);
    }
    part.extend_from_slice(taken);
}
