//! The requirements of an open control, and how to detect whether the machine meets them.

use std::fs;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};
use serde::Deserialize;

use crate::account::User;
use crate::capabilities::effective;
use crate::doctor::{Skip, skip_sandboxed};
use crate::world::Party;

/// The file system that holds the run directories.
const DISK: &str = "/var/tmp";
/// The number of descriptors that the attempt on descriptors opens, plus those already open.
const MANY: u64 = 1100;
/// The bit of `CAP_SYS_RESOURCE` in a capability set (linux/capability.h).
const CAP_SYS_RESOURCE: u64 = 1 << 24;
/// The number of bytes that the attempt on locked memory locks.
const LOCKED: u64 = 1 << 20;

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    UserNamespaces,
    TwoProcessors,
    Ipv6Loopback,
    DefaultRoute,
    IoUring,
    MemfdNoexecSeal,
    NewSystemCalls,
    SupplementaryGroup,
    /// A memory limit that also counts memory that is not part of any process's size.
    MemoryCgroup,
    /// A cgroup whose name reveals information about the host.
    OwnCgroup,
    AccessTimes,
    /// A disk file system that stores file flags.
    FileFlags,
    X86,
    /// 32-bit system calls on x86_64.
    Ia32,
    /// Kernel same-page merging (KSM).
    MergedPages,
    HugePages,
    /// `vm.mmap_min_addr` above zero: mapping below that address needs privilege.
    FirstPageKept,
    CoreFiles,
    ManyDescriptors,
    LockedMemory,
    /// CAP_SYS_RESOURCE, which root may lack on some machines.
    ResourceCapability,
}

impl Need {
    /// Returns why the open control cannot run on this machine, if the requirement is not met.
    pub fn is_missing(self, party: &Party) -> Option<Skip> {
        match self {
            Self::UserNamespaces => skip_sandboxed(party),
            Self::MemoryCgroup => party.doctor.cgroup.clone().err().map(Skip::Forced),
            Self::IoUring => {
                let disabled = read("/proc/sys/kernel/io_uring_disabled");
                let open_to_all = matches!(disabled.trim(), "" | "0");
                (!open_to_all).then(|| Skip::Mendable("kernel.io_uring_disabled is set".to_owned()))
            }
            Self::TwoProcessors | Self::Ipv6Loopback | Self::DefaultRoute | Self::OwnCgroup => {
                self.of_the_machine()
            }
            Self::AccessTimes | Self::FileFlags | Self::CoreFiles => self.of_the_disk(),
            Self::SupplementaryGroup
            | Self::ManyDescriptors
            | Self::LockedMemory
            | Self::ResourceCapability => self.of_the_user(party.account.user),
            _ => self.of_the_kernel(),
        }
    }

    fn of_the_machine(self) -> Option<Skip> {
        let is_default = |line: &str| line.split_whitespace().nth(1) == Some("00000000");
        let is_named = |line: &str| line.splitn(3, ':').nth(2) != Some("/");
        let any = |path, test: &dyn Fn(&str) -> bool| read(path).lines().any(test);
        match self {
            Self::TwoProcessors => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                forced(processors > 1, "one processor")
            }
            Self::Ipv6Loopback => forced(
                any("/proc/net/if_inet6", &|line| line.ends_with(" lo")),
                "no IPv6 on the loopback",
            ),
            Self::DefaultRoute => forced(any("/proc/net/route", &is_default), "no default route"),
            _ => forced(
                any("/proc/self/cgroup", &is_named),
                "the harness is in no cgroup but the first",
            ),
        }
    }

    fn of_the_disk(self) -> Option<Skip> {
        match self {
            Self::AccessTimes => {
                let noatime =
                    |found: nix::sys::statvfs::Statvfs| found.flags().contains(FsFlags::ST_NOATIME);
                let kept = !statvfs(DISK).is_ok_and(noatime);
                forced(kept, "no access times on the disk of /var/tmp")
            }
            Self::FileFlags => {
                let known: [FsType; 2] = [EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC];
                let kept = statfs(DISK).is_ok_and(|found| known.contains(&found.filesystem_type()));
                forced(kept, "no flags of files on the disk of /var/tmp")
            }
            _ => {
                let elsewhere = read("/proc/sys/kernel/core_pattern").starts_with(['|', '/', '@']);
                forced(
                    !elsewhere,
                    "kernel.core_pattern puts no core into the work directory",
                )
            }
        }
    }

    fn of_the_user(self, user: User) -> Option<Skip> {
        let root = nix::unistd::geteuid().is_root();
        let hard = |resource| getrlimit(resource).map_or(0, |(_, hard)| hard);
        match self {
            Self::SupplementaryGroup => {
                let groups = nix::unistd::getgroups().unwrap_or_default();
                let own = nix::unistd::getgid();
                let can_leak = root || groups.iter().any(|group| *group != own);
                forced(can_leak, "the user is in no second group")
            }
            Self::ManyDescriptors => forced(
                hard(Resource::RLIMIT_NOFILE) >= MANY,
                "the host's own limit on open files is lower",
            ),
            Self::ResourceCapability => forced(
                effective() & CAP_SYS_RESOURCE != 0,
                "root is without CAP_SYS_RESOURCE",
            ),
            _ => forced(
                user == User::Root || hard(Resource::RLIMIT_MEMLOCK) >= LOCKED,
                "the host's own limit on locked memory is lower",
            ),
        }
    }

    fn of_the_kernel(self) -> Option<Skip> {
        let has = |path: &str| Path::new(path).exists();
        match self {
            // vm.memfd_noexec came with the same Linux version, 6.3.
            Self::MemfdNoexecSeal => forced(
                has("/proc/sys/vm/memfd_noexec"),
                "no MFD_NOEXEC_SEAL before Linux 6.3",
            ),
            Self::X86 => forced(
                cfg!(target_arch = "x86_64"),
                "another processor than x86_64",
            ),
            Self::Ia32 => forced(
                has("/proc/sys/abi/vsyscall32"),
                "the kernel has no system calls of 32 bits",
            ),
            Self::MergedPages => forced(has("/sys/kernel/mm/ksm"), "the kernel merges no pages"),
            Self::HugePages => forced(
                has("/proc/sys/vm/nr_hugepages"),
                "the kernel has no reserved huge pages",
            ),
            Self::FirstPageKept => forced(
                !matches!(read("/proc/sys/vm/mmap_min_addr").trim(), "" | "0"),
                "vm.mmap_min_addr keeps no page",
            ),
            _ => forced(
                kernel() >= (5, 17),
                "no new system call that an unprivileged process may make",
            ),
        }
    }
}

fn forced(met: bool, reason: &str) -> Option<Skip> {
    (!met).then(|| Skip::Forced(reason.to_owned()))
}

/// Returns the major and minor version of the running kernel.
pub fn kernel() -> (u32, u32) {
    version(&read("/proc/sys/kernel/osrelease"))
}

/// Parses the major and minor version of a kernel release.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
