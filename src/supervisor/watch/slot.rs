//! Limits the inotify instances of this process. The kernel limits them per user, who needs some for other programs.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::ErrorKind;
use crate::supervisor::programs::BesideRefusal;

/// A process takes at most 1/`SHARE` of the instances that its user may have.
const SHARE: usize = 4;
/// The default of `max_user_instances` (inotify(7)).
const USUAL: usize = 128;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// One inotify instance, released on drop.
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
