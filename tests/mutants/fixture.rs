//! Host files that the sandboxes show. File permissions do not protect them, so only the jail
//! determines what a guest may do with them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use tempfile::TempDir;

/// The name of the module that leaves a descriptor behind.
pub const LEAVING: &str = "leaves_a_descriptor";

const LEAVES: &str = "import os\nos.dup2(os.open('/dev/null', os.O_RDONLY), 1500)\n";

pub struct Fixture {
    /// The parent of the directories that are shown at their own paths.
    apart: TempDir,
    /// A directory that is shown inside the worker's own `/tmp`.
    beneath: TempDir,
}

impl Fixture {
    pub fn new() -> io::Result<Self> {
        // The launching user's umask must not have an effect either.
        umask(Mode::empty());
        let fixture = Self {
            apart: open(tempfile::tempdir_in("/var/tmp")?)?,
            beneath: open(tempfile::tempdir_in("/tmp")?)?,
        };
        fixture.reset()?;
        Ok(fixture)
    }

    /// Returns the policy keys and directories: readable, readable inside `/tmp`, and writable.
    pub fn directories(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("filesystem.read", self.apart.path().join("read")),
            ("filesystem.read", self.beneath.path().join("read")),
            ("filesystem.write", self.apart.path().join("written")),
        ]
    }

    /// Creates a module that leaves a descriptor behind, with a number above that of every descriptor of a worker.
    pub fn modules(&self) -> io::Result<PathBuf> {
        let modules = self.apart.path().join("modules");
        fs::create_dir_all(&modules)?;
        fs::write(modules.join(format!("{LEAVING}.py")), LEAVES)?;
        Ok(modules)
    }

    /// Returns the directory that no sandbox shows.
    pub fn hidden(&self) -> PathBuf {
        self.apart.path().join("hidden")
    }

    /// Returns Python assignments that describe the fixture to guests.
    pub fn header(&self) -> String {
        let shown = self
            .directories()
            .map(|(_, path)| path.display().to_string());
        let hidden = self.hidden().display().to_string();
        format!("SHOWN, HIDDEN = {shown:?}, {hidden:?}\n")
    }

    /// Restores the state before any guest ran.
    pub fn reset(&self) -> io::Result<()> {
        let hidden = self.hidden();
        for directory in self
            .directories()
            .map(|(_, path)| path)
            .iter()
            .chain([&hidden])
        {
            // The directory is mounted in sandboxes, so the directory itself must stay.
            fs::create_dir_all(directory)?;
            for entry in fs::read_dir(directory)? {
                let path = entry?.path();
                if path.symlink_metadata()?.is_dir() {
                    fs::remove_dir_all(path)?;
                } else {
                    fs::remove_file(path)?;
                }
            }
            fill(directory)?;
        }
        Ok(())
    }
}

fn open(directory: TempDir) -> io::Result<TempDir> {
    allow_all(directory.path())?;
    Ok(directory)
}

fn allow_all(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

fn fill(directory: &Path) -> io::Result<()> {
    allow_all(directory)?;
    for name in ["file", "program", "spare", "moving"] {
        let path = directory.join(name);
        fs::write(&path, "#!/bin/sh\nexit 0\n")?;
        allow_all(&path)?;
    }
    for name in ["empty", "sub"] {
        fs::create_dir(directory.join(name))?;
        allow_all(&directory.join(name))?;
    }
    if nix::unistd::geteuid().is_root() {
        // The zero device, which is harmless.
        let mode = Mode::from_bits_truncate(0o666);
        mknod(
            &directory.join("device"),
            SFlag::S_IFCHR,
            mode,
            makedev(1, 5),
        )?;
    }
    Ok(())
}
