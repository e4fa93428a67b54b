//! A caller's messages: what is taken is written and read again as the same.

use sandfork::protocol::Frame;
use sandfork::protocol::caller::{Ask, FileOperation, PolicyChoice};

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
        "\"excluded\"",
        "\"counted\"",
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
    match Ask::parse(&frame(header.to_vec())) {
        Ok(ask) => {
            let written = serde_json::to_vec(&ask).expect("a message is written");
            let again = Ask::parse(&frame(written.clone()));
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

fn shape(ask: &Ask) -> &'static str {
    match ask {
        Ask::Open(open) => match open.policy {
            PolicyChoice::Text { .. } => "open with a text",
            PolicyChoice::Name { .. } => "open with a name",
        },
        Ask::Cell(cell) if cell.wall.is_some() => "cell with a time",
        Ask::Cell(_) => "cell",
        Ask::Set(_) => "set",
        Ask::Tools(_) => "tools",
        Ask::Return(answer) if answer.error.is_some() => "return of an error",
        Ask::Return(_) => "return",
        Ask::Interrupt => "interrupt",
        Ask::Restart { .. } => "restart",
        Ask::File(request) => match request.op {
            FileOperation::OpenRead => "read",
            FileOperation::OpenWrite { .. } => "write",
            FileOperation::List => "list",
            FileOperation::Stat => "stat",
            FileOperation::Remove { .. } => "remove",
            FileOperation::MakeDir { .. } => "make a directory",
            _ => "another operation",
        },
        Ask::Close => "close",
        _ => "another kind",
    }
}
