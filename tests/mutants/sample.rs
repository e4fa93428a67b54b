//! One mutant of each kind, for every run of the tests. Each names the party that must detect it.

use libtest_mimic::Failed;

use crate::bench::Bench;
use crate::verdict::Verdict;

/// The party that detects the mutant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum By {
    /// A step of the set-up, which fails.
    SetUp,
    /// The worker or the supervisor, when they verify the jail.
    Inspection,
    /// This guest.
    Guest(&'static str),
}

/// A mutant's name and its detector.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub name: &'static str,
    by: By,
}

const fn inspection(name: &'static str) -> Sample {
    let by = By::Inspection;
    Sample { name, by }
}

const fn set_up(name: &'static str) -> Sample {
    let by = By::SetUp;
    Sample { name, by }
}

const fn guest(guest: &'static str, name: &'static str) -> Sample {
    let by = By::Guest(guest);
    Sample { name, by }
}

pub const SAMPLE: &[Sample] = &[
    inspection("namespaces: worker without ipc"),
    inspection("namespaces: worker without its network"),
    inspection("namespaces: socket for hosts without bind"),
    inspection("mounts: worker, tmpfs at /work without noexec"),
    guest("files", "mounts: worker, tmpfs at /tmp without mode=0700"),
    inspection("mounts: worker, proc at /proc without subset=pid"),
    inspection("mounts: worker, at /proc/meminfo: not made"),
    guest(
        "files",
        "mounts: worker, devpts at /dev/pts without ptmxmode=0666",
    ),
    inspection("landlock: worker not enforced"),
    guest("files", "landlock: refer not handled"),
    guest(
        "files",
        "landlock: make_char granted to what may be written",
    ),
    guest("calls", "seccomp: lets bpf"),
    guest("calls", "seccomp: lets clone with 0x10000000"),
    guest("calls", "seccomp: forgets mkdir"),
    guest("process", "seccomp: lets another architecture"),
    guest(
        "network",
        "seccomp: lets setsockopt with 0x7 with a loopback",
    ),
    guest(
        "network",
        "namespaces: worker does not write 4096 131072 262144 to tcp_rmem",
    ),
    set_up("seccomp: worker's filter not loaded"),
    inspection("capabilities: worker keeps capability 21 in the bounding set"),
    guest(
        "process",
        "capabilities: worker without parent-death signal",
    ),
    inspection("rlimits: worker without core"),
];

impl Sample {
    pub fn judge(&self, bench: &mut Bench) -> Result<(), Failed> {
        let all = bench.mutants();
        let mutant = all.iter().find(|mutant| mutant.name == self.name);
        let mutant = mutant.ok_or("the jail has no such part any more: name another")?;
        match (bench.judge(mutant), self.by) {
            (Verdict::SetUp(_), By::SetUp) | (Verdict::Inspection(_), By::Inspection) => Ok(()),
            (Verdict::Guest { name, .. }, By::Guest(guest)) if name == guest => Ok(()),
            (verdict, _) => Err(format!("{verdict}, where it was to be {:?}", self.by).into()),
        }
    }
}
