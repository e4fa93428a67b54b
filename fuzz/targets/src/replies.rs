//! A worker's messages: an accepted message is within the bounds, and survives encoding and
//! decoding.

use sandfork::internals::protocol::{Frame, JsonLimits, Reply};
use sandfork::internals::supervisor::ProgramStarterReport;

use crate::Target;
use crate::source::text_and_rest;

pub(crate) const TARGET: Target = Target {
    name: "replies",
    run,
    inputs: 52_000,
};

fn run(bytes: &[u8]) -> bool {
    let (header, payload) = text_and_rest(bytes);
    bounds_hold(header);
    let frame = Frame {
        header: header.to_vec(),
        payload: payload.to_vec(),
    };
    // Reports about programs are as untrusted, but smaller.
    match ProgramStarterReport::parse(&frame) {
        Ok(ProgramStarterReport::Started { pid, .. }) => assert!(pid > 0),
        Ok(ProgramStarterReport::Ended { code, signal, .. }) => {
            assert!(code.is_some() || signal.is_some());
        }
        Ok(ProgramStarterReport::Failed { .. }) | Err(_) => {}
    }
    match Reply::parse(&frame) {
        Ok(reply) => {
            assert_same_again(&reply, payload);
            true
        }
        Err(error) => refused(&error),
    }
}

/// Checks that text within the limits parses to a tree within the limits.
fn bounds_hold(header: &[u8]) {
    let limits = JsonLimits::FROM_WORKER;
    if limits.check(header).is_ok()
        && let Ok(tree) = serde_json::from_slice::<serde_json::Value>(header)
    {
        let (depth, values) = measure(&tree);
        assert!(depth <= limits.depth, "{depth} levels came through");
        assert!(values <= limits.values, "{values} values came through");
    }
}

/// Returns the depth, and the number of values including keys.
fn measure(tree: &serde_json::Value) -> (usize, usize) {
    let inner: Vec<(usize, usize)> = match tree {
        serde_json::Value::Array(items) => items.iter().map(measure).collect(),
        serde_json::Value::Object(members) => members
            .values()
            .map(measure)
            .map(|(depth, values)| (depth, values + 1))
            .collect(),
        _ => return (0, 1),
    };
    let depth = inner.iter().map(|(depth, _)| *depth).max();
    let values: usize = inner.iter().map(|(_, values)| *values).sum();
    (depth.unwrap_or_default() + 1, values + 1)
}

fn assert_same_again(reply: &Reply, payload: &[u8]) {
    // Compared as text, because NaN does not equal itself.
    let written = serde_json::to_vec(reply).expect("a message is written");
    let frame = Frame {
        header: written.clone(),
        payload: payload.to_vec(),
    };
    let again = Reply::parse(&frame);
    let again =
        again.unwrap_or_else(|error| panic!("{reply:?} is refused when read again: {error}"));
    let again = serde_json::to_vec(&again).expect("a message is written");
    assert_eq!(
        String::from_utf8_lossy(&written),
        String::from_utf8_lossy(&again)
    );
}

/// Checks that an error quotes little of the input, and no terminal control characters.
pub(crate) fn refused(error: &impl std::fmt::Display) -> bool {
    let message = error.to_string();
    assert!(message.len() < 1000, "a refusal of {} bytes", message.len());
    let control = message.chars().find(|character| character.is_control());
    assert_eq!(control, None, "a control character in {message:?}");
    false
}
