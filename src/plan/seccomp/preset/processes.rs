//! Processes, threads and signals, all in the worker's own pid namespace.

use super::super::rule::{
    Check, Errno, Grant, Rule, allow, allow_if, clear, describe, none_of, nothing, one_of,
    refuse_with,
};
use crate::host::GUEST_ID;
use sandfork_jail::uapi::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER,
    CLONE_NEWUTS, CLONE_PARENT, FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_PRIVATE_FLAG,
    FUTEX_REQUEUE, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP,
    INIT, PER_LINUX, PERSONALITY_QUERY, PR_CAPBSET_READ, PR_GET_DUMPABLE, PR_GET_NAME,
    PR_GET_NO_NEW_PRIVS, PR_GET_PDEATHSIG, PR_GET_SECCOMP, PR_GET_THP_DISABLE, PR_GET_TID_ADDRESS,
    PR_GET_TIMERSLACK, PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_THP_DISABLE,
    PR_SET_TIMERSLACK, PR_SVE_GET_VL, SCHED_OTHER, UNCHANGED,
};

/// The id of the guest in its user namespace, and the value that leaves an id unchanged.
const OWN_IDS: &[u32] = &[GUEST_ID, UNCHANGED];

const CLONE_NAMESPACES: u32 = CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET;

/// The operations of prctl(2) that a guest may use.
pub(super) const PRCTL: &[u32] = &[
    PR_SET_NAME,
    PR_GET_NAME,
    PR_SET_PDEATHSIG,
    PR_GET_PDEATHSIG,
    PR_GET_DUMPABLE,
    PR_GET_SECCOMP,
    PR_CAPBSET_READ,
    PR_SET_TIMERSLACK,
    PR_GET_TIMERSLACK,
    PR_SET_NO_NEW_PRIVS,
    PR_GET_NO_NEW_PRIVS,
    PR_GET_TID_ADDRESS,
    PR_SET_THP_DISABLE,
    PR_GET_THP_DISABLE,
    PR_SVE_GET_VL,
];

