//! Names that tell whose a directory is, so that what a killed supervisor left is known and swept
//! by the next one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::sys::procfs::Stat;

/// What every supervisor's name begins with.
const PREFIX: &str = "sandfork-";

/// A name of this supervisor's own: its pid namespace, its pid, and when that process started, so
/// that a reused pid is told apart. Several supervisors of one process are counted apart.
///
/// # Errors
///
/// When the kernel does not tell one of them: by another name it would be taken to be gone.
pub fn own_name() -> io::Result<String> {
    static SUPERVISORS: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let (namespace, started) = (pid_namespace()?, start_time(pid)?);
    let number = SUPERVISORS.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{PREFIX}{namespace}-{pid}-{started}-{number}"))
}

/// Whether this is the name of a supervisor that is gone.
///
/// Those of other pid namespaces are taken to live: their pids say nothing here.
pub fn is_abandoned(name: &str) -> bool {
    owner(name).is_some_and(|owner| {
        let is_near = pid_namespace().is_ok_and(|own| own == owner.pid_namespace);
        is_near && is_gone(&owner, start_time(owner.pid).ok())
    })
}

/// A file that cannot be read proves nothing: this process may be out of descriptors, or `/proc` may
/// hide what others run (`hidepid` of proc(5)). That nobody has the number does.
fn is_gone(owner: &Owner, started: Option<u64>) -> bool {
    match started {
        Some(started) => started != owner.started,
        None => i32::try_from(owner.pid)
            .is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)),
    }
}

#[derive(Debug, Eq, PartialEq)]
struct Owner {
    pid_namespace: u64,
    pid: u32,
    started: u64,
}

/// The supervisor that a name tells of.
fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = Owner {
        pid_namespace: parts.next()?.parse().ok()?,
        pid: parts.next()?.parse().ok()?,
        started: parts.next()?.parse().ok()?,
    };
    parts.next()?.parse::<u64>().ok()?;
    parts.next().is_none().then_some(owner)
}

/// The inode that stands for this process's pid namespace (namespaces(7)).
fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// When a process started, in clock ticks after boot.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let stat = Stat::parse(&stat).ok_or(io::ErrorKind::InvalidData)?;
    Ok(stat.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner() {
        let started = start_time(std::process::id()).expect("this process has a start time");
        let own = Owner {
            pid_namespace: pid_namespace().expect("it can be read"),
            pid: std::process::id(),
            started,
        };
        let name = own_name().expect("the kernel tells all of it");
        assert_eq!(owner(&name), Some(own));
        assert!(!is_abandoned(&name));
    }

    #[test]
    fn a_number_that_started_at_another_time_is_someone_elses() {
        let namespace = pid_namespace().expect("it can be read");
        let pid = std::process::id();
        assert!(is_abandoned(&format!("sandfork-{namespace}-{pid}-1-0")));
        assert!(!is_abandoned(&format!("sandfork-1-{pid}-1-0")));
    }

    #[test]
    fn who_is_there_but_cannot_be_read_lives() {
        let of = |pid| Owner {
            pid_namespace: pid_namespace().expect("it can be read"),
            pid,
            started: 1,
        };
        assert!(!is_gone(&of(std::process::id()), None));
        // Above what the kernel gives out (pid_max of proc(5)).
        assert!(is_gone(&of(i32::MAX.cast_unsigned()), None));
        assert!(!is_gone(&of(0), None));
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
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
