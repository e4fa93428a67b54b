//! Runs the parts of tests that need a separate process: this binary, started again with the name of the part.

use std::env;
use std::process::{Command, ExitCode, Stdio};

use crate::{
    bad_input, batch, cgroups, cost, leftovers, pool, precedence, sessions, write_signals,
};

const VARIABLE: &str = "SANDFORK_KERNEL_TEST_PART";

/// A part and its name. Like a test, a part fails by panicking.
pub type Part = (&'static str, fn());

/// Returns the part for which this process was started, if any.
pub fn requested() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Runs the part with this name.
pub fn run_part(name: &str) -> ExitCode {
    let mut parts = bad_input::PARTS
        .iter()
        .chain(&batch::PARTS)
        .chain(&cgroups::PARTS)
        .chain(&cost::PARTS)
        .chain(&leftovers::PARTS)
        .chain(&pool::PARTS)
        .chain(&precedence::PARTS)
        .chain(&sessions::PARTS)
        .chain(&write_signals::PARTS);
    if let Some((_, part)) = parts.find(|part| part.0 == name) {
        part();
        ExitCode::SUCCESS
    } else {
        eprintln!("no part named {name}");
        ExitCode::FAILURE
    }
}

/// Returns the command that starts this binary to run the part.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a program knows its path"));
    command.env(VARIABLE, name).stdin(Stdio::null());
    command
}

/// Runs a part in a separate process with its own temporary directory. Panics if the part fails.
#[track_caller]
pub fn finishes(name: &str) {
    let directory = tempfile::tempdir().expect("the directory is created");
    let mut part = command(name);
    let output = part
        .env("TMPDIR", directory.path())
        .output()
        .expect("the process starts");
    let streams = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        streams[0],
        streams[1]
    );
}
