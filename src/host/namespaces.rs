//! Whether the jail's namespaces and mounts can really be created.
//!
//! On several distributions unshare(2) succeeds and a later call fails. The probe therefore tries
//! the whole chain in a child process, as the user that the jail will run as.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::probe::untried;
use super::user::{GIVES_UP_ROOT, SYS_ADMIN, effective_capabilities};
use super::{Errno, GUEST_ID, HostUser};
use crate::error::Error;
use sandfork_jail::sys::probe_child::{ChainFailure, ChainIdentity, ChainStep, try_chain};

/// The result of the attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NamespaceSupport {
    /// Every step holds.
    Available,
    /// A step was refused.
    Refused(Refusal),
}

/// Whether processes can have clocks of their own (time_namespaces(7), Linux 5.6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeNamespaces {
    /// They can.
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

/// The step that the kernel refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The step that was refused.
    pub step: ChainStep,
    /// The kernel's error.
    pub errno: Errno,
    /// The cause, as far as the system shows it.
    pub cause: RefusalCause,
}

/// What forbids user namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalCause {
    /// As many exist as `user.max_KIND_namespaces` allows. It has the kind: one of which there may be none, or `user`.
    NoneLeft(&'static str),
    /// Debian's `kernel.unprivileged_userns_clone` is 0.
    UnprivilegedCloneOff,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns` is 1.
    AppArmor,
    /// This process runs in a container, whose seccomp profile or capabilities forbid it.
    Container,
    /// A filter of system calls around this process, which is in no container, as of a unit of systemd.
    Filter,
    /// Root, which copies the host's mounts before it gives up its uid, has no `CAP_SYS_ADMIN` for that.
    RootWithoutSysAdmin,
    /// Root has neither that nor the capabilities by which it gives up its uid.
    RootWithoutCapabilities,
    /// The host has no such device for the sandbox to show.
    NoDevice(Device),
    /// The root file system is the initramfs, which pivot_root(2) cannot leave.
    Initramfs,
    /// This process has changed its user, so that its files in `/proc` are root's (PR_SET_DUMPABLE of prctl(2)).
    NotDumpable,
    /// The cause is unknown.
    Unknown,
}

/// A device that each sandbox shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Device {
    /// Its path.
    pub path: &'static str,
    /// Its numbers, major and minor.
    pub numbers: &'static str,
}

/// The devices that a sandbox with mounts shows.
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

/// The kinds of namespaces that the jail makes, as user_namespaces(7) names their maximum.
const KINDS: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The system settings that can restrict namespaces.
struct Settings {
    /// A kind of namespace of which the host allows none.
    without: Option<&'static str>,
    unprivileged_userns_clone: Option<u64>,
    apparmor_restrict: Option<u64>,
    around: Around,
    is_dumpable: bool,
    /// The effective capabilities of root that gives up its uid; `None` for an ordinary user, who needs none.
    of_root: Option<u64>,
}

/// What confines this process already.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Around {
    Nothing,
    /// A seccomp filter.
    Filter,
    Container,
}

impl NamespaceSupport {
    /// Tries the chain. Exhaustion is not a refusal: a host that has run out of a resource is an
    /// error.
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
                let problem = format!("what this host can do could not be tried: could not {step}");
                Err(untried(problem, Errno(errno)))
            }
            Err(failure) => Ok(Self::Refused(Settings::read(user).judge(failure))),
        }
    }

    /// The chain holds, and copies `/usr` alone: the jail copies the devices too.
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

/// Whether the errno means a lack of processes, memory or descriptors, which may be temporary.
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
        let around = if marks.iter().any(|mark| Path::new(mark).exists()) {
            Around::Container
        } else if status.lines().any(|line| line == "Seccomp:\t2") {
            Around::Filter
        } else {
            Around::Nothing
        };
        Self {
            without: KINDS
                .into_iter()
                .find(|kind| number(&format!("/proc/sys/user/max_{kind}_namespaces")) == Some(0)),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            around,
            // The kernel gives the files of any other process to root, as by `fs.suid_dumpable=2` too.
            is_dumpable: fs::metadata("/proc/self/status").is_ok_and(|own| own.uid() == user.uid),
            of_root: user.drop_to.map(|_| effective_capabilities(&status)),
        }
    }

    fn root_lacks(&self, capabilities: u64) -> bool {
        self.of_root
            .is_some_and(|has| has & capabilities != capabilities)
    }

    fn judge(&self, failure: ChainFailure) -> Refusal {
        let ChainFailure { step, errno } = failure;
        Refusal {
            step,
            errno: Errno(errno),
            cause: self.cause_of(step, errno),
        }
    }

    fn cause_of(&self, step: ChainStep, errno: i32) -> RefusalCause {
        match step {
            ChainStep::Unshare if errno == libc::ENOSPC || self.without.is_some() => {
                RefusalCause::NoneLeft(self.without.unwrap_or("user"))
            }
            ChainStep::Unshare if self.unprivileged_userns_clone == Some(0) => {
                RefusalCause::UnprivilegedCloneOff
            }
            ChainStep::OpenTree if errno == libc::EPERM && self.root_lacks(SYS_ADMIN) => {
                if self.root_lacks(GIVES_UP_ROOT) {
                    RefusalCause::RootWithoutCapabilities
                } else {
                    RefusalCause::RootWithoutSysAdmin
                }
            }
            ChainStep::PivotRoot if errno == libc::EINVAL => RefusalCause::Initramfs,
            ChainStep::DenySetgroups if errno == libc::EACCES && !self.is_dumpable => {
                RefusalCause::NotDumpable
            }
            // AppArmor lets the process create the namespace and then denies operations in it. A
            // container on such a host shows the host's setting.
            ChainStep::Unshare if errno == libc::EPERM && self.around == Around::Container => {
                RefusalCause::Container
            }
            _ if self.apparmor_restrict == Some(1) => RefusalCause::AppArmor,
            _ if self.around == Around::Container => RefusalCause::Container,
            _ if self.around == Around::Filter && errno == libc::EPERM => RefusalCause::Filter,
            _ => RefusalCause::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Settings = Settings {
        without: None,
        unprivileged_userns_clone: None,
        apparmor_restrict: None,
        around: Around::Nothing,
        is_dumpable: true,
        of_root: None,
    };

    #[test]
    fn names_what_stands_behind_a_refusal() {
        let off = Settings {
            unprivileged_userns_clone: Some(0),
            ..FREE
        };
        let none = Settings {
            without: Some("net"),
            ..FREE
        };
        let ubuntu = Settings {
            apparmor_restrict: Some(1),
            ..FREE
        };
        let docker = Settings {
            around: Around::Container,
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
            let refusal = settings.judge(ChainFailure { step, errno });
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
    fn a_filter_refuses_with_eperm() {
        let unit = Settings {
            around: Around::Filter,
            ..FREE
        };
        let cause = |errno| unit.cause_of(ChainStep::PrivateMounts, errno);
        assert_eq!(cause(libc::EPERM), RefusalCause::Filter);
        assert_eq!(cause(libc::EACCES), RefusalCause::Unknown);
    }

    #[test]
    fn root_needs_capabilities_and_an_ordinary_user_none() {
        const OF_DOCKER: u64 = 0x0000_0000_a804_25fb;
        let cause = |of_root| {
            let settings = Settings {
                around: Around::Container,
                of_root,
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
    fn a_process_that_has_changed_its_user_is_no_container() {
        let cause = |is_dumpable| {
            let settings = Settings {
                is_dumpable,
                around: Around::Container,
                ..FREE
            };
            settings.cause_of(ChainStep::DenySetgroups, libc::EACCES)
        };
        assert_eq!(cause(false), RefusalCause::NotDumpable);
        assert_eq!(cause(true), RefusalCause::Container);
    }
}
