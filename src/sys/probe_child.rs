//! Tries the jail's whole chain of namespace and mount calls in a child that is thrown away.
//!
//! The caller may be one thread of a large server, so the child is made by a raw clone(2) and runs
//! nothing but raw system calls: no allocation, no lock, no libc function that keeps state, no
//! `pthread_atfork` handler. It reports through one shared page and is waited for by its pidfd, so
//! that neither a SIGCHLD handler nor a `waitpid(-1)` of the embedding program ever sees it.

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use serde::{Deserialize, Serialize};

/// One call of the chain, in the order in which the jail makes them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum ChainStep {
    /// clone(2) of the child itself.
    Clone,
    /// setgroups(2), as root only.
    DropGroups,
    /// setresgid(2), as root only.
    DropGid,
    /// setresuid(2), as root only.
    DropUid,
    /// unshare(2) of user, mount, pid, network, ipc, uts and cgroup namespaces.
    Unshare,
    /// Writing `/proc/self/setgroups` (user_namespaces(7)).
    DenySetgroups,
    /// Writing `/proc/self/uid_map`.
    UidMap,
    /// Writing `/proc/self/gid_map`.
    GidMap,
    /// The first process of the pid namespace.
    EnterPidNamespace,
    /// Making mount propagation private.
    PrivateMounts,
    /// Mounting a tmpfs.
    MountTmpfs,
    /// open_tree(2) with `OPEN_TREE_CLONE`.
    OpenTree,
    /// mount_setattr(2).
    MountSetattr,
    /// move_mount(2).
    MoveMount,
    /// Mounting procfs with `subset=pid`.
    MountProc,
    /// pivot_root(2).
    PivotRoot,
}

const STEPS: [ChainStep; 16] = [
    ChainStep::Clone,
    ChainStep::DropGroups,
    ChainStep::DropGid,
    ChainStep::DropUid,
    ChainStep::Unshare,
    ChainStep::DenySetgroups,
    ChainStep::UidMap,
    ChainStep::GidMap,
    ChainStep::EnterPidNamespace,
    ChainStep::PrivateMounts,
    ChainStep::MountTmpfs,
    ChainStep::OpenTree,
    ChainStep::MountSetattr,
    ChainStep::MoveMount,
    ChainStep::MountProc,
    ChainStep::PivotRoot,
];

impl ChainStep {
    /// What the step does, as a person would say it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Clone => "start a child process (clone)",
            Self::DropGroups => "give up root's groups (setgroups)",
            Self::DropGid => "give up root's gid (setresgid)",
            Self::DropUid => "give up root's uid (setresuid)",
            Self::Unshare => "make namespaces (unshare)",
            Self::DenySetgroups => "write /proc/self/setgroups",
            Self::UidMap => "write /proc/self/uid_map",
            Self::GidMap => "write /proc/self/gid_map",
            Self::EnterPidNamespace => "enter the new pid namespace (clone)",
            Self::PrivateMounts => "make mounts private (mount)",
            Self::MountTmpfs => "mount a tmpfs",
            Self::OpenTree => "copy a mount of the host (open_tree)",
            Self::MountSetattr => "make a mount read-only (mount_setattr)",
            Self::MoveMount => "attach a mount (move_mount)",
            Self::MountProc => "mount /proc",
            Self::PivotRoot => "change the root (pivot_root)",
        }
    }
}

impl fmt::Display for ChainStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// How far the chain went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChainReport {
    /// Steps that the kernel refused, with its errno, or 0 where it killed the child instead.
    /// `MountProc` alone does not end the chain: a jail without `/proc` can do without it.
    pub refused: Vec<(ChainStep, i32)>,
}

/// Whom the child becomes and how it maps itself.
#[derive(Clone, Copy, Debug)]
pub struct ChainIdentity {
    /// The unprivileged uid and gid that root becomes first; `None` for an ordinary user.
    pub drop_to: Option<(u32, u32)>,
    /// The uid and gid on the host that the map names: `drop_to`, or the user's own.
    pub outside: (u32, u32),
    /// The uid and gid inside.
    pub inside: (u32, u32),
}

/// What the child and its child write and the parent reads once both are gone.
#[repr(C)]
struct Report {
    /// The step being tried; `DONE` at the end.
    step: AtomicU32,
    /// Its errno once it has failed.
    errno: AtomicI32,
    /// The errno of mounting procfs, if that was refused.
    proc_errno: AtomicI32,
}

const DONE: u32 = u32::MAX;

/// A page shared with the children.
struct SharedReport {
    page: NonNull<Report>,
}

impl SharedReport {
    fn new() -> Result<Self, Errno> {
        // SAFETY: a fresh anonymous mapping; no existing memory is touched.
        let page = unsafe {
            libc::mmap(
                null_mut(),
                size_of::<Report>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self {
            page: NonNull::new(page.cast()).ok_or(Errno::ENOMEM)?,
        })
    }

    fn get(&self) -> &Report {
        // SAFETY: the mapping lives as long as `self`, is page-aligned and zeroed, and all-zero
        // bytes are a valid `Report`. Other processes write it only through its atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for SharedReport {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, to which no reference outlives `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), size_of::<Report>()) };
    }
}

/// Everything that the child needs, prepared so that it has nothing to allocate.
struct Prepared<'a> {
    report: &'a Report,
    drop_to: Option<(u32, u32)>,
    uid_map: CString,
    gid_map: CString,
}

