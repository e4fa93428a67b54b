//! The watches of this process. The kernel counts them for its user, who has other programs that need some.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::ErrorKind;
use crate::supervisor::programs::BesideRefusal;

/// One process takes at most one part in so many of the instances that its user may have.
const SHARE: usize = 4;
/// The kernel's default for the instances of a user (`max_user_instances` of inotify(7)).
const USUAL: usize = 128;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Slot(());

impl Slot {
    pub fn take() -> Result<Self, BesideRefusal> {
        let allowed = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
        let allowed = allowed.ok().and_then(|text| text.trim().parse().ok());
        let most = (allowed.unwrap_or(USUAL) / SHARE).max(1);
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let slot = Self(());
        if taken < most {
            Ok(slot)
        } else {
            let sentence = format!(
                "this process watches {most} directories, a quarter of what the kernel allows its user: close a watch, \
                 or raise the sysctl fs.inotify.max_user_instances"
            );
            Err(BesideRefusal::Other(ErrorKind::Busy, sentence))
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}
