//! Runs file operations with the rights of the guest's user.
//!
//! If the supervisor is root, the guest's file systems know only the guest's user: a file that root creates there would
//! have an owner without a mapping (`EOVERFLOW`, user_namespaces(7)). Acting as the guest's user also keeps root from
//! reaching files that the guest could not reach.

use std::sync::Mutex;
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl::{get_dumpable, set_dumpable};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::waiters::lock;
use sandfork_jail::program::HostIds;

/// Runs `act` with the file system rights of `guest` and no others. `None` means that the supervisor is an ordinary
/// user, whose rights the guest already has.
///
/// `act` runs in a new thread, so that the identity ends with the thread. Changing the identity also clears the
/// thread's parent-death signal (prctl(2), `PR_SET_PDEATHSIG`), which the caller's thread must keep.
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

/// Preserves the process's dumpable attribute, which the kernel clears when a thread changes its user.
///
/// Several threads may do this at once. The first thread saves the attribute and the last one restores it. Any other
/// thread would save, and restore, a value that another thread had changed.
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
            // Cannot fail: the kernel itself reported this value.
            _ = set_dumpable(acting.was_dumpable);
        }
    }
}

/// Sets the thread's file system uid and gid. The group comes first, because the new user may not change it. Both calls
/// return the previous id whether or not they succeed (setfsuid(2)).
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
    fn files_belong_to_the_guest_and_identity_is_restored() {
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
