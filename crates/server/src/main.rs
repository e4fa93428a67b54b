//! `sandfork server`: a program of its own, so that the command and the library are not linked with an HTTP server.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandfork_jail::sys::memory::keep_little();
    sandfork_server::command()
}
