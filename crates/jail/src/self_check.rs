//! Checks from inside a worker, before any guest code, that the kernel refuses what the jail forbids.
//!
//! The supervisor checks every worker from outside, by the state that the kernel reports. These checks cover the
//! kernel's behaviour. Each call is one that only the layer under test refuses with this errno, so a layer that exists
//! in name only is detected. The calls fail early and take a microsecond each.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::failure::{Failure, InStep, NOT_REFUSED, Step};
use super::program::{WITNESS, ZygoteNamespaces};
use crate::sys::{process, refused};

/// Checks the mounts: the root is read-only. File permissions or Landlock would fail with `EACCES` instead.
pub fn root() -> Result<(), Failure> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let made = open("/witness", flags, Mode::empty());
    is_refused(made.map(drop), Errno::EROFS).in_step(Step::RootSelfCheck)
}

/// Checks Landlock: opens a path that file permissions allow and no Landlock rule grants. In a sandbox's own root the
/// path is [`WITNESS`]; on the host's root it is `/`.
///
/// A process's Landlock domain is not visible from outside, so this check is the only evidence.
pub fn landlock(namespaces: Option<ZygoteNamespaces>) -> Result<(), Failure> {
    let path = namespaces.map_or("/", |_| WITNESS);
    let opened = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    is_refused(opened.map(drop), Errno::EACCES).in_step(Step::LandlockSelfCheck)
}

/// Checks the capabilities, while the filter would still allow their use.
pub fn capabilities() -> Result<(), Failure> {
    const CAP_CHOWN: libc::c_ulong = 0;
    let used = process::drop_from_bounding_set(CAP_CHOWN);
    is_refused(used, Errno::EPERM).in_step(Step::PrivilegeSelfCheck)
}

/// Checks the filters: two calls that the zygote's filter refuses, then two that only the worker's filter refuses.
///
/// The supervisor does not listen yet, so these calls must be refused without a notification (`plan::seccomp::preset`).
pub fn filters() -> Result<(), Failure> {
    is_refused(refused::internet_pair(), Errno::EPERM).in_step(Step::SocketSelfCheck)?;
    is_refused(refused::compare(), Errno::EPERM).in_step(Step::TraceSelfCheck)?;
    is_refused(refused::open_mount(), Errno::EPERM).in_step(Step::MountSelfCheck)?;
    is_refused(refused::set_capabilities(), Errno::EPERM).in_step(Step::CapsetSelfCheck)
}

fn is_refused(done: Result<(), Errno>, wanted: Errno) -> Result<(), Errno> {
    match done {
        Err(errno) if errno == wanted => Ok(()),
        Err(errno) => Err(errno),
        Ok(()) => Err(NOT_REFUSED),
    }
}
