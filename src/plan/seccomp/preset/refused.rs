//! Calls that the filters know and refuse with EPERM. A call that is in no table gets ENOSYS.

use super::super::rule::{Rule, never, refuse};

/// Calls of whose refusals with EPERM the supervisor hears: those that programs fail without. A worker's filter has each
/// of them once more, and is loaded at each start.
pub(super) const REPORTED: &[&str] = &[
    // The network.
    "socket",
    // Debuggers and profilers.
    "ptrace process_vm_readv process_vm_writev",
    // Sandboxes and containers.
    "clone unshare setns chroot mount umount2 mount_setattr move_mount fsopen fsconfig fsmount",
    // Faster ways into the kernel.
    "bpf userfaultfd io_uring_setup splice tee",
    // Programs in memory.
    "memfd_create execveat",
    // Watchers of files.
    "inotify_init inotify_init1",
    // Objects that no process holds.
    "shmget semget msgget mq_open",
];

/// Calls that are of use only together: a program that makes the first makes the others with what that returns.
pub(super) const FAMILIES: &[&str] = &[
    "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
    "shmget shmat shmctl shmdt",
    "semget semop semtimedop semctl",
    "msgget msgsnd msgrcv msgctl",
    "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
];

/// Calls that a worker makes to see that they are refused, before its supervisor listens (`jail::self_check`).
pub(super) const WITNESSES: &[&str] = &["socketpair", "kcmp", "open_tree", "capset"];

pub(super) const RULES: &[Rule] = &[
    never(
        "reads, writes or steers another process",
        "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd",
    ),
    never(
        "runs programs in the kernel or measures it",
        "bpf perf_event_open userfaultfd modify_ldt",
    ),
    never(
        "does what other calls do, past every filter",
        "io_uring_setup io_uring_enter io_uring_register",
    ),
    never(
        "keyrings belong to users, not to sandboxes, and are quarried for exploits",
        "add_key request_key keyctl",
    ),
    never(
        "makes or enters namespaces and roots",
        "unshare setns chroot pivot_root",
    ),
    never(
        "changes or lists mounts, by the old interface and the new",
        "mount umount2 mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig \
         fsmount fspick statmount listmount",
    ),
    never(
        "opens files by handle, past every mount (the Shocker exploit)",
        "open_by_handle_at",
    ),
    refuse("hands out the handles for it", "name_to_handle_at"),
    never("changes what the jail has set", "seccomp capset"),
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
    // These calls put pages of the page cache, and so of libraries that all processes share, into pipes.
    // The next hole of this kind would make them writable (CVE-2022-0847). sendfile stays: shutil needs
    // it.
    refuse("puts page-cache pages into pipes", "splice tee vmsplice"),
    refuse("runs a file that no path leads to", "execveat"),
    refuse("flushes the host's disks, for all tenants", "sync syncfs"),
    refuse("tells what others have read lately", "cachestat mincore"),
    // A file that two tenants are shown is one file to the kernel, and the host's programs open it too.
    refuse(
        "tells what others open of the files that they are shown too",
        "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
    ),
    refuse("memory that no one can inspect or count", "memfd_secret"),
    refuse(
        "acts on the memory of other processes",
        "process_madvise process_mrelease",
    ),
    refuse(
        "places memory on nodes; libraries that ask take EPERM as a host without NUMA",
        "mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages",
    ),
    refuse(
        "scheduling attributes behind a pointer; without privileges there is nothing to gain",
        "sched_setattr",
    ),
    refuse(
        "needs a capability even to change nothing, so the kernel too would answer EPERM",
        "setgroups",
    ),
    // Segments and queues without an attached process count in no process's size, and outlive every
    // process.
    refuse(
        "System V objects; multiprocessing uses files in /dev/shm, which have a quota",
        "shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl",
    ),
    refuse(
        "message queues in kernel memory",
        "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
    ),
];
