//! The child's side: raw system calls on prepared data, and nothing else.

// Arguments of raw system calls are machine words, independent of how much the kernel reads of
// them.
#![allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]

use std::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::Ordering;

use nix::errno::Errno;

use super::super::mount::{
    MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, MountAttr,
};
use super::{ChainStep, DONE, Prepared, Report};

const OPEN_TREE_CLONE: i32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 4;
const FSOPEN_CLOEXEC: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;
const FSMOUNT_CLOEXEC: usize = 1;
const READ_ONLY_NOSUID_NODEV: u64 = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
const NOSUID_NODEV_NOEXEC: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

/// The current directory, as a directory descriptor argument.
const HERE: usize = libc::AT_FDCWD as usize;

/// The argument that stands for a string.
fn at(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

/// Records the step, makes the call, and ends the process with the errno if it fails.
///
/// Arguments are machine words: the kernel takes the low half of a word where it expects an int.
fn call(report: &Report, step: ChainStep, number: libc::c_long, arguments: [usize; 5]) -> usize {
    report.step.store(step as u32, Ordering::Release);
    // SAFETY: the callers, all in this file, pass integers and pointers to NUL-terminated strings
    // and structures that are static, on the caller's stack or in `Prepared`, none of which the
    // kernel writes to. `libc::syscall` keeps no state but this process's own copy of errno.
    let result = unsafe {
        libc::syscall(
            number,
            arguments[0],
            arguments[1],
            arguments[2],
            arguments[3],
            arguments[4],
        )
    };
    usize::try_from(result).unwrap_or_else(|_| {
        report.errno.store(Errno::last_raw(), Ordering::Release);
        exit()
    })
}

fn exit() -> ! {
    loop {
        // SAFETY: exit_group(2) takes an integer and does not return; no destructor runs, which
        // is right because everything the child holds is a copy of the parent's.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

/// Runs the whole chain, in the jail's own order.
pub(super) fn run(prepared: &Prepared) -> ! {
    let report = prepared.report;
    let mut tree = None;
    if let Some((uid, gid)) = prepared.drop_to {
        tree = Some(clone_tree(report));
        drop_to(report, uid as usize, gid as usize);
    }
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    call(
        report,
        ChainStep::Unshare,
        libc::SYS_unshare,
        [namespaces as usize, 0, 0, 0, 0],
    );
    write(
        report,
        ChainStep::DenySetgroups,
        c"/proc/self/setgroups",
        c"deny",
    );
    write(
        report,
        ChainStep::UidMap,
        c"/proc/self/uid_map",
        &prepared.uid_map,
    );
    write(
        report,
        ChainStep::GidMap,
        c"/proc/self/gid_map",
        &prepared.gid_map,
    );
    let first = call(
        report,
        ChainStep::EnterPidNamespace,
        libc::SYS_clone,
        [0; 5],
    );
    if first == 0 {
        build_root(report, tree);
    }
    // SAFETY: waits for the one child; a null status and rusage are allowed.
    unsafe { libc::syscall(libc::SYS_wait4, first, 0_usize, libc::__WALL, 0_usize) };
    exit()
}

fn drop_to(report: &Report, uid: usize, gid: usize) {
    let no_groups = null::<libc::gid_t>().expose_provenance();
    call(
        report,
        ChainStep::DropGroups,
        libc::SYS_setgroups,
        [0, no_groups, 0, 0, 0],
    );
    call(
        report,
        ChainStep::DropGid,
        libc::SYS_setresgid,
        [gid, gid, gid, 0, 0],
    );
    call(
        report,
        ChainStep::DropUid,
        libc::SYS_setresuid,
        [uid, uid, uid, 0, 0],
    );
    // After a uid change, a process owns nothing in its own /proc until it is dumpable again.
    let dumpable = [libc::PR_SET_DUMPABLE as usize, 1, 0, 0, 0];
    call(report, ChainStep::DropUid, libc::SYS_prctl, dumpable);
}

fn write(report: &Report, step: ChainStep, path: &CStr, text: &CStr) {
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    let fd = call(
        report,
        step,
        libc::SYS_openat,
        [HERE, at(path), flags, 0, 0],
    );
    call(
        report,
        step,
        libc::SYS_write,
        [fd, at(text), text.count_bytes(), 0, 0],
    );
}

/// A read-only copy of `/usr`, mounted nowhere yet.
fn clone_tree(report: &Report) -> usize {
    let clone = (OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE) as usize;
    let arguments = [HERE, at(c"/usr"), clone, 0, 0];
    let tree = call(report, ChainStep::OpenTree, libc::SYS_open_tree, arguments);
    let attr = MountAttr::adding(READ_ONLY_NOSUID_NODEV);
    let whole = (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as usize;
    let attr_at = (&raw const attr).expose_provenance();
    let arguments = [tree, at(c""), whole, attr_at, size_of::<MountAttr>()];
    call(
        report,
        ChainStep::MountSetattr,
        libc::SYS_mount_setattr,
        arguments,
    );
    tree
}

/// The first process of the pid namespace: builds a root as the jail does.
fn build_root(report: &Report, opened_as_root: Option<usize>) -> ! {
    let private = (libc::MS_REC | libc::MS_PRIVATE) as usize;
    call(
        report,
        ChainStep::PrivateMounts,
        libc::SYS_mount,
        [0, at(c"/"), 0, private, 0],
    );
    let proc = detached_proc(report);
    let tree = opened_as_root.unwrap_or_else(|| clone_tree(report));

    // On /proc, as in the jail: every Linux system has that directory.
    let (stage, tmpfs) = (at(c"/proc"), at(c"tmpfs"));
    let flags = (libc::MS_NOSUID | libc::MS_NODEV) as usize;
    call(
        report,
        ChainStep::MountTmpfs,
        libc::SYS_mount,
        [tmpfs, stage, tmpfs, flags, 0],
    );
    call(
        report,
        ChainStep::MountTmpfs,
        libc::SYS_chdir,
        [stage, 0, 0, 0, 0],
    );
    attach(report, ChainStep::MoveMount, tree, c"usr");
    attach(report, ChainStep::MountProc, proc, c"proc");
    let same = [at(c"."), at(c"."), 0, 0, 0];
    call(report, ChainStep::PivotRoot, libc::SYS_pivot_root, same);
    report.step.store(DONE, Ordering::Release);
    exit()
}

/// A new procfs, mounted nowhere yet. The kernel grants it only if a complete procfs is visible.
fn detached_proc(report: &Report) -> usize {
    let step = ChainStep::MountProc;
    let context = call(
        report,
        step,
        libc::SYS_fsopen,
        [at(c"proc"), FSOPEN_CLOEXEC, 0, 0, 0],
    );
    call(
        report,
        step,
        libc::SYS_fsconfig,
        [context, FSCONFIG_CMD_CREATE, 0, 0, 0],
    );
    let arguments = [context, FSMOUNT_CLOEXEC, NOSUID_NODEV_NOEXEC as usize, 0, 0];
    call(report, step, libc::SYS_fsmount, arguments)
}

fn attach(report: &Report, step: ChainStep, tree: usize, name: &CStr) {
    call(
        report,
        step,
        libc::SYS_mkdirat,
        [HERE, at(name), 0o755, 0, 0],
    );
    let arguments = [tree, at(c""), HERE, at(name), MOVE_MOUNT_F_EMPTY_PATH];
    call(report, step, libc::SYS_move_mount, arguments);
}
