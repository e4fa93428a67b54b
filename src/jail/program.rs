//! The prepared plan of a jail: everything that the steps need, as plain data.
//!
//! The supervisor computes these values (`plan`), sends them to the zygote as JSON, and nothing
//! here is decided again on the other side: a step that finds its data missing is a bug of the
//! plan, not something to work around while a process is half jailed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control::CpuSpan;

/// Where a session's own files are, as a plan writes it.
///
/// At level `landlock`, where nothing can be mounted there, it stands for the directory of the host
/// that the supervisor makes for each session; see [`ZygoteJail::put_work_in`].
pub const WORK: &str = "/work";

/// One classic BPF instruction, `struct sock_filter` of `linux/filter.h`: code, jt, jf, k.
pub type BpfInstruction = (u16, u8, u8, u32);

/// A seccomp filter ready to be loaded (seccomp(2), `SECCOMP_SET_MODE_FILTER`).
pub type BpfProgram = Vec<BpfInstruction>;

/// What the zygote does to itself, once, before `site` is imported and anything is preloaded.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ZygoteJail {
    /// Who the guest is, on the host and inside.
    pub identity: Identity,
    /// Namespaces of the zygote. `None` only at level `landlock`.
    pub namespaces: Option<ZygoteNamespaces>,
    /// The new root, in the order in which it is built. Empty without namespaces.
    pub root: Vec<RootEntry>,
    /// Name that uname(2) shows in the UTS namespace.
    pub hostname: String,
    /// Landlock rules, built and enforced by each worker.
    pub landlock: Option<LandlockRules>,
    /// The broad filters, loaded once: the guest's allow-list and what the jail itself still needs.
    pub filters: Vec<BpfProgram>,
    /// Environment of the interpreter, complete: nothing of the caller's is inherited.
    pub env: Vec<(String, String)>,
    /// What each worker does after the fork.
    pub worker: WorkerJail,
}

impl ZygoteJail {
    /// Puts a directory in the place of [`WORK`]: in the Landlock rules, as the directory in which
    /// guest code starts, and in the environment.
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
    /// When the launching user is root: the unprivileged host uid and gid to become first.
    /// `None` for an ordinary user, who stays who he is on the host.
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

/// Which namespaces the zygote makes besides its user, mount, pid, ipc and uts namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ZygoteNamespaces {
    /// The network namespace's kind; it never has an interface that is up.
    pub network: NetworkNamespace,
}

/// Whose network namespace a worker lives in.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkNamespace {
    /// One empty namespace for all workers of the zygote. Sound only where Landlock scopes
    /// abstract unix sockets (ABI 6), the one thing that two workers could meet by.
    SharedEmpty,
    /// An empty namespace for each worker.
    PerWorker,
}

/// One entry of the new root. Targets are absolute paths inside it, parents are made as needed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum RootEntry {
    /// An empty directory, mode 0755.
    Directory {
        /// Where.
        target: PathBuf,
    },
    /// A synthetic read-only file, mode 0444.
    File {
        /// Where.
        target: PathBuf,
        /// What it says.
        contents: String,
    },
    /// A symbolic link.
    Symlink {
        /// Where.
        target: PathBuf,
        /// What it points at, as written into the link.
        points_at: PathBuf,
    },
    /// A host file or directory, mounted at its place: nosuid, nodev.
    Bind {
        /// Host path; symbolic links in it are followed.
        source: PathBuf,
        /// Where.
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
        /// Where.
        target: PathBuf,
    },
}

impl RootEntry {
    /// Where in the new root the entry stands.
    pub fn target(&self) -> PathBuf {
        match self {
            Self::Directory { target }
            | Self::File { target, .. }
            | Self::Symlink { target, .. }
            | Self::Bind { target, .. }
            | Self::WorkerMountPoint { target } => target.clone(),
            Self::Device { name } => PathBuf::from("/dev").join(name),
        }
    }
}

/// Access of a bind mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// `MOUNT_ATTR_RDONLY`.
    ReadOnly,
    /// Writable: explicit in a policy, and rare.
    ReadWrite,
}