pub(super) const RULES: &[Rule] = &[
    // A user namespace gives its creator all capabilities over new mounts and networks, the source of most
    // local kernel exploits. CLONE_PARENT would make the zygote the parent of a guest's process.
    allow_if(
        "threads and child processes, but no namespaces and no CLONE_PARENT",
        "clone",
        &[clear(0, CLONE_NAMESPACES | CLONE_PARENT)],
        Errno::Perm,
    ),
    refuse_with(
        "its flags are behind a pointer, invisible to filters; glibc falls back to clone",
        "clone3",
        Errno::NoSys,
        Grant::Never,
    ),
    allow("child processes (os.fork, subprocess)", "fork vfork"),
    allow("run programs that Landlock permits", "execve"),
    allow(
        "exit, and wait for children",
        "exit exit_group wait4 waitid",
    ),
    // Priority inheritance has repeatedly caused use-after-free bugs in the kernel (CVE-2014-3153,
    // CVE-2021-3347). glibc takes ENOSYS to mean that such mutexes are unsupported.
    allow_if(
        "thread locks, without priority inheritance",
        "futex",
        &[Check::OneOf {
            argument: 1,
            mask: !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME),
            values: &[
                FUTEX_WAIT,
                FUTEX_WAKE,
                FUTEX_WAIT_BITSET,
                FUTEX_WAKE_BITSET,
                FUTEX_REQUEUE,
                FUTEX_CMP_REQUEUE,
                FUTEX_WAKE_OP,
            ],
        }],
        Errno::NoSys,
    ),
    allow(
        "the newer form of the same locks",
        "futex_waitv futex_wake futex_wait",
    ),
    allow(
        "thread set-up of the C library",
        "set_tid_address set_robust_list get_robust_list rseq arch_prctl",
    ),
    allow(
        "ids of the process, its relatives, user and groups",
        "getpid getppid gettid getpgid getpgrp getsid getuid geteuid getgid getegid getresuid \
         getresgid getgroups capget",
    ),
    allow(
        "sessions and process groups (subprocess, shells)",
        "setpgid setsid",
    ),
    allow(
        "signals among the worker's own processes",
        "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal",
    ),
    allow(
        "handle, block and wait for signals",
        "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait \
         sigaltstack signalfd signalfd4 pause restart_syscall",
    ),
    allow(
        "query scheduling, and yield",
        "sched_yield sched_getscheduler sched_getparam sched_getattr \
         sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu",
    ),
    describe(
        "the number of processors (os.sched_getaffinity, nproc): limits.cores",
        "sched_getaffinity",
    ),
    allow(
        "query priorities, and set I/O priorities",
        "getpriority ioprio_get ioprio_set",
    ),
    // A process with a raised nice value exits slowly on a busy machine, and its caller would wait for
    // it.
    nothing(
        "lowering the priority (os.nice) has no effect",
        "setpriority",
    ),
    allow(
        "limits and usage of the process (resource)",
        "getrlimit setrlimit getrusage times",
    ),
    // The kernel lets a process set the limits of every process with its uid. The guest sees its own processes and
    // the init, which has the same uid if workers have no separate uids.
    allow_if(
        "limits of the worker's processes, but not of its init: hard limits can only be lowered",
        "prlimit64",
        &[none_of(0, &[INIT])],
        Errno::Perm,
    ),
    // A real-time class needs a privilege that no guest has. SCHED_IDLE needs none, and has the effect of a raised
    // nice value. The other attributes of sched_setattr(2) are behind a pointer.
    allow_if(
        "stay in the ordinary scheduling class (posix_spawn)",
        "sched_setscheduler",
        &[one_of(1, &[SCHED_OTHER])],
        Errno::Perm,
    ),
    allow(
        "parameters of the current scheduling class: the ordinary class has only one value",
        "sched_setparam",
    ),
    // The mask is behind a pointer. A wider mask would undo the pinning to `limits.cores`. A narrower mask moves the
    // thread, and each move takes time of a kernel thread with the highest priority, which is charged to no guest.
    refuse_with(
        "choosing processors (taskset) has no effect; the scheduler chooses them",
        "sched_setaffinity",
        Errno::Nothing,
        Grant::Never,
    ),
    // The kernel enforces this too: a guest has no capabilities, and its user namespace maps no other id. The filter
    // returns EPERM, as programs expect, where the kernel would return EINVAL.
    allow_if(
        "set the ids to their current values (posix_spawn, make)",
        "setuid setgid",
        &[one_of(0, &[GUEST_ID])],
        Errno::Perm,
    ),
    allow_if(
        "set the ids to their current values (subprocess with user)",
        "setreuid setregid",
        &[one_of(0, OWN_IDS), one_of(1, OWN_IDS)],
        Errno::Perm,
    ),
    allow_if(
        "set the ids to their current values (posix_spawn, os.seteuid)",
        "setresuid setresgid",
        &[one_of(0, OWN_IDS), one_of(1, OWN_IDS), one_of(2, OWN_IDS)],
        Errno::Perm,
    ),
    allow_if(
        "query or keep the ids for file access",
        "setfsuid setfsgid",
        &[one_of(0, OWN_IDS)],
        Errno::Perm,
    ),
    // The list omits, among others: PR_SET_MM, PR_SET_PTRACER, PR_SET_SECCOMP, PR_SET_DUMPABLE,
    // PR_SET_CHILD_SUBREAPER, PR_SET_MEMORY_MERGE (see madvise). PR_SET_PDEATHSIG may clear the worker's own setting,
    // as a fork does: the end of the pid namespace's init, or of the zygote's init, still ends every process.
    allow_if(
        "name threads, query the state of the jail, tune timers and huge pages, exit with the parent",
        "prctl",
        &[one_of(0, PRCTL)],
        Errno::Perm,
    ),
    // READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE undo the hardening of programs that the guest runs.
    allow_if(
        "query the personality, or keep that of Linux",
        "personality",
        &[one_of(0, &[PERSONALITY_QUERY, PER_LINUX])],
        Errno::Perm,
    ),
];