/// A chain that takes longer than this hangs on something that would hang the jail too.
const DEADLINE_MS: u16 = 5_000;

/// Tries the chain. `Err` only when the child could not even be prepared.
pub fn try_chain(identity: ChainIdentity) -> Result<ChainReport, Errno> {
    let shared = SharedReport::new()?;
    let map = |inside: u32, outside: u32| {
        CString::new(format!("{inside} {outside} 1")).map_err(|_| Errno::EINVAL)
    };
    let prepared = Prepared {
        report: shared.get(),
        drop_to: identity.drop_to,
        uid_map: map(identity.inside.0, identity.outside.0)?,
        gid_map: map(identity.inside.1, identity.outside.1)?,
    };
    // Blocked across the clone: a handler of the embedding program must not run in the child.
    let mut before = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    let child = clone_child(&prepared);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    match child {
        Ok(pidfd) => wait_for(&pidfd)?,
        Err(errno) => {
            return Ok(ChainReport {
                refused: vec![(ChainStep::Clone, errno as i32)],
            });
        }
    }
    Ok(read_report(shared.get()))
}

fn read_report(report: &Report) -> ChainReport {
    let mut refused = Vec::new();
    let proc_errno = report.proc_errno.load(Ordering::Acquire);
    if proc_errno != 0 {
        refused.push((ChainStep::MountProc, proc_errno));
    }
    let reached = report.step.load(Ordering::Acquire);
    if reached != DONE {
        let step = STEPS.iter().copied().find(|step| *step as u32 == reached);
        let errno = report.errno.load(Ordering::Acquire);
        refused.push((step.unwrap_or(ChainStep::Clone), errno));
    }
    ChainReport { refused }
}

/// Clones the child, which never returns from here.
fn clone_child(prepared: &Prepared) -> Result<OwnedFd, Errno> {
    let mut pidfd: RawFd = -1;
    // SAFETY: without CLONE_VM and with a null stack this is a fork: the child runs on its own copy
    // of this stack. It has an exit signal of 0, so nobody is told when it ends. The kernel writes
    // the pidfd, close-on-exec, into `pidfd`, which is live. In the child only `child_main` runs,
    // which never returns and keeps to what its own comment promises.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::CLONE_PIDFD as libc::c_ulong,
            0_usize,
            &raw mut pidfd,
            0_usize,
            0_usize,
        )
    };
    if pid == 0 {
        child_main(prepared);
    }
    Errno::result(pid)?;
    // SAFETY: clone succeeded, so the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

