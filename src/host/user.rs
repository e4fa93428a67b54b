//! Who runs the supervisor, and whom root becomes so that the guest never is root.

use std::fs;

use nix::unistd::{getegid, geteuid};
use serde::{Deserialize, Serialize};

/// The host uid and gid that the guest has when the launching user is root.
///
/// Far above what useradd(8), systemd's `DynamicUser=` (61184 to 65519) and the usual subordinate
/// ranges (100000 and up, in blocks of 65536) hand out, below 2^31 for programs that think a uid
/// is signed.
pub const UNPRIVILEGED_ID: u32 = 2_147_000_000;

/// The effective user of the supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HostUser {
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// Whom the jail becomes first, so that the guest is never root: [`UNPRIVILEGED_ID`], or in a
    /// user namespace without it the last id that there is. `None` for an ordinary user, also
    /// where he calls himself root in a user namespace of his own.
    pub drop_to: Option<Ids>,
}

/// A uid and a gid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl HostUser {
    pub(super) fn probe() -> Self {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::of(
            uid,
            gid,
            &read("/proc/self/uid_map"),
            &read("/proc/self/gid_map"),
        )
    }

    fn of(uid: u32, gid: u32, uid_map: &str, gid_map: &str) -> Self {
        let unprivileged = || {
            let (uid, gid) = (unprivileged_id(uid_map)?, unprivileged_id(gid_map)?);
            Some(Ids { uid, gid })
        };
        Self {
            uid,
            gid,
            drop_to: if uid == 0 { unprivileged() } else { None },
        }
    }

    /// Whether this user calls himself root.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// The id to become, of those that a map (user_namespaces(7)) has; `None` where it has only root.
fn unprivileged_id(map: &str) -> Option<u32> {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, _, count) = (
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        );
        Some((first, first.checked_add(count.checked_sub(1)?)?))
    });
    let last = |(first, last): (u32, u32)| {
        if (first..=last).contains(&UNPRIVILEGED_ID) {
            UNPRIVILEGED_ID
        } else {
            last
        }
    };
    let usable: Vec<u32> = ranges.map(last).filter(|id| *id != 0).collect();
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
        HostUser::of(uid, uid, map, map).drop_to.map(|ids| ids.uid)
    }

    #[test]
    fn root_becomes_an_id_that_nobody_has() {
        assert_eq!(dropped(0, ALL), Some(UNPRIVILEGED_ID));
        assert_eq!(dropped(1000, ALL), None);
    }

    #[test]
    fn root_of_a_rootless_container_becomes_its_last_id() {
        let podman = "0 1000 1\n1 100000 65536\n";
        assert_eq!(dropped(0, podman), Some(65536));
    }

    #[test]
    fn who_only_calls_himself_root_stays_who_he_is() {
        assert_eq!(dropped(0, "0 1000 1\n"), None);
        assert_eq!(dropped(0, ""), None);
    }
}
