//! Probes whether the jail's namespaces and mounts can be created.
//!
//! On several distributions unshare(2) succeeds and a later call fails. The probe therefore tries the whole sequence in
//! a child process, as the user under which the jail will run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::probe::untried;
use super::user::{DROP_ROOT, SYS_ADMIN, effective_capabilities};
use super::{Errno, GUEST_ID, HostUser};
use crate::error::Error;
use sandfork_jail::sys::probe_child::{ChainFailure, ChainIdentity, ChainStep, try_chain};

/// The result of the probe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NamespaceSupport {
    /// Every step succeeded.
    Available,
    /// The kernel refused a step.
    Refused(Refusal),
}

/// Whether processes can have separate clocks (time_namespaces(7), Linux 5.6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeNamespaces {
    /// Time namespaces can be created.
    Available,
    /// The kernel was built without them, or `user.max_time_namespaces` is 0.
    Unavailable,
}

impl TimeNamespaces {
    pub(super) fn probe() -> Self {
        let is_built = Path::new("/proc/self/timens_offsets").exists();
        let most = fs::read_to_string("/proc/sys/user/max_time_namespaces").unwrap_or_default();
        if is_built && most.trim() != "0" {
            Self::Available
        } else {
            Self::Unavailable
        }
    }
}

/// The refusal of one step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The step that was refused.
    pub step: ChainStep,
    /// The kernel's error.
    pub errno: Errno,
    /// The cause, as far as it can be determined.
    pub cause: RefusalCause,
}