/// Landlock rules (Documentation/userspace-api/landlock.rst).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// The ABI to use, as the kernel told the probe; every right that it knows is handled.
    pub abi: u32,
    /// What is allowed beneath which path. Everything else is refused.
    pub paths: Vec<PathRule>,
}

/// One path and what may be done beneath it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PathRule {
    /// A path that exists in the new root when the ruleset is built.
    pub path: PathBuf,
    /// What may be done there.
    pub allow: PathAccess,
}

/// The kinds of access that a plan grants.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathAccess {
    /// Read files, list directories.
    Read,
    /// The same, and run programs.
    ReadExecute,
    /// Read, and write to existing files only (devices).
    ReadWriteFile,
    /// Everything but running programs and making device nodes.
    ReadWrite,
}

/// What each worker does to itself between the fork and its first cell.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct WorkerJail {
    /// Private tmpfs mounts. Without namespaces: empty.
    pub tmpfs: Vec<Tmpfs>,
    /// Whether the worker mounts its own `/proc` (read-only, `subset=pid`).
    pub proc: ProcMount,
    /// Resource limits, soft and hard alike (getrlimit(2)).
    pub rlimits: Vec<Rlimit>,
    /// What `RLIMIT_DATA` adds to the zygote's own size at the fork, bytes.
    pub data_allowance: u64,
    /// What `RLIMIT_NPROC` adds to the number of tasks of the whole machine at the fork, where the
    /// kernel counts all that the user runs: a ceiling for a fork bomb until it is ended.
    pub process_headroom: Option<u64>,
    /// How many processors the worker is pinned to where no cpu cgroup caps its share.
    pub pin_to_cores: Option<u32>,
    /// The narrow filters, loaded last: they take away what the jail itself needed.
    pub filters: Vec<BpfProgram>,
    /// Directory in which guest code starts.
    pub cwd: PathBuf,
}

impl WorkerJail {
    /// The resource limits of a worker whose processor time is counted for this.
    pub fn rlimits_in_force(&self, cpu: CpuSpan) -> impl Iterator<Item = &Rlimit> {
        self.rlimits
            .iter()
            .filter(move |limit| cpu == CpuSpan::Life || limit.resource != RlimitResource::Cpu)
    }
}

/// Whether a worker sees processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcMount {
    /// Its own, with nothing but its own processes.
    Own,
    /// No `/proc` at all.
    Absent,
}

/// A private tmpfs (tmpfs(5)): nosuid, nodev, noexec.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// A `RootEntry::WorkerMountPoint` of the zygote's root.
    pub target: PathBuf,
    /// Size quota, bytes.
    pub size: u64,
    /// Inode quota.
    pub inodes: u64,
    /// What stands beneath it in the zygote's root. It would be hidden, so that each worker puts it
    /// back, into its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<Shown>,
}

/// Something of the zygote's root that a worker's tmpfs shows.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Shown {
    /// A mount, with those that are mounted in it.
    Tree {
        /// Where.
        target: PathBuf,
        /// Whether the guest may write to it. Landlock adds up what it grants on the way, and grants
        /// all on the tmpfs: this mount alone keeps a tree in it from being written to.
        access: Access,
    },
    /// A symbolic link.
    Symlink {
        /// Where.
        target: PathBuf,
        /// What it points at.
        points_at: PathBuf,
    },
}

/// One resource limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Which.
    pub resource: RlimitResource,
    /// Soft and hard value, in the resource's unit.
    pub value: u64,
}

/// The resources that a plan limits (getrlimit(2)).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RlimitResource {
    /// `RLIMIT_CPU`, seconds.
    Cpu,
    /// `RLIMIT_NOFILE`, descriptors.
    OpenFiles,
    /// `RLIMIT_FSIZE`, bytes.
    FileSize,
    /// `RLIMIT_NPROC`, tasks of the worker's own user namespace.
    Processes,
    /// `RLIMIT_CORE`, bytes.
    Core,
    /// `RLIMIT_MEMLOCK`, bytes.
    LockedMemory,
    /// `RLIMIT_MSGQUEUE`, bytes.
    MessageQueues,
    /// `RLIMIT_SIGPENDING`, signals.
    PendingSignals,
    /// `RLIMIT_STACK`, bytes.
    Stack,
}
