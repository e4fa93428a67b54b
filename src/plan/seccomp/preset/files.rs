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

/// Requests of fcntl(2) that lock a part of a file, unlock it, or ask which process has locked it.
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

/// Where a policy lets the guest write to the host, in place of the rules below. A program with such a
/// mode would run as the owner of the directory, which may be root, for every user of the host. A file
/// that is made with one loses it when bytes are written to it.
pub const HOST_WRITES: &[Rule] = &[
    allow_if(
        "modes, but no program that runs as its owner",
        "chmod fchmod",
        &[clear(1, S_ISUID | S_ISGID)],
        Errno::Perm,
    ),
    allow_if(
        "modes, but no program that runs as its owner",
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
        "read, write and seek in what is open",
        "read write readv writev pread64 pwrite64 preadv pwritev pwritev2 lseek readahead",
    ),
    // All processes that read a library share its pages. Dropping them would make the host read them
    // from disk again. A guest's own files have no disk behind them.
    allow_if(
        "say how a file will be read, but drop none of its pages from the host's memory",
        "fadvise64",
        &[none_of(3, &[POSIX_FADV_DONTNEED])],
        Errno::Nothing,
    ),
    // With RWF_NOWAIT a read shows, without changing it, whether another process has lately read the
    // same page of a library: see cachestat.
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
        "size and space of one open file (tempfile, sqlite3)",
        "truncate ftruncate fallocate",
    ),
    // On a file that is only shown, fsync(2) makes the host's disk flush its cache, and every tenant
    // waits for that. A guest's own files are discarded with it.
    nothing(
        "flushes the host's disk; allowed where a policy lets the guest write to the host",
        "fsync fdatasync sync_file_range",
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
    allow("descriptors (subprocess)", "dup dup2 dup3 pipe pipe2"),
    // A lock on a shown file blocks the host's programs and is visible to other tenants. See
    // `supervisor::forwarded_calls` for what locks cost the kernel and other tenants.
    ask_if(
        "locks on whole files, of the guest's own",
        "flock",
        ALWAYS,
        &[],
        Errno::Perm,
    ),
    // F_NOTIFY reveals who else reads a library. A lease delays every process that opens a shown file,
    // on the host too, and reveals the open. The kernel counts the pages of pipes per user, and gives a
    // user with many of them pipes of only a page or two (pipe(7)). With F_SETPIPE_SZ sixty pipes would
    // take everyone's share.
    ask_if(
        "flags of descriptors and record locks (sqlite3), but no news of what others open",
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
    // The kernel counts watches per host user, so they are allowed if the worker has a uid of its own.
    ask_if(
        "watch descriptors, so many as leave others some",
        "epoll_ctl",
        one_of(1, &[EPOLL_CTL_ADD]),
        &[],
        Errno::Perm,
    ),
    allow(
        "the guest may wall itself off further; a new domain only ever takes rights away",
        "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    ),
    // Programs expect ENOTTY from a file that is not the device they look for. A guest has no terminal but its
    // own pseudoterminals, so it may set their modes. TIOCSTI and TIOCLINUX type into the terminal from which
    // the sandbox was started (CVE-2017-5226), TIOCCONS takes the console's messages, and TIOCSETD makes the
    // kernel load line disciplines. None of them is in the list, and no request for a file system or a device.
    allow_if(
        "make and use pseudoterminals, with job control; ask how much a descriptor holds; set its blocking \
         and close flags; share blocks of a file that is being copied",
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
