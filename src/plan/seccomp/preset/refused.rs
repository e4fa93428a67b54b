//! The calls that the filters refuse with EPERM. A call that is in no table gets ENOSYS.

use super::super::rule::{Rule, never, refuse};

/// Calls whose refusals with EPERM are reported to the supervisor: those without which programs fail. The list is
/// short, because a worker's filter repeats each of these calls and is loaded at each start.
pub(super) const REPORTED: &[&str] = &[
    // The network.
    "socket",
    // Debuggers and profilers.
    "ptrace process_vm_readv process_vm_writev",
    // Sandboxes and containers.
    "clone unshare setns chroot mount umount2 mount_setattr move_mount fsopen fsconfig fsmount",
    // Fast paths into the kernel.
    "bpf userfaultfd io_uring_setup splice tee",
    // Programs in memory.
    "memfd_create execveat",
    // Watchers of files.
    "inotify_init inotify_init1",
    // Objects that outlive processes.
    "shmget semget msgget mq_open",
];

/// Calls that are useful only together: a program passes the result of the first to the others.
pub(super) const FAMILIES: &[&str] = &[
    "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
    "shmget shmat shmctl shmdt",
    "semget semop semtimedop semctl",
    "msgget msgsnd msgrcv msgctl",
    "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
];

/// Calls that a worker's self-check tries, to see that they are refused, before its supervisor listens for
/// notifications (`jail::self_check`).
pub(super) const WITNESSES: &[&str] = &["socketpair", "kcmp", "open_tree", "capset"];

pub(super) const RULES: &[Rule] = &[
    never(
        "reads, writes or controls another process",
        "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd",
    ),
    never(
        "runs programs in the kernel or measures it",
        "bpf perf_event_open userfaultfd modify_ldt",
    ),
    never(
        "performs other calls and bypasses filters",
        "io_uring_setup io_uring_enter io_uring_register",
    ),
    never(
        "keyrings belong to users, not to sandboxes, and are a frequent source of exploits",
        "add_key request_key keyctl",
    ),
    never(
        "creates or enters namespaces, or changes the root",
        "unshare setns chroot pivot_root",
    ),
    never(
        "changes or lists mounts",
        "mount umount2 mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig \
         fsmount fspick statmount listmount",
    ),
    never(
        "opens files by handle and bypasses mounts (the Shocker exploit)",
        "open_by_handle_at",
    ),
    refuse("returns handles for open_by_handle_at", "name_to_handle_at"),
    never("changes the jail", "seccomp capset"),
    never(
        "administers the machine",
        "reboot kexec_load kexec_file_load init_module finit_module delete_module swapon \
         swapoff acct quotactl quotactl_fd sethostname setdomainname syslog vhangup iopl \
         ioperm",
    ),
    never(
        "sets the machine's clock",
        "settimeofday clock_settime clock_adjtime adjtimex",
    ),
    never("watches whole file systems", "fanotify_init fanotify_mark"),
    // These calls put pages of the page cache, including those of libraries that all processes share, into
    // pipes. Another vulnerability like CVE-2022-0847 would make them writable. sendfile is allowed, because
    // shutil needs it.
    refuse("puts page-cache pages into pipes", "splice tee vmsplice"),
    refuse("runs a file without a path", "execveat"),
    refuse("flushes the host's disks, for all tenants", "sync syncfs"),
    refuse(
        "reveals what others have read recently",
        "cachestat mincore",
    ),
    // To the kernel, a file that several tenants see is one file, which the host's programs open too.
    refuse(
        "reveals which shared files others open",
        "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
    ),
    refuse("memory that no one can inspect or count", "memfd_secret"),
    refuse(
        "acts on the memory of other processes",
        "process_madvise process_mrelease",
    ),
    refuse(
        "places memory on NUMA nodes; libraries take EPERM for a host without NUMA",
        "mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages",
    ),
    refuse(
        "its attributes are behind a pointer, and useless without privileges",
        "sched_setattr",
    ),
    refuse(
        "needs a capability even to change nothing, so the kernel would return EPERM too",
        "setgroups",
    ),
    // Segments and queues without an attached process belong to no process's size, and outlive all processes.
    refuse(
        "System V objects; multiprocessing uses files in /dev/shm, which have a quota",
        "shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl",
    ),
    refuse(
        "message queues in kernel memory",
        "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
    ),
];
