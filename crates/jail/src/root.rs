//! Builds the sandbox's root: a tmpfs with read-only bind mounts of host paths.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, fstat, umask};
use nix::unistd::{chdir, pivot_root};

use super::failure::{Failure, InStep, Step};
use super::machine_files::{self, Boot, PROC_FILES};
use super::owners::Owners;
use super::program::{
    Access, ProcMount, Programs, Ptys, RootEntry, Shown, Tmpfs, WorkerJail, ZygoteJail,
};
use crate::sys::mount as mounts;

/// The directory on which the new root is built before it becomes `/`. Every Linux system has it.
const STAGE: &str = "/proc";
/// Mount flags: set-user-ID bits and device nodes are not honoured.
const NO_PRIVILEGE: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
/// Mount flags: additionally, no file can be executed.
const NO_PROGRAMS: MsFlags = NO_PRIVILEGE.union(MsFlags::MS_NOEXEC);

/// The parts of the host that the root shows, opened while the process still has the permission.
pub struct FromHost {
    trees: Vec<Tree>,
    certificates: Vec<u8>,
}

/// A host tree, held by descriptor, with its target in the new root.
struct Tree {
    mount: OwnedFd,
    target: PathBuf,
    kind: TreeKind,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum TreeKind {
    Directory,
    File,
}

/// Opens every host tree that the root shows, with its mount attributes already set, and reads the host's certificates.
///
/// A root launcher does this before it drops its uid, because only root may traverse, for example, a home directory
/// that holds the interpreter. An ordinary user does it after entering the user namespace, because only there may it
/// mount.
///
/// With `owners`, writable trees are id-mapped: files that a guest writes belong to the tree's owner on the host, and
/// the guest sees the owner's files as its own. On a file system without id-mapped mounts the tree keeps its real
/// owners.
pub fn open_host(entries: &[RootEntry], owners: Option<&Owners>) -> io::Result<FromHost> {
    let mut trees = Vec::new();
    let mut certificates = Vec::new();
    for entry in entries {
        let (source, target, access) = match entry {
            RootEntry::Bind {
                source,
                target,
                access,
            } => (source.clone(), target, *access),
            RootEntry::Device { name } => {
                let device = Path::new("/dev").join(name);
                // A guest can still write to a device that is mounted read-only, but it cannot change the times of the
                // host's inode, which every tenant sees.
                let mount = mounts::clone_tree(&device)?;
                trees.push(Tree::new(mount, &device, mounts::MOUNT_ATTR_RDONLY)?);
                continue;
            }
            RootEntry::Certificates {
                of_host: Some(path),
                ..
            } => {
                certificates = fs::read(path)?;
                continue;
            }
            _ => continue,
        };
        let (mount, read_only) = match access {
            Access::ReadOnly => (mounts::clone_tree(&source)?, mounts::MOUNT_ATTR_RDONLY),
            // No symbolic links: guests of an earlier session may be able to write above this path, through another
            // tree.
            Access::ReadWrite => (
                mounts::clone_tree_without_links(&source)?,
                mounts::MOUNT_ATTR_NOEXEC,
            ),
        };
        let tree = Tree::new(mount, target, read_only | mounts::MOUNT_ATTR_NODEV)?;
        if let (Access::ReadWrite, Some(owners)) = (access, owners) {
            let map = owners.map(&tree.mount)?;
            // overlayfs does not support id-mapped mounts, and neither does Linux before 5.12.
            match mounts::map_owners(&tree.mount, map) {
                Err(Errno::EINVAL | Errno::EPERM | Errno::EOPNOTSUPP) | Ok(()) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        trees.push(tree);
    }
    Ok(FromHost {
        trees,
        certificates,
    })
}

impl Tree {
    fn new(mount: OwnedFd, target: &Path, attributes: u64) -> Result<Self, Errno> {
        mounts::set_attributes(&mount, attributes | mounts::MOUNT_ATTR_NOSUID)?;
        Ok(Self {
            kind: TreeKind::of(&mount)?,
            target: target.to_owned(),
            mount,
        })
    }
}

impl TreeKind {
    fn of(mount: impl AsFd) -> Result<Self, Errno> {
        Ok(match fstat(mount)?.st_mode & libc::S_IFMT {
            libc::S_IFDIR => Self::Directory,
            _ => Self::File,
        })
    }
}

/// Detaches the mount namespace from the host's: mounts made in either do not propagate to the other.
pub fn make_private() -> Result<(), Errno> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
}

/// Creates a procfs of this pid namespace without mounting it anywhere.
///
/// The caller must do this before it leaves the old root: the kernel grants a new procfs only to a mount namespace in
/// which a complete one is visible.
pub fn detached_proc() -> Result<OwnedFd, Errno> {
    mounts::detached_filesystem(
        c"proc",
        mounts::MOUNT_ATTR_NOSUID | mounts::MOUNT_ATTR_NODEV | mounts::MOUNT_ATTR_NOEXEC,
    )
}

/// Builds the new root on a tmpfs and makes it this process's `/`. Afterwards the host's root is unreachable.
pub fn build_and_enter(jail: &ZygoteJail, host: FromHost) -> Result<(), Failure> {
    let own_proc = match jail.worker.proc {
        ProcMount::Own => Some(detached_proc().in_step(Step::MountProc)?),
        ProcMount::Absent => None,
    };
    let stage = Path::new(STAGE);
    let options = "mode=0755,size=128m,nr_inodes=131072";
    mount(
        Some("sandfork"),
        stage,
        Some("tmpfs"),
        MsFlags::MS_NOSUID,
        Some(options),
    )
    .in_step(Step::BuildRoot)?;
    // A fixed umask: workers have other uids than the owner of these files, and the caller's umask could hide them.
    let callers = umask(Mode::from_bits_truncate(0o022));
    let filled = fill(stage, jail, host);
    umask(callers);
    filled.in_step(Step::BuildRoot)?;
    if let Some(proc) = own_proc {
        mounts::attach(&proc, &beneath(stage, Path::new("/proc"))).in_step(Step::MountProc)?;
    }
    chdir(stage).in_step(Step::PivotRoot)?;
    // The old root ends up stacked on top of the new one, where MNT_DETACH finds it.
    pivot_root(".", ".").in_step(Step::PivotRoot)?;
    umount2(".", MntFlags::MNT_DETACH).in_step(Step::PivotRoot)?;
    chdir("/").in_step(Step::PivotRoot)?;
    let read_only =
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        read_only | MsFlags::MS_NODEV,
        None::<&str>,
    )
    .in_step(Step::PivotRoot)
}

fn fill(stage: &Path, jail: &ZygoteJail, host: FromHost) -> io::Result<()> {
    for entry in jail.root.iter().chain(&machine_files(jail)) {
        make_entry(stage, entry, &host.certificates)?;
    }
    for tree in host.trees {
        let target = beneath(stage, &tree.target);
        make_mount_point(&target, tree.kind)?;
        mounts::attach(&tree.mount, &target)?;
    }
    Ok(())
}

fn machine_files(jail: &ZygoteJail) -> Vec<RootEntry> {
    let Some(machine) = &jail.machine else {
        return Vec::new();
    };
    let mut files = machine_files::in_sys(machine);
    if jail.worker.proc == ProcMount::Own {
        files.extend(machine_files::in_proc(
            machine,
            &jail.hostname,
            Boot::read_clocks(),
        ));
    }
    files
}

/// Mounts a worker's private file systems over the mount points in the zygote's root. Zygote mounts beneath a tmpfs are
/// moved into it.
pub fn mount_private(worker: &WorkerJail) -> Result<(), Failure> {
    mount_directories(&worker.tmpfs)?;
    if worker.proc == ProcMount::Own {
        mount_proc()?;
    }
    worker.ptys.as_ref().map_or(Ok(()), mount_ptys)
}

/// Mounts private tmpfs instances, for a worker or for modules that the zygote preloads.
pub fn mount_directories(tmpfs: &[Tmpfs]) -> Result<(), Failure> {
    for one in tmpfs {
        // Once the tmpfs is mounted, these paths resolve inside it.
        let shown = hold(&one.shows).in_step(Step::ShowTrees)?;
        let options = format!("mode=0700,size={},nr_inodes={}", one.size, one.inodes);
        let flags = match one.programs {
            Programs::Refused => NO_PROGRAMS,
            Programs::Run => NO_PRIVILEGE,
        };
        mount(
            Some("sandfork"),
            &one.target,
            Some("tmpfs"),
            flags,
            Some(options.as_str()),
        )
        .in_step(Step::MountTmpfs)?;
        shown.iter().try_for_each(show).in_step(Step::ShowTrees)?;
    }
    Ok(())
}

/// Mounts the worker's `/proc`. `subset=pid` hides everything that describes the machine and not a process (proc(5),
/// Linux 5.8), such as kallsyms, interrupts and keys. [`PROC_FILES`] are mounted before the remount with `subset=pid`,
/// because their mount points cannot be looked up afterwards. Existing mounts stay.
fn mount_proc() -> Result<(), Failure> {
    let flags = NO_PROGRAMS | MsFlags::MS_RDONLY;
    let (proc, subset) = (Some("proc"), Some("subset=pid"));
    mount(proc, "/proc", proc, flags, None::<&str>).in_step(Step::WorkerProc)?;
    mount_proc_files()?;
    mount(proc, "/proc", proc, flags | MsFlags::MS_REMOUNT, subset).in_step(Step::HideMachine)
}

/// Bind-mounts the sandbox's [`PROC_FILES`] over the kernel's.
pub fn mount_proc_files() -> Result<(), Failure> {
    for (source, target) in PROC_FILES {
        mount(
            Some(source),
            target,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .in_step(Step::ProcFiles)?;
    }
    Ok(())
}

/// Mounts the worker's pseudoterminals. Every mount of devpts is a separate instance (Linux 4.7).
fn mount_ptys(ptys: &Ptys) -> Result<(), Failure> {
    let options = format!("ptmxmode=0666,max={}", ptys.most);
    mount(
        Some("sandfork"),
        &ptys.target,
        Some("devpts"),
        MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
        Some(options.as_str()),
    )
    .in_step(Step::WorkerPtys)
}

/// An entry for a tmpfs to show, held while its path is hidden.
enum Held<'a> {
    Tree(OwnedFd, &'a Path),
    Symlink(&'a Path, &'a Path),
}

fn hold(shows: &[Shown]) -> Result<Vec<Held<'_>>, Errno> {
    let mut held = Vec::with_capacity(shows.len());
    for shown in shows {
        held.push(match shown {
            Shown::Tree { target, .. } => {
                let mounted = open(target, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
                Held::Tree(mounted, target)
            }
            Shown::Symlink { target, points_at } => Held::Symlink(target, points_at),
        });
    }
    Ok(held)
}

fn show(held: &Held) -> io::Result<()> {
    match held {
        Held::Tree(mounted, target) => {
            make_mount_point(target, TreeKind::of(mounted)?)?;
            Ok(mounts::attach(mounted, target)?)
        }
        Held::Symlink(target, points_at) => in_its_directory(target, || symlink(points_at, target)),
    }
}

fn make_entry(stage: &Path, entry: &RootEntry, certificates: &[u8]) -> io::Result<()> {
    let path = beneath(stage, &entry.target());
    match entry {
        RootEntry::Directory { .. } | RootEntry::WorkerMountPoint { .. } => {
            fs::create_dir_all(&path)
        }
        RootEntry::File { contents, .. } => make_file(&path, 0o444, contents.as_bytes()),
        RootEntry::Certificates { others, .. } => {
            let all = [certificates, b"\n", others.as_bytes()].concat();
            make_file(&path, 0o444, &all)
        }
        RootEntry::Symlink { points_at, .. } => {
            in_its_directory(&path, || symlink(points_at, &path))
        }
        RootEntry::Bind { .. } | RootEntry::Device { .. } => Ok(()),
    }
}

/// Creates a mount point for a tree, unless it exists, as it must beneath an earlier, read-only tree.
fn make_mount_point(path: &Path, kind: TreeKind) -> io::Result<()> {
    match kind {
        _ if path.try_exists()? => Ok(()),
        TreeKind::Directory => fs::create_dir_all(path),
        TreeKind::File => make_file(path, 0o644, b""),
    }
}

fn make_file(path: &Path, mode: u32, contents: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    in_its_directory(path, || options.open(path))?.write_all(contents)
}

/// Runs `make`, which creates an entry at `path`. If a parent directory is missing, creates the parents and retries.
/// Most parents exist already.
fn in_its_directory<T>(path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match make() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            make()
        }
        result => result,
    }
}

fn beneath(stage: &Path, target: &Path) -> PathBuf {
    stage.join(target.strip_prefix("/").unwrap_or(target))
}
