//! Parts of tests that need a process of their own: this program, started again.

use std::env;
use std::process::{Command, ExitCode, Stdio};

const VARIABLE: &str = "SANDFORK_KERNEL_TEST_PART";

/// A part by its name.
type Part = (&'static str, fn());

const PARTS: [Part; 0] = [];

/// The part that this process was started for.
pub fn requested() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Plays it. Like a test, it fails by panicking.
pub fn play(name: &str) -> ExitCode {
    match PARTS.iter().find(|part| part.0 == name) {
        Some((_, part)) => {
            part();
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("no part named {name}");
            ExitCode::FAILURE
        }
    }
}

/// This program, to be started for a part.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a program knows its path"));
    command.env(VARIABLE, name).stdin(Stdio::null());
    command
}
