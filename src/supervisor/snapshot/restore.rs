//! Gives a worker the state of another.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, fstat};

use super::refusal::{Doing, SnapshotRefusal};
use super::steps::{HOLE, Memory, hole, steps};
use super::{Image, Source};
use sandfork_jail::program::WorkerJail;
use sandfork_jail::restore::{BlobData, Order, Step};
use sandfork_jail::sys::sealed;

impl Image {
    /// What a worker does before its memory is replaced, as JSON.
    pub fn order(&self, jail: &WorkerJail) -> Result<Vec<u8>, SnapshotRefusal> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let order = Order {
            trees: jail.writable_directories().map(path).collect(),
            descriptors: self.descriptors.clone(),
        };
        serde_json::to_vec(&order)
            .map_err(|_| Errno::EINVAL)
            .doing("write the order")
    }

    /// The files that come with the order: the memory, then the contents of its directories. Each worker opens them
    /// anew, so that workers share no position.
    pub fn attachments(&self) -> Result<[OwnedFd; 2], SnapshotRefusal> {
        let again = |file: &OwnedFd| open_to_read(file.as_fd()).doing("open an image");
        Ok([again(&self.memory)?, again(&self.trees)?])
    }

    /// The steps for a worker that waits for them. It returns from them as if the request with this number had been
    /// answered.
    pub fn plan(
        &self,
        target: &Source,
        number: u64,
    ) -> Result<(OwnedFd, Vec<Step>), SnapshotRefusal> {
        let regions = target.regions("maps")?;
        let pages = target.pages(&regions)?;
        let blob = hole(&self.regions, &regions).ok_or_else(|| SnapshotRefusal::Mapping {
            what: "its mappings leave no room".into(),
        })?;
        let mut blob = BlobData::new(blob);
        let source = Memory {
            regions: &self.regions,
            pages: &self.pages,
            shareable: (!self.is_paused()).then_some(&self.standing.shareable),
        };
        let own = Memory {
            regions: &regions,
            pages: &pages,
            shareable: None,
        };
        let plan = steps(source, self.standing.program_break, own, &mut blob)?;
        target.require_same(&plan.opened)?;
        let bytes = blob.finish(self.standing.place, number, &plan.steps);
        if bytes.len() as u64 + (1 << 20) > HOLE {
            return Err(SnapshotRefusal::Fragmented {
                most: plan.steps.len(),
            });
        }
        let file = sealed::memory_file(c"sandfork-steps").doing("write the steps")?;
        let mut file = std::fs::File::from(file);
        file.write_all(&bytes).doing("write the steps")?;
        sealed::seal(file.as_fd()).doing("seal the steps")?;
        Ok((file.into(), plan.steps))
    }
}

/// Opens a memory file once more, for reading.
pub fn open_to_read(file: BorrowedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    open(path.as_str(), flags, Mode::empty())
}

impl Source<'_> {
    /// Requires that paths lead this worker to the files whose code the other one runs: a package may have been
    /// replaced since. A worker's own files have other inodes.
    fn require_same(&self, opened: &[(String, u64)]) -> Result<(), SnapshotRefusal> {
        let root = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = openat(&self.worker.proc, "root", root, Mode::empty()).doing("open its root")?;
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let is_own = |path: &str| {
            let mut own = self.jail.writable_directories();
            own.any(|own| Path::new(path).starts_with(own))
        };
        for (path, inode) in opened.iter().filter(|(path, _)| !is_own(path)) {
            let found = openat2(&root, path.as_str(), how).and_then(fstat);
            if !found.is_ok_and(|found| found.st_ino == *inode) {
                return Err(SnapshotRefusal::Replaced { path: path.clone() });
            }
        }
        Ok(())
    }
}
