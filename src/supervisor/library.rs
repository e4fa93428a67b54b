//! The worker library, embedded at build time and passed to the interpreter as a sealed memfd:
//! nothing is written to disk, and nothing can change between this process and the loader.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use sandfork_jail::sys;

/// The library's bytes.
static LIBRARY: &[u8] = include_bytes!(env!("SANDFORK_WORKER"));

/// `MFD_EXEC` of `linux/memfd.h`, which nix does not name yet.
const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);

/// Returns a descriptor of the sealed library, made once and shared by every zygote of the process.
pub fn sealed() -> std::io::Result<OwnedFd> {
    static SEALED: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = SEALED.get() {
        return fd.try_clone();
    }
    let fd = create()?;
    SEALED.get_or_init(|| fd).try_clone()
}

fn create() -> std::io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // `MFD_EXEC` (Linux 6.3) marks the memfd as executable. Older kernels reject the flag, and make
    // every memfd executable.
    let memfd = match memfd_create(c"sandfork-worker", flags | MFD_EXEC) {
        Err(Errno::EINVAL) => memfd_create(c"sandfork-worker", flags),
        other => other,
    }?;
    let mut file = File::from(memfd);
    file.write_all(LIBRARY)?;
    sys::sealed::seal(file.as_fd())?;
    Ok(OwnedFd::from(file))
}
