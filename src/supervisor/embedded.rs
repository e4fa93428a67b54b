//! Serves the library and the program that are embedded at build time as sealed memfds to other processes: nothing is
//! written to disk, and nothing can change between this process and the process that loads the file.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use sandfork_jail::sys;

/// The native library that a zygote's interpreter loads.
pub static WORKER: Embedded = Embedded {
    name: c"sandfork-worker",
    used: Use::Loaded,
    bytes: include_bytes!(env!("SANDFORK_WORKER")),
    sealed: OnceLock::new(),
};

/// The egress process's program.
#[cfg(feature = "egress")]
pub static EGRESS: Option<Embedded> = Some(Embedded {
    name: c"sandfork-egress",
    used: Use::Executed,
    bytes: include_bytes!(env!("SANDFORK_EGRESS")),
    sealed: OnceLock::new(),
});

/// This build has no egress program.
#[cfg(not(feature = "egress"))]
pub static EGRESS: Option<Embedded> = None;

/// An embedded file.
pub struct Embedded {
    name: &'static CStr,
    used: Use,
    /// The contents of the file.
    pub bytes: &'static [u8],
    sealed: OnceLock<OwnedFd>,
}

/// How a process uses an embedded file.
enum Use {
    /// It maps the file, which requires no execute permission.
    Loaded,
    /// It executes the file. A host with `vm.memfd_noexec=2` refuses to create an executable memfd (`EACCES`).
    #[cfg_attr(not(feature = "egress"), expect(dead_code))]
    Executed,
}

/// `MFD_EXEC` of `linux/memfd.h`, which nix does not define yet.
const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);

impl Embedded {
    /// Returns a descriptor of the sealed file, which is created once and shared within this process.
    pub fn open(&self) -> std::io::Result<OwnedFd> {
        let (file, filling) = self.open_early()?;
        filling.fill()?;
        Ok(file)
    }

    /// Returns a descriptor of the file while the file may still be empty, and the [`Filling`] that writes and seals
    /// it. A process that needs the contents only a moment later can start meanwhile.
    pub fn open_early(&self) -> std::io::Result<(OwnedFd, Filling<'_>)> {
        let (file, empty) = if let Some(fd) = self.sealed.get() {
            (fd.try_clone()?, None)
        } else {
            let empty = self.create()?;
            (empty.try_clone()?, Some(empty))
        };
        let embedded = self;
        Ok((file, Filling { embedded, empty }))
    }

    fn create(&self) -> Result<OwnedFd, Errno> {
        if let Use::Loaded = self.used {
            return sys::sealed::memory_file(self.name);
        }
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        // `MFD_EXEC` (Linux 6.3) marks the memfd as executable. Older kernels reject the flag, and make
        // every memfd executable.
        match memfd_create(self.name, flags | MFD_EXEC) {
            Err(Errno::EINVAL) => memfd_create(self.name, flags),
            other => other,
        }
    }
}

/// A pending write of an embedded file. The file is empty until [`fill`](Self::fill).
#[must_use]
pub struct Filling<'a> {
    embedded: &'a Embedded,
    empty: Option<OwnedFd>,
}

impl Filling<'_> {
    /// Writes the contents and seals the file, unless this process has a sealed file already.
    pub fn fill(self) -> std::io::Result<()> {
        let Some(empty) = self.empty else {
            return Ok(());
        };
        let mut file = File::from(empty);
        sys::write_signals::as_errors(|| file.write_all(self.embedded.bytes))?;
        sys::sealed::seal(file.as_fd())?;
        // Another thread may have stored its file first; both have the same contents.
        _ = self.embedded.sealed.set(OwnedFd::from(file));
        Ok(())
    }
}
