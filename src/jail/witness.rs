//! What a worker sees for itself before there is any guest code: that what its jail forbids is refused.
//!
//! The supervisor looks at every worker from outside, at what the kernel says of it. This is the other
//! half: what the kernel does. Every act is one that only the layer in question answers in this way, so
//! that a layer which is there in name only is found. They fail early, and take a microsecond each.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::failure::{Failure, InStep, LET, Step};
use crate::sys::refused;

/// The mounts: the root is read-only. Permissions, and Landlock, would answer `EACCES`.
pub fn root() -> Result<(), Failure> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let made = open("/witness", flags, Mode::empty());
    is_refused(made.map(drop), Errno::EROFS).in_step(Step::RootWitness)
}

/// Landlock: `/` may be listed by its permissions, and no rule grants it.
///
/// Nothing outside a process shows its Landlock domain, so that this is all the evidence that there is.
pub fn landlock() -> Result<(), Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let listed = open("/", flags, Mode::empty());
    is_refused(listed.map(drop), Errno::EACCES).in_step(Step::LandlockWitness)
}

/// The capabilities, while the filter would still let one be used.
pub fn capabilities() -> Result<(), Failure> {
    let used = refused::drop_from_bounding_set();
    is_refused(used, Errno::EPERM).in_step(Step::PrivilegeWitness)
}

/// The filters: two calls that the zygote's refuses for good, and two that the worker's takes back.
pub fn filters() -> Result<(), Failure> {
    is_refused(refused::internet_socket(), Errno::EPERM).in_step(Step::SocketWitness)?;
    is_refused(refused::trace(), Errno::EPERM).in_step(Step::TraceWitness)?;
    is_refused(refused::mount(), Errno::EPERM).in_step(Step::MountWitness)?;
    is_refused(refused::set_capabilities(), Errno::EPERM).in_step(Step::CapsetWitness)
}

fn is_refused(done: Result<(), Errno>, wanted: Errno) -> Result<(), Errno> {
    match done {
        Err(errno) if errno == wanted => Ok(()),
        Err(errno) => Err(errno),
        Ok(()) => Err(LET),
    }
}
