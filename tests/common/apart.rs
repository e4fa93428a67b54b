//! Helpers for tests that need a separate process or mount namespace.

use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs a part of a test as a separate process. Fails with what the process prints.
#[allow(dead_code, reason = "not every test has such a part")]
pub fn finishes(part: &mut Command) -> Result<(), Failed> {
    let part = part.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = part.output()?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    Err(format!("{}: {printed}", output.status).into())
}

/// Enters a new mount namespace, if the user may, and returns whether it did: this process no longer sees new mounts of
/// other processes, nor they its mounts.
pub fn have_own_mounts() -> bool {
    const NONE: Option<&str> = None;
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        return false;
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).expect("the owner of a mount namespace may mount");
    true
}
