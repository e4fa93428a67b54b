//! Acting on a guest's files as the guest's own user.
//!
//! The user of root's guests is the only one that their file systems know: a file that root made
//! there would have an owner without a number (`EOVERFLOW`, user_namespaces(7)). It also keeps root
//! from reaching, by the guest's leave, what the guest could not.

use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::{get_dumpable, set_dumpable};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::jail::program::HostIds;

/// Does something with the file system rights of `guest`, and no others; an ordinary user's guests
/// are the user himself, and `None`.
///
/// In a thread of its own, whose identity ends with it: changing it also takes away the signal that
/// a thread may have asked for at its parent's death (prctl(2), `PR_SET_PDEATHSIG`), which the
/// caller's thread is to keep.
pub fn as_guest<T: Send>(
    guest: Option<HostIds>,
    act: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    let Some(guest) = guest else { return act() };
    let _dumpable = KeptDumpable::begin()?;
    thread::scope(|scope| {
        let acting = thread::Builder::new().spawn_scoped(scope, || {
            become_user(guest)?;
            act()
        });
        let acting = acting.map_err(|_| Errno::EAGAIN)?;
        acting.join().unwrap_or(Err(Errno::EIO))
    })
}

/// Keeps this process as dumpable as it was: the kernel makes it undumpable when one of its threads
/// becomes another user.
///
/// Several may act at once. The first finds how it was, the last puts it back; one in between would
/// find, and put back, what another's change had made of it.
struct KeptDumpable;

struct Acting {
    count: usize,
    was_dumpable: bool,
}

static ACTING: Mutex<Acting> = Mutex::new(Acting {
    count: 0,
    was_dumpable: false,
});

impl KeptDumpable {
    fn begin() -> Result<Self, Errno> {
        let mut acting = ACTING.lock().unwrap_or_else(PoisonError::into_inner);
        if acting.count == 0 {
            acting.was_dumpable = get_dumpable()?;
        }
        acting.count += 1;
        Ok(Self)
    }
}

impl Drop for KeptDumpable {
    fn drop(&mut self) {
        let mut acting = ACTING.lock().unwrap_or_else(PoisonError::into_inner);
        acting.count -= 1;
        if acting.count == 0 {
            // Fails for no value that was read from it.
            _ = set_dumpable(acting.was_dumpable);
        }
    }
}

/// The group first, which the user could not change. Both calls tell the id before, whether or not
/// they succeeded (setfsuid(2)).
fn become_user(guest: HostIds) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(guest.uid), Gid::from_raw(guest.gid));
    setfsgid(gid);
    setfsuid(uid);
    if setfsgid(gid) == gid && setfsuid(uid) == uid {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use nix::unistd::geteuid;

    use super::*;

    const SOMEBODY: HostIds = HostIds {
        uid: 54_321,
        gid: 54_322,
    };

    #[test]
    fn files_are_the_guests_and_nothing_of_it_stays() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("made");
        if !geteuid().is_root() {
            let refused = as_guest(Some(SOMEBODY), || -> Result<(), Errno> {
                panic!("it is not that user")
            });
            assert_eq!(refused, Err(Errno::EPERM));
            return;
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let dumpable = get_dumpable().unwrap();
        let io = |result: std::io::Result<()>| {
            result.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
        };
        as_guest(Some(SOMEBODY), || io(fs::write(&made, "x"))).unwrap();
        let owner = fs::metadata(&made).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (SOMEBODY.uid, SOMEBODY.gid));
        // What only root may write.
        let closed = tempfile::tempdir().unwrap();
        let file = closed.path().join("file");
        let refused = as_guest(Some(SOMEBODY), || io(fs::write(&file, "x")));
        assert_eq!(refused, Err(Errno::EACCES));
        fs::write(&file, "x").unwrap();
        assert_eq!(get_dumpable().unwrap(), dumpable);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        as_guest(Some(SOMEBODY), || Ok(())).unwrap();
                    }
                });
            }
        });
        assert_eq!(get_dumpable().unwrap(), dumpable);
    }
}
