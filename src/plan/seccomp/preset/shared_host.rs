//! Without namespaces (level `landlock`) the host's processes, sockets and ipc objects are visible,
//! and so are paths for every operation that Landlock does not handle. These rules replace those of
//! the preset.

use super::super::rule::{Check, Errno, Rule, allow, allow_if, ask_if, never, none_of, one_of};
use super::files::RECORD_LOCKS;
use super::processes::PRCTL;
use sandfork_jail::uapi::{
    AF_UNIX, F_NOTIFY, F_SETLEASE, F_SETOWN, F_SETOWN_EX, F_SETPIPE_SZ, F_SETSIG,
    IOPRIO_WHO_PROCESS, O_ACCMODE, O_TRUNC, PR_SET_PDEATHSIG, SCHED_OTHER, SELF, SOCK_SEQPACKET,
    SOCK_STREAM, SOCK_TYPE_MASK,
};

/// On every kernel.
pub(super) const ALWAYS: &[Rule] = &[
    never(
        "the sockets of the host's services are in reach by path and by abstract name",
        "socket connect bind listen accept accept4",
    ),
    // A datagram socket of a pair can still send to any name; a connected stream socket cannot.
    allow_if(
        "connected pairs (asyncio, multiprocessing)",
        "socketpair",
        &[
            one_of(0, &[AF_UNIX]),
            Check::OneOf {
                argument: 1,
                mask: SOCK_TYPE_MASK,
                values: &[SOCK_STREAM, SOCK_SEQPACKET],
            },
        ],
        Errno::Perm,
    ),
    // Landlock handles none of these (Documentation/userspace-api/landlock.rst, "Current
    // limitations"): a guest with the user's own id could change any of the user's files.
    never(
        "changes modes, owners and attributes of files that Landlock keeps closed",
        "chmod fchmodat fchmodat2 chown lchown fchownat setxattr lsetxattr removexattr \
         lremovexattr setxattrat removexattrat file_setattr",
    ),
    // This includes the times of an open file: /dev/null is the host's, and any user may set its
    // times to now.
    never(
        "changes times of files that Landlock keeps closed, or that all tenants see",
        "utime utimes futimesat utimensat",
    ),
    never(
        "reads attributes of files that Landlock keeps closed",
        "getxattr lgetxattr listxattr llistxattr getxattrat listxattrat",
    ),
    never(
        "tells of the use of files that Landlock keeps closed",
        "inotify_add_watch",
    ),
    never(
        "objects that all processes of the user share",
        "shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl \
         mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
    ),
    allow_if(
        "the caller's own i/o priority",
        "ioprio_set",
        &[one_of(0, &[IOPRIO_WHO_PROCESS]), one_of(1, &[SELF])],
        Errno::Perm,
    ),
    never(
        "acts on any process of the user",
        "process_madvise process_mrelease migrate_pages move_pages sched_setattr",
    ),
    allow_if(
        "limits of the caller, named as process 0: hard limits only ever go down",
        "prlimit64",
        &[one_of(0, &[SELF])],
        Errno::Perm,
    ),
    allow_if(
        "the caller stays in the ordinary scheduling class",
        "sched_setscheduler",
        &[one_of(0, &[SELF]), one_of(1, &[SCHED_OTHER])],
        Errno::Perm,
    ),
    allow_if(
        "the caller's own parameters, of which the ordinary class has only one value",
        "sched_setparam",
        &[one_of(0, &[SELF])],
        Errno::Perm,
    ),
    // No pid namespace ends a worker whose parent has ended.
    allow_if(
        "name threads, ask for the state of the jail, tune timers and huge pages",
        "prctl",
        &[one_of(0, PRCTL), none_of(0, &[PR_SET_PDEATHSIG])],
        Errno::Perm,
    ),
    // The guest has an id of the host, which no table knows. The supervisor has seen that its real, effective
    // and saved ids are one and that it has no capability: the kernel lets it have no other.
    allow(
        "become the user that one is (posix_spawn, make, subprocess with user)",
        "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid",
    ),
];

/// Before ABI 3, which handles truncation.
pub(super) const TRUNCATION_OPEN: &[Rule] = &[
    never("truncates files that Landlock keeps closed", "truncate"),
    // Landlock requires no write right if a file is truncated but not opened for writing.
    allow_if(
        "open files, but truncate only what is opened for writing",
        "open",
        &[Check::NoneOf {
            argument: 1,
            mask: O_TRUNC | O_ACCMODE,
            values: TRUNCATE_UNWRITTEN,
        }],
        Errno::Perm,
    ),
    allow_if(
        "open files, but truncate only what is opened for writing",
        "openat",
        &[Check::NoneOf {
            argument: 2,
            mask: O_TRUNC | O_ACCMODE,
            values: TRUNCATE_UNWRITTEN,
        }],
        Errno::Perm,
    ),
    never("its flags are behind a pointer", "openat2"),
];

/// `O_TRUNC` with `O_RDONLY`, and with the access mode 3 that grants neither reading nor writing.
const TRUNCATE_UNWRITTEN: &[u32] = &[O_TRUNC, O_TRUNC | O_ACCMODE];

/// Before ABI 6, which scopes signals.
pub(super) const SIGNALS_OPEN: &[Rule] = &[
    never(
        "could signal every process of the user",
        "tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal",
    ),
    // The worker's processes are one process group, which no other is in.
    ask_if(
        "signals to processes of the worker: all, or the one that the supervisor finds among them",
        "kill tgkill",
        none_of(0, &[SELF]),
        &[one_of(0, &[SELF])],
        Errno::Perm,
    ),
    // The worker's process group is killed in one call: see `jail::reaper`.
    never("leaves the process group of its worker", "setsid setpgid"),
    ask_if(
        "descriptor flags and locks, but no signals to others by way of a descriptor",
        "fcntl",
        RECORD_LOCKS,
        &[none_of(
            1,
            &[
                F_SETOWN,
                F_SETSIG,
                F_SETOWN_EX,
                F_SETLEASE,
                F_NOTIFY,
                F_SETPIPE_SZ,
            ],
        )],
        Errno::Perm,
    ),
];
