//! How many runs the host can hold at once.

use std::fmt;
use std::num::NonZeroUsize;

use crate::host::Headroom;
use crate::plan::{HeldBy, Plan, bytes};
use crate::sandbox::Sandbox;

/// How many runs of one sandbox fit into what the host has left, each taking all that it may.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capacity {
    /// At least one: a host on which not even that fits is not known to be one until it has failed.
    pub runs: NonZeroUsize,
    bound: Bound,
}

/// What bounds the number of runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bound {
    /// Memory, in bytes.
    Memory {
        /// What one run may use, with its files where those have a limit of their own.
        each: u64,
        /// What is left.
        left: u64,
    },
    /// Processes and threads.
    Tasks {
        /// What one run may have, with the process above it.
        each: u64,
        /// What is left.
        left: u64,
    },
    /// Descriptors of this process.
    Descriptors {
        /// What one run holds.
        each: u64,
        /// What is left.
        left: u64,
    },
}

/// What a run may take, or several together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Needs {
    /// Bytes of memory, with its files where those have a limit of their own.
    pub memory: u64,
    /// Processes and threads, with the process above them.
    pub tasks: u64,
    /// Descriptors of this process.
    pub descriptors: u64,
}

impl Needs {
    /// What a run of a sandbox may take.
    pub fn of(sandbox: &Sandbox) -> Self {
        Self::under(sandbox.plan())
    }

    fn under(plan: &Plan) -> Self {
        let supervision = &plan.supervision;
        // A cgroup counts files in memory as memory. Nothing else does.
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

    /// The larger of each.
    pub fn or_more(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    pub fn fit_in(self, all: Self) -> bool {
        self.or_more(all) == all
    }

    fn with(self, other: Self, of_both: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            memory: of_both(self.memory, other.memory),
            tasks: of_both(self.tasks, other.tasks),
            descriptors: of_both(self.descriptors, other.descriptors),
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

/// What the supervisor holds for one run, the files and sockets of the moments when it begins and
/// ends among it, with its part of the cgroups that are kept for others. A test counts them.
pub const DESCRIPTORS_OF_A_RUN: u64 = 30;

impl Capacity {
    /// Measures now. Takes a few milliseconds and reserves nothing.
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

/// Why there are not more, with what would allow more.
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
    fn the_scarcest_bounds_it() {
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
    fn one_fits_always() {
        let nothing = Headroom {
            memory: 0,
            tasks: 0,
            descriptors: 0,
        };
        assert_eq!(runs(&sample(""), nothing).0, 1);
    }

    #[test]
    fn files_are_memory_where_no_cgroup_counts_them() {
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
