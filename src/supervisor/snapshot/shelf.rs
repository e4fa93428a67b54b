//! The snapshots of a sandbox.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Image, SnapshotRefusal};
use crate::outcome::{LimitName, Limits};

/// Numbers are given once in a process, so that a caller cannot mean a snapshot of another sandbox.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Images by number.
#[derive(Debug, Default)]
pub struct Shelf(Mutex<BTreeMap<u64, Kept>>);

#[derive(Debug)]
struct Kept {
    image: Arc<Image>,
    /// The session that has made it.
    session: u64,
}

/// What a session may still keep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a session.
    pub fn session() -> u64 {
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The room for another image of a session. A session makes one at a time.
    pub fn room(&self, session: u64, limits: &Limits) -> Result<Room, SnapshotRefusal> {
        let kept = self.lock();
        let own = kept.values().filter(|kept| kept.session == session);
        let (count, bytes) = own.fold((0, 0), |(count, bytes), kept| {
            (count + 1, bytes + kept.image.bytes())
        });
        if count >= limits.snapshots() {
            let most = limits.named(LimitName::Snapshots);
            return Err(SnapshotRefusal::Quota {
                most,
                key: LimitName::Snapshots.key(),
            });
        }
        let bytes = limits.snapshot_bytes().saturating_sub(bytes);
        Ok(Room { bytes })
    }

    /// Keeps an image of a session. Returns its number.
    pub fn put(&self, session: u64, image: Arc<Image>) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Kept { image, session });
        number
    }

    /// The image of this number, unless it was discarded.
    pub fn get(&self, number: u64) -> Option<Arc<Image>> {
        let kept = self.lock();
        kept.get(&number).map(|kept| Arc::clone(&kept.image))
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Discards an image. Sessions that were made from it live on.
    pub fn discard(&self, number: u64) {
        // Dropped without the lock: to free the memory takes time.
        let discarded = self.lock().remove(&number);
        drop(discarded);
    }
}
