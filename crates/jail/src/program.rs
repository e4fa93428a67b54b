//! The prepared plan of a jail: everything that the steps need, as plain data.
//!
//! The supervisor computes these values (`plan`) and sends them to the zygote as JSON. Nothing here is
//! decided again on the other side. A step that finds its data missing is a bug of the plan, and no step
//! works around it while a process is half jailed.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control::CpuBudgetScope;
pub use super::limits::{ProcessMemory, Rlimit, RlimitResource};
use super::loopback::NetworkSocket;
use super::machine_files::Machine;

/// The path of a session's own files, as a plan writes it.
///
/// At level `landlock` nothing can be mounted there. The path then stands for the host directory that
/// the supervisor creates for each session; see [`ZygoteJail::put_work_in`].
pub const WORK: &str = "/work";

/// One classic BPF instruction, `struct sock_filter` of `linux/filter.h`: code, jt, jf, k.
pub type BpfInstruction = (u16, u8, u8, u32);

/// A seccomp filter ready to be loaded (seccomp(2), `SECCOMP_SET_MODE_FILTER`).
pub type BpfProgram = Vec<BpfInstruction>;

/// What the zygote applies to itself once, before it imports `site` and preloads modules.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ZygoteJail {
    /// The guest's ids on the host and inside.
    pub identity: Identity,
    /// Namespaces of the zygote. `None` only at level `landlock`.
    pub namespaces: Option<ZygoteNamespaces>,
    /// The entries of the new root, in the order in which they are created. Empty without namespaces.
    pub root: Vec<RootEntry>,
    /// The name that uname(2) reports in the UTS namespace.
    pub hostname: String,
    /// The machine that programs find described. `None` only at level `landlock`.
    pub machine: Option<Machine>,
    /// Landlock rules, built and enforced by each worker.
    pub landlock: Option<LandlockRules>,
    /// The broad filters, loaded once: the guest's allow-list and the calls that the jail itself still
    /// needs.
    pub filters: Vec<BpfProgram>,
    /// The complete environment of the interpreter. It inherits no variable from the caller.
    pub env: Vec<(String, String)>,
    /// What each worker does after the fork.
    pub worker: WorkerJail,
}

impl ZygoteJail {
    /// The host uids of which each worker takes one, if workers do not keep the zygote's uid.
    pub fn worker_uids(&self) -> Option<UidRange> {
        self.namespaces?.worker_uids
    }

    /// The network of each worker. Without namespaces, it is that of the host, and the filters close it.
    pub fn network(&self) -> Network {
        self.namespaces.map_or(Network::None, |it| it.network)
    }

    /// Replaces [`WORK`] by a directory: in the Landlock rules, as the directory in which guest code
    /// starts, and in the environment.
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

/// Identities of the guest.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// If the launching user is root: the unprivileged host uid and gid to take first. `None` for an
    /// ordinary user, whose host ids stay the same.
    pub drop_to: Option<HostIds>,
    /// The uid and gid that the guest sees for itself.
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

/// The settings for the namespaces of a zygote and its workers. Zygote and workers have their own
/// namespaces of each kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ZygoteNamespaces {
    /// Host uids of which each worker takes one that no other worker has. `None`: all workers have the
    /// zygote's uid.
    pub worker_uids: Option<UidRange>,
    /// What a worker's network namespace has.
    pub network: Network,
    /// What the zygote's clocks, and its workers', count from.
    pub clock: Clock,
}

/// What the clocks count from that have no date: `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME`.
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
    /// None: only unix sockets can be made, in an empty namespace that the zygote lends.
    None,
    /// TCP and UDP over the loopback interface, also to the sockets of [`WorkerJail::sockets`]. The worker makes
    /// the namespace, and no other worker ever has it: ports, connections that linger and counters stay in it.
    Loopback,
}

/// A file of the zygote's root that file permissions let every user read, and no Landlock rule.
pub const WITNESS: &str = "/.witness";

/// Consecutive uids of the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UidRange {
    /// The first uid.
    pub first: u32,
    /// The number of uids.
    pub count: u32,
}

/// One entry of the new root. Targets are absolute paths inside it. Missing parents are created.
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
    /// Certificates that programs trust, mode 0444: those of a file of the host, then others.
    Certificates {
        /// The path in the new root.
        target: PathBuf,
        /// The host's file (PEM), if it has one.
        of_host: Option<PathBuf>,
        /// The others (PEM).
        others: String,
    },
    /// A symbolic link.
    Symlink {
        /// The path in the new root.
        target: PathBuf,
        /// What it points at, as written into the link.
        points_at: PathBuf,
    },
    /// A host file or directory, mounted at its path: nosuid, nodev.
    Bind {
        /// Host path. Symbolic links in it are followed if it is shown read-only.
        source: PathBuf,
        /// The path in the new root.
        target: PathBuf,
        /// Whether the guest may write to it.
        access: Access,
    },
    /// One of the host's harmless devices (`null`, `zero`, `full`, `random`, `urandom`).
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
    /// The path of the entry in the new root.
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

