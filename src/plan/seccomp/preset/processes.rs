//! Processes, threads and signals, all within the worker's own pid namespace.

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

/// The id of the guest in its user namespace, and that which leaves an id as it is.
const OWN_IDS: &[u32] = &[GUEST_ID, UNCHANGED];

const CLONE_NAMESPACES: u32 = CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET;

/// What a guest may ask of prctl(2).
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
    // A user namespace gives its creator every capability over new mounts and networks, the source of
    // most local kernel exploits. CLONE_PARENT would make the zygote the parent of a guest's process.
    allow_if(
        "threads and child processes, but no namespaces and no children for the parent",
        "clone",
        &[clear(0, CLONE_NAMESPACES | CLONE_PARENT)],
        Errno::Perm,
    ),
    refuse_with(
        "its flags are behind a pointer, where no filter sees them; glibc falls back to clone",
        "clone3",
        Errno::NoSys,
        Grant::Never,
    ),
    allow("child processes (os.fork, subprocess)", "fork vfork"),
    allow("run a program that Landlock lets it run", "execve"),
    allow("end, and wait for children", "exit exit_group wait4 waitid"),
    // Priority inheritance has repeatedly caused use-after-free bugs in the kernel (CVE-2014-3153,
    // CVE-2021-3347). glibc reads ENOSYS as "no such mutexes here".
    allow_if(
        "locks of threads, without priority inheritance",
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
        "what the C library sets up for each thread",
        "set_tid_address set_robust_list get_robust_list rseq arch_prctl",
    ),
    allow(
        "who am I, who are my relatives",
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
        "handle, block and await signals",
        "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait \
         sigaltstack signalfd signalfd4 pause restart_syscall",
    ),
    allow(
        "ask for scheduling, yield",
        "sched_yield sched_getscheduler sched_getparam sched_getattr \
         sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu",
    ),
    describe(
        "how many processors there are (os.sched_getaffinity, nproc): limits.cores",
        "sched_getaffinity",
    ),
    allow("ask for priorities", "getpriority ioprio_get ioprio_set"),
    // A process with a raised nice value dies slowly on a busy machine, and its caller would wait for
    // it.
    nothing("be nicer (os.nice)", "setpriority"),
    allow(
        "limits and usage of itself (resource)",
        "getrlimit setrlimit getrusage times",
    ),
    // The kernel lets a process set the limits of every process with its uid. The guest sees its own processes
    // and the init, which has its uid where workers have none of their own.
    allow_if(
        "limits of the worker's processes, but not of its init: hard limits only ever go down",
        "prlimit64",
        &[none_of(0, &[INIT])],
        Errno::Perm,
    ),
    // A real-time class needs a right that no guest has. SCHED_IDLE needs none, and has the effect of a raised
    // nice value. Every other attribute of sched_setattr(2) is behind a pointer.
    allow_if(
        "stay in the ordinary scheduling class (posix_spawn)",
        "sched_setscheduler",
        &[one_of(1, &[SCHED_OTHER])],
        Errno::Perm,
    ),
    allow(
        "parameters of the class that the process has: the ordinary class has only one value",
        "sched_setparam",
    ),
    // The mask is behind a pointer. A wider one would undo the pinning to `limits.cores`. A narrower one moves
    // the thread, and each move costs a kernel thread of the highest priority, whose time counts as no guest's.
    refuse_with(
        "choose processors (taskset), which the scheduler does for the guest",
        "sched_setaffinity",
        Errno::Nothing,
        Grant::Never,
    ),
    // The kernel has the last word: a guest has no capability, and its user namespace maps no other id. The
    // comparison answers EPERM, as programs expect, where the kernel would answer EINVAL.
    allow_if(
        "become the user that one is (posix_spawn, make)",
        "setuid setgid",
        &[one_of(0, &[GUEST_ID])],
        Errno::Perm,
    ),
    allow_if(
        "become the user that one is (subprocess with user)",
        "setreuid setregid",
        &[one_of(0, OWN_IDS), one_of(1, OWN_IDS)],
        Errno::Perm,
    ),
    allow_if(
        "become the user that one is (posix_spawn, os.seteuid)",
        "setresuid setresgid",
        &[one_of(0, OWN_IDS), one_of(1, OWN_IDS), one_of(2, OWN_IDS)],
        Errno::Perm,
    ),
    allow_if(
        "ask for the id by which files are opened",
        "setfsuid setfsgid",
        &[one_of(0, OWN_IDS)],
        Errno::Perm,
    ),
    // The list leaves out, among others: PR_SET_MM, PR_SET_PTRACER, PR_SET_SECCOMP, PR_SET_DUMPABLE,
    // PR_SET_CHILD_SUBREAPER, PR_SET_MEMORY_MERGE (see madvise). PR_SET_PDEATHSIG may clear the worker's own, as a fork
    // does: the pid namespace's init, and that of the zygote, still take every process along.
    allow_if(
        "name threads, ask for the state of the jail, tune timers and huge pages, end with the parent",
        "prctl",
        &[one_of(0, PRCTL)],
        Errno::Perm,
    ),
    // READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE undo the hardening of programs that the guest runs.
    allow_if(
        "ask for the personality, or stay with that of Linux",
        "personality",
        &[one_of(0, &[PERSONALITY_QUERY, PER_LINUX])],
        Errno::Perm,
    ),
];
