//! Tests that need a process, or mounts, of their own.

use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs a part of a test as a process, until it ends; what it prints is why it fails.
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

/// Whether this process, where its user may have such, now has mounts of its own: it does not see what
/// others mount from now on, and they do not see what it does.
pub fn have_own_mounts() -> bool {
    const NONE: Option<&str> = None;
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        return false;
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).expect("who makes a namespace may");
    true
}
