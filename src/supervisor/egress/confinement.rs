//! Verifies from the kernel's reports that the egress process is confined. It holds the credentials of a policy and has
//! the host's network, so it serves guests only if it is confined.

use std::fs::{self, File};
use std::io::{self, Read};

use sandfork_jail::program::{HostIds, RlimitResource};

use super::not_ready;
use crate::supervisor::error::{SupervisorError, While};
use crate::supervisor::verify::{CAPABILITY_SETS, ProcStatus, proc_limit_name};

/// The field of `/proc/PID/status` with the number of seccomp filters.
const FILTERS: &str = "Seccomp_filters";

/// The /proc files of the egress process, opened when it starts. Once no process may trace it, a /proc mounted with
/// `hidepid` hides it even from its own user.
#[derive(Debug)]
pub(super) struct Confinement {
    status: File,
    limits: File,
    /// The number of filters that the process inherited from the supervisor. The kernel reports it since Linux 5.9.
    inherited: Option<u64>,
}

impl Confinement {
    /// Opens the files of a child of this thread. The child has not been waited for, so that its pid cannot have been
    /// reused.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/{name}"));
        let own = fs::read_to_string("/proc/thread-self/status")?;
        Ok(Self {
            status: open("status")?,
            limits: open("limits")?,
            inherited: ProcStatus::parse(&own).number(FILTERS),
        })
    }

    /// Compares the kernel's reports with the privileges that the process must have dropped. The kernel does not expose
    /// a process's Landlock domain: the process itself tests that access to a directory is denied, and does not become
    /// ready otherwise.
    pub(super) fn verify(&mut self, identity: Option<HostIds>) -> Result<(), SupervisorError> {
        let (mut status, mut limits) = (String::new(), String::new());
        let read = "read what the egress process has given up";
        self.status.read_to_string(&mut status).when(read)?;
        self.limits.read_to_string(&mut limits).when(read)?;
        let status = ProcStatus::parse(&status);
        let missing = if is_filtered(&status, self.inherited) {
            missing(&status, &limits, identity)
        } else {
            Some("load its filter")
        };
        match missing {
            None => Ok(()),
            Some(what) => Err(not_ready(what, None)),
        }
    }
}

/// Whether the process has loaded a seccomp filter in addition to those that it inherited.
fn is_filtered(status: &ProcStatus, inherited: Option<u64>) -> bool {
    let has_more = inherited.is_none_or(|inherited| status.number(FILTERS) > Some(inherited));
    status.field("Seccomp") == Some("2") && has_more
}

/// Returns the first privilege that the process has not dropped, as part of a sentence.
fn missing(status: &ProcStatus, limits: &str, identity: Option<HostIds>) -> Option<&'static str> {
    let has = |name, wanted| status.field(name) == Some(wanted);
    let is_empty = |name: &str| status.set(name) == Some(0);
    let is_user = |ids: HostIds| {
        let has_ids = status.has_only_id("Uid", ids.uid) && status.has_only_id("Gid", ids.gid);
        has_ids && has("Groups", "")
    };
    let core = proc_limit_name(RlimitResource::Core);
    let core = limits.lines().find_map(|row| row.strip_prefix(core));
    let has_no_core = core.is_some_and(|row| row.split_ascii_whitespace().take(2).eq(["0", "0"]));
    if !has("NoNewPrivs", "1") {
        Some("give up new rights")
    } else if !CAPABILITY_SETS.into_iter().all(is_empty) {
        Some("give up its capabilities")
    } else if identity.is_some_and(|ids| !is_user(ids)) {
        Some("change its user")
    } else if !has_no_core {
        Some("forbid core files")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Uid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t \nNoNewPrivs:\t1\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n";
    const LIMITS: &str =
        "Max core file size         0                    0                    bytes\n";
    const IDS: HostIds = HostIds { uid: 5, gid: 6 };

    fn found(changed: &str, to: &str) -> Option<&'static str> {
        let (status, limits) = (STATUS.replace(changed, to), LIMITS.replace(changed, to));
        assert!(
            status != STATUS || limits != LIMITS,
            "{changed:?} is in neither"
        );
        missing(&ProcStatus::parse(&status), &limits, Some(IDS))
    }

    #[test]
    fn inherited_filter_does_not_count() {
        let is_filtered = |text, inherited| is_filtered(&ProcStatus::parse(text), inherited);
        assert!(is_filtered("Seccomp:\t2\nSeccomp_filters:\t3\n", Some(2)));
        assert!(!is_filtered("Seccomp:\t2\nSeccomp_filters:\t2\n", Some(2)));
        assert!(!is_filtered("Seccomp:\t0\nSeccomp_filters:\t0\n", Some(0)));
        // Before Linux 5.9.
        assert!(is_filtered("Seccomp:\t2\n", None));
        assert!(!is_filtered("Seccomp:\t0\n", None));
    }

    #[test]
    fn retained_privileges_are_named() {
        let sound = ProcStatus::parse(STATUS);
        assert_eq!(missing(&sound, LIMITS, Some(IDS)), None);
        assert_eq!(missing(&sound, LIMITS, None), None);
        assert_eq!(
            found("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            Some("give up new rights")
        );
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let (empty, one) = (format!("{set}:\t0000"), format!("{set}:\t1000"));
            assert_eq!(
                found(&empty, &one),
                Some("give up its capabilities"),
                "{set}"
            );
            assert_eq!(found(set, "Cap"), Some("give up its capabilities"), "{set}");
        }
        for (kept, by) in [
            ("Uid:\t5\t5", "Uid:\t5\t0"),
            ("Gid:\t6\t6\t6\t6", "Gid:\t6\t6\t6\t0"),
            ("Groups:\t", "Groups:\t27"),
        ] {
            assert_eq!(found(kept, by), Some("change its user"), "{kept}");
        }
        assert_eq!(
            found("0                    bytes", "unlimited            bytes"),
            Some("forbid core files")
        );
        assert_eq!(
            found("Max core file size", "Max file size"),
            Some("forbid core files")
        );
    }
}
