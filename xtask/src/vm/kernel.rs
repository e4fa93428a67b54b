//! Finds Debian's cloud kernels and downloads each once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use xshell::cmd;

use super::name;
use crate::shell;

const MIRROR: &str = "https://deb.debian.org/debian";

/// A script that needs only CPython, which the project needs anyway.
const SCRIPT: &str = include_str!("kernel.py");

/// The modules that the guest needs to mount its disk, and one for a socket family that escape tests try,
/// in load order. Any of them may be built into the kernel.
pub const MODULES: [&str; 7] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "vsock",
];

/// A kernel series that Debian maintains.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Line {
    /// Debian 12.
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13.
    #[value(name = "6.12")]
    V6_12,
}

/// A kernel on this machine.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its line.
    pub line: Line,
    /// The version in the package's name.
    pub version: String,
    directory: PathBuf,
}

impl Kernel {
    /// Finds the newest kernel of a series and downloads it, unless it is in `cache`. If Debian is
    /// unreachable, uses the newest one in `cache`.
    pub fn obtain(line: Line, cache: &Path) -> Result<Self> {
        let sh = shell()?;
        let suite = match line {
            Line::V6_1 => "bookworm",
            Line::V6_12 => "trixie",
        };
        let (directory, modules) = (cache.join(name(&line)), MODULES);
        let newest = directory.join("newest");
        let fetch = cmd!(
            sh,
            "python3 -I -c {SCRIPT} {MIRROR} {suite} {directory} {modules...}"
        );
        let version = match fetch.quiet().read() {
            Ok(version) => version,
            Err(_) => sh
                .read_file(&newest)
                .context("no kernel could be fetched")?,
        };
        sh.write_file(newest, &version)?;
        Ok(Self {
            line,
            directory: directory.join(&version),
            version,
        })
    }

    /// Returns the path of the kernel image.
    pub fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// Returns the path of a module; `None` if it is built in.
    pub fn module(&self, name: &str) -> Option<PathBuf> {
        let file = self.directory.join(name).with_extension("ko");
        file.exists().then_some(file)
    }
}
