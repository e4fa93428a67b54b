//! A caller's messages: an accepted message survives encoding and decoding.

use sandfork::protocol::Frame;
use sandfork::protocol::caller::{ClientRequest, FileOperation, PolicyChoice};

use crate::replies::assert_is_short;
use crate::source::text_and_rest;
use crate::{Behaviour, Target};

pub(crate) const TARGET: Target = Target {
    name: "asks",
    about: "a caller's header, a zero byte, its payload: no panic; what is taken reads back the same",
    run,
    words: &[
        "\"kind\":",
        "\"open\"",
        "\"cell\"",
        "\"set\"",
        "\"tools\"",
        "\"return\"",
        "\"interrupt\"",
        "\"restart\"",
        "\"file\"",
        "\"close\"",
        "\"version\":2",
        "\"policy\":",
        "\"name\":",
        "\"toml\":",
        "\"directory\":",
        "\"label\":",
        "\"set\":",
        "\"environ\":",
        "\"tool_time\":",
        "{\"at_most\":",
        "{\"at_least\":",
        "\"stdin\":",
        "\"id\":",
        "\"filename\":",
        "\"argv\":",
        "\"last\":",
        "\"statement\"",
        "\"then\":",
        "\"end\"",
        "\"stream\":",
        "\"wall\":",
        "\"path\":",
        "\"op\":",
        "\"open_read\"",
        "\"open_write\"",
        "\"append\":",
        "\"list\"",
        "\"stat\"",
        "\"remove\"",
        "\"recursive\":",
        "\"make_dir\"",
        "\"parents\":",
        "\"variables\":",
        "\"call\":",
        "\"value\":",
        "\"error\":",
        "\"blob\":",
        "\"lengths\":",
        "null",
        "true",
        "1e999",
        "-0.0",
        "18446744073709551616",
        "[",
        "]",
        "{",
        "}",
    ],
    inputs: 900_000,
};

fn run(bytes: &[u8]) -> Behaviour {
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
            Behaviour::taken(shape(&ask))
        }
        Err(error) => {
            let message = error.to_string();
            assert_is_short(&message);
            Behaviour::refused(&message)
        }
    }
}

fn shape(ask: &ClientRequest) -> &'static str {
    match ask {
        ClientRequest::Open(open) => match open.policy {
            PolicyChoice::Text { .. } => "open with a text",
            PolicyChoice::Name { .. } => "open with a name",
        },
        ClientRequest::Cell(cell) if cell.wall.is_some() => "cell with a time",
        ClientRequest::Cell(_) => "cell",
        ClientRequest::Set(_) => "set",
        ClientRequest::Tools(_) => "tools",
        ClientRequest::Return(answer) if answer.error.is_some() => "return of an error",
        ClientRequest::Return(_) => "return",
        ClientRequest::Interrupt => "interrupt",
        ClientRequest::Restart { .. } => "restart",
        ClientRequest::File(request) => match request.op {
            FileOperation::OpenRead => "read",
            FileOperation::OpenWrite { .. } => "write",
            FileOperation::List => "list",
            FileOperation::Stat => "stat",
            FileOperation::Remove { .. } => "remove",
            FileOperation::MakeDir { .. } => "make a directory",
            _ => "another operation",
        },
        ClientRequest::Close => "close",
        _ => "another kind",
    }
}
