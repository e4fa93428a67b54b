//! Files, descriptors and waiting on them. Mounts and Landlock decide which paths are reachable.

use super::super::rule::{
    ALWAYS, Check, Errno, Rule, allow, allow_if, ask_if, clear, none_of, nothing, one_of,
};
use sandfork_jail::uapi::{
    EPOLL_CTL_ADD, F_GETLK, F_NOTIFY, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE, F_SETLK,
    F_SETLKW, F_SETPIPE_SZ, FICLONE, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, POSIX_FADV_DONTNEED,
    RWF_NOWAIT, S_ISGID, S_ISUID, TCFLSH, TCGETS, TCGETS2, TCSBRK, TCSBRKP, TCSETS, TCSETS2,
    TCSETSF, TCSETSF2, TCSETSW, TCSETSW2, TCXONC, TIOCGPGRP, TIOCGPTLCK, TIOCGPTN, TIOCGPTPEER,
    TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCOUTQ, TIOCSCTTY, TIOCSPGRP, TIOCSPTLCK, TIOCSWINSZ,
};

/// Commands of fcntl(2) that lock or unlock a range of a file, or query the holder of a lock.
pub(super) const RECORD_LOCKS: Check = one_of(
    1,
    &[
        F_GETLK,
        F_SETLK,
        F_SETLKW,
        F_OFD_GETLK,
        F_OFD_SETLK,
        F_OFD_SETLKW,
    ],
);

/// Stricter rules for these calls, which apply if the policy lets the guest write to the host. A set-user-ID
/// program would run as the owner of the directory, which may be root, for every user of the host. Creating a file
/// with that mode is harmless, because the kernel clears the mode at the first write.
pub const HOST_WRITES: &[Rule] = &[
    allow_if(
        "modes, but no set-user-ID or set-group-ID programs",
        "chmod fchmod",
        &[clear(1, S_ISUID | S_ISGID)],
        Errno::Perm,
    ),
    allow_if(
        "modes, but no set-user-ID or set-group-ID programs",
        "fchmodat fchmodat2",
        &[clear(2, S_ISUID | S_ISGID)],
        Errno::Perm,
    ),
];

pub(super) const RULES: &[Rule] = &[
    allow(
        "open and close files; mounts and Landlock decide which",
        "open openat openat2 creat close close_range",
    ),
    allow(
        "read, write and seek in open files",
        "read write readv writev pread64 pwrite64 preadv pwritev pwritev2 lseek readahead",
    ),
    // All processes that read a library share its pages. Dropping them would make the host read them
    // from disk again. A guest's own files are not on a disk.
    allow_if(
        "announce how a file will be read, but drop none of its pages from the page cache",
        "fadvise64",
        &[none_of(3, &[POSIX_FADV_DONTNEED])],
        Errno::Nothing,
    ),
    // With RWF_NOWAIT a read reveals, without a trace, whether another process has recently read the same
    // page of a library: see cachestat.
    allow_if(
        "scattered reads, but not only from the page cache",
        "preadv2",
        &[clear(5, RWF_NOWAIT)],
        Errno::NotSupported,
    ),
    allow(
        "copy between files without a buffer (shutil)",
        "sendfile copy_file_range",
    ),
    allow(
        "size and allocation of a file (tempfile, sqlite3)",
        "truncate ftruncate fallocate",
    ),
    // On a file that the guest can only read, fsync(2) still makes the host's disk flush its cache, and every
    // tenant waits for that. A guest's own files are discarded at its end.
    nothing(
        "flushes the host's disk; allowed where a policy lets the guest write to the host",
        "fsync fdatasync sync_file_range",
    ),
    allow(
        "file metadata (os.stat, os.access, importlib)",
        "stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat \
         statfs fstatfs",
    ),
    allow(
        "directories (os.scandir, os.makedirs, pathlib)",
        "getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir",
    ),
    allow(
        "links, renames and FIFOs; device nodes need a capability that no guest has",
        "rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat mknod \
         mknodat",
    ),
    allow(
        "modes, times and extended attributes; the user namespace maps one owner only",
        "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes \
         futimesat utimensat setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr \
         listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr",
    ),
    allow("descriptors (subprocess)", "dup dup2 dup3 pipe pipe2"),
    // A lock on a host file blocks the host's programs and is visible to other tenants. See
    // `supervisor::forwarded_calls` for the costs of locks to the kernel and other tenants.
    ask_if(
        "locks on the guest's own files",
        "flock",
        ALWAYS,
        &[],
        Errno::Perm,
    ),
    // F_NOTIFY reveals who else reads a library. A lease delays every process that opens the file, even on
    // the host, and reveals the open. The kernel counts the pages of pipes per user, and gives a user with
    // many of them pipes of only a page or two (pipe(7)). With F_SETPIPE_SZ sixty pipes would use up the
    // share of all.
    ask_if(
        "descriptor flags and record locks (sqlite3), but no notification of what others open",
        "fcntl",
        RECORD_LOCKS,
        &[none_of(1, &[F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ])],
        Errno::Perm,
    ),
    allow(
        "wait for descriptors (select, selectors, asyncio)",
        "select pselect6 poll ppoll epoll_create epoll_create1 epoll_wait epoll_pwait \
         epoll_pwait2 eventfd eventfd2",
    ),
    // The kernel counts watches per host user, so they are allowed without asking if the worker has a separate uid.
    ask_if(
        "watch descriptors, within a bound that leaves some to others",
        "epoll_ctl",
        one_of(1, &[EPOLL_CTL_ADD]),
        &[],
        Errno::Perm,
    ),
    allow(
        "sandbox itself further: a new domain can only remove rights",
        "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    ),
    // Programs expect ENOTTY from a file that is not the device they look for. A guest's only terminals are its
    // own pseudoterminals, so it may set their modes. The list omits all requests of file systems and devices, and
    // TIOCSTI and TIOCLINUX, which type into the terminal from which the sandbox was started (CVE-2017-5226),
    // TIOCCONS, which takes the console's messages, and TIOCSETD, which makes the kernel load line disciplines.
    allow_if(
        "create and use pseudoterminals, with job control; query the bytes to read; set blocking and \
         close-on-exec flags; share the blocks of a copied file",
        "ioctl",
        &[one_of(
            1,
            &[
                TCGETS,
                TCSETS,
                TCSETSW,
                TCSETSF,
                TCSBRK,
                TCXONC,
                TCFLSH,
                TIOCSCTTY,
                TIOCGPGRP,
                TIOCSPGRP,
                TIOCOUTQ,
                TIOCGWINSZ,
                TIOCSWINSZ,
                TIOCNOTTY,
                TCSBRKP,
                TIOCGSID,
                TIOCGPTPEER,
                TCGETS2,
                TCSETS2,
                TCSETSW2,
                TCSETSF2,
                TIOCGPTN,
                TIOCSPTLCK,
                TIOCGPTLCK,
                FIONREAD,
                FIONBIO,
                FIOCLEX,
                FIONCLEX,
                FICLONE,
            ],
        )],
        Errno::NotTty,
    ),
];
