//! Recognises the requests that the native run path serves. All others are left to Python.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The length of the prefix of a frame: two lengths.
const PREFIX: usize = 8;
/// The maximum length of a source, bytes. A longer source takes so long to compile that the run path does not matter.
const MAX_SOURCE: usize = 64 << 10;
/// The file name of a cell whose source is the name of a module (`MODULE` in the guest's `cell.py`).
const MODULE: &str = "<-m>";

/// The input of a worker, from its first byte on.
#[derive(Debug, PartialEq)]
pub enum Received<'a> {
    /// A rehearsal of a run. Contains the length of the message.
    Rehearse(usize),
    /// A run.
    Run(Run<'a>),
    /// Another request, or an incomplete one.
    Other,
}

/// The greeting for a run, and the run's cell.
#[derive(Debug, PartialEq)]
pub struct Run<'a> {
    /// The encoded header of the cell.
    pub header: &'a [u8],
    /// The decoded header.
    pub cell: Cell<'a>,
    /// The range of the source in the input. Its end may be beyond what was received.
    pub source: std::ops::Range<usize>,
}

/// A request to run source that is not in a file.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Cell<'a> {
    kind: &'a str,
    /// The id, repeated in the result.
    pub id: u64,
    /// The file name in tracebacks.
    pub filename: &'a str,
    /// The arguments of the program.
    pub argv: Vec<String>,
    /// The wanted value.
    #[serde(default)]
    pub last: Last,
    /// Ignored: a run is a session of one cell, after which the worker exits in any case.
    #[serde(default, rename = "then")]
    _then: IgnoredAny,
    /// Ignored: files and texts differ only in their encoding, and both are UTF-8 here.
    #[serde(default, rename = "source")]
    _source: IgnoredAny,
}

/// The wanted value of a run. Sessions know further kinds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Last {
    /// The value of the last statement, if it is an expression.
    #[default]
    Expression,
    /// No value.
    Nothing,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Greeting<'a> {
    kind: &'a str,
    serves: &'a str,
    #[serde(default, rename = "version")]
    _version: IgnoredAny,
}

impl Cell<'_> {
    /// Returns the program's name in `sys.argv`.
    pub fn name(&self) -> &str {
        match self.filename {
            "<string>" => "-c",
            "<stdin>" => "-",
            other => other,
        }
    }

    fn is_served(&self) -> bool {
        let is_name = self.filename.starts_with('<') && !self.filename.contains('\0');
        self.kind == "cell" && is_name && self.filename != MODULE
    }
}

/// Recognises the request at the start of the received bytes.
pub fn recognise(received: &[u8]) -> Received<'_> {
    recognised(received).unwrap_or(Received::Other)
}

fn recognised(received: &[u8]) -> Option<Received<'_>> {
    let (header, payload) = frame(received, 0)?;
    let greeting: Greeting = serde_json::from_slice(header).ok()?;
    if greeting.serves != "one-run" || !payload.is_empty() {
        return None;
    }
    match greeting.kind {
        "rehearse" => Some(Received::Rehearse(payload.end)),
        "hello" => {
            let (header, source) = frame(received, payload.end)?;
            let cell: Cell = serde_json::from_slice(header).ok()?;
            let is_served = cell.is_served() && source.len() <= MAX_SOURCE;
            is_served.then_some(Received::Run(Run {
                header,
                cell,
                source,
            }))
        }
        _ => None,
    }
}

/// Returns the header of the frame at an offset, and the range of its payload.
fn frame(received: &[u8], start: usize) -> Option<(&[u8], std::ops::Range<usize>)> {
    let length = |at: usize| {
        let bytes = received.get(at..at + 4)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let (header, payload) = (length(start)?, length(start + 4)?);
    let middle = (start + PREFIX).checked_add(header)?;
    let header = received.get(start + PREFIX..middle)?;
    Some((header, middle..middle.checked_add(payload)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(header: &str, payload: &str) -> Vec<u8> {
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
        let lengths = [length(header), length(payload)].concat();
        [&lengths, header.as_bytes(), payload.as_bytes()].concat()
    }

    const HELLO: &str = r#"{"kind":"hello","version":2,"serves":"one-run"}"#;
    const CELL: &str = r#"{"kind":"cell","id":1,"filename":"<string>","argv":["a"],"then":"end"}"#;

    fn sent(hello: &str, cell: &str, source: &str) -> Vec<u8> {
        [framed(hello, ""), framed(cell, source)].concat()
    }

    #[test]
    fn run_is_recognised() {
        let bytes = sent(HELLO, CELL, "1 + 1");
        let Received::Run(run) = recognise(&bytes) else {
            panic!("a run");
        };
        assert_eq!(run.header, CELL.as_bytes());
        assert_eq!(run.source, bytes.len() - 5..bytes.len());
        assert_eq!((run.cell.id, run.cell.name()), (1, "-c"));
        assert_eq!(run.cell.argv, ["a"]);
        assert_eq!(run.cell.last, Last::Expression);
        // The source may have arrived partially.
        let Received::Run(part) = recognise(&bytes[..bytes.len() - 3]) else {
            panic!("a run");
        };
        assert_eq!(part.source, run.source);
    }

    #[test]
    fn run_without_a_wanted_value_is_recognised() {
        let bytes = sent(
            HELLO,
            &CELL.replace("\"argv\"", "\"last\":\"nothing\",\"argv\""),
            "1",
        );
        let Received::Run(run) = recognise(&bytes) else {
            panic!("a run");
        };
        assert_eq!(run.cell.last, Last::Nothing);
    }

    #[test]
    fn rehearsal_is_recognised() {
        let bytes = framed(r#"{"kind":"rehearse","serves":"one-run"}"#, "");
        assert_eq!(recognise(&bytes), Received::Rehearse(bytes.len()));
    }

    #[test]
    fn unsupported_request_is_left_to_python() {
        let long = "x".repeat(MAX_SOURCE + 1);
        for bytes in [
            vec![],
            framed(HELLO, ""),
            framed(r#"{"kind":"rehearse","serves":"session"}"#, ""),
            framed(r#"{"kind":"hello","version":2}"#, ""),
            sent(&HELLO.replace("one-run", "session"), CELL, "1"),
            sent(HELLO, &CELL.replace("<string>", "script.py"), "1"),
            sent(HELLO, &CELL.replace("<string>", MODULE), "this"),
            sent(HELLO, &CELL.replace("<string>", "<a\\u0000>"), "1"),
            sent(HELLO, &CELL.replace("\"argv\"", "\"more\":1,\"argv\""), "1"),
            sent(
                HELLO,
                &CELL.replace("\"argv\"", "\"last\":\"text\",\"argv\""),
                "1",
            ),
            sent(HELLO, r#"{"kind":"exec","id":1,"argv":["ls"]}"#, ""),
            sent(HELLO, "[]", "1"),
            sent(HELLO, CELL, &long),
        ] {
            assert_eq!(recognise(&bytes), Received::Other, "{bytes:?}");
        }
        let bytes = sent(HELLO, CELL, "1");
        for length in 0..bytes.len() - 1 {
            assert_eq!(recognise(&bytes[..length]), Received::Other, "{length}");
        }
    }
}
