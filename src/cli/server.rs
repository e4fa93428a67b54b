//! `sandfork server` and `sandfork mcp`: a program of its own, which this process becomes. So neither the command nor the library is linked
//! with an HTTP server.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::failure::Failure;

/// The program's name.
const PROGRAM: &str = "sandfork-server";

/// Becomes the server. Returns only if that fails.
pub fn server(command: Option<&str>, arguments: &[OsString]) -> Result<u8, Failure> {
    // The one that came with this command, before any other.
    let beside = env::current_exe()
        .ok()
        .map(|own| own.with_file_name(PROGRAM));
    let program = beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(command).args(arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        return Err(Failure::Usage(format!(
            "the server is a program of its own, `{PROGRAM}`, and is neither beside this command nor in PATH: \
             `cargo install --path crates/server` in a checkout of Sandfork installs it"
        )));
    }
    Err(Failure::Setup(error))
}
