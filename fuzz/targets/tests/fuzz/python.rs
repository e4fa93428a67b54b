//! Runs the parsers in Python: `fuzz/python` checks inputs, and queries how Rust parses the same bytes.
//!
//! A message is one byte for its kind, a little-endian `u32` length, and that many bytes. The reply to an
//! input (`i`) is `+` or `-`, or `!` with a traceback. Before it, there may be queries (`f`, `v`), whose
//! replies are also `+` or `-`.

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sandfork::Value;
use sandfork::internals::outcome::value::BufferCheck;
use sandfork::internals::protocol::{Blob, Decoder, FrameLimits, JsonLimits, Transport};
use serde_json::Map;

use crate::Result;

/// A parser in Python.
pub struct Target {
    pub name: &'static str,
    /// The target whose corpus it shares.
    pub corpus: &'static str,
    pub inputs: u64,
}

pub const TARGETS: [Target; 2] = [
    Target {
        name: "client_frames",
        corpus: "frames",
        inputs: 16_000,
    },
    Target {
        name: "python_values",
        corpus: "values",
        inputs: 12_000,
    },
];

/// A process that checks inputs. It is restarted after an input that ended it.
pub struct Python {
    target: &'static str,
    process: RefCell<Option<Process>>,
}

impl Python {
    pub fn new(target: &'static str) -> Self {
        Self {
            target,
            process: RefCell::default(),
        }
    }

    /// Returns whether the parser accepts the input. Panics if a property does not hold.
    pub fn check(&self, input: &[u8]) -> bool {
        let process = self.process.take();
        let mut process = process.unwrap_or_else(|| Process::start(self.target));
        match process.check(input) {
            Ok(taken) => {
                self.process.replace(Some(process));
                taken
            }
            Err(error) => panic!("{error}: {}", process.end()),
        }
    }
}

struct Process {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Process {
    fn start(target: &str) -> Self {
        let mut python = Command::new(interpreter());
        python
            .args(["fuzz/python", target])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let piped = python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("Python runs");
        let (to, from) = (child.stdin.take(), child.stdout.take());
        Self {
            child,
            to: to.expect("the stream is piped"),
            from: BufReader::new(from.expect("the stream is piped")),
        }
    }

    fn check(&mut self, input: &[u8]) -> io::Result<bool> {
        self.send(b'i', input)?;
        loop {
            let (kind, text) = self.receive()?;
            let answer = match kind {
                b'+' => return Ok(true),
                b'-' => return Ok(false),
                b'f' => frames(&text),
                b'v' => value(&text),
                _ => return Err(io::Error::other(String::from_utf8_lossy(&text))),
            };
            match answer {
                Ok(text) => self.send(b'+', text.as_bytes())?,
                Err(error) => self.send(b'-', error.to_string().as_bytes())?,
            }
        }
    }

    fn send(&mut self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.to
            .write_all(&[&[kind], &length.to_le_bytes()[..], bytes].concat())
    }

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut prefix = [0; 5];
        self.from.read_exact(&mut prefix)?;
        let [kind, length @ ..] = prefix;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.from.read_exact(&mut bytes)?;
        Ok((kind, bytes))
    }

    fn end(mut self) -> String {
        drop(self.to);
        let status = self.child.wait();
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

/// Returns the interpreter with the packages of the tests, if `cargo xtask test envs` made one.
fn interpreter() -> String {
    let manifest = fs::read("target/test-envs/manifest.json");
    let manifest: serde_json::Value =
        serde_json::from_slice(&manifest.unwrap_or_default()).unwrap_or_default();
    let client = manifest["client"]["python"].as_str();
    client.unwrap_or("python3").to_owned()
}

/// Returns the lengths of the frames of a stream whose headers must be JSON objects.
fn frames(mut stream: &[u8]) -> Result<String> {
    let mut decoder = Decoder::new(FrameLimits::TO_CALLER);
    let mut lengths: Vec<[usize; 2]> = Vec::new();
    while let Some(frame) = decoder.decode(&mut stream)? {
        let _: Map<String, serde_json::Value> = serde_json::from_slice(&frame.header)?;
        lengths.push([frame.header.len(), frame.payload.len()]);
    }
    Ok(serde_json::to_string(&lengths)?)
}

/// Parses a tree, if buffers of these lengths fit it, and encodes it again. A zero byte separates tree and lengths.
fn value(question: &[u8]) -> Result<String> {
    let mut parts = question.splitn(2, |byte| *byte == 0);
    let [tree, lengths] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
    let value: Value = JsonLimits::FROM_WORKER.parse(tree)?;
    let lengths: Vec<u64> = serde_json::from_slice(lengths)?;
    let blob = (!lengths.is_empty()).then(|| Blob::new(lengths, Transport::Payload));
    let blob = blob.transpose()?;
    BufferCheck::new(blob.as_ref()).value(&value)?;
    Ok(serde_json::to_string(&value)?)
}
