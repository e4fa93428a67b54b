//! Files, descriptors and waiting on them. Which paths are in reach is for the mounts and Landlock.

use super::super::rule::{Errno, Rule, allow, allow_if, clear, none_of, one_of};
use super::uapi::{
    F_NOTIFY, F_SETLEASE, FICLONE, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, RWF_NOWAIT, TCGETS,
    TCGETS2, TIOCGPGRP, TIOCGWINSZ,
};

pub(super) const RULES: &[Rule] = &[
    allow(
        "open and close files; mounts and Landlock decide which",
        "open openat openat2 creat close close_range",
    ),
    allow(
        "read, write and seek in what is open",
        "read write readv writev pread64 pwrite64 preadv pwritev pwritev2 lseek \
         readahead fadvise64",
    ),
    // With RWF_NOWAIT a read tells, without changing it, whether somebody has lately read the same
    // page of a library: see cachestat.
    allow_if(
        "read at several places, but not only what is in memory already",
        "preadv2",
        &[clear(5, RWF_NOWAIT)],
        Errno::NotSupported,
    ),
    allow(
        "copy between files without a buffer (shutil)",
        "sendfile copy_file_range",
    ),
    allow(
        "size, space and durability of one open file (tempfile, sqlite3)",
        "truncate ftruncate fallocate fsync fdatasync sync_file_range",
    ),
    allow(
        "what a file is (os.stat, os.access, importlib)",
        "stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat \
         statfs fstatfs",
    ),
    allow(
        "directories (os.scandir, os.makedirs, pathlib)",
        "getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir",
    ),
    allow(
        "names: links, moves, fifos; device nodes need a capability that no guest has",
        "rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat mknod \
         mknodat",
    ),
    allow(
        "modes, times and extended attributes; the user namespace maps one owner only",
        "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes \
         futimesat utimensat setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr \
         listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr",
    ),
    allow(
        "descriptors, and locks on whole files (subprocess)",
        "dup dup2 dup3 flock pipe pipe2",
    ),
    // F_NOTIFY tells who else reads a library; a lease holds up whoever opens a file of the user's that
    // is shown, on the host too, and tells of it.
    allow_if(
        "flags of descriptors and record locks (sqlite3), but no news of what others open",
        "fcntl",
        &[none_of(1, &[F_SETLEASE, F_NOTIFY])],
        Errno::Perm,
    ),
    allow(
        "wait for descriptors (select, selectors, asyncio)",
        "select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait \
         epoll_pwait epoll_pwait2 eventfd eventfd2",
    ),
    allow(
        "the guest may wall itself off further; a new domain only ever takes rights away",
        "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    ),
    // ENOTTY is what programs expect of a file that is not the device they hope for. TIOCSTI and
    // TIOCLINUX type into the terminal of whoever started the sandbox (CVE-2017-5226), so no request
    // that changes a terminal is on the list, nor any of a file system or a device.
    allow_if(
        "ask whether a descriptor is a terminal, how much it holds; set its blocking and close flags; \
         share blocks of a file that is being copied",
        "ioctl",
        &[one_of(
            1,
            &[
                TCGETS, TCGETS2, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX,
                FICLONE,
            ],
        )],
        Errno::NotTty,
    ),
];
