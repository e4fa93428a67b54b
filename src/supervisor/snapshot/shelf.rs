//! The snapshots of a sandbox.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::medium::DiskShare;
use super::{Base, Image, Medium, SnapshotRefusal};
use crate::host::{descriptors_left, memory_left};
use crate::outcome::{LimitName, Limits};
use crate::plan::bytes;
use crate::supervisor::random::UniqueIds;
use crate::waiters::lock;

/// The bytes of the images that are being made in this process, of all its sandboxes.
static IN_THE_MAKING: Mutex<u64> = Mutex::new(0);

/// What an image takes besides its bytes.
const DESCRIPTORS_OF_AN_IMAGE: u64 = 2;

/// Numbers are given once, so that a caller cannot mean a snapshot of another sandbox.
static NUMBERS: LazyLock<UniqueIds> = LazyLock::new(UniqueIds::default);

/// Images by number.
#[derive(Debug, Default)]
pub struct Shelf {
    kept: Mutex<BTreeMap<u64, Kept>>,
    /// What its sandbox has on disks.
    pub on_disk: DiskShare,
}

#[derive(Debug)]
struct Kept {
    image: Arc<Image>,
    /// The session that has made it.
    session: u64,
}

/// Bytes that this process counts as its own until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    bytes: u64,
    of: &'static Mutex<u64>,
    share: Option<DiskShare>,
}

impl Reserved {
    /// Reserves memory for an image that is being made, if that leaves the host half of what it has. No cgroup of a
    /// worker counts images. Once it is made, the kernel counts it.
    pub fn memory(bytes: u64) -> Result<Self, SnapshotRefusal> {
        Self::new(bytes, &IN_THE_MAKING, None, |others| {
            require_half(memory_left(), others, bytes)?;
            require_descriptors(descriptors_left())
        })
    }

    /// Reserves bytes, in this share of them, if `require` agrees, which gets those that are reserved already. No others are
    /// meanwhile.
    pub fn new(
        bytes: u64,
        of: &'static Mutex<u64>,
        share: Option<&DiskShare>,
        require: impl FnOnce(u64) -> Result<(), SnapshotRefusal>,
    ) -> Result<Self, SnapshotRefusal> {
        let mut others = lock(of);
        require(*others)?;
        *others += bytes;
        if let Some(share) = share {
            share.add(bytes);
        }
        let share = share.cloned();
        Ok(Self { bytes, of, share })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut all = lock(self.of);
        *all -= self.bytes;
        if let Some(share) = &self.share {
            share.remove(self.bytes);
        }
    }
}

fn require_half(left: u64, others: u64, wanted: u64) -> Result<(), SnapshotRefusal> {
    let left = left.saturating_sub(others);
    if wanted > left / 2 {
        return Err(SnapshotRefusal::Other(format!(
            "it takes {}, more than half of the {} of memory that the host has left; close other snapshots or sessions \
             first",
            bytes(wanted),
            bytes(left)
        )));
    }
    Ok(())
}

fn require_descriptors(left: u64) -> Result<(), SnapshotRefusal> {
    if left / 2 < DESCRIPTORS_OF_AN_IMAGE {
        return Err(SnapshotRefusal::HostDescriptors);
    }
    Ok(())
}

impl Shelf {
    /// A number for a session.
    pub fn session() -> u64 {
        NUMBERS.next()
    }

    /// The bytes that another image of a session, with this base, may have. A session makes one at a time. One by which it
    /// is paused is not put here, and takes what the others leave.
    pub fn room(
        &self,
        session: u64,
        limits: &Limits,
        medium: Medium,
        base: Option<Base<'_>>,
    ) -> Result<u64, SnapshotRefusal> {
        let kept = lock(&self.kept);
        let own = kept.values().filter(|kept| kept.session == session);
        let (count, bytes) = (
            own.clone().count() as u64,
            Image::bytes_of(own.map(|kept| &*kept.image), base),
        );
        if medium == Medium::Memory && count >= limits.snapshots() {
            return Err(SnapshotRefusal::Other(format!(
                "the session has reached its limit of {} (`{}`); close one first",
                limits.named(LimitName::Snapshots),
                LimitName::Snapshots.key()
            )));
        }
        Ok(limits.snapshot_bytes().saturating_sub(bytes))
    }

    /// Keeps an image of a session. Returns its number.
    pub fn put(&self, session: u64, image: Arc<Image>) -> u64 {
        let number = NUMBERS.next();
        lock(&self.kept).insert(number, Kept { image, session });
        number
    }

    /// The image of this number, unless it was discarded.
    pub fn get(&self, number: u64) -> Option<Arc<Image>> {
        let kept = lock(&self.kept);
        kept.get(&number).map(|kept| Arc::clone(&kept.image))
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        lock(&self.kept).is_empty()
    }

    /// Discards an image. Sessions that were made from it live on.
    pub fn discard(&self, number: u64) {
        // Dropped without the lock: to free the memory takes time.
        let discarded = lock(&self.kept).remove(&number);
        drop(discarded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: u64 = 10 << 30;

    #[test]
    fn an_image_leaves_the_host_half_of_its_memory() {
        assert_eq!(require_half(LEFT, 0, 5 << 30), Ok(()));
        let refused = require_half(LEFT, 0, (5 << 30) + 1).expect_err("it is more");
        let sentence = "it takes 5.00 GiB, more than half of the 10 GiB of memory that the host has left; close other snapshots \
                        or sessions first";
        assert_eq!(refused.to_string(), sentence);
        // So many others are being made.
        require_half(LEFT, 2 << 30, 5 << 30).expect_err("it is more");
    }

    #[test]
    fn an_image_leaves_the_host_half_of_its_descriptors() {
        assert_eq!(require_descriptors(4), Ok(()));
        require_descriptors(3).expect_err("it is one of the last");
    }

    #[test]
    fn what_is_reserved_is_given_back() {
        let reserved = Reserved::memory(4096).expect("there is memory");
        assert!(*IN_THE_MAKING.lock().expect("no test has failed") >= 4096);
        Reserved::memory(u64::MAX / 2).expect_err("no host has that");
        drop(reserved);
    }
}
