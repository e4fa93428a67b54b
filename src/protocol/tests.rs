//! Tests the codec and the messages with arbitrary bytes, split at arbitrary positions.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::frame::encode_with;
use super::message::{AfterCell, ResultMode, SourceKind, encode_message};
use super::{
    CellResult, Decoder, Denied, Ended, Frame, FrameError, FrameLimits, GuestError, JsonError,
    JsonLimits, MessageError, Reply, Request, Value,
};

const SMALL: FrameLimits = FrameLimits {
    header: 64,
    payload: 256,
};

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let frame = (
        prop::collection::vec(any::<u8>(), 1..=64),
        prop::collection::vec(any::<u8>(), 0..=256),
    )
        .prop_map(|(header, payload)| Frame { header, payload });
    prop::collection::vec(frame, 0..8)
}

/// Feeds `bytes` to a decoder in pieces of the given sizes, and repeats the last size.
fn decode_in_pieces(bytes: &[u8], sizes: &[usize]) -> Result<Vec<Frame>, FrameError> {
    let mut decoder = Decoder::new(SMALL);
    let mut frames = Vec::new();
    let mut rest = bytes;
    let mut sizes = sizes
        .iter()
        .chain(std::iter::repeat(sizes.last().unwrap_or(&1)));
    while !rest.is_empty() {
        let (mut piece, tail) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        rest = tail;
        while let Some(frame) = decoder.decode(&mut piece)? {
            frames.push(frame);
        }
        assert!(
            piece.is_empty(),
            "a decoder that needs more has consumed everything"
        );
    }
    Ok(frames)
}

fn append(frame: &Frame, out: &mut Vec<u8>) -> Result<(), FrameError> {
    encode_with(&frame.payload, &SMALL, out, |out| {
        out.extend_from_slice(&frame.header);
        Ok(())
    })
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        append(frame, &mut bytes).unwrap();
    }
    bytes
}

fn reply(header: &str) -> Result<Reply, MessageError> {
    Reply::parse(&Frame {
        header: header.as_bytes().to_vec(),
        payload: Vec::new(),
    })
}

proptest! {
    #[test]
    fn frames_round_trip_however_split(frames in frames(), sizes in prop::collection::vec(1usize..100, 1..40)) {
        prop_assert_eq!(decode_in_pieces(&encode(&frames), &sizes).unwrap(), frames);
    }

    #[test]
    fn garbage_decodes_alike_however_split(
        bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..600),
        sizes in prop::collection::vec(1usize..100, 1..40),
    ) {
        let whole = decode_in_pieces(&bytes, &[bytes.len().max(1)]);
        prop_assert_eq!(decode_in_pieces(&bytes, &sizes), whole);
    }

    #[test]
    fn decoder_stays_failed(header in 65u32.., payload in any::<u32>()) {
        let mut decoder = Decoder::new(SMALL);
        let bytes = [header.to_le_bytes(), payload.to_le_bytes()].concat();
        let error = FrameError::HeaderTooLong { length: header as usize, limit: 64 };
        prop_assert_eq!(decoder.decode(&mut bytes.as_slice()), Err(error.clone()));
        prop_assert_eq!(decoder.decode(&mut encode(&[]).as_slice()), Err(error));
    }

    #[test]
    fn parser_never_panics(header in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Reply::parse(&Frame { header, payload: Vec::new() });
    }

    #[test]
    fn parser_never_panics_on_almost_json(header in r#"[\[\]{}:,"\\ 0-9eE+.a-z-]{0,200}"#) {
        let _ = reply(&header);
    }

    #[test]
    fn limits_count_at_least_as_much_as_a_parser(json in json()) {
        let (depth, values) = measure(&json);
        let text = json.to_string();
        let exact = JsonLimits { depth, values, string: text.len(), number: text.len() };
        prop_assert_eq!(exact.check(text.as_bytes()), Ok(()));
        let shallow = JsonLimits { depth: depth.wrapping_sub(1), ..exact };
        prop_assert!(depth == 0 || shallow.check(text.as_bytes()).is_err());
        let few = JsonLimits { values: values - 1, ..exact };
        prop_assert!(few.check(text.as_bytes()).is_err());
    }

    #[test]
    fn results_round_trip(result in results()) {
        let mut bytes = Vec::new();
        let reply = Reply::Result(result);
        encode_message(&reply, &[], &FrameLimits::FROM_WORKER, &mut bytes).unwrap();
        let frame = Decoder::new(FrameLimits::FROM_WORKER).decode(&mut bytes.as_slice());
        let parsed = Reply::parse(&frame.unwrap().unwrap()).unwrap();
        prop_assert_eq!(parsed, reply);
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        r#"[\\"]{0,6}"#.prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
            prop::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Returns the depth and the number of values, including keys.
fn measure(value: &serde_json::Value) -> (usize, usize) {
    let (inner, keys): (Vec<_>, usize) = match value {
        serde_json::Value::Array(items) => (items.iter().map(measure).collect(), 0),
        serde_json::Value::Object(map) => (map.values().map(measure).collect(), map.len()),
        _ => return (0, 1),
    };
    let depth = inner.iter().map(|(depth, _)| depth).max().unwrap_or(&0) + 1;
    (
        depth,
        1 + keys + inner.iter().map(|(_, values)| values).sum::<usize>(),
    )
}

fn results() -> impl Strategy<Value = CellResult> {
    let error = (
        any::<String>(),
        any::<String>(),
        any::<String>(),
        any::<Option<i32>>(),
    )
        .prop_map(|(name, message, traceback, errno)| GuestError {
            name,
            message,
            traceback,
            errno,
        });
    let value = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<String>().prop_map(Value::Str),
        any::<String>().prop_map(Value::opaque),
        Just(Value::Float(0.1)),
    ];
    let ended = prop_oneof![
        prop::option::of(value).prop_map(Ended::Ok),
        error.prop_map(Ended::Exception),
        any::<u8>().prop_map(Ended::Exit),
    ];
    let denied = (
        any::<String>(),
        any::<Option<String>>(),
        any::<Option<i32>>(),
    )
        .prop_map(|(operation, target, errno)| Denied {
            operation,
            target,
            errno,
            count: 1,
            ..Denied::default()
        });
    (any::<u64>(), ended, prop::collection::vec(denied, 0..3)).prop_map(|(id, ended, denied)| {
        let mut result = CellResult::new(id, ended);
        result.denied = denied;
        result
    })
}

