//! Names directories after their supervisor, so that the next supervisor recognises and removes what a killed one left.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::utsname::uname;
use nix::unistd::Pid;
use sha2::{Digest, Sha256};

use sandfork_jail::sys::procfs::Stat;

/// The prefix of every supervisor's name.
const PREFIX: &str = "sandfork-";

/// Returns a name unique to this supervisor: the scope in which its pid is valid, the pid, and the start time of the
/// process, which distinguishes it from a later process with the same pid. A counter distinguishes several supervisors
/// in one process.
///
/// # Errors
///
/// When the kernel does not report one of these. With any other name, other supervisors would assume that this one has
/// ended.
pub fn own_name() -> io::Result<String> {
    static SUPERVISORS: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let (scope, started) = (own_scope()?, start_time(pid)?);
    let number = SUPERVISORS.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{PREFIX}{scope:016x}-{pid}-{started}-{number}"))
}

/// Whether `name` is the name of a supervisor that has ended.
///
/// A supervisor of another scope counts as live, because its pid means nothing in this scope.
pub fn is_abandoned(name: &str) -> bool {
    owner(name).is_some_and(|owner| {
        let is_near = own_scope().is_ok_and(|own| own == owner.scope);
        is_near && is_gone(&owner, start_time(owner.pid).ok())
    })
}

/// Whether the owner has ended. An unreadable file proves nothing: this process may have run out of descriptors, or
/// `/proc` may hide other users' processes (`hidepid` of proc(5)). An unused pid proves it.
fn is_gone(owner: &Owner, started: Option<u64>) -> bool {
    match started {
        Some(started) => started != owner.started,
        None => i32::try_from(owner.pid)
            .is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)),
    }
}

#[derive(Debug, Eq, PartialEq)]
struct Owner {
    scope: u64,
    pid: u32,
    started: u64,
}

/// Parses the name of a supervisor.
fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = Owner {
        scope: u64::from_str_radix(parts.next()?, 16).ok()?,
        pid: parts.next()?.parse().ok()?,
        started: parts.next()?.parse().ok()?,
    };
    parts.next()?.parse::<u64>().ok()?;
    parts.next().is_none().then_some(owner)
}

/// Returns the scope in which the pids and start times that this process sees are valid: the boot of the kernel, the
/// pid namespace and the time namespace.
fn own_scope() -> io::Result<u64> {
    let boot_id = match boot_id() {
        // A procfs mounted with `subset=pid` has no `sys` directory. With the host name, names from an earlier boot
        // share this scope, but their supervisors have ended anyway.
        Err(error) if error.kind() == io::ErrorKind::NotFound => host_name()?,
        found => found?,
    };
    let time = match namespace("time") {
        // Linux before 5.6 has no time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        found => found,
    };
    Ok(scope(&boot_id, namespace("pid")?, time?))
}

/// Returns the id of this boot of the kernel (random(4)).
pub fn boot_id() -> io::Result<String> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot_id.trim().to_owned())
}

fn host_name() -> io::Result<String> {
    Ok(uname()?.nodename().to_string_lossy().into_owned())
}

/// Returns the inode that identifies one of this process's namespaces (namespaces(7)).
fn namespace(kind: &str) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/self/ns/{kind}"))?.ino())
}

/// Returns a 64-bit id of a scope. The inodes alone are not enough: the initial namespaces have the same inodes on
/// every host, and hosts may share a directory for temporary files.
fn scope(boot_id: &str, pid_namespace: u64, time_namespace: u64) -> u64 {
    let hash = Sha256::new()
        .chain_update(boot_id)
        .chain_update(pid_namespace.to_le_bytes())
        .chain_update(time_namespace.to_le_bytes())
        .finalize();
    let first = hash.iter().take(8);
    first.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Returns the start time of a process, in clock ticks after boot.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let stat = Stat::parse(&stat).ok_or(io::ErrorKind::InvalidData)?;
    Ok(stat.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_identifies_its_owner() {
        let started = start_time(std::process::id()).expect("this process has a start time");
        let own = Owner {
            scope: own_scope().expect("the scope is readable"),
            pid: std::process::id(),
            started,
        };
        let name = own_name().expect("the kernel reports all parts of the name");
        assert_eq!(owner(&name), Some(own));
        assert!(!is_abandoned(&name));
    }

    #[test]
    fn reused_pid_with_another_start_time_is_abandoned() {
        let scope = own_scope().expect("the scope is readable");
        let pid = std::process::id();
        assert!(is_abandoned(&format!("sandfork-{scope:x}-{pid}-1-0")));
        assert!(!is_abandoned(&format!("sandfork-1-{pid}-1-0")));
    }

    #[test]
    fn scopes_differ_by_boot_and_namespace() {
        let (here, there) = ("6e6a-boot", "93c1-boot");
        let scopes = [
            scope(here, 4_026_531_836, 4_026_531_834),
            scope(there, 4_026_531_836, 4_026_531_834),
            scope(here, 4_026_531_835, 4_026_531_834),
            scope(here, 4_026_531_836, 0),
        ];
        let distinct: std::collections::BTreeSet<_> = scopes.iter().collect();
        assert_eq!(distinct.len(), scopes.len());
    }

    #[test]
    fn names_from_another_host_are_not_abandoned() {
        // Larger than every pid that the kernel assigns (pid_max of proc(5)), so that no process has it.
        let of = |scope: u64| format!("sandfork-{scope:x}-{}-1-0", i32::MAX);
        let inode = |kind| namespace(kind).expect("the namespace is readable");
        let elsewhere = scope("another boot", inode("pid"), inode("time"));
        assert!(!is_abandoned(&of(elsewhere)));
        assert!(is_abandoned(&of(
            own_scope().expect("the scope is readable")
        )));
    }

    #[test]
    fn owner_with_unreadable_stat_is_alive() {
        let of = |pid| Owner {
            scope: own_scope().expect("the scope is readable"),
            pid,
            started: 1,
        };
        assert!(!is_gone(&of(std::process::id()), None));
        // Larger than every pid that the kernel assigns (pid_max of proc(5)).
        assert!(is_gone(&of(i32::MAX.cast_unsigned()), None));
        assert!(!is_gone(&of(0), None));
    }

    #[test]
    fn foreign_names_have_no_owner() {
        for name in [
            "sandfork-supervisor",
            "sandfork-1",
            "sandfork-1-2",
            "user.slice",
            "sandfork-1-2-3",
            "sandfork-1-2-3-4-5",
        ] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
