//! The prepared plan of a jail: everything that the steps need, as plain data.
//!
//! The supervisor computes these values (`plan`) and sends them to the zygote as JSON. The zygote makes no decisions of
//! its own. Missing data is a bug in the plan, and no step works around it in a half-jailed process.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control::CpuBudgetScope;
pub use super::limits::{ProcessMemory, Rlimit, RlimitResource};
use super::loopback::NetworkSocket;
use super::machine_files::Machine;

/// The path of a session's work directory, as a plan writes it.
///
/// At level `landlock` nothing can be mounted there. The path is then a placeholder for the host directory that the
/// supervisor creates for each session; see [`ZygoteJail::put_work_in`].
pub const WORK: &str = "/work";

/// One classic BPF instruction, `struct sock_filter` of `linux/filter.h`: code, jt, jf, k.
pub type BpfInstruction = (u16, u8, u8, u32);

/// A seccomp filter ready to be loaded (seccomp(2), `SECCOMP_SET_MODE_FILTER`).
pub type BpfProgram = Vec<BpfInstruction>;

/// The jail that the zygote enters once, before it imports `site` and preloads modules.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ZygoteJail {
    /// The guest's ids on the host and inside the sandbox.
    pub identity: Identity,
    /// Namespaces of the zygote. `None` only at level `landlock`.
    pub namespaces: Option<ZygoteNamespaces>,
    /// The entries of the new root, in the order in which they are created. Empty without namespaces.
    pub root: Vec<RootEntry>,
    /// The name that uname(2) reports in the UTS namespace.
    pub hostname: String,
    /// The machine that `/proc` and `/sys` describe to programs. `None` only at level `landlock`.
    pub machine: Option<Machine>,
    /// Landlock rules, built and enforced by each worker.
    pub landlock: Option<LandlockRules>,
    /// The broad filters, loaded once in the zygote: the guest's allow-list plus the calls that the jail itself still
    /// needs.
    pub filters: Vec<BpfProgram>,
    /// The complete environment of the interpreter. Nothing is inherited from the caller.
    pub env: Vec<(String, String)>,
    /// The jail that each worker enters after the fork.
    pub worker: WorkerJail,
}

impl ZygoteJail {
    /// Returns the range of host uids that workers take, unless workers keep the zygote's uid.
    pub fn worker_uids(&self) -> Option<UidRange> {
        self.namespaces?.worker_uids
    }

    /// Returns the network of each worker. Without namespaces that is the host's network, which the filters close.
    pub fn network(&self) -> Network {
        self.namespaces.map_or(Network::None, |it| it.network)
    }

    /// Replaces [`WORK`] by a directory: in the Landlock rules, in the initial directory of guest code, and in the
    /// environment.
    pub fn put_work_in(&mut self, directory: &Path) {
        let rules = self.landlock.iter_mut().flat_map(|rules| &mut rules.paths);
        for path in rules
            .map(|rule| &mut rule.path)
            .chain([&mut self.worker.cwd])
        {
            if path == Path::new(WORK) {
                directory.clone_into(path);
            }
        }
        for (name, value) in &mut self.env {
            if matches!(name.as_str(), "HOME" | "TMPDIR") && value == WORK {
                *value = directory.display().to_string();
            }
        }
    }
}

/// The identity of the guest on the host and inside.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The unprivileged host uid and gid to switch to first, if the launching user is root. `None` for an ordinary
    /// user, who keeps the same host ids.
    pub drop_to: Option<HostIds>,
    /// The uid and gid that the guest sees as its own.
    pub inside: HostIds,
}

/// A uid and a gid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct HostIds {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The settings for the namespaces of a zygote and its workers. Zygote and workers each have their own namespace of
/// each kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ZygoteNamespaces {
    /// The host uids that workers take, one each, distinct among live workers. `None`: all workers keep the zygote's
    /// uid.
    pub worker_uids: Option<UidRange>,
    /// The network of each worker.
    pub network: Network,
    /// The zero point of the clocks of the zygote and its workers.
    pub clock: Clock,
}