#[test]
fn announced_lengths_reserve_nothing() {
    let mut decoder = Decoder::new(FrameLimits {
        header: usize::MAX,
        payload: usize::MAX,
    });
    // Each prefix announces eight gigabytes, more than many machines have.
    for _ in 0..64 {
        assert_eq!(decoder.decode(&mut [0xff; 8].as_slice()), Ok(None));
    }
}

#[test]
fn lengths_above_the_limit_are_rejected() {
    let mut out = Vec::new();
    let at = Frame {
        header: vec![b' '; SMALL.header],
        payload: vec![0; SMALL.payload],
    };
    append(&at, &mut out).unwrap();
    let before = out.clone();

    let over = Frame {
        header: vec![b' '; SMALL.header + 1],
        payload: Vec::new(),
    };
    assert!(matches!(
        append(&over, &mut out),
        Err(FrameError::HeaderTooLong { .. })
    ));
    let over = Frame {
        header: vec![b' '],
        payload: vec![0; SMALL.payload + 1],
    };
    assert!(matches!(
        append(&over, &mut out),
        Err(FrameError::PayloadTooLong { .. })
    ));
    let empty = Frame::default();
    assert_eq!(append(&empty, &mut out), Err(FrameError::HeaderEmpty));
    assert_eq!(out, before);
}

