//! What a caller has beside the cells of a session: programs, and directories that it watches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A program to run in a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartProgram {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The session's number, as in its [`Opened`](super::Opened).
    pub session: u64,
    /// The program, by name or path, and its arguments.
    pub argv: Vec<String>,
    /// The directory in which it starts, in place of the session's work directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables beside those of the session.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether it has a standard input to write to.
    #[serde(default)]
    pub stdin: bool,
    /// How long it may run, in seconds.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// How many bytes it may print, in place of `limits.output`.
    #[serde(default)]
    pub output: Option<u64>,
    /// The size of its terminal, if it has one.
    #[serde(default)]
    pub terminal: Option<ProgramTerminal>,
}

/// The size of a program's terminal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ProgramTerminal {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// A directory to watch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct WatchRequest {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The session's number, as in its [`Opened`](super::Opened).
    pub session: u64,
    /// The path, relative to the work directory.
    pub path: String,
    /// Whether the directories below it are watched, too.
    #[serde(default)]
    pub recursive: bool,
}
