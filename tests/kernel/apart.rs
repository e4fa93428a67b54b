//! Parts of tests that need a process of their own: this program, started again.

use std::env;
use std::process::{Command, ExitCode, Stdio};

use crate::{
    bad_input, batch, cgroups, cost, leftovers, pool, precedence, sessions, write_signals,
};

const VARIABLE: &str = "SANDFORK_KERNEL_TEST_PART";

/// A part by its name. It fails by panicking, as a test does.
pub type Part = (&'static str, fn());

/// The part that this process was started for.
pub fn requested() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Plays it.
pub fn play(name: &str) -> ExitCode {
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

/// This program, to be started for a part.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a program knows its path"));
    command.env(VARIABLE, name).stdin(Stdio::null());
    command
}

/// Runs a part to its end, with a temporary directory of its own.
#[track_caller]
pub fn finishes(name: &str) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut part = command(name);
    let played = part
        .env("TMPDIR", directory.path())
        .output()
        .expect("it can be started again");
    let said = [&played.stdout, &played.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(
        played.status.success(),
        "{}\n{}{}",
        played.status,
        said[0],
        said[1]
    );
}
