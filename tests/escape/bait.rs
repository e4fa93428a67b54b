//! The targets of the probes, for one user: those of `open/bait.py`, and descriptors that the
//! launching process keeps open without close-on-exec.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;
use nix::unistd::pipe;

use crate::account::Account;
use crate::probe::Launch;

pub struct Bait {
    pub variables: BTreeMap<String, String>,
    server: Child,
    _inherited: Vec<OwnedFd>,
}

impl Bait {
    pub fn start(account: &Account, scripts: &Path, scratch: &Path) -> Result<Self, String> {
        let name = account.user.name();
        let directory = scratch.join(format!("bait-{name}"));
        account.own_directory(&directory)?;
        let tag = format!("sandfork_victim_{name}_{}", std::process::id());
        let script = scripts.join("bait.py");
        let arguments = [&account.python, &script, &directory, Path::new(&tag)];
        let mut server = account
            .command(Launch::Plain, &arguments.map(Path::as_os_str))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("bait: {error}"))?;
        let mut line = String::new();
        let mut output = BufReader::new(server.stdout.take().expect("piped"));
        output
            .read_line(&mut line)
            .map_err(|error| format!("bait: {error}"))?;
        let variables: BTreeMap<String, String> = serde_json::from_str(&line)
            .map_err(|error| format!("bait printed {line:?}: {error}"))?;
        let inherited = leak(&directory).map_err(|error| format!("bait: {error}"))?;
        Ok(Self {
            variables,
            server,
            _inherited: inherited,
        })
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // The server cleans up when its stdin reaches EOF.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// Opens descriptors that every child of the harness inherits, including the launcher. The probes
/// detect a launcher that passes them on to its guest.
fn leak(directory: &Path) -> nix::Result<Vec<OwnedFd>> {
    let (reader, writer) = pipe()?;
    let (near, far) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::empty(),
    )?;
    Ok(vec![
        open(
            directory,
            OFlag::O_RDONLY | OFlag::O_DIRECTORY,
            Mode::empty(),
        )?,
        open(
            &directory.join("canary.txt"),
            OFlag::O_RDONLY,
            Mode::empty(),
        )?,
        reader,
        writer,
        near,
        far,
    ])
}
