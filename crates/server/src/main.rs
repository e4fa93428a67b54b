//! `sandfork server`, a separate program so that the command and the library do not link an HTTP server.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandfork_jail::sys::memory::keep_little();
    // Cannot fail for a signal that can be handled.
    _ = sandfork_jail::sys::process::survive_file_size_limit();
    sandfork_server::command()
}
