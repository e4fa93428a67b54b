//! Builds hosts for tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandfork_jail::program::{HostIds, UidRange};

use crate::host::{
    Arch, CgroupAbsence, CgroupSupport, ChainStep, Controller, Errno, HardLimits, Host, HostLimits,
    HostUser, Interpreter, Kept, KeptKind, KernelVersion, LandlockSupport, Link, Machine,
    NamespaceSupport, PathFact, PathKind, Processors, Reach, Refusal, RefusalCause, Route,
    SeccompSupport, SystemPath, SystemPathKind, TimeNamespaces, UNPRIVILEGED_ID, V2Entry,
};

/// Kernel releases with their Landlock ABI.
pub const KERNELS: [(&str, u32); 4] = [
    ("5.15.0-generic", 1),
    ("6.1.0-cloud", 2),
    ("6.12.0-cloud", 6),
    ("6.18.0", 7),
];

pub const ROOT: HostUser = HostUser {
    uid: 0,
    gid: 0,
    drop_to: Some(HostIds {
        uid: UNPRIVILEGED_ID,
        gid: UNPRIVILEGED_ID,
    }),
    worker_uids: Some(UidRange {
        first: UNPRIVILEGED_ID + 1,
        count: 1000,
    }),
};
pub const USER: HostUser = HostUser {
    uid: 1001,
    gid: 1001,
    drop_to: None,
    worker_uids: None,
};

/// Returns a machine with Linux 6.18 and all features, used by root.
pub fn machine() -> Machine {
    Machine {
        kernel: KernelVersion::parse("6.18.0").unwrap(),
        arch: Some(Arch::X86_64),
        user: ROOT,
        namespaces: NamespaceSupport::Available,
        time_namespaces: TimeNamespaces::Available,
        landlock: LandlockSupport::Abi(7),
        seccomp: SeccompSupport::Available,
        cgroup: cgroup_v1(),
        limits: HostLimits {
            memory: 16 << 30,
            pids: 32_768,
            cpus: 4,
            hard: HardLimits {
                cpu_seconds: u64::MAX,
                open_files: 524_288,
                file_size: u64::MAX,
                stack: u64::MAX,
                locked_memory: 8 << 20,
                core: u64::MAX,
                message_queues: 819_200,
                pending_signals: 63_000,
            },
        },
        processors: Processors {
            kind: "model name\t: Processor".into(),
            possible: "0-7".into(),
        },
    }
}

pub fn with_kernel((release, abi): (&str, u32), machine: Machine) -> Machine {
    Machine {
        kernel: KernelVersion::parse(release).unwrap(),
        landlock: LandlockSupport::Abi(abi),
        ..machine
    }
}

pub fn cgroup_v1() -> CgroupSupport {
    let dir = |name: &str| PathBuf::from("/sys/fs/cgroup").join(name).join("service");
    CgroupSupport::V1(BTreeMap::from([
        (Controller::Memory, dir("memory")),
        (Controller::Pids, dir("pids")),
        (Controller::Cpu, dir("cpu")),
        (Controller::Cpuacct, dir("cpuacct")),
    ]))
}

pub fn cgroup_v2(controllers: &[Controller]) -> CgroupSupport {
    CgroupSupport::V2 {
        dir: "/sys/fs/cgroup/user.slice/run-1.scope".into(),
        controllers: controllers.iter().copied().collect(),
        entry: V2Entry::MoveSelf,
    }
}

pub fn no_cgroup() -> CgroupSupport {
    let dir = "/sys/fs/cgroup/user.slice/session-2.scope".into();
    CgroupSupport::Nowhere(CgroupAbsence::NotWritable(dir))
}

pub fn refused(step: ChainStep, errno: i32, cause: RefusalCause) -> NamespaceSupport {
    NamespaceSupport::Refused(Refusal {
        step,
        errno: Errno(errno),
        cause,
    })
}

pub fn no_user_namespaces() -> NamespaceSupport {
    refused(ChainStep::Unshare, 1, RefusalCause::UnprivilegedCloneOff)
}

fn directory(path: &str) -> SystemPath {
    SystemPath {
        path: path.into(),
        kind: SystemPathKind::Directory,
    }
}

pub fn link(path: &str, points_at: &str) -> SystemPath {
    SystemPath {
        path: path.into(),
        kind: SystemPathKind::Symlink(points_at.into()),
    }
}