#[test]
fn requests_are_encoded_as_documented() {
    let cell = Request::Cell {
        terminal: None,
        id: 1,
        filename: "x.py".into(),
        argv: vec!["a".into()],
        last: ResultMode::Expression,
        then: AfterCell::Stay,
        source: SourceKind::File,
    };
    let mut bytes = Vec::new();
    cell.encode_into(b"print(1)", &mut bytes).unwrap();
    let header = br#"{"kind":"cell","id":1,"filename":"x.py","argv":["a"]}"#;
    let prefix = [53u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
    assert_eq!(bytes, [prefix.as_slice(), header, b"print(1)"].concat());
}

#[test]
fn unknown_fields_are_ignored() {
    let header = r#"{"kind":"ready","version":1,"later":{"a":[1,2]},"later":null}"#;
    assert_eq!(reply(header), Ok(Reply::Ready { version: 1 }));
    let spaced = " {\"version\" : 1 , \"kind\" : \"\\u0072eady\"}\n";
    assert_eq!(reply(spaced), Ok(Reply::Ready { version: 1 }));
}

#[test]
fn invalid_replies_are_rejected() {
    let refused = [
        "",
        "null",
        "[]",
        r#""ready""#,
        "{}",
        r#"{"kind":"hello","version":1}"#,
        r#"{"kind":"cell","id":1,"filename":"","argv":[]}"#,
        r#"{"kind":"usage","wall_ms":0}"#,
        r#"{"kind":"ready"}"#,
        r#"["ready"]"#,
        r#"["ready",1]"#,
        r#"{"kind":0,"version":1}"#,
        r#"{"kind":{"ready":null},"version":1}"#,
        r#"{"kind":"ready","version":1} {}"#,
        r#"{"kind":"ready","kind":"ready","version":1}"#,
        r#"{"kind":"ready","version":1,"version":2}"#,
        r#"{"kind":"ready","version":1e999}"#,
        r#"{"kind":"result","id":1,"status":"timeout"}"#,
        r#"{"kind":"result","id":1,"status":"exit"}"#,
        r#"{"kind":"result","id":1,"status":"exit","exit_code":256}"#,
        r#"{"kind":"result","id":1,"status":"exception"}"#,
        r#"{"kind":"result","id":-1,"status":"ok"}"#,
        r#"{"kind":"result","id":1,"status":"ok","value":{"type":"pickle","data":""}}"#,
        "{\"kind\":\"ready\",\"version\":1,\"a\":\"\u{1}\"}",
    ];
    for header in refused {
        assert!(
            matches!(reply(header), Err(MessageError::Header(_))),
            "{header}"
        );
    }
    let frame = Frame {
        header: b"{\"kind\":\"ready\",\"version\":1,\"a\":\"\xff\"}".to_vec(),
        payload: Vec::new(),
    };
    assert!(Reply::parse(&frame).is_err());
}

#[test]
fn unannounced_payload_is_rejected() {
    let frame = Frame {
        header: br#"{"kind":"ready","version":1}"#.to_vec(),
        payload: vec![0; 3],
    };
    assert_eq!(
        Reply::parse(&frame),
        Err(MessageError::Payload {
            length: 3,
            wanted: 0
        })
    );
}

#[test]
fn payload_of_the_wrong_length_is_rejected() {
    let parse = |blob: &str, length: usize| {
        let header = format!(r#"{{"kind":"result","id":1,"status":"ok","blob":{blob}}}"#);
        Reply::parse(&Frame {
            header: header.into_bytes(),
            payload: vec![0; length],
        })
    };
    assert!(parse(r#"{"lengths":[3,5]}"#, 69).is_ok());
    assert!(parse(r#"{"lengths":[100000],"passed":true}"#, 0).is_ok());
    let lies = [
        (r#"{"lengths":[3,5]}"#, 8),
        (r#"{"lengths":[3],"passed":true}"#, 3),
        (r#"{"lengths":[]}"#, 0),
        (r#"{"lengths":[18446744073709551615,2]}"#, 1),
        (r#"{"lengths":[-1]}"#, 0),
    ];
    for (blob, length) in lies {
        assert!(parse(blob, length).is_err(), "{blob} with {length} bytes");
    }
}

#[test]
fn error_quotes_little_and_printable_text() {
    let kind = format!("\\u001b[31m{}", "a".repeat(10_000));
    let error = reply(&format!("{{\"kind\":\"{kind}\"}}"))
        .unwrap_err()
        .to_string();
    assert!(error.len() < 300 && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn oversized_json_is_rejected_by_its_text() {
    let over = |what, text: String| match JsonLimits::FROM_WORKER.check(text.as_bytes()) {
        Err(JsonError::OverLimit { what: found, .. }) => assert_eq!(found, what),
        other => panic!("{what}: {other:?}"),
    };
    over("depth", "[".repeat(1 << 20));
    over("depth", "{\"a\":".repeat(1000));
    over("values", format!("[{}0]", "0,".repeat(1 << 18)));
    over("values", format!("[{}0]", "[],".repeat(1 << 18)));
    over("string", format!("\"{}\"", "\\n".repeat(1 << 20)));
    over("string", format!("\"{}", "a".repeat((1 << 20) + 1)));
    over("number", "9".repeat(1 << 20));
    over("number", format!("[1e{}]", "9".repeat(100)));
}
