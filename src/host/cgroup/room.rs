//! Computes how much memory and how many tasks this process's cgroups still allow.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Controller, OwnCgroups, v1_directory, v2};
use crate::host::mountinfo;

/// Returns the free memory in bytes, or the number of free tasks, that all cgroups from this process's up to the top
/// allow. `None` if no cgroup sets a limit.
pub fn room(controller: Controller) -> Option<u64> {
    let cgroups = own_and_ancestors(controller)?;
    let rooms = cgroups.iter().map(|dir| room_in(dir, controller));
    rooms.flatten().min()
}

/// Returns the directories of this process's cgroup and its ancestors, up to the mount point.
pub(super) fn own_and_ancestors(controller: Controller) -> Option<Vec<PathBuf>> {
    let mounts = mountinfo::parse(&read(Path::new("/proc/self/mountinfo")));
    let own = OwnCgroups::parse(&read(Path::new("/proc/self/cgroup")));
    let on_v1 = v1_directory(&mounts, &own, controller);
    let (top, dir) = on_v1.or_else(|| v2::own_directory(&mounts, &own))?;
    let upwards = dir.ancestors().take_while(|dir| dir.starts_with(&top));
    Some(upwards.map(Path::to_owned).collect())
}

/// Returns the files of limit and usage, for version 2 and version 1.
fn files(controller: Controller) -> &'static [(&'static str, &'static str)] {
    match controller {
        Controller::Memory => &[
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ],
        Controller::Pids => &[("pids.max", "pids.current")],
        Controller::Cpu | Controller::Cpuacct => &[],
    }
}

fn room_in(dir: &Path, controller: Controller) -> Option<u64> {
    let number = |file: &str| read(&dir.join(file)).trim().parse::<u64>().ok();
    let (limit, used) = files(controller)
        .iter()
        .find_map(|(limit, used)| Some((number(limit)?, number(used)?)))?;
    // The kernel reclaims inactive file pages on demand.
    let kept = match controller {
        Controller::Memory => used.saturating_sub(reclaimable(&read(&dir.join("memory.stat")))),
        _ => used,
    };
    Some(limit.saturating_sub(kept))
}

/// Returns the size of inactive file pages in bytes. On version 1, `total_` values include descendants; the plain
/// values do not.
fn reclaimable(stat: &str) -> u64 {
    let value = |name| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.parse().ok()
    };
    value("total_inactive_file")
        .or(value("inactive_file"))
        .unwrap_or(0)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn version_2_subtracts_reclaimable_pages() {
        let dir = directory(&[
            ("memory.max", "1000\n"),
            ("memory.current", "700\n"),
            (
                "memory.stat",
                "anon 500\ninactive_file 150\nactive_file 20\n",
            ),
            ("pids.max", "max\n"),
            ("pids.current", "3\n"),
        ]);
        assert_eq!(room_in(dir.path(), Controller::Memory), Some(450));
        assert_eq!(room_in(dir.path(), Controller::Pids), None);
    }

    #[test]
    fn version_1_counts_descendants() {
        let dir = directory(&[
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "2000\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 1200\n"),
            ("pids.max", "10\n"),
            ("pids.current", "12\n"),
        ]);
        assert_eq!(room_in(dir.path(), Controller::Memory), Some(200));
        assert_eq!(room_in(dir.path(), Controller::Pids), Some(0));
    }

    #[test]
    fn no_limit_means_no_bound() {
        assert_eq!(room_in(directory(&[]).path(), Controller::Memory), None);
    }
}
