//! The egress process of a Sandfork sandbox. Only the supervisor starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    match sandfork_egress::process::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("sandfork-egress: cannot {what}");
            ExitCode::FAILURE
        }
    }
}
