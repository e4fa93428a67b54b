//! Creates the namespaces of zygote and worker (namespaces(7)).

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::time::{ClockId, clock_gettime};

use super::failure::NOT_REFUSED;
use crate::sys::procfs;

/// `CLONE_NEWTIME` of linux/sched.h, which nix does not define.
const CLONE_NEWTIME: CloneFlags = CloneFlags::from_bits_retain(0x80);

/// The clock offsets of the time namespace that children enter (time_namespaces(7)).
const OFFSETS: &str = "self/timens_offsets";

/// Creates the zygote's namespaces of every kind except time, so that not even preloaded code can see the host.
pub fn unshare_zygote() -> Result<(), Errno> {
    unshare(
        CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )
}

/// Creates the zygote's time namespace, which the next forked child enters. From here on no child may share this
/// process's memory: Linux before 6.2 rejects that (`EINVAL`).
pub fn unshare_time() -> Result<(), Errno> {
    unshare(CLONE_NEWTIME)
}

/// Sets the monotonic and boot-time clocks of the new time namespace to zero, to within a second. No process is in the
/// namespace yet; once one is, the kernel rejects changes. Reads the offsets back to verify them.
pub fn start_clocks(proc: BorrowedFd) -> Result<(), Errno> {
    let mut offsets = Vec::new();
    for clock in [ClockId::CLOCK_MONOTONIC, ClockId::CLOCK_BOOTTIME] {
        let seconds = clock_gettime(clock)?.tv_sec();
        offsets.push(format!("{clock} {} 0", -seconds));
    }
    procfs::write(proc, OFFSETS, &offsets.join("\n"))?;
    let found = procfs::read(proc, OFFSETS)?;
    let seconds = |lines: &str| -> Vec<String> {
        let fields = lines.lines().map(|line| line.split_ascii_whitespace());
        let seconds = fields.filter_map(|mut fields| fields.nth(1).map(str::to_owned));
        seconds.collect()
    };
    if seconds(&found) == seconds(&offsets.join("\n")) {
        Ok(())
    } else {
        Err(NOT_REFUSED)
    }
}

/// Creates the worker's namespaces while the worker still has privileges over the zygote's user namespace. That user
/// namespace then owns them, so the guest's own user namespace, created later, has no privileges over them. The cgroup
/// namespace is created after the worker joined its cgroup, because that cgroup becomes its root.
pub fn unshare_worker() -> Result<(), Errno> {
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )
}

/// Enters the network namespace that the zygote lends to the worker. Creating one takes longer than all other steps
/// together.
pub fn enter_network(lent: BorrowedFd) -> Result<(), Errno> {
    setns(lent, CloneFlags::CLONE_NEWNET)
}

/// Creates a network namespace for this worker alone. The zygote's user namespace owns it.
pub fn unshare_network() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNET)
}

/// Creates the guest's user namespace.
pub fn unshare_user() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWUSER)
}