/// Access of a bind mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// `MOUNT_ATTR_RDONLY`.
    ReadOnly,
    /// Writable. A policy must ask for it explicitly.
    ReadWrite,
}

/// Landlock rules (Documentation/userspace-api/landlock.rst).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// The ABI to use, as the kernel reported it to the probe. The ruleset handles every right that this
    /// ABI knows.
    pub abi: u32,
    /// The access that is allowed beneath each path. Everything else is refused.
    pub paths: Vec<PathRule>,
}

/// One path and the access allowed beneath it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PathRule {
    /// A path that exists in the new root when the ruleset is built.
    pub path: PathBuf,
    /// The access allowed there.
    pub allow: PathAccess,
}

/// The kinds of access that a plan grants.
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

/// What each worker applies to itself between the fork and its first cell.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct WorkerJail {
    /// Private tmpfs mounts. Empty without namespaces.
    pub tmpfs: Vec<Tmpfs>,
    /// Whether the worker mounts its own `/proc` (read-only, `subset=pid`).
    pub proc: ProcMount,
    /// Its own pseudoterminals. `None` without namespaces.
    pub ptys: Option<Ptys>,
    /// Sockets that are made in a network namespace with a loopback interface, for another process to serve. The
    /// worker keeps none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<NetworkSocket>,
    /// The addresses of other hosts that this interface has too, for those sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Ipv4Addr>,
    /// Resource limits, soft and hard alike (getrlimit(2)).
    pub rlimits: Vec<Rlimit>,
    /// What holds the memory of one process.
    pub memory: ProcessMemory,
    /// What `RLIMIT_NPROC` adds to the number of tasks of the whole machine at the fork, if the kernel
    /// counts everything that the user runs. It bounds a fork bomb until the supervisor ends it.
    pub process_headroom: Option<u64>,
    /// The number of processors to pin the worker to, if no cpu cgroup caps its share.
    pub pin_to_cores: Option<u32>,
    /// The narrow filters, loaded last. They take away the calls that the jail itself needed.
    pub filters: Vec<BpfProgram>,
    /// The directory in which guest code starts.
    pub cwd: PathBuf,
}

impl WorkerJail {
    /// The directories that the guest can write to, work directory first.
    pub fn writable_directories(&self) -> impl Iterator<Item = &Path> {
        let others = self.tmpfs.iter().map(|tmpfs| tmpfs.target.as_path());
        std::iter::once(self.cwd.as_path()).chain(others.filter(|target| *target != self.cwd))
    }

    /// The resource limits of a worker whose limit on processor time applies to `cpu`.
    pub fn rlimits_in_force(&self, cpu: CpuBudgetScope) -> impl Iterator<Item = &Rlimit> {
        self.rlimits.iter().filter(move |limit| {
            cpu == CpuBudgetScope::Life || limit.resource != RlimitResource::Cpu
        })
    }
}

/// Whether a worker sees processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcMount {
    /// Its own `/proc`, which shows only its own processes.
    Own,
    /// No `/proc` at all.
    Absent,
}

/// A private instance of devpts: nosuid, noexec. The path is a `RootEntry::WorkerMountPoint` in the zygote's root.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Ptys {
    /// The path in the new root.
    pub target: PathBuf,
    /// The most pseudoterminals at a time.
    pub most: u32,
}

/// A private tmpfs (tmpfs(5)): nosuid, nodev, and noexec unless the plan says otherwise.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// The path of a `RootEntry::WorkerMountPoint` in the zygote's root.
    pub target: PathBuf,
    /// Size quota, bytes.
    pub size: u64,
    /// Inode quota.
    pub inodes: u64,
    /// Whether files in it can be run.
    #[serde(default, skip_serializing_if = "Programs::are_refused")]
    pub programs: Programs,
    /// What the zygote's root has beneath the target. The tmpfs would hide it, so each worker puts it
    /// back, into its own tmpfs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<Shown>,
}

/// Whether files of a file system can be run and mapped as code.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Programs {
    /// `noexec`.
    #[default]
    Refused,
    /// They can. A policy must ask for it explicitly.
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
        /// Whether the guest may write to it. Landlock adds up the rights that it grants on the way, and
        /// grants all of them on the tmpfs. Only this mount keeps the guest from writing to a tree in
        /// it.
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
