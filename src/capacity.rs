//! Computes how many runs the host can hold at once.

use std::fmt;
use std::num::NonZeroUsize;

use crate::host::Headroom;
use crate::plan::{HeldBy, Plan, bytes};
use crate::sandbox::Sandbox;

/// How many runs of one sandbox fit into the host's free resources if each run uses its full limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capacity {
    /// At least one, even if the host seems too small: only an attempt shows whether one run fits.
    pub runs: NonZeroUsize,
    bound: Bound,
}

/// The scarcest resource, which bounds the number of runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bound {
    /// Memory, in bytes.
    Memory {
        /// The memory limit of one run, plus its files where those have separate limits.
        each: u64,
        /// Memory left.
        left: u64,
    },
    /// Processes and threads.
    Tasks {
        /// The task limit of one run, plus the process above it: its init, or its reaper at level `landlock`.
        each: u64,
        /// Tasks left.
        left: u64,
    },
    /// Descriptors of this process.
    Descriptors {
        /// Descriptors that one run holds.
        each: u64,
        /// Descriptors left.
        left: u64,
    },
}

/// Resources that one run, or several together, may use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Needs {
    /// Bytes of memory, including files where those have separate limits.
    pub memory: u64,
    /// Processes and threads, including the process above each run.
    pub tasks: u64,
    /// Descriptors of this process.
    pub descriptors: u64,
}

impl Needs {
    /// Returns what one run of a sandbox may use.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self::under(sandbox.plan())
    }

    fn under(plan: &Plan) -> Self {
        let supervision = &plan.supervision;
        // Only a cgroup counts files on a tmpfs as memory.
        let files: u64 = match supervision.held_by {
            HeldBy::Cgroup => 0,
            HeldBy::Watchdog => plan.jail.worker.tmpfs.iter().map(|own| own.size).sum(),
        };
        Self {
            memory: supervision.limits.memory().saturating_add(files),
            tasks: supervision.limits.pids() + 1,
            descriptors: DESCRIPTORS_OF_A_RUN,
        }
    }

    pub fn times(self, runs: u64) -> Self {
        self.with(Self::default(), |one, _| one.saturating_mul(runs))
    }

    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// Returns the larger value of each resource.
    pub fn or_more(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    pub fn fit_in(self, all: Self) -> bool {
        self.or_more(all) == all
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            memory: combine(self.memory, other.memory),
            tasks: combine(self.tasks, other.tasks),
            descriptors: combine(self.descriptors, other.descriptors),
        }
    }
}

impl From<Headroom> for Needs {
    fn from(left: Headroom) -> Self {
        Self {
            memory: left.memory,
            tasks: left.tasks,
            descriptors: left.descriptors,
        }
    }
}

/// Descriptors that the supervisor holds for one run, including those open only while the run starts and ends, and the
/// run's share of the pooled cgroups. A test counts them.
pub const DESCRIPTORS_OF_A_RUN: u64 = 30;

impl Capacity {
    /// Measures the host's free resources now. Takes a few milliseconds and reserves nothing.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self::within(&Headroom::now(), sandbox.plan())
    }

    fn within(headroom: &Headroom, plan: &Plan) -> Self {
        let each = Needs::under(plan);
        let bounds = [
            Bound::Memory {
                each: each.memory,
                left: headroom.memory,
            },
            Bound::Tasks {
                each: each.tasks,
                left: headroom.tasks,
            },
            Bound::Descriptors {
                each: each.descriptors,
                left: headroom.descriptors,
            },
        ];
        let [first, others @ ..] = bounds;
        let bound = others.into_iter().fold(first, |least, other| {
            if other.runs() < least.runs() {
                other
            } else {
                least
            }
        });
        Self {
            runs: bound.runs(),
            bound,
        }
    }
}

impl Bound {
    fn runs(self) -> NonZeroUsize {
        let (Self::Memory { each, left }
        | Self::Tasks { each, left }
        | Self::Descriptors { each, left }) = self;
        let runs = usize::try_from(left / each.max(1)).unwrap_or(usize::MAX);
        NonZeroUsize::new(runs).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Explains what bounds the number, and how to raise it.
impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::Memory { each, left } => write!(
                f,
                "each may use {} of memory and {} are left; lower `limits.memory` for more",
                bytes(each),
                bytes(left)
            ),
            Bound::Tasks { each, left } => write!(
                f,
                "each may have {each} processes and {left} are left; lower `limits.pids` for more"
            ),
            Bound::Descriptors { each, left } => write!(
                f,
                "each takes up to {each} descriptors and {left} are left; raise `ulimit -n` for more"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::plan::sample;

    const PLENTY: Headroom = Headroom {
        memory: u64::MAX,
        tasks: u64::MAX,
        descriptors: 30_000,
    };

    fn runs(plan: &Plan, headroom: Headroom) -> (usize, String) {
        let capacity = Capacity::within(&headroom, plan);
        (capacity.runs.get(), capacity.to_string())
    }

    #[test]
    fn scarcest_resource_bounds_the_number() {
        let plan = sample("limits.memory = \"512MiB\"\nlimits.pids = 63");
        assert_eq!(runs(&plan, PLENTY).0, 1000);
        let memory = (4 << 30) - 1;
        assert_eq!(
            runs(&plan, Headroom { memory, ..PLENTY }),
            (
                7,
                "each may use 512 MiB of memory and 3.99 GiB are left; lower `limits.memory` for more"
                    .to_owned()
            )
        );
        let (number, why) = runs(
            &plan,
            Headroom {
                tasks: 320,
                ..PLENTY
            },
        );
        assert_eq!(number, 5);
        assert!(
            why.contains("each may have 64 processes and 320 are left"),
            "{why}"
        );
        let (number, why) = runs(
            &plan,
            Headroom {
                descriptors: 47,
                ..PLENTY
            },
        );
        assert_eq!(number, 1);
        assert!(why.contains("`ulimit -n`"), "{why}");
    }

    #[test]
    fn at_least_one_run_fits() {
        let nothing = Headroom {
            memory: 0,
            tasks: 0,
            descriptors: 0,
        };
        assert_eq!(runs(&sample(""), nothing).0, 1);
    }

    #[test]
    fn files_count_as_memory_without_a_cgroup() {
        let mut plan = sample(
            "limits.memory = \"64MiB\"\nfilesystem.work_size = \"64MiB\"\n\
                               filesystem.tmp_size = \"64MiB\"",
        );
        let headroom = Headroom {
            memory: 1 << 30,
            ..PLENTY
        };
        assert_eq!(plan.supervision.held_by, HeldBy::Cgroup);
        assert_eq!(runs(&plan, headroom).0, 16);
        plan.supervision.held_by = HeldBy::Watchdog;
        // /work, /tmp and /dev/shm.
        assert_eq!(runs(&plan, headroom).0, 4);
    }
}
