//! What is embedded at build time and runs in other processes, as sealed files in memory: nothing is written to disk,
//! and nothing can change between this process and the one that loads it.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use sandfork_jail::sys;

/// The library that the interpreter of a zygote loads.
pub static WORKER: Embedded = Embedded {
    name: c"sandfork-worker",
    bytes: include_bytes!(env!("SANDFORK_WORKER")),
    sealed: OnceLock::new(),
};

/// The program through which guests reach hosts.
#[cfg(feature = "egress")]
pub static EGRESS: Option<Embedded> = Some(Embedded {
    name: c"sandfork-egress",
    bytes: include_bytes!(env!("SANDFORK_EGRESS")),
    sealed: OnceLock::new(),
});

/// This build has none.
#[cfg(not(feature = "egress"))]
pub static EGRESS: Option<Embedded> = None;

/// An embedded file.
pub struct Embedded {
    name: &'static CStr,
    bytes: &'static [u8],
    sealed: OnceLock<OwnedFd>,
}

/// `MFD_EXEC` of `linux/memfd.h`, which nix does not name yet.
const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);

impl Embedded {
    /// Its contents.
    pub fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    /// Returns a descriptor of the sealed file, which is made once and shared by all users in this process.
    pub fn open(&self) -> std::io::Result<OwnedFd> {
        if let Some(fd) = self.sealed.get() {
            return fd.try_clone();
        }
        let fd = self.seal()?;
        self.sealed.get_or_init(|| fd).try_clone()
    }

    fn seal(&self) -> std::io::Result<OwnedFd> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        // `MFD_EXEC` (Linux 6.3) marks the memfd as executable. Older kernels reject the flag, and make
        // every memfd executable.
        let memfd = match memfd_create(self.name, flags | MFD_EXEC) {
            Err(Errno::EINVAL) => memfd_create(self.name, flags),
            other => other,
        }?;
        let mut file = File::from(memfd);
        file.write_all(self.bytes)?;
        sys::sealed::seal(file.as_fd())?;
        Ok(OwnedFd::from(file))
    }
}
