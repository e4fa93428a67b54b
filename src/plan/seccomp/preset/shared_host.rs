//! The rules for level `landlock`, which replace those of the preset. Without namespaces the host's
//! processes, sockets and IPC objects are visible, and so are its paths to every operation that Landlock
//! does not handle.

use super::super::rule::{Check, Errno, Rule, allow, allow_if, ask_if, never, none_of, one_of};
use super::files::RECORD_LOCKS;
use super::processes::PRCTL;
use sandfork_jail::uapi::{
    AF_UNIX, F_NOTIFY, F_SETLEASE, F_SETOWN, F_SETOWN_EX, F_SETPIPE_SZ, F_SETSIG,
    IOPRIO_WHO_PROCESS, O_ACCMODE, O_TRUNC, PR_SET_PDEATHSIG, SCHED_OTHER, SELF, SOCK_SEQPACKET,
    SOCK_STREAM, SOCK_TYPE_MASK,
};

/// The rules on every kernel.
pub(super) const ALWAYS: &[Rule] = &[
    never(
        "reaches sockets of the host's services, by path or abstract name",
        "socket connect bind listen accept accept4",
    ),
    // A datagram socket of a pair can still send to any address, but a connected stream socket cannot.
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
    // Landlock handles none of these calls (Documentation/userspace-api/landlock.rst, "Current
    // limitations"): a guest with the user's id could change any of the user's files.
    never(
        "changes modes, owners and attributes of files, which Landlock does not restrict",
        "chmod fchmodat fchmodat2 chown lchown fchownat setxattr lsetxattr removexattr \
         lremovexattr setxattrat removexattrat file_setattr",
    ),
    // This includes the times of an open file: /dev/null is the host's, and any user may set its
    // times to now.
    never(
        "changes times of files, which Landlock does not restrict and all tenants see",
        "utime utimes futimesat utimensat",
    ),
    never(
        "reads attributes of files, which Landlock does not restrict",
        "getxattr lgetxattr listxattr llistxattr getxattrat listxattrat",
    ),
    never(
        "reveals the use of files, which Landlock does not restrict",
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
        "limits of the caller, as process 0: hard limits can only be lowered",
        "prlimit64",
        &[one_of(0, &[SELF])],
        Errno::Perm,
    ),
    allow_if(
        "keep the caller in the ordinary scheduling class",
        "sched_setscheduler",
        &[one_of(0, &[SELF]), one_of(1, &[SCHED_OTHER])],
        Errno::Perm,
    ),
    allow_if(
        "the caller's own parameters: the ordinary class has only one value",
        "sched_setparam",
        &[one_of(0, &[SELF])],
        Errno::Perm,
    ),
    // The guest must not clear PR_SET_PDEATHSIG: no pid namespace would end a worker after its parent.
    allow_if(
        "name threads, query the state of the jail, tune timers and huge pages",
        "prctl",
        &[one_of(0, PRCTL), none_of(0, &[PR_SET_PDEATHSIG])],
        Errno::Perm,
    ),
    // The guest has an id of the host, which is not known here. The supervisor has verified that its real, effective
    // and saved ids are equal and that it has no capabilities, so the kernel allows no other id.
    allow(
        "set the ids to their current values (posix_spawn, make, subprocess with user)",
        "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid",
    ),
];

/// The rules before ABI 3, which handles truncation.
pub(super) const TRUNCATION_OPEN: &[Rule] = &[
    never(
        "truncates files, which Landlock does not restrict",
        "truncate",
    ),
    // Landlock requires no write access to truncate a file that is not opened for writing.
    allow_if(
        "open files, but truncate only if opened for writing",
        "open",
        &[Check::NoneOf {
            argument: 1,
            mask: O_TRUNC | O_ACCMODE,
            values: TRUNCATE_UNWRITTEN,
        }],
        Errno::Perm,
    ),
    allow_if(
        "open files, but truncate only if opened for writing",
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

/// The rules before ABI 6, which scopes signals.
pub(super) const SIGNALS_OPEN: &[Rule] = &[
    never(
        "could signal every process of the user",
        "tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal",
    ),
    // The worker's processes form one process group without any others.
    ask_if(
        "signals to processes of the worker: to the group, or to one that the supervisor finds in it",
        "kill tgkill",
        none_of(0, &[SELF]),
        &[one_of(0, &[SELF])],
        Errno::Perm,
    ),
    // The worker's process group is killed by a single call: see `jail::reaper`.
    never("leaves the process group of its worker", "setsid setpgid"),
    ask_if(
        "descriptor flags and locks, but no signals through descriptors",
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
