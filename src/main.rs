//! The `sandfork` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::execute(cli::Arguments::read()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}
