//! Determines the user that runs the supervisor, and the unprivileged user that replaces root, so that the guest is
//! never root.

use std::fs;
use std::io;

use nix::unistd::{getegid, geteuid};
use sandfork_jail::program::{HostIds, UidRange};

use super::Errno;
use super::probe::{no_proc, untried};
use crate::error::Error;

/// The guest's uid and gid on the host if the launching user is root.
///
/// It is far above the ids that useradd(8), systemd's `DynamicUser=` (61184 to 65519) and the usual subordinate ranges
/// (100000 and up, in blocks of 65536) assign. It is below 2^31 for programs that treat a uid as signed.
pub const UNPRIVILEGED_ID: u32 = 2_147_000_000;

/// The host uids of root's workers, one per worker: those above [`UNPRIVILEGED_ID`], up to the largest positive signed
/// number.
const WORKER_UIDS: UidRange = UidRange {
    first: UNPRIVILEGED_ID + 1,
    count: i32::MAX.cast_unsigned() - UNPRIVILEGED_ID,
};

/// The capabilities needed to write an id map with several ids (user_namespaces(7)), by their bits in
/// `/proc/self/status`: `CAP_SETGID`, `CAP_SETUID`, `CAP_SYS_ADMIN`.
const MAP_IDS: u64 = 1 << 6 | 1 << 7 | SYS_ADMIN;

/// `CAP_SYS_ADMIN`, with which root copies host mounts before it drops its uid (open_tree(2)).
pub const SYS_ADMIN: u64 = 1 << 21;

/// The capabilities with which root drops its ids and capabilities: `CAP_SETGID`, `CAP_SETUID`, `CAP_SETPCAP`.
pub const DROP_ROOT: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// The effective user of the supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostUser {
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// The ids to which the jail switches first, so that the guest is never root: [`UNPRIVILEGED_ID`], or the last id
    /// in a user namespace that lacks it. `None` for an ordinary user, including one that is root only in a user
    /// namespace without other ids.
    pub drop_to: Option<HostIds>,
    /// The uids for root's workers, if this process may map them.
    pub worker_uids: Option<UidRange>,
}

impl HostUser {
    /// Determines the current user.
    ///
    /// # Errors
    /// If the user's rights cannot be read. If they counted as missing, all workers of root would share one host uid.
    pub(super) fn probe() -> Result<Self, Error> {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let (uid_map, gid_map) = (read("/proc/self/uid_map")?, read("/proc/self/gid_map")?);
        let status = read("/proc/self/status")?;
        if status.is_empty() {
            return Err(no_proc());
        }
        Ok(Self::of(
            uid,
            gid,
            &uid_map,
            &gid_map,
            effective_capabilities(&status),
        ))
    }

    fn of(uid: u32, gid: u32, uid_map: &str, gid_map: &str, capabilities: u64) -> Self {
        let unprivileged = || {
            let (uid, gid) = (unprivileged_id(uid_map)?, unprivileged_id(gid_map)?);
            Some(HostIds { uid, gid })
        };
        Self {
            uid,
            gid,
            drop_to: if uid == 0 { unprivileged() } else { None },
            worker_uids: (uid == 0 && capabilities & MAP_IDS == MAP_IDS)
                .then_some(WORKER_UIDS)
                .filter(|range| has_range(uid_map, *range)),
        }
    }

    /// Returns whether this user has uid 0.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// Reads a file of procfs. Empty on a kernel without user namespaces, which has no map files.
fn read(path: &str) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| {
            let problem =
                format!("this user's rights could not be determined: could not read {path}");
            untried(problem, Errno::of(&error))
        }),
    }
}

/// Returns the set that `/proc/self/status` (proc(5)) lists as `CapEff`.
pub fn effective_capabilities(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

/// Returns the first and last id of each range in a map (user_namespaces(7)).
fn ranges(map: &str) -> impl Iterator<Item = (u32, u32)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, _, count) = (
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        );
        Some((first, first.checked_add(count.checked_sub(1)?)?))
    })
}

fn has_range(map: &str, UidRange { first, count }: UidRange) -> bool {
    ranges(map).any(|(lowest, highest)| lowest <= first && first + (count - 1) <= highest)
}

/// Returns the id to use from a map; `None` if the map has only root.
fn unprivileged_id(map: &str) -> Option<u32> {
    let last = |(first, last): (u32, u32)| {
        if (first..=last).contains(&UNPRIVILEGED_ID) {
            UNPRIVILEGED_ID
        } else {
            last
        }
    };
    let usable: Vec<u32> = ranges(map).map(last).filter(|id| *id != 0).collect();
    usable
        .iter()
        .copied()
        .find(|id| *id == UNPRIVILEGED_ID)
        .or(usable.into_iter().max())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "         0          0 4294967295\n";

    fn dropped(uid: u32, map: &str) -> Option<u32> {
        HostUser::of(uid, uid, map, map, 0)
            .drop_to
            .map(|ids| ids.uid)
    }

    #[test]
    fn workers_have_uids_if_root_may_map_them() {
        let range =
            |uid, map, capabilities| HostUser::of(uid, uid, map, map, capabilities).worker_uids;
        let docker = 0x0000_0000_a804_25fb;
        assert_eq!(range(0, ALL, u64::MAX), Some(WORKER_UIDS));
        assert_eq!(range(0, ALL, docker), None);
        assert_eq!(range(1000, ALL, u64::MAX), None);
        assert_eq!(range(0, "0 1000 1\n1 100000 65536\n", u64::MAX), None);
        assert_eq!(
            effective_capabilities("Name:\tx\nCapEff:\t00000000a80425fb\n"),
            docker
        );
        assert_eq!(effective_capabilities(""), 0);
    }

    #[test]
    fn root_becomes_an_unassigned_id() {
        assert_eq!(dropped(0, ALL), Some(UNPRIVILEGED_ID));
        assert_eq!(dropped(1000, ALL), None);
    }

    #[test]
    fn root_of_a_rootless_container_becomes_its_last_id() {
        let podman = "0 1000 1\n1 100000 65536\n";
        assert_eq!(dropped(0, podman), Some(65536));
    }

    #[test]
    fn root_of_a_single_id_namespace_stays() {
        assert_eq!(dropped(0, "0 1000 1\n"), None);
        assert_eq!(dropped(0, ""), None);
    }
}