fn system() -> Vec<SystemPath> {
    vec![
        link("/bin", "usr/bin"),
        directory("/etc/alternatives"),
        SystemPath {
            path: "/etc/ld.so.cache".into(),
            kind: SystemPathKind::File,
        },
        link("/lib", "usr/lib"),
        link("/lib64", "usr/lib64"),
        link("/sbin", "usr/sbin"),
        directory("/usr"),
        directory("/usr/lib"),
        directory("/usr/lib64"),
        directory("/usr/local/lib"),
        directory("/usr/share/zoneinfo"),
    ]
}

/// Returns the system paths of a host without a merged `/usr`.
pub fn unmerged_system() -> Vec<SystemPath> {
    ["/bin", "/lib", "/lib64", "/sbin", "/usr", "/usr/lib"]
        .map(directory)
        .into()
}

/// Returns the interpreter of Debian.
pub fn system_python() -> Interpreter {
    Interpreter {
        executable: "/usr/bin/python3".into(),
        links: vec![Link {
            path: "/usr/bin/python3".into(),
            points_at: "python3.11".into(),
        }],
        binary: "/usr/bin/python3.11".into(),
        implementation: "cpython".into(),
        version: (3, 11, 2),
        prefix: "/usr".into(),
        base_prefix: "/usr".into(),
        stdlib: "/usr/lib/python3.11".into(),
        programs: vec!["/usr/bin".into()],
        libraries: ["/usr/lib", "/usr/lib/python3.11", "/usr/lib64"]
            .map(PathBuf::from)
            .into(),
        venv: None,
        closed: None,
    }
}

/// Returns a virtual environment whose base interpreter is in a home directory that only root may enter.
pub fn virtual_environment() -> Interpreter {
    virtual_environment_at("/srv/venv")
}

pub fn virtual_environment_at(venv: &str) -> Interpreter {
    let base = "/root/.pyenv/versions/3.12.1";
    let lib = format!("{base}/lib");
    let link = |path: &str, to: &str| Link {
        path: path.into(),
        points_at: to.into(),
    };
    Interpreter {
        executable: format!("{venv}/bin/python").into(),
        links: vec![
            link(
                &format!("{venv}/bin/python"),
                &format!("{base}/bin/python3"),
            ),
            link(&format!("{base}/bin/python3"), "python3.12"),
        ],
        binary: format!("{base}/bin/python3.12").into(),
        version: (3, 12, 1),
        prefix: venv.into(),
        base_prefix: base.into(),
        stdlib: format!("{lib}/python3.12").into(),
        programs: vec![format!("{base}/bin").into()],
        libraries: vec![
            lib.clone().into(),
            format!("{lib}/python3.12").into(),
            format!("{venv}/lib").into(),
        ],
        venv: Some(venv.into()),
        closed: Some("/root".into()),
        ..system_python()
    }
}

/// Resolves a path on a host with these links and targets.
pub fn route(path: impl AsRef<Path>, links: &[(&str, &str)]) -> Route {
    Route::new(path.as_ref(), |entry| {
        let link = links.iter().find(|(link, _)| entry == Path::new(link));
        link.map_or(Err(nix::errno::Errno::EINVAL), |(_, target)| {
            Ok(target.into())
        })
    })
}

pub fn host(machine: Machine) -> Host {
    Host {
        machine,
        interpreter: system_python(),
        system: system(),
        paths: BTreeMap::new(),
        closed_script: None,
        caller_env: BTreeMap::new(),
        kept: Vec::new(),
        environments: None,
        certificates: None,
    }
}

impl Host {
    /// Adds a file that later starts run or trust, which is found through these links.
    #[must_use]
    pub fn with_kept(mut self, what: KeptKind, path: &str, links: &[(&str, &str)]) -> Self {
        let route = route(path, links);
        self.kept.push(Kept { what, route });
        self
    }

    /// Adds a path that resolves to another. If they differ, the path is a link.
    #[must_use]
    pub fn with_path(self, path: &str, kind: PathKind, resolved: &str) -> Self {
        let link = (path != resolved).then_some((path, resolved));
        self.behind(path, kind, link.as_slice())
    }

    /// Adds a path that is found through these links.
    #[must_use]
    pub fn behind(mut self, path: &str, kind: PathKind, links: &[(&str, &str)]) -> Self {
        let fact = PathFact::Found {
            kind,
            route: route(path, links),
            reach: Reach::Everyone,
        };
        self.paths.insert(path.into(), fact);
        self
    }

    /// Adds a directory.
    #[must_use]
    pub fn with_directory(self, path: &str) -> Self {
        self.with_path(path, PathKind::Directory, path)
    }
}
