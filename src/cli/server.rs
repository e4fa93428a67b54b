//! Implements `sandfork server` and `sandfork mcp` by executing `sandfork-server`, so that neither the command nor the
//! library links an HTTP server.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::failure::Failure;

/// The program's name.
const PROGRAM: &str = "sandfork-server";

/// Replaces this process with the server. Returns only if that fails.
pub fn server(command: Option<&str>, arguments: &[OsString]) -> Result<u8, Failure> {
    // Prefer the program that was installed with this command.
    let beside = env::current_exe()
        .ok()
        .map(|own| own.with_file_name(PROGRAM));
    let program = beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(command).args(arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        return Err(Failure::Usage(format!(
            "the server is a separate program, `{PROGRAM}`, which is neither beside this command nor in PATH: \
             `cargo install --path crates/server` in a checkout of Sandfork installs it"
        )));
    }
    Err(Failure::Setup(error))
}
