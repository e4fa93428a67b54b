//! Keeps the snapshots of a sandbox, and accounts for their memory.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::medium::DiskShare;
use super::{Base, Image, Medium, SnapshotRefusal};
use crate::host::{descriptors_left, memory_left};
use crate::outcome::{LimitName, Limits};
use crate::plan::bytes;
use crate::supervisor::random::UniqueIds;
use crate::waiters::lock;

/// The bytes of the images that this process is capturing now, over all sandboxes.
static BYTES_IN_CAPTURE: Mutex<u64> = Mutex::new(0);

/// The descriptors that an image holds: its memory file and its tree file.
const DESCRIPTORS_OF_AN_IMAGE: u64 = 2;

/// Identifiers are unique in this process, so that a caller cannot pass the identifier of another sandbox's snapshot.
static NUMBERS: LazyLock<UniqueIds> = LazyLock::new(UniqueIds::default);

/// The snapshots of one sandbox by identifier.
#[derive(Debug, Default)]
pub struct Shelf {
    kept: Mutex<BTreeMap<u64, Kept>>,
    /// The disk space that the sandbox's images take.
    pub on_disk: DiskShare,
}

#[derive(Debug)]
struct Kept {
    image: Arc<Image>,
    /// The session that was captured.
    session: u64,
}

/// A reservation of memory or disk space, released on drop.
#[derive(Debug)]
pub struct Reserved {
    bytes: u64,
    of: &'static Mutex<u64>,
    share: Option<DiskShare>,
}

impl Reserved {
    /// Reserves memory for an image that is being captured. Requires that the host keeps half of the memory it has
    /// left, because no worker's cgroup counts images. The kernel counts the image itself once it is captured.
    pub fn memory(bytes: u64) -> Result<Self, SnapshotRefusal> {
        Self::new(bytes, &BYTES_IN_CAPTURE, None, |others| {
            require_half(memory_left(), others, bytes)?;
            require_descriptors(descriptors_left())
        })
    }

    /// Reserves `bytes` of the total `of`, and of `share`, if `require` accepts. `require` gets the bytes that are
    /// reserved already, under the lock, so that no other reservation happens meanwhile.
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
    /// Returns a new session identifier.
    pub fn session() -> u64 {
        NUMBERS.next()
    }

    /// Returns the bytes that the next image of a session may take, given its base. A session captures one image at a
    /// time. An image of a pause is not kept here, and may take what the snapshots leave.
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

    /// Keeps an image of a session, and returns its identifier.
    pub fn put(&self, session: u64, image: Arc<Image>) -> u64 {
        let number = NUMBERS.next();
        lock(&self.kept).insert(number, Kept { image, session });
        number
    }

    /// Returns the image with this identifier, unless it was discarded.
    pub fn get(&self, number: u64) -> Option<Arc<Image>> {
        let kept = lock(&self.kept);
        kept.get(&number).map(|kept| Arc::clone(&kept.image))
    }

    /// Whether no snapshot is kept.
    pub fn is_empty(&self) -> bool {
        lock(&self.kept).is_empty()
    }

    /// Discards a snapshot. Sessions that were restored from it are not affected.
    pub fn discard(&self, number: u64) {
        // Drop the image after the lock is released: freeing its memory takes time.
        let discarded = lock(&self.kept).remove(&number);
        drop(discarded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: u64 = 10 << 30;

    #[test]
    fn image_over_half_of_the_hosts_memory_is_refused() {
        assert_eq!(require_half(LEFT, 0, 5 << 30), Ok(()));
        let refused = require_half(LEFT, 0, (5 << 30) + 1).expect_err("it is more");
        let sentence = "it takes 5.00 GiB, more than half of the 10 GiB of memory that the host has left; close other snapshots \
                        or sessions first";
        assert_eq!(refused.to_string(), sentence);
        // Other images being captured reserve 2 GiB.
        require_half(LEFT, 2 << 30, 5 << 30).expect_err("it is more");
    }

    #[test]
    fn image_over_half_of_the_descriptors_is_refused() {
        assert_eq!(require_descriptors(4), Ok(()));
        require_descriptors(3).expect_err("it is one of the last");
    }

    #[test]
    fn dropped_reservation_is_released() {
        let reserved = Reserved::memory(4096).expect("there is memory");
        assert!(*BYTES_IN_CAPTURE.lock().expect("no test has failed") >= 4096);
        Reserved::memory(u64::MAX / 2).expect_err("no host has that");
        drop(reserved);
    }
}
