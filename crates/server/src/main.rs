//! `sandfork server`: a program of its own, so that the command and the library are not linked with an HTTP server.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandfork_jail::sys::memory::keep_little();
    // Fails for no signal that can have a handler.
    _ = sandfork_jail::sys::process::survive_file_size_limit();
    sandfork_server::command()
}
