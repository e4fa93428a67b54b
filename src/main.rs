//! The `sandfork` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandfork::command()
}
