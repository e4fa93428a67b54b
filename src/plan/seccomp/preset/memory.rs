//! The guest's own address space.

use super::super::rule::{
    Check, Errno, Rule, allow, allow_if, ask_if, clear, masked_one_of, none_of,
};
use sandfork_jail::uapi::{
    MADV_MERGEABLE, MAP_ANONYMOUS, MAP_HUGETLB, MAP_SHARED, MAP_TYPE, MFD_ALLOW_SEALING,
    MFD_CLOEXEC, MFD_NOEXEC_SEAL,
};

/// A stricter rule for `mmap`, which applies if no cgroup counts memory. See `supervisor::shared_memory`.
pub const UNCOUNTED: &[Rule] = &[ask_if(
    "map memory and files; shared memory belongs to no process's size, so the supervisor counts it",
    "mmap",
    masked_one_of(3, MAP_TYPE | MAP_ANONYMOUS, &[MAP_SHARED | MAP_ANONYMOUS]),
    &[clear(3, MAP_HUGETLB)],
    Errno::NoMemory,
)];

pub(super) const RULES: &[Rule] = &[
    // The memory cgroup does not count reserved huge pages, which the host reserves for its own databases.
    allow_if(
        "map memory and files, but not the host's reserved huge pages",
        "mmap",
        &[clear(3, MAP_HUGETLB)],
        Errno::NoMemory,
    ),
    allow("resize, protect and unmap", "brk munmap mremap mprotect"),
    allow("write mapped files back", "msync"),
    // The duration of a write to a merged page reveals whether another process on the host, for example a
    // virtual machine, has a page with the same contents.
    allow_if(
        "advise the kernel on memory, but never merge pages with those of other processes",
        "madvise",
        &[none_of(2, &[MADV_MERGEABLE])],
        Errno::Invalid,
    ),
    allow(
        "lock memory within RLIMIT_MEMLOCK",
        "mlock mlock2 munlock mlockall munlockall",
    ),
    allow(
        "memory protection keys and seals, as JIT compilers and hardened libraries use them",
        "pkey_alloc pkey_free pkey_mprotect mseal",
    ),
    allow("order memory accesses of threads", "membarrier"),
    // vm.memfd_noexec cannot be set in a user namespace, so the filter requires the flag. Otherwise a guest
    // could run a program from a file without a path, which no path rule covers.
    allow_if(
        "anonymous files that can never be executed",
        "memfd_create",
        &[Check::OneOf {
            argument: 1,
            mask: !(MFD_CLOEXEC | MFD_ALLOW_SEALING),
            values: &[MFD_NOEXEC_SEAL],
        }],
        Errno::Perm,
    ),
];
