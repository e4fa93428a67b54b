//! This side's reading of the bytes that the Python readers are tested with.
//!
//! `fuzz/python` sends a question on standard input: one byte for the kind, `u32` length, bytes;
//! little-endian. The answer is `+` or `-`, `u32` length, bytes.

use std::io::{self, Read, Write};

use sandfork::protocol::{Blob, Decoder, FrameLimits, JsonLimits, Transport, Value};
use serde_json::Map;

use crate::source::text_and_rest;

/// Answers until standard input ends.
///
/// # Errors
///
/// When a pipe breaks, or a question has an unknown kind.
pub fn serve(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    loop {
        let mut prefix = [0; 5];
        if from.read(&mut prefix[..1])? == 0 {
            return Ok(());
        }
        from.read_exact(&mut prefix[1..])?;
        let [kind, length @ ..] = prefix;
        let mut question = vec![0; u32::from_le_bytes(length) as usize];
        from.read_exact(&mut question)?;
        let answer = match kind {
            b'f' => frames(&question),
            b'v' => value(&question),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let (verdict, text) = match answer {
            Ok(text) => (b'+', text),
            Err(text) => (b'-', text),
        };
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        to.write_all(&[&[verdict], &length.to_le_bytes()[..], text.as_bytes()].concat())?;
        to.flush()?;
    }
}

/// The lengths of the frames of a stream whose headers must be JSON objects.
fn frames(mut stream: &[u8]) -> Result<String, String> {
    let mut decoder = Decoder::new(FrameLimits::TO_CALLER);
    let mut lengths: Vec<[usize; 2]> = Vec::new();
    loop {
        let frame = decoder
            .decode(&mut stream)
            .map_err(|error| error.to_string())?;
        let Some(frame) = frame else {
            return serde_json::to_string(&lengths).map_err(|error| error.to_string());
        };
        let header: Map<String, serde_json::Value> =
            serde_json::from_slice(&frame.header).map_err(|error| error.to_string())?;
        drop(header);
        lengths.push([frame.header.len(), frame.payload.len()]);
    }
}

/// Parses a tree, if the buffers of these lengths fit it, and encodes it again.
fn value(question: &[u8]) -> Result<String, String> {
    let (tree, lengths) = text_and_rest(question);
    let value: Value = JsonLimits::FROM_WORKER
        .from_slice(tree)
        .map_err(|error| error.to_string())?;
    let lengths: Vec<u64> = serde_json::from_slice(lengths).map_err(|error| error.to_string())?;
    let blob = if lengths.is_empty() {
        None
    } else {
        Some(Blob::new(lengths, Transport::Payload).map_err(|error| error.to_string())?)
    };
    value
        .check(blob.as_ref())
        .map_err(|error| error.to_string())?;
    serde_json::to_string(&value).map_err(|error| error.to_string())
}
