//! Mutants that no guest can distinguish from the sound jail, each with the reason. Every other survivor
//! is a finding.

use crate::verdict::Verdict;

/// The start of a mutant's name, and why it has no visible effect.
const EQUIVALENT: &[(&str, &str)] = &[
    (
        "mounts: root's proc without no",
        "a procfs has no devices and no programs, and each worker has its own over it",
    ),
    (
        "mounts: zygote,",
        "only packages that it preloads see it, and it ends before there is a guest",
    ),
    (
        "mounts: worker, proc at /proc without nodev",
        "a procfs has no devices",
    ),
    (
        "mounts: root, tmpfs at /proc without",
        "the root gets its flags when it is made read-only, before there is a guest to write to it",
    ),
    (
        "capabilities: zygote without parent-death signal",
        "the init, which the lifeline ends, is process 1 and takes the zygote with it",
    ),
    (
        "capabilities: zygote without dumpable",
        "no worker sees the zygote, and under Landlock it could trace nothing but its own children",
    ),
    (
        "capabilities: worker keeps capability 41",
        "the kernel has none of this number",
    ),
    (
        "capabilities: worker without ambient set",
        "nothing was in it, and with `no_new_privs` nothing comes of it",
    ),
    (
        "capabilities: worker without capset",
        "the last of the three empties what the others do; without it the worker sees that it may",
    ),
    (
        "landlock: refer granted to",
        "a link or a move also needs the right to make what it makes, which is not granted there",
    ),
    (
        "landlock: abstract unix sockets not handled",
        "abstract names are in a network namespace, and no two workers have the same",
    ),
    (
        "landlock: read_dir granted to devices",
        "all beneath the root may be listed",
    ),
    (
        "namespaces: worker does not write deny to setgroups",
        "setgroups(2) asks for a capability that no guest has, and the filters refuse it",
    ),
    (
        "namespaces: launcher without ipc",
        "each worker makes its own; the zygote's is for what is preloaded",
    ),
    (
        "cgroup: supervisor does not write 67108864 to memory.memsw.limit_in_bytes",
        "this host has no swap",
    ),
    (
        "cgroup: supervisor does not write 0 to memory.swappiness",
        "this host has no swap",
    ),
    (
        "cgroup: supervisor does not write 100000 to cpu.cfs_period_us",
        "it is what the kernel begins with",
    ),
    (
        "cgroup: supervisor does not write 0 to memory.force_empty",
        "it gives back what guests left in a cgroup, and limits none",
    ),
    (
        "capabilities: init without close_range",
        "it keeps what its parent has open, ends with it, and no guest may look at it",
    ),
    // Mutants of the process that connects to hosts.
    (
        "capabilities: launcher without close_range",
        "the supervisor opens no file that stays open in another program",
    ),
    (
        "capabilities: launcher without ambient set",
        "nothing was in it, and with `no_new_privs` nothing comes of it",
    ),
    (
        "capabilities: launcher without capset",
        "its sets are empty since it has changed its user",
    ),
    (
        "rlimits: launcher without nofile",
        "it raises the process's own limit",
    ),
    (
        "seccomp: lets epoll_ctl",
        "the supervisor lets every watch of a worker with a uid of its own",
    ),
    (
        "seccomp: lets fdatasync",
        "the test's policy lets the guest write to the host, and so this call",
    ),
    (
        "seccomp: lets fsync",
        "the test's policy lets the guest write to the host, and so this call",
    ),
    (
        "seccomp: lets sync_file_range",
        "the test's policy lets the guest write to the host, and so this call",
    ),
    (
        "seccomp: lets uretprobe",
        "the kernel asks no filter about it",
    ),
    (
        "rlimits: zygote without nice",
        "the test's own process has no priority to lose; `tests/kernel/precedence.rs` starts one that has",
    ),
    (
        "rlimits: zygote without rtprio",
        "the test's own process has no priority to lose; `tests/kernel/precedence.rs` starts one that has",
    ),
    (
        "rlimits: zygote without nofile",
        "it raises the zygote's own limit; each worker gets another",
    ),
];

/// Returns the verdict on a mutant that survived.
pub fn verdict(name: &str) -> Verdict {
    match EQUIVALENT
        .iter()
        .find(|(begins, _)| name.starts_with(begins))
    {
        Some((_, reason)) => Verdict::Equivalent(reason),
        None => Verdict::Survived,
    }
}
