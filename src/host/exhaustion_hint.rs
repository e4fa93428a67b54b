//! Suggests remedies for a host that has run out of a resource. A host that forbids something needs a different remedy:
//! a weaker level may help there, but never against exhaustion.

use std::io;

use nix::errno::Errno;

/// Returns the remedy for an error, or `otherwise` if the error does not mean exhaustion.
pub fn exhaustion_hint(errno: Errno, otherwise: &'static str) -> &'static str {
    match errno {
        Errno::EMFILE => "run fewer at once, or allow this process more open files (`ulimit -n`)",
        Errno::ENFILE => "run fewer at once, or allow the host more open files (`fs.file-max`)",
        Errno::ENOMEM => {
            "the host, or the cgroup that this process is in, has no memory left, or this process may have no more \
             (`ulimit -v`, `ulimit -d`)"
        }
        // From fork(2), clone(2) and similar calls.
        Errno::EAGAIN => {
            "run fewer at once, or allow more processes (`ulimit -u`, or `pids.max` of the cgroup that \
             this process is in)"
        }
        Errno::EFBIG => "allow this process larger files (`ulimit -f`)",
        _ => otherwise,
    }
}

/// Returns the errno's description, with the remedy if a resource is exhausted.
pub fn with_hint(errno: Errno) -> String {
    match exhaustion_hint(errno, "") {
        "" => errno.desc().to_owned(),
        hint => format!("{}; {hint}", errno.desc()),
    }
}

/// Returns the remedy for a failed step of a jail.
pub fn step_hint(errno: Errno) -> &'static str {
    let otherwise = match errno {
        Errno::EPERM => {
            "run `sandfork doctor` to see what this host allows, and look for a filter of system calls around this \
             process, such as a unit's `SystemCallFilter=`"
        }
        _ => "run `sandfork doctor` to see what this host allows",
    };
    exhaustion_hint(errno, otherwise)
}

/// Returns the remedy for an I/O error.
pub fn io_exhaustion_hint(error: &io::Error, otherwise: &'static str) -> &'static str {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.map_or(otherwise, |errno| exhaustion_hint(errno, otherwise))
}

/// Returns whether an operation failed because a resource is exhausted.
pub fn has_run_out(error: &io::Error) -> bool {
    !io_exhaustion_hint(error, "").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhaustion_hints_exclude_refusals() {
        let open = |errno: Errno| io_exhaustion_hint(&errno.into(), "check `sandfork doctor`");
        assert!(open(Errno::EMFILE).contains("ulimit -n"));
        assert!(open(Errno::EFBIG).contains("ulimit -f"));
        assert!(open(Errno::EAGAIN).contains("pids.max"));
        assert!(open(Errno::ENOMEM).contains("`ulimit -v`, `ulimit -d`"));
        assert_eq!(open(Errno::EACCES), "check `sandfork doctor`");
        assert!(has_run_out(&Errno::EMFILE.into()) && !has_run_out(&Errno::EACCES.into()));
    }
}