/// The zero point of `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME`, the clocks that have no date.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The zygote's start, in a time namespace.
    Zygote,
    /// The host's boot.
    Host,
}

/// The network of a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// None: only unix sockets can be created. The namespace is empty and lent by the zygote.
    None,
    /// TCP and UDP over the loopback interface, also to the sockets of [`WorkerJail::sockets`]. Each worker makes its
    /// own namespace, which is never reused: ports, lingering connections and counters stay in it.
    Loopback,
}

/// A file in the zygote's root that every user may read by its permissions, but that no Landlock rule covers.
pub const WITNESS: &str = "/.witness";

/// A range of consecutive host uids.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UidRange {
    /// The first uid.
    pub first: u32,
    /// The number of uids.
    pub count: u32,
}

/// An entry of the new root. Targets are absolute paths inside it. Missing parents are created.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum RootEntry {
    /// An empty directory, mode 0755.
    Directory {
        /// The path in the new root.
        target: PathBuf,
    },
    /// A synthetic read-only file, mode 0444.
    File {
        /// The path in the new root.
        target: PathBuf,
        /// The contents of the file.
        contents: String,
    },
    /// A bundle of trusted certificates, mode 0444: those of a host file, followed by others.
    Certificates {
        /// The path in the new root.
        target: PathBuf,
        /// The host's bundle (PEM), if the host has one.
        of_host: Option<PathBuf>,
        /// The other certificates (PEM).
        others: String,
    },
    /// A symbolic link.
    Symlink {
        /// The path in the new root.
        target: PathBuf,
        /// What it points at, as written into the link.
        points_at: PathBuf,
    },
    /// A host file or directory, bind-mounted at its path with nosuid and nodev.
    Bind {
        /// The host path. Symbolic links in it are followed if the mount is read-only.
        source: PathBuf,
        /// The path in the new root.
        target: PathBuf,
        /// Whether the guest may write to the mount.
        access: Access,
    },
    /// A harmless device of the host (`null`, `zero`, `full`, `random`, `urandom`).
    Device {
        /// The name under `/dev`.
        name: String,
    },
    /// A mount point that each worker covers with its own tmpfs or proc.
    WorkerMountPoint {
        /// The path in the new root.
        target: PathBuf,
    },
}

impl RootEntry {
    /// Returns the path of the entry in the new root.
    pub fn target(&self) -> Cow<'_, Path> {
        match self {
            Self::Directory { target }
            | Self::File { target, .. }
            | Self::Certificates { target, .. }
            | Self::Symlink { target, .. }
            | Self::Bind { target, .. }
            | Self::WorkerMountPoint { target } => Cow::Borrowed(target),
            Self::Device { name } => Cow::Owned(Path::new("/dev").join(name)),
        }
    }
}

/// The access mode of a bind mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// `MOUNT_ATTR_RDONLY`.
    ReadOnly,
    /// Writable. A policy must request it explicitly.
    ReadWrite,
}

/// Landlock rules (Documentation/userspace-api/landlock.rst).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// The ABI version to use, as the kernel reported it to the probe. The ruleset handles every access right that this
    /// ABI defines.
    pub abi: u32,
    /// The access allowed beneath each path. All other access is refused.
    pub paths: Vec<PathRule>,
}

/// One path and the access allowed beneath it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PathRule {
    /// A path that exists in the new root when the ruleset is built.
    pub path: PathBuf,
    /// The access allowed beneath the path.
    pub allow: PathAccess,
}

/// A set of access rights that a plan grants.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathAccess {
    /// List directories.
    List,
    /// Read files, list directories.
    Read,
    /// Read files, list directories and run programs.
    ReadExecute,
    /// Read files, and write to existing files only (devices).
    ReadWriteFile,
    /// Every access except running programs and creating device nodes.
    ReadWrite,
    /// Every access except creating device nodes.
    ReadWriteExecute,
}

