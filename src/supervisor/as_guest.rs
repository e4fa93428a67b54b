//! File operations with the rights of the guest's user.
//!
//! For a guest of root, the file systems know only that user: a file made by root there would have
//! an owner without a number (`EOVERFLOW`, user_namespaces(7)). Running as that user also keeps
//! root from reaching what the guest could not reach.

use std::sync::Mutex;
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::{get_dumpable, set_dumpable};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::waiters::lock;
use sandfork_jail::program::HostIds;

/// Runs `act` with the file system rights of `guest` and no others. `None` stands for the guest of
/// an ordinary user, which has that user's rights already.
///
/// The work runs in its own thread, so that the identity ends with the thread. Changing the
/// identity also clears the signal that a thread may have requested for its parent's death
/// (prctl(2), `PR_SET_PDEATHSIG`); the caller's thread must keep that signal.
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
/// Several threads may do this at once. The first one records the state, and the last one restores
/// it. Any other thread would record, and restore, a state that another thread had changed.
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
        let mut acting = lock(&ACTING);
        if acting.count == 0 {
            acting.was_dumpable = get_dumpable()?;
        }
        acting.count += 1;
        Ok(Self)
    }
}

impl Drop for KeptDumpable {
    fn drop(&mut self) {
        let mut acting = lock(&ACTING);
        acting.count -= 1;
        if acting.count == 0 {
            // The value comes from the kernel, so that setting it does not fail.
            _ = set_dumpable(acting.was_dumpable);
        }
    }
}

/// Changes the group first: after changing the user, the thread could not. Both calls return the
/// previous id whether or not they succeed (setfsuid(2)).
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

    const ORDINARY: HostIds = HostIds {
        uid: 54_321,
        gid: 54_322,
    };

    #[test]
    fn files_are_the_guests_and_nothing_of_it_stays() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("made");
        if !geteuid().is_root() {
            let refused = as_guest(Some(ORDINARY), || -> Result<(), Errno> {
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
        as_guest(Some(ORDINARY), || io(fs::write(&made, "x"))).unwrap();
        let owner = fs::metadata(&made).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (ORDINARY.uid, ORDINARY.gid));
        // A directory that only root may write to.
        let closed = tempfile::tempdir().unwrap();
        let file = closed.path().join("file");
        let refused = as_guest(Some(ORDINARY), || io(fs::write(&file, "x")));
        assert_eq!(refused, Err(Errno::EACCES));
        fs::write(&file, "x").unwrap();
        assert_eq!(get_dumpable().unwrap(), dumpable);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        as_guest(Some(ORDINARY), || Ok(())).unwrap();
                    }
                });
            }
        });
        assert_eq!(get_dumpable().unwrap(), dumpable);
    }
}
