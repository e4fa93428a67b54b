//! A caller's messages: an accepted message survives encoding and decoding.

use sandfork::internals::protocol::Frame;
use sandfork::internals::protocol::caller::ClientRequest;

use crate::Target;
use crate::replies::refused;
use crate::source::text_and_rest;

pub(crate) const TARGET: Target = Target {
    name: "asks",
    run,
    inputs: 68_000,
};

fn run(bytes: &[u8]) -> bool {
    let (header, payload) = text_and_rest(bytes);
    let frame = |header: Vec<u8>| Frame {
        header,
        payload: payload.to_vec(),
    };
    match ClientRequest::parse(&frame(header.to_vec())) {
        Ok(ask) => {
            let written = serde_json::to_vec(&ask).expect("a message is written");
            let again = ClientRequest::parse(&frame(written.clone()));
            let again = again.unwrap_or_else(|error| panic!("{ask:?} is refused again: {error}"));
            let again = serde_json::to_vec(&again).expect("a message is written");
            assert_eq!(
                String::from_utf8_lossy(&written),
                String::from_utf8_lossy(&again)
            );
            true
        }
        Err(error) => refused(&error),
    }
}
