//! Runs the chain in the child: raw system calls on prepared data, and nothing else.

// Arguments of raw system calls are machine words, even where the kernel reads only a part of them.
#![allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]

use std::ffi::CStr;
use std::ptr::null;
use std::sync::atomic::Ordering;

use libc::{AT_EMPTY_PATH, AT_RECURSIVE, c_long};
use nix::errno::Errno;

use super::super::mount::{
    FSCONFIG_CMD_CREATE, FSMOUNT_CLOEXEC, FSOPEN_CLOEXEC, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, MOVE_MOUNT_F_EMPTY_PATH, MountAttr, OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE,
};
use super::{ChainStep as Step, DONE, Prepared, Report};

const READ_ONLY_NOSUID_NODEV: u64 = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
const NOSUID_NODEV_NOEXEC: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

/// `AT_FDCWD` as a system call argument.
const HERE: usize = libc::AT_FDCWD as usize;

/// Returns a string as a system call argument.
fn at(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

fn exit() -> ! {
    loop {
        // SAFETY: exit_group(2) takes an integer and does not return. No destructor runs, which is intended: everything
        // that the child holds is a copy of the parent's.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

/// Runs the whole chain, in the order of the jail.
pub(super) fn run(prepared: &Prepared) -> ! {
    let chain = Chain {
        report: prepared.report,
    };
    let mut tree = None;
    if let Some((uid, gid)) = prepared.drop_to {
        tree = Some(chain.clone_tree());
        chain.drop_to(uid as usize, gid as usize);
    }
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    chain.call(Step::Unshare, libc::SYS_unshare, &[namespaces as usize]);
    chain.write(Step::DenySetgroups, c"/proc/self/setgroups", c"deny");
    chain.write(Step::UidMap, c"/proc/self/uid_map", &prepared.uid_map);
    chain.write(Step::GidMap, c"/proc/self/gid_map", &prepared.gid_map);
    let first = chain.call(Step::EnterPidNamespace, libc::SYS_clone, &[]);
    if first == 0 {
        chain.build_root(tree);
    }
    // SAFETY: waits for the only child; a null status and rusage are allowed.
    unsafe { libc::syscall(libc::SYS_wait4, first, 0_usize, libc::__WALL, 0_usize) };
    exit()
}

/// The reporting context of one process.
#[derive(Clone, Copy)]
struct Chain<'a> {
    report: &'a Report,
}

impl Chain<'_> {
    /// Records the step and executes the call. If the call fails, records the errno and exits.
    ///
    /// Arguments are machine words: the kernel takes the low half of a word where it expects an int. Missing arguments
    /// are 0.
    fn call(self, step: Step, number: c_long, arguments: &[usize]) -> usize {
        self.report.step.store(step as u32, Ordering::Release);
        let word = |index| arguments.get(index).copied().unwrap_or(0);
        // SAFETY: the callers, all in this file, pass integers and pointers to NUL-terminated strings and structures
        // that are static, on the caller's stack or in `Prepared`. The kernel writes to none of them. `libc::syscall`
        // has no state but errno, of which this process has its own copy.
        let result = unsafe { libc::syscall(number, word(0), word(1), word(2), word(3), word(4)) };
        usize::try_from(result).unwrap_or_else(|_| {
            self.report
                .errno
                .store(Errno::last_raw(), Ordering::Release);
            exit()
        })
    }

    fn write(self, step: Step, path: &CStr, text: &CStr) {
        let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
        let fd = self.call(step, libc::SYS_openat, &[HERE, at(path), flags]);
        self.call(step, libc::SYS_write, &[fd, at(text), text.count_bytes()]);
    }

    fn drop_to(self, uid: usize, gid: usize) {
        let no_groups = null::<libc::gid_t>().expose_provenance();
        self.call(Step::DropGroups, libc::SYS_setgroups, &[0, no_groups]);
        self.call(Step::DropGid, libc::SYS_setresgid, &[gid, gid, gid]);
        self.call(Step::DropUid, libc::SYS_setresuid, &[uid, uid, uid]);
        // After a uid change, root owns the files of /proc/self until the process is dumpable again.
        let dumpable = libc::PR_SET_DUMPABLE as usize;
        self.call(Step::DropUid, libc::SYS_prctl, &[dumpable, 1]);
    }

    /// Returns a detached read-only copy of `/usr`.
    fn clone_tree(self) -> usize {
        let clone = (OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE as u32) as usize;
        let arguments = [HERE, at(c"/usr"), clone];
        let tree = self.call(Step::OpenTree, libc::SYS_open_tree, &arguments);
        let attr = MountAttr::adding(READ_ONLY_NOSUID_NODEV);
        let whole = (AT_EMPTY_PATH | AT_RECURSIVE) as usize;
        let attr_at = (&raw const attr).expose_provenance();
        let arguments = [tree, at(c""), whole, attr_at, size_of::<MountAttr>()];
        self.call(Step::MountSetattr, libc::SYS_mount_setattr, &arguments);
        tree
    }

    /// Builds a root like the jail's, in the first process of the pid namespace.
    fn build_root(self, opened_as_root: Option<usize>) -> ! {
        let private = (libc::MS_REC | libc::MS_PRIVATE) as usize;
        let arguments = [0, at(c"/"), 0, private];
        self.call(Step::PrivateMounts, libc::SYS_mount, &arguments);
        let proc = self.detached_proc();
        let tree = opened_as_root.unwrap_or_else(|| self.clone_tree());

        // On /proc, as in the jail: every Linux system has that directory.
        let (stage, tmpfs) = (at(c"/proc"), at(c"tmpfs"));
        let flags = (libc::MS_NOSUID | libc::MS_NODEV) as usize;
        let arguments = [tmpfs, stage, tmpfs, flags];
        self.call(Step::MountTmpfs, libc::SYS_mount, &arguments);
        self.call(Step::MountTmpfs, libc::SYS_chdir, &[stage]);
        self.attach(Step::MoveMount, tree, c"usr");
        self.attach(Step::MountProc, proc, c"proc");
        let same = [at(c"."), at(c".")];
        self.call(Step::PivotRoot, libc::SYS_pivot_root, &same);
        self.report.step.store(DONE, Ordering::Release);
        exit()
    }

    /// Returns a new detached procfs. The kernel grants it only if a complete procfs is visible.
    fn detached_proc(self) -> usize {
        let call = |number, arguments: &[usize]| self.call(Step::MountProc, number, arguments);
        let flags = FSOPEN_CLOEXEC as usize;
        let context = call(libc::SYS_fsopen, &[at(c"proc"), flags]);
        let command = FSCONFIG_CMD_CREATE as usize;
        call(libc::SYS_fsconfig, &[context, command]);
        let flags = FSMOUNT_CLOEXEC as usize;
        call(
            libc::SYS_fsmount,
            &[context, flags, NOSUID_NODEV_NOEXEC as usize],
        )
    }

    fn attach(self, step: Step, tree: usize, name: &CStr) {
        self.call(step, libc::SYS_mkdirat, &[HERE, at(name), 0o755]);
        let flags = MOVE_MOUNT_F_EMPTY_PATH as usize;
        let arguments = [tree, at(c""), HERE, at(name), flags];
        self.call(step, libc::SYS_move_mount, &arguments);
    }
}