/// The jail that each worker enters between the fork and its first cell.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct WorkerJail {
    /// Private tmpfs mounts. Empty without namespaces.
    pub tmpfs: Vec<Tmpfs>,
    /// Whether the worker mounts its own `/proc` (read-only, `subset=pid`).
    pub proc: ProcMount,
    /// The worker's private pseudoterminals. `None` without namespaces.
    pub ptys: Option<Ptys>,
    /// Sockets to create in the worker's network namespace for another process to serve. The worker itself keeps none.
    /// Requires a loopback interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<NetworkSocket>,
    /// Addresses of other hosts to assign to the loopback interface as well, for those sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Ipv4Addr>,
    /// Resource limits; soft and hard limit are equal (getrlimit(2)).
    pub rlimits: Vec<Rlimit>,
    /// The mechanism that bounds the memory of one process.
    pub memory: ProcessMemory,
    /// The headroom of `RLIMIT_NPROC` above the number of tasks of the whole machine at the fork, if the kernel counts
    /// all processes of the user together. It bounds a fork bomb until the supervisor ends it.
    pub process_headroom: Option<u64>,
    /// The number of processors to pin the worker to, if no cpu cgroup caps its share.
    pub pin_to_cores: Option<u32>,
    /// The narrow filters, loaded last. They forbid the calls that the jail itself needed.
    pub filters: Vec<BpfProgram>,
    /// The initial directory of guest code.
    pub cwd: PathBuf,
}

impl WorkerJail {
    /// Returns the directories that the guest can write to, the work directory first.
    pub fn writable_directories(&self) -> impl Iterator<Item = &Path> {
        let others = self.tmpfs.iter().map(|tmpfs| tmpfs.target.as_path());
        std::iter::once(self.cwd.as_path()).chain(others.filter(|target| *target != self.cwd))
    }

    /// Returns the resource limits of a worker whose CPU limit has the scope `cpu`.
    pub fn rlimits_in_force(&self, cpu: CpuBudgetScope) -> impl Iterator<Item = &Rlimit> {
        self.rlimits.iter().filter(move |limit| {
            cpu == CpuBudgetScope::Life || limit.resource != RlimitResource::Cpu
        })
    }
}

/// Whether a worker has a `/proc`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcMount {
    /// A procfs of the worker's pid namespace, which shows only its own processes.
    Own,
    /// No `/proc` at all.
    Absent,
}

/// A private devpts instance: nosuid, noexec. Its path is a `RootEntry::WorkerMountPoint` in the zygote's root.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Ptys {
    /// The path in the new root.
    pub target: PathBuf,
    /// The maximum number of pseudoterminals at a time.
    pub most: u32,
}

/// A private tmpfs (tmpfs(5)): nosuid, nodev, and noexec unless `programs` allows execution.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// The path of a `RootEntry::WorkerMountPoint` in the zygote's root.
    pub target: PathBuf,
    /// Size quota, bytes.
    pub size: u64,
    /// Inode quota.
    pub inodes: u64,
    /// Whether files in it can be executed.
    #[serde(default, skip_serializing_if = "Programs::are_refused")]
    pub programs: Programs,
    /// The entries of the zygote's root beneath the target. The tmpfs would hide them, so each worker moves them into
    /// its own tmpfs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<Shown>,
}

/// Whether files of a file system can be executed or mapped as code.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Programs {
    /// `noexec`.
    #[default]
    Refused,
    /// Files can be executed. A policy must request it explicitly.
    Run,
}

impl Programs {
    // serde requires this signature.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn are_refused(&self) -> bool {
        *self == Self::Refused
    }
}

/// An entry of the zygote's root that a worker's tmpfs shows.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Shown {
    /// A mount, with the mounts inside it.
    Tree {
        /// The path in the new root.
        target: PathBuf,
        /// Whether the guest may write to it. Landlock adds up the rights granted along a path, and grants all rights
        /// on the tmpfs. Only this mount's flags keep the guest from writing to a tree in it.
        access: Access,
    },
    /// A symbolic link.
    Symlink {
        /// The path in the new root.
        target: PathBuf,
        /// The target of the link.
        points_at: PathBuf,
    },
}