fn wait_for(pidfd: &OwnedFd) -> Result<(), Errno> {
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    let ready = loop {
        match poll(&mut polled, PollTimeout::from(DEADLINE_MS)) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    if ready == 0 {
        // SAFETY: integers and a null pointer, which stands for an ordinary kill(2).
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                pidfd.as_raw_fd(),
                libc::SIGKILL,
                null::<libc::siginfo_t>(),
                0,
            );
        }
    }
    loop {
        // SAFETY: a null `infop` and `rusage` are allowed by the raw call; the rest are integers.
        // `__WALL` because the child's exit signal is not SIGCHLD.
        let waited = Errno::result(unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PIDFD,
                pidfd.as_raw_fd(),
                null_mut::<libc::siginfo_t>(),
                libc::WEXITED | libc::__WALL,
                null_mut::<libc::rusage>(),
            )
        });
        match waited {
            Err(Errno::EINTR) => {}
            // A program that waits for every process with `__WALL` was quicker: gone all the same.
            Ok(_) | Err(Errno::ECHILD) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// A raw system call in the child: its result, or its errno reported as the end of the chain.
///
/// `libc::syscall` is async-signal-safe: it only writes this thread's errno, which is the child's
/// own copy.
macro_rules! call {
    ($report:expr, $step:expr, $number:expr $(, $argument:expr)*) => {{
        $report.step.store($step as u32, Ordering::Release);
        // SAFETY: every pointer passed by the callers below is either null where the call allows
        // it, or a NUL-terminated string or structure that is static or outlives the child's use
        // of it; the kernel writes to none of them.
        let result = unsafe { libc::syscall($number $(, $argument)*) };
        if result < 0 {
            fail($report);
        }
        result
    }};
}

/// Ends the child with the errno of its last call.
fn fail(report: &Report) -> ! {
    report.errno.store(Errno::last_raw(), Ordering::Release);
    exit()
}

fn exit() -> ! {
    loop {
        // SAFETY: exit_group(2) takes an integer and does not return; no destructor runs, which
        // matters because everything the child holds is a copy of the parent's.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

/// The child: raw system calls on prepared data only.
fn child_main(prepared: &Prepared) -> ! {
    let report = prepared.report;
    if let Some((uid, gid)) = prepared.drop_to {
        call!(
            report,
            ChainStep::DropGroups,
            libc::SYS_setgroups,
            0_usize,
            null::<libc::gid_t>()
        );
        call!(
            report,
            ChainStep::DropGid,
            libc::SYS_setresgid,
            gid,
            gid,
            gid
        );
        call!(
            report,
            ChainStep::DropUid,
            libc::SYS_setresuid,
            uid,
            uid,
            uid
        );
        // A process that changed its uid owns nothing of its own /proc until it is dumpable again.
        call!(
            report,
            ChainStep::DropUid,
            libc::SYS_prctl,
            libc::PR_SET_DUMPABLE,
            1,
            0,
            0,
            0
        );
    }
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    call!(report, ChainStep::Unshare, libc::SYS_unshare, namespaces);
    write_proc(
        report,
        ChainStep::DenySetgroups,
        c"/proc/self/setgroups",
        c"deny",
    );
    write_proc(
        report,
        ChainStep::UidMap,
        c"/proc/self/uid_map",
        &prepared.uid_map,
    );
    write_proc(
        report,
        ChainStep::GidMap,
        c"/proc/self/gid_map",
        &prepared.gid_map,
    );
    let first = call!(
        report,
        ChainStep::EnterPidNamespace,
        libc::SYS_clone,
        0_usize,
        0_usize,
        0_usize,
        0_usize,
        0_usize
    );
    if first == 0 {
        mounts(report);
    }
    // SAFETY: waits for the one child; a null status and rusage are allowed.
    unsafe { libc::syscall(libc::SYS_wait4, first, 0_usize, libc::__WALL, 0_usize) };
    exit()
}

fn write_proc(report: &Report, step: ChainStep, path: &CStr, text: &CStr) {
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let fd = call!(
        report,
        step,
        libc::SYS_openat,
        libc::AT_FDCWD,
        path.as_ptr(),
        flags,
        0
    );
    call!(
        report,
        step,
        libc::SYS_write,
        fd,
        text.as_ptr(),
        text.count_bytes()
    );
}

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// The first process of the pid namespace: builds a root as the jail does.
fn mounts(report: &Report) -> ! {
    const OPEN_TREE_CLONE: libc::c_int = 1;
    const MOVE_MOUNT_F_EMPTY_PATH: libc::c_int = 4;
    const READ_ONLY_NOSUID_NODEV: u64 = 0x1 | 0x2 | 0x4;
    let root = c"/tmp".as_ptr();
    let tmpfs = c"tmpfs".as_ptr();
    let empty = c"".as_ptr();
    let quiet = libc::MS_NOSUID | libc::MS_NODEV;

    let private = libc::MS_REC | libc::MS_PRIVATE;
    call!(
        report,
        ChainStep::PrivateMounts,
        libc::SYS_mount,
        0_usize,
        c"/".as_ptr(),
        0_usize,
        private,
        0_usize
    );
    call!(
        report,
        ChainStep::MountTmpfs,
        libc::SYS_mount,
        tmpfs,
        root,
        tmpfs,
        quiet,
        0_usize
    );
    call!(report, ChainStep::MountTmpfs, libc::SYS_chdir, root);
    call!(
        report,
        ChainStep::MountTmpfs,
        libc::SYS_mkdirat,
        libc::AT_FDCWD,
        c"usr".as_ptr(),
        0o755
    );
    call!(
        report,
        ChainStep::MountTmpfs,
        libc::SYS_mkdirat,
        libc::AT_FDCWD,
        c"proc".as_ptr(),
        0o755
    );

    let clone = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE;
    let tree = call!(
        report,
        ChainStep::OpenTree,
        libc::SYS_open_tree,
        libc::AT_FDCWD,
        c"/usr".as_ptr(),
        clone
    );
    let attr = MountAttr {
        attr_set: READ_ONLY_NOSUID_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let whole = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    call!(
        report,
        ChainStep::MountSetattr,
        libc::SYS_mount_setattr,
        tree,
        empty,
        whole,
        &raw const attr,
        size_of::<MountAttr>()
    );
    call!(
        report,
        ChainStep::MoveMount,
        libc::SYS_move_mount,
        tree,
        empty,
        libc::AT_FDCWD,
        c"usr".as_ptr(),
        MOVE_MOUNT_F_EMPTY_PATH
    );

    mount_proc(report);
    call!(
        report,
        ChainStep::PivotRoot,
        libc::SYS_pivot_root,
        c".".as_ptr(),
        c".".as_ptr()
    );
    report.step.store(DONE, Ordering::Release);
    exit()
}

/// Mounts procfs; a refusal is noted, not the end.
fn mount_proc(report: &Report) {
    report
        .step
        .store(ChainStep::MountProc as u32, Ordering::Release);
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    let proc = c"proc".as_ptr();
    // SAFETY: static NUL-terminated strings, which the kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount,
            proc,
            proc,
            proc,
            flags,
            c"subset=pid".as_ptr(),
        )
    };
    if result < 0 {
        report
            .proc_errno
            .store(Errno::last_raw(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_in_the_order_of_the_chain() {
        for (number, step) in STEPS.iter().enumerate() {
            assert_eq!(*step as usize, number);
        }
    }
}
