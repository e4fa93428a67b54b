//! The requests that run beside the cells of a session: programs and directory watches.

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
    /// The current directory of the program, by default the session's work directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the session.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether the caller can write to the program's standard input.
    #[serde(default)]
    pub stdin: bool,
    /// The wall time limit in seconds.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// The output limit in bytes, by default `limits.output`.
    #[serde(default)]
    pub output: Option<u64>,
    /// The size of the terminal, if the program should have one.
    #[serde(default)]
    pub terminal: Option<ProgramTerminal>,
}

/// The size of a program's terminal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ProgramTerminal {
    /// The number of rows.
    pub rows: u16,
    /// The number of columns.
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
    /// Whether the directories beneath it are watched too.
    #[serde(default)]
    pub recursive: bool,
}