/// The reason why a step was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalCause {
    /// The limit `user.max_KIND_namespaces` is reached. Holds the kind whose limit is 0, or else `user`.
    NoneLeft(&'static str),
    /// Debian's `kernel.unprivileged_userns_clone` is 0.
    UnprivilegedCloneOff,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns` is 1.
    AppArmor,
    /// This process runs in a container whose seccomp profile or capabilities forbid the step.
    Container,
    /// A seccomp filter around this process, which is not in a container, forbids the step, such as the filter of a
    /// systemd unit.
    Filter,
    /// Root lacks `CAP_SYS_ADMIN`, with which it copies the host's mounts before it drops its uid.
    RootWithoutSysAdmin,
    /// Root lacks `CAP_SYS_ADMIN` and the capabilities with which it drops its uid.
    RootWithoutCapabilities,
    /// The host lacks a device that every sandbox shows.
    NoDevice(Device),
    /// The root file system is the initramfs, which pivot_root(2) cannot leave.
    Initramfs,
    /// This process has changed its user, so root owns its files in `/proc` (`PR_SET_DUMPABLE` of prctl(2)).
    NotDumpable,
    /// The cause is unknown.
    Unknown,
}

/// A device that every sandbox shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Device {
    /// Its path.
    pub path: &'static str,
    /// The major and minor number.
    pub numbers: &'static str,
}

/// The devices in a sandbox with a mount namespace.
pub const DEVICES: [Device; 6] = [
    Device::new("/dev/null", "1 3"),
    Device::new("/dev/zero", "1 5"),
    Device::new("/dev/full", "1 7"),
    Device::new("/dev/random", "1 8"),
    Device::new("/dev/urandom", "1 9"),
    Device::new("/dev/tty", "5 0"),
];

impl Device {
    const fn new(path: &'static str, numbers: &'static str) -> Self {
        Self { path, numbers }
    }
}

/// The kinds of namespaces that the jail creates, as the limits of user_namespaces(7) name them.
const KINDS: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The system settings that can restrict namespaces.
struct Settings {
    /// A kind of namespace whose limit is 0.
    forbidden_kind: Option<&'static str>,
    unprivileged_userns_clone: Option<u64>,
    apparmor_restrict: Option<u64>,
    confinement: Confinement,
    is_dumpable: bool,
    /// The effective capabilities of root, which drops its uid; `None` for an ordinary user, who needs none.
    root_capabilities: Option<u64>,
}

/// What already confines this process.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Confinement {
    Nothing,
    /// A seccomp filter.
    Filter,
    Container,
}

impl NamespaceSupport {
    /// Runs the probe. Exhaustion is not a refusal: a host that has run out of a resource causes an error.
    pub(super) fn probe(user: HostUser) -> Result<Self, Error> {
        let drop_to = user.drop_to.map(|ids| (ids.uid, ids.gid));
        let identity = ChainIdentity {
            drop_to,
            outside: drop_to.unwrap_or((user.uid, user.gid)),
            inside: (GUEST_ID, GUEST_ID),
        };
        let tried = try_chain(identity).unwrap_or_else(|errno| {
            Err(ChainFailure {
                step: ChainStep::Clone,
                errno: errno as i32,
            })
        });
        match tried {
            Ok(()) => Ok(Self::with_devices()),
            Err(ChainFailure { step, errno }) if has_run_out(errno) => {
                let problem = format!("this host could not be probed: could not {step}");
                Err(untried(problem, Errno(errno)))
            }
            Err(failure) => Ok(Self::Refused(Settings::read(user).refusal(failure))),
        }
    }

    /// Checks the devices too: the probe mounts only `/usr`, but the jail also mounts the devices.
    fn with_devices() -> Self {
        let missing = |device: &&Device| !Path::new(device.path).exists();
        DEVICES
            .iter()
            .find(missing)
            .map_or(Self::Available, |device| {
                Self::Refused(Refusal {
                    step: ChainStep::OpenTree,
                    errno: Errno(libc::ENOENT),
                    cause: RefusalCause::NoDevice(*device),
                })
            })
    }
}

/// Returns whether the errno means a lack of processes, memory or descriptors, which may be temporary.
fn has_run_out(errno: i32) -> bool {
    [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE].contains(&errno)
}

impl Settings {
    fn read(user: HostUser) -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let marks = [
            "/.dockerenv",
            "/run/.containerenv",
            "/run/systemd/container",
        ];
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let confinement = if marks.iter().any(|mark| Path::new(mark).exists()) {
            Confinement::Container
        } else if status.lines().any(|line| line == "Seccomp:\t2") {
            Confinement::Filter
        } else {
            Confinement::Nothing
        };
        Self {
            forbidden_kind: KINDS
                .into_iter()
                .find(|kind| number(&format!("/proc/sys/user/max_{kind}_namespaces")) == Some(0)),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            confinement,
            // Root owns the `/proc` files of a process that is not dumpable (also with `fs.suid_dumpable=2`).
            is_dumpable: fs::metadata("/proc/self/status").is_ok_and(|own| own.uid() == user.uid),
            root_capabilities: user.drop_to.map(|_| effective_capabilities(&status)),
        }
    }

    fn root_lacks(&self, capabilities: u64) -> bool {
        self.root_capabilities
            .is_some_and(|has| has & capabilities != capabilities)
    }

    fn refusal(&self, failure: ChainFailure) -> Refusal {
        let ChainFailure { step, errno } = failure;
        Refusal {
            step,
            errno: Errno(errno),
            cause: self.cause_of(step, errno),
        }
    }

    fn cause_of(&self, step: ChainStep, errno: i32) -> RefusalCause {
        match step {
            ChainStep::Unshare if errno == libc::ENOSPC || self.forbidden_kind.is_some() => {
                RefusalCause::NoneLeft(self.forbidden_kind.unwrap_or("user"))
            }
            ChainStep::Unshare if self.unprivileged_userns_clone == Some(0) => {
                RefusalCause::UnprivilegedCloneOff
            }
            ChainStep::OpenTree if errno == libc::EPERM && self.root_lacks(SYS_ADMIN) => {
                if self.root_lacks(DROP_ROOT) {
                    RefusalCause::RootWithoutCapabilities
                } else {
                    RefusalCause::RootWithoutSysAdmin
                }
            }
            ChainStep::PivotRoot if errno == libc::EINVAL => RefusalCause::Initramfs,
            ChainStep::DenySetgroups if errno == libc::EACCES && !self.is_dumpable => {
                RefusalCause::NotDumpable
            }
            // AppArmor lets the process create the namespace and then denies operations in it. A container on such a
            // host sees the host's setting.
            ChainStep::Unshare
                if errno == libc::EPERM && self.confinement == Confinement::Container =>
            {
                RefusalCause::Container
            }
            _ if self.apparmor_restrict == Some(1) => RefusalCause::AppArmor,
            _ if self.confinement == Confinement::Container => RefusalCause::Container,
            _ if self.confinement == Confinement::Filter && errno == libc::EPERM => {
                RefusalCause::Filter
            }
            _ => RefusalCause::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Settings = Settings {
        forbidden_kind: None,
        unprivileged_userns_clone: None,
        apparmor_restrict: None,
        confinement: Confinement::Nothing,
        is_dumpable: true,
        root_capabilities: None,
    };

    #[test]
    fn refusal_cause_is_named() {
        let off = Settings {
            unprivileged_userns_clone: Some(0),
            ..FREE
        };
        let none = Settings {
            forbidden_kind: Some("net"),
            ..FREE
        };
        let ubuntu = Settings {
            apparmor_restrict: Some(1),
            ..FREE
        };
        let docker = Settings {
            confinement: Confinement::Container,
            ..FREE
        };
        let docker_on_ubuntu = Settings {
            apparmor_restrict: Some(1),
            ..docker
        };
        let eperm = libc::EPERM;
        for (step, errno, settings, cause) in [
            (
                ChainStep::Unshare,
                libc::ENOSPC,
                &FREE,
                RefusalCause::NoneLeft("user"),
            ),
            (
                ChainStep::Unshare,
                libc::ENOSPC,
                &none,
                RefusalCause::NoneLeft("net"),
            ),
            (
                ChainStep::Unshare,
                eperm,
                &off,
                RefusalCause::UnprivilegedCloneOff,
            ),
            (ChainStep::UidMap, eperm, &ubuntu, RefusalCause::AppArmor),
            (
                ChainStep::MountTmpfs,
                libc::EACCES,
                &ubuntu,
                RefusalCause::AppArmor,
            ),
            (ChainStep::Unshare, eperm, &docker, RefusalCause::Container),
            (
                ChainStep::Unshare,
                eperm,
                &docker_on_ubuntu,
                RefusalCause::Container,
            ),
            (
                ChainStep::Unshare,
                libc::EACCES,
                &ubuntu,
                RefusalCause::AppArmor,
            ),
            (
                ChainStep::PivotRoot,
                libc::EINVAL,
                &FREE,
                RefusalCause::Initramfs,
            ),
            (ChainStep::Unshare, eperm, &FREE, RefusalCause::Unknown),
        ] {
            let refusal = settings.refusal(ChainFailure { step, errno });
            assert_eq!(
                refusal,
                Refusal {
                    step,
                    errno: Errno(errno),
                    cause
                }
            );
        }
    }

    #[test]
    fn seccomp_filter_refuses_with_eperm() {
        let unit = Settings {
            confinement: Confinement::Filter,
            ..FREE
        };
        let cause = |errno| unit.cause_of(ChainStep::PrivateMounts, errno);
        assert_eq!(cause(libc::EPERM), RefusalCause::Filter);
        assert_eq!(cause(libc::EACCES), RefusalCause::Unknown);
    }

    #[test]
    fn only_root_needs_capabilities() {
        const OF_DOCKER: u64 = 0x0000_0000_a804_25fb;
        let cause = |root_capabilities| {
            let settings = Settings {
                confinement: Confinement::Container,
                root_capabilities,
                ..FREE
            };
            settings.cause_of(ChainStep::OpenTree, libc::EPERM)
        };
        assert_eq!(cause(None), RefusalCause::Container);
        assert_eq!(cause(Some(u64::MAX)), RefusalCause::Container);
        assert_eq!(cause(Some(OF_DOCKER)), RefusalCause::RootWithoutSysAdmin);
        assert_eq!(cause(Some(0)), RefusalCause::RootWithoutCapabilities);
    }

    #[test]
    fn undumpable_process_is_not_a_container() {
        let cause = |is_dumpable| {
            let settings = Settings {
                is_dumpable,
                confinement: Confinement::Container,
                ..FREE
            };
            settings.cause_of(ChainStep::DenySetgroups, libc::EACCES)
        };
        assert_eq!(cause(false), RefusalCause::NotDumpable);
        assert_eq!(cause(true), RefusalCause::Container);
    }
}
