//! `programs`: prepares a session's worker to start the process that starts the caller's programs.

use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use nix::unistd::write;

use super::snapshot::passed;
use super::sources;
use sandfork_jail::DATA;
use sandfork_jail::sys::starter;

/// Prepares the start. `interpreter` is the interpreter's path. The socket for the process arrives with the next byte.
pub fn prepare_programs(interpreter: &str) -> Result<String, String> {
    // A supervisor that is out of descriptors sends no socket, and starts no programs.
    let Ok(socket) = passed("socket for programs") else {
        return Ok(String::new());
    };
    let source = sources::find("programs").unwrap_or_default();
    let arguments = [interpreter, "-I", "-S", "-c", source].map(OsString::from);
    let environment = std::env::vars_os().map(|(name, value)| {
        let mut both = name;
        both.push("=");
        both.push(value);
        both
    });
    // No string contains a NUL: they come from the kernel's C strings or from this file.
    let texts = |all: Vec<OsString>| {
        let all = all.into_iter().map(|text| CString::new(text.into_vec()));
        all.collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())
    };
    let prepared = starter::prepare(
        texts(arguments.to_vec())?,
        texts(environment.collect())?,
        socket.as_fd(),
        DATA,
    );
    prepared.map_err(|errno| errno.desc().to_owned())?;
    // Acknowledge: the supervisor sends the signal only after this byte.
    write(&socket, &[0])
        .map(|_| String::new())
        .map_err(|errno| errno.desc().to_owned())
}
